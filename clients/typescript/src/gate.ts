/** Gates: they ask before a call, wait, execute, report, and say what the model is to see. */
import { create } from "@bufbuild/protobuf";

import type { Call, Execute, FailOpen, Rules, RunOptions } from "./call.js";
import { checkFunction, checkNames, checkText, proposed } from "./call.js";
import type { Client } from "./client.js";
import { CallgateUnavailable, NotFound } from "./errors.js";
import { BatchEvaluateRequestSchema } from "./gen/callgate/v1/gate_service_pb.js";
import {
  type Caller,
  CallerSchema,
  type SessionState,
  SessionStateSchema,
  type Verdict,
} from "./gen/callgate/v1/types_pb.js";
import type { Outcome, ValueOf } from "./outcome.js";
import { Run } from "./run.js";
import { checkMs } from "./times.js";
import { type ParameterOptions, Parameters, Toolbox, type Tools } from "./toolbox.js";
import { booked, type ModelUsage, type OnUsage, sum } from "./usage.js";
import { newId } from "./values.js";

/** What a gate takes beside the session. Times are in milliseconds. */
export interface GateOptions {
  /** A part of the session, such as one user turn; a new one clears what a loop had stopped. */
  runId?: string | undefined;
  /** The agent's name, for its daily budget. */
  agentId?: string | undefined;
  /** The session that started this one. */
  parentSessionId?: string | undefined;
  /** The person whom the agent works for, by a name that means nothing to others. */
  userId?: string | undefined;
  /** The program that the agent runs in, as people who are asked are told it. */
  host?: string | undefined;
  /** The phase that the session is in, when its caller keeps it. */
  phase?: string | undefined;
  /** How long a call waits in all for WAITs and for retries that were advised; 60,000. */
  patienceMs?: number | undefined;
  /** How long it waits for a person; 300,000; 0: not at all, and the question stays open. */
  approvalWaitMs?: number | undefined;
  /** Which tools run while the plane is away; none. */
  failOpen?: FailOpen | undefined;
  /**
   * Called with the usage of each answer of the model, as the adapters read it, before it is booked: it gives what is
   * booked, such as with its cost ({@link priced} makes one of a table of prices), or undefined for nothing. Without
   * it, tokens and model are booked. A budget in dollars counts only a cost that is given here.
   */
  usage?: OnUsage | undefined;
}

/** How long the summary of a session's state may be. */
export interface SummaryOptions {
  /** Of `summaryForModel`, in tokens, 300 to 8000; 1500. */
  summaryTokens?: number | undefined;
}

/** What of a session's state is wanted. */
export interface StateOptions extends SummaryOptions {
  /** How many of the last calls, 1 to 64; 20. Open and held calls come on top. */
  lastCalls?: number | undefined;
}

/** How a call is only judged. */
export interface EvaluateOptions extends RunOptions {
  /** Judge, and store nothing: the answer binds nobody. */
  dryRun?: boolean | undefined;
  /** How long the server waits for a person or a pause, in milliseconds, 60,000 at most; 0. */
  maxWaitMs?: number | undefined;
}

const OPTIONS = {
  runId: 1,
  agentId: 1,
  parentSessionId: 1,
  userId: 1,
  host: 1,
  phase: 1,
  patienceMs: 1,
  approvalWaitMs: 1,
  failOpen: 1,
  usage: 1,
} satisfies Record<keyof GateOptions, 1>;
const PATIENCE_MS = 60_000;
const APPROVAL_WAIT_MS = 300_000;
const BATCH_MAX = 64;

/** The gate of one session, by {@link Client.gate}. Cheap to make. */
export class Gate {
  readonly #options: GateOptions;
  readonly #rules: Rules;
  #toolsDisabled = false;

  /** @throws TypeError or RangeError naming the option that makes no sense. */
  constructor(
    readonly client: Client,
    readonly sessionId: string,
    options: GateOptions = {},
  ) {
    checkNames("a gate", options, OPTIONS);
    this.#options = options;
    const { runId, agentId, parentSessionId, userId, host, phase } = options;
    const { patienceMs = PATIENCE_MS, approvalWaitMs = APPROVAL_WAIT_MS, failOpen = false, usage } = options;
    checkMs("patienceMs", patienceMs);
    checkMs("approvalWaitMs", approvalWaitMs);
    checkFunction("usage", usage);
    const ids = { sessionId, runId, agentId, parentSessionId, userId, host, phase };
    checkText("sessionId", sessionId, true);
    for (const [name, value] of Object.entries(ids)) checkText(name, value);
    const known = Object.fromEntries(Object.entries(ids).filter(([, value]) => value !== undefined));
    const caller = create(CallerSchema, known);
    this.#rules = { caller, patienceMs, approvalWaitMs, usage, runsWithoutPlane: predicate(failOpen) };
  }

  /** @internal */
  get caller(): Caller {
    return this.#rules.caller;
  }

  /** The same gate with other options, such as the next `runId`. */
  with(options: GateOptions): Gate {
    return new Gate(this.client, this.sessionId, { ...this.#options, ...options });
  }

  /**
   * The gate of the session's next run, such as one message of the user: it clears what a loop had stopped. Without a
   * `runId`, the run gets one that no other has.
   */
  newRun(runId: string = newId()): Gate {
    return this.with({ runId });
  }

  /**
   * Whether every further call of this run is refused, as the last outcome of this gate says: give the model no tools,
   * and let it give its final answer.
   */
  get toolsDisabled(): boolean {
    return this.#toolsDisabled;
  }

  /**
   * The session's calls, loops and budgets; of a session without a call, nothing but its id.
   *
   * @throws {@link CallgateError} if the request is at fault, or the plane gives no answer.
   */
  async state({ lastCalls = 0, summaryTokens = 0 }: StateOptions = {}): Promise<SessionState> {
    const { sessionId } = this;
    return this.#stateOf(this.client.calls.getSessionState({ sessionId, lastCalls, summaryTokens }));
  }

  /**
   * Tells the plane that the model's context was cut or summarized: the model has forgotten earlier results, and gets
   * them once more. `summaryForModel` of the answer goes back into the context: it has the calls so far, and those not
   * to repeat. A session without a call has nothing to tell.
   *
   * @throws {@link CallgateError} as of {@link state}. It is not sent again where no answer comes.
   */
  async compacted({ summaryTokens = 0 }: SummaryOptions = {}): Promise<SessionState> {
    const { sessionId } = this;
    return this.#stateOf(this.client.sessions.markCompacted({ sessionId, summaryTokens }));
  }

  async #stateOf(answer: Promise<{ state?: SessionState | undefined }>): Promise<SessionState> {
    const nothing = create(SessionStateSchema, { sessionId: this.sessionId });
    try {
      return (await answer).state ?? nothing;
    } catch (error) {
      if (error instanceof NotFound) return nothing;
      throw error;
    }
  }

  /**
   * Books a usage with the next call of this session, by whichever gate of this client.
   *
   * @internal
   */
  pend(used: ModelUsage | undefined): void {
    const { usage, log } = { usage: this.#rules.usage, log: this.client.plane.settings.log };
    if (used) this.client.plane.usage.add(this.sessionId, booked(used, usage, log));
  }

  /** The gate of another session with the same options, but for these. */
  ofSession(sessionId: string, options: GateOptions = {}): Gate {
    return new Gate(this.client, sessionId, { ...this.#options, ...options });
  }

  /**
   * Asks, waits, executes, retries as advised, reports, and says what the model is to see. `execute` is called once for
   * each permit; what it throws is in the outcome.
   *
   * @param args - An object, or the model's own JSON text: where that is wrong, the model is told so.
   * @throws {@link CallgateError} if the request itself is at fault: credentials, ids, quotas; nothing was executed.
   * TypeError or RangeError naming the argument that makes no sense. The signal's reason when that is aborted.
   */
  run<R>(
    tool: string,
    args: object | string,
    execute: Execute<R>,
    options: RunOptions = {},
  ): Promise<Outcome<ValueOf<R>>> {
    const work = async ([run]: Run[]) => [await (run as Run).flow()];
    return this.#all([{ ...options, tool, args, execute }], work).then(([outcome]) => outcome as Outcome<ValueOf<R>>);
  }

  /**
   * Runs the calls of one model turn: judged together, in order, and executed at once. The outcomes are in the order of
   * the calls. When one rejects, as of {@link run}, the others end first.
   */
  batch<R>(calls: readonly Call<R>[]): Promise<Outcome<ValueOf<R>>[]> {
    return this.#all(calls, (runs) => this.#together(runs)) as Promise<Outcome<ValueOf<R>>[]>;
  }

  /**
   * Judges, and executes nothing: `run` with the same `callId` then gets the same permit. Where the answer is lost, a
   * permit that it may have given is cancelled in the background.
   *
   * @throws {@link CallgateError} as of {@link run}, and if the plane gives no answer.
   */
  async evaluate(tool: string, args: object | string, options: EvaluateOptions = {}): Promise<Verdict> {
    const { dryRun = false, maxWaitMs = 0, ...rest } = options;
    checkMs("maxWaitMs", maxWaitMs);
    const call = { ...rest, tool, args, execute: () => undefined };
    if (!dryRun) return this.#marked([call], ([run]) => (run as Run).judged(maxWaitMs));
    return new Run(this.client.plane, this.#rules, call, await proposed(call)).judgedDry(maxWaitMs);
  }

  /** The tools behind this gate, by name, for loops that one writes oneself. */
  wrap(tools: Tools, options: ParameterOptions = {}): Toolbox {
    return new Toolbox(this, tools, options);
  }

  /** What the schemas of tools are given for the model: {@link wrap} for who has the functions elsewhere. */
  parameters(options: ParameterOptions = {}): Parameters {
    return new Parameters(this, options);
  }

  async #all(calls: readonly Call[], work: (runs: Run[]) => Promise<Outcome[]>): Promise<Outcome[]> {
    const outcomes = await this.#marked(calls, work);
    const judged = outcomes.filter(({ decision }) => decision !== undefined);
    if (judged.length > 0) this.#toolsDisabled = judged.some(({ toolsDisabled }) => toolsDisabled);
    return outcomes;
  }

  /** Marks the calls as run here while it works on them, and has the first book what waits to be booked. */
  async #marked<T>(calls: readonly Call[], work: (runs: Run[]) => Promise<T>): Promise<T> {
    const { plane } = this.client;
    const runs: Run[] = [];
    for (const call of calls) runs.push(new Run(plane, this.#rules, call, await proposed(call)));
    const ends: (() => void)[] = [];
    const [first] = runs;
    const pending = first && plane.usage.take(this.sessionId);
    if (first) first.usage = sum([first.usage, pending]);
    try {
      for (const { asked } of runs) ends.push(plane.begin(this.#rules.caller, asked.callId));
      return await work(runs);
    } finally {
      for (const end of ends) end();
      if (!first?.isJudged) plane.usage.add(this.sessionId, pending);
    }
  }

  async #together(runs: Run[]): Promise<Outcome[]> {
    const firsts = new Map<Run, Verdict | CallgateUnavailable>();
    // Of a call whose earlier outcome the plane has yet to hear nobody may ask before.
    const fresh = runs.filter(({ key }) => !this.client.plane.reports.has(key));
    try {
      for (let at = 0; at < fresh.length; at += BATCH_MAX) await this.#judge(fresh.slice(at, at + BATCH_MAX), firsts);
    } catch (error) {
      // What the plane has refused as a whole has no permits, and an id in it may be of another call.
      for (const run of firsts.keys()) run.callOff();
      throw error;
    }
    const ended = await Promise.allSettled(runs.map((run) => run.flow(firsts.get(run))));
    return ended.map((one) => {
      if (one.status === "rejected") throw one.reason;
      return one.value;
    });
  }

  async #judge(runs: Run[], firsts: Map<Run, Verdict | CallgateUnavailable>): Promise<void> {
    const { caller } = this.#rules;
    const usage = sum(runs.map((run) => run.usage));
    const calls = await Promise.all(runs.map((run) => run.askedNow()));
    const request = create(BatchEvaluateRequestSchema, { caller, calls, ...(usage && { usage }) });
    try {
      const { verdicts } = await this.client.plane.calls.batchEvaluate(request);
      for (const [at, run] of runs.entries()) firsts.set(run, verdicts[at] as Verdict);
    } catch (error) {
      if (!(error instanceof CallgateUnavailable)) throw error;
      for (const run of runs) firsts.set(run, error);
    }
  }
}

function predicate(failOpen: FailOpen): (tool: string) => boolean {
  if (typeof failOpen === "function") return failOpen;
  if (typeof failOpen === "boolean") return () => failOpen;
  if (typeof failOpen === "string") throw new TypeError("failOpen: a collection of names, not one name");
  const names = new Set(failOpen);
  return (tool) => names.has(tool);
}
