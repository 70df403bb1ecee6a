// LangChain.js and LangGraph.js with a scripted model, against the real server.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { CallState, type Client } from "@callgate/client";
import { type ApprovalRequest, callgateMiddleware } from "@callgate/client/langchain";
import { Role } from "@callgate/client/v1";
import { fakeModel } from "@langchain/core/testing";
import { Command, interrupt, MemorySaver } from "@langchain/langgraph";
import { AIMessage, type BaseMessage, createAgent, ToolMessage, tool } from "langchain";
import { z } from "zod";

import { Stage } from "../stage.js";
import { ada, person } from "./people.js";
import { answer, check, LETTER, POLICY, type Proposal, Shop, turnsOf } from "./story.js";

const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();

const order = z.object({ order_id: z.string() });
const item = z.object({ item: z.number() });
const charge = z.object({ order_id: z.string(), amount: z.number() });

/** The story's tools as the framework has them. */
const toolsOf = ({ tools }: Shop) => [
  tool(tools.get_order, { name: "get_order", description: "Reads an order.", schema: order }),
  tool(tools.delete_order, { name: "delete_order", description: "Deletes an order.", schema: order }),
  tool(tools.get_quote, { name: "get_quote", description: "Asks for a price.", schema: item }),
  tool(tools.get_stock, { name: "get_stock", description: "Looks into the warehouse.", schema: item }),
  tool(tools.charge_card, { name: "charge_card", description: "Charges a card.", schema: charge }),
];

/** A model that makes the calls of each turn, as `call_0` and so on, and says "done" after the last. */
function scripted(turns: readonly (readonly Proposal[])[]) {
  const model = fakeModel();
  for (const calls of turns) {
    model.respondWithTools(calls.map(({ tool: name, args }, n) => ({ name, args, id: `call_${n}` })));
  }
  return model.respond(new AIMessage("done"));
}

const toldOf = (messages: readonly BaseMessage[]) =>
  messages.filter(({ type }) => type === "tool").map(({ text }) => text);

test("an agent is refused, waits, asks a person, retries on advice, and finishes", async () => {
  const shop = new Shop();
  after(person(client, "langchain-story", ({ amount }) => answer(amount)));
  const agent = createAgent({
    model: scripted(turnsOf("o-1").map((call) => [call])),
    tools: toolsOf(shop),
    middleware: [callgateMiddleware(client)],
  });
  const thread = { configurable: { thread_id: "langchain-story" }, recursionLimit: 100 };
  const { messages } = await agent.invoke({ messages: "Go." }, thread);
  assert.equal(messages.at(-1)!.text, "done");
  check("o-1", shop, toldOf(messages));
});

test("a question to a person interrupts the graph, and the answer resumes it", async () => {
  const shop = new Shop();
  const agent = createAgent({
    model: scripted(turnsOf("o-2").map((call) => [call])),
    tools: toolsOf(shop),
    checkpointer: new MemorySaver(),
    middleware: [callgateMiddleware(client)],
  });
  const thread = { configurable: { thread_id: "langchain-interrupt" }, recursionLimit: 100 };
  let state = await agent.invoke({ messages: "Go." }, thread);
  const asked: unknown[] = [];
  while ("__interrupt__" in state) {
    assert.equal(state.__interrupt__!.length, 1);
    const { type, requests } = state.__interrupt__![0]!.value as ApprovalRequest;
    assert.equal(type, "callgate_approval");
    const [request] = requests;
    asked.push(request!.args);
    state = await agent.invoke(new Command({ resume: answer(request!.args["amount"]) }), thread);
  }
  assert.deepEqual(
    asked,
    turnsOf("o-2")
      .slice(-2)
      .map(({ args }) => args),
  );
  check("o-2", shop, toldOf(state.messages));
});

/** An agent whose model charges a card in one turn, beside what else is proposed. */
function cashier(shop: Shop, order: string, ...beside: Proposal[]) {
  const checkpointer = new MemorySaver();
  const model = scripted([[...beside, turnsOf(order).at(-2)!]]);
  const make = () =>
    createAgent({ model, tools: toolsOf(shop), checkpointer, middleware: [callgateMiddleware(client)] });
  return { make, agent: make() };
}

const ANSWERS: [string, unknown, boolean][] = [
  ["yes", true, true],
  ["no", false, false],
  ["yes in LangChain's own shape", { decisions: [{ type: "approve" }] }, true],
  ["no in LangChain's own shape", { decisions: [{ type: "reject", message: "not today" }] }, false],
];

for (const [n, [what, resume, runs]] of ANSWERS.entries()) {
  test(`an interrupted graph is resumed with ${what}`, async () => {
    const shop = new Shop();
    const { agent } = cashier(shop, `o-answer-${n}`);
    const thread = { configurable: { thread_id: `langchain-answer-${n}` } };
    await agent.invoke({ messages: "Go." }, thread);
    const { messages } = await agent.invoke(new Command({ resume }), thread);
    assert.equal(shop.executed.length, runs ? 1 : 0);
    assert.match(toldOf(messages)[0]!, runs ? /"charged":20/ : /approval_denied/);
  });
}

test("a call beside one that waits for a person runs once, although the graph comes by it again", async () => {
  const shop = new Shop();
  const { agent, make } = cashier(shop, "o-3", turnsOf("o-3")[0]!);
  const thread = { configurable: { thread_id: "langchain-beside" } };
  await agent.invoke({ messages: "Go." }, thread);
  const state = await make().invoke(new Command({ resume: { decisions: [{ type: "approve" }] } }), thread);
  assert.deepEqual(
    shop.executed.map(({ tool: name }) => name),
    ["get_order", "charge_card"],
  );
  assert.equal(state.messages.at(-1)!.text, "done");
});

test("a graph that is resumed before somebody has answered in callgate is interrupted again", async () => {
  const shop = new Shop();
  const { agent } = cashier(shop, "o-4");
  const thread = { configurable: { thread_id: "langchain-elsewhere" } };
  const asked = await agent.invoke({ messages: "Go." }, thread);
  const { approvalId } = (asked.__interrupt__![0]!.value as ApprovalRequest).requests[0]!;
  const still = await agent.invoke(new Command({ resume: "answered" }), thread);
  assert.equal((still.__interrupt__![0]!.value as ApprovalRequest).requests[0]!.approvalId, approvalId);
  await ada(client, approvalId, { approve: true });
  const { messages } = await agent.invoke(new Command({ resume: "answered" }), thread);
  assert.match(toldOf(messages)[0]!, /"charged":20/);
  assert.equal(shop.executed.length, 1);
});

for (const version of ["v1", "v2"] as const) {
  test(`several calls of a turn are asked about in one interrupt, each answered by itself: ${version}`, async () => {
    const shop = new Shop();
    const order = `o-several-${version}`;
    const agent = createAgent({
      model: scripted([turnsOf(order).slice(-2)]),
      tools: toolsOf(shop),
      checkpointer: new MemorySaver(),
      middleware: [callgateMiddleware(client)],
      version,
    });
    const thread = { configurable: { thread_id: `langchain-several-${version}` } };
    const asked = await agent.invoke({ messages: "Go." }, thread);
    assert.equal(asked.__interrupt__!.length, 1);
    const { requests, actionRequests } = asked.__interrupt__![0]!.value as ApprovalRequest;
    assert.deepEqual(
      requests.map(({ args }) => args["amount"]),
      [20, 900],
    );
    assert.equal(actionRequests.length, 2);
    const decisions = [{ type: "approve" }, { type: "reject", message: "900 is too dear" }];
    const { messages } = await agent.invoke(new Command({ resume: { decisions } }), thread);
    assert.match(toldOf(messages).join(), /"charged":20.*900 is too dear/);
    assert.equal(shop.executed.length, 1);
  });
}

const MISTAKES: [unknown, RegExp][] = [
  ["yes", /resume: "yes" is no answer; answers are true, false, .*"answered"/],
  [{ approve: "yes" }, /resume: {"approve":"yes"} is no answer/],
  [{ decisions: [{ type: "respond" }] }, /resume: {"decisions":\[{"type":"respond"}\]} is no answer/],
  [{ decisions: [] }, /resume: 0 decisions for 1 requests \(charge_card\)/],
  [
    { decisions: [{ type: "edit", editedAction: { name: "pay", args: {} } }] },
    /editedAction.name: "pay" is not charge/,
  ],
  [{ decisions: [{ type: "edit", editedAction: { name: "charge_card" } }] }, /editedAction.args: null is no object/],
];

test("a value that is no answer is refused with the allowed shapes, and the graph takes another", async () => {
  const shop = new Shop();
  const { agent } = cashier(shop, "o-mistaken");
  const thread = { configurable: { thread_id: "langchain-mistaken" } };
  await agent.invoke({ messages: "Go." }, thread);
  for (const [resume, message] of MISTAKES) {
    await assert.rejects(agent.invoke(new Command({ resume }), thread), message);
    assert.equal(shop.executed.length, 0);
  }
  const { messages } = await agent.invoke(new Command({ resume: true }), thread);
  assert.match(toldOf(messages)[0]!, /"charged":20/);
});

test("arguments that a person edits run in place of the model's, and the model is told so", async () => {
  const shop = new Shop();
  const { agent } = cashier(shop, "o-edited");
  const thread = { configurable: { thread_id: "langchain-edited" } };
  await agent.invoke({ messages: "Go." }, thread);
  const args = { order_id: "o-edited", amount: 15 };
  const resume = { decisions: [{ type: "edit", editedAction: { name: "charge_card", args } }] };
  const { messages } = await agent.invoke(new Command({ resume }), thread);
  assert.deepEqual(
    shop.executed.map((done) => done.args),
    [args],
  );
  const [told] = toldOf(messages);
  assert.match(told!, /"charged":15/);
  assert.match(JSON.parse(told!).warning, /A person approved this call with other arguments .*"amount":15/);
});

test("an answer to callgate is none to a tool that asks the user itself, which cannot be approved so", async () => {
  const done: string[] = [];
  const asking = tool(() => `${done.push(interrupt("really?"))}`, {
    name: "charge_card",
    description: "Charges.",
    schema: charge,
  });
  const agent = createAgent({
    model: scripted([[turnsOf("o-twofold").at(-2)!]]),
    tools: [asking],
    checkpointer: new MemorySaver(),
    middleware: [callgateMiddleware(client)],
  });
  const thread = { configurable: { thread_id: "langchain-twofold" } };
  await agent.invoke({ messages: "Go." }, thread);
  const asked = await agent.invoke(new Command({ resume: true }), thread);
  assert.equal(asked.__interrupt__?.[0]?.value, "really?");
  assert.deepEqual(done, []);
  await assert.rejects(agent.invoke(new Command({ resume: "yes" }), thread), /charge_card interrupts the graph itself/);
  assert.deepEqual(done, []);
});

test("a tool's failure is told to the model, and does not end the run", async () => {
  const broken = tool(
    (): string => {
      throw new Error("no such order");
    },
    {
      name: "get_order",
      description: "Reads.",
      schema: order,
    },
  );
  const agent = createAgent({
    model: scripted([[turnsOf("o-5")[0]!]]),
    tools: [broken],
    middleware: [callgateMiddleware(client)],
  });
  const { messages } = await agent.invoke({ messages: "Go." });
  assert.match(toldOf(messages)[0]!, /"status":"error".*no such order/);
  assert.equal(messages.at(-1)!.text, "done");
});

test("what a tool gives beside its text stays", async () => {
  const image = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };
  const drawn = tool(() => [[image], { pixels: 1 }], {
    name: "get_job",
    description: "Draws.",
    schema: item,
    responseFormat: "content_and_artifact",
  });
  const turns = Array.from({ length: 3 }, () => [{ tool: "get_job", args: { item: 1 } }]);
  const agent = createAgent({ model: scripted(turns), tools: [drawn], middleware: [callgateMiddleware(client)] });
  const { messages } = await agent.invoke({ messages: "Go." }, { recursionLimit: 50 });
  const given = messages.filter((message) => ToolMessage.isInstance(message));
  assert.equal(given.length, 3);
  for (const { content, artifact } of given) {
    assert.deepEqual((content as unknown[])[0], image);
    assert.deepEqual(artifact, { pixels: 1 });
  }
  assert.equal((given.at(-1)!.content as { type: string }[])[1]?.type, "text", "the loop's warning is told");
});

test("the model gives the reason that the policy wants, and the tool does not see it", async () => {
  const given: unknown[] = [];
  const letter = tool((args) => `${given.push(args)}`, {
    name: "send_letter",
    description: "Sends a letter.",
    schema: z.strictObject({ to: z.string() }),
  });
  const model = scripted([[LETTER]]);
  const offered: any[] = [];
  const bind = model.bindTools.bind(model);
  model.bindTools = (tools) => {
    offered.push(...tools);
    return bind(tools);
  };
  const agent = createAgent({ model, tools: [letter], middleware: [callgateMiddleware(client)] });
  const { messages } = await agent.invoke({ messages: "Go." });
  assert.deepEqual(offered[0].function.parameters.required, ["to", "justification"]);
  assert.deepEqual(given, [{ to: "ada" }], toldOf(messages).join());
});

test("a tool that interrupts the graph itself runs again from its beginning, and counts once", async () => {
  let begun = 0;
  const asking = tool(() => `${begun++}, ${interrupt("which one?")}`, {
    name: "get_order",
    description: "Reads.",
    schema: order,
  });
  const checkpointer = new MemorySaver();
  const middleware = [callgateMiddleware(client)];
  const model = scripted([[turnsOf("o-6")[0]!]]);
  const agent = createAgent({ model, tools: [asking], checkpointer, middleware });
  const thread = { configurable: { thread_id: "langchain-tool-asks" } };
  const asked = await agent.invoke({ messages: "Go." }, thread);
  assert.equal(asked.__interrupt__?.[0]?.value, "which one?");
  const { messages } = await agent.invoke(new Command({ resume: "this one" }), thread);
  assert.match(toldOf(messages)[0]!, /1, this one/);
  const { state } = await client.calls.getSessionState({ sessionId: "langchain-tool-asks" });
  assert.deepEqual(
    state?.calls.map((call) => call.state),
    [CallState.SUCCEEDED, CallState.CANCELLED],
  );
});

test("while callgate is away nothing runs, and the model is told so", async () => {
  const shop = new Shop();
  const away = stage.client({ server: "http://127.0.0.1:9", timeoutMs: 500 });
  const model = scripted([[turnsOf("o-7")[0]!]]);
  const agent = createAgent({ model, tools: toolsOf(shop), middleware: [callgateMiddleware(away)] });
  const { messages } = await agent.invoke({ messages: "Go." });
  assert.match(toldOf(messages)[0]!, /callgate_unavailable/);
  assert.deepEqual(shop.executed, []);
});

test("where agents have credentials, people answer by their own", async () => {
  const guarded = await Stage.serve({ after }, POLICY);
  const token = async (name: string, role: Role, by = {}) => {
    const { secret } = await guarded.client(by).tokens.createToken({ name, roles: [role] });
    return { token: secret };
  };
  const root = await token("root", Role.ADMIN, { by: "root" });
  const agents = guarded.client(await token("cashier", Role.AGENT, root));
  const people = guarded.client(await token("ada", Role.APPROVER, root));
  const resumed = async (order: string, approvals: Client | undefined, resume: unknown) => {
    const shop = new Shop();
    const agent = createAgent({
      model: scripted([[turnsOf(order).at(-2)!]]),
      tools: toolsOf(shop),
      checkpointer: new MemorySaver(),
      middleware: [callgateMiddleware(agents, { approvals })],
    });
    const thread = { configurable: { thread_id: `langchain-guarded-${order}` } };
    const asked = await agent.invoke({ messages: "Go." }, thread);
    const { approvalId } = (asked.__interrupt__![0]!.value as ApprovalRequest).requests[0]!;
    if (!approvals) await people.approvals.resolveApproval({ approvalId, approve: true });
    const { messages } = await agent.invoke(new Command({ resume }), thread);
    return toldOf(messages)[0]!;
  };
  assert.match(await resumed("o-1", people, true), /"charged":20/);
  assert.match(await resumed("o-2", people, { approve: false, reason: "too late" }), /too late/);
  assert.match(await resumed("o-3", undefined, "answered"), /"charged":20/);
});
