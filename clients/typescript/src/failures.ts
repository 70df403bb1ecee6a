/** What was thrown, as the contract says it. Libraries are known by their members alone: none is imported. */
import { create } from "@bufbuild/protobuf";

import { ToolFailed } from "./errors.js";
import { type ToolError, ToolErrorSchema } from "./gen/callgate/v1/types_pb.js";
import { durationFromMs, shown } from "./times.js";
import { spoken } from "./values.js";

/** In bytes. */
const MESSAGE_BYTES_MAX = 64 * 1024;
const WORD_LENGTH_MAX = 100;

/** What the engine of JavaScript throws by itself, and `assert`: mistakes of the program that runs. */
const FAULTS = new Set([
  "TypeError",
  "ReferenceError",
  "RangeError",
  "SyntaxError",
  "EvalError",
  "URIError",
  "InternalError",
  "AssertionError",
]);

/**
 * Says errors of a tool. A fault of its own program is logged with its stack, and the model learns only that there is
 * one: the message of such an error is for developers, and may show what is nobody else's. Faults are the errors of the
 * engine and of `assert`, unless they have a status, a code or a cause, as a failed `fetch` does: then they are about
 * what the tool called.
 */
export function describer(tool: string, call: string, log: (line: string) => void): (error: unknown) => ToolError {
  return (error) => {
    const told = toolError(error);
    for (const fact of leftOut(error, told)) log(`callgate: ToolFailed of ${tool} (call ${call}): ${fact}`);
    if (!isFault(error)) return told;
    const stack = at(error, "stack");
    log(`callgate: ${tool} has a bug (call ${call}): ${typeof stack === "string" && stack ? stack : spoken(error)}`);
    told.message = `${tool} failed: its own program has a bug, which its developers find in their log`;
    return told;
  };
}

/** What a ToolFailed says that is no such fact. */
function leftOut(error: unknown, told: ToolError): string[] {
  const { httpStatus, retryAfterMs } = error instanceof ToolFailed ? error.failure : {};
  const facts: string[] = [];
  if (httpStatus !== undefined && told.httpStatus === undefined) {
    facts.push(`httpStatus: ${shown(httpStatus)} is no whole number from 100 to 599, and is left out`);
  }
  if (retryAfterMs !== undefined && !told.retryAfter) {
    facts.push(`retryAfterMs: ${shown(retryAfterMs)} is no number of milliseconds, and is left out`);
  }
  return facts;
}

function isFault(error: unknown): boolean {
  const name = at(error, "name");
  if (typeof name !== "string" || !FAULTS.has(name.replace(/ \[.*/, ""))) return false;
  const code = at(error, "code");
  if (code !== undefined && code !== "ERR_ASSERTION") return false;
  return ["status", "statusCode", "response", "cause", "$metadata"].every((fact) => at(error, fact) === undefined);
}

/** As far as it tells. */
export function toolError(error: unknown): ToolError {
  const failure = error instanceof ToolFailed ? error.failure : {};
  const cause = at(error, "cause");
  const told = create(ToolErrorSchema, {
    message: short(messageOf(error)),
    type: word(failure.type) || word(at(error, "type")) || nameOf(error),
    // fetch has the system's own code in its cause alone: "fetch failed".
    providerCode: word(failure.providerCode) || word(at(error, "code")) || word(at(cause, "code")),
    retryAfterHeader: header(at(error, "headers") ?? at(at(error, "response"), "headers")),
  });
  const http = [failure.httpStatus, at(error, "status"), at(error, "statusCode"), at(at(error, "response"), "status")];
  const aws = at(at(error, "$metadata"), "httpStatusCode");
  const httpStatus = [...http, aws].map(numberOf).find((status) => isWithin(status, 100, 599));
  if (httpStatus !== undefined) told.httpStatus = httpStatus as number;
  const code = at(error, "code");
  if (isWithin(code, 1, 16) && (at(error, "metadata") ?? at(error, "rawMessage")) !== undefined) {
    told.grpcStatus = code as number;
  }
  const retryAfterMs = Math.ceil(Number(numberOf(failure.retryAfterMs ?? -1)));
  if (isWithin(retryAfterMs, 0, 1e12)) told.retryAfter = durationFromMs(retryAfterMs);
  return told;
}

function messageOf(error: unknown): string {
  const message = at(error, "message");
  if (typeof message !== "string") return spoken(error);
  const cause = at(at(error, "cause"), "message");
  return message === "fetch failed" && typeof cause === "string" ? `fetch failed: ${cause}` : message;
}

/** The class says more than the name where a library gives its errors classes of their own and no names. */
function nameOf(error: unknown): string {
  const name = word(at(error, "name"));
  return name && name !== "Error" ? name : word(at(at(error, "constructor"), "name")) || name;
}

function short(message: string): string {
  const bytes = new TextEncoder().encode(message);
  if (bytes.length <= MESSAGE_BYTES_MAX) return new TextDecoder().decode(bytes);
  // The last character may be cut: it is left out.
  return new TextDecoder().decode(bytes.subarray(0, MESSAGE_BYTES_MAX - 3)).replace(/\uFFFD$/, "");
}

function header(headers: unknown): string {
  const get = at(headers, "get");
  const found = typeof get === "function" ? get.call(headers, "retry-after") : at(headers, "retry-after");
  return word(typeof found === "number" ? String(found) : found);
}

/** A member; undefined where there is none, or it cannot be had: what was thrown may be anything. */
function at(value: unknown, name: string): unknown {
  try {
    return (value as Record<string, unknown> | null | undefined)?.[name];
  } catch {
    return undefined;
  }
}

function word(value: unknown): string {
  return typeof value === "string" ? value.slice(0, WORD_LENGTH_MAX) : "";
}

/** Some libraries give a status as text: "429". */
function numberOf(value: unknown): unknown {
  return typeof value === "string" && /^\d{1,15}$/.test(value.trim()) ? Number(value) : value;
}

function isWithin(value: unknown, least: number, most: number): boolean {
  return Number.isInteger(value) && (value as number) >= least && (value as number) <= most;
}
