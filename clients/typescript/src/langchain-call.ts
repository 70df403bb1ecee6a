/** One tool call of a graph of LangGraph.js. */
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { AIMessage, type ContentBlock, type ToolCallHandler, type ToolCallRequest, ToolMessage } from "langchain";

import { answerQuestion } from "./approvals.js";
import { type Call, proposed } from "./call.js";
import {
  type Client,
  Decision,
  type Gate,
  NotStarted,
  type Outcome,
  PermissionDenied,
  Result,
  type Said,
  ToolFailed,
} from "./index.js";
import type { CallgateMiddlewareOptions } from "./langchain.js";
import { type Approval, ApprovalState } from "./v1.js";

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

/** What the tools' handler gives: a message, or a command of LangGraph. */
type Handled = Awaited<ReturnType<ToolCallHandler>>;

/** One tool call of a graph. */
export class GatedCall {
  readonly #gate: Gate;
  /** The message that proposes the call. */
  readonly #proposed: AIMessage | undefined;
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
    const turns = messages.filter((message) => AIMessage.isInstance(message));
    this.#proposed = turns.at(-1);
    this.#turn = this.#proposed?.id ?? `${turns.length}`;
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

  /**
   * LangGraph gives answers to a node's interrupts by their order alone, and runs the node again from its beginning. So
   * that no answer is taken for another, each question is put once; when the node runs again, those that were put
   * before take their answers first, whatever has become of them meanwhile; and a question that is new must stop the
   * graph.
   */
  async #outcome(): Promise<Outcome<Handled>> {
    const { interrupt } = this.request.runtime;
    if (!interrupt || !this.#canInterrupt()) return this.#run();
    const put = await this.#answered(interrupt);
    const outcome = await this.#run(put ? 0 : undefined).catch((error) => {
      throw put?.size !== 0 && isInterrupt(error) ? this.#mistaken() : error;
    });
    if (outcome.decision !== Decision.ASK || !put) return outcome;
    if (put.has(outcome.approvalId)) return this.#run();
    const { approvalId, callId, message, verdict } = outcome;
    interrupt(this.#question({ approvalId, callId, expireTime: verdict?.approvalExpireTime }, message));
    throw this.#mistaken();
  }

  /** Whether an interrupt can be answered, and its answer go to no other call: of several calls of one node all wait. */
  #canInterrupt(): boolean {
    const { configurable } = this.request.runtime;
    if (!configurable?.["__pregel_checkpointer"] || this.options.interrupts === false) return false;
    const { currentTaskInput } = configurable["__pregel_scratchpad"] as Scratchpad;
    return currentTaskInput?.lg_tool_call !== undefined || this.#proposed?.tool_calls?.length === 1;
  }

  /**
   * Has the questions that were put before take their answers, and gives their ids; undefined where the credential may
   * not look at questions, and so not answer any: then they are answered in callgate.
   */
  async #answered(interrupt: (question: ApprovalRequest) => unknown): Promise<Set<string> | undefined> {
    const { configurable } = this.request.runtime;
    const { resume, nullResume } = configurable?.["__pregel_scratchpad"] as Scratchpad;
    if (resume.length === 0 && nullResume === undefined) return new Set();
    const client = this.options.approvals ?? this.client;
    const { sessionId } = this.#gate;
    const { callId } = await proposed(this.#call());
    const listed = await client.approvals.listApprovals({ sessionId, pageSize: 500 }).catch((error) => {
      if (error instanceof PermissionDenied) return undefined;
      throw error;
    });
    if (!listed) return undefined;
    const before = listed.approvals.filter((approval) => approval.callId === callId).reverse();
    for (const approval of before) {
      const answer = interrupt(this.#question(approval, approval.reasons.join(" ")));
      if (approval.state === ApprovalState.PENDING) await answerQuestion(client, approval.approvalId, answer);
    }
    return new Set(before.map(({ approvalId }) => approvalId));
  }

  /** For a tool and a policy that ask the same user. */
  #mistaken(): Error {
    return new Error(
      `${this.request.toolCall.name} interrupts the graph itself, and so does callgate, to ask a person about it: an ` +
        "answer to the one could be taken for the other. Let one of them ask, or give callgateMiddleware " +
        "interrupts: false",
    );
  }

  #run(approvalWaitMs?: number): Promise<Outcome<Handled>> {
    const { tool, args, execute, ...options } = this.#call();
    return this.#gate.run(tool, args, execute, { ...options, approvalWaitMs });
  }

  #call(): Call<Promise<Result<Handled>>> {
    const { toolCall, runtime } = this.request;
    const callId = toolCall.id ?? toolCall.name;
    const execute = (args: Record<string, unknown>) => this.#execute(args);
    const ids = { callId, turn: this.#turn, signal: runtime.signal };
    return { ...this.said, ...ids, tool: toolCall.name, args: toolCall.args, execute };
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

  #question({ approvalId, callId, expireTime }: Question, message: string): ApprovalRequest {
    const { name: tool, args } = this.request.toolCall;
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

type Question = Pick<Approval, "approvalId" | "callId" | "expireTime">;

/** Where LangGraph keeps what a node is given and resumed with. */
interface Scratchpad {
  currentTaskInput?: { lg_tool_call?: unknown };
  resume: readonly unknown[];
  nullResume?: unknown;
}

const isInterrupt = (error: unknown) => (error as { is_bubble_up?: boolean } | undefined)?.is_bubble_up === true;

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
