/** Usage of models: read from the objects of their providers and frameworks, priced, and kept until a call books it. */
import { create } from "@bufbuild/protobuf";

import { type Usage, UsageSchema } from "./gen/callgate/v1/types_pb.js";
import { shown } from "./times.js";

/** What a model used. What is left out is 0, or for the model unknown; each token counts in one member alone. */
export interface ModelUsage {
  /** The model, by the name that its provider bills; at most 200 bytes. */
  model?: string | undefined;
  /** Tokens that were read, without those of a prompt cache. */
  inputTokens?: number | bigint | undefined;
  outputTokens?: number | bigint | undefined;
  cacheReadTokens?: number | bigint | undefined;
  cacheWriteTokens?: number | bigint | undefined;
  /** In millionths of a US dollar. A budget in dollars counts this alone: the server adds no price of its own. */
  costMicros?: number | bigint | undefined;
}

/** Is called with the usage of one answer of a model, and gives what is booked of it; undefined: nothing. */
export type OnUsage = (used: ModelUsage) => ModelUsage | undefined;

/** A row of the server's `prices.yaml`: US dollars per million tokens, from a UTC day on. */
export interface Price {
  model: string;
  /** `2026-01-31`; left out: always. */
  valid_from?: string | Date | undefined;
  input: number;
  output: number;
  /** Default: as `input`. */
  cache_read?: number | undefined;
  /** Default: as `input`. */
  cache_write?: number | undefined;
}

const TOKENS = ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"] as const;
const COUNTS = [...TOKENS, "costMicros"] as const;
const KINDS = {
  inputTokens: "input",
  outputTokens: "output",
  cacheReadTokens: "cache_read",
  cacheWriteTokens: "cache_write",
} as const;
const MODEL_BYTES_MAX = 200;
/** Sessions whose usage waits for a call. */
const SESSIONS_MAX = 10_000;

/**
 * The usage that a model's answer states; undefined where it states none.
 *
 * It reads answers of `openai` (chat completions and responses) and `@anthropic-ai/sdk`, messages of LangChain, steps
 * and answers of the AI SDK, and whatever has the same members. Tokens of a prompt cache are counted apart, whether the
 * provider has them in its input tokens or not.
 *
 * @param model - Its name where the answer does not have it.
 */
export function usageOf(response: unknown, model = ""): ModelUsage | undefined {
  const used = at(response, "usage_metadata") ?? at(response, "usage") ?? response;
  const details = ["inputTokenDetails", "input_tokens_details", "prompt_tokens_details", "input_token_details"]
    .map((name) => at(used, name))
    .find((found) => found !== undefined && found !== null);
  // Anthropic counts the tokens of its cache beside the input tokens; all others count them in.
  const beside = ["cache_read_input_tokens", "cache_creation_input_tokens"].map((name) => at(used, name));
  const read = first(
    beside[0],
    at(details, "cacheReadTokens"),
    at(details, "cached_tokens"),
    at(details, "cache_read"),
    at(used, "cachedInputTokens"),
  );
  const wrote = first(
    beside[1],
    at(details, "cacheWriteTokens"),
    at(details, "cache_write_tokens"),
    at(details, "cache_creation"),
  );
  const total = first(at(used, "inputTokens"), at(used, "input_tokens"), at(used, "prompt_tokens"));
  const isBeside = beside.some((count) => typeof count === "number");
  const found = {
    inputTokens: isBeside ? total : Math.max(total - read - wrote, 0),
    outputTokens: first(at(used, "outputTokens"), at(used, "output_tokens"), at(used, "completion_tokens")),
    cacheReadTokens: read,
    cacheWriteTokens: wrote,
  };
  if (TOKENS.every((name) => found[name] === 0)) return undefined;
  return { model: modelOf(response) || model, ...found };
}

function modelOf(response: unknown): string {
  const told = at(response, "response_metadata");
  const inner = at(response, "response");
  const found = [at(told, "model_name"), at(told, "model"), at(inner, "modelId"), at(response, "model")];
  return found.find((name): name is string => typeof name === "string" && name !== "") ?? "";
}

function at(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

/** The first that is a count and not 0. */
function first(...counts: unknown[]): number {
  return counts.find((n): n is number => Number.isSafeInteger(n) && (n as number) > 0) ?? 0;
}

/**
 * Has a gate book the cost of the model's tokens: `client.gate(id, { usage: priced(rows) })`. Of the rows of a model
 * the latest that is valid today (UTC) counts; a model without one is booked without a cost. A cost that is known stays.
 *
 * @throws TypeError naming the field of a row that makes no sense.
 */
export function priced(prices: Iterable<Price>): OnUsage {
  const rows = [...prices].map(checked);
  return (used) => {
    const today = new Date().toISOString().slice(0, 10);
    const valid = rows.filter(({ model, from }) => model === used.model && from <= today);
    if (used.costMicros || valid.length === 0) return used;
    const { usd } = valid.reduce((latest, row) => (row.from >= latest.from ? row : latest));
    // US dollars per million tokens are millionths of a US dollar per token.
    const micros = TOKENS.reduce((whole, name) => whole + usd[name] * Number(used[name] ?? 0), 0);
    return { ...used, costMicros: Math.ceil(Number(micros.toFixed(6))) };
  };
}

function checked(row: Price, n: number) {
  const { model, valid_from = "" } = row;
  if (typeof model !== "string" || !model) throw new TypeError(`prices[${n}].model: ${shown(model)} is no name`);
  const from = valid_from instanceof Date ? valid_from.toISOString().slice(0, 10) : valid_from;
  if (!/^(\d{4}-\d\d-\d\d)?$/.test(from)) {
    throw new TypeError(`prices[${n}].valid_from: ${shown(valid_from)} is no day such as 2026-01-31`);
  }
  const usdOf = (name: (typeof TOKENS)[number]) => {
    const kind = KINDS[name];
    const usd = row[kind] ?? (kind.startsWith("cache") ? row.input : undefined);
    if (typeof usd === "number" && usd >= 0 && usd < Number.POSITIVE_INFINITY) return usd;
    throw new TypeError(`prices[${n}].${kind}: ${shown(usd)} is no number of US dollars per million tokens`);
  };
  const usd = Object.fromEntries(TOKENS.map((name) => [name, usdOf(name)])) as Record<(typeof TOKENS)[number], number>;
  return { model, from, usd };
}

/** What is booked of a usage. What the callback throws is logged, and the tokens are booked: they are used. */
export function booked(used: ModelUsage, onUsage: OnUsage | undefined, log: (line: string) => void): Usage | undefined {
  const usage = usageMessage(used);
  if (!onUsage) return usage;
  const counts = Object.fromEntries(COUNTS.map((name) => [name, Number(usage[name])]));
  try {
    const given = onUsage({ model: usage.model, ...counts });
    return given && usageMessage(given);
  } catch (error) {
    log(`callgate: the callback usage failed, and tokens are booked without a cost: ${error}`);
    return usage;
  }
}

/** @throws TypeError naming the member that is no count. */
export function usageMessage(given: ModelUsage): Usage {
  const usage = create(UsageSchema);
  for (const name of COUNTS) {
    const count = given[name];
    if (count === undefined) continue;
    if ((typeof count !== "bigint" && !Number.isSafeInteger(count)) || count < 0) {
      throw new TypeError(`usage.${name}: ${shown(count)} is no whole number from 0 on`);
    }
    usage[name] = BigInt(count);
  }
  const { model = "" } = given;
  if (typeof model !== "string") throw new TypeError(`usage.model: ${shown(model)} is no text`);
  usage.model = cut(model);
  return usage;
}

/** A name that is too long would have the server refuse the call itself. */
function cut(model: string): string {
  const bytes = new TextEncoder().encode(model);
  if (bytes.length <= MODEL_BYTES_MAX) return model;
  return new TextDecoder().decode(bytes.subarray(0, MODEL_BYTES_MAX), { stream: true });
}

/** All as one; of several models none is named, since no price would fit. Undefined: nothing was used. */
export function sum(usages: readonly (Usage | undefined)[]): Usage | undefined {
  const used = usages.filter((one) => one !== undefined).filter((one) => COUNTS.some((name) => one[name] > 0n));
  const [one, ...more] = used;
  if (!one || more.length === 0) return one;
  const whole = create(UsageSchema, { model: more.every(({ model }) => model === one.model) ? one.model : "" });
  for (const name of COUNTS) whole[name] = used.reduce((total, each) => total + each[name], 0n);
  return whole;
}

/** Usage that no call has booked yet, by session; of too many sessions the oldest is forgotten. */
export class PendingUsage {
  readonly #kept = new Map<string, Usage>();

  add(sessionId: string, usage: Usage | undefined): void {
    const whole = sum([this.take(sessionId), usage]);
    if (whole) this.#kept.set(sessionId, whole);
    for (const oldest of this.#kept.keys()) if (this.#kept.size > SESSIONS_MAX) this.#kept.delete(oldest);
  }

  take(sessionId: string): Usage | undefined {
    const usage = this.#kept.get(sessionId);
    this.#kept.delete(sessionId);
    return usage;
  }
}
