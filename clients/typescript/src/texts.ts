/** What a model is told where the plane's own words are not at hand, and hints put beside its words. */

import { Code } from "@connectrpc/connect";

export const UNAVAILABLE = "callgate_unavailable";
export const FULL = "the outcomes of too many earlier calls wait to be stored";

/** Each hint once, and none that the text has already. */
export function hintOf(text: string, ...hints: (string | undefined)[]): string {
  // The plane's JSON leaves characters as they are, and so does this: what it holds already is found again.
  return [...new Set(hints)].filter((hint) => hint && !text.includes(JSON.stringify(hint).slice(1, -1))).join(" ");
}

/** The JSON object with the hint as its member `warning`, put in as text, so that results stay byte for byte. */
export function withWarning(json: string, hint: string): string {
  return withMember(json, "warning", hint);
}

/** The same with a member of any name; empty: as it is. */
export function withMember(json: string, name: string, text: string): string {
  if (!text) return json;
  return `${json.slice(0, -1)}${json === "{}" ? "" : ","}"${name}":${JSON.stringify(text)}}`;
}

/** What a person approved instead of the model's own arguments. */
export function edited(json: string): string {
  return `A person approved this call with other arguments instead of yours, which did not run: ${json}.`;
}

/** The previous result of a repetition; undefined where it is not whole in the text. */
export function previousOf(json: string): { value: unknown } | undefined {
  const told = JSON.parse(json) as { previous_result?: unknown; previous_result_truncated?: boolean };
  if (!("previous_result" in told) || told.previous_result_truncated) return undefined;
  return { value: told.previous_result };
}

/** The text with the hint after it. */
export function withHint(text: string, hint: string): string {
  return [text, hint].filter(Boolean).join("\n\n");
}

/** As the contract writes it: `DEADLINE_EXCEEDED`. */
export function codeName(code: Code): string {
  return (Code[code] ?? "").replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}

/** For a call that was not run since nobody could be asked. */
export function unavailable(tool: string, why: string): string {
  const next = "Go on without this call, or tell the user that it was not made.";
  const what = `${tool} was not run, and nothing was done: the service that decides whether tool calls may run gives`;
  return refusal(`${what} no answer now (${why}). ${next}`, next);
}

/** For a call that has run already, of which the plane has not heard yet. */
export function unreported(tool: string): string {
  const next = "Do not repeat it: go on without its result, or tell the user.";
  const what = `${tool} was not run again: this call has run before, and the service that keeps its result gives`;
  return refusal(`${what} no answer now. ${next}`, next);
}

/** For a call that failed, while nobody could be told. */
export function failed(message: string): string {
  return JSON.stringify({ status: "error", error_message: message });
}

function refusal(message: string, next: string): string {
  return JSON.stringify({ status: UNAVAILABLE, message, retryable: false, next_action_hint: next });
}
