import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { CallgateError, CallgateUnavailable, type Client, Decision, Unauthenticated } from "@callgate/client";
import { CallState } from "@callgate/client/v1";
import { Code, ConnectError } from "@connectrpc/connect";

import { Between, fakePlane } from "./fake.js";
import { POLICY } from "./policy.js";
import { newSession, Stage } from "./stage.js";

const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();
const calls = async (from: Client, sessionId: string) =>
  (await from.calls.getSessionState({ sessionId })).state?.calls ?? [];
const settled = (of: Client) => of.plane.reports.flush(10_000);
const NOBODY = "http://127.0.0.1:1";

test("nothing runs while the plane is away, and the model is told so", async () => {
  const said: string[] = [];
  const away = stage.client({ server: NOBODY, timeoutMs: 300, log: (message) => said.push(message) });
  const outcome = await away.gate("s").run("pay", {}, assert.fail);
  assert.deepEqual([outcome.ran, outcome.isError, outcome.reason], [false, true, "callgate_unavailable"]);
  assert(outcome.error instanceof CallgateUnavailable);
  assert.match(outcome.message, /^pay was not run, and nothing was done: .* Go on without this call/);
  assert.match(
    said[0] ?? "",
    /^callgate: http:\/\/127\.0\.0\.1:1 gives no answer, and pay was not run: .* \([A-Z_]+\)$/,
  );
  const [first] = await away.gate("s").batch([{ tool: "pay", args: {}, execute: assert.fail }]);
  assert.equal(first?.reason, "callgate_unavailable");
});

test("what may run without the plane runs, and is reported when it is back", async (t) => {
  const other = await Stage.serve(t, POLICY);
  const session = newSession();
  const from = other.client({ timeoutMs: 6_000 });
  await from.gate(session).run("find_order", { id: 1 }, () => 1, { callId: "before" });
  await other.stop();
  const gate = from.gate(session, { failOpen: ["find_order"] });
  const found = await gate.run("find_order", { id: 2 }, ({ id }) => id, { callId: "during" });
  assert.deepEqual([found.unwrap(), found.ran, found.recorded, found.decision], [2, true, false, undefined]);
  const unreadable = await gate.run("find_order", '{"id', assert.fail);
  assert.equal(unreadable.ran, false);
  assert.equal((await gate.run("pay", { session }, assert.fail)).ran, false);
  await other.start();
  await settled(from);
  const [during] = await calls(from, session);
  assert.deepEqual([during?.callId, during?.state], ["during", CallState.SUCCEEDED]);
});

test("a server that dies under a call costs neither its value nor a second execution", async (t) => {
  const other = await Stage.serve(t, POLICY);
  const from = other.client({ timeoutMs: 6_000 });
  const session = newSession();
  let runs = 0;
  const pay = async () => {
    await other.stop("SIGKILL");
    return ++runs;
  };
  const gate = from.gate(session);
  const first = await gate.run("pay", { session }, pay, { callId: "c" });
  assert.deepEqual([first.value, first.recorded, first.text, first.isError], [1, false, "1", false]);
  const again = await gate.run("pay", { session }, pay, { callId: "c" });
  assert.deepEqual([again.ran, again.isError], [false, true]);
  assert.match(again.message, /pay was not run again: this call has run before/);
  await other.start();
  const back = await gate.run("pay", { session }, pay, { callId: "c" });
  assert.deepEqual([back.decision, back.unwrap()], [Decision.REUSE, 1]);
  assert.equal(runs, 1);
  const states = (await calls(from, session)).map(({ state }) => state);
  assert.deepEqual(states, [CallState.REFUSED, CallState.SUCCEEDED]);
});

test("a server that stands still has nothing executed, and nothing is left in flight", async (t) => {
  const other = await Stage.serve(t, POLICY);
  const from = other.client({ timeoutMs: 6_000 });
  const session = newSession();
  const gate = from.gate(session);
  await gate.run("look", {}, () => 1, { callId: "before" });
  other.signal("SIGSTOP");
  const outcome = await gate.run("pay", { session }, assert.fail, { callId: "c" });
  other.signal("SIGCONT");
  assert.equal(outcome.reason, "callgate_unavailable");
  await settled(from);
  const [last] = await calls(from, session);
  assert.notEqual(last?.state, CallState.IN_FLIGHT);
  assert.equal((await gate.run("pay", { session }, () => "paid")).unwrap(), "paid");
});

test("a call that waits for a person outlives a restart", async (t) => {
  const other = await Stage.serve(t, POLICY);
  const from = other.client({ timeoutMs: 6_000 });
  const session = newSession();
  const running = from.gate(session).run("ask_refund", {}, () => "refunded");
  const listed = async () => (await from.approvals.listApprovals({ sessionId: session })).approvals;
  while ((await listed()).length === 0) await pause(50);
  await other.stop();
  await pause(1_500);
  await other.start();
  const approvals = await listed();
  const answer = { approvalId: approvals[0]?.approvalId ?? "", approve: true };
  await from.approvals.resolveApproval(answer, { headers: { "callgate-by": "ann" } });
  assert.equal((await running).unwrap(), "refunded");
});

test("a credential that does not hold is a typed error, and nothing runs", async () => {
  const stranger = stage.client({ token: "cg_nobody" });
  const refused = (error: unknown) => error instanceof Unauthenticated && error.reason === "UNAUTHENTICATED";
  await assert.rejects(stranger.gate("s").run("look", {}, assert.fail), refused);
  await assert.rejects(stranger.gate("s", { failOpen: true }).run("look", {}, assert.fail), refused);
  await assert.rejects(stranger.server.getServerInfo({}), refused);
  await assert.rejects(async () => {
    for await (const _ of stranger.approvals.watchApprovals({})) assert.fail();
  }, CallgateError);
});

test("a server without a scheme is encrypted unless it is this machine", () => {
  const urls = {
    "127.0.0.1:7600": "http://127.0.0.1:7600",
    "LOCALHOST:7600": "http://localhost:7600",
    "[::1]:7600": "http://[::1]:7600",
    "callgate.example.com": "https://callgate.example.com",
    "plane:7600": "https://plane:7600",
    "localhost.example:1": "https://localhost.example:1",
    "http://plane:7600": "http://plane:7600",
  };
  for (const [server, url] of Object.entries(urls)) {
    assert.equal(stage.client({ server, token: "" }).plane.settings.server.origin, url);
  }
});

test("settings that make no sense are refused by name", () => {
  const refused: [object, RegExp][] = [
    [{ server: "ftp://plane" }, /server: "ftp:\/\/plane" is not/],
    [{ server: "http://plane:1", token: "t" }, /server: a token would travel to http:\/\/plane:1/],
    [{ server: NOBODY, token: "a\nb" }, /token:/],
    [{ server: NOBODY, cert: "c" }, /cert and key/],
    [{ server: NOBODY, ca: "/nowhere.pem" }, /ca: cannot read \/nowhere\.pem/],
    [{ server: NOBODY, timeoutMs: -1 }, /timeoutMs: -1/],
  ];
  for (const [options, message] of refused) assert.throws(() => stage.client(options), message);
});

test("a proxy that cuts what is idle is not noticed", async (t) => {
  const proxy = await Between.serve(t, stage.port, 150);
  const from = stage.client({ server: proxy.url });
  const gate = from.gate(newSession());
  let runs = 0;
  for (let n = 0; n < 3; n++) {
    const outcome = await gate.run("look", { n }, () => pause(400, ++runs));
    assert.deepEqual([outcome.unwrap(), outcome.recorded], [n + 1, true]);
    await pause(300);
  }
  assert.equal(runs, 3);
  assert(proxy.opened > 3, `${proxy.opened} connections`);
});

test("answers that are lost on the way have nothing executed twice", async (t) => {
  const proxy = await Between.serve(t, stage.port);
  const from = stage.client({ server: proxy.url });
  const session = newSession();
  const gate = from.gate(session);
  let runs = 0;
  const pay = () => {
    // Of Record, as of Evaluate below, the server has the request, and the client no answer.
    proxy.isDeaf = true;
    setTimeout(() => {
      proxy.isDeaf = false;
    }, 100);
    return ++runs;
  };
  await gate.run("look", {}, () => 1);
  proxy.isDeaf = true;
  setTimeout(() => {
    proxy.isDeaf = false;
  }, 100);
  const outcome = await gate.run("pay", { session }, pay, { callId: "c" });
  assert.deepEqual([outcome.unwrap(), outcome.recorded, outcome.attempts], [1, true, 1]);
  const [last] = await calls(client, session);
  assert.deepEqual([last?.callId, last?.state, last?.attempt], ["c", CallState.SUCCEEDED, 1]);
});

test("a way that is cut without a word is replaced before the time is over", async (t) => {
  const proxy = await Between.serve(t, stage.port);
  const gate = stage.client({ server: proxy.url, timeoutMs: 30_000 }).gate(newSession());
  await gate.run("look", {}, () => 1);
  proxy.forget();
  assert.equal((await gate.run("look", { n: 1 }, () => "there")).unwrap(), "there");
  assert.equal(proxy.opened, 2);
});

test("a client that is closed under a request ends no process", async () => {
  const closed = stage.client();
  const stop = new AbortController();
  const running = closed.gate(newSession()).run("ask_refund", {}, assert.fail, { signal: stop.signal });
  await pause(500);
  await closed.close();
  // Longer than it takes until a ping.
  await pause(6_000);
  stop.abort(new Error("gone"));
  await assert.rejects(running, /gone/);
});

test("a process that exits under a call leaves an outcome that is unknown, and is not repeated", async () => {
  const session = newSession();
  const program = fileURLToPath(new URL("exits.js", import.meta.url));
  const child = spawn(process.execPath, [program, stage.url, session], { stdio: "inherit" });
  assert.deepEqual(await once(child, "exit"), [7, null]);
  await pause(2_500);
  const outcome = await client.gate(session).run("brief_write", {}, assert.fail);
  assert.deepEqual([outcome.decision, outcome.reason], [Decision.DENY, "outcome_unknown"]);
});

test("an overloaded plane is asked again when it says so", async (t) => {
  let asked = 0;
  const url = await fakePlane(t, {
    evaluate: () => {
      asked += 1;
      throw new ConnectError("busy", asked < 3 ? Code.Unavailable : Code.PermissionDenied);
    },
  });
  const from = stage.client({ server: url });
  await assert.rejects(from.gate("s").run("look", {}, assert.fail), { name: "PermissionDenied" });
  assert.equal(asked, 3);
});

test("what may not be sent twice is sent once", async (t) => {
  const proxy = await Between.serve(t, 1);
  const from = stage.client({ server: proxy.url, timeoutMs: 1_000 });
  await assert.rejects(from.policies.rollbackPolicy({}), CallgateUnavailable);
  assert.equal(proxy.opened, 1);
});

test("the current span goes along", async (t) => {
  let headers: Headers | undefined;
  const url = await fakePlane(t, {
    evaluate: (_request, { requestHeader }) => {
      headers = requestHeader;
      throw new ConnectError("no", Code.PermissionDenied);
    },
  });
  const registered = Symbol.for("opentelemetry.js.api.1");
  const span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  // As @opentelemetry/api registers a context and a propagator.
  const inject = (context: unknown, carrier: unknown, setter: { set: (...args: unknown[]) => void }) =>
    setter.set(carrier, "traceparent", context);
  Object.assign(globalThis, { [registered]: { context: { active: () => span }, propagation: { inject } } });
  t.after(() => delete (globalThis as { [registered]?: unknown })[registered]);
  const from = stage.client({ server: url, token: "t", by: "ann" });
  await assert.rejects(from.gate("s").run("look", {}, assert.fail));
  assert.equal(headers?.get("traceparent"), span);
  assert.equal(headers?.get("authorization"), "Bearer t");
  assert.equal(headers?.get("callgate-by"), "ann");
});
