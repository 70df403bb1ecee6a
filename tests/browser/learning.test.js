// What was learned, in a browser: what retries came to, as charts with their figures, and one curve.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { overflow, Plane, violations } from "./plane.js";

const POLICY = `policy_engine:
  tool_schemas:
    get_quote: {effect: read}
`;
const SESSIONS = 4;
const MENDED = 1;
let plane, page;
before(async () => {
  plane = await Plane.start(POLICY);
  page = await plane.visitor();
  await Promise.all([...Array(SESSIONS).keys()].map(retried));
});
after(() => plane?.stop());

// A session's call fails and is made again, as it is advised.
async function retried(n) {
  const caller = { sessionId: `s${n}`, agentId: "desk" };
  const ask = async (callId) => {
    const call = { callId, tool: "get_quote", argumentsJson: `{"item":${n}}` };
    return (await plane.call("GateService/Evaluate", { caller, call })).verdict;
  };
  const failed = (callId) => plane.call("GateService/Record", { caller, callId, status: "OUTCOME_STATUS_ERROR",
    error: { httpStatus: 503, message: "503 Service Unavailable" } });
  await ask("first");
  const { advice } = await failed("first");
  await new Promise((resolve) => setTimeout(resolve, 1000 * Number.parseFloat(advice.retryAfter ?? "0") + 50));
  for (let again = 0; again < 40; again++) {
    if ((await ask("again")).decision === "DECISION_ALLOW") break;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  if (n >= MENDED) return failed("again");
  return plane.call("GateService/Record", { caller, callId: "again", status: "OUTCOME_STATUS_SUCCESS", result: "12" });
}

async function fine() {
  const size = page.viewportSize();
  for (const [width, colorScheme] of [[1280, "light"], [360, "dark"]]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 800 });
    assert.deepEqual(await violations(page), [], `${page.url()}, ${width}`);
    assert.ok((await overflow(page)) <= 0, `${page.url()} is wider than ${width}`);
  }
  await page.setViewportSize(size);
  assert.deepEqual(page.faults, []);
}

const counted = async () => {
  const answer = await plane.call("ProfileService/GetRetryHistory", {});
  return Number(answer.days?.[0]?.trials ?? 0);
};

test("what retries came to is drawn, with the figures beneath", async () => {
  for (let n = 0; n < 60 && (await counted()) < SESSIONS; n++) await new Promise((resolve) => setTimeout(resolve, 500));
  await page.goto(`${plane.url}/learning`);
  assert.match(await page.textContent("main"), new RegExp(`Of ${SESSIONS} completed retries, ${MENDED} succeeded`));
  await page.waitForSelector("figure.chart canvas");
  assert.equal(await page.locator("figure.chart canvas").count(), 2);
  await page.click("figure.chart summary >> nth=0");
  const days = page.locator('[aria-label="Retries by day"] tbody tr');
  assert.equal(await days.count(), 7, "each day of a week has its place");
  assert.match(await days.last().textContent(), new RegExp(`${SESSIONS}${MENDED}$`));
  await fine();
});

test("one may ask for a tool, a kind of failure, and a time", async () => {
  await page.goto(`${plane.url}/learning`);
  await page.selectOption("#kind", { label: "timeout" });
  await page.selectOption("#days", "30");
  await page.click("button >> text=Show");
  await page.waitForURL(/kind=FAILURE_KIND_TIMEOUT/);
  assert.match(await page.textContent("main"), /in the last 30 days.*No failed call was retried/s);
  await page.selectOption("#kind", { label: "unavailable" });
  await page.click("button >> text=Show");
  await page.waitForURL(/kind=FAILURE_KIND_UNAVAILABLE/);
  assert.match(await page.textContent("main"), new RegExp(`Of ${SESSIONS} completed retries`));
  await fine();
});

test("a tool's failure has its curve, and leads to the calls", async () => {
  await page.goto(`${plane.url}/learning`);
  await page.click('main a[href^="/learning/get_quote/"]');
  await page.waitForSelector("figure.chart canvas");
  assert.match(await page.textContent("main"), /Current advice.*Static flag/s);
  await fine();
  await page.click("text=Calls of get_quote");
  await page.waitForURL(/\/sessions\?tool=get_quote/);
  assert.equal(await page.locator('#found a[href="/sessions/s0"]').count(), 1);
});
