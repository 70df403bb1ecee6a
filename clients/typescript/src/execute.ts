/** One execution: begun once, timed, called off, and never left without an end that can be reported. */
import { create } from "@bufbuild/protobuf";

import type { Call, Running } from "./call.js";
import { NotStarted } from "./errors.js";
import { type RecordRequest, RecordRequestSchema } from "./gen/callgate/v1/gate_service_pb.js";
import { OutcomeStatus, type ToolError } from "./gen/callgate/v1/types_pb.js";
import { LONGEST_MS, sleep } from "./times.js";
import { success, type Told } from "./values.js";

/** How long what was called off may take to say what came of it, in milliseconds. */
const SETTLE_MS = 500;

/** What `execute` gave or threw. */
export type Settled = { isValue: true; value: unknown } | { isValue: false; error: unknown };

/** What came of an execution. */
export interface Ran {
  settled: Settled;
  /** As the plane is told. */
  status: OutcomeStatus.SUCCESS | OutcomeStatus.ERROR | OutcomeStatus.CANCELLED | OutcomeStatus.UNKNOWN;
  /** It is known not to have done anything. */
  isNotStarted: boolean;
  /** The caller no longer wants the outcome: `run` rejects with this. */
  rejection?: { reason: unknown };
  /** What was called off, and goes on all the same. */
  late?: Promise<Settled>;
  durationMs: number;
}

/** What is known of a call before it has a signal, and who hears that `execute` reads the idempotency key. */
export interface Begun extends Omit<Running, "signal"> {
  onKeyRead: () => void;
}

/** Executes; never rejects. */
export async function execute(call: Call, args: object, begun: Begun): Promise<Ran> {
  const began = performance.now();
  const ran = await attempt(call, args, begun);
  return { ...ran, durationMs: Math.round(performance.now() - began) };
}

async function attempt(call: Call, args: object, begun: Begun): Promise<Omit<Ran, "durationMs">> {
  const { signal, timeoutMs, tool } = call;
  if (signal?.aborted) return calledOff({ isValue: false, error: signal.reason }, signal, true);
  const stop = new AbortController();
  const stopped = stoppedBy(signal, timeoutMs, tool, stop);
  try {
    const settling = settle(async () => call.execute(args, watched(begun, stop.signal)));
    const first =
      (await Promise.race([settling, stopped.promise])) ?? (await Promise.race([settling, sleep(SETTLE_MS)]));
    const late = first ? {} : { late: settling };
    const settled = first ?? { isValue: false, error: stop.signal.reason };
    if (!settled.isValue && isNotStarted(settled.error)) {
      const { cause } = settled.error;
      return { settled, status: OutcomeStatus.CANCELLED, isNotStarted: true, rejection: { reason: cause } };
    }
    if (signal?.aborted)
      return { ...calledOff(settled, signal, false), ...late, ...(!first && { status: OutcomeStatus.UNKNOWN }) };
    if (settled.isValue) return { settled, status: OutcomeStatus.SUCCESS, isNotStarted: false };
    // What a tool throws on being stopped tells less than why it was stopped.
    const error = stop.signal.aborted ? stop.signal.reason : settled.error;
    return { settled: { isValue: false, error }, status: OutcomeStatus.ERROR, isNotStarted: false, ...late };
  } finally {
    stopped.end();
  }
}

/** What `execute` is given: it has received the key once it reads it. */
function watched({ onKeyRead, permit, idempotencyKey, ...known }: Begun, signal: AbortSignal): Running {
  const get = () => {
    onKeyRead();
    return idempotencyKey;
  };
  const key = { get, enumerable: true, configurable: true };
  const shown = permit && Object.defineProperty({ ...permit }, "idempotencyKey", key);
  const running = { ...known, permit: shown, idempotencyKey: undefined, signal };
  return permit ? Object.defineProperty(running, "idempotencyKey", key) : running;
}

/** Among the arguments, the tool has received the key once it reads it: one may look at the others alone. */
export function giveKey(args: object, name: string, key: string, onKeyRead: () => void): void {
  const get = () => {
    onKeyRead();
    return key;
  };
  const set = (value: unknown) =>
    Object.defineProperty(args, name, { value, writable: true, enumerable: true, configurable: true });
  Object.defineProperty(args, name, { get, set, enumerable: true, configurable: true });
}

function calledOff(settled: Settled, { reason }: AbortSignal, isNotStarted: boolean): Omit<Ran, "durationMs"> {
  const status = settled.isValue ? OutcomeStatus.SUCCESS : OutcomeStatus.CANCELLED;
  return { settled, status, isNotStarted, rejection: { reason } };
}

/** What is thrown may be anything, and not even let itself be looked at. */
function isNotStarted(error: unknown): error is NotStarted {
  try {
    return error instanceof NotStarted;
  } catch {
    return false;
  }
}

function settle(execute: () => Promise<unknown>): Promise<Settled> {
  return execute().then(
    (value) => ({ isValue: true, value }),
    (error) => ({ isValue: false, error }),
  );
}

/** Resolves when the caller aborts or the time is over, and then aborts `stop`. */
function stoppedBy(signal: AbortSignal | undefined, ms: number | undefined, tool: string, stop: AbortController) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let abort = () => {};
  const promise = new Promise<undefined>((resolve) => {
    const end = (reason: unknown) => {
      stop.abort(reason);
      resolve(undefined);
    };
    abort = () => end(signal?.reason);
    signal?.addEventListener("abort", abort);
    const late = () => end(new DOMException(`${tool} gave no answer within ${ms} ms`, "TimeoutError"));
    if (ms !== undefined && ms <= LONGEST_MS) timer = setTimeout(late, ms);
  });
  const end = () => {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  };
  return { promise, end };
}

/** Never rejects: what was returned or thrown may be anything, and is to be reported all the same. */
export async function reportOf(
  settled: Settled,
  describe: (error: unknown) => ToolError,
): Promise<{ report: RecordRequest; told: Told; value: unknown }> {
  try {
    return await told(settled, describe);
  } catch {
    if (!settled.isValue) return told({ isValue: false, error: new Error("an error that cannot be shown") }, describe);
    return { ...(await success("a value that cannot be shown")), value: settled.value };
  }
}

async function told(
  settled: Settled,
  describe: (error: unknown) => ToolError,
): Promise<{ report: RecordRequest; told: Told; value: unknown }> {
  if (settled.isValue) return success(settled.value);
  const error = describe(settled.error);
  const report = create(RecordRequestSchema, { status: OutcomeStatus.ERROR, error });
  return { report, told: { text: error.message, isStored: true, digest: "", size: 0 }, value: undefined };
}
