/** Answers to approval requests that a framework's own user gives. */
import { create } from "@bufbuild/protobuf";

import type { RunOptions } from "./call.js";
import { CallgateError, CallgateUnavailable, PermissionDenied } from "./errors.js";
import type { Gate } from "./gate.js";
import { RecordRequestSchema } from "./gen/callgate/v1/gate_service_pb.js";
import { Decision, OutcomeStatus, type Verdict } from "./gen/callgate/v1/types_pb.js";
import type { Client } from "./index.js";
import { asJson } from "./values.js";

/** Who answers: `by` names the user, where callgate has no credentials; `client` has the credential, where it has. */
export interface Answerer {
  by?: string | undefined;
  client?: Client | undefined;
}

/** An answer: yes or no, with a reason that the model is told of a no, and with whose it is. */
export interface Answer {
  approve: boolean;
  reason?: string | undefined;
  by?: string | undefined;
  /** Approved instead of the model's arguments. */
  args?: object | undefined;
}

const SHAPES =
  'true, false, { approve: true | false, reason?, by? }, { decisions: [{ type: "approve" }, ' +
  '{ type: "reject", message? }, { type: "edit", editedAction: { name, args } }] } with one decision for each request, ' +
  'or "answered" once somebody has answered in callgate';

/**
 * The answers to `count` requests for these tools, in their order; undefined: they were given in callgate.
 *
 * @throws TypeError naming the allowed shapes.
 */
export function readAnswers(given: unknown, tools: readonly string[]): Answer[] | undefined {
  if (given === "answered") return undefined;
  if (typeof given === "boolean") return tools.map(() => ({ approve: given }));
  const { decisions, approve, reason, by } = (given ?? {}) as Record<string, unknown>;
  if (Array.isArray(decisions)) {
    if (decisions.length === tools.length) return decisions.map((one, n) => decided(one, tools[n] ?? ""));
    throw new TypeError(
      `resume: ${decisions.length} decisions for ${tools.length} requests (${tools.join(", ")}); give one for each`,
    );
  }
  const isText = [reason, by].every((text) => text === undefined || typeof text === "string");
  if (typeof approve !== "boolean" || !isText) throw mistaken(given);
  return tools.map(() => ({ approve, reason: reason as string | undefined, by: by as string | undefined }));
}

function mistaken(given: unknown): TypeError {
  return new TypeError(`resume: ${asJson(given).slice(0, 200)} is no answer; answers are ${SHAPES}`);
}

function decided(decision: unknown, tool: string): Answer {
  const { type, message, editedAction } = (decision ?? {}) as Record<string, unknown>;
  if (type === "approve") return { approve: true };
  if (type === "reject" && (message === undefined || typeof message === "string")) {
    return { approve: false, reason: message };
  }
  if (type !== "edit") throw mistaken({ decisions: [decision] });
  const { name, args } = (editedAction ?? {}) as { name?: unknown; args?: unknown };
  if (name !== tool) {
    throw new TypeError(`resume: editedAction.name: ${asJson(name)} is not ${tool}; only its arguments can be edited`);
  }
  if (typeof args !== "object" || args === null || Array.isArray(args)) {
    throw new TypeError(`resume: editedAction.args: ${asJson(args).slice(0, 200)} is no object`);
  }
  return { approve: true, args };
}

/**
 * Answers an approval request. By default it is the answer of "user".
 *
 * @throws CallgateError where who answers may not, or the edited arguments cannot run.
 */
export async function answerQuestion(client: Client, approvalId: string, answer: Answer): Promise<void> {
  const { approve, reason = "", by = "user", args } = answer;
  const editedArgumentsJson = args ? asJson(args) : "";
  const request = { approvalId, approve, reason, editedArgumentsJson };
  await client.approvals.resolveApproval(request, { headers: { "callgate-by": by } });
}

/**
 * Records a no that was said before callgate had a request for it, or where the credential may not deny, that it is
 * withdrawn. A call that needs no approval any more is not recorded. Where callgate gives no answer the no is logged: the call does not run all the same.
 */
export async function denyQuestion(
  gate: Gate,
  tool: string,
  args: object,
  options: RunOptions,
  { client = gate.client, by, reason }: Answerer & { reason?: string | undefined },
): Promise<void> {
  const { log } = gate.client.plane.settings;
  try {
    const judged = await gate.evaluate(tool, args, { ...options, dryRun: true });
    if (judged.decision !== Decision.ASK) return;
    const verdict = await requested(gate, tool, args, options);
    const answer = { approve: false, reason: reason || "The user of the application refused it.", by };
    if (!verdict) return;
    const { approvalId } = verdict;
    await answerQuestion(client, approvalId, answer).catch(async (error) => {
      if (!(error instanceof PermissionDenied)) throw error;
      // Who may not deny it may take it back: nobody is left with an open request.
      const headers = { "callgate-by": gate.sessionId };
      await gate.client.approvals.withdrawApproval({ approvalId, reason: answer.reason }, { headers });
    });
    // With this the call is refused, and waits for nobody.
    await gate.evaluate(tool, args, options);
  } catch (error) {
    if (!(error instanceof CallgateError)) throw error;
    log(`callgate: the refusal of ${tool} by the user is not recorded: ${error.message}`);
    if (!(error instanceof CallgateUnavailable)) throw error;
  }
}

/** The verdict with the call's approval request, which is made if it is not there; undefined: it needs none. */
export async function requested(
  gate: Gate,
  tool: string,
  args: object,
  options: RunOptions,
): Promise<Verdict | undefined> {
  const verdict = await gate.evaluate(tool, args, options);
  const { decision, callId } = verdict;
  if (decision !== Decision.ALLOW) return decision === Decision.ASK ? verdict : undefined;
  // Nothing runs here: the permit is given back.
  const { caller } = gate;
  const report = create(RecordRequestSchema, { caller, callId, status: OutcomeStatus.CANCELLED, notStarted: true });
  await gate.client.plane.reports.put(report);
  return undefined;
}
