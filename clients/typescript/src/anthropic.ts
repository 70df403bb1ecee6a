/**
 * Anthropic's Messages API in a loop of one's own: the calls of the model's last message, run behind a gate.
 *
 * ```ts
 * messages.push({ role: "assistant", content: reply.content });
 * messages.push(...(await toolMessages(toolbox, messages, reply)));
 * ```
 *
 * It takes what the package `@anthropic-ai/sdk` gives and takes, in any version.
 *
 * @module
 */
import type { Toolbox } from "./index.js";
import { answer } from "./loops.js";

/** The message that answers a message's calls. */
export interface ResultMessage {
  role: "user";
  content: ToolResult[];
}

/** The block that answers a call. */
export interface ToolResult {
  type: "tool_result";
  tool_use_id: string;
  content: string;
  is_error: boolean;
}

interface ToolUse {
  type: "tool_use";
  id: string;
  name: string;
  input: object;
}

/**
 * Runs the calls of the model's last message, and gives the message that answers them.
 *
 * The calls are judged together, executed at once, and answered in one message of the user, as the API wants it. The
 * ids are the model's own, so a program that begins again with the messages that it has stored runs no call twice; it
 * calls
 * `toolbox.schemas` first. Tools that Anthropic itself runs are left alone.
 *
 * @param messages - The conversation, with the model's last message at its end.
 * @param response - What the API returned, or else what has its `usage` and `model`: they are booked with these calls,
 * or where there are none with the next ones.
 * @returns One message to append; none where the last message has no calls.
 * @throws {@link CallgateError} As of {@link Gate.run}; {@link RunEnded} where `toolbox.toolsDisabled` was true before.
 */
export async function toolMessages(
  toolbox: Toolbox,
  messages: readonly object[],
  response?: object,
): Promise<ResultMessage[]> {
  const { role, content } = (messages.at(-1) ?? {}) as { role?: string; content?: string | readonly ToolUse[] };
  const blocks = role === "assistant" && Array.isArray(content) ? (content as readonly ToolUse[]) : [];
  const uses = blocks.filter(({ type }) => type === "tool_use");
  const calls = uses.map(({ id, name, input }) => toolbox.call(name, input, { callId: id }));
  return answer(toolbox, calls, response, (outcomes) => {
    const results = outcomes.map(({ text, isError }, n) => ({
      type: "tool_result" as const,
      tool_use_id: uses[n]?.id ?? "",
      content: text,
      is_error: isError,
    }));
    return [{ role: "user", content: results }];
  });
}
