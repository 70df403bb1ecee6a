/**
 * Vercel AI SDK: tools whose calls pass the gate.
 *
 * ```ts
 * const { text } = await generateText({ model, prompt, tools: gateTools(gate, tools) });
 * ```
 *
 * @module
 */

import * as calls from "./ai-sdk-calls.js";
import { type Any, type AnyTool, type CallOptions, ToolCallError } from "./ai-sdk-calls.js";
import { type StepOptions, Steps } from "./ai-sdk-loop.js";
import { ShownTools } from "./ai-sdk-schemas.js";
import { type Answerer, answerQuestion } from "./approvals.js";
import type { ParameterOptions } from "./index.js";
import { CallgateUnavailable, Decision, type Execute, type Gate } from "./index.js";

export { ToolCallError } from "./ai-sdk-calls.js";
export type { PrepareStep, StepOptions, Stop } from "./ai-sdk-loop.js";

/** How tools are put to the gate. */
export interface GateToolsOptions extends ParameterOptions {
  /**
   * Let the application's user answer where a person must approve, by the SDK's own tool approval
   * (`tool-approval-request`), instead of waiting for somebody in callgate. `by` names the user; `client` is one with
   * the credential of who answers, where callgate has credentials. The user's no is recorded by {@link gateLoop} alone.
   */
  approvals?: Answerer | undefined;
}

/** How a run is put to the gate. */
export interface GateLoopOptions extends GateToolsOptions, StepOptions {}

/** Settings of `generateText`, `streamText` and `ToolLoopAgent`, of any version and for any tools. */
export interface GatedLoop<T> {
  tools: T;
  prepareStep: (given: Any) => Promise<Any>;
  stopWhen: ((given: Any) => boolean | PromiseLike<boolean>)[];
  onStepFinish: (step: Any) => Promise<void>;
}

/**
 * The settings of a run whose tools pass the gate: {@link gateTools}, and what the SDK asks between its steps.
 *
 * ```ts
 * const { text } = await generateText({ model, prompt, ...gateLoop(gate, tools) });
 * ```
 *
 * - The usage of each step is booked with the next call of the session, priced by the gate's `usage`.
 * - Once no further call is let through, the model is offered no tools, and the run ends after one more step that
 *   calls.
 * - Where the application's `prepareStep` returns fewer results than it was given, the compaction is recorded, and
 *   callgate's summary is put before what is left.
 * - With `approvals`, a no of the application's user is recorded.
 *
 * Settings of the application that are set after it, such as `stopWhen`, replace these: hand them over in `options`.
 */
export function gateLoop<T extends Record<string, object>>(
  gate: Gate,
  tools: T,
  options: GateLoopOptions = {},
): GatedLoop<T> {
  const { stopWhen, prepareStep, onStepFinish, ...rest } = options;
  const shown = new ShownTools(gate.parameters(rest), tools as Record<string, AnyTool>);
  const told = new calls.Told();
  const own = { stopWhen, prepareStep, onStepFinish };
  const steps = new Steps(gate, tools as Record<string, AnyTool>, shown, told, rest.approvals, own);
  return {
    tools: gateAll(gate, tools, shown, told, rest),
    prepareStep: async (given) => steps.prepareStep(given),
    stopWhen: steps.stopWhen,
    onStepFinish: steps.onStepFinish,
  };
}

/**
 * The same tools, each of whose calls is asked for, executed under its permit, and reported.
 *
 * The application gets the tool's own output, the model what callgate says of it, hints included. A refusal and a
 * failure are thrown as {@link ToolCallError}, whose message the SDK hands to the model. Tools without `execute` run
 * elsewhere and are left as they are. Input that does not fit a tool's schema is refused by the SDK before callgate is
 * asked.
 */
export function gateTools<T extends Record<string, object>>(gate: Gate, tools: T, options: GateToolsOptions = {}): T {
  const shown = new ShownTools(gate.parameters(options), tools as Record<string, AnyTool>);
  return gateAll(gate, tools, shown, new calls.Told(), options);
}

function gateAll<T extends Record<string, object>>(
  gate: Gate,
  tools: T,
  shown: ShownTools,
  told: calls.Told,
  { approvals }: GateToolsOptions,
): T {
  const gated = Object.entries(tools).map(([name, tool]) => [
    name,
    gateTool(gate, name, tool as AnyTool, shown, told, approvals),
  ]);
  return Object.fromEntries(gated) as T;
}

function gateTool(
  gate: Gate,
  name: string,
  tool: AnyTool,
  shown: ShownTools,
  told: calls.Told,
  approvals: Answerer | undefined,
): AnyTool {
  const { execute, needsApproval, toModelOutput } = tool;
  if (!execute) return tool;

  const run = async (input: Any, given: CallOptions, each?: (part: unknown) => void): Promise<unknown> => {
    const [args, said] = await shown.taken(name, input);
    const run: Execute<Promise<unknown>> = async (mended, { signal, isEdited }) => {
      const fit = isEdited ? await shown.fit(tool, mended) : calls.restored(args, mended);
      return calls.last(execute(fit, { ...given, abortSignal: signal }), each);
    };
    const ids = { callId: given.toolCallId, turn: calls.turnOf(given, told.leftOut), signal: given.abortSignal };
    // The SDK's own user answers, and before the call: nobody is waited for here.
    const wait = approvals && { approvalWaitMs: 0 };
    const ask = () => gate.run(name, args, run, { ...said, ...ids, ...wait });
    let outcome = await ask();
    if (approvals && calls.answerOf(given) === true && outcome.decision === Decision.ASK) {
      await answerQuestion(approvals.client ?? gate.client, outcome.approvalId, { approve: true, by: approvals.by });
      outcome = await ask();
    }
    const found = outcome.ran ? { value: outcome.value } : (outcome.first ?? outcome.previous);
    if (outcome.isError || !found) throw new ToolCallError(outcome);
    return told.keep(given.toolCallId, found.value, outcome);
  };

  /** Judged without storing anything: where the user says no, nobody is left with an open question. */
  const isQuestion = async (input: Any, given: CallOptions): Promise<boolean> => {
    const [args, said] = await shown.taken(name, input);
    const ids = { callId: given.toolCallId, turn: calls.turnOf(given, told.leftOut) };
    const judged = gate.evaluate(name, args, { ...said, ...ids, dryRun: true });
    const verdict = await judged.catch((error) => {
      // The call itself will tell the model.
      if (error instanceof CallgateUnavailable) return undefined;
      throw error;
    });
    return verdict?.decision === Decision.ASK;
  };

  return {
    ...tool,
    inputSchema: shown.schema(name, tool),
    execute: calls.isGenerator(execute) ? (input, given) => calls.streamed((each) => run(input, given, each)) : run,
    toModelOutput: async (output) => {
      const outcome = told.of(output);
      if (outcome && !(toModelOutput && outcome.ran)) return { type: "text", value: outcome.text };
      const own = toModelOutput ? await toModelOutput(output) : calls.plain(output.output);
      return outcome?.hint ? calls.hinted(own, outcome.hint) : own;
    },
    ...(approvals && {
      needsApproval: async (input, given) => {
        if (typeof needsApproval === "function" ? await needsApproval(input, given) : needsApproval) return true;
        return calls.answerOf(given) !== undefined || isQuestion(input, given);
      },
    }),
  };
}
