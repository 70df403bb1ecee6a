/** Reports that could not be made at once: sent again in the background. */
import { toBinary } from "@bufbuild/protobuf";

import { CallgateUnavailable } from "./errors.js";
import type { WithdrawApprovalRequest } from "./gen/callgate/v1/approval_service_pb.js";
import { type RecordRequest, RecordRequestSchema } from "./gen/callgate/v1/gate_service_pb.js";
import { unref } from "./times.js";

const BYTES_MAX = 64 * 1024 * 1024;
const REPORTS_MAX = 10_000;
const KEEP_MS = 3_600_000;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;

/** What came of a call, on its way. */
export interface Report {
  readonly request: RecordRequest;
  readonly withdrawal: WithdrawApprovalRequest | undefined;
}

interface Waiting extends Report {
  readonly bytes: number;
  /** By `performance.now()`; what has not been taken by then is dropped. */
  readonly expires: number;
  /** Resolves when the report was taken, refused or dropped. */
  readonly done: Promise<void>;
  readonly end: () => void;
}

/** What a report may have beside itself. */
export interface ReportOptions {
  /** For how long it is worth sending; an hour. */
  keepMs?: number;
  /** Sent before it: nobody shall answer a question that nobody asks any more. */
  withdrawal?: WithdrawApprovalRequest | undefined;
}

export function keyOf(sessionId: string, callId: string): string {
  return JSON.stringify([sessionId, callId]);
}

/** A queue with bounds in number and bytes, one report a call: the last one holds. */
export class Reports {
  readonly #send: (report: Report) => Promise<void>;
  readonly #log: (message: string) => void;
  readonly #waiting = new Map<string, Waiting>();
  #bytes = 0;
  #sending: Waiting | undefined;
  #isWorking = false;
  /** Cuts the pause between two tries short. */
  #hurry = () => {};

  constructor(send: (report: Report) => Promise<void>, log: (message: string) => void) {
    this.#send = send;
    this.#log = log;
  }

  /** Has a report sent as soon as the plane takes it; resolves when that is over. */
  put(request: RecordRequest, { keepMs = KEEP_MS, withdrawal }: ReportOptions = {}): Promise<void> {
    let end = () => {};
    const done = new Promise<void>((resolve) => {
      end = resolve;
    });
    const bytes = toBinary(RecordRequestSchema, request).length;
    const report = { request, withdrawal, bytes, expires: performance.now() + keepMs, done, end };
    this.#remove(nameOf(report))?.end();
    this.#add(report);
    while (this.#waiting.size > REPORTS_MAX || this.#bytes > BYTES_MAX) {
      const [oldest = ""] = this.#waiting.keys();
      this.#drop(this.#remove(oldest), "too many reports wait for the plane");
    }
    void this.#work();
    return done;
  }

  /** The report of this call that still waits, which is the taker's to make from now on. */
  take(key: string): RecordRequest | undefined {
    const report = this.#remove(key);
    report?.end();
    return report?.request;
  }

  /** Resolves when the report of this call that is on its way now has its answer; undefined: there is none. */
  sending(key: string): Promise<void> | undefined {
    return this.#sending && nameOf(this.#sending) === key ? this.#sending.done : undefined;
  }

  /** Whether the plane has yet to hear what came of this call. */
  has(key: string): boolean {
    return this.#waiting.has(key) || this.sending(key) !== undefined;
  }

  /** Waits until all is sent, so many milliseconds at most. */
  async flush(timeoutMs: number): Promise<void> {
    const until = performance.now() + timeoutMs;
    this.#hurry();
    while (this.#isWorking && performance.now() < until) await new Promise((resolve) => setTimeout(resolve, 10));
  }

  async #work(): Promise<void> {
    if (this.#isWorking) return;
    this.#isWorking = true;
    for (let pauseMs = FIRST_PAUSE_MS; ; ) {
      const [key] = this.#waiting.keys();
      if (key === undefined) break;
      const report = this.#remove(key) as Waiting;
      if (await this.#isSent(report)) {
        pauseMs = FIRST_PAUSE_MS;
      } else {
        await this.#pause(pauseMs);
        pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
      }
    }
    this.#isWorking = false;
  }

  /** False when it waits again. */
  async #isSent(report: Waiting): Promise<boolean> {
    this.#sending = report;
    try {
      await this.#send(report);
      report.end();
      return true;
    } catch (error) {
      const isLate = performance.now() >= report.expires;
      if (!(error instanceof CallgateUnavailable) || isLate) this.#drop(report, String(error));
      // A newer report of the same call holds instead.
      else if (this.#waiting.has(nameOf(report))) report.end();
      else this.#add(report);
      return !(error instanceof CallgateUnavailable);
    } finally {
      this.#sending = undefined;
    }
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      // A process ends although a report waits, unless it calls `close`.
      unref(timer);
      this.#hurry = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #drop(report: Waiting | undefined, why: string): void {
    // What never ran may well be unknown to the plane: it was said for the case that it is not.
    if (report && !report.request.notStarted) {
      const { callId, caller } = report.request;
      this.#log(`callgate: the outcome of call ${callId} of session ${caller?.sessionId} is not stored: ${why}`);
    }
    report?.end();
  }

  #add(report: Waiting): void {
    this.#waiting.set(nameOf(report), report);
    this.#bytes += report.bytes;
  }

  #remove(key: string): Waiting | undefined {
    const report = this.#waiting.get(key);
    if (report && this.#waiting.delete(key)) this.#bytes -= report.bytes;
    return report;
  }
}

function nameOf({ request }: Report): string {
  return keyOf(request.caller?.sessionId ?? "", request.callId);
}
