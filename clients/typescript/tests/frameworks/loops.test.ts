// Plain loops over the APIs of OpenAI and Anthropic, with their own packages and a scripted model, against the real
// server.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import type { Toolbox } from "@callgate/client";
import { toolMessages as answered } from "@callgate/client/anthropic";
import { toolMessages, toolOutputs } from "@callgate/client/openai";
import { BudgetDimension } from "@callgate/client/v1";
import OpenAI from "openai";

import { Stage } from "../stage.js";
import { model } from "./model.js";
import { person } from "./people.js";
import { answer, check, LETTER, POLICY, Shop, turnsOf } from "./story.js";

const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();
const STORY = "an agent is refused, waits, asks a person, retries on advice, and finishes";

/** Plays the story by a loop, which is given where the model is. */
async function played(order: string, loop: (url: string, toolbox: Toolbox) => Promise<unknown>): Promise<void> {
  const shop = new Shop();
  const scripted = await model(turnsOf(order));
  after(() => scripted.stop());
  const leave = person(client, order, ({ amount }) => answer(amount));
  assert.equal(await loop(scripted.url, client.gate(order).wrap(shop.tools)).finally(leave), "done");
  check(order, shop, scripted.told);
}

test(`OpenAI's chat completions: ${STORY}`, () =>
  played("o-1", async (url, toolbox) => {
    const openai = new OpenAI({ baseURL: url, apiKey: "none" });
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Go." }];
    for (let answers: OpenAI.ChatCompletionMessageParam[] = messages; answers.length > 0; messages.push(...answers)) {
      const { choices } = await openai.chat.completions.create({ model: "scripted", messages });
      messages.push(choices[0]!.message);
      answers = await toolMessages(toolbox, messages);
    }
    return messages.at(-1)?.content;
  }));

test(`OpenAI's responses: ${STORY}`, () =>
  played("o-2", async (url, toolbox) => {
    const openai = new OpenAI({ baseURL: url, apiKey: "none" });
    const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: "Go." }];
    for (;;) {
      const { output, output_text } = await openai.responses.create({ model: "scripted", input });
      input.push(...(output as OpenAI.Responses.ResponseInputItem[]));
      const outputs = await toolOutputs(toolbox, input);
      if (outputs.length === 0) return output_text;
      input.push(...outputs);
    }
  }));

test(`Anthropic's messages: ${STORY}`, () =>
  played("o-3", async (url, toolbox) => {
    const anthropic = new Anthropic({ baseURL: url, apiKey: "none" });
    const messages: Anthropic.MessageParam[] = [{ role: "user", content: "Go." }];
    for (;;) {
      const { content } = await anthropic.messages.create({ model: "scripted", max_tokens: 9, messages });
      messages.push({ role: "assistant", content });
      const answers = await answered(toolbox, messages);
      if (answers.length === 0) return content.map((block) => (block.type === "text" ? block.text : "")).join("");
      messages.push(...answers);
    }
  }));

test(`OpenAI's chat completions, streamed: ${STORY}`, () =>
  played("o-4", async (url, toolbox) => {
    const openai = new OpenAI({ baseURL: url, apiKey: "none" });
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Go." }];
    for (;;) {
      const stream_options = { include_usage: true };
      const completion = await openai.chat.completions
        .stream({ model: "scripted", messages, stream_options })
        .finalChatCompletion();
      messages.push(completion.choices[0]!.message);
      const answers = await toolMessages(toolbox, messages, completion);
      if (answers.length === 0) return messages.at(-1)?.content;
      messages.push(...answers);
    }
  }));

test(`OpenAI's responses, streamed: ${STORY}`, () =>
  played("o-5", async (url, toolbox) => {
    const openai = new OpenAI({ baseURL: url, apiKey: "none" });
    const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: "Go." }];
    for (;;) {
      const response = await openai.responses.stream({ model: "scripted", input }).finalResponse();
      input.push(...(response.output as OpenAI.Responses.ResponseInputItem[]));
      const outputs = await toolOutputs(toolbox, input, response);
      if (outputs.length === 0) return "done";
      input.push(...outputs);
    }
  }));

test(`Anthropic's messages, streamed: ${STORY}`, () =>
  played("o-6", async (url, toolbox) => {
    const anthropic = new Anthropic({ baseURL: url, apiKey: "none" });
    const messages: Anthropic.MessageParam[] = [{ role: "user", content: "Go." }];
    for (;;) {
      const reply = await anthropic.messages.stream({ model: "scripted", max_tokens: 9, messages }).finalMessage();
      messages.push({ role: "assistant", content: reply.content });
      const answers = await answered(toolbox, messages, reply);
      if (answers.length === 0) return reply.content.map((block) => (block.type === "text" ? block.text : "")).join("");
      messages.push(...answers);
    }
  }));

test("Anthropic's calls of one turn are judged together, and answered in one message", async () => {
  const sent: unknown[] = [];
  const toolbox = client.gate("loops-parallel").wrap({ get_order: (args: unknown) => sent.push(args) });
  const use = (id: string) => ({ type: "tool_use", id, name: "get_order", input: { order_id: id } });
  const usage = { input_tokens: 90, output_tokens: 10 };
  const content = ["p-1", "p-2", "p-1"].map((id, n) => ({ ...use(id), id: `toolu_${n}` }));
  const messages = [{ role: "assistant", content }];
  const [message, ...none] = await answered(toolbox, messages, { model: "scripted", content, usage });
  assert.equal(none.length, 0);
  assert.deepEqual(
    message!.content.map(({ tool_use_id }) => tool_use_id),
    ["toolu_0", "toolu_1", "toolu_2"],
  );
  assert.deepEqual(sent.length, 2, "the third is the first");
  const { budgets } = await toolbox.gate.state();
  assert.equal(budgets.find(({ dimension }) => dimension === BudgetDimension.TOKENS)?.used, 100n);
});

test("calls of one turn are answered in order, and a conversation that begins again runs none twice", async () => {
  const sent: unknown[] = [];
  const toolbox = client.gate("loops-again").wrap({ send_letter: (args: unknown) => sent.push(args) });
  const parameters = { type: "object", properties: { to: { type: "string" } } };
  await toolbox.schemas([{ type: "function", function: { name: "send_letter", parameters } }]);
  const call = (id: string, args: string) => ({
    id,
    type: "function" as const,
    function: { name: LETTER.tool, arguments: args },
  });
  const good = JSON.stringify(LETTER.args);
  const messages = [{ role: "assistant", tool_calls: [call("call_0", '{"to":'), call("call_1", good)] }];
  const first = await toolMessages(toolbox, messages);
  assert.deepEqual(
    first.map(({ tool_call_id }) => tool_call_id),
    ["call_0", "call_1"],
  );
  assert.match(first[0]!.content, /validation_error/);
  assert.match(first[1]!.content, /"status":"success"/);
  const again = await toolMessages(toolbox, messages);
  assert.match(again[1]!.content, /duplicate_call_blocked/);
  assert.deepEqual(sent, [{ to: "ada" }]);
  assert.deepEqual(await toolMessages(toolbox, [...messages, ...first]), []);
});
