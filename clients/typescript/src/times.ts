/** Times of the contract in milliseconds, and waiting. */
import { type Duration, durationFromMs, durationMs, type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";

export type { Timestamp };
export { durationFromMs, timestampMs };

/** In milliseconds; undefined as it came. */
export function msOf(duration: Duration | undefined): number | undefined {
  return duration && durationMs(duration);
}

/** A value in a message: text in quotes, so that "5" is told from 5. */
export function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  return typeof value === "object" && value !== null ? Object.prototype.toString.call(value) : String(value);
}

/**
 * @throws TypeError naming the argument, for what is no number; RangeError for a time that is none.
 */
export function checkMs(name: string, ms: number | undefined): void {
  if (ms === undefined) return;
  if (typeof ms !== "number") throw new TypeError(`${name}: ${shown(ms)} is no number of milliseconds`);
  if (!(ms >= 0)) throw new RangeError(`${name}: ${ms} is no time to wait`);
}

/** The longest that a timer of JavaScript waits: past it, it would fire at once. */
export const LONGEST_MS = 2 ** 31 - 1;

/** Waits; rejects with the signal's reason as soon as that is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const end = () => {
      signal?.removeEventListener("abort", stop);
      resolve();
    };
    const timer = setTimeout(end, Math.min(ms, LONGEST_MS));
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Has a timer not keep the process alive; in browsers timers are numbers, and nothing is kept. */
export function unref(timer: ReturnType<typeof setTimeout>): void {
  (timer as { unref?: () => void }).unref?.();
}
