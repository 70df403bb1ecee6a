// A scripted model behind the HTTP interfaces of OpenAI (chat completions and responses) and Anthropic (messages).
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/** A call that the model proposes in a turn of its own; after the last it says "done". */
export interface Proposal {
  tool: string;
  args: unknown;
}

export interface Model {
  url: string;
  /** What the model was told of its calls, in order, in the last request. */
  told: string[];
  /** How many tools the model was offered, request by request. */
  offered: number[];
  /** The tools as the last request had them. */
  tools: any[];
  stop(): Promise<void>;
}

/** Serves the model on a port of its own. In chat completions its ids begin anew with each turn, unless it has others. */
export async function model(turns: readonly Proposal[], tokens = 1, newId = () => "call_0"): Promise<Model> {
  const stop = () => new Promise<void>((resolve) => server.close(() => resolve()));
  const served: Model = { url: "", told: [], offered: [], tools: [], stop };
  const server = createServer(async (request, response) => {
    const asked = JSON.parse(await text(request));
    const name = request.url?.split("/").at(-1) ?? "";
    served.told = (FORMATS[name] ?? assert.fail(`${request.url} is not served`)).told(asked);
    served.tools = asked.tools ?? [];
    served.offered.push(asked.tool_choice?.type === "none" ? 0 : (asked.tools ?? []).length);
    const format = FORMATS[name]!;
    const made = {
      id: `made_${randomUUID()}`,
      model: "scripted",
      ...format.answer(turns[served.told.length], tokens, newId()),
    };
    response.setHeader("content-type", asked.stream ? "text/event-stream" : "application/json");
    response.end(asked.stream ? events(format.chunks(made)) : JSON.stringify(made));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  served.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return served;
}

interface Format {
  /** What a request tells the model of its calls. */
  told: (request: any) => string[];
  /** The model's turn: its call, or that it is done. */
  answer: (call: Proposal | undefined, tokens: number, id: string) => object;
  /** The same as it is streamed. */
  chunks: (made: any) => any[];
}

/** Chunks as server-sent events. */
function events(chunks: any[]): string {
  const parts = chunks.map(
    (chunk) => `${chunk.type ? `event: ${chunk.type}\n` : ""}data: ${JSON.stringify(chunk)}\n\n`,
  );
  return `${parts.join("")}${chunks[0].type ? "" : "data: [DONE]\n\n"}`;
}

const FORMATS: Record<string, Format> = {
  completions: {
    told: ({ messages }) => messages.filter(({ role }: any) => role === "tool").map(({ content }: any) => content),
    answer: (call, tokens, id) => {
      const made = call && { name: call.tool, arguments: JSON.stringify(call.args) };
      const spoken = made ? { tool_calls: [{ id, type: "function", function: made }] } : { content: "done" };
      const message = { role: "assistant", content: null, ...spoken };
      const details = { cached_tokens: tokens - 1 };
      const usage = { prompt_tokens: tokens, completion_tokens: 1, prompt_tokens_details: details };
      const choice = { index: 0, message, finish_reason: made ? "tool_calls" : "stop" };
      return { object: "chat.completion", created: 0, choices: [choice], usage };
    },
    chunks: ({ choices: [{ message, finish_reason }], usage, ...made }) => {
      const head = { ...made, object: "chat.completion.chunk" };
      const tool_calls = message.tool_calls?.map((call: object, index: number) => ({ ...call, index }));
      const delta = { ...message, ...(tool_calls && { tool_calls }) };
      const parts = [
        { delta, finish_reason: null },
        { delta: {}, finish_reason },
      ];
      return [...parts.map((part) => ({ ...head, choices: [{ index: 0, ...part }] })), { ...head, choices: [], usage }];
    },
  },
  responses: {
    told: ({ input }) =>
      input.filter(({ type }: any) => type === "function_call_output").map(({ output }: any) => output),
    answer: (call, tokens) => {
      const content = [{ type: "output_text", text: "done", annotations: [] }];
      const item = call
        ? {
            type: "function_call",
            id: "fc_0",
            call_id: `call_${randomUUID()}`,
            name: call.tool,
            arguments: JSON.stringify(call.args),
          }
        : { type: "message", id: "msg_0", role: "assistant", content };
      const details = { cached_tokens: tokens - 1 };
      const usage = { input_tokens: tokens, output_tokens: 1, input_tokens_details: details };
      return {
        object: "response",
        created_at: 0,
        status: "completed",
        output: [{ status: "completed", ...item }],
        usage,
      };
    },
    chunks: ({ output, ...made }) => {
      const begun = { type: "response.created", response: { ...made, output: [] } };
      const items = output.map((item: object, output_index: number) => {
        return { type: "response.output_item.added", output_index, item };
      });
      const chunks = [begun, ...items, { type: "response.completed", response: { ...made, output } }];
      return chunks.map((chunk, sequence_number) => ({ ...chunk, sequence_number }));
    },
  },
  messages: {
    told: ({ messages }) =>
      messages
        .flatMap(({ content }: any) => (Array.isArray(content) ? content : []))
        .filter(({ type }: any) => type === "tool_result")
        .map(({ content }: any) => content),
    answer: (call, tokens) => {
      const spoken = { type: "text", text: "done" };
      const block = call
        ? { type: "tool_use", id: `toolu_${randomUUID()}`, name: call.tool, input: call.args }
        : spoken;
      const usage = { input_tokens: 1, output_tokens: 1, cache_read_input_tokens: tokens - 1 };
      const stop_reason = call ? "tool_use" : "end_turn";
      return { type: "message", role: "assistant", content: [block], stop_reason, usage };
    },
    chunks: ({ content, stop_reason, usage, ...made }) => {
      const blocks = content.flatMap((block: any, index: number) => {
        const isText = block.type === "text";
        const partial_json = JSON.stringify(block.input);
        const delta = isText ? { type: "text_delta", text: block.text } : { type: "input_json_delta", partial_json };
        return [
          {
            type: "content_block_start",
            index,
            content_block: isText ? { ...block, text: "" } : { ...block, input: {} },
          },
          { type: "content_block_delta", index, delta },
          { type: "content_block_stop", index },
        ];
      });
      return [
        { type: "message_start", message: { ...made, content: [], stop_reason: null, usage } },
        ...blocks,
        { type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage },
        { type: "message_stop" },
      ];
    },
  },
};
