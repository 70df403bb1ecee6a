/** The values of executions, for repetitions of them in the same process. */
import { asJson, readJson } from "./values.js";

const VALUES_MAX = 256;
/** Of the texts, in characters. */
const TEXTS_MAX = 16 * 1024 * 1024;

interface First {
  /** As the value was recorded. */
  text: string;
  /** A new copy of plain data, since callers may change what they get; else the value itself, if it is unchanged. */
  get: () => { value: unknown } | undefined;
}

/** The last values, by the fingerprints of their calls. */
export class FirstValues {
  readonly #kept = new Map<string, First>();
  #size = 0;

  keep(fingerprint: string, text: string, value: unknown): void {
    if (!fingerprint) return;
    this.#drop(fingerprint);
    // A text of its own tells nothing of a change.
    const isTold = typeof value === "object" && asJson(value) === text;
    const copied = () => ({ value: JSON.parse(text) as unknown });
    const itself = () => (isTold && asJson(value) !== text ? undefined : { value });
    this.#kept.set(fingerprint, { text, get: isTold && isPlain(value) ? copied : itself });
    this.#size += text.length;
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size > VALUES_MAX || this.#size > TEXTS_MAX) this.#drop(oldest);
    }
  }

  /** The value whose text a repetition is answered with; undefined where it is of another execution, or not here. */
  of(fingerprint: string, previous: unknown): { value: unknown } | undefined {
    const first = this.#kept.get(fingerprint);
    if (!first || asJson(previous) !== asJson(readAny(first.text))) return undefined;
    return first.get();
  }

  #drop(fingerprint: string): void {
    this.#size -= this.#kept.get(fingerprint)?.text.length ?? 0;
    this.#kept.delete(fingerprint);
  }
}

/** JSON as it says, other text as it is. */
function readAny(text: string): unknown {
  try {
    return readJson(text);
  } catch {
    return text;
  }
}

/** Whether JSON has words for all of it. */
function isPlain(value: unknown, depth = 0): boolean {
  if (typeof value !== "object" || value === null) {
    return value === null || ["string", "boolean"].includes(typeof value) || Number.isFinite(value);
  }
  if (depth > 64 || "toJSON" in value) return false;
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null && prototype !== Array.prototype) return false;
  return Object.values(value).every((member) => member === undefined || isPlain(member, depth + 1));
}
