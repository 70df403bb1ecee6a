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
import { AIMessage, createMiddleware, type ToolCallHandler, type ToolCallRequest } from "langchain";
import {
  type Added,
  CallgateUnavailable,
  type Client,
  type OnUsage,
  type ParameterOptions,
  type Parameters,
} from "./index.js";
import { canInterrupt, Turn } from "./langchain-approvals.js";
import { GatedCall } from "./langchain-call.js";
import { areToolsDisabled, ending, gateOf, type Place, Summaries } from "./langchain-turn.js";
import { NOTHING_ADDED } from "./schemas.js";

export type { ApprovalOfCall, ApprovalRequest } from "./langchain-approvals.js";

/** How calls are put to the gate. */
export interface CallgateMiddlewareOptions extends ParameterOptions {
  /**
   * The session of a graph. Default: the thread's id (`configurable.thread_id`), and without one `langchain-ID` by the
   * id of the conversation's first message. The run is the last message of a human.
   */
  sessionId?: string | ((place: Place) => string) | undefined;
  /** The session that started this one, such as that of an agent whose tool this agent is. */
  parentSessionId?: string | undefined;
  /** The agent's name, for its daily budget. */
  agentId?: string | undefined;
  /**
   * Whether the graph is interrupted where a person must approve, if it has a checkpointer; true. Else the call waits.
   */
  interrupts?: boolean | undefined;
  /** A client with the credential of who answers approval requests. Default: the agent's own client. */
  approvals?: Client | undefined;
  /** As of a gate: is called with the usage of each message of the model before it is booked. */
  usage?: OnUsage | undefined;
}

/**
 * A middleware that asks callgate before each tool call, reports what came of it, and tells the model what callgate
 * says.
 *
 * - **Approvals.** Where a person must approve calls of the model's message, the graph is interrupted once, before any
 *   of them runs, with an {@link ApprovalRequest}. It goes on by `new Command({ resume })` with `true`, `false`,
 *   `{ approve, reason, by }` or `{ decisions: [{ type: "approve" | "reject" | "edit", … }] }`, which answers the
 *   requests, or with `"answered"` once they were answered in callgate. Arguments that a person edits run in place of
 *   the model's, and the model is told so. A graph without a checkpointer waits for an answer in callgate.
 * - **Usage** of the model's messages is booked with the first call of the message, once.
 * - **End of a run.** Once no further call is let through, the model is offered no tools, and the run ends after one
 *   more message with calls.
 * - **Compaction.** A summary of `summarizationMiddleware` is recorded, and callgate's own is put to it.
 *
 * Put it first among the middlewares: what wraps the tool further inside runs under the permit.
 *
 * @throws {@link CallgateError} from `invoke` for faults of the application, such as a credential that does not hold;
 * TypeError naming the allowed shapes, for a value that is no answer.
 */
export function callgateMiddleware(client: Client, options: CallgateMiddlewareOptions = {}) {
  const shown = new ShownTools(client, options);
  const summaries = new Summaries();
  return createMiddleware({
    name: "callgate",
    beforeModel: {
      canJumpTo: ["end"],
      hook: ({ messages }) => {
        const end = ending(messages);
        return end && { messages: [end], jumpTo: "end" };
      },
    },
    wrapModelCall: async (request, handler) => {
      const gate = gateOf(client, request as Place, options);
      const messages = await summaries.shown(gate, request.messages).catch((error) => {
        if (!(error instanceof CallgateUnavailable)) throw error;
        client.plane.settings.log(`callgate: a compaction is not recorded: ${error.message}`);
        return request.messages;
      });
      const isOver = areToolsDisabled(request.messages);
      const tools = isOver && !needsTools(request.model) ? [] : await shown.of(request.tools);
      // The type of the choice knows OpenAI's only.
      const choice = isOver && tools.length > 0 && isAnthropic(request.model) ? { toolChoice: { type: "none" } } : {};
      const answer = await handler({ ...request, messages, tools, ...choice } as typeof request);
      if (AIMessage.isInstance(answer)) shown.mark(answer);
      return answer;
    },
    afterModel: async (state, runtime) => {
      const place = { state, runtime } as Place;
      const gate = gateOf(client, place, options);
      if (canInterrupt(place, options)) await new Turn(gate, place, options.approvals ?? client).ask();
      const messages = summaries.taken(gate, state.messages);
      return messages.length > 0 ? { messages } : undefined;
    },
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

  /** Keeps with the model's message what its calls have by parameters that were added. */
  mark(message: AIMessage): void {
    const added: Record<string, Added> = {};
    for (const { name } of message.tool_calls ?? []) {
      const given = this.#parameters.added(name);
      if (given !== NOTHING_ADDED && (given.justification || given.repeat)) added[name] = given;
    }
    if (Object.keys(added).length > 0) message.additional_kwargs["callgate"] = { added };
  }

  /** A call may come before any model is asked: of a graph that is resumed in another process. */
  async taken(name: string, args: Record<string, unknown>, tool: Tool | undefined) {
    if (tool && !this.#known.has(name)) await this.of([tool]);
    const [left, said] = this.#parameters.taken(name, args);
    return [left, { ...said, takes: this.#parameters.takes(name) }] as const;
  }
}

/** The kind of a model, as LangChain names it. */
function kindOf(model: unknown): string {
  const named = model as { _llmType?: () => string };
  return typeof named._llmType === "function" ? named._llmType() : "";
}

function isAnthropic(model: unknown): boolean {
  return kindOf(model).startsWith("anthropic");
}

/** Whether the provider rejects a history of tool calls in a request without tools. Bedrock cannot choose none. */
function needsTools(model: unknown): boolean {
  return isAnthropic(model) || kindOf(model).includes("bedrock");
}
