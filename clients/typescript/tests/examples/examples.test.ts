// Each example as it stands, a program of its own, against the real server and a scripted model.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp } from "node:fs/promises";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { model } from "../frameworks/model.js";
import { POLICY } from "../frameworks/story.js";
import { Stage } from "../stage.js";

// As a program of somebody who has installed the package: types held, then run.
await cp("../../examples/typescript", "target/examples", { recursive: true });
await promisify(execFile)(process.execPath, ["node_modules/typescript/bin/tsc", "-p", "tsconfig.examples.json"]).catch(
  ({ stdout }) => assert.fail(`the examples have errors:\n${stdout}`),
);

const stage = await Stage.serve({ after }, POLICY);
const look = { tool: "get_order", args: { order_id: "o-1" } };
const scripted = await model([look, look]);
after(() => scripted.stop());

/** An example as it is started. */
function started(name: string, args: string[] = [], server = stage.url) {
  const script = `target/examples/built/${name}.js`;
  const env = {
    ...process.env,
    CALLGATE_SERVER: server,
    OPENAI_API_KEY: "none",
    OPENAI_BASE_URL: `${scripted.url}/v1`,
    ANTHROPIC_API_KEY: "none",
    ANTHROPIC_BASE_URL: scripted.url,
  };
  return promisify(execFile)(process.execPath, [script, ...args], { env, timeout: 60_000 });
}

/** What an example prints. */
async function printed(name: string, ...args: string[]): Promise<string> {
  return (await started(name, args)).stdout;
}

for (const name of ["ai-sdk", "langchain", "openai-loop", "anthropic-loop"]) {
  test(`${name}: the second look at an order is answered from memory`, async () => {
    assert.match(await printed(name), /done/);
    assert.equal(scripted.told.length, 2);
    assert.match(scripted.told[0]!, /"results":{"order_id":"o-1","total":20}/);
    assert.match(scripted.told[1]!, /duplicate_call_blocked/);
  });
}

test("mcp: the call of a server's tool comes back", async () => {
  const server = fileURLToPath(new URL("shop.js", import.meta.url));
  assert.match(await printed("mcp", process.execPath, server), /total.*20/);
});

test("langchain: a person is asked in the terminal", async (t) => {
  const asking = await Stage.serve(t, POLICY.replace('"get_*", action: allowlist', '"get_*", action: hitl'));
  const running = started("langchain", [], asking.url);
  const { stdin, stdout } = running.child;
  stdout?.on("data", (text) => String(text).includes("[y/n]") && stdin?.write("y\n"));
  assert.match((await running).stdout, /"order_id":"o-1".* \[y\/n\] .*done/s);
  assert.match(scripted.told[0]!, /"results":{"order_id":"o-1","total":20}/);
});
