// The types of values: on an execution, on a repetition of it, and in another process. And what a bug is told as.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { CallRefused, gated, priced, Replayed, Result, usageOf } from "@callgate/client";
import { BudgetDimension } from "@callgate/client/v1";

import { POLICY } from "./policy.js";
import { newSession, Stage } from "./stage.js";

const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();

class Order {
  constructor(
    readonly id: number,
    readonly at: Date,
  ) {}
}

const VALUES: [string, unknown][] = [
  ["an object of a class", new Order(1, new Date(0))],
  ["a date", new Date(5)],
  ["text that is JSON", '{"a":1}'],
  ["nothing", undefined],
  ["a large integer", 2n ** 64n],
  ["a set", new Set([1, 2])],
  ["plain data", { items: [{ id: 1, tags: ["a"] }], left: null }],
  ["a value with a text of its own", new Result(new Map([["a", 1]]), { text: "one" })],
];

for (const [name, value] of VALUES) {
  test(`a repetition gives a value of the same type: ${name}`, async () => {
    const session = newSession();
    const find = gated(client.gate(session), (_args: { name: string }) => value, { tool: "find_order" });
    const expected = value instanceof Result ? value.value : value;
    const first = await find({ name });
    assert.deepEqual(first, expected);
    const outcome = await client.gate(session).run("find_order", { name }, () => assert.fail("must not run"));
    assert.match(outcome.text, /duplicate_call_blocked/, "the model is told that it is a repetition");
    const again = outcome.unwrap() as unknown;
    assert.deepEqual(again, expected);
    assert.equal(Object.getPrototypeOf(Object(again)), Object.getPrototypeOf(Object(expected)));
  });
}

test("plain data comes as a copy, and what was changed since is not given out", async () => {
  const gate = client.gate(newSession());
  const find = gated(gate, (_: object) => ({ list: [1] }) as { list: number[] }, { tool: "find_order" });
  (await find({})).list.push(2);
  (await find({})).list.push(3);
  assert.deepEqual(await find({}), { list: [1] });
});

test("a value that was changed since is not given out as the first one", async () => {
  const gate = client.gate(newSession());
  const find = gated(gate, (_: object) => new Map([["total", 20]]), { tool: "find_order" });
  const first = await find({});
  assert.equal(await find({}), first, "of what is no plain data, the value itself");
  first.set("total", 0);
  await assert.rejects(find({}), Replayed);
});

test("a repetition of another process's execution is told apart, or revived", async () => {
  const session = newSession();
  const made = () => new Order(7, new Date(0));
  await gated(stage.client().gate(session), made, { tool: "find_order" })({});
  const find = gated(client.gate(session), made, { tool: "find_order" });
  await assert.rejects(find({}), (error: Replayed) => {
    assert(error instanceof Replayed && error instanceof CallRefused);
    assert.deepEqual(error.value, { id: 7, at: "1970-01-01T00:00:00.000Z" });
    assert.match(error.outcome.text, /"previous_result":{"id":7/);
    return true;
  });
  const revive = (previous: unknown) => {
    const { id, at } = previous as { id: number; at: string };
    return new Order(id, new Date(at));
  };
  const revived = await gated(client.gate(session), made, { tool: "find_order", revive })({});
  assert.deepEqual(revived, made());
});

declare const missingName: unknown;

const BUGS: [string, () => unknown][] = [
  ["a TypeError", () => (undefined as never as { key: string }).key],
  ["a ReferenceError", () => missingName],
  ["a RangeError", () => new Array(-1)],
  ["a SyntaxError", () => JSON.parse("<html>secret")],
  ["an assertion", () => assert.equal("secret", "other")],
];

for (const [name, execute] of BUGS) {
  test(`a bug of a tool is logged with its stack, and the model learns only that there is one: ${name}`, async () => {
    const lines: string[] = [];
    const session = newSession();
    const gate = stage.client({ log: (line) => lines.push(line) }).gate(session, { patienceMs: 0 });
    const outcome = await gate.run("look", { name }, execute, { callId: "c-1" });
    assert.match(outcome.text, /look failed: its own program has a bug, which its developers find in their log/);
    assert.doesNotMatch(outcome.text, /secret|key|missingName|Invalid array/);
    assert.equal(lines.length, 1);
    const [line] = lines;
    assert(line!.startsWith(`callgate: look has a bug (call c-1 of session ${session}): `), line);
    assert.match(line!, /values\.test\.js:\d+/, "the stack names the place");
    assert.throws(
      () => outcome.unwrap(),
      (error) => error === outcome.error,
    );
  });
}

const MEANT: [string, unknown, RegExp][] = [
  ["an Error of the tool's own", new Error("no such order"), /no such order/],
  ["an error of a class", Object.assign(new Error("card declined"), { name: "CardError" }), /card declined/],
  [
    "a TypeError of fetch",
    new TypeError("fetch failed", { cause: new Error("getaddrinfo ENOTFOUND shop") }),
    /ENOTFOUND/,
  ],
  ["an error with a status", Object.assign(new TypeError("slow down"), { status: 429 }), /slow down/],
  ["an error with a code", Object.assign(new TypeError("Invalid URL"), { code: "ERR_INVALID_URL" }), /Invalid URL/],
  ["a status as text", Object.assign(new Error("busy"), { statusCode: "429" }), /"error_type":"rate_limited"/],
];

for (const [n, [name, error, text]] of MEANT.entries()) {
  test(`an error that is about the call keeps its text: ${name}`, async () => {
    const lines: string[] = [];
    const gate = stage.client({ log: (line) => lines.push(line) }).gate(newSession(), { patienceMs: 0 });
    const outcome = await gate.run(`meant_${n}`, {}, () => Promise.reject(error));
    assert.match(outcome.text, text);
    assert.deepEqual(lines, []);
  });
}

test("arguments that a person approved instead run, under an id of their own, and the model is told so", async () => {
  const session = newSession();
  const gate = client.gate(session, { approvalWaitMs: 0 });
  const given: unknown[] = [];
  const send = (args: object, { isEdited }: { isEdited: boolean }) => ({ n: given.push([args, isEdited]) });
  const asked = await gate.run("ask_boss", { to: session }, send, { callId: "c" });
  const by = { headers: { "callgate-by": "ada" } };
  const editedArgumentsJson = `{"to":"${session}","note":"by ada"}`;
  await client.approvals.resolveApproval({ approvalId: asked.approvalId, approve: true, editedArgumentsJson }, by);
  const outcome = await gate.run("ask_boss", { to: session }, send, { callId: "c" });
  assert.deepEqual(given, [[{ to: session, note: "by ada" }, true]]);
  assert.deepEqual([outcome.ran, outcome.isError, outcome.callId], [true, false, "c/edited"]);
  assert.match(JSON.parse(outcome.text).warning, /approved this call with other arguments instead of yours/);
});

test("usage that cannot be booked with a refused request waits for the next call", async () => {
  const session = newSession();
  const gate = client.gate(session);
  gate.pend({ inputTokens: 70 });
  await assert.rejects(gate.run("look", {}, () => 1, { callId: "\0" }));
  await gate.run("look", {}, () => 1, { usage: [{ inputTokens: 20 }, { outputTokens: 10n }] });
  const tokens = (await gate.state()).budgets.filter(({ dimension }) => dimension === BudgetDimension.TOKENS);
  assert.deepEqual(new Set(tokens.map(({ used }) => used)), new Set([100n]));
});

test("usage is read from every provider's object, and cached tokens are counted apart", () => {
  const counts = { inputTokens: 60, outputTokens: 5, cacheReadTokens: 30, cacheWriteTokens: 10 };
  const openai = {
    prompt_tokens: 100,
    completion_tokens: 5,
    prompt_tokens_details: { cached_tokens: 30, cache_write_tokens: 10 },
  };
  const responses = {
    input_tokens: 100,
    output_tokens: 5,
    input_tokens_details: { cached_tokens: 30, cache_write_tokens: 10 },
  };
  const anthropic = {
    input_tokens: 60,
    output_tokens: 5,
    cache_read_input_tokens: 30,
    cache_creation_input_tokens: 10,
  };
  const usage_metadata = {
    input_tokens: 100,
    output_tokens: 5,
    input_token_details: { cache_read: 30, cache_creation: 10 },
  };
  const details = { noCacheTokens: 60, cacheReadTokens: 30, cacheWriteTokens: 10 };
  const ai = { inputTokens: 100, outputTokens: 5, inputTokenDetails: details };
  const given: unknown[] = [
    ...[openai, responses, anthropic].map((usage) => ({ model: "m", usage })),
    { usage_metadata, response_metadata: { model_name: "m" } },
    { usage: ai, response: { modelId: "m" } },
  ];
  for (const response of given) assert.deepEqual(usageOf(response), { model: "m", ...counts });
  for (const nothing of [undefined, null, {}, { usage: null }, { usage: { input_tokens: "5" } }, "text"]) {
    assert.equal(usageOf(nothing), undefined);
  }
});

test("a table of prices counts by the day and the kind of token, and names what is wrong in it", () => {
  const row = { model: "m", input: 3, output: 15 };
  const used = { model: "m", inputTokens: 1_000, outputTokens: 100, cacheReadTokens: 10 };
  assert.equal(priced([row])(used)?.costMicros, 3_000 + 1_500 + 30);
  assert.equal(priced([row])({ ...used, costMicros: 7 })?.costMicros, 7);
  assert.equal(priced([row])({ ...used, model: "other" })?.costMicros, undefined);
  const cheap = { ...row, input: 0.1, output: 0, cache_read: 0, valid_from: new Date("2020-01-01") };
  assert.equal(priced([row, cheap, { ...row, valid_from: "2999-01-01" }])(used)?.costMicros, 100);
  assert.throws(() => priced([{ ...row, input: "3" } as never]), /prices\[0\]\.input: "3" is no number of US dollars/);
  assert.throws(() => priced([row, { ...row, valid_from: "soon" }]), /prices\[1\]\.valid_from: "soon" is no day/);
  assert.throws(() => priced([{ ...row, model: "" }]), /prices\[0\]\.model: "" is no name/);
});
