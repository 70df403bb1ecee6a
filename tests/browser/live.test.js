// What keeps pages live: one stream for all of them, since a browser has few connections to a server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Plane } from "./plane.js";

const POLICY = `policy_engine:
  authorization: {tiers: [{name: asks, pattern: 'delete_*', action: hitl}]}
  unknown_tools: allow
  tool_schemas: {delete_order: {effect: write}}
`;
let plane;
before(async () => { plane = await Plane.start(POLICY); });
after(() => plane?.stop());

const ask = (n) => plane.call("GateService/Evaluate", {
  caller: { session_id: "s", agent_id: "robot" },
  call: { call_id: `c${n}`, tool: "delete_order", arguments_json: `{"n":${n}}` },
});
const count = (page, text) => page.waitForFunction((text) => document.querySelector("#open-count").textContent.trim().startsWith(`${text} `), text, { timeout: 8000 });

test("ten pages of one browser are live, and stay so when the one that listens is closed", async () => {
  const first = await plane.visitor();
  const others = [];
  for (const path of ["/", "/approvals", "/sessions", "/learning", "/tools", "/policy", "/audit", "/tokens", "/sessions"]) {
    const page = await first.context().newPage();
    await page.goto(plane.url + path, { timeout: 8000 });
    others.push(page);
  }
  await ask(1);
  for (const page of [first, ...others]) await count(page, "1");
  await first.close();
  await ask(2);
  for (const page of others) await count(page, "2");
});

test("a server that cannot answer for a while is asked again, and what was there stays", async () => {
  const page = await plane.visitor();
  await page.waitForSelector("#live[data-alive=true]");
  let away = true;
  await page.route("**/events*", (route) => (away ? route.fulfill({ status: 503, contentType: "text/html", body: "<h1>Not now</h1>" }) : route.continue()));
  await page.route("**/approvals?part=count", (route) => (away ? route.fulfill({ status: 503, contentType: "text/html", body: "<h1>Not now</h1>" }) : route.continue()));
  await page.goto(plane.url + "/audit");
  await page.waitForSelector("#live[data-alive=false]:not(:empty)");
  assert.equal(await page.textContent("#live"), "not live: reconnecting");
  assert.ok(!(await page.textContent("nav")).includes("Not now"), "a fault is no part of a page");
  away = false;
  await page.waitForSelector("#live[data-alive=true]", { timeout: 8000 });
  await ask(3);
  await count(page, "3");
});
