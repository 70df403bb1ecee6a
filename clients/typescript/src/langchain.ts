/**
 * LangChain.js and LangGraph.js: a middleware by which an agent's tool calls pass the gate.
 *
 * ```ts
 * const agent = createAgent({ model, tools, checkpointer, middleware: [callgateMiddleware(client)] });
 * ```
 *
 * @module
 */
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Runnable } from "@langchain/core/runnables";
import { convertToOpenAITool } from "@langchain/core/utils/function_calling";
import {
  type ContentBlock,
  createMiddleware,
  type ToolCallHandler,
  type ToolCallRequest,
  ToolMessage,
} from "langchain";

import { answerQuestion } from "./approvals.js";
import {
  type Client,
  Decision,
  type Gate,
  NotStarted,
  type Outcome,
  type ParameterOptions,
  type Parameters,
  Result,
  type Said,
  ToolFailed,
} from "./index.js";

/** How calls are put to the gate. */
export interface CallgateMiddlewareOptions extends ParameterOptions {
  /**
   * The session of a call. Default: the thread's id (`configurable.thread_id`), and without one `langchain-ID` by the id
   * of the conversation's first message. The run is the last message of a human.
   */
  sessionId?: string | ((request: ToolCallRequest) => string) | undefined;
  /** The agent's name, for its daily budget. */
  agentId?: string | undefined;
  /** A client with the credential of who answers questions. Default: the agent's own client. */
  approvals?: Client | undefined;
}

/** What a graph is interrupted with when a person must approve a call. */
export interface ApprovalRequest {
  type: "callgate_approval";
  /** Names the question in callgate. */
  approvalId: string;
  callId: string;
  tool: string;
  args: Record<string, unknown>;
  /** Why a person is asked, in words. */
  message: string;
  /** When nobody can answer any more, RFC 3339. */
  expireTime: string;
  /** The same in the shape of LangChain's `humanInTheLoopMiddleware`. */
  actionRequests: { name: string; args: Record<string, unknown>; description: string }[];
  reviewConfigs: { actionName: string; allowedDecisions: ("approve" | "reject")[] }[];
}

/**
 * A middleware that asks callgate before each tool call, reports what came of it, and tells the model what callgate says.
 *
 * Where a person must approve, the graph is interrupted with an {@link ApprovalRequest}. It goes on by
 * `new Command({ resume })` with `true`, `false`, `{ approve, reason, by }` or `{ decisions: [{ type: "approve" }] }`,
 * which answers the question; any other value says that somebody has answered it in callgate. Without a checkpointer a
 * graph cannot be interrupted, and the call waits for the answer as {@link Gate.run} does.
 *
 * Put it first among the middlewares: what wraps the tool further inside runs under the permit.
 *
 * @throws {@link CallgateError} from `invoke` for faults of the application, such as a credential that does not hold.
 */
export function callgateMiddleware(client: Client, options: CallgateMiddlewareOptions = {}) {
  const shown = new ShownTools(client, options);
  return createMiddleware({
    name: "callgate",
    wrapModelCall: async (request, handler) => handler({ ...request, tools: await shown.of(request.tools) }),
    wrapToolCall: async (request, handler) => {
      const { toolCall } = request;
      const [args, said] = await shown.taken(toolCall.name, toolCall.args, request.tool);
      const call = { ...request, toolCall: { ...toolCall, args } } as ToolCallRequest;
      return new GatedCall(client, call, said, handler as ToolCallHandler, options).message();
    },
  });
}

type Tool = NonNullable<ToolCallRequest["tool"]>;

/** The tools as the model is to see them. */
class ShownTools {
  readonly #parameters: Parameters;
  readonly #known = new Set<string>();

  constructor(client: Client, options: CallgateMiddlewareOptions) {
    this.#parameters = client.gate("langchain").parameters(options);
  }

  /** Those that need no other schema stay what they are: models have ways of their own to show some tools. */
  async of(tools: readonly Tool[]): Promise<Tool[]> {
    const given = tools.map((tool) => (Runnable.isRunnable(tool) ? convertToOpenAITool(tool) : tool));
    const shown = await this.#parameters.schemas(given);
    return tools.map((tool, n) => {
      if (typeof tool["name"] === "string") this.#known.add(tool["name"]);
      return JSON.stringify(given[n]) === JSON.stringify(shown[n]) ? tool : (shown[n] as Tool);
    });
  }

  /** A call may come before any model is asked: of a graph that is resumed in another process. */
  async taken(name: string, args: Record<string, unknown>, tool: Tool | undefined) {
    if (tool && !this.#known.has(name)) await this.of([tool]);
    return this.#parameters.taken(name, args);
  }
}

/** What the tools' handler gives: a message, or a command of LangGraph. */
type Handled = Awaited<ReturnType<ToolCallHandler>>;

/** One tool call of a graph. */
class GatedCall {
  readonly #gate: Gate;
  readonly #turn: string;

  constructor(
    private readonly client: Client,
    private readonly request: ToolCallRequest,
    private readonly said: Said,
    private readonly handler: ToolCallHandler,
    private readonly options: CallgateMiddlewareOptions,
  ) {
    const { messages } = request.state;
    const runId = messages.findLast(({ type }) => type === "human")?.id;
    this.#gate = client.gate(sessionOf(request, options), { runId, agentId: options.agentId });
    const turns = messages.filter(({ type }) => type === "ai");
    this.#turn = turns.at(-1)?.id ?? `${turns.length}`;
  }

  /** What the model is to see, in place of what the tool gave. */
  async message(): Promise<Handled> {
    const outcome = await this.#outcome();
    const { id, name } = this.request.toolCall;
    const given = outcome.isError ? undefined : outcome.value;
    if (!given) {
      const status = outcome.isError ? "error" : "success";
      return new ToolMessage({ content: outcome.text, tool_call_id: id ?? "", name, status });
    }
    if (!ToolMessage.isInstance(given)) return given;
    if (isText(given.content)) return new ToolMessage({ ...given, content: outcome.text });
    const hint = outcome.hint ? [{ type: "text" as const, text: outcome.hint }] : [];
    return new ToolMessage({ ...given, content: [...(given.content as ContentBlock[]), ...hint] });
  }

  async #outcome(): Promise<Outcome<Handled>> {
    const { configurable, interrupt } = this.request.runtime;
    if (!configurable?.["__pregel_checkpointer"] || !interrupt) return this.#run();
    let outcome = await this.#run(0);
    while (outcome.approvalId) {
      // Throws, until the graph is resumed: its node then runs again, and comes by here with what it is resumed with.
      const answer: unknown = interrupt(this.#question(outcome));
      await answerQuestion(this.options.approvals ?? this.client, outcome.approvalId, answer);
      outcome = await this.#run(0);
    }
    return outcome;
  }

  #run(approvalWaitMs?: number): Promise<Outcome<Handled>> {
    const { toolCall, runtime } = this.request;
    return this.#gate.run(toolCall.name, toolCall.args, (args) => this.#execute(args), {
      ...this.said,
      callId: toolCall.id ?? toolCall.name,
      turn: this.#turn,
      signal: runtime.signal,
      approvalWaitMs,
    });
  }

  async #execute(args: Record<string, unknown>): Promise<Result<Handled>> {
    const { request } = this;
    const given = await Promise.resolve(this.handler({ ...request, toolCall: { ...request.toolCall, args } })).catch(
      // A tool that interrupts the graph itself is run again from its beginning.
      (error) => Promise.reject(error?.is_bubble_up ? new NotStarted(error) : error),
    );
    if (!ToolMessage.isInstance(given)) return new Result(given, { text: JSON.stringify(given) });
    const text = textOf(given.content);
    if (given.status === "error") throw new ToolFailed(text);
    return new Result<Handled>(given, { text });
  }

  /** The message that a person is shown. */
  #question({ approvalId, callId, verdict }: Outcome): ApprovalRequest {
    const { name: tool, args } = this.request.toolCall;
    const message = verdict?.findings.find(({ decision }) => decision === Decision.ASK)?.message ?? "";
    const expireTime = verdict?.approvalExpireTime;
    return {
      type: "callgate_approval",
      approvalId,
      callId,
      tool,
      args,
      message,
      expireTime: expireTime ? timestampDate(expireTime).toISOString() : "",
      actionRequests: [{ name: tool, args, description: message }],
      reviewConfigs: [{ actionName: tool, allowedDecisions: ["approve", "reject"] }],
    };
  }
}

/** The session of a call: that of its thread, or of the conversation that its messages are. */
function sessionOf(request: ToolCallRequest, { sessionId }: CallgateMiddlewareOptions): string {
  if (typeof sessionId === "string") return sessionId;
  const thread = request.runtime.configurable?.thread_id;
  return sessionId?.(request) ?? thread ?? `langchain-${request.state.messages[0]?.id ?? crypto.randomUUID()}`;
}

const isText = (content: ToolMessage["content"]) =>
  typeof content === "string" || content.every(({ type }) => type === "text");

/** What the model reads of a message: its texts a line each, or as JSON where there is more than texts. */
function textOf(content: ToolMessage["content"]): string {
  if (typeof content === "string") return content;
  return isText(content) ? content.map(({ text }) => text).join("\n") : JSON.stringify(content);
}
