// What holds for each page: both themes, narrow and wide windows, the keyboard, nothing from elsewhere.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { overflow, Plane, violations } from "./plane.js";

let plane;
before(async () => {
  plane = await Plane.start();
  for (const [digit, text] of [["a", "Reads a file."], ["b", `Reads a file. ${"Then read another one. ".repeat(30)}`]]) {
    await plane.call("GateService/ReportTools", { server: "files", tools: [
      { tool: "mcp__files__read_file", digest: digit.repeat(64), description: text, schemaJson: "{}" }] });
  }
});
after(() => plane?.stop());

// Each page that has a link, and below it what is worth a look of its own.
async function paths(page) {
  const links = await page.locator("nav[aria-label=Pages] a").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
  assert.ok(links.length > 0);
  return links;
}

// Pages without a link of the navigation.
const BELOW = ["/charts", "/approvals/bulk?all=1", "/tools/descriptions", "/tools/descriptions?all=1", "/policy/rollout", "/policy/difference"];

for (const colorScheme of ["light", "dark"]) {
  for (const width of [360, 1280, 3840]) {
    test(`every page is accessible and fits, ${colorScheme}, ${width} pixels`, async () => {
      const page = await plane.visitor({ colorScheme, viewport: { width, height: 900 } });
      for (const path of [...await paths(page), ...BELOW]) {
        await page.goto(plane.url + path);
        assert.deepEqual(await violations(page), [], path);
        assert.ok((await overflow(page)) <= 0, `${path} is wider than its window`);
      }
      assert.deepEqual(page.faults, []);
      await page.context().close();
    });
  }
}

test("times are in the one zone that the page names", async () => {
  const page = await plane.visitor({ timezoneId: "Asia/Tokyo" });
  await plane.call("GateService/Evaluate", { caller: { session_id: "zoned" }, call: { call_id: "c1", tool: "look", arguments_json: "{}" } });
  for (const [path, zone] of [["/sessions/zoned", "Asia/Tokyo"], ["/sessions", "UTC"], ["/", "UTC"], ["/learning", "UTC"], ["/audit", "UTC"]]) {
    await page.goto(plane.url + path);
    assert.equal(await page.textContent("#zone"), `Times: ${zone}`);
  }
  await page.goto(`${plane.url}/sessions/zoned`);
  const time = page.locator("main time").first();
  assert.match(await time.getAttribute("title"), / UTC$/);
  assert.doesNotMatch(await time.textContent(), /UTC/);
  assert.match(await page.locator("time[data-precise]").first().textContent(), /:\d\d[.,]\d{3}/, "a timeline has milliseconds");
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("the keyboard alone gets everywhere", async () => {
  const page = await plane.visitor();
  const targets = await paths(page);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  const keys = await page.locator("nav [data-key]").evaluateAll((all) => all.map((a) => a.dataset.key));
  for (const [at, key] of keys.entries()) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.waitForURL(plane.url + targets[at]);
  }
  await page.keyboard.press("?");
  assert.ok(await page.locator("dialog#keys").isVisible());
  await page.keyboard.press("Escape");
  assert.deepEqual(page.faults, []);
});

test("the theme that is chosen stays, before anything is painted", async () => {
  const page = await plane.visitor({ colorScheme: "light" });
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await ground();
  await page.click("[data-theme-toggle]");
  const dark = await ground();
  assert.notEqual(light, dark);
  await page.reload();
  assert.equal(await ground(), dark);
  assert.deepEqual(page.faults, []);
});

test("a page with its scripts is small", async () => {
  const page = await plane.visitor();
  for (const path of await paths(page)) {
    await page.goto(plane.url + path);
    const bytes = await page.evaluate(() => {
      const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
      return all.filter((one) => !one.name.includes("/events")).reduce((sum, one) => sum + one.decodedBodySize, 0);
    });
    assert.ok(bytes < 150_000, `${path} has ${bytes} bytes`);
  }
});

test("whoever signs out sees nothing any more, with the back button either", async () => {
  const page = await plane.visitor();
  await page.goto(plane.url + "/audit");
  await page.click("text=Sign out");
  await page.waitForURL(/sign-in/);
  await page.goBack();
  assert.ok(page.url().includes("/sign-in"), page.url());
});

test("an unknown address is a page of the console, and says what to do", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const page = await plane.visitor({ colorScheme, viewport: { width: 360, height: 800 } });
    const response = await page.goto(`${plane.url}/sessions/none/at/all`);
    assert.equal(response.status(), 404);
    assert.ok(await page.locator("nav[aria-label=Pages] a").count() > 5, "its navigation is there");
    assert.match(await page.textContent("main"), /Check the address, or search under Sessions/);
    assert.deepEqual(await violations(page), []);
    assert.ok((await overflow(page)) <= 0);
    await page.context().close();
  }
});
