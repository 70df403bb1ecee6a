/** What is to be known of a call of the AI SDK, of any version. */
import type { Outcome } from "./index.js";

/** A call was refused, or failed: the message is what the model is to see, the cause the tool's own error if it ran. */
export class ToolCallError extends Error {
  override readonly name = "ToolCallError";

  constructor(readonly outcome: Outcome) {
    super(outcome.text, { cause: outcome.error });
  }
}

// biome-ignore lint/suspicious/noExplicitAny: each tool says itself what it takes and gives
export type Any = any;

/** A tool of any version of the SDK, as far as it is wrapped here. */
export interface AnyTool {
  type?: string;
  strict?: boolean;
  inputSchema: Any;
  execute?: (input: Any, options: CallOptions) => unknown;
  needsApproval?: boolean | ((input: Any, options: CallOptions) => boolean | PromiseLike<boolean>);
  toModelOutput?: (shown: Shown) => Any;
}

export interface CallOptions {
  toolCallId: string;
  messages: readonly { role: string; content: unknown }[];
  abortSignal?: AbortSignal;
}

interface Shown {
  toolCallId: string;
  input: Any;
  output: Any;
}

/** What came of the calls whose output the model has yet to be told; the oldest are forgotten. */
export class Told {
  readonly #kept = new Map<string, { output: unknown; outcome: Outcome }>();
  /** How many of the model's messages the tools of this step are not given, since a compaction has left them out. */
  leftOut = 0;

  keep<T>(callId: string, output: T, outcome: Outcome): T {
    this.#kept.delete(callId);
    this.#kept.set(callId, { output, outcome });
    for (const oldest of this.#kept.keys()) if (this.#kept.size > 256) this.#kept.delete(oldest);
    return output;
  }

  /** By id and output: an id may come again in another turn. */
  of({ toolCallId, output }: Shown): Outcome | undefined {
    const kept = this.#kept.get(toolCallId);
    return kept && Object.is(kept.output, output) ? kept.outcome : undefined;
  }
}

/** How many times the model had spoken before it proposed the call, which tells apart ids that come again. */
export function turnOf(call: CallOptions, leftOut: number): string {
  const spoken = leftOut + spokenIn(call.messages);
  return `${answerOf(call) === undefined ? spoken : spoken - 1}`;
}

/** The number of the model's messages. */
export const spokenIn = (messages: CallOptions["messages"]) =>
  messages.filter((one) => one.role === "assistant").length;

/**
 * What the user has answered about the call by the SDK's own approval; undefined: nobody was asked. Then the messages end
 * with the proposal, what is known of other calls, and the answers.
 */
export function answerOf({ toolCallId, messages }: CallOptions): boolean | undefined {
  const proposal = messages.findLastIndex(({ role }) => role === "assistant");
  const parts = messages.slice(Math.max(proposal, 0)).flatMap(({ content }) => (Array.isArray(content) ? content : []));
  if (parts.some((part) => part.type === "tool-result" && part.toolCallId === toolCallId)) return undefined;
  const asked = parts.find((part) => part.type === "tool-approval-request" && part.toolCallId === toolCallId);
  return parts.find((part) => part.type === "tool-approval-response" && part.approvalId === asked?.approvalId)
    ?.approved;
}

/** A call that the user has refused by the SDK's own approval, with its turn as {@link turnOf} counts. */
interface Refusal {
  toolCallId: string;
  toolName: string;
  input: unknown;
  turn: string;
  reason: string | undefined;
}

/** The refusals since the model's last message. */
export function refusalsOf(messages: CallOptions["messages"]): Refusal[] {
  const since = messages.slice(messages.findLastIndex(({ role }) => role === "assistant") + 1).flatMap(partsOf);
  const refused = since.filter(({ type, approved }) => type === "tool-approval-response" && approved === false);
  const assistant = messages.filter(({ role }) => role === "assistant");
  return refused.flatMap(({ approvalId, reason }) => {
    const at = assistant.findLastIndex((message) => partsOf(message).some((part) => part.approvalId === approvalId));
    const parts = assistant[at] ? partsOf(assistant[at]) : [];
    const { toolCallId } = parts.find((part) => part.approvalId === approvalId) ?? {};
    const call = parts.find((part) => part.type === "tool-call" && part.toolCallId === toolCallId);
    if (!call) return [];
    return [{ toolCallId, toolName: call.toolName, input: call.input, turn: `${at}`, reason }];
  });
}

const partsOf = ({ content }: { content: unknown }): Any[] => (Array.isArray(content) ? content : []);

/** The arguments to execute, with what the schema had made of them (dates, defaults) where callgate left them alone. */
export function restored(input: Any, args: Record<string, unknown>): unknown {
  const isSame = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);
  if (isSame(input, args)) return input;
  const entries = Object.entries(args).map(([name, value]) => [name, isSame(input[name], value) ? input[name] : value]);
  return Object.fromEntries(entries);
}

/** The last of what a tool gives, which may give several in turn. */
export async function last(given: unknown, each?: (part: unknown) => void): Promise<unknown> {
  const value = await given;
  if (!isIterable(value)) return value;
  let latest: unknown;
  for await (const part of value) {
    latest = part;
    each?.(part);
  }
  return latest;
}

const isIterable = (value: unknown): value is AsyncIterable<unknown> =>
  typeof value === "object" && value !== null && Symbol.asyncIterator in value;

export const isGenerator = (execute: object) =>
  Object.prototype.toString.call(execute) === "[object AsyncGeneratorFunction]";

/** Gives what a call gives in turn as it comes, and for a call that did not run what stands in its place. */
export async function* streamed(run: (each: (part: unknown) => void) => Promise<unknown>): AsyncGenerator<unknown> {
  const parts: unknown[] = [];
  let wake = () => {};
  let isOver = false;
  let ran = false;
  const done = run((part) => {
    ran = true;
    parts.push(part);
    wake();
  }).finally(() => {
    isOver = true;
    wake();
  });
  done.catch(() => {});
  while (!isOver || parts.length > 0) {
    if (parts.length > 0) yield parts.shift();
    else await new Promise<void>((resolve) => (wake = resolve));
  }
  const value = await done;
  if (!ran) yield value;
}

/** As the SDK shows an output itself. */
export const plain = (output: unknown) =>
  typeof output === "string" ? { type: "text", value: output } : { type: "json", value: output ?? null };

/** An output of a tool's own making, with a hint after it. */
export function hinted(output: { type: string; value: Any }, hint: string) {
  const text = (value: string) => ({ type: "text", text: value });
  if (output.type === "content") return { ...output, value: [...output.value, text(hint)] };
  if (output.type === "text") return { ...output, value: `${output.value}\n\n${hint}` };
  return { type: "content", value: [text(JSON.stringify(output.value)), text(hint)] };
}
