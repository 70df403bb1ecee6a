// A model that says what a script says, in the dialects of three vendors: `node model.mjs SCRIPT LOG`.
//
// SCRIPT is a JSON list of turns, {"say": TEXT} or {"call": TOOL, "with": ARGUMENTS}; past its end it says "Done.". What
// it is sent goes to LOG, a JSON document a line. It writes its port when it listens.

import { createServer } from "node:http";
import { appendFileSync, readFileSync } from "node:fs";

const [script, log] = process.argv.slice(2);
const turns = JSON.parse(readFileSync(script, "utf8"));
// Ids are unique in a conversation, which goes on in the next program.
const own = process.pid;
let told = 0;

/** The next turn, for requests of an agent; what hosts ask beside (titles, summaries of paths) has no tools. */
function turn(request) {
  const isAgent = (request.tools ?? []).length > 0;
  return (isAgent && turns[told++]) || { say: "Done." };
}

/** Anthropic's Messages. */
function messages(request) {
  const { say, call, with: input, tokens = 10 } = turn(request);
  const usage = { input_tokens: tokens, output_tokens: 1 };
  const message = { id: `msg_${own}_${told}`, type: "message", role: "assistant", model: request.model, content: [], usage };
  const block = call ? { type: "tool_use", id: `toolu_${own}_${told}`, name: call, input: {} } : { type: "text", text: "" };
  const delta = call
    ? { type: "input_json_delta", partial_json: JSON.stringify(input) }
    : { type: "text_delta", text: say };
  const reason = call ? "tool_use" : "end_turn";
  if (!request.stream) {
    const content = call ? { ...block, input } : { ...block, text: say };
    return { ...message, content: [content], stop_reason: reason };
  }
  return [
    { type: "message_start", message },
    { type: "content_block_start", index: 0, content_block: block },
    { type: "content_block_delta", index: 0, delta },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: reason, stop_sequence: null }, usage },
    { type: "message_stop" },
  ];
}

/** OpenAI's Responses. */
function responses(request) {
  const { say, call, with: input, tokens = 10 } = turn(request);
  // A tool of an MCP server stands in a name space.
  const [, namespace, name] = /^(mcp__.+)__(.+)$/.exec(call ?? "") ?? [];
  const item = call
    ? { type: "function_call", id: `fc_${own}_${told}`, call_id: `call_${own}_${told}`, namespace, name: name ?? call,
        arguments: JSON.stringify(input) }
    : { type: "message", id: `msg_${own}_${told}`, role: "assistant", content: [{ type: "output_text", text: say }] };
  const id = `resp_${own}_${told}`;
  const usage = { input_tokens: tokens, output_tokens: 1, total_tokens: tokens + 1 };
  return [
    { type: "response.created", response: { id } },
    { type: "response.output_item.done", output_index: 0, item },
    { type: "response.completed", response: { id, usage } },
  ];
}

/** Google's streamGenerateContent. */
function contents(request) {
  const { say, call, with: args, tokens = 10 } = turn(request);
  const part = call ? { functionCall: { name: call, args } } : { text: say };
  const candidate = { index: 0, content: { role: "model", parts: [part] }, finishReason: "STOP" };
  const usageMetadata = { promptTokenCount: tokens, candidatesTokenCount: 1, totalTokenCount: tokens + 1 };
  return [{ candidates: [candidate], usageMetadata }];
}

const dialects = [
  [/\/messages\/count_tokens/, () => ({ input_tokens: 10 })],
  [/\/messages/, messages],
  [/\/responses/, responses],
  [/:streamGenerateContent/, contents],
  [/:generateContent/, (request) => contents(request)[0]],
  [/:countTokens/, () => ({ totalTokens: 10 })],
];

const server = createServer(async (asked, answer) => {
  const parts = [];
  for await (const part of asked) parts.push(part);
  const text = Buffer.concat(parts).toString();
  const [, dialect] = dialects.find(([path]) => asked.method === "POST" && path.test(asked.url)) ?? [];
  if (!dialect) return answer.writeHead(404, { "content-type": "application/json" }).end("{}");
  const request = JSON.parse(text || "{}");
  appendFileSync(log, JSON.stringify({ url: asked.url, ...request }) + "\n");
  const said = dialect(request);
  if (!Array.isArray(said)) return answer.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(said));
  answer.writeHead(200, { "content-type": "text/event-stream" });
  for (const event of said) answer.write(`${event.type ? `event: ${event.type}\n` : ""}data: ${JSON.stringify(event)}\n\n`);
  answer.end();
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
