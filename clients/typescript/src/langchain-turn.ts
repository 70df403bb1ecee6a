/** What the messages of a graph say: its session and run, the usage of its model, and whether calls are let through. */
import { AIMessage, type BaseMessage, HumanMessage, type ToolCallRequest, ToolMessage } from "langchain";

import { type Added, type Client, type Gate, type ModelUsage, usageOf } from "./index.js";
import type { CallgateMiddlewareOptions } from "./langchain.js";

/** Summaries whose graphs have not gone on. */
const SUMMARIES_MAX = 1_000;

/** Where a middleware is called. */
export type Place = Pick<ToolCallRequest, "state" | "runtime">;

/** What callgate keeps with a message, where a later process finds it. */
interface Marks {
  /** Of the call that the message answers. */
  runId?: string | undefined;
  /** No further call of that run is let through. */
  toolsDisabled?: boolean;
  /** Of the model's message: the parameters that its tools were given. */
  added?: Record<string, Added>;
}

export const marksOf = (message: BaseMessage | undefined): Marks =>
  (message?.additional_kwargs["callgate"] ?? {}) as Marks;
const isSummary = (message: BaseMessage) => message.additional_kwargs["lc_source"] === "summarization";

/** The gate of a graph's thread, in its present run. */
export function gateOf(client: Client, place: Place, options: CallgateMiddlewareOptions): Gate {
  const { agentId, parentSessionId, usage } = options;
  const runId = runOf(place.state.messages);
  return client.gate(sessionOf(place, options), { runId, agentId, parentSessionId, usage });
}

function sessionOf(place: Place, { sessionId }: CallgateMiddlewareOptions): string {
  if (typeof sessionId === "string") return sessionId;
  const thread = place.runtime.configurable?.thread_id;
  return sessionId?.(place) ?? thread ?? `langchain-${place.state.messages[0]?.id ?? crypto.randomUUID()}`;
}

/** The last message of a human, or where a summary stands in its place, the run of the last call. */
export function runOf(messages: readonly BaseMessage[]): string | undefined {
  const human = messages.findLast((message) => message.type === "human" && !isSummary(message));
  if (human) return human.id;
  const marked = messages.findLast((message) => marksOf(message).runId !== undefined);
  return marked ? marksOf(marked).runId : messages.findLast(({ type }) => type === "human")?.id;
}

/** The model's last message, its calls without an answer, and the prefix of their ids. */
export function turnOf(messages: readonly BaseMessage[]) {
  const turns = messages.filter((message) => AIMessage.isInstance(message));
  const proposed = turns.at(-1);
  const after = proposed ? messages.slice(messages.lastIndexOf(proposed)) : [];
  const answered = new Set(after.flatMap((message) => (ToolMessage.isInstance(message) ? [message.tool_call_id] : [])));
  const calls = (proposed?.tool_calls ?? []).filter(({ id }) => !answered.has(id ?? ""));
  return { proposed, calls, turn: proposed?.id ?? `${turns.length}` };
}

/**
 * What the model used since its last message with calls, for the first open call of its message alone: a node that runs
 * again, here or in another process, says the same, and callgate books it with the first judgement of a call.
 */
export function usageFor(messages: readonly BaseMessage[], callId: string | undefined): ModelUsage[] {
  if (turnOf(messages).calls[0]?.id !== callId) return [];
  const turns = messages.filter((message) => AIMessage.isInstance(message));
  const before = turns.slice(0, -1).findLastIndex(({ tool_calls }) => (tool_calls?.length ?? 0) > 0);
  return turns.slice(before + 1).flatMap((message) => usageOf(message) ?? []);
}

/** The messages up to the answers of the last calls, and those answers. */
function lastAnswers(messages: readonly BaseMessage[]): [readonly BaseMessage[], readonly BaseMessage[]] {
  const at = messages.findLastIndex((message) => !ToolMessage.isInstance(message));
  return [messages.slice(0, at + 1), messages.slice(at + 1)];
}

/** Whether the answers of the last calls say that no further one is let through. */
export function areToolsDisabled(messages: readonly BaseMessage[]): boolean {
  return lastAnswers(messages)[1].some((message) => marksOf(message).toolsDisabled === true);
}

/** The model was told that no call is let through, and called once more: what ends the run; undefined: it goes on. */
export function ending(messages: readonly BaseMessage[]): AIMessage | undefined {
  const [before, answers] = lastAnswers(messages);
  const last = answers.findLast((message) => marksOf(message).toolsDisabled === true);
  if (!last || !AIMessage.isInstance(before.at(-1)) || !areToolsDisabled(before.slice(0, -1))) return undefined;
  return new AIMessage(`The run has ended, since no further tool call is let through. ${sentenceOf(last.text)}`);
}

function sentenceOf(json: string): string {
  try {
    return String((JSON.parse(json) as { message?: string }).message ?? "");
  } catch {
    return "";
  }
}

/** Summaries in place of messages, as of LangChain's `summarizationMiddleware`, and what is put to them. */
export class Summaries {
  readonly #made = new Map<string, HumanMessage>();

  /** The messages for the model: a new summary is a compaction, and has with it what is not to be forgotten. */
  async shown(gate: Gate, messages: BaseMessage[]): Promise<BaseMessage[]> {
    const at = messages.findIndex(isFresh);
    const summary = messages[at];
    if (!summary) return messages;
    const key = keyOf(gate, summary);
    let made = this.#made.get(key);
    if (!made) {
      const { summaryForModel } = await gate.compacted();
      const content = [summary.text, summaryForModel].filter(Boolean).join("\n\n");
      const additional_kwargs = { ...summary.additional_kwargs, callgate: {} };
      made = new HumanMessage({ content, additional_kwargs, ...(summary.id && { id: summary.id }) });
      this.#made.set(key, made);
      for (const oldest of this.#made.keys()) if (this.#made.size > SUMMARIES_MAX) this.#made.delete(oldest);
    }
    return messages.with(at, made);
  }

  /** What the state is to have in place of a new summary. */
  taken(gate: Gate, messages: readonly BaseMessage[]): HumanMessage[] {
    const summary = messages.find(isFresh);
    const made = summary && this.#made.get(keyOf(gate, summary));
    if (!summary || !made) return [];
    this.#made.delete(keyOf(gate, summary));
    return [made];
  }
}

const isFresh = (message: BaseMessage) => isSummary(message) && !("callgate" in message.additional_kwargs);
const keyOf = ({ sessionId }: Gate, { text }: BaseMessage) => JSON.stringify([sessionId, text]);
