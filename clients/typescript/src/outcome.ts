/** What came of a call, and what its model is to see. */
import { CallRefused, Replayed } from "./errors.js";
import type { RecordResponse } from "./gen/callgate/v1/gate_service_pb.js";
import type { Decision, Verdict } from "./gen/callgate/v1/types_pb.js";

/** What a {@link Result} says of its value. */
export interface ResultFacts {
  /** Whether the value holds everything there is; undefined: unsaid. */
  isComplete?: boolean;
  /** How many matches there are in all; undefined: unsaid. */
  totalMatches?: number;
  /** What the call cost, in millionths of a US dollar. */
  costMicros?: number;
  /** What is recorded and shown to the model instead of the value as JSON; undefined: the value. */
  text?: string;
}

/** What a tool may return to say more of its value than the value does. */
export class Result<T> {
  constructor(
    readonly value: T,
    readonly facts: ResultFacts = {},
  ) {}
}

/** The value of what `execute` returns. */
export type ValueOf<R> = Awaited<R> extends Result<infer T> ? T : Awaited<R>;

/** What came of one call. */
export class Outcome<T = unknown> {
  /** What the model is to see as the tool's result. */
  declare readonly text: string;
  /** Whether the text reports an error (Anthropic `is_error`, MCP `isError`). */
  declare readonly isError: boolean;
  /** What the plane decided last; undefined where it gave no answer. */
  declare readonly decision: Decision | undefined;
  /** Whether `execute` was begun. */
  declare readonly ran: boolean;
  /** What `execute` returned; undefined where it did not. */
  declare readonly value: T | undefined;
  /** What it threw, or why nobody could be asked; undefined where neither. */
  declare readonly error: unknown;
  /**
   * The plane's stable reason, as `duplicate_call_blocked`; `callgate_unavailable` where it gave no answer; empty where
   * there is nothing to explain.
   */
  declare readonly reason: string;
  /** What the text says beside the result; empty: nothing. For who hands on the value in its own form. */
  declare readonly hint: string;
  /** No further call is let through in this scope: let the model give its final answer. */
  declare readonly toolsDisabled: boolean;
  /** How often `execute` was begun. */
  declare readonly attempts: number;
  /** The question that a person has not answered yet; empty where there is none. */
  declare readonly approvalId: string;
  /** Whether the plane knows of this outcome. False after an execution: the report is sent again in the background. */
  declare readonly recorded: boolean;
  /** As the plane knows the call. */
  declare readonly callId: string;
  /** For a repetition that is answered with its previous result whole: that result, as JSON has it. */
  declare readonly previous: { value: unknown } | undefined;
  /** The value of the execution that gave it, where that was in this process. */
  declare readonly first: { value: T } | undefined;
  /** The plane's last verdict, as it came. */
  declare readonly verdict: Verdict | undefined;
  /** Its last answer to a report, as it came. */
  declare readonly record: RecordResponse | undefined;

  constructor(members: OutcomeMembers<T>) {
    Object.assign(this, NOTHING, members);
  }

  /** The sentence of the text, for people: what happened, why, what to do next. */
  get message(): string {
    if (this.ran && !this.isError) return this.text;
    try {
      const { message, error_message: error } = JSON.parse(this.text);
      return String(message ?? error ?? this.text);
    } catch {
      return this.text;
    }
  }

  /**
   * The value; for a repetition (REUSE) that of the first execution, of the same type.
   *
   * @throws {@link Replayed} for a repetition of an execution whose value is not in this process: its `value` is the
   * result as JSON; {@link CallRefused} if the call was not let through, or its previous result is not stored whole;
   * {@link CallgateUnavailable} if nobody could be asked; else what `execute` threw.
   */
  unwrap(): T {
    if (this.error !== undefined) throw this.error;
    if (this.ran) return this.value as T;
    if (this.first) return this.first.value;
    throw this.previous ? new Replayed(this) : new CallRefused(this);
  }
}

type Facts<T> = Omit<Outcome<T>, "message" | "unwrap">;
/** Those that every outcome has; the others are false, empty or undefined unless given. */
export type OutcomeMembers<T> = Pick<Facts<T>, "text" | "isError" | "callId"> & Partial<Facts<T>>;

const NOTHING: Partial<Facts<unknown>> = {
  decision: undefined,
  ran: false,
  value: undefined,
  error: undefined,
  reason: "",
  hint: "",
  toolsDisabled: false,
  attempts: 0,
  approvalId: "",
  recorded: false,
  verdict: undefined,
  record: undefined,
  previous: undefined,
  first: undefined,
};
