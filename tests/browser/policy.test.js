// The policy in a browser: a text that is checked, what it changes, tried on stored calls, activated, and rolled back.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { overflow, Plane, violations } from "./plane.js";

const ONE = `policy_engine:
  tool_schemas:
    get_order: {effect: read}
`;
const TWO = `policy_engine:
  authorization: {tiers: [{name: nobody, pattern: 'get_*', action: deny}]}
  tool_schemas:
    get_order: {effect: read}
`;
// So many that a backtest of them takes seconds in any build: its progress is looked at.
const CALLS = 3_000;
let plane, page;
before(async () => {
  plane = await Plane.start();
  for (let n = 0; n < CALLS; n++) {
    await plane.call("GateService/Evaluate", {
      caller: { session_id: `s${n}` }, call: { call_id: "c1", tool: "get_order", arguments_json: `{"n":${n}}` },
    });
  }
  page = await plane.visitor();
});
after(() => plane?.stop());

async function fine() {
  assert.deepEqual(await violations(page), [], page.url());
  const size = page.viewportSize();
  await page.setViewportSize({ width: 360, height: 800 });
  assert.deepEqual(await violations(page), [], page.url());
  assert.ok((await overflow(page)) <= 0, `${page.url()} is wider than its window`);
  await page.setViewportSize(size);
  assert.deepEqual(page.faults, []);
}

async function check(text) {
  await page.goto(`${plane.url}/policy`);
  await page.click("#try summary");
  await page.fill("#text", text);
  await page.click("#try button");
  await page.waitForSelector("#checked");
}

async function apply(text, why) {
  await check(text);
  await page.fill("#note-apply", why);
  await page.check("#sure-apply");
  await page.click("button >> text=Activate");
  await page.waitForFunction(() => !document.querySelector("#checked"));
}

test("a mistake is marked in its line, and what was written is kept", async () => {
  await check(ONE.replace("effect: read", "effekt: read"));
  assert.equal(await page.locator("#checked mark.line").textContent(), "    get_order: {effekt: read}");
  await page.click("#checked a[href='#line-3']");
  assert.ok(await page.locator("#line-3").isVisible());
  assert.match(await page.inputValue("#text"), /effekt/);
  await fine();
});

test("a text is applied after a look at what it changes, with who and why", async () => {
  await check(ONE);
  assert.match(await page.locator("#difference").textContent(), /get_order/);
  await fine();
  await apply(ONE, "the first");
  await apply(TWO, "nobody looks up orders");
  assert.match(await page.locator("main").textContent(), /nobody looks up orders/);
  await page.click("text=Compare two versions");
  await page.waitForSelector("text=Compare");
  assert.match(await page.locator("main").textContent(), /authorization\.tiers\[nobody\]\.action/);
  await fine();
});

test("a backtest shows how far it is, and then what would change, with its calls", async () => {
  await page.goto(`${plane.url}/policy?hash=`);
  await check(ONE);
  await page.click("text=Start the backtest");
  await page.waitForURL(/backtests/);
  await page.waitForFunction(() => Number(document.querySelector("#how-far")?.value) > 0);
  await fine();
  await page.waitForSelector("#came", { timeout: 60_000 });
  assert.match(await page.locator("main").textContent(), /3,000 of 3,000 calls would get another decision/);
  await fine();
  await page.click("main a[href^='/calls/']");
  await page.waitForURL(/calls/);
});

test("a backtest is cancelled", async () => {
  await check(ONE);
  await page.click("text=Start the backtest");
  await page.waitForURL(/backtests/);
  await page.click("button >> text=Cancel");
  await page.waitForSelector("text=Cancelled.");
  assert.equal(await page.locator("#how-far").count(), 0);
  await fine();
});

test("a roll back asks first, says what it changes, and is refused where somebody was faster", async () => {
  await page.goto(`${plane.url}/policy`);
  await page.click("text=Roll back…");
  await page.waitForURL(/rollback/);
  assert.match(await page.locator("main").textContent(), /authorization\.tiers\[nobody\]\.action/);
  await fine();
  await plane.call("PolicyService/ApplyPolicy", { text: `# again\n${TWO}`, note: "faster" });
  await page.fill("#note", "orders are needed");
  await page.click("button:has-text('Roll back')");
  await page.waitForSelector("[role=alert]");
  assert.match(await page.locator("[role=alert]").textContent(), /revision 3 is the active one/);
  assert.equal(await page.inputValue("#note"), "orders are needed");
  page.faults.length = 0;
  await page.click("button:has-text('Roll back')");
  await page.waitForURL(`${plane.url}/policy`);
  assert.match(await page.locator("main").textContent(), /orders are needed/);
  await fine();
});
