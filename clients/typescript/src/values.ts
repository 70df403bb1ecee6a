/** What a tool was given, returned or threw, as the contract says it. */
import { create } from "@bufbuild/protobuf";

import { type RecordRequest, RecordRequestSchema } from "./gen/callgate/v1/gate_service_pb.js";
import { OutcomeStatus, UsageSchema } from "./gen/callgate/v1/types_pb.js";
import { Result } from "./outcome.js";

/** In bytes, of arguments and of a result that is stored; `limits.jsonBytes` of GetServerInfo. */
export const JSON_BYTES_MAX = 1024 * 1024;

/** A value as it is told to the plane and, where the plane cannot hand it to the model, to the model. */
export interface Told {
  text: string;
  isStored: boolean;
  digest: string;
  size: number;
}

/** Any value as JSON text; nothing as null, what else JSON has no word for by its `String`. */
export function asJson(value: unknown): string {
  if (value === undefined) return "null";
  try {
    return JSON.stringify(value, plainly()) ?? JSON.stringify(String(value));
  } catch {
    // A `toJSON` or a getter that throws, or nesting without end.
    return JSON.stringify(spoken(value));
  }
}

/** By its `String`, if it has one. */
export function spoken(value: unknown): string {
  try {
    return String(value);
  } catch {
    return "[object]";
  }
}

/** A replacer for what JSON has no word for. */
function plainly(): (this: unknown, key: string, value: unknown) => unknown {
  const ancestors: unknown[] = [];
  return function (_key, value) {
    if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
    if (typeof value === "number" && !Number.isFinite(value)) return String(value);
    if (typeof value !== "object" || value === null) return value;
    while (ancestors.length > 0 && ancestors.at(-1) !== this) ancestors.pop();
    if (ancestors.includes(value)) return "[circular]";
    const plain = plainObject(value);
    ancestors.push(plain);
    return plain;
  };
}

function plainObject(value: object): object {
  if (value instanceof Map) return Object.fromEntries(value);
  if (value instanceof Set) return [...value];
  if (value instanceof Error) return { name: value.name, message: value.message };
  return value;
}

/** Text as it is, bytes by what they say or by their digest, anything else as JSON. */
export async function told(value: unknown): Promise<Told> {
  const bytes = bytesOf(value);
  if (!bytes) {
    // A lone surrogate is no text of UTF-8; it becomes U+FFFD, since the call has run.
    const encoded = new TextEncoder().encode(typeof value === "string" ? value : asJson(value));
    return toldText(new TextDecoder("utf-8", { ignoreBOM: true }).decode(encoded), encoded);
  }
  const text = textOf(bytes);
  if (text !== undefined) return toldText(text, bytes);
  const digest = await sha256(bytes);
  const said = `${bytes.length} bytes that are no text, with the SHA-256 ${digest}`;
  return { text: said, isStored: false, digest, size: bytes.length };
}

async function toldText(text: string, bytes: Uint8Array): Promise<Told> {
  const size = bytes.length;
  if (size <= JSON_BYTES_MAX) return { text, isStored: true, digest: "", size };
  return { text, isStored: false, digest: await sha256(bytes), size };
}

function bytesOf(value: unknown): Uint8Array | undefined {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  return ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : undefined;
}

function textOf(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** Hexadecimal. */
export async function sha256(bytes: Uint8Array): Promise<string> {
  const subtle = globalThis.crypto?.subtle;
  // Pages without TLS have none: a name that equals no other is told instead, so that nothing counts as a repetition.
  if (!subtle) return `unknown-${newId()}`;
  const digest = await subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>);
  return hex(new Uint8Array(digest));
}

/** 32 hexadecimal characters that nobody else has. */
export function newId(): string {
  return hex(globalThis.crypto.getRandomValues(new Uint8Array(16)));
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function isCount(given: unknown): given is number {
  return Number.isSafeInteger(given) && (given as number) >= 0;
}

/** The report of a value, how it is told, and the value without what a {@link Result} says of it. */
export async function success(given: unknown): Promise<{ report: RecordRequest; told: Told; value: unknown }> {
  const { value, facts } = given instanceof Result ? given : new Result(given);
  const said = await told(facts.text ?? value);
  const report = create(RecordRequestSchema, { status: OutcomeStatus.SUCCESS });
  // The call has run: its value is recorded even where what is said beside it makes no sense.
  if (typeof facts.isComplete === "boolean") report.isComplete = facts.isComplete;
  if (isCount(facts.totalMatches)) report.totalMatches = BigInt(facts.totalMatches);
  if (isCount(facts.costMicros)) report.usage = create(UsageSchema, { costMicros: BigInt(facts.costMicros) });
  if (said.isStored) {
    report.result = said.text;
  } else {
    report.resultDigest = said.digest;
    report.resultBytes = BigInt(said.size);
  }
  return { report, told: said, value };
}

const STRING_OR_INTEGER = /"(?:[^"\\]|\\.)*"|(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g;

/** JSON as `execute` gets it: an integer that a number cannot hold is a BigInt, since one beside it is another one. */
export function readJson(json: string): unknown {
  const mark = `${newId()}:`;
  const isUnsafe = (found: string) => !found.startsWith('"') && !Number.isSafeInteger(Number(found));
  const marked = json.replace(STRING_OR_INTEGER, (found) => (isUnsafe(found) ? `"${mark}${found}"` : found));
  if (marked === json) return JSON.parse(json);
  const isMarked = (value: unknown) => typeof value === "string" && value.startsWith(mark);
  return JSON.parse(marked, (_, value) => (isMarked(value) ? BigInt(value.slice(mark.length)) : value));
}

/**
 * The arguments as text: the model's own as it came, an object as JSON.
 *
 * @throws TypeError if they are neither text nor an object of JSON values.
 */
export function argumentsJson(args: object | string): string {
  if (typeof args === "string") return args;
  if (typeof args !== "object" || args === null || Array.isArray(args)) {
    throw new TypeError(
      `args: ${args === undefined ? args : asJson(args)} is neither an object nor the model's JSON text`,
    );
  }
  try {
    return JSON.stringify(args, (_key, value) => (typeof value === "bigint" ? plainly().call({}, "", value) : value));
  } catch (error) {
    throw new TypeError(`args: ${(error as Error).message}`, { cause: error });
  }
}

/** The arguments, where nobody has looked whether they can be read. */
export function readable(json: string): object | undefined {
  try {
    const args = readJson(json || "{}");
    return typeof args === "object" && args !== null && !Array.isArray(args) ? args : undefined;
  } catch {
    return undefined;
  }
}
