import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { create } from "@bufbuild/protobuf";
import { Result, type Running, ToolFailed } from "@callgate/client";
import { CallState, OutcomeStatus, RecordRequestSchema } from "@callgate/client/v1";
import { Code, ConnectError } from "@connectrpc/connect";

import { toolError } from "#dist/failures.js";
import { asJson } from "#dist/values.js";
import { fakePlane } from "./fake.js";
import { POLICY } from "./policy.js";
import { newSession, Stage } from "./stage.js";

const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();
const settled = () => client.plane.reports.flush(5_000);
const state = async (sessionId: string) => {
  await settled();
  return (await client.calls.getSessionState({ sessionId })).state?.calls[0]?.state;
};
const stopping = (signal: AbortSignal) =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));

test("a call that is called off while it runs is told to stop, and reported as cancelled", async () => {
  const session = newSession();
  const stop = new AbortController();
  const execute = (_args: object, { signal }: Running) => {
    setTimeout(() => stop.abort(new Error("gone")), 50);
    return stopping(signal);
  };
  await assert.rejects(client.gate(session).run("look", {}, execute, { signal: stop.signal }), /gone/);
  assert.equal(await state(session), CallState.CANCELLED);
});

test("a call that was called off before it began never runs", async () => {
  const session = newSession();
  const gone = { signal: AbortSignal.abort(new Error("gone")) };
  await assert.rejects(client.gate(session).run("pay", { session }, assert.fail, gone), /gone/);
  await assert.rejects(
    client.gate(session).batch([{ ...gone, tool: "pay", args: { session }, execute: assert.fail }]),
    /gone/,
  );
  assert.equal((await client.gate(session).run("pay", { session }, () => "paid")).unwrap(), "paid");
});

test("what goes on although it was called off is unknown until it says what came of it", async () => {
  const session = newSession();
  const stop = new AbortController();
  let end = (_value: string) => {};
  const execute = () => {
    stop.abort(new Error("gone"));
    return new Promise<string>((resolve) => {
      end = resolve;
    });
  };
  await assert.rejects(client.gate(session).run("pay", { session }, execute, { signal: stop.signal }), /gone/);
  assert.equal(await state(session), CallState.UNKNOWN);
  end("paid");
  await pause(10);
  assert.equal(await state(session), CallState.SUCCEEDED);
});

test("a call that succeeds although it was called off is stored as that", async () => {
  const session = newSession();
  const stop = new AbortController();
  const execute = async () => {
    stop.abort(new Error("gone"));
    return "paid";
  };
  await assert.rejects(client.gate(session).run("pay", { session }, execute, { signal: stop.signal }), /gone/);
  assert.equal(await state(session), CallState.SUCCEEDED);
});

test("a tool that hangs is given up when its time is over", async () => {
  const session = newSession();
  const hang = () => new Promise(() => {});
  const outcome = await client.gate(session).run("look", {}, hang, { timeoutMs: 100, patienceMs: 0 });
  assert.equal((outcome.error as Error).name, "TimeoutError");
  assert.match(outcome.text, /"error_type":"timeout","error_message":"look gave no answer within 100 ms"/);
  const pay = await client
    .gate(session)
    .run("pay", { session }, (_args, { signal }) => stopping(signal), { timeoutMs: 50 });
  assert.match(pay.text, /outcome_unknown/);
});

const shared = { a: 1 };
const deep: { deep?: object } = {};
deep.deep = deep;
const VALUES: [string, unknown, string | RegExp][] = [
  ["text", "as it is", '"results":"as it is"'],
  ["JSON text", '{"id": 12345678901234567890}', '"results":{"id": 12345678901234567890}'],
  ["nothing", undefined, '"results":null'],
  ["null", null, '"results":null'],
  ["a large integer", 2n ** 64n, '"results":"18446744073709551616"'],
  ["integers", { small: 7n, large: 2n ** 53n }, '"results":{"small":7,"large":"9007199254740992"}'],
  ["what holds itself", { deep }, '"results":{"deep":{"deep":"[circular]"}}'],
  ["one thing twice", [shared, shared], '"results":[{"a":1},{"a":1}]'],
  ["no number", [Number.NaN], '"results":["NaN"]'],
  ["a function", () => 1, /"results":"\(\) => 1"/],
  ["a symbol", Symbol("s"), '"results":"Symbol(s)"'],
  ["collections", [new Map([["a", 1]]), new Set([1])], '"results":[{"a":1},[1]]'],
  ["a date", new Date(0), '"results":"1970-01-01T00:00:00.000Z"'],
  ["an error as a value", new TypeError("t"), '"results":{"name":"TypeError","message":"t"}'],
  ["text in bytes", new TextEncoder().encode("é"), '"results":"é"'],
  ["bytes", new Uint8Array([0xff, 0x00]), "2 bytes that are no text, with the SHA-256 "],
  ["half a character", "\ud800", '"results":"\ufffd"'],
  ["what cannot be told", { toJSON: () => assert.fail() }, '"results":"[object Object]"'],
];

for (const [name, value, text] of VALUES) {
  test(`a tool may give ${name}`, async () => {
    const outcome = await client.gate(newSession()).run("give", { name }, () => value);
    assert.equal(outcome.value, value);
    assert.equal(outcome.recorded, true);
    if (typeof text === "string") assert(outcome.text.includes(text), outcome.text);
    else assert.match(outcome.text, text);
  });
}

test("50 MB stay with the caller, and their digest is stored", async () => {
  const session = newSession();
  const large = "x".repeat(50 * 1024 * 1024);
  const outcome = await client.gate(session).run("find_order", {}, () => large);
  assert(outcome.recorded && outcome.text.startsWith(large), "the model sees it");
  const { state: told } = await client.calls.getSessionState({ sessionId: session });
  assert.equal(told?.calls[0]?.resultBytes, BigInt(large.length));
  // What cannot be handed over whole is read again.
  const again = await client.gate(session).run("find_order", {}, () => "small");
  assert.equal(again.value, "small");
});

test("JSON of a million values, and of what is nested without end, is told", () => {
  let nested: unknown = 1;
  for (let depth = 0; depth < 100_000; depth++) nested = [nested];
  assert.equal(typeof asJson(nested), "string");
  assert.equal(asJson(Array(3).fill({ a: [] })), '[{"a":[]},{"a":[]},{"a":[]}]');
});

test("whatever is thrown is told, as far as it says something", async () => {
  const thrown: [unknown, object][] = [
    ["text", { message: "text" }],
    [undefined, { message: "undefined" }],
    [
      Object.assign(new Error("m"), { status: 429, code: "insufficient_quota", headers: { "retry-after": 3 } }),
      { httpStatus: 429, providerCode: "insufficient_quota", retryAfterHeader: "3" },
    ],
    [
      { message: "m", response: { status: 503, headers: new Headers({ "Retry-After": "5" }) } },
      { httpStatus: 503, retryAfterHeader: "5", message: "m" },
    ],
    [
      { message: "m", name: "ThrottlingException", $metadata: { httpStatusCode: 400 } },
      { type: "ThrottlingException", httpStatus: 400 },
    ],
    [Object.assign(new Error("m"), { code: 14, metadata: {} }), { grpcStatus: 14 }],
    [
      new TypeError("fetch failed", {
        cause: Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" }),
      }),
      { message: "fetch failed: connect ECONNREFUSED", providerCode: "ECONNREFUSED", type: "TypeError" },
    ],
    [
      new ToolFailed("m", { httpStatus: 400, retryAfterMs: 1500, type: "t", providerCode: "p" }),
      { httpStatus: 400, type: "t", providerCode: "p" },
    ],
    [
      {
        get message() {
          return assert.fail();
        },
      },
      {},
    ],
  ];
  for (const [error, facts] of thrown) {
    const told = toolError(error) as unknown as Record<string, unknown>;
    for (const [name, value] of Object.entries(facts)) assert.equal(told[name], value, `${name} of ${String(error)}`);
    const outcome = await client.gate(newSession()).run("give", {}, () => Promise.reject(error), { patienceMs: 0 });
    assert.deepEqual([outcome.isError, outcome.recorded], [true, true]);
    assert.throws(() => outcome.unwrap());
  }
  assert(toolError(new Error("é".repeat(100_000))).message.length <= 32 * 1024);
});

test("integers that a number cannot hold reach the tool as they were judged", async () => {
  const json =
    '{"id":9007199254740993,"in":[-12345678901234567890],"text":"9007199254740993\\"1234567890123456789","near":9007199254740991,"part":0.1234567890123456789,"e":1e21}';
  const outcome = await client.gate(newSession()).run("look", json, (args) => args);
  assert.deepEqual(outcome.unwrap(), {
    id: 9007199254740993n,
    in: [-12345678901234567890n],
    text: '9007199254740993"1234567890123456789',
    near: 9007199254740991,
    part: 0.12345678901234568,
    e: 1e21,
  });
});

test("whatever a tool returns or throws is recorded", async () => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  const gone = new ArrayBuffer(8);
  structuredClone(gone, { transfer: [gone] });
  const facts = [{ totalMatches: 1.5 }, { totalMatches: -1 }, { costMicros: 0.5 }, { costMicros: -1 }];
  const values = [gone, ...facts.map((said) => new Result("v", said)), "\uFEFFa"];
  const headers = { get: () => assert.fail() };
  const errors = [proxy, { headers }, new ToolFailed("x", { httpStatus: 404.5, retryAfterMs: 0.5 })];
  errors.push(Object.assign(new Error("x"), { code: 1.5, metadata: {} }));
  for (const value of values) {
    const outcome = await client.gate(newSession()).run("look", {}, () => value);
    assert.deepEqual([outcome.recorded, outcome.isError], [true, false]);
    assert.equal(outcome.value, value instanceof Result ? "v" : value);
    if (typeof value === "string") assert.equal(JSON.parse(outcome.text).results, value);
  }
  for (const error of errors) {
    const execute = () => {
      throw error;
    };
    const outcome = await client.gate(newSession(), { patienceMs: 0 }).run("look", {}, execute);
    assert.deepEqual([outcome.recorded, outcome.isError, outcome.error === error], [true, true, true]);
  }
});

test("a time limit that is longer than timers go is none", async () => {
  const from = stage.client({ timeoutMs: Number.POSITIVE_INFINITY });
  const options = { timeoutMs: Number.POSITIVE_INFINITY };
  const outcome = await from.gate(newSession()).run("look", {}, () => pause(50, "done"), options);
  assert.equal(outcome.unwrap(), "done");
});

test("a log that throws holds up no report", async (t) => {
  const url = await fakePlane(t, {
    record: () => {
      throw new ConnectError("no", Code.InvalidArgument);
    },
  });
  const log = () => {
    throw new Error("no log");
  };
  const { reports } = stage.client({ server: url, log }).plane;
  const report = create(RecordRequestSchema, { caller: { sessionId: "s" }, status: OutcomeStatus.SUCCESS });
  await Promise.all(["a", "b"].map((callId) => reports.put({ ...report, callId })));
});

test("a call that is called off before the plane knows it is cancelled once it does", async (t) => {
  let told = 0;
  const record = () => {
    told += 1;
    if (told === 1) throw new ConnectError("not yet", Code.NotFound);
    return {};
  };
  const from = stage.client({ server: await fakePlane(t, { evaluate: () => pause(200, {}), record }) });
  const signal = AbortSignal.timeout(50);
  await assert.rejects(from.gate("s").run("pay", {}, assert.fail, { signal }));
  await from.plane.reports.flush(5_000);
  assert.equal(told, 2);
});
