/**
 * The schemas of tools as a model is to see them, in the shapes of OpenAI, Anthropic and MCP.
 *
 * Where the policy wants a justification, the model is given a parameter for it; the argument that takes the
 * idempotency key is hidden; and a model may be given a parameter to say that it means a repetition. What was added is
 * taken out of the arguments again before anything is executed.
 *
 * @module
 */
import type { RunOptions } from "./call.js";
import type { ToolDescription } from "./gen/callgate/v1/gate_service_pb.js";

const JUSTIFICATION = "justification";
const JUSTIFICATION_BYTES_MAX = 2_000;
const JUSTIFICATION_TEXT =
  "Why this call is needed now, in one or two sentences, for the person who may have to approve it.";
const REPEAT_TEXT = "True only if an identical call was made before and is meant to be made once more.";

/** The parameters that a tool's schema was given, by their names; empty: none. */
export interface Added {
  justification: string;
  repeat: string;
}

export const NOTHING_ADDED: Added = { justification: "", repeat: "" };

/** What of a tool's description a schema depends on. */
export type Wanted = Pick<ToolDescription, "needsJustification" | "idempotencyArgument">;

/** A JSON Schema, or a tool in whatever shape. */
export type Schema = Record<string, unknown>;

/** How a schema is changed. */
export interface OfferOptions {
  /** The name of an optional parameter by which the model can mean a repetition; empty: none. */
  repeatParameter?: string | undefined;
  /** It stays strict: everything is required, and what may be left out may be null. */
  strict?: boolean;
}

/**
 * The JSON Schema of a tool's arguments as the model is to see it, and what was added. A parameter that the tool has
 * itself is left alone.
 */
export function offered(parameters: Schema, wanted: Wanted, options: OfferOptions = {}): [Schema, Added] {
  const { repeatParameter = "", strict = false } = options;
  const { [wanted.idempotencyArgument]: _, ...properties } = (parameters["properties"] ?? {}) as Schema;
  const given = (parameters["required"] ?? []) as string[];
  const required = given.filter((name) => name !== wanted.idempotencyArgument);
  const justification = wanted.needsJustification && !(JUSTIFICATION in properties) ? JUSTIFICATION : "";
  if (justification) {
    properties[justification] = { type: "string", description: JUSTIFICATION_TEXT };
    required.push(justification);
  }
  const repeat = repeatParameter in properties ? "" : repeatParameter;
  if (repeat) {
    properties[repeat] = { type: strict ? ["boolean", "null"] : "boolean", description: REPEAT_TEXT };
    if (strict) required.push(repeat);
  }
  const schema: Schema = { type: "object", ...parameters, properties };
  if (required.length > 0 || "required" in parameters) schema["required"] = required;
  return [schema, { justification, repeat }];
}

/** The tool's name, in whatever shape; empty for what is no function with a schema of its own. */
export function nameOf(tool: object): string {
  const name = placeOf(tool)?.holder["name"];
  return typeof name === "string" ? name : "";
}

/** Whether the schema of a tool, in whatever shape, has an argument of this name. */
export function names(tool: object, argument: string): boolean {
  const place = placeOf(tool);
  const { properties = {}, additionalProperties } = (place?.holder[place.key] ?? {}) as Schema;
  return Object.hasOwn(properties as Schema, argument) || Boolean(additionalProperties);
}

/** A tool of OpenAI (chat or responses), Anthropic or MCP as the model is to see it, and what was added. */
export function adapted<T extends object>(tool: T, wanted: Wanted, options: OfferOptions = {}): [T, Added] {
  const place = placeOf(tool);
  if (!place) return [tool, NOTHING_ADDED];
  const { holder, key } = place;
  const strict = holder["strict"] === true;
  const [parameters, added] = offered((holder[key] ?? {}) as Schema, wanted, { ...options, strict });
  const changed = { ...holder, [key]: parameters };
  return [(place.isInside ? { ...tool, function: changed } : changed) as T, added];
}

/** Where name and schema stand, and by which key the schema does. */
function placeOf(tool: object): { holder: Schema; key: string; isInside: boolean } | undefined {
  const outer = tool as Schema;
  const inner = outer["function"];
  if (typeof inner === "object" && inner !== null)
    return { holder: inner as Schema, key: "parameters", isInside: true };
  const key = ["input_schema", "inputSchema", "parameters"].find((name) => name in outer);
  if (!key && outer["type"] !== "function") return undefined;
  return { holder: outer, key: key ?? "parameters", isInside: false };
}

/** What the model said by the parameters that were added, as `run` takes it. */
export type Said = Pick<
  RunOptions,
  "justification" | "repeatIntended" | "justificationParameter" | "repeatParameter" | "takes"
>;

/**
 * The arguments without what was added, and what that said. Text stays as it is but for the members that are cut out;
 * what cannot be read stays whole, since the plane tells the model what is wrong with it.
 */
export function taken<A extends object | string>(args: A, { justification, repeat }: Added): [A, Said] {
  const said: Said = { justificationParameter: justification, repeatParameter: repeat };
  const names = [justification, repeat].filter(Boolean);
  const read = typeof args === "string" ? readObject(args) : (args as Schema);
  if (!read || !names.some((name) => Object.hasOwn(read, name))) return [args, said];
  const reason = read[justification];
  if (justification && typeof reason === "string") said.justification = cut(reason);
  said.repeatIntended = repeat !== "" && read[repeat] === true;
  if (typeof args === "string") return [withoutMembers(args, names) as A, said];
  return [Object.fromEntries(Object.entries(args).filter(([name]) => !names.includes(name))) as A, said];
}

function cut(text: string): string {
  const bytes = new TextEncoder().encode(text.replaceAll("\0", " "));
  return new TextDecoder().decode(bytes.subarray(0, JUSTIFICATION_BYTES_MAX), { stream: true });
}

function readObject(text: string): Schema | undefined {
  try {
    const read: unknown = JSON.parse(text || "{}");
    return typeof read === "object" && read !== null && !Array.isArray(read) ? (read as Schema) : undefined;
  } catch {
    return undefined;
  }
}

const KEY = /^\s*("(?:[^"\\]|\\.)*")/;

/** The JSON object without the members of these names; numbers keep all their digits, and doubles stay doubled. */
function withoutMembers(json: string, names: string[]): string {
  const members: string[] = [];
  let depth = 0;
  let start = 0;
  for (const { 0: token, index } of json.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],]/g)) {
    const isOpening = token === "{" || token === "[";
    const isClosing = token === "}" || token === "]";
    const isEnd = (isClosing && depth === 1) || (token === "," && depth === 1);
    if (isEnd) members.push(json.slice(start, index));
    if (isEnd || (isOpening && depth === 0)) start = index + 1;
    depth += isOpening ? 1 : isClosing ? -1 : 0;
  }
  const isKept = (member: string) => !names.includes(JSON.parse(KEY.exec(member)?.[1] ?? '""'));
  return `{${members.filter(isKept).join(",")}}`;
}
