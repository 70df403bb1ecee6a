// The page of what is now, live: a call is there a second or two after it was made, and nothing else is redrawn.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { overflow, Plane, violations } from "./plane.js";

const POLICY = `policy_engine:
  authorization:
    tiers:
      - {name: asks, pattern: 'delete_*', action: hitl}
      - {name: rest, pattern: '*', action: allowlist}
  unknown_tools: allow
  tool_schemas:
    delete_order: {effect: write}
`;
let plane;
before(async () => { plane = await Plane.start(POLICY); });
after(() => plane?.stop());

let calls = 0;
const asks = (tool) => plane.call("GateService/Evaluate", {
  caller: { session_id: "night", agent_id: "robot" },
  call: { call_id: `c${++calls}`, tool, arguments_json: `{"n":${calls}}` },
});

test("a call is there within two seconds, in the same chart", async () => {
  await asks("look");
  const page = await plane.visitor();
  await page.waitForSelector("#chart-calls canvas");
  await page.evaluate(() => {
    globalThis.seen = [...document.querySelectorAll("canvas")];
    globalThis.redrawn = 0;
    const watch = new MutationObserver(() => { globalThis.redrawn += 1; });
    document.querySelectorAll(".plot").forEach((plot) => watch.observe(plot, { childList: true }));
  });
  await page.click("#hour summary");
  const before = Date.now();
  await asks("look");
  await page.waitForFunction(() => document.querySelector("#card-calls").textContent.includes("ALLOW 2"), null, { timeout: 5000 });
  assert.ok(Date.now() - before < 5000);
  await asks("delete_order");
  await page.waitForFunction(() => document.querySelector("#card-approvals .figure").textContent === "1");
  await page.waitForTimeout(2500);
  const now = await page.evaluate(() => ({
    same: globalThis.seen.every((canvas) => canvas.isConnected),
    count: document.querySelectorAll("canvas").length,
    redrawn: globalThis.redrawn,
    figures: document.querySelectorAll("figure.chart").length,
    open: document.querySelector("#hour").open,
    values: [...document.querySelectorAll("#minutes tbody tr")].flatMap((row) => [...row.cells].slice(1, 3).map((cell) => Number(cell.textContent))),
  }));
  assert.deepEqual([now.same, now.count, now.redrawn], [true, now.figures, 0], "each chart stays what it was");
  assert.ok(now.open, "what was opened stays open");
  assert.equal(now.values.reduce((sum, value) => sum + value, 0), 3);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("each figure has its chart, drawn from its own columns", async () => {
  await plane.call("SessionService/Halt", { scope: "HALT_SCOPE_TOOL", name: "pay", reason: "a drill" });
  const page = await plane.visitor();
  assert.deepEqual(await page.locator("figure.chart").evaluateAll((all) => all.map((one) => one.id)), ["chart-calls", "chart-spend"]);
  await page.goto(`${plane.url}/charts`);
  await page.waitForSelector("#chart-database canvas");
  const drawn = await page.evaluate(() => Object.fromEntries([...document.querySelectorAll("figure.chart")].map((figure) =>
    [figure.id, [...figure.querySelectorAll(".u-legend .u-label")].map((label) => label.textContent)])));
  assert.deepEqual(Object.keys(drawn), ["chart-calls", "chart-people", "chart-oldest", "chart-stopped", "chart-troubles",
    "chart-saved", "chart-load", "chart-database"], "without money and tokens, of which nothing was reported");
  assert.deepEqual(drawn["chart-stopped"], ["Sessions stopped", "Halts"]);
  assert.deepEqual(drawn["chart-load"], ["Calls in evaluation", "Calls queued", "Uncommitted", "No response"]);
  // The server looks each second, so its last look may be older than the halt, and than the page.
  const last = (name, holds) => page.waitForFunction(([name, holds]) => {
    const heads = [...document.querySelectorAll("#minutes thead tr:last-child > *")];
    const place = heads.findIndex((head) => head.textContent === name);
    const said = document.querySelector("#minutes tbody tr:last-child").cells[place].textContent.trim();
    return new RegExp(holds, "u").test(said);
  }, [name, holds], { timeout: 10_000 });
  await last("Halts", "^1$");
  await last("Database, milliseconds", "^[0-9.]+");
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

for (const colorScheme of ["light", "dark"]) {
  test(`with something on it, it is accessible and fits, ${colorScheme}`, async () => {
    const page = await plane.visitor({ colorScheme, viewport: { width: 360, height: 800 } });
    await page.waitForSelector("#chart-spend canvas");
    assert.deepEqual(await violations(page), []);
    assert.ok((await overflow(page)) <= 0);
    await page.setViewportSize({ width: 1600, height: 900 });
    await page.waitForFunction(() => document.querySelector("#chart-calls canvas").clientWidth > 400);
    assert.ok((await overflow(page)) <= 0);
    assert.deepEqual(page.faults, []);
    await page.context().close();
  });
}

test("a theme that is chosen redraws the charts once, and leaves nothing behind", async () => {
  const page = await plane.visitor({ colorScheme: "light" });
  await page.waitForSelector("#chart-spend canvas");
  for (let n = 0; n < 3; n++) await page.click("[data-theme-toggle]");
  assert.equal(await page.locator("canvas").count(), await page.locator("figure.chart").count());
  assert.deepEqual(page.faults, []);
  await page.context().close();
});
