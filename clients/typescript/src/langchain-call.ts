/** One tool call of a graph of LangGraph.js. */
import { type ContentBlock, type ToolCallHandler, type ToolCallRequest, ToolMessage } from "langchain";

import { type Client, Decision, type Gate, NotStarted, type Outcome, Result, type Said, ToolFailed } from "./index.js";
import type { CallgateMiddlewareOptions } from "./langchain.js";
import { canInterrupt, type Scratchpad } from "./langchain-approvals.js";
import { gateOf, runOf, turnOf, usageFor } from "./langchain-turn.js";

/** What the tools' handler gives: a message, or a command of LangGraph. */
type Handled = Awaited<ReturnType<ToolCallHandler>>;

/** One tool call of a graph. */
export class GatedCall {
  readonly #gate: Gate;

  constructor(
    client: Client,
    private readonly request: ToolCallRequest,
    private readonly said: Said,
    private readonly handler: ToolCallHandler,
    private readonly options: CallgateMiddlewareOptions,
  ) {
    this.#gate = gateOf(client, request, options);
  }

  /** What the model is to see, in place of what the tool gave. */
  async message(): Promise<Handled> {
    const outcome = await this.#outcome();
    if (outcome.decision === Decision.ASK && this.#isResumed()) throw this.#mistaken();
    const { id = "", name } = this.request.toolCall;
    const given = outcome.isError ? undefined : (outcome.value ?? outcome.first?.value);
    const additional_kwargs = { callgate: this.#marks(outcome) };
    if (!given) {
      const status = outcome.isError ? "error" : "success";
      return new ToolMessage({ content: outcome.text, tool_call_id: id, name, status, additional_kwargs });
    }
    if (!ToolMessage.isInstance(given)) return given;
    const kept = {
      ...given,
      tool_call_id: id,
      additional_kwargs: { ...given.additional_kwargs, ...additional_kwargs },
    };
    // A repetition is a message of its own.
    const { id: _, ...again } = kept;
    if (!outcome.ran) return new ToolMessage({ ...again, content: outcome.text });
    if (isText(given.content)) return new ToolMessage({ ...kept, content: outcome.text });
    const hint = outcome.hint ? [{ type: "text" as const, text: outcome.hint }] : [];
    return new ToolMessage({ ...kept, content: [...(given.content as ContentBlock[]), ...hint] });
  }

  /** The tool has interrupted the graph, and has its answer. */
  #isResumed(): boolean {
    const { configurable } = this.request.runtime;
    const { resume, nullResume } = (configurable?.["__pregel_scratchpad"] ?? {}) as Partial<Scratchpad>;
    return canInterrupt(this.request, this.options) && (Boolean(resume?.length) || nullResume !== undefined);
  }

  /** An approval is for one execution, and a tool that interrupts the graph is executed once more. */
  #mistaken(): Error {
    const { name } = this.request.toolCall;
    return new Error(
      `${name} interrupts the graph itself, and callgate asks a person before each execution of it: let one of them ` +
        "ask, or give callgateMiddleware interrupts: false",
    );
  }

  #marks({ toolsDisabled }: Outcome) {
    const runId = runOf(this.request.state.messages);
    return { ...(runId && { runId }), ...(toolsDisabled && { toolsDisabled }) };
  }

  #outcome(): Promise<Outcome<Handled>> {
    const { toolCall, runtime, state } = this.request;
    const { messages } = state;
    const options = {
      ...this.said,
      callId: toolCall.id ?? toolCall.name,
      turn: turnOf(messages).turn,
      usage: usageFor(messages, toolCall.id),
      signal: runtime.signal,
      // People were asked before any call of the turn.
      ...(canInterrupt(this.request, this.options) && { approvalWaitMs: 0 }),
    };
    return this.#gate.run(toolCall.name, toolCall.args, (args) => this.#execute(args), options);
  }

  async #execute(args: Record<string, unknown>): Promise<Result<Handled>> {
    const { request } = this;
    const given = await Promise.resolve(this.handler({ ...request, toolCall: { ...request.toolCall, args } })).catch(
      // A tool that interrupts the graph itself is run again from its beginning.
      (error) => Promise.reject(isInterrupt(error) ? new NotStarted(error) : error),
    );
    if (!ToolMessage.isInstance(given)) return new Result(given, { text: JSON.stringify(given) });
    const text = textOf(given.content);
    if (given.status === "error") throw new ToolFailed(text);
    return new Result<Handled>(given, { text });
  }
}

const isInterrupt = (error: unknown) => (error as { is_bubble_up?: boolean } | undefined)?.is_bubble_up === true;

const isText = (content: ToolMessage["content"]) =>
  typeof content === "string" || content.every(({ type }) => type === "text");

/** What the model reads of a message: its texts a line each, or as JSON where there is more than texts. */
function textOf(content: ToolMessage["content"]): string {
  if (typeof content === "string") return content;
  return isText(content) ? content.map(({ text }) => text).join("\n") : JSON.stringify(content);
}
