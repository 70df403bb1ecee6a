// What is wrong in a program or its settings, and how it is said. And a gate's state and runs.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Decision, ToolFailed } from "@callgate/client";

import { POLICY } from "./policy.js";
import { newSession, Stage } from "./stage.js";

const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();

test("a value of another type is refused by the name of its option", async () => {
  const gate = client.gate(newSession());
  assert.throws(() => client.gate(7 as never), { message: "sessionId: 7 is no text" });
  assert.throws(() => client.gate(undefined as never), { message: "sessionId: undefined is no text" });
  assert.throws(() => client.gate("s", { runId: 7 } as never), { message: "runId: 7 is no text" });
  const text = { message: 'patienceMs: "5000" is no number of milliseconds' };
  assert.throws(() => client.gate("s", { patienceMs: "5000" } as never), text);
  const refused = (options: object) => gate.run("t", {}, assert.fail, options);
  await assert.rejects(refused({ costEstimateMicros: "5" }), /costEstimateMicros: "5" is no whole number from 0 on/);
  await assert.rejects(refused({ costEstimateMicros: 1.5 }), /costEstimateMicros: 1\.5 is no whole number/);
  await assert.rejects(refused({ usage: { inputTokens: "12" } }), /usage\.inputTokens: "12" is no whole number from 0/);
  await assert.rejects(refused({ usage: { costMicros: -1 } }), /usage\.costMicros: -1 is no whole number from 0 on/);
  for (const options of [{ server: 7600 }, { token: 5 }, { timeoutMs: "9" }, { log: "console" }]) {
    const [[name, value]] = Object.entries(options) as [[string, unknown]];
    const message = new RegExp(`^${name}: ${JSON.stringify(value)} is no (text|function|number of milliseconds)$`);
    assert.throws(() => stage.client(options as object), { message });
  }
});

test("a server without TLS is told from one that is away", async () => {
  const lines: string[] = [];
  const server = `https://127.0.0.1:${stage.port}`;
  const from = stage.client({ server, timeoutMs: 3_000, log: (line) => lines.push(line) });
  const next = `start it with a certificate, or use http://127.0.0.1:${stage.port}`;
  const message = `server: ${server} does not speak TLS; ${next}`;
  await assert.rejects(from.gate("s").evaluate("look", {}), { message: `${message} (UNAVAILABLE)` });
  assert.equal((await from.gate("s").run("look", {}, assert.fail)).ran, false);
  assert.match(lines.join(), /does not speak TLS/);
});

test("a missing token file is named by its setting, and not missed where a token is given", () => {
  process.env["CALLGATE_TOKEN_FILE"] = "/missing/token";
  try {
    assert.throws(() => stage.client(), { message: /^CALLGATE_TOKEN_FILE: cannot read \/missing\/token: ENOENT/ });
    stage.client({ token: "cg_agent_1_2" });
  } finally {
    delete process.env["CALLGATE_TOKEN_FILE"];
  }
});

test("facts of a ToolFailed count as text too, and what is none is logged", async () => {
  const lines: string[] = [];
  const gate = stage.client({ log: (line) => lines.push(line) }).gate(newSession(), { patienceMs: 0 });
  const failing = (facts: object) => () => {
    throw new ToolFailed("slow down", facts);
  };
  const { text } = await gate.run("text_status", {}, failing({ httpStatus: "429", retryAfterMs: "3000" }));
  assert.match(text, /"error_type":"rate_limited","error_message":"slow down","retryable":true/);
  assert.deepEqual(lines, []);
  await gate.run("wrong_status", {}, failing({ httpStatus: 4290, retryAfterMs: "soon" }));
  assert.match(lines.join("\n"), /httpStatus: 4290 is no whole number from 100 to 599.*\n.*retryAfterMs: "soon" is no/);
});

test("a gate tells its state, a compaction and its next run", async () => {
  const session = newSession();
  const gate = client.gate(session, { runId: "one" });
  assert.deepEqual([(await gate.state()).sessionId, (await gate.compacted()).calls], [session, []]);
  const read = () => gate.run("find_order", { id: 1 }, () => "shipped");
  await read();
  assert.equal((await read()).decision, Decision.REUSE);
  const { summaryForModel, runId } = await gate.compacted({ summaryTokens: 300 });
  assert.deepEqual([/find_order/.test(summaryForModel), runId], [true, "one"]);
  assert.equal((await read()).decision, Decision.ALLOW);
  const next = gate.newRun();
  assert.notEqual(gate.newRun(), next);
  await next.run("look", {}, () => 1);
  assert.match((await next.state({ lastCalls: 1 })).runId, /^[0-9a-f]{32}$/);
  assert.equal((await gate.newRun("three").evaluate("look", {})).decision, Decision.ALLOW);
  assert.equal((await gate.state()).runId, "three");
});
