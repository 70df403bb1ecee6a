/** What was thrown, as the contract says it. Libraries are known by their members alone: none is imported. */
import { create } from "@bufbuild/protobuf";

import { ToolFailed } from "./errors.js";
import { type ToolError, ToolErrorSchema } from "./gen/callgate/v1/types_pb.js";
import { durationFromMs } from "./times.js";
import { spoken } from "./values.js";

/** In bytes. */
const MESSAGE_BYTES_MAX = 64 * 1024;
const WORD_LENGTH_MAX = 100;

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
  const httpStatus = [...http, aws].find((status) => isWithin(status, 100, 599));
  if (httpStatus !== undefined) told.httpStatus = httpStatus as number;
  const code = at(error, "code");
  if (isWithin(code, 1, 16) && (at(error, "metadata") ?? at(error, "rawMessage")) !== undefined) {
    told.grpcStatus = code as number;
  }
  const retryAfterMs = Math.ceil(failure.retryAfterMs ?? -1);
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

function isWithin(value: unknown, least: number, most: number): boolean {
  return Number.isInteger(value) && (value as number) >= least && (value as number) <= most;
}
