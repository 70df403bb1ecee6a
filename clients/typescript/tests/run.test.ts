import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import {
  CallIdReused,
  Decision,
  InvalidArgument,
  NotStarted,
  Result,
  type Running,
  ToolFailed,
} from "@callgate/client";

import { BudgetDimension, CallState } from "@callgate/client/v1";
import { POLICY } from "./policy.js";
import { newSession, Stage } from "./stage.js";

const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();

const calls = async (sessionId: string) => (await client.calls.getSessionState({ sessionId })).state?.calls ?? [];

test("a call runs, and its repetition is answered with its result", async () => {
  const gate = client.gate(newSession());
  let runs = 0;
  const find = ({ id }: { id: number }) => ({ id, runs: ++runs });
  const first = await gate.run("find_order", { id: 7 }, find, { callId: "c1" });
  assert.deepEqual(first.unwrap(), { id: 7, runs: 1 });
  assert.match(first.text, /"results":\{"id":7,"runs":1\}/);
  assert.equal(first.recorded, true);
  const again = await gate.run("find_order", { id: 7 }, find, { callId: "c2" });
  assert.equal(again.decision, Decision.REUSE);
  assert.deepEqual(again.unwrap(), { id: 7, runs: 1 });
  assert.equal(runs, 1);
});

test("what is denied does not run, and says so to model and program", async () => {
  const outcome = await client.gate(newSession()).run("drop_table", {}, assert.fail);
  assert.deepEqual([outcome.decision, outcome.ran, outcome.isError], [Decision.DENY, false, true]);
  assert.match(outcome.text, /drop_table was not run: the policy does not allow it/);
  assert.throws(() => outcome.unwrap(), {
    name: "CallRefused",
    message: /^drop_table was not run: the policy does not allow it/,
  });
});

test("a WAIT is waited out, and never seen", async () => {
  const gate = client.gate(newSession());
  const texts = await Promise.all([1, 2].map(async (item) => (await gate.run("get_quote", { item }, () => item)).text));
  for (const text of texts) assert.match(text, /"status":"success"/);
});

test("a WAIT that is longer than patience is the outcome", async () => {
  const gate = client.gate(newSession(), { patienceMs: 0 });
  const outcomes = await gate.batch([1, 2].map((item) => ({ tool: "get_quote", args: { item }, execute: () => item })));
  assert.deepEqual(outcomes.map(({ decision }) => decision).sort(), [Decision.ALLOW, Decision.WAIT]);
});

const answered = async (sessionId: string, answer: { approve: boolean; reason?: string }) => {
  for (;;) {
    const { approvals } = await client.approvals.listApprovals({ sessionId });
    const [question] = approvals;
    const headers = { "callgate-by": "ann" };
    if (question) return client.approvals.resolveApproval({ ...answer, approvalId: question.approvalId }, { headers });
    await pause(20);
  }
};

test("a person is asked, says yes, and the call runs", async () => {
  const session = newSession();
  const running = client.gate(session).run("ask_refund", { order: 1 }, () => "refunded");
  await answered(session, { approve: true });
  assert.equal((await running).unwrap(), "refunded");
});

test("a person says no, and the model is told why", async () => {
  const session = newSession();
  const running = client.gate(session).run("ask_refund", { order: 1 }, assert.fail);
  await answered(session, { approve: false, reason: "the order is not paid" });
  const outcome = await running;
  assert.equal(outcome.decision, Decision.DENY);
  assert.match(outcome.text, /the order is not paid/);
});

test("a question that nobody waits for stays open, and is answered later", async () => {
  const session = newSession();
  const ask = () =>
    client.gate(session).run("ask_refund", { order: 1 }, () => "refunded", { callId: "c", approvalWaitMs: 0 });
  const open = await ask();
  assert.equal(open.decision, Decision.ASK);
  assert.notEqual(open.approvalId, "");
  await answered(session, { approve: true });
  assert.equal((await ask()).unwrap(), "refunded");
});

test("called off while a person is asked, the question is withdrawn", async () => {
  const session = newSession();
  const reason = new Error("the user has gone");
  const stop = new AbortController();
  const running = client.gate(session).run("ask_refund", {}, assert.fail, { signal: stop.signal });
  while ((await client.approvals.listApprovals({ sessionId: session })).approvals.length === 0) await pause(20);
  await pause(100);
  stop.abort(reason);
  await assert.rejects(running, (error) => error === reason);
  await settled();
  const { approvals } = await client.approvals.listApprovals({ sessionId: session });
  assert.equal(approvals[0]?.resolutionReason, "the call was cancelled");
});

/** Waits for the background. */
const settled = () => client.plane.reports.flush(5_000);

test("a failure that is worth a retry is retried, with the same key", async () => {
  const session = newSession();
  const seen: Running[] = [];
  const outcome = await client.gate(session).run(
    "find_order",
    { session },
    (_args, running) => {
      seen.push(running);
      if (seen.length === 1) throw Object.assign(new Error("busy"), { status: 503, headers: { "retry-after": "0" } });
      return "there";
    },
    { callId: "c" },
  );
  assert.equal(outcome.unwrap(), "there");
  assert.equal(outcome.attempts, 2);
  assert.deepEqual(
    seen.map(({ attempt }) => attempt),
    [1, 2],
  );
  assert.equal(seen[0]?.idempotencyKey, seen[1]?.idempotencyKey);
  assert.match(seen[0]?.idempotencyKey ?? "", /^[0-9a-f]{32}$/);
  const all = await calls(session);
  assert.deepEqual(
    all.map(({ callId, attempt, state }) => [callId, attempt, state]),
    [
      ["c", 2, CallState.SUCCEEDED],
      ["c", 1, CallState.FAILED],
    ],
  );
});

test("what may have taken effect is executed once, unless the program declares that it reads", async () => {
  const failures = [500, 502, 503, 504].map((httpStatus) => new ToolFailed("it broke", { httpStatus }));
  const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
  for (const failure of [new DOMException("no answer", "TimeoutError"), reset, ...failures]) {
    for (const [tool, readOnly, attempts] of [
      ["refund", false, 1],
      ["payout", false, 1],
      ["find", true, 2],
    ] as const) {
      let runs = 0;
      const execute = () => {
        runs += 1;
        if (runs === 1) throw failure;
        return "fine";
      };
      const session = newSession();
      const outcome = await client.gate(session).run(tool, { order: session }, execute, { readOnly });
      assert.deepEqual([runs, outcome.isError], [attempts, attempts === 1], `${tool}: ${failure.message}`);
      if (attempts === 1) assert.match(outcome.text, /may have taken effect/);
    }
  }
});

test("a look at what its witness says is the same is answered", async () => {
  const gate = client.gate(newSession());
  let state: string | undefined = "v1";
  let runs = 0;
  const page = async (execute = (): number => ++runs, witness = async () => state) => {
    const outcome = await gate.run("page", { path: "/a" }, execute, { witness });
    return [outcome.decision, outcome.unwrap()];
  };
  assert.deepEqual(
    [await page(), await page()],
    [
      [Decision.ALLOW, 1],
      [Decision.REUSE, 1],
    ],
  );
  state = "v2";
  assert.deepEqual(
    [await page(), await page()],
    [
      [Decision.ALLOW, 2],
      [Decision.REUSE, 2],
    ],
    "another state",
  );
  const changing = () => {
    state = "v4";
    return ++runs;
  };
  state = "v3";
  assert.deepEqual(
    [await page(changing), await page()],
    [
      [Decision.ALLOW, 3],
      [Decision.ALLOW, 4],
    ],
    "changed meanwhile",
  );
  state = undefined;
  assert.deepEqual(
    [await page(), await page()],
    [
      [Decision.ALLOW, 5],
      [Decision.ALLOW, 6],
    ],
    "nothing is known",
  );
  const failing = () => Promise.reject(new Error("no state"));
  assert.deepEqual(await page(undefined, failing), [Decision.ALLOW, 7]);
  const wrong = gate.run("page", {}, () => 1, { witness: "v1" as never });
  await assert.rejects(wrong, { message: 'witness: "v1" is no function' });
});

test("a timeout is retried where the tool has read the key, and only there", async () => {
  const session = newSession();
  const gate = client.gate(session);
  const ways: [string, (running: Running) => unknown, number][] = [
    ["transfer", ({ idempotencyKey }) => idempotencyKey, 2],
    ["transfer", ({ permit }) => permit?.idempotencyKey, 2],
    ["reimburse", ({ attempt, callId, permit }) => [attempt, callId, permit?.attempt], 1],
  ];
  for (const [n, [tool, reads, attempts]] of ways.entries()) {
    const keys: unknown[] = [];
    const execute = (_args: object, running: Running) => {
      keys.push(reads(running));
      if (keys.length === 1) throw new DOMException("no answer", "TimeoutError");
      return "paid";
    };
    const outcome = await gate.run(tool, { order: session, n }, execute);
    assert.deepEqual([keys.length, outcome.isError], [attempts, attempts === 1], `${n}: ${outcome.text}`);
    if (attempts === 2) assert.deepEqual([typeof keys[0], keys[0]], ["string", keys[1]]);
    else assert.equal(JSON.parse(outcome.text).status, "outcome_unknown");
  }
});

test("a late success settles a timeout, and answers the next attempt", async () => {
  const session = newSession();
  const gate = client.gate(session);
  const args = { order: session, note: "for the late parcel" };
  const refund = async () => {
    await pause(1_500);
    return { refunded: 7 };
  };
  const first = await gate.run("credit", args, refund, { timeoutMs: 100 });
  assert.match(first.text, /may have taken effect/);
  for (let n = 0; n < 100 && (await calls(session))[0]?.state !== CallState.SUCCEEDED; n++) await pause(100);
  const second = await gate.run("credit", args, refund);
  assert.deepEqual([second.ran, second.decision], [false, Decision.REUSE]);
  assert.match(second.text, /"previous_result":\{"refunded":7\}/);
});

test("a failure that is not worth a retry is told, and not retried", async () => {
  const failure = new ToolFailed("no such order", { httpStatus: 404, type: "order_missing" });
  let runs = 0;
  const outcome = await client.gate(newSession()).run("find_order", { id: 404 }, () => {
    runs += 1;
    throw failure;
  });
  assert.equal(runs, 1);
  assert.deepEqual([outcome.isError, outcome.error, outcome.ran], [true, failure, true]);
  assert.match(outcome.text, /"error_type":"not_found","error_message":"no such order"/);
  assert.throws(
    () => outcome.unwrap(),
    (error) => error === failure,
  );
});

test("mended arguments are those that run", async () => {
  const typed = await client.gate(newSession()).run("typed", '{"n": "7"}', (given) => given);
  assert.deepEqual(typed.unwrap(), { n: 7 });
});

test("arguments that cannot be read are the model's to mend", async () => {
  const outcome = await client.gate(newSession()).run("find_order", '{"id": 7', assert.fail);
  assert.equal(outcome.reason, "validation_error");
  assert.match(outcome.text, /"status":"validation_error"/);
});

test("what makes no sense is refused by name", async () => {
  const gate = client.gate(newSession());
  const circle: Record<string, unknown> = {};
  circle["circle"] = circle;
  await assert.rejects(gate.run("t", [] as object, assert.fail), /args: \[\]/);
  await assert.rejects(gate.run("t", circle, assert.fail), /args: .*circular/);
  await assert.rejects(gate.run("t", {}, assert.fail, { patienceMs: -1 }), /patienceMs: -1/);
  await assert.rejects(gate.run("t", {}, 7 as never), /execute: number/);
  await assert.rejects(gate.run("t", undefined as never, assert.fail), /args: undefined is neither/);
  await assert.rejects(gate.run(undefined as never, {}, assert.fail), /tool: undefined/);
  await assert.rejects(gate.run("t", {}, assert.fail, { callId: 7 as never }), /callId: 7/);
  await assert.rejects(gate.run("t", {}, assert.fail, { callID: "c" } as object), /no option callID; .* callId,/);
  assert.throws(() => client.gate("s", { failOpen: "t" }), /failOpen/);
  assert.throws(
    () => client.gate("s", { failopen: ["t"] } as object),
    /a gate has no option failopen; .* failOpen, usage$/,
  );
  assert.throws(() => stage.client({ tokn: "t" } as object), /a client has no option tokn; .* token,/);
  const noName = (error: InvalidArgument) => error instanceof InvalidArgument && error.field === "caller.session_id";
  await assert.rejects(client.gate("").run("t", {}, assert.fail), noName);
});

test("one id is one call at a time, and one tool and arguments", async () => {
  const gate = client.gate(newSession());
  const first = gate.run("look", {}, () => pause(200), { callId: "c" });
  await assert.rejects(gate.run("look", {}, assert.fail, { callId: "c" }), CallIdReused);
  await first;
  const other = gate.run("look", { other: 1 }, assert.fail, { callId: "c" });
  await assert.rejects(other, (error: CallIdReused) => error.reason === "CALL_ID_REUSED");
});

test("ids of turns differ, and long ones are shortened", async () => {
  const session = newSession();
  const gate = client.gate(session);
  await gate.run("look", {}, () => 1, { callId: "call_0", turn: "1" });
  await gate.run("look", { other: 1 }, () => 1, { callId: "call_0", turn: "2" });
  const long = await gate.run("look", { other: 2 }, () => 1, { callId: "é".repeat(101) });
  assert.match(long.callId, /^sha256:[0-9a-f]{64}$/);
  assert.deepEqual(
    (await calls(session)).map(({ callId }) => callId),
    [long.callId, "2/call_0", "1/call_0"],
  );
});

test("a long call keeps its lease", async () => {
  const session = newSession();
  const running = client.gate(session).run("brief", {}, () => pause(4_500, "done"), { callId: "c" });
  await pause(3_500);
  const during = await calls(session);
  assert.equal(during[0]?.state, CallState.IN_FLIGHT);
  assert.equal((await running).unwrap(), "done");
  assert.equal((await calls(session))[0]?.state, CallState.SUCCEEDED);
});

test("calls of one turn are judged together, and run at once", async () => {
  const session = newSession();
  let running = 0;
  let most = 0;
  const execute = async ({ n }: { n: number }) => {
    most = Math.max(most, ++running);
    await pause(100);
    running -= 1;
    return n;
  };
  const turn = Array.from({ length: 70 }, (_, n) => ({ tool: "look", args: { n }, execute, callId: `c${n}` }));
  const outcomes = await client.gate(session).batch([...turn, { tool: "drop_it", args: {}, execute, callId: "d" }]);
  assert.deepEqual(
    outcomes.slice(0, 70).map((outcome) => outcome.unwrap()),
    turn.map(({ args }) => args.n),
  );
  assert.equal(outcomes[70]?.decision, Decision.DENY);
  // The brake on rates has some of so many wait.
  assert(most > 8, `${most} at once`);
  assert.deepEqual(await client.gate(session).batch([]), []);
});

test("a tool that stopped before it did anything may be asked for again", async () => {
  const session = newSession();
  const gate = client.gate(session);
  const interrupt = new Error("interrupt");
  const stopped = () => {
    throw new NotStarted(interrupt);
  };
  await assert.rejects(gate.run("pay", { session }, stopped, { callId: "c" }), (error) => error === interrupt);
  await settled();
  assert.equal((await calls(session))[0]?.state, CallState.CANCELLED);
  assert.equal((await gate.run("pay", { session }, () => "paid", { callId: "c" })).unwrap(), "paid");
});

test("a result says more than its value", async () => {
  const outcome = await client
    .gate(newSession())
    .run("find_order", { id: "many" }, () => new Result([1, 2], { isComplete: true, totalMatches: 2 }));
  assert.deepEqual(outcome.unwrap() satisfies number[], [1, 2]);
  assert.match(outcome.text, /Found 2 matches, and that is all there is/);
});

test("what the model used is booked", async () => {
  const session = newSession();
  const usage = { inputTokens: 1_200n, costMicros: 5_000n };
  await client.gate(session).run("look", {}, () => 1, { usage });
  await client.gate(session).batch([{ tool: "look", args: { n: 1 }, execute: () => 1, usage }]);
  const { state } = await client.calls.getSessionState({ sessionId: session });
  const spent = state?.budgets.filter(({ dimension }) => dimension === BudgetDimension.COST_MICROS);
  assert.deepEqual(new Set(spent?.map(({ used }) => used)), new Set([10_000n]));
});

test("a verdict alone runs nothing, and run then has its permit", async () => {
  const session = newSession();
  const gate = client.gate(session);
  assert.equal((await gate.evaluate("drop_it", {}, { dryRun: true })).decision, Decision.DENY);
  await assert.rejects(calls(session), { reason: "SESSION_UNKNOWN" });
  const verdict = await gate.evaluate("look", {}, { callId: "c" });
  const outcome = await gate.run("look", {}, (_args, { idempotencyKey }) => idempotencyKey, { callId: "c" });
  assert.equal(outcome.unwrap(), verdict.permit?.idempotencyKey);
});
