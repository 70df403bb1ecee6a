/** Servers in memory for users' tests. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";

import { CallgateError } from "@callgate/client";
import { findBinary, MemoryServer } from "@callgate/client/testing";

const built = ["release", "debug"].map((kind) => `../../target/${kind}/callgate`).find((place) => existsSync(place));
process.env["CALLGATE_BIN"] ??= built ?? "callgate";

test("a server in memory decides, and is gone afterwards", async () => {
  const server = await MemoryServer.start({ policy: "policy_engine: {budgets: {run: {max_steps: 2}}}" });
  try {
    const client = server.client();
    const gate = client.gate("s");
    for (const order_id of [1, 2]) {
      const outcome = await gate.run("get_order", { order_id }, () => order_id);
      assert.equal(outcome.value, order_id);
    }
    const stopped = await gate.run("get_order", { order_id: 3 }, () => assert.fail("it ran"));
    assert.deepEqual([stopped.ran, stopped.reason], [false, "step_budget_exceeded"]);
    await assert.rejects(
      client.sessions.listCalls({}),
      (error) => error instanceof CallgateError && error.reason === "NEEDS_DATABASE",
    );
  } finally {
    await server.stop();
  }
  await server.stop();
  await assert.rejects(server.client().calls.getSessionState({ sessionId: "s" }));
});

test("a server that cannot start says why", async () => {
  await assert.rejects(MemoryServer.start({ policy: "policy_engine: {budgts: {}}" }), /budgts/);
  await assert.rejects(MemoryServer.start({ policy: "no-such.yaml" }), /no-such\.yaml/);
  await assert.rejects(MemoryServer.start({ binary: "/no/such/callgate" }), /ENOENT/);
});

test("the program is found by its variable", () => {
  const named = process.env["CALLGATE_BIN"];
  assert.equal(findBinary(), named);
  process.env["CALLGATE_BIN"] = "/no/such/callgate";
  try {
    assert.throws(findBinary, /CALLGATE_BIN names/);
  } finally {
    process.env["CALLGATE_BIN"] = named;
  }
});
