/** Functions that run only behind a gate. */
import type { Running, RunOptions } from "./call.js";
import type { Gate } from "./gate.js";
import type { ValueOf } from "./outcome.js";

/** How a gated function is known. */
export interface GatedOptions<T = unknown> extends RunOptions {
  /** As the policy names the function. Default: its own name. */
  tool?: string;
  /** Makes the value of the previous result (JSON) of an execution whose value is not in this process. */
  revive?: (previous: unknown) => T;
}

/**
 * The function, but that it runs only as its gate permits. It takes its arguments as one object, by whose names a
 * policy knows them, and gives its value, or the first value where the same was done before.
 *
 * @param gate - The gate, or a function that gives it when the gated one is called.
 * @returns A function that rejects with {@link CallRefused} where the plane does not let it run, with {@link Replayed}
 * where the first value is not in this process and there is no `revive`, with {@link CallgateError} where nobody could
 * be asked or the request is at fault, and with what the function throws.
 * @throws TypeError if the function has no name and none is given.
 */
export function gated<A extends object, R>(
  gate: Gate | (() => Gate),
  execute: (args: A, running: Running) => R,
  options: GatedOptions<ValueOf<R>> = {},
): (args: A) => Promise<ValueOf<R>> {
  const { tool = execute.name, revive, ...rest } = options;
  if (!tool) throw new TypeError("tool: the function has no name by which a policy could know it");
  return async (args) => {
    const outcome = await (typeof gate === "function" ? gate() : gate).run(tool, args, execute, rest);
    return revive && outcome.previous && !outcome.first ? revive(outcome.previous.value) : outcome.unwrap();
  };
}
