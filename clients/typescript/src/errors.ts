/** What goes wrong: faults of the caller and of the plane. A policy's refusal is none: it is an {@link Outcome}. */
import { Code, ConnectError } from "@connectrpc/connect";

import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import type { Outcome } from "./outcome.js";
import { codeName } from "./texts.js";
import { msOf } from "./times.js";

/** What an error says beside its message. */
export interface ErrorFacts {
  code: Code;
  reason?: string;
  metadata?: Record<string, string>;
  field?: string;
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/** The plane refused a request as such, or gave no answer. */
export class CallgateError extends Error {
  override name = "CallgateError";
  /** The status of gRPC. */
  readonly code: Code;
  /** A stable string of the contract (`CALL_ID_REUSED`); empty where the transport refused. */
  readonly reason: string;
  /** What the reason says more, such as the `quota` that is used up. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The field of the request that is wrong; empty unless the plane named one. */
  readonly field: string;
  /** How long the plane asks to wait, in milliseconds; undefined where it does not say. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, facts: ErrorFacts) {
    super(`${message} (${facts.reason || codeName(facts.code)})`, { cause: facts.cause });
    this.code = facts.code;
    this.reason = facts.reason ?? "";
    this.metadata = facts.metadata ?? {};
    this.field = facts.field ?? "";
    this.retryAfterMs = facts.retryAfterMs;
  }

  /** The typed error for one of Connect's, such as an iteration over a stream throws; others count as no answer. */
  static of(error: unknown): CallgateError {
    if (error instanceof CallgateError) return error;
    const known = ConnectError.from(error);
    const info = known.findDetails(ErrorInfoSchema)[0];
    const violations = known.findDetails(BadRequestSchema).flatMap((wrong) => wrong.fieldViolations);
    const reason = info?.reason ?? "";
    const kind =
      BY_REASON[reason] ?? (AWAY.has(known.code) ? CallgateUnavailable : BY_CODE[known.code]) ?? CallgateError;
    return new kind(known.rawMessage.trim() || "no answer", {
      // A connection that was lost ends its streams as if somebody had cancelled them.
      code: known.code === Code.Canceled ? Code.Unavailable : known.code,
      reason,
      metadata: info?.metadata ?? {},
      field: violations.map(({ field }) => field).join(", "),
      retryAfterMs: msOf(known.findDetails(RetryInfoSchema)[0]?.retryDelay),
      cause: error,
    });
  }
}

/** The plane gave no answer in time, or cannot answer now. The same request may be sent again. */
export class CallgateUnavailable extends CallgateError {
  override name = "CallgateUnavailable";
}

/** No credential, or one that does not hold. */
export class Unauthenticated extends CallgateError {
  override name = "Unauthenticated";
}

/** The credential holds, and may not do this. */
export class PermissionDenied extends CallgateError {
  override name = "PermissionDenied";
}

/** A field of the request is malformed; `field` names it. */
export class InvalidArgument extends CallgateError {
  override name = "InvalidArgument";
}

/** What the request names is not there. */
export class NotFound extends CallgateError {
  override name = "NotFound";
}

/** The request does not fit what is stored; `reason` says how. */
export class FailedPrecondition extends CallgateError {
  override name = "FailedPrecondition";
}

/** The `callId` belongs to a call with other arguments, or to one that this process is running. */
export class CallIdReused extends FailedPrecondition {
  override name = "CallIdReused";
}

/** The call has another outcome already, or a newer attempt of it was permitted meanwhile. */
export class CallAlreadySettled extends FailedPrecondition {
  override name = "CallAlreadySettled";
}

/** A quota or a limit of the plane is used up; `reason` says which. */
export class ResourceExhausted extends CallgateError {
  override name = "ResourceExhausted";
}

/** The plane did not let the call run; nothing was executed. The message is for people, as the model is told it. */
export class CallRefused extends Error {
  override name = "CallRefused";

  /** @param outcome - All that was said. */
  constructor(readonly outcome: Outcome) {
    super(outcome.message);
  }
}

/**
 * The call was not run again: it is answered with the result of an earlier execution, whose value this process does not
 * have. `value` is that result as JSON says it, which lacks what JSON has no words for, such as the class of an object.
 */
export class Replayed extends CallRefused {
  override name = "Replayed";

  get value(): unknown {
    return this.outcome.previous?.value;
  }
}

/** Every further call of this run is refused, and the model was told so, and called again. Nothing was executed. */
export class RunEnded extends Error {
  override name = "RunEnded";

  /**
   * @param outcomes - Of the calls that were refused last.
   * @param messages - What answers them, for a conversation that goes on in another run.
   */
  constructor(
    readonly outcomes: readonly Outcome[],
    readonly messages: readonly object[],
  ) {
    const why = outcomes.find(({ toolsDisabled }) => toolsDisabled)?.message ?? "no further call is let through";
    super(`the model called tools again although none is let through: ${why}`);
  }
}

/** What a {@link ToolFailed} says beside its message. */
export interface ToolFailure {
  /** A type name of the provider's: `rate_limit_error`. */
  type?: string;
  /** 100 to 599. */
  httpStatus?: number;
  /** The provider's own code: `insufficient_quota`, `40001`. */
  providerCode?: string;
  /** How long the provider asks to wait, in milliseconds. */
  retryAfterMs?: number;
  cause?: unknown;
}

/** A tool may throw this to say exactly what went wrong; anything else that it throws is read as far as it tells. */
export class ToolFailed extends Error {
  override name = "ToolFailed";

  /** @param message - Given to the model, in one line. */
  constructor(
    message: string,
    readonly failure: ToolFailure = {},
  ) {
    super(message, { cause: failure.cause });
  }
}

/**
 * `execute` may throw this to say that it stopped before it did anything: the call is reported as not started, and may
 * be asked for again. `run` rejects with the cause.
 */
export class NotStarted extends Error {
  override name = "NotStarted";

  constructor(override readonly cause: unknown) {
    super("the call stopped before it did anything");
  }
}

type Kind = typeof CallgateError;

/** No answer, or none that says anything about the request. */
const AWAY = new Set([
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.Aborted,
  Code.Internal,
  Code.Unknown,
  Code.Canceled,
]);
const BY_REASON: Record<string, Kind> = {
  CALL_ID_REUSED: CallIdReused,
  CALL_ALREADY_SETTLED: CallAlreadySettled,
  ATTEMPT_SUPERSEDED: CallAlreadySettled,
  OVERLOADED: CallgateUnavailable,
  // Nothing is wrong with the field: who asks did not say who they are.
  CALLER_UNKNOWN: Unauthenticated,
};
const BY_CODE: Partial<Record<Code, Kind>> = {
  [Code.Unauthenticated]: Unauthenticated,
  [Code.PermissionDenied]: PermissionDenied,
  [Code.InvalidArgument]: InvalidArgument,
  [Code.NotFound]: NotFound,
  [Code.FailedPrecondition]: FailedPrecondition,
  [Code.ResourceExhausted]: ResourceExhausted,
};
