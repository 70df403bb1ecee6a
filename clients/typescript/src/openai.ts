/**
 * OpenAI's Chat Completions and Responses in a loop of one's own: the model's open calls, run behind a gate.
 *
 * ```ts
 * messages.push(completion.choices[0].message);
 * messages.push(...(await toolMessages(toolbox, messages, completion)));
 * ```
 *
 * It takes what the package `openai` gives and takes, in any version, and whatever else speaks these APIs.
 *
 * @module
 */
import type { Toolbox } from "./index.js";
import { answer } from "./loops.js";

/** A message of a conversation, as far as it is read here. */
export interface Message {
  role: string;
  tool_calls?: readonly { id: string; type: string; function?: { name: string; arguments: string } }[] | null;
}

/** The message that answers a call. */
export interface ToolMessage {
  role: "tool";
  tool_call_id: string;
  content: string;
}

/**
 * Chat Completions: runs the calls of the model's last message, and gives the messages that answer them.
 *
 * The calls are judged together and executed at once. The number of the model's message goes before their ids, which
 * some servers begin anew with each message: a program that begins again with the messages that it has stored runs no
 * call twice; it calls `toolbox.schemas` first.
 *
 * @param messages - The conversation, with the model's last message at its end.
 * @param response - What the API returned, or else what has its `usage` and `model`: they are booked with these calls,
 * or where there are none with the next ones.
 * @returns One message a call, to append; none where the last message has no calls of functions.
 * @throws {@link CallgateError} As of {@link Gate.run}; {@link RunEnded} where `toolbox.toolsDisabled` was true before.
 */
export async function toolMessages(
  toolbox: Toolbox,
  messages: readonly object[],
  response?: object,
): Promise<ToolMessage[]> {
  const said = messages as readonly Message[];
  const turn = `turn-${said.filter(({ role }) => role === "assistant").length}`;
  const asked = said.at(-1)?.tool_calls ?? [];
  const calls = asked.flatMap(({ id, function: called }) => (called ? [{ id, ...called }] : []));
  const made = calls.map(({ id, name, arguments: args }) => toolbox.call(name, args, { callId: id, turn }));
  return answer(toolbox, made, response, (outcomes) =>
    outcomes.map(({ text: content }, n) => ({ role: "tool", tool_call_id: calls[n]?.id ?? "", content })),
  );
}

/** The item that answers a call. */
export interface FunctionOutput {
  type: "function_call_output";
  call_id: string;
  output: string;
}

interface FunctionCall {
  type: "function_call";
  call_id: string;
  name: string;
  arguments: string;
}

/**
 * Responses: runs the function calls that have no output yet, and gives their outputs. As {@link toolMessages}; the ids
 * are the model's own.
 *
 * @param items - The conversation with `response.output` at its end, or that alone.
 * @param response - As of {@link toolMessages}.
 * @returns One output a call, to append (or to send, with `previous_response_id`); none where no call is open.
 * @throws {@link CallgateError} and {@link RunEnded} as of {@link toolMessages}.
 */
export async function toolOutputs(
  toolbox: Toolbox,
  items: readonly object[],
  response?: object,
): Promise<FunctionOutput[]> {
  const given = items as readonly (FunctionCall | FunctionOutput)[];
  const answered = new Set(given.flatMap((item) => (item.type === "function_call_output" ? [item.call_id] : [])));
  const calls = given.filter((item) => item.type === "function_call").filter(({ call_id }) => !answered.has(call_id));
  const made = calls.map(({ call_id: callId, name, arguments: args }) => toolbox.call(name, args, { callId }));
  return answer(toolbox, made, response, (outcomes) =>
    outcomes.map(({ text: output }, n) => ({
      type: "function_call_output",
      call_id: calls[n]?.call_id ?? "",
      output,
    })),
  );
}
