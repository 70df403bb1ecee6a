/** The approval requests of one turn of a graph of LangGraph.js, in one interrupt. */
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { BaseMessage } from "langchain";

import { answerQuestion, readAnswers, requested } from "./approvals.js";
import { proposed } from "./call.js";
import { CallgateUnavailable, type Client, Decision, type Gate, taken } from "./index.js";
import type { CallgateMiddlewareOptions } from "./langchain.js";
import { marksOf, type Place, turnOf, usageFor } from "./langchain-turn.js";
import { NOTHING_ADDED } from "./schemas.js";
import { type Approval, ApprovalState } from "./v1.js";

/** One of the calls that a person must approve. */
export interface ApprovalOfCall {
  /** Names the request in callgate. */
  approvalId: string;
  callId: string;
  tool: string;
  args: Record<string, unknown>;
  /** Why a person is asked, in words. */
  message: string;
  /** When nobody can answer any more, RFC 3339. */
  expireTime: string;
}

/** What a graph is interrupted with when a person must approve calls of the model's last message. */
export interface ApprovalRequest {
  type: "callgate_approval";
  /** In the order of the model's calls. */
  requests: ApprovalOfCall[];
  /** The same in the shape of LangChain's `humanInTheLoopMiddleware`. */
  actionRequests: { name: string; args: Record<string, unknown>; description: string }[];
  reviewConfigs: { actionName: string; allowedDecisions: ("approve" | "edit" | "reject")[] }[];
}

/** Where LangGraph keeps what a node is resumed with. */
export interface Scratchpad {
  resume: readonly unknown[];
  nullResume?: unknown;
}

type Interrupt = (question: unknown) => unknown;

/** Whether a graph can be interrupted here, and resumed. */
export function canInterrupt({ runtime }: Place, { interrupts }: CallgateMiddlewareOptions): boolean {
  const { configurable, interrupt } = runtime as { configurable?: Record<string, unknown>; interrupt?: Interrupt };
  return interrupts !== false && interrupt !== undefined && configurable?.["__pregel_checkpointer"] !== undefined;
}

/** The calls of the model's last message, before any of them runs. */
export class Turn {
  readonly #messages: readonly BaseMessage[];

  constructor(
    private readonly gate: Gate,
    private readonly place: Place,
    private readonly approvals: Client,
  ) {
    this.#messages = place.state.messages;
  }

  /**
   * Interrupts the graph where a person must approve one of the calls. LangGraph then runs the node again, and hands it
   * the answers of all its interrupts in their order: the last one is new. Where a request stays open, such as one that
   * two people must approve, the graph is interrupted once more.
   *
   * @throws TypeError naming the allowed shapes, for a value that is no answer: the graph can be resumed with another.
   */
  async ask(): Promise<void> {
    const { interrupt, configurable } = this.place.runtime as { interrupt: Interrupt; configurable: object };
    const { resume, nullResume } = (configurable as Record<string, unknown>)["__pregel_scratchpad"] as Scratchpad;
    let answer: unknown;
    const answers = resume.length + (nullResume === undefined ? 0 : 1);
    for (let n = 0; n < answers; n++) answer = interrupt(undefined);
    if (answers > 0 && answer !== "answered") await this.#answer(answer);
    const open = await this.#open();
    if (open.length > 0) interrupt(questionOf(open));
  }

  /** The requests that nobody has answered; those that are new are made. */
  async #open(): Promise<ApprovalOfCall[]> {
    const calls = turnOf(this.#messages).calls.map((call) => this.#asked(call));
    const judged = calls.map(async ({ tool, args, options }) => {
      const { decision } = await this.gate.evaluate(tool, args, { ...options, dryRun: true });
      return decision === Decision.ASK;
    });
    const isAsked = await Promise.all(judged).catch((error) => {
      // The calls themselves will tell the model.
      if (error instanceof CallgateUnavailable) return [];
      throw error;
    });
    const open: ApprovalOfCall[] = [];
    for (const { tool, args, options } of calls.filter((_, n) => isAsked[n])) {
      const verdict = await requested(this.gate, tool, args, options);
      if (!verdict) continue;
      const { approvalId, callId, approvalExpireTime } = verdict;
      const message = String((JSON.parse(verdict.toolResultJson) as { message?: string }).message ?? "");
      const expireTime = approvalExpireTime ? timestampDate(approvalExpireTime).toISOString() : "";
      open.push({ approvalId, callId, tool, args, message, expireTime });
    }
    return open;
  }

  /** As the call itself will be evaluated. */
  #asked({ id, name, args }: { id?: string; name: string; args: Record<string, unknown> }) {
    const { proposed: message, turn } = turnOf(this.#messages);
    const [left, said] = taken(args, marksOf(message).added?.[name] ?? NOTHING_ADDED);
    const usage = usageFor(this.#messages, id);
    return { tool: name, args: left, options: { ...said, callId: id ?? name, turn, usage } };
  }

  async #answer(answer: unknown): Promise<void> {
    const ids = turnOf(this.#messages).calls.map(async (call) => {
      const { tool, args, options } = this.#asked(call);
      return (await proposed({ ...options, tool, args, execute: () => undefined })).callId;
    });
    const { sessionId } = this.gate;
    const { approvals } = await this.approvals.approvals.listApprovals({ sessionId, pageSize: 500 });
    const all = (await Promise.all(ids)).flatMap((id) => approvals.find(({ callId }) => callId === id) ?? []);
    const pending = all.filter(({ state }) => state === ApprovalState.PENDING);
    // Of the requests some may have been answered in callgate meanwhile: their answers hold.
    const { decisions } = (answer ?? {}) as { decisions?: unknown[] };
    const asked = decisions?.length === all.length ? all : pending;
    const answers = readAnswers(answer, toolsOf(asked)) ?? [];
    for (const [n, given] of answers.entries()) {
      const { state, approvalId } = asked[n] as Approval;
      if (state === ApprovalState.PENDING) await answerQuestion(this.approvals, approvalId, given);
    }
  }
}

const toolsOf = (approvals: readonly Approval[]) => approvals.map(({ tool }) => tool);

function questionOf(requests: ApprovalOfCall[]): ApprovalRequest {
  return {
    type: "callgate_approval",
    requests,
    actionRequests: requests.map(({ tool: name, args, message: description }) => ({ name, args, description })),
    reviewConfigs: requests.map(({ tool: actionName }) => {
      return { actionName, allowedDecisions: ["approve", "edit", "reject"] };
    }),
  };
}
