// The Vercel AI SDK with a scripted model, against the real server.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { ApprovalState, CallState } from "@callgate/client";
import { gateTools, type ToolCallError } from "@callgate/client/ai-sdk";
import { generateText, type ModelMessage, stepCountIs, streamText, tool } from "ai";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import { z } from "zod";

import { Stage } from "../stage.js";
import { person } from "./people.js";
import { added, answer, check, LETTER, POLICY, type Proposal, Shop, turnsOf } from "./story.js";

const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();

const order = z.object({ order_id: z.string() });
const item = z.object({ item: z.number() });
const charge = z.object({ order_id: z.string(), amount: z.number() });

/** The story's tools as the SDK has them. */
const toolsOf = ({ tools }: Shop) => ({
  get_order: tool({ description: "Reads an order.", inputSchema: order, execute: tools.get_order }),
  delete_order: tool({ description: "Deletes an order.", inputSchema: order, execute: tools.delete_order }),
  get_quote: tool({ description: "Asks for a price.", inputSchema: item, execute: tools.get_quote }),
  get_stock: tool({ description: "Looks into the warehouse.", inputSchema: item, execute: tools.get_stock }),
  charge_card: tool({ description: "Charges a card.", inputSchema: charge, execute: tools.charge_card }),
});

/** A model that makes one call a turn, always as `call_0`, and says "done" after the last. */
function scripted(turns: readonly Proposal[]) {
  let turn = 0;
  const next = () => {
    const call = turns[turn++];
    const made = call && { toolCallId: "call_0", toolName: call.tool, input: JSON.stringify(call.args) };
    const unified = made ? ("tool-calls" as const) : ("stop" as const);
    return { made, finishReason: { unified, raw: undefined }, usage };
  };
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } } as never;
  return new MockLanguageModelV3({
    doGenerate: async () => {
      const { made, ...end } = next();
      const content = made ? { type: "tool-call" as const, ...made } : { type: "text" as const, text: "done" };
      return { content: [content], ...end, warnings: [] };
    },
    doStream: async () => {
      const { made, ...end } = next();
      const calls = made ? [{ type: "tool-call" as const, ...made }] : [];
      return { stream: simulateReadableStream({ chunks: [...calls, { type: "finish" as const, ...end }] }) };
    },
  });
}

/** What the model was told of its calls, in order. */
const toldOf = (messages: readonly ModelMessage[]) =>
  messages.flatMap(({ role, content }) =>
    role === "tool"
      ? content.map((part) => JSON.stringify("output" in part ? part.output : part).replaceAll('\\"', '"'))
      : [],
  );

test("an agent is refused, waits, asks a person, retries on advice, and finishes", async () => {
  const shop = new Shop();
  const gate = client.gate("ai-sdk-story");
  after(person(client, "ai-sdk-story", ({ amount }) => answer(amount)));
  const run = await generateText({
    model: scripted(turnsOf("o-1")),
    prompt: "Go.",
    stopWhen: stepCountIs(20),
    tools: gateTools(gate, toolsOf(shop)),
  });
  assert.equal(run.text, "done");
  check("o-1", shop, toldOf(await added(run)));
});

test("the application's user answers by the SDK's own approvals", async () => {
  const shop = new Shop();
  const charges = turnsOf("o-2").slice(-2);
  const gate = client.gate("ai-sdk-approvals");
  const tools = gateTools(gate, toolsOf(shop), { approvals: { by: "ada" } });
  const model = scripted(charges);
  const messages: ModelMessage[] = [{ role: "user", content: "Charge both." }];
  for (const { args } of charges) {
    const run = await generateText({ model, messages, tools, stopWhen: stepCountIs(9) });
    messages.push(...(await added(run)));
    const asked = run.content.filter((part) => part.type === "tool-approval-request");
    assert.deepEqual(
      asked.map(({ toolCall }) => toolCall.input),
      [args],
    );
    const { approve: approved, ...why } = answer(args.amount);
    const { approvalId } = asked[0]!;
    messages.push({ role: "tool", content: [{ type: "tool-approval-response", approvalId, approved, ...why }] });
  }
  const run = await generateText({ model, messages, tools });
  assert.equal(run.text, "done");
  const told = toldOf([...messages, ...(await added(run))]).filter((part) => !part.includes("tool-approval-response"));
  assert.match(told[0]!, /"charged":20/);
  assert.match(told[1]!, /execution-denied.*900 is too dear/);
  assert.equal(shop.executed.length, 1);
  const { approvals } = await client.approvals.listApprovals({ sessionId: "ai-sdk-approvals" });
  assert.deepEqual(
    approvals.map(({ state, resolvedBy }) => [state, resolvedBy]),
    [[ApprovalState.APPROVED, "ada"]],
    "the refused call leaves no question behind",
  );
});

test("a tool that gives its output in parts gives all of them, and the application its own output", async () => {
  const parts = {
    get_order: tool({
      inputSchema: order,
      execute: async function* () {
        yield { total: 1 };
        yield { total: 20 };
      },
    }),
  };
  const model = scripted([turnsOf("o-1")[0]!]);
  const gate = client.gate("ai-sdk-stream");
  const run = streamText({
    model,
    prompt: "Go.",
    tools: gateTools(gate, parts),
    stopWhen: stepCountIs(3),
  });
  const given: unknown[] = [];
  for await (const part of run.fullStream)
    if (part.type === "tool-result") given.push([part.output, part.preliminary ?? false]);
  assert.deepEqual(given, [
    [{ total: 1 }, true],
    [{ total: 20 }, true],
    [{ total: 20 }, false],
  ]);
  assert.match(toldOf(await added(run))[0]!, /"results":{"total":20}/);
});

test("what a tool itself shows the model stays, and a hint comes after it", async () => {
  const image = { type: "media" as const, data: "AAAA", mediaType: "image/png" };
  const toModelOutput = () => ({ type: "content" as const, value: [image] });
  const shown = { get_job: tool({ inputSchema: item, execute: () => ({ left: 0 }), toModelOutput }) };
  const tools = gateTools(client.gate("ai-sdk-shown"), shown);
  const turns = Array.from({ length: 3 }, () => ({ tool: "get_job", args: { item: 1 } }));
  const run = await generateText({ model: scripted(turns), prompt: "Go.", tools, stopWhen: stepCountIs(9) });
  const told = toldOf(await added(run));
  assert.ok(
    told.every((text) => text.includes("image/png")),
    told.join("\n"),
  );
  assert.match(told.at(-1)!, /"type":"text","text":".+"/, "the loop's warning is told");
});

test("a call that is called off is recorded as cancelled", async () => {
  const abort = new AbortController();
  const execute = (): Promise<object> => {
    abort.abort();
    return Promise.reject(new Error("stopped"));
  };
  const tools = gateTools(client.gate("ai-sdk-abort"), { get_order: tool({ inputSchema: order, execute }) });
  const call = { toolCallId: "call_0", messages: [], abortSignal: abort.signal };
  await assert.rejects(async () => tools.get_order!.execute!({ order_id: "o-1" }, call), { name: "AbortError" });
  await client.close();
  const { state } = await client.calls.getSessionState({ sessionId: "ai-sdk-abort" });
  assert.deepEqual(
    state?.calls.map((called) => called.state),
    [CallState.CANCELLED],
  );
});

test("what a schema makes of the input reaches the tool", async () => {
  const inputSchema = z.object({ item: z.number(), when: z.string().transform((text) => new Date(text)) });
  const given: unknown[] = [];
  const tools = gateTools(client.gate("ai-sdk-schema"), {
    get_stock: tool({ inputSchema, execute: ({ when }) => given.push(when) }),
  });
  const turns = [{ tool: "get_stock", args: { item: 1, when: "2026-01-02" } }];
  await generateText({ model: scripted(turns), prompt: "Go.", tools, stopWhen: stepCountIs(3) });
  assert.deepEqual(given, [new Date("2026-01-02")]);
});

test("a refusal is thrown with its outcome, a failure with its cause", async () => {
  const gate = client.gate("ai-sdk-thrown");
  const lost = new TypeError("lost");
  const tools = gateTools(gate, {
    ...toolsOf(new Shop()),
    get_order: tool({ inputSchema: order, execute: (): Promise<object> => Promise.reject(lost) }),
  });
  const call = { toolCallId: "call_0", messages: [] };
  await assert.rejects(
    async () => tools.delete_order!.execute!({ order_id: "o-1" }, call),
    (error: ToolCallError) => !error.outcome.ran && error.message.includes("tool_denied"),
  );
  await assert.rejects(
    async () => tools.get_order!.execute!({ order_id: "o-1" }, { ...call, toolCallId: "call_1" }),
    (error: ToolCallError) => error.cause === lost && error.message.includes('"status":"error"'),
  );
});

test("the model gives the reason that the policy wants, and the tool does not see it", async () => {
  const given: unknown[] = [];
  const letter = tool({ inputSchema: z.strictObject({ to: z.string() }), execute: (args) => given.push(args) });
  const model = scripted([LETTER]);
  const tools = gateTools(client.gate("ai-sdk-reason"), { send_letter: letter });
  const run = await generateText({ model, prompt: "Go.", tools, stopWhen: stepCountIs(3) });
  const [offered] = model.doGenerateCalls[0]!.tools as { inputSchema: { required?: string[] } }[];
  assert.deepEqual(offered!.inputSchema.required, ["to", "justification"]);
  assert.deepEqual(given, [{ to: "ada" }], toldOf(await added(run)).join());
});

test("while callgate is away nothing runs, and the model is told so", async () => {
  const shop = new Shop();
  const away = stage.client({ server: "http://127.0.0.1:9", timeoutMs: 500 });
  const tools = gateTools(away.gate("ai-sdk-away"), toolsOf(shop));
  const model = scripted(turnsOf("o-7").slice(0, 1));
  const run = await generateText({ model, prompt: "Go.", tools, stopWhen: stepCountIs(3) });
  assert.match(toldOf(await added(run))[0]!, /error-text.*callgate_unavailable/);
  assert.equal(run.text, "done");
  assert.deepEqual(shop.executed, []);
});

test("a yes to one call is no yes to another of the same id", async () => {
  const shop = new Shop();
  const gate = client.gate("ai-sdk-same-id", { approvalWaitMs: 0 });
  const tools = gateTools(gate, toolsOf(shop), { approvals: { by: "ada" } });
  const proposal = (toolCallId: string, approvalId: string) => [
    { type: "tool-call" as const, toolCallId, toolName: "charge_card", input: {} },
    { type: "tool-approval-request" as const, toolCallId, approvalId },
  ];
  const messages: ModelMessage[] = [
    { role: "assistant", content: [...proposal("call_0", "a-0"), ...proposal("call_1", "a-1")] },
    { role: "tool", content: [{ type: "tool-approval-response", approvalId: "a-1", approved: true }] },
  ];
  const charge = async (toolCallId: string) =>
    tools.charge_card.execute!({ order_id: "o-9", amount: 20 }, { toolCallId, messages });
  await assert.rejects(charge("call_0"), /approval_required/);
  assert.deepEqual(shop.executed, []);
  assert.deepEqual(await charge("call_1"), { charged: 20 });
});
