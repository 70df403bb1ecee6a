// What happens between calls: compaction, parallel calls, resumed graphs, sub-agents. Against the real server.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { ApprovalState, CallState } from "@callgate/client";
import { gateLoop } from "@callgate/client/ai-sdk";
import { callgateMiddleware } from "@callgate/client/langchain";
import { BudgetDimension, BudgetScope, Role } from "@callgate/client/v1";
import { fakeModel } from "@langchain/core/testing";
import { Command, MemorySaver } from "@langchain/langgraph";
import { tool as aiTool, generateText, type ModelMessage } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import {
  type AgentMiddleware,
  AIMessage,
  type BaseMessage,
  createAgent,
  HumanMessage,
  summarizationMiddleware,
  tool,
} from "langchain";
import { z } from "zod";

import { Stage } from "../stage.js";
import { added, POLICY } from "./story.js";

const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();
const order = z.object({ order_id: z.string() });

/** Messages of a model with calls, each with 100 tokens of usage; the last says "done". */
function messages(...turns: [name: string, args: object][][]): AIMessage[] {
  const usage_metadata = { input_tokens: 90, output_tokens: 10, total_tokens: 100 };
  const response_metadata = { model_name: "scripted" };
  const calling = turns.map((calls) => {
    const tool_calls = calls.map(([name, args], n) => ({ name, args, id: `call_${n}` }));
    return new AIMessage({ content: "", tool_calls, usage_metadata, response_metadata } as object);
  });
  return [...calling, new AIMessage({ content: "done", usage_metadata, response_metadata } as object)];
}

/** Of LangChain, whose own types do not hold under `exactOptionalPropertyTypes`. */
const summarizing = (options: object) => summarizationMiddleware(options as never) as unknown as AgentMiddleware;

const scripted = (said: AIMessage[]) => said.reduce((model, message) => model.respond(message), fakeModel());

/** Tokens that were booked for the run and the call tree of a session. */
async function booked(sessionId: string): Promise<number> {
  const { budgets } = await client.gate(sessionId).state();
  const tokens = budgets.filter(({ dimension }) => dimension === BudgetDimension.TOKENS);
  return Number(tokens.find(({ scope }) => scope === BudgetScope.CALL_TREE)?.used);
}

const reading = (executed: string[]) =>
  tool(({ order_id }) => `order ${order_id}, number ${executed.push(order_id)}`, {
    name: "get_order",
    description: "Reads an order.",
    schema: order,
  });
const charging = (executed: string[]) =>
  tool(({ order_id }) => `charged, number ${executed.push(order_id)}`, {
    name: "charge_card",
    description: "Charges.",
    schema: order,
  });

test("LangChain: a summary is recorded as a compaction once, and has callgate's with it from then on", async () => {
  const executed: string[] = [];
  const asked: string[] = [];
  const said = ["a", "b", "a", "c"].map((order_id) => [["get_order", { order_id }] as [string, object]]);
  const model = scripted(messages(...said));
  const summarizer = fakeModel();
  for (let n = 0; n < 9; n++) summarizer.respond(new AIMessage("They read orders."));
  const agent = createAgent({
    model,
    tools: [reading(executed)],
    checkpointer: new MemorySaver(),
    middleware: [
      callgateMiddleware(client),
      summarizing({ model: summarizer, trigger: { messages: 5 }, keep: { messages: 2 } }),
      {
        name: "listening",
        wrapModelCall: (request: any, handler: any) => {
          asked.push(request.messages.map(({ text }: BaseMessage) => text).join("\n"));
          return handler(request);
        },
      } as unknown as AgentMiddleware,
    ],
  });
  const thread = { configurable: { thread_id: "turns-summary" }, recursionLimit: 100 };
  const state = await agent.invoke({ messages: [new HumanMessage({ content: "Go.", id: "first" })] }, thread);
  assert.equal(state.messages.at(-1)!.text, "done");
  // Before the compaction the same read would have been answered from memory.
  assert.deepEqual(executed, ["a", "b", "a", "c"]);
  const summarized = asked.filter((text) => text.includes("They read orders."));
  assert.ok(summarized.length >= 2, asked.join("\n---\n"));
  for (const text of summarized) assert.match(text, /get_order/, "callgate's summary is in the context");
  assert.ok(
    state.messages.some(({ text }) => /They read orders\.[\s\S]*get_order/.test(text)),
    "and in the state",
  );
  const { sessions } = client;
  const { session } = await sessions.getSession({ sessionId: "turns-summary" });
  assert.ok(session);
});

test("LangChain: the run of a call stays when its human message is summarized", async () => {
  const executed: string[] = [];
  const said = ["a", "b", "c", "d"].map((order_id) => [["get_order", { order_id }] as [string, object]]);
  const summarizer = fakeModel();
  for (let n = 0; n < 9; n++) summarizer.respond(new AIMessage("They read orders."));
  const agent = createAgent({
    model: scripted(messages(...said)),
    tools: [reading(executed)],
    middleware: [
      callgateMiddleware(client),
      summarizing({ model: summarizer, trigger: { messages: 4 }, keep: { messages: 2 } }),
    ],
  });
  const thread = { configurable: { thread_id: "turns-run" }, recursionLimit: 100 };
  const human = (id: string, content: string) => new HumanMessage({ id, content });
  await agent.invoke({ messages: [human("h-1", "Hello."), new AIMessage("Hi."), human("h-2", "Go.")] }, thread);
  assert.equal((await client.gate("turns-run").state()).runId, "h-2");
});

test("LangChain: parallel calls book the usage of their message once, also in a graph that is resumed", async () => {
  const [read, charged]: string[][] = [[], []];
  const model = scripted(
    messages(
      [
        ["get_order", { order_id: "p-1" }],
        ["charge_card", { order_id: "p-1" }],
        ["get_order", { order_id: "p-2" }],
      ],
      [["get_order", { order_id: "p-3" }]],
    ),
  );
  const checkpointer = new MemorySaver();
  const make = () =>
    createAgent({
      model,
      tools: [reading(read!), charging(charged!)],
      checkpointer,
      middleware: [callgateMiddleware(client)],
    });
  const thread = { configurable: { thread_id: "turns-parallel" } };
  const asked = await make().invoke({ messages: "Go." }, thread);
  assert.equal(asked.__interrupt__?.length, 1);
  assert.deepEqual(read, [], "nothing of the turn runs before the answer");
  assert.equal((await booked("turns-parallel")) % 100, 0);
  await make().invoke(new Command({ resume: true }), thread);
  assert.deepEqual([read, charged], [["p-1", "p-2", "p-3"], ["p-1"]]);
  assert.equal(await booked("turns-parallel"), 200);
});

test("LangChain: the usage of a final answer is booked with the next call of the thread", async () => {
  const model = scripted([
    ...messages([["get_order", { order_id: "f-1" }]]),
    ...messages([["get_order", { order_id: "f-2" }]]),
  ]);
  const middleware = [callgateMiddleware(client)];
  const agent = createAgent({ model, tools: [reading([])], checkpointer: new MemorySaver(), middleware });
  const thread = { configurable: { thread_id: "turns-final" } };
  await agent.invoke({ messages: "One." }, thread);
  assert.equal(await booked("turns-final"), 100);
  await agent.invoke({ messages: "Two." }, thread);
  assert.equal(await booked("turns-final"), 300);
});

test("LangChain: an agent that is a tool of another shares the budgets of its thread", async () => {
  const read: string[] = [];
  const middleware = [callgateMiddleware(client)];
  const inner = createAgent({
    model: scripted(messages([["get_order", { order_id: "s-1" }]])),
    tools: [reading(read)],
    middleware: [callgateMiddleware(client, { sessionId: "turns-inner", parentSessionId: "turns-outer" })],
  });
  const asking = tool(async () => (await inner.invoke({ messages: "Read it." })).messages.at(-1)!.text, {
    name: "get_job",
    description: "Asks another agent.",
    schema: z.object({}),
  });
  const model = scripted(messages([["get_job", {}]]));
  const agent = createAgent({ model, tools: [asking], middleware });
  const { messages: said } = await agent.invoke({ messages: "Go." }, { configurable: { thread_id: "turns-outer" } });
  assert.equal(said.at(-1)!.text, "done");
  assert.deepEqual(read, ["s-1"]);
  assert.equal((await client.gate("turns-inner").state()).rootSessionId, "turns-outer");
  assert.equal(await booked("turns-outer"), 200);
});

test("LangChain: a graph that is streamed passes the gate, and books its usage", async () => {
  const read: string[] = [];
  const agent = createAgent({
    model: scripted(messages([["get_order", { order_id: "t-1" }]])),
    tools: [reading(read)],
    middleware: [callgateMiddleware(client)],
  });
  const thread = { configurable: { thread_id: "turns-streamed" }, streamMode: ["updates", "messages"] as const };
  const kinds = new Set<unknown>();
  const stream = (await agent.stream({ messages: "Go." }, thread as never)) as unknown as AsyncIterable<[string]>;
  for await (const [kind] of stream) kinds.add(kind);
  assert.deepEqual(kinds, new Set(["updates", "messages"]));
  assert.deepEqual(read, ["t-1"]);
  assert.equal(await booked("turns-streamed"), 100);
});

/** A model of the AI SDK that makes these calls, one turn each, and then says "done". */
function aiModel(...turns: [name: string, args: object][][]) {
  const asked: string[] = [];
  const usage = {
    inputTokens: { total: 90, noCache: 90, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 10, text: 10, reasoning: 0 },
  };
  const model = new MockLanguageModelV3({
    doGenerate: async ({ prompt }) => {
      const calls = (turns[asked.push(JSON.stringify(prompt)) - 1] ?? []).map(([toolName, args], n) => {
        return { type: "tool-call" as const, toolCallId: `call_${n}`, toolName, input: JSON.stringify(args) };
      });
      const unified = calls.length > 0 ? ("tool-calls" as const) : ("stop" as const);
      const content = calls.length > 0 ? calls : [{ type: "text" as const, text: "done" }];
      return { content, finishReason: { unified, raw: undefined }, usage, warnings: [] };
    },
  });
  return { model, asked };
}

const aiReading = (executed: string[]) => ({
  get_order: aiTool({ inputSchema: order, execute: ({ order_id }) => ({ order_id, n: executed.push(order_id) }) }),
  get_job: aiTool({ inputSchema: order, execute: () => ({ n: executed.length }) }),
});

test("AI SDK: results that prepareStep leaves out are a compaction, and callgate's summary is put before the rest", async () => {
  const executed: string[] = [];
  const { model, asked } = aiModel(
    ...["a", "b", "a"].map((order_id) => [["get_order", { order_id }] as [string, object]]),
  );
  const gate = client.gate("turns-prepare");
  const prepareStep = ({ messages: all }: { messages: ModelMessage[] }) => ({ messages: all.slice(-2) });
  const { text } = await generateText({
    model,
    prompt: "Go.",
    ...gateLoop(gate, aiReading(executed), { prepareStep }),
  });
  assert.equal(text, "done");
  assert.deepEqual(executed, ["a", "b", "a"], "after the compaction the same read runs again");
  assert.doesNotMatch(asked[1]!, /"role":"user".*get_order/);
  assert.match(asked.at(-1)!, /"role":"user","content":\[{"type":"text","text":"[^"]*get_order/);
});

test("AI SDK: parallel calls book the usage of a step once", async () => {
  const gate = client.gate("turns-ai-parallel");
  const calls = (ids: string[]) => ids.map((order_id) => ["get_order", { order_id }] as [string, object]);
  const { model } = aiModel(calls(["a", "b"]), calls(["c", "d"]));
  const executed: string[] = [];
  await generateText({ model, prompt: "Go.", ...gateLoop(gate, aiReading(executed)) });
  assert.deepEqual(executed, ["a", "b", "c", "d"]);
  assert.equal(await booked("turns-ai-parallel"), 100);
  // The two last steps wait for the next call of the session, by whichever gate of this client.
  await client.gate("turns-ai-parallel").run("get_stock", { item: 1 }, () => 1);
  assert.equal(await booked("turns-ai-parallel"), 300);
});

test("AI SDK: what the application's user refuses is recorded as a denial, and asked about no more", async () => {
  const charge = aiTool({ inputSchema: order, execute: (): object => assert.fail("must not run") });
  const gate = client.gate("turns-ai-no");
  const settings = gateLoop(gate, { charge_card: charge }, { approvals: { by: "ada" } });
  const { model } = aiModel([["charge_card", { order_id: "n-1" }]]);
  const said: ModelMessage[] = [{ role: "user", content: "Charge it." }];
  const first = await generateText({ model, messages: said, ...settings });
  said.push(...(await added(first)));
  const { approvalId } = first.content.find((part) => part.type === "tool-approval-request")!;
  const no = { type: "tool-approval-response" as const, approvalId, approved: false, reason: "too dear" };
  said.push({ role: "tool", content: [no] });
  for (let n = 0; n < 2; n++) {
    const { text } = await generateText({ model, messages: said, ...settings });
    assert.equal(text, "done");
  }
  const { approvals } = await client.approvals.listApprovals({ sessionId: "turns-ai-no" });
  assert.deepEqual(
    approvals.map(({ resolvedBy, resolutionReason }) => [resolvedBy, resolutionReason]),
    [["ada", "too dear"]],
  );
  const { calls } = await gate.state();
  assert.deepEqual(
    calls.map(({ state }) => state),
    [CallState.REFUSED],
  );
});

test("AI SDK: what the user refuses is withdrawn where the agent's credential may not deny", async () => {
  const guarded = await Stage.serve({ after }, POLICY);
  const token = async (name: string, role: Role, by = {}) => {
    const { secret } = await guarded.client(by).tokens.createToken({ name, roles: [role] });
    return { token: secret };
  };
  const root = await token("root", Role.ADMIN, { by: "root" });
  const gate = guarded.client(await token("cashier", Role.AGENT, root)).gate("turns-guarded");
  const charge = aiTool({ inputSchema: order, execute: (): object => assert.fail("must not run") });
  const settings = gateLoop(gate, { charge_card: charge }, { approvals: {} });
  const { model } = aiModel([["charge_card", { order_id: "g-1" }]]);
  const said: ModelMessage[] = [{ role: "user", content: "Charge it." }];
  const run = await generateText({ model, messages: said, ...settings });
  const { approvalId } = run.content.find((part) => part.type === "tool-approval-request")!;
  const no = { type: "tool-approval-response" as const, approvalId, approved: false };
  said.push(...(await added(run)), { role: "tool", content: [no] });
  assert.equal((await generateText({ model, messages: said, ...settings })).text, "done");
  const { approvals } = await guarded.client(root).approvals.listApprovals({ sessionId: "turns-guarded" });
  assert.deepEqual(
    approvals.map(({ state }) => state),
    [ApprovalState.WITHDRAWN],
  );
});

test("AI SDK: arguments that a person edits run as the tool's schema makes them", async () => {
  const given: unknown[] = [];
  const inputSchema = z.object({ order_id: z.string(), when: z.string().transform((text) => new Date(text)) });
  const charge = aiTool({ inputSchema, execute: (args) => ({ n: given.push(args) }) });
  const gate = client.gate("turns-ai-edited");
  const { model, asked } = aiModel([["charge_card", { order_id: "e-1", when: "2026-01-01" }]]);
  const running = generateText({ model, prompt: "Go.", ...gateLoop(gate, { charge_card: charge }) });
  let open: string | undefined;
  while (!open) {
    const { approvals } = await client.approvals.listApprovals({ sessionId: "turns-ai-edited" });
    open = approvals[0]?.approvalId;
  }
  const editedArgumentsJson = '{"order_id":"e-2","when":"2026-02-02"}';
  const by = { headers: { "callgate-by": "ada" } };
  await client.approvals.resolveApproval({ approvalId: open, approve: true, editedArgumentsJson }, by);
  await running;
  assert.deepEqual(given, [{ order_id: "e-2", when: new Date("2026-02-02") }]);
  assert.match(asked.at(-1)!, /A person approved this call with other arguments instead of yours.*e-2/);
});

test("AI SDK: an agent that is a tool of another shares the budgets of its session", async () => {
  const read: string[] = [];
  const inner = client.gate("turns-ai-inner", { parentSessionId: "turns-ai-outer" });
  const asking = aiTool({
    inputSchema: z.object({}),
    execute: async () => {
      const { model } = aiModel([["get_order", { order_id: "s-1" }]], [["get_order", { order_id: "s-2" }]]);
      return { said: (await generateText({ model, prompt: "Read.", ...gateLoop(inner, aiReading(read)) })).text };
    },
  });
  const outer = client.gate("turns-ai-outer");
  const { model } = aiModel([["get_job", {}]]);
  const { text } = await generateText({ model, prompt: "Go.", ...gateLoop(outer, { get_job: asking }) });
  assert.equal(text, "done");
  assert.deepEqual(read, ["s-1", "s-2"]);
  assert.equal((await inner.state()).rootSessionId, "turns-ai-outer");
  assert.equal(await booked("turns-ai-outer"), 100);
});
