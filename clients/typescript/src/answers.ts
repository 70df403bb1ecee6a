/** Verdicts and reports as outcomes, with the text for the model. */
import type { Ran } from "./execute.js";
import type { RecordRequest, RecordResponse } from "./gen/callgate/v1/gate_service_pb.js";
import { Decision, type Verdict } from "./gen/callgate/v1/types_pb.js";
import { Outcome, type OutcomeMembers } from "./outcome.js";
import type { Plane } from "./plane.js";
import * as texts from "./texts.js";
import { msOf } from "./times.js";
import type { Told } from "./values.js";

/** What is reported of an execution. */
export interface Reported {
  ran: Ran;
  report: RecordRequest;
  told: Told;
  value: unknown;
}

type Members = Omit<OutcomeMembers<unknown>, "callId">;

/** How long a verdict asks to wait. */
export function waitMs(verdict: Verdict): number {
  return msOf(verdict.retryAfter) ?? 0;
}

/** A call that did not run. `notice` is for the model; empty: none. */
export function refused(plane: Plane, verdict: Verdict, notice: string): Members {
  const { isError, decision, reason, toolsDisabled, approvalId } = verdict;
  const text = texts.withMember(verdict.toolResultJson, "notice", notice);
  const previous = decision === Decision.REUSE ? texts.previousOf(text) : undefined;
  const first = previous && plane.firsts.of(verdict.fingerprint, previous.value);
  return { text, isError, decision, reason, toolsDisabled, approvalId, recorded: true, verdict, previous, first };
}

/** A call that ran. */
export function reported(
  verdict: Verdict | undefined,
  { ran, told, value }: Reported,
  record: RecordResponse | undefined,
  notice: string,
): Members {
  const hasFailed = !ran.settled.isValue;
  const isJson = hasFailed || (record !== undefined && told.isStored);
  const plain = hasFailed ? texts.failed(told.text) : told.text;
  const base = record && isJson ? record.toolResultJson : plain;
  const hint = texts.hintOf(base, notice, verdict?.nextContextHint, record?.nextContextHint);
  return {
    text: isJson ? texts.withWarning(base, hint) : texts.withHint(base, hint),
    hint,
    isError: record?.isError ?? hasFailed,
    decision: verdict?.decision,
    ran: true,
    value,
    error: ran.settled.isValue ? undefined : (ran.settled.error ?? new Error("execute threw nothing")),
    reason: verdict?.reason ?? texts.UNAVAILABLE,
    toolsDisabled: verdict?.toolsDisabled || record?.toolsDisabled || false,
    recorded: record !== undefined,
    verdict,
    record,
  };
}

/** The retry was refused: the model is told what the last attempt gave. */
export function ended(outcome: Outcome, verdict: Verdict): Outcome {
  return new Outcome({ ...outcome, toolsDisabled: outcome.toolsDisabled || verdict.toolsDisabled });
}
