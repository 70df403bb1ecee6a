// The package in a real browser: bundled for one, on a page of an origin that the server lets ask.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import type * as Package from "@callgate/client";
import { build } from "esbuild";
import { chromium, type Page } from "playwright-core";

import { person } from "../frameworks/people.js";
import { POLICY } from "../frameworks/story.js";
import { Stage } from "../stage.js";

declare const callgate: typeof Package;

const CHROMIUM = [process.env["CHROMIUM"], "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = CHROMIUM.find((path) => path && existsSync(path));
const skip = executablePath ? false : "there is no Chromium here: install the package `chromium`, or set CHROMIUM";

const { site, stage, browser } = executablePath
  ? await staged(executablePath)
  : ({} as Awaited<ReturnType<typeof staged>>);

/** A page's site, a server that lets its origin ask, and a browser. */
async function staged(chrome: string) {
  const site = await served(await bundled());
  after(() => site.stop());
  const stage = await Stage.serve({ after }, POLICY, "--origin", site.url);
  // The kernel's sandbox is not to be had by root, nor in most containers; the page is the test's own.
  const browser = await chromium.launch({ executablePath: chrome, args: ["--no-sandbox"] });
  after(() => browser.close());
  return { site, stage, browser };
}

/** The package and all that it imports, as one module; fails where it needs what only Node has. */
async function bundled(): Promise<string> {
  const entry = fileURLToPath(new URL("page.js", import.meta.url));
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    format: "esm",
    platform: "browser",
    write: false,
  });
  return outputFiles[0]!.text;
}

async function served(script: string) {
  const server = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    response.end(
      isScript ? script : '<!doctype html><title>callgate</title><script type="module" src="/page.js"></script>',
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, stop: () => server.close() };
}

async function opened(url = site.url): Promise<Page> {
  const page = await browser.newPage();
  await page.goto(url);
  await page.waitForFunction(() => "callgate" in globalThis);
  return page;
}

test("a page asks, executes, records, and is told", { skip }, async () => {
  const page = await opened();
  const told = await page.evaluate(async (server) => {
    const client = new callgate.Client({ server });
    const gate = client.gate("browser");
    let executed = 0;
    const read = () => gate.run("get_order", { order_id: "o-1" }, () => ({ total: 20 + executed++ }));
    const outcomes = [
      await read(),
      await read(),
      await gate.run("delete_order", { order_id: "o-1" }, () => executed++),
    ];
    await client.close();
    return { executed, texts: outcomes.map(({ text }) => text), ran: outcomes.map(({ ran }) => ran) };
  }, stage.url);
  assert.equal(told.executed, 1);
  assert.deepEqual(told.ran, [true, false, false]);
  assert.match(told.texts[0]!, /"total":20/);
  assert.match(told.texts[1]!, /duplicate_call_blocked/);
  assert.match(told.texts[2]!, /tool_denied/);
});

test("a page waits for a person, and goes on when they have answered", { skip }, async () => {
  const page = await opened();
  const leave = person(stage.client(), "browser-asks", () => ({ approve: true }));
  const told = await page.evaluate(async (server) => {
    const gate = new callgate.Client({ server }).gate("browser-asks");
    const outcome = await gate.run("charge_card", { order_id: "o-7" }, () => ({ charged: true }));
    return { ran: outcome.ran, text: outcome.text };
  }, stage.url);
  await leave();
  assert.equal(told.ran, true);
  assert.match(told.text, /"charged":true/);
});

test("a page of another origin is refused, and nothing runs", { skip }, async () => {
  const other = await served(await bundled());
  try {
    const page = await opened(other.url);
    const told = await page.evaluate(async (server) => {
      const gate = new callgate.Client({ server, timeoutMs: 2_000 }).gate("browser-other");
      let executed = 0;
      const outcome = await gate.run("get_order", {}, () => executed++).catch((error: Error) => error);
      return { executed, outcome: outcome instanceof Error ? `${outcome.name}: ${outcome.message}` : outcome.reason };
    }, stage.url);
    assert.equal(told.executed, 0);
    assert.match(told.outcome, /unavailable|PermissionDenied/i);
  } finally {
    other.stop();
  }
});
