/** A call as a program hands it over, and what holds for it. */
import { create } from "@bufbuild/protobuf";

import { type Caller, type Permit, type ToolCall, ToolCallSchema } from "./gen/callgate/v1/types_pb.js";
import { checkMs, shown } from "./times.js";
import type { ModelUsage, OnUsage } from "./usage.js";
import { argumentsJson, newId, sha256 } from "./values.js";

const ID_BYTES_MAX = 200;
const WITNESS_BYTES_MAX = 256;

/** What is known of a call while it runs. */
export interface Running {
  /** As the plane knows the call. */
  callId: string;
  /** From 1; every attempt has the same idempotency key. */
  attempt: number;
  /** The plane's; undefined where the tool runs although nobody could be asked. */
  permit: Permit | undefined;
  /**
   * To be sent with the execution, so that its provider recognises a retry; undefined without a permit. A tool that reads
   * it, here or in the permit, has received it, and is reported so: read it only where it is sent on.
   */
  idempotencyKey: string | undefined;
  /** True where a person approved these arguments instead of the model's. */
  isEdited: boolean;
  /** Aborted when the caller's signal is, or the time is over. */
  signal: AbortSignal;
}

/** The state of what a call reads, such as an ETag or a version; undefined where it is not known. */
// biome-ignore lint/suspicious/noExplicitAny: a tool says itself what arguments it takes
export type Witness = (args: any) => string | undefined | Promise<string | undefined>;

/** Makes the call; what it throws is reported and shown to the model. */
// biome-ignore lint/suspicious/noExplicitAny: a tool says itself what arguments it takes
export type Execute<R> = (args: any, running: Running) => R;

/** What a call may have beside tool, arguments and `execute`. Times are in milliseconds. */
export interface RunOptions {
  /** As the framework names the call; one id is one call, however often it is run. Default: a new one. */
  callId?: string | undefined;
  /** Goes before the `callId`, for frameworks whose ids begin anew with each turn (`call_0`). */
  turn?: string | undefined;
  /** Why the agent wants it, for people. */
  justification?: string | undefined;
  /** The agent means to repeat an earlier call. */
  repeatIntended?: boolean | undefined;
  /**
   * The tool changes nothing, so that a retry after a timeout does no harm. What the policy declares goes before it.
   */
  readOnly?: boolean | undefined;
  /**
   * Called before and after `execute`. A declared look whose state is the same is answered by its previous result; one
   * whose state differs is executed.
   */
  witness?: Witness | undefined;
  /** What it is expected to cost, in millionths of a US dollar. */
  costEstimateMicros?: number | undefined;
  /** What the model used since the last call, as `usageOf` reads it of its answer; several, where several count. */
  usage?: ModelUsage | readonly ModelUsage[] | undefined;
  /** Instead of the gate's. */
  patienceMs?: number | undefined;
  /** Instead of the gate's. */
  approvalWaitMs?: number | undefined;
  /** How long `execute` may take. Default: as long as it takes. */
  timeoutMs?: number | undefined;
  /** Calls it off: the call is reported as cancelled, and `run` rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Under which name the model can give the reason, if it can. */
  justificationParameter?: string | undefined;
  /** Under which name the model can mean a repetition, if it can. */
  repeatParameter?: string | undefined;
  /**
   * Whether what `execute` hands the arguments to takes one of this name, such as the one for the idempotency key: false:
   * it is not given; undefined: it is, and nobody knows whether it is received. Default: it is given, and `execute` has
   * received the key once it reads it.
   */
  takes?: ((argument: string) => boolean | undefined) | undefined;
}

/** One tool call of a model, as `batch` takes it. */
export interface Call<R = unknown> extends RunOptions {
  /** As the model calls it and the policy names it. */
  tool: string;
  /** An object, or the model's own JSON text: where that is wrong, the model is told so. */
  args: object | string;
  execute: Execute<R>;
}

const CALL_OPTIONS = {
  tool: 1,
  args: 1,
  execute: 1,
  callId: 1,
  turn: 1,
  justification: 1,
  repeatIntended: 1,
  readOnly: 1,
  witness: 1,
  costEstimateMicros: 1,
  usage: 1,
  patienceMs: 1,
  approvalWaitMs: 1,
  timeoutMs: 1,
  signal: 1,
  justificationParameter: 1,
  repeatParameter: 1,
  takes: 1,
} satisfies Record<keyof Call, 1>;

/**
 * For programs that no compiler has read: an option that is misspelled would be left out silently.
 *
 * @throws TypeError naming what is no option.
 */
export function checkNames(what: string, given: object, known: object): void {
  const unknown = Object.keys(given).filter((name) => !Object.hasOwn(known, name));
  if (unknown.length === 0) return;
  throw new TypeError(`${what} has no option ${unknown.join(", ")}; its options are ${Object.keys(known).join(", ")}`);
}

/** @throws TypeError naming what is no text. */
export function checkText(name: string, given: unknown, isRequired = false): void {
  if (typeof given === "string" || (given === undefined && !isRequired)) return;
  throw new TypeError(`${name}: ${shown(given)} is no text`);
}

/** @throws TypeError naming what is no function. */
export function checkFunction(name: string, given: unknown): void {
  if (given !== undefined && typeof given !== "function")
    throw new TypeError(`${name}: ${shown(given)} is no function`);
}

/** Which tools run while the plane is away: all, these, or those of which the function says so. */
export type FailOpen = boolean | Iterable<string> | ((tool: string) => boolean);

/** What holds for the calls of a gate. */
export interface Rules {
  caller: Caller;
  patienceMs: number;
  approvalWaitMs: number;
  usage: OnUsage | undefined;
  runsWithoutPlane: (tool: string) => boolean;
}

/**
 * As the plane is asked.
 *
 * @throws TypeError or RangeError naming the argument that makes no sense.
 */
export async function proposed(call: Call): Promise<ToolCall> {
  checkNames("a call", call, CALL_OPTIONS);
  for (const name of ["tool", "callId", "turn", "justification"] as const) checkText(name, call[name], name === "tool");
  for (const name of ["patienceMs", "approvalWaitMs", "timeoutMs"] as const) checkMs(name, call[name]);
  checkFunction("witness", call.witness);
  if (typeof call.execute !== "function") throw new TypeError(`execute: ${typeof call.execute} is no function`);
  const { costEstimateMicros: cost } = call;
  if (cost !== undefined && !(Number.isSafeInteger(cost) && cost >= 0)) {
    throw new TypeError(`costEstimateMicros: ${shown(cost)} is no whole number from 0 on`);
  }
  const asked = create(ToolCallSchema, {
    tool: call.tool,
    argumentsJson: argumentsJson(call.args),
    callId: await idOf(call),
    justification: call.justification ?? "",
    repeatIntended: call.repeatIntended ?? false,
    justificationParameter: call.justificationParameter ?? "",
    repeatParameter: call.repeatParameter ?? "",
  });
  if (cost !== undefined) asked.costEstimateMicros = BigInt(cost);
  return asked;
}

/** What `witness` says now; empty where it says nothing or fails. */
export async function stateOf({ witness, args, tool }: Call, log: (line: string) => void): Promise<string> {
  if (!witness) return "";
  try {
    const state = (await witness(typeof args === "string" ? JSON.parse(args || "{}") : args)) ?? "";
    const bytes = new TextEncoder().encode(state);
    return bytes.length <= WITNESS_BYTES_MAX ? state : `sha256:${await sha256(bytes)}`;
  } catch (error) {
    log(`callgate: the witness of ${tool} failed, and its state is unknown: ${error}`);
    return "";
  }
}

async function idOf({ callId, turn }: RunOptions): Promise<string> {
  if (callId === undefined) return newId();
  const named = turn ? `${turn}/${callId}` : callId;
  const bytes = new TextEncoder().encode(named);
  return bytes.length <= ID_BYTES_MAX ? named : `sha256:${await sha256(bytes)}`;
}
