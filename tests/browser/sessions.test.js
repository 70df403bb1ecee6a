// Sessions in a browser: found, followed live, halted, given more, and let go on.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { overflow, Plane, violations } from "./plane.js";

const POLICY = `policy_engine:
  budgets: {call_tree: {max_steps: 3}}
  authorization:
    tiers: [{name: changes, pattern: 'create_*', action: per_conversation_grant}, {name: looks, pattern: 'get_*', action: allowlist}]
`;
let plane, page;
before(async () => {
  plane = await Plane.start(POLICY);
  page = await plane.visitor({ name: "olga" });
});
after(() => plane?.stop());

let calls = 0;
async function evaluate(session, tool, args = {}, parent = "") {
  const callId = `c${++calls}`;
  const caller = { sessionId: session, agentId: `${session}-agent`, parentSessionId: parent };
  const call = { callId, tool, argumentsJson: JSON.stringify({ n: calls, ...args }) };
  return { callId, caller, ...(await plane.call("GateService/Evaluate", { caller, call })).verdict };
}
async function done(session, tool, args, parent) {
  const { callId, caller, decision } = await evaluate(session, tool, args, parent);
  assert.equal(decision, "DECISION_ALLOW");
  await plane.call("GateService/Record", { caller, callId, status: "OUTCOME_STATUS_SUCCESS", result: `"r${calls}"` });
}
async function fine() {
  const size = page.viewportSize();
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 800 });
    assert.deepEqual(await violations(page), [], `${page.url()}, ${width}`);
    assert.ok((await overflow(page)) <= 0, `${page.url()} is wider than ${width}`);
  }
  await page.setViewportSize(size);
  assert.deepEqual(page.faults, []);
}

test("a session is found by a text of its arguments, by the keyboard alone", async () => {
  await done("trip", "get_order", { city: "Zürich" });
  await done("other", "get_order", { city: "Bern" });
  await page.goto(`${plane.url}/sessions`);
  await page.keyboard.press("/");
  await page.keyboard.type("zürich");
  await page.keyboard.press("Enter");
  await page.waitForURL(/q=/);
  assert.equal(await page.locator('#found a[href="/sessions/trip"]').count(), 1);
  assert.equal(await page.locator('#found a[href="/sessions/other"]').count(), 0);
  await fine();
});

test("its timeline grows by itself, and a refused call says by which rule", async () => {
  await page.goto(`${plane.url}/sessions/trip`);
  await page.waitForSelector("#live[data-alive=true]");
  assert.equal(await page.locator("li.step").count(), 1);
  await done("trip", "get_price");
  await page.waitForFunction(() => document.querySelectorAll("li.step").length === 2, null, { timeout: 2000 });
  await page.click("li.step summary >> nth=1");
  await page.click("li.step a >> visible=true");
  await page.waitForURL(/\/calls\/trip\//);
  assert.match(await page.textContent("main"), /get_price/);
  await fine();
});

test("sub-agents are nested and fold, their bars are in time, and refused calls stand alone", async () => {
  await done("lead", "get_plan");
  await done("scout", "get_map", {}, "lead");
  await done("lead", "get_order");
  assert.equal((await evaluate("scout", "get_more", {}, "lead")).decision, "DECISION_STOP");
  await page.goto(`${plane.url}/sessions/lead`);
  await page.waitForSelector("#live[data-alive=true]");
  assert.deepEqual(await page.locator("dl.facts dt").allTextContents(), ["Started", "Duration", "Calls", "Cost", "Tokens", "Refused calls"]);
  assert.deepEqual(await page.locator("dl.facts dd").nth(2).textContent(), "3");
  const nested = page.locator("li.agent li.step");
  assert.equal(await nested.count(), 2);
  assert.equal(await page.locator("li.step").count(), 4);
  const bars = await page.locator("li.step rect").evaluateAll((all) => all.map((bar) => Number(bar.getAttribute("x"))));
  assert.equal(bars[0], 0, "the first call begins the axis");
  assert.match(await page.locator("li.step .times").first().textContent(), /\+0 ms\s+\d+ ms|s/);
  await fine();
  await page.click("li.agent > details > summary .muted");
  assert.equal(await nested.first().isVisible(), false);
  // It stays folded when the page updates itself.
  await plane.call("GateService/Record", { caller: { sessionId: "lead" }, callId: "nothing", status: "OUTCOME_STATUS_SUCCESS" }).catch(() => {});
  await evaluate("lead", "get_last");
  await page.waitForFunction(() => document.querySelectorAll("li.step").length === 5, null, { timeout: 3000 });
  assert.equal(await nested.first().isVisible(), false);
  await page.click("text=Refused calls only");
  await page.waitForURL(/only=refused/);
  assert.equal(await page.locator("li.step").count(), 2);
  assert.equal(await page.locator("li.step summary .tag.bad").count(), 2);
  await page.click("li.step summary >> nth=0");
  await fine();
});

test("an id is found by its key, a name by a part of it, and a search is its address", async () => {
  await page.goto(`${plane.url}/sessions`);
  await page.fill("#q", "lead");
  await page.keyboard.press("Enter");
  await page.waitForURL(/q=lead/);
  assert.match(await page.textContent("#found"), /A session has this id/);
  assert.equal(await page.locator("#found tbody tr").count(), 1);
  await page.goto(`${plane.url}/sessions?name=SCOUT&from=2020-01-01T00%3A00`);
  assert.equal(await page.inputValue("#from"), "2020-01-01T00:00");
  assert.equal(await page.locator('#found a[href="/sessions/scout"]').count(), 1);
  await page.focus("#tool");
  await page.waitForSelector("#tools option", { state: "attached" });
  assert.ok((await page.locator("#tools option").allTextContents()).includes("get_map"));
  await page.keyboard.type("get_ma");
  await page.waitForFunction(() => document.querySelectorAll("#tools option").length === 1, null, { timeout: 3000 });
  await page.fill("#tool", "");
  await page.click("th a >> text=Cost");
  await page.waitForURL(/name=SCOUT.*from=2020.*sort=cost/);
  assert.equal(await page.locator('th[aria-sort="descending"]').textContent(), "Cost ↓");
  assert.equal(await page.locator('#found a[href="/sessions/scout"]').count(), 1);
  await fine();
});

test("a budget that is used up is raised, and taken back", async () => {
  await done("trip", "get_rooms");
  assert.equal((await evaluate("trip", "get_more")).decision, "DECISION_STOP");
  await page.goto(`${plane.url}/sessions/trip`);
  assert.match(await page.textContent("#now"), /Stopped\./);
  await page.selectOption("#budget", { label: await page.locator("#budget option", { hasText: /step/i }).first().textContent() });
  await page.fill("#more", "5");
  await page.fill("#raise-reason", "nearly done");
  await page.click("button >> text=Raise");
  await page.waitForURL(/done=raised/);
  assert.match(await page.textContent("main"), /added\)/);
  assert.doesNotMatch(await page.textContent("#now"), /Stopped\./);
  await done("trip", "get_more");
  await fine();
  await page.fill("#more", "0");
  await page.fill("#raise-reason", "enough");
  await page.click("button >> text=Raise");
  await page.waitForURL(/done=raised/);
  assert.equal((await evaluate("trip", "get_even_more")).decision, "DECISION_STOP");
});

test("a session is halted with a reason, which its agent is told, and goes on", async () => {
  await page.goto(`${plane.url}/sessions/other`);
  page.once("dialog", (dialog) => dialog.accept());
  await page.fill("#halt-reason", "it looks at too much");
  await page.click("button >> text=Halt this session");
  await page.waitForURL(/done=halted/);
  const refused = await evaluate("other", "get_order");
  assert.equal(refused.decision, "DECISION_STOP");
  assert.match(refused.toolResultJson, /it looks at too much/);
  await page.goto(`${plane.url}/sessions/other`);
  assert.match(await page.textContent("#now"), /Halted: session.*olga.*it looks at too much/s);
  await fine();
  await page.fill('input[aria-label^="Reason to resume session"]', "it was meant so");
  await page.click("button >> text=Resume");
  await page.waitForURL(/done=resumed/);
  await done("other", "get_order");
});
