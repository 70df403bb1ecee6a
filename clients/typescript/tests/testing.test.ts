/** Servers in memory for users' tests. */
import assert from "node:assert/strict";
import { existsSync, realpathSync } from "node:fs";
import { mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
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

test("the program is found by its variable, by its package and on the path", async () => {
  const [named, path, folder] = [process.env["CALLGATE_BIN"] as string, process.env["PATH"], process.cwd()];
  assert.equal(findBinary(), named);
  const home = realpathSync(await mkdtemp(join(tmpdir(), "callgate-")));
  const [bin, below] = [join(home, "node_modules/.bin"), join(home, "app/src")];
  try {
    process.env["CALLGATE_BIN"] = "/no/such/callgate";
    assert.throws(findBinary, /CALLGATE_BIN names/);
    delete process.env["CALLGATE_BIN"];
    process.env["PATH"] = home;
    await mkdir(below, { recursive: true });
    process.chdir(below);
    assert.throws(findBinary, /on PATH/);
    await symlink(resolve(folder, named), join(home, "callgate"));
    assert.equal(findBinary(), join(home, "callgate"));
    await mkdir(bin, { recursive: true });
    await symlink(resolve(folder, named), join(bin, "callgate"));
    assert.equal(findBinary(), join(bin, "callgate"));
  } finally {
    process.chdir(folder);
    Object.assign(process.env, { CALLGATE_BIN: named, PATH: path });
    await rm(home, { recursive: true });
  }
});
