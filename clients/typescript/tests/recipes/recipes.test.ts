// The programs in examples/typescript/recipes, as they stand, with the real frameworks and a scripted model.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { promisify } from "node:util";

import { CallState } from "@callgate/client";
import { MemoryServer } from "@callgate/client/testing";

import { model } from "../frameworks/model.js";

const POLICY = `
policy_engine:
  authorization:
    tiers:
      - {name: destructive, pattern: "delete_*", action: deny}
      - {name: rest, pattern: "*", action: allowlist}
  tool_schemas:
    find_orders: {effect: read, side_effect_resource: order}
    refund: {effect: write, once: true, side_effect_resource: "order/{order_id}"}
`;
const FIND = { tool: "find_orders", args: { query: "late" } };
const ORDER = { order_id: "o-17" };
const TURNS = [FIND, FIND, { tool: "refund", args: ORDER }, { tool: "delete_order", args: ORDER }];

test("Mastra: a recipe executes, refuses, answers repetitions, and shows its tools as they are", async () => {
  const server = await MemoryServer.start({ policy: POLICY });
  after(() => server.stop());
  const scripted = await model(TURNS, 1, randomUUID);
  after(scripted.stop);
  const env = {
    ...process.env,
    CALLGATE_SERVER: server.url,
    OPENAI_API_KEY: "none",
    OPENAI_BASE_URL: scripted.url,
    MASTRA_TELEMETRY_DISABLED: "1",
    HTTPS_PROXY: "http://127.0.0.1:9",
  };
  const { stdout } = await promisify(execFile)(process.execPath, ["built/mastra.js"], { env, timeout: 60_000 });
  assert.deepEqual(stdout.match(/^(finding|refunding|deleting).*$/gm), ["finding late", "refunding o-17"]);
  assert.match(stdout, /^done$/m);

  const [found, again, refunded, denied] = scripted.told.map((told) => JSON.parse(told));
  assert.deepEqual([found.status, found.results], ["success", ["o-17"]]);
  assert.deepEqual([again.status, again.previous_result], ["duplicate_call_blocked", ["o-17"]]);
  assert.deepEqual([refunded.status, refunded.results], ["success", { refunded: "o-17" }]);
  assert.equal(denied.status, "tool_denied");
  assert.match(denied.message, /the policy does not allow it/);

  const shown = scripted.tools.find((tool) => tool.function.name === "find_orders")!.function;
  assert.equal(shown.description, "Finds orders by a word.");
  assert.deepEqual(Object.keys(shown.parameters.properties), ["query", "limit"]);

  const { SUCCEEDED, REFUSED } = CallState;
  const { calls } = await server.client().gate("chat-1").state();
  assert.deepEqual(
    calls.map(({ state }) => state),
    [REFUSED, SUCCEEDED, REFUSED, SUCCEEDED],
  );
});
