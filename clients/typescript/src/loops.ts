/** What the loops over models' own APIs have in common. */
import type { Call } from "./call.js";
import { RunEnded } from "./errors.js";
import type { Outcome } from "./outcome.js";
import type { Toolbox } from "./toolbox.js";
import { usageOf } from "./usage.js";

/** Answers whose usage is booked. */
const counted = new WeakSet<object>();

/**
 * Runs the calls of a model's answer, books the answer's usage with them, or where it has none with the next calls of
 * the session, and gives what answers them.
 *
 * @throws RunEnded where the model had been told that no call is let through, and calls again.
 */
export async function answer<T extends object>(
  { gate }: Toolbox,
  calls: readonly Call[],
  response: object | undefined,
  shape: (outcomes: readonly Outcome[]) => T[],
): Promise<T[]> {
  if (response && !counted.has(response)) {
    counted.add(response);
    gate.pend(usageOf(response));
  }
  if (calls.length === 0) return [];
  const wasDisabled = gate.toolsDisabled;
  const outcomes = await gate.batch(calls);
  const messages = shape(outcomes);
  // Where callgate gives no answer, the run may go on later.
  const isRefused = outcomes.every(({ ran, decision }) => !ran && decision !== undefined);
  if (wasDisabled && gate.toolsDisabled && isRefused) throw new RunEnded(outcomes, messages);
  return messages;
}
