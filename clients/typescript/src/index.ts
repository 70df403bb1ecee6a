/**
 * callgate's client: ask before a tool call of an LLM agent, and report after it.
 *
 * @module
 */
export { Code } from "@connectrpc/connect";
export type { Call, Execute, FailOpen, Running, RunOptions } from "./call.js";
export { Client, type CloseOptions, gate } from "./client.js";
export * from "./errors.js";
export type { EvaluateOptions, Gate, GateOptions, StateOptions, SummaryOptions } from "./gate.js";
export { type GatedOptions, gated } from "./gated.js";
export { ApprovalScope, ApprovalState } from "./gen/callgate/v1/approval_service_pb.js";
export type { RecordResponse } from "./gen/callgate/v1/gate_service_pb.js";
export {
  CallState,
  Decision,
  type Permit,
  type SessionState,
  type Usage,
  type Verdict,
} from "./gen/callgate/v1/types_pb.js";
export { Outcome, type OutcomeMembers, Result, type ResultFacts, type ValueOf } from "./outcome.js";
export type { Unsent } from "./reports.js";
export {
  type Added,
  adapted,
  type OfferOptions,
  offered,
  type Said,
  type Schema,
  taken,
  type Wanted,
} from "./schemas.js";
export type { ClientOptions } from "./settings.js";
export type { ParameterOptions, Parameters, Toolbox, Tools } from "./toolbox.js";
export { type ModelUsage, type OnUsage, type Price, priced, usageOf } from "./usage.js";
