/** What happens to a call from the question to the report. */
import { create } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";

import { ended, type Reported, refused, reported, waitMs } from "./answers.js";
import { type Call, proposed, type Rules, stateOf } from "./call.js";
import { CallgateError, CallgateUnavailable } from "./errors.js";
import { execute, giveKey, type Ran, reportOf, type Settled } from "./execute.js";
import { describer } from "./failures.js";
import { WithdrawApprovalRequestSchema } from "./gen/callgate/v1/approval_service_pb.js";
import {
  type EvaluateRequest,
  EvaluateRequestSchema,
  type RecordRequest,
  RecordRequestSchema,
  type RecordResponse,
} from "./gen/callgate/v1/gate_service_pb.js";
import {
  Decision,
  OutcomeStatus,
  type Permit,
  Repeat,
  type ToolCall,
  type Usage,
  type Verdict,
} from "./gen/callgate/v1/types_pb.js";
import { Outcome, type OutcomeMembers } from "./outcome.js";
import type { Plane } from "./plane.js";
import { isPermanent, keyOf } from "./reports.js";
import * as texts from "./texts.js";
import { durationFromMs, msOf, sleep } from "./times.js";
import { booked, sum } from "./usage.js";
import { readable, readJson } from "./values.js";

/** How long the server waits at most, in milliseconds. */
const POLL_MS = 60_000;
/** Between two questions of a call that waits, where the server did not wait itself. */
const PAUSE_MS = 1_000;

/** One call. */
export class Run {
  readonly key: string;
  #patienceMs: number;
  #approvalMs: number;
  #attempts = 0;
  #isKeySent = false;
  readonly #onKeyRead = () => {
    this.#isKeySent = true;
  };
  /** The plane may have permitted what does not run: a question has no answer, or its permit is not used yet. */
  #isOpen = false;
  /** Errors of this call, as the plane and the model are told them. */
  readonly #describe: ReturnType<typeof describer>;
  #fingerprint = "";
  /** Booked with the first judgement, and by the plane with no later one of this call. */
  usage: Usage | undefined;
  /** The plane has answered once. */
  isJudged = false;
  /** What the model is told next to the result; empty: nothing. */
  notice = "";

  constructor(
    readonly plane: Plane,
    readonly rules: Rules,
    readonly call: Call,
    readonly asked: ToolCall,
  ) {
    this.key = keyOf(rules.caller.sessionId, asked.callId);
    this.#patienceMs = call.patienceMs ?? rules.patienceMs;
    this.#approvalMs = call.approvalWaitMs ?? rules.approvalWaitMs;
    const place = `${asked.callId} of session ${rules.caller.sessionId}`;
    this.#describe = describer(call.tool, place, plane.settings.log);
    const used = [call.usage ?? []].flat();
    this.usage = sum(used.map((one) => booked(one, rules.usage, plane.settings.log)));
  }

  /** As the plane is asked now. */
  async askedNow(): Promise<ToolCall> {
    this.asked.witness = await this.#state();
    return this.asked;
  }

  #state(): Promise<string> {
    return stateOf(this.call, this.plane.settings.log);
  }

  /** All of it; `first` is the answer to a question that was put for many calls. */
  async flow(first?: Verdict | CallgateUnavailable): Promise<Outcome> {
    this.#isOpen = first instanceof CallgateUnavailable || first?.decision === Decision.ALLOW;
    this.isJudged = first !== undefined && !(first instanceof CallgateUnavailable);
    try {
      const unreported = await this.#reportEarlier();
      if (unreported) return unreported;
      if (this.plane.reports.isFull) throw new CallgateUnavailable(texts.FULL, { code: Code.ResourceExhausted });
      if (first instanceof CallgateUnavailable) throw first;
      return await this.#judgeAndRun(first);
    } catch (error) {
      if (!(error instanceof CallgateUnavailable)) throw error;
      return await this.#withoutPlane(error);
    } finally {
      if (this.#isOpen) this.callOff();
    }
  }

  /** Asks once, and executes nothing; a permit is the asker's. */
  async judged(maxWaitMs: number): Promise<Verdict> {
    try {
      const unreported = await this.#reportEarlier();
      if (unreported) throw unreported.error;
      const verdict = await this.#evaluate(await this.#question(maxWaitMs), maxWaitMs);
      this.#isOpen = false;
      return verdict;
    } finally {
      if (this.#isOpen) this.callOff();
    }
  }

  /** The same, of which nothing is stored. */
  async judgedDry(maxWaitMs: number): Promise<Verdict> {
    const request = await this.#question(maxWaitMs);
    request.dryRun = true;
    return this.#evaluate(request, maxWaitMs);
  }

  /** What an earlier run of this id had to say comes first: else the plane would permit it anew. */
  async #reportEarlier(): Promise<Outcome | undefined> {
    const { reports, calls } = this.plane;
    const earlier = await reports.takeOutcome(this.key);
    if (!earlier) return undefined;
    try {
      await reports.direct(earlier, () => calls.record(earlier));
    } catch (error) {
      if (isPermanent(error)) return undefined;
      if (!(error instanceof CallgateUnavailable)) throw error;
      return this.#outcome({
        text: texts.unreported(this.call.tool),
        isError: true,
        error,
        reason: texts.UNAVAILABLE,
      });
    }
    return undefined;
  }

  async #judgeAndRun(first: Verdict | undefined): Promise<Outcome> {
    let outcome: Outcome | undefined;
    for (let verdict = first; ; verdict = undefined) {
      try {
        verdict = await this.#judge(verdict);
      } catch (error) {
        if (outcome && error instanceof CallgateUnavailable) return outcome;
        throw error;
      }
      if (verdict.decision !== Decision.ALLOW) {
        if (outcome) return ended(outcome, verdict);
        if (verdict.approvedArgumentsJson && !this.notice) return this.#runEdited(verdict);
        return this.#outcome(refused(this.plane, verdict, this.notice));
      }
      outcome = await this.#execute(verdict, verdict.permit as Permit);
      const pauseMs = this.#advised(outcome);
      if (pauseMs === undefined) return outcome;
      this.#patienceMs -= pauseMs;
      await sleep(pauseMs, this.call.signal);
    }
  }

  /** A person approved other arguments, which the plane permits to a call of another id: that one runs instead. */
  async #runEdited({ approvedArgumentsJson: args }: Verdict): Promise<Outcome> {
    const { turn: _, usage: __, ...rest } = this.call;
    const call: Call = { ...rest, args, callId: `${this.asked.callId}/edited` };
    const run = new Run(this.plane, this.rules, call, await proposed(call));
    run.notice = texts.edited(args);
    const end = this.plane.begin(this.rules.caller, run.asked.callId);
    try {
      return await run.flow();
    } finally {
      end();
    }
  }

  /** Asks until the call may run, is refused, or has waited as long as it may. */
  async #judge(first: Verdict | undefined): Promise<Verdict> {
    const { signal } = this.call;
    let verdict = first;
    try {
      signal?.throwIfAborted();
      verdict ??= await this.#ask(0);
      for (let leftMs = this.#leftMs(verdict); leftMs > 0; leftMs = this.#leftMs(verdict)) {
        const began = performance.now();
        const waited: Verdict = verdict;
        verdict = await this.#poll(waited, leftMs);
        const elapsedMs = performance.now() - began;
        const restMs = this.#leftMs(verdict) - elapsedMs;
        // The server did not wait: for it the pause is too long, or what is waited for is over.
        const pauseMs = elapsedMs < PAUSE_MS && restMs > 0 ? Math.min(Math.max(waitMs(verdict), PAUSE_MS), restMs) : 0;
        if (pauseMs > 0) await sleep(pauseMs, signal);
        this.#spend(waited, elapsedMs + pauseMs);
      }
    } catch (error) {
      if (signal?.aborted && (verdict || this.#isOpen)) this.callOff(verdict);
      throw error;
    }
    return verdict;
  }

  async #poll(verdict: Verdict, leftMs: number): Promise<Verdict> {
    try {
      return await this.#ask(Math.min(leftMs, POLL_MS));
    } catch (error) {
      // What waits goes on waiting while the server is replaced.
      if (!(error instanceof CallgateUnavailable)) throw error;
      await sleep(Math.min(PAUSE_MS, leftMs), this.call.signal);
      return verdict;
    }
  }

  async #ask(maxWaitMs: number): Promise<Verdict> {
    const request = await this.#question(maxWaitMs);
    for (;;) {
      try {
        return await this.#evaluate(request, maxWaitMs);
      } catch (error) {
        const isOverloaded = error instanceof CallgateUnavailable && error.reason === "OVERLOADED";
        // Callers who were turned away together shall not come back together.
        const pauseMs = isOverloaded
          ? (error.retryAfterMs ?? PAUSE_MS) * (1 + Math.random())
          : Number.POSITIVE_INFINITY;
        if (pauseMs > this.#patienceMs) throw error;
        this.#patienceMs -= pauseMs;
        await sleep(pauseMs, this.call.signal);
      }
    }
  }

  async #question(maxWaitMs: number): Promise<EvaluateRequest> {
    const { usage } = this;
    const call = await this.askedNow();
    const request = create(EvaluateRequestSchema, { caller: this.rules.caller, call, ...(usage && { usage }) });
    if (maxWaitMs > 0) request.maxWait = durationFromMs(Math.ceil(maxWaitMs));
    return request;
  }

  async #evaluate(request: EvaluateRequest, maxWaitMs: number): Promise<Verdict> {
    const { signal } = this.call;
    const { calls, waiting, settings } = this.plane;
    // gRPC knows no fractions.
    const timeoutMs = Math.ceil(settings.timeoutMs + maxWaitMs);
    const wasOpen = this.#isOpen;
    this.#isOpen = true;
    try {
      const answer = await (maxWaitMs > 0 ? waiting : calls).evaluate(request, {
        timeoutMs,
        ...(signal && { signal }),
      });
      const verdict = answer.verdict as Verdict;
      this.isJudged = true;
      this.#isOpen = verdict.decision === Decision.ALLOW;
      return verdict;
    } catch (error) {
      // What is refused as a request has no permit; and what was aborted is no CallgateError.
      if (error instanceof CallgateError && !(error instanceof CallgateUnavailable)) this.#isOpen = wasOpen;
      throw error;
    }
  }

  /** How long this verdict may be waited for. */
  #leftMs(verdict: Verdict): number {
    if (verdict.decision === Decision.ASK) return this.#approvalMs;
    const isWorthIt = verdict.decision === Decision.WAIT && waitMs(verdict) <= this.#patienceMs;
    return isWorthIt ? this.#patienceMs : 0;
  }

  #spend(verdict: Verdict, ms: number): void {
    if (verdict.decision === Decision.ASK) this.#approvalMs -= ms;
    else this.#patienceMs -= ms;
  }

  /** The question may have been put, or even answered: nobody waits for the answer any more. */
  callOff(verdict?: Verdict): void {
    const isAsked = verdict?.decision === Decision.ASK;
    const reason = "the call was cancelled";
    const withdrawal = isAsked
      ? create(WithdrawApprovalRequestSchema, { approvalId: verdict.approvalId, reason })
      : undefined;
    const report = create(RecordRequestSchema, { status: OutcomeStatus.CANCELLED, notStarted: true });
    void this.plane.reports.put(this.#addressed(report), withdrawal);
    this.#isOpen = false;
  }

  async #execute(verdict: Verdict, permit: Permit): Promise<Outcome> {
    this.#fingerprint = verdict.fingerprint;
    const args = readJson(permit.argumentsJson || this.asked.argumentsJson || "{}") as Record<string, unknown>;
    this.#isKeySent = false;
    const { idempotencyArgument: key } = permit;
    const takes = key !== "" && (this.call.takes ? this.call.takes(key) : true);
    if (takes) giveKey(args, key, permit.idempotencyKey, this.#onKeyRead);
    else if (takes === undefined) args[key] = permit.idempotencyKey;
    const end = this.plane.beat(this.rules.caller, this.asked.callId, permit);
    try {
      const reported = await this.#run(args, permit);
      return this.#reported(verdict, reported, await this.#record(reported));
    } finally {
      end();
    }
  }

  async #run(args: object, permit: Permit | undefined): Promise<Reported> {
    this.#attempts += 1;
    const { callId } = this.asked;
    const attempt = permit?.attempt ?? 1;
    const idempotencyKey = permit?.idempotencyKey;
    // Whatever comes of it is reported.
    this.#isOpen = false;
    const known = { callId, attempt, permit, idempotencyKey, isEdited: this.notice !== "" };
    const ran = await execute(this.call, args, { ...known, onKeyRead: this.#onKeyRead });
    const { report, told, value } = await this.#told(ran.settled);
    Object.assign(report, { status: ran.status, notStarted: ran.isNotStarted });
    report.duration = durationFromMs(ran.durationMs);
    report.witnessAfter = await this.#state();
    if (ran.status === OutcomeStatus.CANCELLED) delete report.error;
    if (!permit) report.observedCall = this.asked;
    this.#addressed(report);
    if (ran.rejection) {
      void this.plane.reports.put(report);
      this.#reportLate(ran);
      throw ran.rejection.reason;
    }
    return { ran, report, told, value };
  }

  /** What is reported; a value is kept for repetitions, since it may be recorded later. */
  async #told(settled: Settled) {
    const told = await reportOf(settled, this.#describe);
    if (settled.isValue && told.told.isStored) this.plane.firsts.keep(this.#fingerprint, told.told.text, told.value);
    return told;
  }

  /** The answer; undefined where the value is all that there is. */
  async #record({ ran, report }: Reported): Promise<RecordResponse | undefined> {
    try {
      const { reports, calls } = this.plane;
      const answer = await reports.direct(report, () => calls.record(report));
      if (answer.effectOpen) this.#reportLate(ran);
      return answer;
    } catch (error) {
      if (!(error instanceof CallgateError)) throw error;
      return undefined;
    }
  }

  /** What was called off and goes on: what comes of it settles an outcome that leaves its effect open. */
  #reportLate({ late }: Ran): void {
    void late?.then(async (settled) => {
      const { report } = await this.#told(settled);
      await this.plane.reports.put(this.#addressed(report));
    });
  }

  async #withoutPlane(error: CallgateUnavailable): Promise<Outcome> {
    const { tool } = this.call;
    const mayRun = this.rules.runsWithoutPlane(tool) && !this.plane.reports.isFull;
    const args = mayRun ? readable(this.asked.argumentsJson) : undefined;
    const { log, server, socket } = this.plane.settings;
    const done = args ? "runs all the same (failOpen)" : "was not run";
    // The outcome tells the model; whoever keeps the program learns here where nobody answers.
    log(
      `callgate: ${socket ? `unix:${socket}` : server.origin} gives no answer, and ${tool} ${done}: ${error.message}`,
    );
    if (!args) {
      const text = texts.unavailable(tool, error.reason || texts.codeName(error.code));
      return this.#outcome({ text, isError: true, error, reason: texts.UNAVAILABLE });
    }
    const reported = await this.#run(args, undefined);
    void this.plane.reports.put(reported.report);
    return this.#reported(undefined, reported, undefined);
  }

  #reported(verdict: Verdict | undefined, what: Reported, record: RecordResponse | undefined): Outcome {
    return this.#outcome(reported(verdict, what, record, this.notice));
  }

  /** How long to wait before a retry; undefined where that is not for a client to decide, or patience is over before. */
  #advised({ record }: Outcome): number | undefined {
    if (record?.advice?.repeat !== Repeat.BY_CLIENT) return undefined;
    const pauseMs = msOf(record.advice.retryAfter) ?? 0;
    return pauseMs <= this.#patienceMs ? pauseMs : undefined;
  }

  #addressed(report: RecordRequest): RecordRequest {
    report.caller = this.rules.caller;
    report.callId = this.asked.callId;
    report.readOnly = this.call.readOnly ?? false;
    report.keySent = this.#isKeySent;
    return report;
  }

  #outcome(members: Omit<OutcomeMembers<unknown>, "callId">): Outcome {
    return new Outcome({ callId: this.asked.callId, attempts: this.#attempts, ...members });
  }
}
