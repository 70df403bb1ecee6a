/** The steps of a run of the AI SDK: usage, the end of a run, compaction, and what its user refuses. */
import type { PrepareStepFunction, StopCondition } from "ai";

import type { AnyTool, Told } from "./ai-sdk-calls.js";
import * as calls from "./ai-sdk-calls.js";
import type { ShownTools } from "./ai-sdk-schemas.js";
import { type Answerer, denyQuestion } from "./approvals.js";
import type { Outcome } from "./index.js";
import { CallgateUnavailable, type Gate, usageOf } from "./index.js";

/** As `generateText` and an agent take it, for whatever tools. */
// biome-ignore lint/suspicious/noExplicitAny: the application's own functions name their tools
export type PrepareStep = PrepareStepFunction<any>;
/** When a run ends, beside its natural end. */
// biome-ignore lint/suspicious/noExplicitAny: the application's own functions name their tools
export type Stop = StopCondition<any>;
type Step = Parameters<Stop>[0]["steps"][number];
type Messages = Parameters<PrepareStep>[0]["messages"];

/** As the SDK's agents have it. */
const STEPS_MAX = 20;

/** What the application's own settings of a run are. */
export interface StepOptions {
  /** When a run ends; 20 steps. */
  stopWhen?: Stop | readonly Stop[] | undefined;
  /** Where it returns fewer messages than it was given, that is a compaction. */
  prepareStep?: PrepareStep | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: a function of the application may take any of its versions
  onStepFinish?: ((step: any) => unknown) | undefined;
}

/** The settings of a run whose tools pass a gate. */
export class Steps {
  #dropped = 0;
  #summary = "";

  constructor(
    private readonly gate: Gate,
    private readonly tools: Record<string, AnyTool>,
    private readonly shown: ShownTools,
    private readonly told: Told,
    private readonly approvals: Answerer | undefined,
    private readonly options: StepOptions,
  ) {}

  /** The tools are dropped once no call is let through. */
  readonly prepareStep: PrepareStep = async (given) => {
    if (given.stepNumber === 0 && this.approvals) await this.#recordRefusals(given.messages, this.approvals);
    // From version 7 on, what a step leaves is what the next one is given, callgate's summary included.
    const { initialMessages, responseMessages } = given as { initialMessages?: Messages; responseMessages?: Messages };
    const present = given.messages.filter(({ content }) => !this.#summary || content !== this.#summary);
    const all = initialMessages ? [...initialMessages, ...(responseMessages ?? [])] : present;
    const own = await this.options.prepareStep?.({ ...given, messages: present });
    const messages = own?.messages && (await this.#compacted(all, own.messages));
    this.told.leftOut = initialMessages ? calls.spokenIn(all) - calls.spokenIn(messages ?? given.messages) : 0;
    // A choice of a tool that is not there would end the run with an error.
    const none = this.#isDisabled(given.steps) ? { activeTools: [], toolChoice: "auto" as const } : {};
    return { ...own, ...(messages && { messages }), ...none };
  };

  /** The model's usage is booked with the next call, that of the last step with the next run's. */
  // biome-ignore lint/suspicious/noExplicitAny: of whatever tools
  readonly onStepFinish = async (step: any): Promise<void> => {
    this.gate.pend(usageOf(step));
    await this.options.onStepFinish?.(step);
  };

  get stopWhen(): Stop[] {
    const { stopWhen = ({ steps }) => steps.length >= STEPS_MAX } = this.options;
    return [...[stopWhen].flat(), ({ steps }) => this.#isOver(steps)];
  }

  /** The model was told that no call is let through, and called once more. */
  #isOver(steps: readonly Step[]): boolean {
    const isCalling = (steps.at(-1)?.toolCalls.length ?? 0) > 0;
    return isCalling && this.#isDisabled(steps.slice(0, -1)) && this.#isDisabled(steps);
  }

  /** As the last outcomes of the run say. */
  #isDisabled(steps: readonly Step[]): boolean {
    const outcomes = steps.map(({ content }) => content.flatMap((part) => this.#outcomeOf(part) ?? []));
    return outcomes.findLast((of) => of.length > 0)?.some(({ toolsDisabled }) => toolsDisabled) ?? false;
  }

  #outcomeOf(part: Step["content"][number]): Outcome | undefined {
    if (part.type === "tool-error") return part.error instanceof calls.ToolCallError ? part.error.outcome : undefined;
    return part.type === "tool-result" ? this.told.of(part) : undefined;
  }

  /** The messages that are left, with what the model is not to forget of those that are gone. */
  async #compacted(given: Messages, left: Messages): Promise<Messages> {
    const dropped = resultsOf(given) - resultsOf(left);
    if (dropped > this.#dropped) {
      try {
        this.#summary = (await this.gate.compacted()).summaryForModel;
        this.#dropped = dropped;
      } catch (error) {
        if (!(error instanceof CallgateUnavailable)) throw error;
        this.gate.client.plane.settings.log(`callgate: a compaction is not recorded: ${error.message}`);
      }
    }
    if (dropped <= 0 || !this.#summary) return left;
    const at = left.findIndex(({ role }) => role !== "system");
    return left.toSpliced(at < 0 ? left.length : at, 0, { role: "user", content: this.#summary });
  }

  /** The SDK itself answers the model where its user says no, and executes nothing: callgate learns of it here. */
  async #recordRefusals(messages: Messages, answerer: Answerer): Promise<void> {
    for (const { toolCallId, toolName, input, turn, reason } of calls.refusalsOf(messages)) {
      if (!this.tools[toolName]?.execute) continue;
      const [args, said] = await this.shown.taken(toolName, input as object);
      await denyQuestion(this.gate, toolName, args, { ...said, callId: toolCallId, turn }, { ...answerer, reason });
    }
  }
}

function resultsOf(messages: Messages): number {
  const parts = messages.flatMap(({ role, content }) => (role === "tool" ? content : []));
  return parts.filter(({ type }) => type === "tool-result").length;
}
