import assert from "node:assert/strict";
import { test } from "node:test";

import { Decision } from "@callgate/client";

import { Stage } from "./stage.js";

test("a call runs, and its repetition is answered with its result", async (t) => {
  const stage = await Stage.serve(t, "policy_engine:\n  tool_schemas:\n    find_order: { effect: read }\n");
  const gate = stage.client(t).gate("s1");
  let runs = 0;
  const find = ({ id }: { id: number }) => ({ id, runs: ++runs });
  const first = await gate.run("find_order", { id: 7 }, find, { callId: "c1" });
  assert.deepEqual(first.unwrap(), { id: 7, runs: 1 });
  assert.match(first.text, /"results":\{"id":7,"runs":1\}/);
  const again = await gate.run("find_order", { id: 7 }, find, { callId: "c2" });
  assert.equal(again.decision, Decision.REUSE);
  assert.deepEqual(again.unwrap(), { id: 7, runs: 1 });
  assert.equal(runs, 1);
});
