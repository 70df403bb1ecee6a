/**
 * Vercel AI SDK: tools whose calls pass the gate.
 *
 * ```ts
 * const { text } = await generateText({ model, prompt, tools: gateTools(gate, tools) });
 * ```
 *
 * @module
 */

import type { Any, AnyTool, CallOptions } from "./ai-sdk-calls.js";
import * as calls from "./ai-sdk-calls.js";
import { ShownTools } from "./ai-sdk-schemas.js";
import { answerQuestion } from "./approvals.js";
import type { Outcome, ParameterOptions } from "./index.js";
import { CallgateUnavailable, type Client, Decision, type Execute, type Gate } from "./index.js";

/** How tools are put to the gate. */
export interface GateToolsOptions extends ParameterOptions {
  /**
   * Let the application's user answer where a person must approve, by the SDK's own tool approval
   * (`tool-approval-request`), instead of waiting for somebody in callgate. `by` names the user; `client` is one with
   * the credential of who answers, where callgate has credentials.
   */
  approvals?: { by?: string | undefined; client?: Client | undefined } | undefined;
}

/** A call was refused, or failed: the message is what the model is to see, the cause the tool's own error if it ran. */
export class ToolCallError extends Error {
  override readonly name = "ToolCallError";

  constructor(readonly outcome: Outcome) {
    super(outcome.text, { cause: outcome.error });
  }
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
  const gated = Object.entries(tools).map(([name, tool]) => [
    name,
    gateTool(gate, name, tool as AnyTool, shown, options),
  ]);
  return Object.fromEntries(gated) as T;
}

function gateTool(gate: Gate, name: string, tool: AnyTool, shown: ShownTools, options: GateToolsOptions): AnyTool {
  const { execute, needsApproval, toModelOutput } = tool;
  const { approvals } = options;
  if (!execute) return tool;
  const told = new calls.Told();

  const run = async (input: Any, given: CallOptions, each?: (part: unknown) => void): Promise<unknown> => {
    const [args, said] = await shown.taken(name, input);
    const run: Execute<Promise<unknown>> = (mended, { signal }) =>
      calls.last(execute(calls.restored(args, mended), { ...given, abortSignal: signal }), each);
    const ids = { callId: given.toolCallId, turn: calls.turnOf(given), signal: given.abortSignal };
    const ask = (wait: { approvalWaitMs?: number }) => gate.run(name, args, run, { ...said, ...ids, ...wait });
    const isApproved = approvals && calls.answerOf(given) === true;
    let outcome = await ask(isApproved ? { approvalWaitMs: 0 } : {});
    if (isApproved && outcome.decision === Decision.ASK) {
      await answerQuestion(approvals.client ?? gate.client, outcome.approvalId, { approve: true, by: approvals.by });
      outcome = await ask({});
    }
    if (outcome.isError || outcome.decision === Decision.ASK) throw new ToolCallError(outcome);
    return told.keep(given.toolCallId, outcome.unwrap(), outcome);
  };

  /** Judged without storing anything: where the user says no, nobody is left with an open question. */
  const isQuestion = async (input: Any, given: CallOptions): Promise<boolean> => {
    const [args, said] = await shown.taken(name, input);
    const ids = { callId: given.toolCallId, turn: calls.turnOf(given) };
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
