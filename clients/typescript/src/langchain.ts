/**
 * LangChain.js and LangGraph.js: a middleware by which an agent's tool calls pass the gate.
 *
 * ```ts
 * const agent = createAgent({ model, tools, checkpointer, middleware: [callgateMiddleware(client)] });
 * ```
 *
 * @module
 */
import { Runnable } from "@langchain/core/runnables";
import { convertToOpenAITool } from "@langchain/core/utils/function_calling";
import { createMiddleware, type ToolCallHandler, type ToolCallRequest } from "langchain";

import type { Client, ParameterOptions, Parameters } from "./index.js";
import { GatedCall } from "./langchain-call.js";

export type { ApprovalRequest } from "./langchain-call.js";

/** How calls are put to the gate. */
export interface CallgateMiddlewareOptions extends ParameterOptions {
  /**
   * The session of a call. Default: the thread's id (`configurable.thread_id`), and without one `langchain-ID` by the
   * id of the conversation's first message. The run is the last message of a human.
   */
  sessionId?: string | ((request: ToolCallRequest) => string) | undefined;
  /** The agent's name, for its daily budget. */
  agentId?: string | undefined;
  /** Whether a question to a person interrupts the graph, where it has a checkpointer; true. Else the call waits. */
  interrupts?: boolean | undefined;
  /** A client with the credential of who answers questions. Default: the agent's own client. */
  approvals?: Client | undefined;
}

/**
 * A middleware that asks callgate before each tool call, reports what came of it, and tells the model what callgate
 * says.
 *
 * Where a person must approve, the graph is interrupted with an {@link ApprovalRequest}. It goes on by
 * `new Command({ resume })` with `true`, `false`, `{ approve, reason, by }` or `{ decisions: [{ type: "approve" }] }`,
 * which answers the question; after any other value, as after one yes where two people must give it, the call waits for
 * an answer in callgate, as it does in a graph without a checkpointer. A tool that interrupts the graph as well cannot
 * be asked about so: an answer could be taken for the other.
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
    const [left, said] = this.#parameters.taken(name, args);
    return [left, { ...said, takes: this.#parameters.takes(name) }] as const;
  }
}
