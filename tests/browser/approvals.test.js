// An approval from the question to the execution, in browsers.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { overflow, Plane, violations } from "./plane.js";

const POLICY = `policy_engine:
  authorization:
    tiers: [{name: money, pattern: 'refund_*', action: hitl}, {name: looks, pattern: 'get_*', action: allowlist}]
  tool_schemas:
    refund_order: {effect: write, once: true, side_effect_resource: 'order/{id}'}
    get_order: {effect: read, side_effect_resource: 'order/{id}'}
`;
const XSS = `"'></code></blockquote><script>document.title="run"</script><img src=x onerror="document.title='run'">\u202e`;

let plane;
before(async () => { plane = await Plane.start(POLICY); });
after(() => plane?.stop());

let calls = 0;
const proposal = (session, args, justification = "") => ({
  caller: { sessionId: session, agentId: "desk" },
  call: { callId: `c${++calls}`, tool: "refund_order", argumentsJson: JSON.stringify(args), justification },
});
const evaluate = async (asked) => (await plane.call("GateService/Evaluate", asked, undefined, "desk")).verdict;
async function ask(session, args, justification) {
  const asked = proposal(session, args, justification);
  const verdict = await evaluate(asked);
  assert.equal(verdict.decision, "DECISION_ASK", JSON.stringify(verdict));
  return { asked, id: verdict.approvalId, path: `/approvals/${verdict.approvalId}` };
}
const live = (page) => page.waitForSelector("#live[data-alive=true]");

test("a question comes up by itself, is approved by the keyboard alone, and its call runs", async () => {
  const page = await plane.visitor({ name: "eve" });
  await page.goto(`${plane.url}/approvals`);
  await live(page);
  const { asked, id, path } = await ask("whole", { id: 1, amount: 5 }, "it arrived broken");
  await page.waitForSelector(`#queue a[href="${path}"]`, { timeout: 1000 });
  await page.waitForFunction(() => document.getElementById("open-count").textContent.startsWith("1"), null, { timeout: 1000 });
  const focused = (selector) => page.evaluate((one) => document.activeElement?.matches(one) ?? false, selector);
  const tabTo = async (selector) => {
    for (let n = 0; n < 60 && !(await focused(selector)); n++) await page.keyboard.press("Tab");
    assert.ok(await focused(selector), `the keyboard does not get to ${selector}`);
    await page.keyboard.press("Enter");
  };
  await tabTo(`a[href="${path}"]`);
  await page.waitForURL(plane.url + path);
  assert.match(await page.textContent("#standing"), /Waiting for an approver.*\d+ min/s);
  await tabTo("button[value=approve]");
  await page.waitForSelector("text=Approved by eve");
  const again = await evaluate(asked);
  assert.equal(again.decision, "DECISION_ALLOW", JSON.stringify(again));
  await plane.call("GateService/Record", {
    caller: asked.caller, callId: asked.call.callId, status: "OUTCOME_STATUS_SUCCESS", result: '{"refund":"r-1"}',
  });
  await page.reload();
  assert.match(await page.textContent("main"), /Outcome\s*success/);
  const { approval } = await plane.call("ApprovalService/GetApproval", { approvalId: id });
  assert.equal(approval.resolvedBy, "eve");
  // The next one on the same order is compared with it, argument by argument; one on another order is not.
  const next = await ask("whole", { id: 1, amount: 7 });
  await page.goto(plane.url + next.path);
  assert.equal(await page.textContent("section[aria-labelledby=difference] del"), "5");
  assert.equal(await page.textContent("section[aria-labelledby=difference] ins"), "7");
  const other = await ask("whole", { id: 2, amount: 5 });
  await page.goto(plane.url + other.path);
  assert.match(await page.textContent("section[aria-labelledby=difference]"), /No earlier call of refund_order on order\/2/);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("of two browsers one wins, and the other is told who", async () => {
  const { path, asked } = await ask("race", { id: 3 });
  const [eve, bob] = await Promise.all([plane.visitor({ name: "eve" }), plane.visitor({ name: "bob" })]);
  // Without scripts nobody is told before they answer.
  for (const page of [eve, bob]) {
    await page.route("**/events", (route) => route.abort());
    await page.goto(plane.url + path);
  }
  await bob.fill("#reason", "not today");
  const both = [eve.click("button[value=approve]"), bob.click("button[value=deny]")];
  await Promise.all(both);
  await Promise.all([eve, bob].map((page) => page.waitForSelector("#standing >> text=/Approved by eve|Denied by bob/")));
  const lost = await Promise.all([eve, bob].map((page) => page.locator("[role=alert]").count()));
  assert.equal(lost[0] + lost[1], 1, "one of them was not taken");
  const winner = lost[0] ? "bob" : "eve";
  assert.match(await (lost[0] ? eve : bob).textContent("[role=alert]"), new RegExp(`not accepted.*${winner}`, "s"));
  assert.equal((await evaluate(asked)).decision, lost[0] ? "DECISION_DENY" : "DECISION_ALLOW");
  await Promise.all([eve, bob].map((page) => page.context().close()));
});

test("whoever looks while somebody else answers is told at once", async () => {
  const { path, id } = await ask("told", { id: 4 });
  const page = await plane.visitor();
  await page.goto(plane.url + path);
  await live(page);
  await plane.call("ApprovalService/ResolveApproval", { approvalId: id, approve: true }, undefined, "kim");
  await page.waitForSelector("#standing >> text=Approved by kim", { timeout: 2000 });
  assert.equal(await page.locator("button[value=approve]").count(), 0);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("a claim shows on open pages at once, and is no new request", async () => {
  const page = await plane.visitor({ name: "eve" });
  const { id, path } = await ask("claimed", { id: 77, amount: 1 });
  await page.goto(`${plane.url}/approvals`);
  await live(page);
  const one = await page.context().newPage();
  await one.goto(plane.url + path);
  await plane.call("ApprovalService/ClaimApproval", { approvalId: id }, undefined, "bob");
  const tag = page.locator(`#queue li:has(a[href="${path}"])`).getByText("claimed by bob");
  await tag.waitFor({ timeout: 2000 });
  await one.locator("#standing").getByText("bob").first().waitFor({ timeout: 2000 });
  await plane.call("ApprovalService/ClaimApproval", { approvalId: id, release: true }, undefined, "bob");
  await tag.waitFor({ state: "detached", timeout: 2000 });
  assert.deepEqual(page.faults, []);
  await plane.call("ApprovalService/ResolveApproval", { approvalId: id, approve: false, reason: "done" }, undefined, "bob");
  await page.context().close();
});

test("a denial needs a reason, and the model is told it", async () => {
  const { path, asked } = await ask("denied", { id: 5 });
  const page = await plane.visitor({ name: "eve" });
  await page.goto(plane.url + path);
  await page.click("button[value=deny]");
  assert.equal(page.url(), plane.url + path);
  assert.equal(await page.locator("text=Waiting for an approver").count(), 1, "nothing was sent without a reason");
  await page.fill("#reason", "the customer was refunded on Monday");
  await page.click("button[value=deny]");
  await page.waitForSelector("text=Denied by eve");
  const verdict = await evaluate(asked);
  assert.equal(verdict.decision, "DECISION_DENY");
  assert.match(verdict.toolResultJson, /the customer was refunded on Monday/);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("a person lets other arguments run, after a second look, and what was asked about never runs", async () => {
  const { path, asked } = await ask("edited", { id: 7, amount: 500 });
  const page = await plane.visitor({ name: "eve", viewport: { width: 360, height: 800 } });
  await page.goto(plane.url + path);
  await page.focus("summary >> text=Edit");
  await page.keyboard.press("Enter");
  await page.fill("#edited", '{"id": 7, "amount": ');
  await page.fill("#edited-why", "half of it");
  await page.click("button[value=look]");
  assert.match(await page.textContent("[role=alert]"), /Cannot approve: the input is not JSON: it ends too early/);
  assert.equal(await page.inputValue("#edited"), '{"id": 7, "amount": ', "what was typed is kept");
  await page.fill("#edited", '{"id": 7, "amount": 250}');
  await page.click("button[value=look]");
  await page.waitForSelector("#confirm");
  assert.match(await page.textContent("section[aria-labelledby=answer] ul.tree"), /amount.*500.*250/s);
  assert.deepEqual(await violations(page), []);
  assert.ok((await overflow(page)) <= 0, "it is wider than its window");
  assert.equal((await evaluate(asked)).decision, "DECISION_ASK", "a look answers nothing");
  await page.click("button[value=edit]");
  await page.waitForSelector("text=Approved with other arguments by eve");
  assert.deepEqual(await violations(page), []);
  const refused = await evaluate(asked);
  assert.equal(refused.decision, "DECISION_DENY");
  assert.deepEqual(JSON.parse(refused.toolResultJson).approved_arguments, { id: 7, amount: 250 });
  assert.match(refused.toolResultJson, /half of it/);
  assert.equal((await evaluate(proposal("edited", { id: 7, amount: 250 }))).decision, "DECISION_ALLOW");
  assert.equal((await evaluate(asked)).decision, "DECISION_DENY", "nor later");
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("what a model writes is neither run nor hidden, and everything fits", async () => {
  const { path } = await ask(`x ${XSS.slice(0, 90)}`.replace(/\u202e/g, ""), { id: XSS, [XSS]: [XSS, { deep: XSS.repeat(9) }] }, XSS);
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [360, 1280]) {
      const page = await plane.visitor({ colorScheme, viewport: { width, height: 800 } });
      for (const at of ["/approvals", path, "/approvals?state=all"]) {
        await page.goto(plane.url + at);
        assert.ok(!(await page.title()).startsWith("run"), at);
        assert.equal(await page.locator("main img, main script").count(), 0, at);
        assert.ok((await page.locator("mark.unseen", { hasText: "U+202E" }).count()) > 0, at);
        assert.deepEqual(await violations(page), [], `${at}, ${colorScheme}, ${width}`);
        assert.ok((await overflow(page)) <= 0, `${at} is wider than ${width}`);
        assert.ok((await page.content()).length < 40_000, "with its scripts a page has to be less than 150 kB");
      }
      assert.deepEqual(page.faults, []);
      await page.context().close();
    }
  }
});

test("a notification tells the tool and never the arguments", async () => {
  const page = await plane.visitor({ permissions: ["notifications"] });
  await page.addInitScript(() => {
    globalThis.told = [];
    globalThis.Notification = class {
      static permission = "granted";
      static requestPermission = async () => "granted";
      constructor(title, options) { told.push({ title, ...options }); }
    };
  });
  await page.goto(`${plane.url}/approvals`);
  await live(page);
  await page.click("#notify");
  await page.waitForTimeout(500);
  assert.deepEqual(await page.evaluate(() => told), [], "open questions are no news");
  await ask("noticed", { id: 6, secret: "hush" });
  await page.waitForFunction(() => told.length > 0, null, { timeout: 3000 });
  const told = JSON.stringify(await page.evaluate(() => globalThis.told));
  assert.match(told, /refund_order/);
  assert.ok(!told.includes("hush"), told);
  await page.context().close();
});

test("on a phone the buttons are in reach", async () => {
  const { path } = await ask("phone", { id: 91, note: "x".repeat(3_000), lines: [..."abcdefghijklmnop"] });
  const page = await plane.visitor({ name: "eve", viewport: { width: 360, height: 640 } });
  await page.goto(plane.url + path);
  const reach = page.locator(".reach");
  for (const top of [0, 400]) {
    await page.evaluate((to) => scrollTo(0, to), top);
    const box = await reach.boundingBox();
    assert.ok(box.y >= 0 && box.y + box.height <= 641, `it is within the window: ${JSON.stringify(box)}`);
  }
  assert.deepEqual(await violations(page), []);
  assert.ok((await overflow(page)) <= 0, "it is wider than its window");
  await page.click(".reach a");
  assert.ok(await page.evaluate(() => document.querySelector("#reason").getBoundingClientRect().top < innerHeight));
  await page.click(".reach button");
  await page.waitForSelector("text=Approved by eve");
  await page.setViewportSize({ width: 1200, height: 800 });
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("several requests are filtered, grouped, and denied together", async () => {
  await ask("several", { id: 92, amount: 4000 });
  await ask("several", { id: 93, amount: 5000 });
  const page = await plane.visitor({ name: "eve" });
  await page.goto(`${plane.url}/approvals?by=amount`);
  assert.deepEqual(await violations(page), []);
  await page.click("text=1000 to below 10000");
  assert.equal(await page.locator("ol.queue > li").count(), 2);
  await page.click("text=Answer several at once");
  assert.match(await page.textContent("main"), /None of the open requests.*can be approved together/s);
  assert.deepEqual(await violations(page), []);
  await page.fill("#reason", "not this month");
  await page.click("button[value=deny]");
  assert.match(await page.textContent("#results"), /2 of 2 answered/);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});
