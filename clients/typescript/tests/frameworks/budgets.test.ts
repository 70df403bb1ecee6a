// A model that goes on for ever, with the frameworks' own objects of its usage: its budget ends the run, by a table of
// prices or without one by tokens. Against the real server.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { type Gate, type OnUsage, type Price, priced, RunEnded, type Toolbox } from "@callgate/client";
import { gateLoop } from "@callgate/client/ai-sdk";
import { toolMessages as answered } from "@callgate/client/anthropic";
import { callgateMiddleware } from "@callgate/client/langchain";
import { toolMessages, toolOutputs } from "@callgate/client/openai";
import { BudgetDimension, BudgetScope } from "@callgate/client/v1";
import { MemorySaver } from "@langchain/langgraph";
import { ChatOpenAI } from "@langchain/openai";
import { tool as aiTool, generateText, streamText, ToolLoopAgent } from "ai";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import { createAgent, tool } from "langchain";
import OpenAI from "openai";
import { z } from "zod";

import { Stage } from "../stage.js";
import { model } from "./model.js";

const POLICY = `
policy_engine:
  unknown_tools: allow
  budgets:
    run: {max_total_cost_usd: 10, max_tokens: 45000}
  tool_schemas:
    get_order: {effect: read}
`;
const TOKENS = 10_000;
// Each answer of the model costs 4 dollars and a bit: 9,999 tokens of the cache, one read and one written.
const PRICES: Price[] = [
  { model: "scripted", valid_from: "2020-01-01", input: 1, output: 1, cache_read: 1 },
  { model: "scripted", valid_from: "2024-01-01", input: 400, output: 400, cache_read: 400 },
  { model: "scripted", valid_from: "2999-01-01", input: 0, output: 0 },
];
const TURNS = Array.from({ length: 12 }, (_, n) => ({ tool: "get_order", args: { order_id: `o-${n}` } }));
const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();

/** What came of a run. */
interface Played {
  /** How many tools the model was offered, request by request. */
  offered: number[];
}

type Player = (gate: Gate, execute: (args: { order_id: string }) => object, usage?: OnUsage) => Promise<Played>;

/** A loop that ends as the client ends it. */
async function looped(url: string, gate: Gate, execute: any, loop: (url: string, toolbox: Toolbox) => Promise<void>) {
  await assert.rejects(loop(url, gate.wrap({ get_order: execute })), (error: RunEnded) => {
    assert(error instanceof RunEnded);
    assert.equal(error.outcomes[0]!.reason, "budget_exceeded");
    assert.equal(error.messages.length, 1);
    return true;
  });
}

const parameters = { type: "object" as const, properties: { order_id: { type: "string" } } };

const chat: Player = async (gate, execute) => {
  const { url, offered, stop } = await model(TURNS, TOKENS);
  after(stop);
  const openai = new OpenAI({ baseURL: url, apiKey: "none" });
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Go." }];
  await looped(url, gate, execute, async (_url, toolbox) => {
    const tools = [{ type: "function" as const, function: { name: "get_order", parameters } }];
    for (let turn = 0; turn < TURNS.length; turn++) {
      const asked = { model: "scripted", messages, ...(toolbox.toolsDisabled ? {} : { tools }) };
      const completion = await openai.chat.completions.create(asked);
      messages.push(completion.choices[0]!.message);
      messages.push(...(await toolMessages(toolbox, messages, completion)));
    }
  });
  return { offered };
};

const responses: Player = async (gate, execute) => {
  const { url, offered, stop } = await model(TURNS, TOKENS);
  after(stop);
  const openai = new OpenAI({ baseURL: url, apiKey: "none" });
  const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: "Go." }];
  await looped(url, gate, execute, async (_url, toolbox) => {
    const tools = [{ type: "function" as const, name: "get_order", parameters, strict: false }];
    for (let turn = 0; turn < TURNS.length; turn++) {
      const asked = { model: "scripted", input, ...(toolbox.toolsDisabled ? {} : { tools }) };
      const response = await openai.responses.create(asked);
      input.push(...(response.output as OpenAI.Responses.ResponseInputItem[]));
      input.push(...(await toolOutputs(toolbox, input, response)));
    }
  });
  return { offered };
};

const anthropic: Player = async (gate, execute) => {
  const { url, offered, stop } = await model(TURNS, TOKENS);
  after(stop);
  const sdk = new Anthropic({ baseURL: url, apiKey: "none" });
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: "Go." }];
  await looped(url, gate, execute, async (_url, toolbox) => {
    const tools = [{ name: "get_order", input_schema: parameters }];
    for (let turn = 0; turn < TURNS.length; turn++) {
      const tool_choice = { type: toolbox.toolsDisabled ? ("none" as const) : ("auto" as const) };
      const reply = await sdk.messages.create({ model: "scripted", max_tokens: 9, messages, tools, tool_choice });
      messages.push({ role: "assistant", content: reply.content });
      messages.push(...(await answered(toolbox, messages, reply)));
    }
  });
  return { offered };
};

/** A model of the AI SDK that goes on for ever. */
function endless() {
  const offered: number[] = [];
  const usage = {
    inputTokens: { total: TOKENS, noCache: 1, cacheRead: TOKENS - 1, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  const next = (asked: { tools?: unknown[] }) => {
    const { args } = TURNS[offered.push(asked.tools?.length ?? 0) - 1]!;
    const call = {
      type: "tool-call" as const,
      toolCallId: "call_0",
      toolName: "get_order",
      input: JSON.stringify(args),
    };
    return { call, end: { finishReason: { unified: "tool-calls" as const, raw: undefined }, usage } };
  };
  const made = new MockLanguageModelV3({
    modelId: "scripted",
    doGenerate: async (asked) => {
      const { call, end } = next(asked);
      return { content: [call], ...end, warnings: [] };
    },
    doStream: async (asked) => {
      const { call, end } = next(asked);
      return { stream: simulateReadableStream({ chunks: [call, { type: "finish" as const, ...end }] }) };
    },
  });
  return { offered, model: made };
}

const aiToolOf = (execute: (args: { order_id: string }) => object) => ({
  get_order: aiTool({ inputSchema: z.object({ order_id: z.string() }), execute }),
});

const aiSdk: Player = async (gate, execute) => {
  const { offered, model } = endless();
  await generateText({ model, prompt: "Go.", ...gateLoop(gate, aiToolOf(execute)) });
  return { offered };
};

const aiSdkStream: Player = async (gate, execute) => {
  const { offered, model } = endless();
  await streamText({ model, prompt: "Go.", ...gateLoop(gate, aiToolOf(execute)) }).consumeStream();
  return { offered };
};

const aiSdkAgent: Player = async (gate, execute) => {
  const { offered, model } = endless();
  const agent = new ToolLoopAgent({ model, ...gateLoop(gate, aiToolOf(execute)) });
  await agent.generate({ prompt: "Go." });
  return { offered };
};

/** LangChain's own model of OpenAI, whose messages have its own `usage_metadata`. */
const langchain: Player = async (gate, execute, usage) => {
  const { url, offered, stop } = await model(TURNS, TOKENS);
  after(stop);
  const schema = z.object({ order_id: z.string() });
  const agent = createAgent({
    model: new ChatOpenAI({ model: "scripted", apiKey: "none", configuration: { baseURL: url } }),
    tools: [tool(execute, { name: "get_order", description: "Reads.", schema })],
    checkpointer: new MemorySaver(),
    middleware: [callgateMiddleware(client, { usage })],
  });
  const thread = { configurable: { thread_id: gate.sessionId }, recursionLimit: 200 };
  const { messages } = await agent.invoke({ messages: "Go." }, thread);
  assert.match(messages.at(-1)!.text, /^The run has ended, since no further tool call is let through\. .*budget/);
  return { offered };
};

const PLAYERS: Record<string, [player: Player, late: number]> = {
  "OpenAI's chat completions": [chat, 0],
  "OpenAI's responses": [responses, 0],
  "Anthropic's messages": [anthropic, 0],
  // The SDK gives the usage of a step after the step's calls.
  "AI SDK": [aiSdk, 1],
  "AI SDK, streamed": [aiSdkStream, 1],
  "AI SDK's agent": [aiSdkAgent, 1],
  LangChain: [langchain, 0],
};

/** What was booked of the run. */
async function used(gate: Gate, dimension: BudgetDimension): Promise<number> {
  const { budgets } = await gate.state();
  return Number(budgets.find((one) => one.scope === BudgetScope.RUN && one.dimension === dimension)?.used);
}

for (const [name, [play, late]] of Object.entries(PLAYERS)) {
  test(`10 dollars end the run, and the model is offered no tools before: ${name}`, async () => {
    let executed = 0;
    const usage = priced(PRICES);
    const gate = client.gate(`dollars-${name}`, { usage });
    const { offered } = await play(gate, () => ({ executed: ++executed }), usage);
    // The third answer passes 10 dollars: its call is refused, then the model insists once.
    assert.equal(executed, 2 + late);
    assert.deepEqual(offered, [...Array(3 + late).fill(1), 0]);
    const answers = await used(gate, BudgetDimension.TOKENS);
    assert.equal((await used(gate, BudgetDimension.COST_MICROS)) / answers, 400);
  });

  test(`without a price, tokens end the run: ${name}`, async () => {
    let executed = 0;
    const gate = client.gate(`tokens-${name}`);
    const { offered } = await play(gate, () => ({ executed: ++executed }));
    assert.equal(executed, 4 + late);
    assert.deepEqual(offered, [...Array(5 + late).fill(1), 0]);
    assert.equal(await used(gate, BudgetDimension.COST_MICROS), 0);
    // Each answer is booked once: 10,000 tokens read and one written.
    assert.equal((await used(gate, BudgetDimension.TOKENS)) % (TOKENS + 1), 0);
  });
}
