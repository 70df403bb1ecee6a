/** Reports that could not be made at once: sent again in the background. */
import { toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { platform } from "#platform";

import { CallgateError, NotFound } from "./errors.js";
import type { WithdrawApprovalRequest } from "./gen/callgate/v1/approval_service_pb.js";
import { type RecordRequest, RecordRequestSchema } from "./gen/callgate/v1/gate_service_pb.js";
import { sleep, unref } from "./times.js";

/** How long `close`, unless told otherwise, and the end of the process wait for reports, in milliseconds. */
export const CLOSE_MS = 3_000;
const BYTES_MAX = 64 * 1024 * 1024;
const REPORTS_MAX = 10_000;
/** How long a cancellation is worth sending: by then the lease of the permit that it gives back is over. */
const KEEP_MS = 3_600_000;
/** Pauses before a cancellation is sent again whose call the plane does not know: the question may be on its way. */
const UNKNOWN_MS = [200, 1_000, 5_000, 20_000];
/** After so many of these pauses nobody who closes waits for it any more. */
const UNKNOWN_AT_CLOSE = 2;
const FIRST_PAUSE_MS = 200;
/** The longest pause of the whole queue. Shorter than that of one report, so that none holds up the others. */
const AWAY_PAUSE_MS = 5_000;
const REPORT_PAUSE_MS = 10_000;
/** The longest that a plane which says when to come back is left alone. */
const TOLD_PAUSE_MS = 60_000;
const LOOK_MS = 10;
const PERMANENT = new Set([
  Code.InvalidArgument,
  Code.PermissionDenied,
  Code.FailedPrecondition,
  Code.NotFound,
  Code.OutOfRange,
  Code.Unimplemented,
]);
const MENDED_BY_OPERATORS = new Set(["POLICY_UNREADABLE", "KEY_MISSING", "TENANT_SUSPENDED"]);

/** A report that the plane has not stored. */
export interface Unsent {
  /** The session of the call. */
  sessionId: string;
  /** The call, as the plane knows it. */
  callId: string;
  /**
   * True for the outcome of a call that was executed; false for a cancellation, which gives back the permit of a call
   * that was not.
   */
  executed: boolean;
}

/** What came of a call, on its way. */
export interface Report {
  readonly request: RecordRequest;
  /** Sent before it: nobody shall answer a question that nobody asks any more. */
  readonly withdrawal: WithdrawApprovalRequest | undefined;
}

interface Waiting extends Report {
  readonly bytes: number;
  /** By `performance.now()`, as all times here. An executed outcome never expires. */
  readonly expires: number;
  due: number;
  tries: number;
  /** How often the plane has answered that it does not know the call. */
  unknown: number;
  /** Resolves when the report was taken, refused or dropped. */
  readonly done: Promise<void>;
  readonly end: () => void;
}

export function keyOf(sessionId: string, callId: string): string {
  return JSON.stringify([sessionId, callId]);
}

/** Whether the plane would refuse the same report again. A credential may be on its way: it is not. */
export function isPermanent(error: unknown): boolean {
  return error instanceof CallgateError && PERMANENT.has(error.code) && !MENDED_BY_OPERATORS.has(error.reason);
}

/** Executed outcomes, sent first and kept for good, and cancellations; one report a call: the last one holds. */
export class Reports {
  readonly #send: (report: Report) => Promise<void>;
  readonly #log: (message: string) => void;
  readonly #outcomes = new Map<string, Waiting>();
  readonly #cancellations = new Map<string, Waiting>();
  readonly #direct = new Set<RecordRequest>();
  #lost: Unsent[] = [];
  #bytes = 0;
  #sending: Waiting | undefined;
  #isWorking = false;
  #flushing = 0;
  #pauseMs = 0;
  #resume = 0;
  /** Cuts the pause before the next try short. */
  #wake = () => {};

  /** @param plane - Which plane is asked, and who asks: where that is the same, one session and `callId` are one call. */
  constructor(
    send: (report: Report) => Promise<void>,
    log: (message: string) => void,
    private readonly plane: string,
  ) {
    this.#send = send;
    this.#log = log;
  }

  /** So many executed outcomes wait that no further call may be executed: its outcome could not be kept. */
  get isFull(): boolean {
    const sending = this.#sending && isExecuted(this.#sending) ? this.#sending : undefined;
    const count = this.#outcomes.size + (sending ? 1 : 0);
    return count >= REPORTS_MAX || this.#bytes + (sending?.bytes ?? 0) >= BYTES_MAX;
  }

  /** Has a report sent as soon as the plane takes it; resolves when that is over. */
  put(request: RecordRequest, withdrawal?: WithdrawApprovalRequest): Promise<void> {
    const report = waiting(request, withdrawal);
    const key = nameOf(report);
    if (!isExecuted(report) && this.#owesOutcome(key)) return Promise.resolve();
    this.#remove(key)?.end();
    this.#add(report);
    this.#makeRoom();
    atEnd(this);
    this.#wake();
    void this.#work();
    return report.done;
  }

  /**
   * The outcome of this call that still waits, by whichever client of this plane: it is the taker's to make from now on.
   * What is on its way is waited for; a cancellation is withdrawn.
   */
  async takeOutcome(key: string): Promise<RecordRequest | undefined> {
    for (;;) {
      const holder = this.#alike().find((one) => one.#owes(key));
      if (!holder) return undefined;
      if (holder.#isSending(key)) {
        await Promise.race([holder.#sending?.done, sleep(LOOK_MS)]);
        continue;
      }
      const report = holder.#remove(key);
      report?.end();
      if (report && isExecuted(report)) return report.request;
    }
  }

  /** Whether the plane has yet to hear what came of this call. */
  has(key: string): boolean {
    return this.#alike().some((one) => one.#owes(key));
  }

  #alike(): Reports[] {
    return [...ending].filter(({ plane }) => plane === this.plane);
  }

  #owes(key: string): boolean {
    return this.#outcomes.has(key) || this.#cancellations.has(key) || this.#isSending(key);
  }

  #isSending(key: string): boolean {
    return this.#sending !== undefined && nameOf(this.#sending) === key;
  }

  /** Makes a report at once; {@link flush} waits for it. Where it fails, it waits here, unless it never can be stored. */
  async direct<T>(request: RecordRequest, send: () => Promise<T>): Promise<T> {
    this.#direct.add(request);
    try {
      return await send();
    } catch (error) {
      if (isPermanent(error)) this.#lose(request, (error as CallgateError).message);
      else void this.put(request);
      throw error;
    } finally {
      this.#direct.delete(request);
    }
  }

  /**
   * Waits until all is sent, so many milliseconds at most. The answer is what is not sent, and still will be if the
   * plane takes it; and what was dropped since the last time.
   */
  async flush(timeoutMs: number): Promise<Unsent[]> {
    const until = performance.now() + timeoutMs;
    this.#resume = 0;
    for (const report of this.#outcomes.values()) Object.assign(report, { due: 0, tries: 0 });
    this.#flushing += 1;
    this.#wake();
    while (!this.#open().next().done && performance.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    this.#flushing -= 1;
    const unsent = [...this.#lost, ...Array.from(this.#open(), unsentOf)];
    this.#lost = [];
    const [first, ...more] = unsent.filter(({ executed }) => executed);
    if (first) {
      const of = `the first is of call ${first.callId} of session ${first.sessionId}`;
      this.#log(`callgate: ${more.length + 1} executed outcomes are not stored; ${of}`);
    }
    return unsent;
  }

  /** What {@link flush} waits for. */
  *#open(): Generator<RecordRequest> {
    yield* this.#direct;
    if (this.#sending) yield this.#sending.request;
    for (const report of this.#all()) if (report.unknown <= UNKNOWN_AT_CLOSE) yield report.request;
  }

  /** What waits, in the order in which it is sent. */
  *#all(): Generator<Waiting> {
    yield* this.#outcomes.values();
    yield* this.#cancellations.values();
  }

  async #work(): Promise<void> {
    if (this.#isWorking) return;
    this.#isWorking = true;
    while (this.#outcomes.size + this.#cancellations.size > 0) {
      const report = this.#next();
      if (report) await this.#try(report);
      else await this.#pause(Math.max(this.#firstDue(), this.#resume) - performance.now());
    }
    this.#isWorking = false;
    ending.delete(this);
  }

  /** The one to be sent now, if there is one. */
  #next(): Waiting | undefined {
    const now = performance.now();
    if (now < this.#resume) return undefined;
    for (const report of this.#all()) {
      if (report.due > now) continue;
      this.#remove(nameOf(report));
      if (isExecuted(report) || now < report.expires) return report;
      report.end();
    }
    return undefined;
  }

  #firstDue(): number {
    let first = Number.POSITIVE_INFINITY;
    for (const { due } of this.#all()) first = Math.min(first, due);
    return first;
  }

  async #try(report: Waiting): Promise<void> {
    this.#sending = report;
    let isAgain = false;
    try {
      await this.#send(report);
      this.#pauseMs = 0;
    } catch (error) {
      const key = nameOf(report);
      // A newer report of the same call holds instead.
      const isReplaced = this.#outcomes.has(key) || this.#cancellations.has(key);
      isAgain = !isReplaced && this.#waitsAgain(report, error);
    }
    this.#sending = undefined;
    if (isAgain) this.#add(report);
    else report.end();
  }

  /** Whether a report that has failed is sent again, after a pause. */
  #waitsAgain(report: Waiting, error: unknown): boolean {
    if (!isExecuted(report) && error instanceof NotFound) {
      const pauseMs = UNKNOWN_MS[report.unknown];
      report.due = performance.now() + (pauseMs ?? 0);
      report.unknown += 1;
      return pauseMs !== undefined;
    }
    if (isPermanent(error)) {
      // What never ran may well be unknown to the plane, or refused: it was said for the case that it is not.
      if (isExecuted(report)) this.#lose(report.request, (error as CallgateError).message);
      return false;
    }
    this.#postpone(report, error);
    return true;
  }

  /** This report, and where the plane is away the whole queue. */
  #postpone(report: Waiting, error: unknown): void {
    const now = performance.now();
    const { code, reason, retryAfterMs = 0 }: Partial<CallgateError> = error instanceof CallgateError ? error : {};
    const toldMs = Math.min(retryAfterMs, TOLD_PAUSE_MS);
    report.due = now + Math.max(toldMs, Math.min(FIRST_PAUSE_MS * 2 ** report.tries, this.#longest(REPORT_PAUSE_MS)));
    report.tries += 1;
    if (code === Code.Unavailable || reason === "OVERLOADED") {
      this.#pauseMs = Math.min(this.#pauseMs * 2 || FIRST_PAUSE_MS, this.#longest(AWAY_PAUSE_MS));
      this.#resume = now + Math.max(toldMs, this.#pauseMs);
    }
  }

  #longest(pauseMs: number): number {
    return this.#flushing > 0 ? FIRST_PAUSE_MS : pauseMs;
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      // A report that waits keeps no process alive: at its end there is another try.
      unref(timer);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #owesOutcome(key: string): boolean {
    return this.#outcomes.has(key) || (this.#isSending(key) && isExecuted(this.#sending as Waiting));
  }

  /** Executed outcomes are never dropped: while they alone fill the queue, no call is begun (`isFull`). */
  #makeRoom(): void {
    for (const [key, oldest] of this.#cancellations) {
      const count = this.#outcomes.size + this.#cancellations.size;
      if (count <= REPORTS_MAX && this.#bytes <= BYTES_MAX) return;
      this.#remove(key);
      this.#lose(oldest.request, "too many reports wait for the plane");
      oldest.end();
    }
  }

  #lose(request: RecordRequest, why: string): void {
    const lost = unsentOf(request);
    this.#lost.push(lost);
    if (this.#lost.length > REPORTS_MAX) this.#lost.shift();
    const kind = lost.executed ? "outcome" : "cancellation";
    this.#log(`callgate: the ${kind} of call ${lost.callId} of session ${lost.sessionId} is not stored: ${why}`);
  }

  #add(report: Waiting): void {
    (isExecuted(report) ? this.#outcomes : this.#cancellations).set(nameOf(report), report);
    this.#bytes += report.bytes;
  }

  #remove(key: string): Waiting | undefined {
    const report = this.#outcomes.get(key) ?? this.#cancellations.get(key);
    if (report && (this.#outcomes.delete(key) || this.#cancellations.delete(key))) this.#bytes -= report.bytes;
    return report;
  }
}

/** Those with reports that wait: a client may be gone whose reports have not been sent. */
const ending = new Set<Reports>();
let isAwaited = false;

/** Has the end of the process send what waits, once: what is not sent by then keeps no process alive. */
function atEnd(reports: Reports): void {
  ending.add(reports);
  if (isAwaited) return;
  isAwaited = true;
  platform.atEnd(async () => {
    const unsent = await Promise.all(Array.from(ending, (one) => one.flush(CLOSE_MS)));
    // What comes of the program's own work at its end is sent too.
    isAwaited = unsent.some((one) => one.length > 0);
  });
}

function waiting(request: RecordRequest, withdrawal: WithdrawApprovalRequest | undefined): Waiting {
  let end = () => {};
  const done = new Promise<void>((resolve) => {
    end = resolve;
  });
  const bytes = toBinary(RecordRequestSchema, request).length;
  const expires = performance.now() + KEEP_MS;
  return { request, withdrawal, bytes, expires, due: 0, tries: 0, unknown: 0, done, end };
}

/** The call ran, or may have. */
function isExecuted({ request }: Report): boolean {
  return !request.notStarted;
}

function unsentOf({ caller, callId, notStarted }: RecordRequest): Unsent {
  return { sessionId: caller?.sessionId ?? "", callId, executed: !notStarted };
}

function nameOf({ request }: Report): string {
  return keyOf(request.caller?.sessionId ?? "", request.callId);
}
