/** No outcome is lost, and no permit stays open, whatever the plane answers and however the program ends. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { create } from "@bufbuild/protobuf";
import { CallgateUnavailable, CallIdReused, Client, type ClientOptions, Code, Decision } from "@callgate/client";
import { OutcomeStatus, RecordRequestSchema, Repeat } from "@callgate/client/v1";
import { ConnectError } from "@connectrpc/connect";

import { fakePlane } from "./fake.js";

type Verdict = "allow" | "wait" | Code;
const failure = (code: Code) => new ConnectError("not now", code);

/** A plane whose last answer holds for all that follow; it says what it took as `CALL STATUS`. */
async function plane(t: TestContext, verdicts: Verdict[], records: (Code | undefined)[] = [undefined]) {
  const next = <T>(answers: T[]) => (answers.length > 1 ? answers.shift() : answers[0]);
  const fake = { verdicts, records, came: [] as string[], response: {}, url: "", held: Promise.resolve(), holds: 0 };
  const verdict = () => {
    const answer = next(fake.verdicts);
    if (typeof answer === "number") throw failure(answer);
    return answer === "wait" ? { decision: Decision.WAIT } : { decision: Decision.ALLOW, permit: { attempt: 1 } };
  };
  fake.url = await fakePlane(t, {
    evaluate: () => ({ verdict: verdict() }),
    batchEvaluate: ({ calls }) => ({ verdicts: calls.map(verdict) }),
    record: async ({ callId, status, notStarted }) => {
      // A heartbeat.
      if (status === OutcomeStatus.RUNNING) return {};
      fake.holds += 1;
      await fake.held;
      const code = next(fake.records);
      if (code !== undefined) throw failure(code);
      fake.came.push(`${callId} ${notStarted ? "not started" : OutcomeStatus[status]}`);
      return fake.response;
    },
  });
  return fake;
}

/** A client, and what it has logged. */
function clientOf(t: TestContext, server: string, options: ClientOptions = {}) {
  const said: string[] = [];
  const client = new Client({ server, log: (message) => said.push(message), ...options });
  t.after(() => client.close({ timeoutMs: 0 }));
  return { client, said };
}

const closed = (client: Client) => client.close({ timeoutMs: 20_000 });

test("the lost answer of a poll is called off", async (t) => {
  const fake = await plane(t, ["wait", Code.Internal]);
  const { client } = clientOf(t, fake.url);
  const outcome = await client.gate("s", { patienceMs: 200 }).run("pay", {}, assert.fail, { callId: "c" });
  assert.deepEqual([outcome.decision, outcome.ran], [Decision.WAIT, false]);
  assert.deepEqual(await closed(client), []);
  assert.deepEqual(fake.came, ["c not started"]);
});

test("the answer of a later poll makes up for a lost one", async (t) => {
  const fake = await plane(t, ["wait", Code.Internal, "wait"]);
  const { client } = clientOf(t, fake.url);
  await client.gate("s", { patienceMs: 2_500 }).run("pay", {}, assert.fail, { callId: "c" });
  assert.deepEqual(await closed(client), []);
  assert.deepEqual(fake.came, []);
});

test("the lost answer of a retry is called off", async (t) => {
  const fake = await plane(t, ["allow", Code.Internal]);
  fake.response = { isError: true, advice: { repeat: Repeat.BY_CLIENT } };
  const { client } = clientOf(t, fake.url);
  const outcome = await client.gate("s").run("pay", {}, () => Promise.reject(new Error("busy")), { callId: "c" });
  assert.deepEqual([outcome.attempts, outcome.isError], [1, true]);
  assert.deepEqual(await closed(client), []);
  assert.deepEqual(fake.came, ["c ERROR", "c not started"]);
});

test("the lost answer of a bare question is called off, but not that of a dry run", async (t) => {
  const fake = await plane(t, [Code.Internal]);
  const { client } = clientOf(t, fake.url);
  const gate = client.gate("s");
  await assert.rejects(gate.evaluate("pay", {}, { callId: "dry", dryRun: true }), CallgateUnavailable);
  await assert.rejects(gate.evaluate("pay", {}, { callId: "c" }), CallgateUnavailable);
  assert.deepEqual(await closed(client), []);
  assert.deepEqual(fake.came, ["c not started"]);
});

test("a bare question withdraws the cancellation of the one before", async (t) => {
  const fake = await plane(t, [Code.Internal, "allow"], [Code.ResourceExhausted]);
  const { client } = clientOf(t, fake.url);
  const gate = client.gate("s");
  await assert.rejects(gate.evaluate("pay", {}, { callId: "c" }), CallgateUnavailable);
  assert.equal((await gate.evaluate("pay", {}, { callId: "c" })).decision, Decision.ALLOW);
  fake.records = [undefined];
  assert.deepEqual(await closed(client), []);
  assert.deepEqual(fake.came, []);
  assert.equal((await gate.run("pay", {}, () => "paid", { callId: "c" })).recorded, true);
  assert.deepEqual(fake.came, ["c SUCCESS"]);
});

test("another client withdraws a cancellation, and sends an outcome first", async (t) => {
  const fake = await plane(t, [Code.Internal, "allow"], [Code.ResourceExhausted]);
  const { client } = clientOf(t, fake.url);
  const pay = (by: Client, callId: string) => by.gate("s").run("pay", {}, () => "paid", { callId });
  assert.equal((await pay(client, "cancelled")).ran, false);
  assert.equal((await pay(client, "executed")).recorded, false);
  assert.equal((await client.close({ timeoutMs: 0 })).length, 2);
  const { client: other } = clientOf(t, fake.url);
  assert.equal((await pay(other, "cancelled")).ran, true);
  await assert.rejects(pay(other, "executed"), { name: "ResourceExhausted" });
  assert.deepEqual(await client.close({ timeoutMs: 0 }), []);
  fake.records = [undefined];
  assert.deepEqual(await closed(other), []);
  assert.deepEqual(fake.came.sort(), ["cancelled SUCCESS", "executed SUCCESS"]);
});

test("a call that runs is not asked about", async (t) => {
  const fake = await plane(t, ["allow"]);
  const gate = clientOf(t, fake.url).client.gate("s");
  const outcome = await gate.run("pay", {}, () => gate.evaluate("pay", {}, { callId: "c" }), { callId: "c" });
  assert.throws(() => outcome.unwrap(), CallIdReused);
});

test("a batch that is refused as a whole cancels no call", async (t) => {
  const fake = await plane(t, [Code.FailedPrecondition]);
  const { client } = clientOf(t, fake.url);
  const call = { tool: "pay", args: {}, execute: assert.fail, callId: "another's" };
  await assert.rejects(client.gate("s").batch([call]), { name: "FailedPrecondition" });
  assert.deepEqual(await closed(client), []);
  assert.deepEqual(fake.came, []);
});

for (const code of [Code.ResourceExhausted, Code.Unauthenticated, Code.Internal]) {
  test(`an outcome that meets ${Code[code]} is sent later`, async (t) => {
    const fake = await plane(t, ["allow"], [code, code, undefined]);
    const { client } = clientOf(t, fake.url);
    const outcome = await client.gate("s").run("pay", {}, () => "paid", { callId: "c" });
    assert.deepEqual([outcome.unwrap(), outcome.recorded], ["paid", false]);
    assert.deepEqual(await closed(client), []);
    assert.deepEqual(fake.came, ["c SUCCESS"]);
  });
}

/** An outcome, or a cancellation. */
const report = (callId: string, notStarted = false) => {
  const status = notStarted ? OutcomeStatus.CANCELLED : OutcomeStatus.SUCCESS;
  return create(RecordRequestSchema, { caller: { sessionId: "s" }, callId, status, notStarted });
};

test("executed outcomes are sent before cancellations, which replace none", async (t) => {
  const fake = await plane(t, ["allow"]);
  const { client } = clientOf(t, fake.url);
  const { reports } = client.plane;
  fake.held = pause(300);
  void reports.put(report("sent"));
  for (const callId of ["sent", "a", "b"]) void reports.put(report(callId, true));
  for (const callId of ["b", "c"]) void reports.put(report(callId));
  void reports.put(report("c", true));
  assert.deepEqual(await closed(client), []);
  assert.deepEqual(fake.came, ["sent SUCCESS", "b SUCCESS", "c SUCCESS", "a not started"]);
});

test("a full queue drops cancellations and no outcome, and nothing runs", async (t) => {
  const fake = await plane(t, ["allow"]);
  const { client, said } = clientOf(t, fake.url);
  const { reports } = client.plane;
  fake.held = pause(2_000);
  void reports.put(report("dropped", true));
  void reports.put(report("cancelled", true));
  for (let n = 0; n < 10_000; n++) void reports.put(report(`c${n}`));
  assert(reports.isFull);
  const outcome = await client.gate("s", { failOpen: true }).run("pay", {}, assert.fail);
  assert.deepEqual([outcome.ran, outcome.reason], [false, "callgate_unavailable"]);
  assert.match(said[0] ?? "", /the cancellation of call cancelled of session s is not stored: too many reports wait/);
  const unsent = await client.close({ timeoutMs: 0 });
  assert.deepEqual(unsent[0], { sessionId: "s", callId: "cancelled", executed: false });
  assert.equal(unsent.filter(({ executed }) => executed).length, 10_000);
  for (let n = 10; n < 10_000; n++) await reports.takeOutcome(JSON.stringify(["s", `c${n}`]));
  assert(!reports.isFull);
  assert.deepEqual(await closed(client), []);
  assert.equal(fake.came.filter((one) => one.endsWith("SUCCESS")).length, 10);
});

test("a cancellation of a call that the plane does not know holds up nothing", async (t) => {
  const fake = await plane(t, [Code.Internal], [Code.NotFound, Code.NotFound, undefined]);
  const { client } = clientOf(t, fake.url);
  await client.gate("s").run("pay", {}, assert.fail, { callId: "unknown" });
  while (fake.records.length > 1) await pause(10);
  fake.verdicts = ["allow"];
  fake.records = [Code.ResourceExhausted, undefined];
  await client.gate("s").run("pay", {}, () => "paid", { callId: "c" });
  assert.deepEqual(await closed(client), []);
  assert.deepEqual(fake.came, ["c SUCCESS", "unknown not started"]);
});

test("close says what is not stored", async (t) => {
  const fake = await plane(t, ["allow"], [Code.InvalidArgument, Code.ResourceExhausted]);
  const { client, said } = clientOf(t, fake.url);
  for (const callId of ["refused", "waits"]) await client.gate("s").run("pay", {}, () => "paid", { callId });
  const [refused, waits] = ["refused", "waits"].map((callId) => ({ sessionId: "s", callId, executed: true }));
  assert.deepEqual(await client.close({ timeoutMs: 100 }), [refused, waits]);
  assert.match(said[0] ?? "", /the outcome of call refused of session s is not stored: .*INVALID_ARGUMENT/);
  assert.match(said[1] ?? "", /2 executed outcomes are not stored; the first is of call refused/);
  fake.records = [undefined];
  while (fake.came.length === 0) await pause(10);
  assert.deepEqual(fake.came, ["waits SUCCESS"]);
  assert.deepEqual(await client.close(), []);
  await assert.rejects(client.close({ timeoutMs: -1 }), RangeError);
});

test("close waits for what other calls report", async (t) => {
  const fake = await plane(t, ["allow"]);
  const { client } = clientOf(t, fake.url);
  fake.held = pause(600);
  const running = client.gate("s").run("pay", {}, () => "paid", { callId: "c" });
  while (fake.holds === 0) await pause(10);
  assert.deepEqual(await client.close({ timeoutMs: 50 }), [{ sessionId: "s", callId: "c", executed: true }]);
  await running;
  fake.held = pause(300);
  const again = client.gate("s").run("pay", {}, () => "paid", { callId: "d" });
  const before = fake.holds;
  while (fake.holds === before) await pause(10);
  assert.deepEqual(await closed(client), []);
  assert.equal((await again).recorded, true);
  assert.equal(fake.came.at(-1), "d SUCCESS");
});

const PROGRAM = fileURLToPath(new URL("leaves.js", import.meta.url));

test("a process that ends without a close sends what waits", async (t) => {
  const fake = await plane(t, ["allow"], [Code.ResourceExhausted, Code.ResourceExhausted, undefined]);
  const child = spawn(process.execPath, [PROGRAM, fake.url], { stdio: "inherit" });
  assert.deepEqual(await once(child, "exit"), [0, null]);
  assert.deepEqual(fake.came, ["c SUCCESS"]);
});

test("a process ends within seconds where the plane takes nothing", async (t) => {
  const fake = await plane(t, ["allow"], [Code.ResourceExhausted]);
  const child = spawn(process.execPath, [PROGRAM, fake.url], { stdio: ["ignore", "inherit", "pipe"] });
  let said = "";
  child.stderr.on("data", (chunk) => {
    said += chunk;
  });
  assert.deepEqual(await once(child, "exit"), [0, null]);
  assert.match(said, /1 executed outcomes are not stored; the first is of call c of session s/);
});
