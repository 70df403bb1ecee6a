/** Functions that run only behind a gate. */
import type { Running, RunOptions } from "./call.js";
import type { Gate } from "./gate.js";
import type { ValueOf } from "./outcome.js";

/** How a gated function is known. */
export interface GatedOptions extends RunOptions {
  /** As the policy names the function. Default: its own name. */
  tool?: string;
}

/**
 * The function, but that it runs only as its gate permits. It takes its arguments as one object, by whose names a
 * policy knows them, and gives its value, or the previous result where the same was done before.
 *
 * @param gate - The gate, or a function that gives it when the gated one is called.
 * @returns A function that rejects with {@link CallRefused} where the plane does not let it run, with
 * {@link CallgateError} where nobody could be asked or the request is at fault, and with what the function throws.
 * @throws TypeError if the function has no name and none is given.
 */
export function gated<A extends object, R>(
  gate: Gate | (() => Gate),
  execute: (args: A, running: Running) => R,
  options: GatedOptions = {},
): (args: A) => Promise<ValueOf<R>> {
  const { tool = execute.name, ...rest } = options;
  if (!tool) throw new TypeError("tool: the function has no name by which a policy could know it");
  return async (args) => {
    const outcome = await (typeof gate === "function" ? gate() : gate).run(tool, args, execute, rest);
    return outcome.unwrap();
  };
}
