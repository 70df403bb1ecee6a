/** Functions that run only behind a gate. */
import type { Running, RunOptions } from "./call.js";
import type { Gate } from "./gate.js";
import type { Outcome, ValueOf } from "./outcome.js";

/** How a gated function is known. */
export interface GatedOptions<T = unknown, C = unknown> extends Omit<RunOptions, "callId"> {
  /** As the policy names the function. Default: its own name. */
  tool?: string;
  /** The framework's id of a call, or a function that reads it from the framework's object. Default: a new one. */
  callId?: string | ((context: C) => string | undefined) | undefined;
  /** Makes the value of the previous result (JSON) of an execution whose value is not in this process. */
  revive?: (previous: unknown) => T;
  /**
   * The function is a tool that a framework calls for a model: it resolves to the text for the model, also for a
   * refusal, a repetition and an error of the function.
   */
  forModel?: boolean;
}

/** The function of a tool. `context` is what a framework gives its tools beside the arguments. */
export type Gated<A, R, C> = (args: A, running: Running, context: C) => R;

/**
 * The function, but that it runs only as its gate permits. It takes its arguments as one object, by whose names a
 * policy knows them, and gives its value, or the first value where the same was done before.
 *
 * @param gate - The gate, or a function that gives it when the gated one is called, with the second argument of the
 * call: the object that a framework gives its tools.
 * @returns A function that rejects with {@link CallRefused} where the plane does not let it run, with {@link Replayed}
 * where the first value is not in this process and there is no `revive`, with {@link CallgateError} where nobody could
 * be asked or the request is at fault, and with what the function throws. With `forModel` it rejects only where the
 * request is at fault, or the call is canceled.
 * @throws TypeError if the function has no name and none is given.
 */
export function gated<A extends object, R, C = unknown>(
  gate: Gate | ((context: C) => Gate),
  execute: Gated<A, R, C>,
  options: GatedOptions<ValueOf<R>, C> & { forModel: true },
): (args: A, context?: C) => Promise<string>;
export function gated<A extends object, R, C = unknown>(
  gate: Gate | ((context: C) => Gate),
  execute: Gated<A, R, C>,
  options?: GatedOptions<ValueOf<R>, C>,
): (args: A, context?: C) => Promise<ValueOf<R>>;
export function gated<A extends object, R, C = unknown>(
  gate: Gate | ((context: C) => Gate),
  execute: Gated<A, R, C>,
  options: GatedOptions<ValueOf<R>, C> = {},
): (args: A, context?: C) => Promise<string | ValueOf<R>> {
  const { tool = execute.name, revive, forModel = false, callId, ...rest } = options;
  if (!tool) throw new TypeError("tool: the function has no name by which a policy could know it");
  return async (args, given) => {
    const context = given as C;
    const id = typeof callId === "function" ? callId(context) : callId;
    const run = (chosen: A, running: Running) => execute(chosen, running, context);
    const found = typeof gate === "function" ? gate(context) : gate;
    const outcome: Outcome<ValueOf<R>> = await found.run(tool, args, run, { ...rest, callId: id });
    if (forModel) return outcome.text;
    return revive && outcome.previous && !outcome.first ? revive(outcome.previous.value) : outcome.unwrap();
  };
}
