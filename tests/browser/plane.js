// A server of its own for each file of tests, with a private database in a folder of its own, and browsers on it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const axe = await readFile(new URL("./node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

export class Plane {
  static async start(policy) {
    const plane = new Plane();
    plane.home = await mkdtemp(join(tmpdir(), "callgate-browser-"));
    // Run by root, the database runs as somebody else, who has to get through.
    await chmod(plane.home, 0o755);
    const args = ["serve", "--listen", "127.0.0.1:0", "--data-dir", join(plane.home, "data")];
    if (policy) {
      await writeFile(join(plane.home, "policy.yaml"), policy);
      args.push("--policy", join(plane.home, "policy.yaml"));
    }
    plane.process = spawn(process.env.CALLGATE_BIN, args, { stdio: ["ignore", "pipe", "pipe"] });
    plane.log = "";
    plane.process.stderr.on("data", (text) => (plane.log += text));
    for await (const line of createInterface({ input: plane.process.stdout })) {
      const found = line.match(/console\s+(http:\S+?)\/$/);
      if (found) { plane.url = found[1]; break; }
    }
    if (!plane.url) throw new Error(`the server did not start: ${plane.log}`);
    plane.process.stdout.resume();
    plane.browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
    return plane;
  }

  async stop() {
    await this.browser?.close();
    if (this.process.exitCode === null) {
      this.process.kill("SIGTERM");
      await once(this.process, "exit");
    }
    await rm(this.home, { recursive: true, force: true });
  }

  // A call of the API, in JSON: "GateService/Evaluate".
  async call(method, message, token, by = "tests") {
    const headers = { "content-type": "application/json", "callgate-by": by };
    if (token) headers.authorization = `Bearer ${token}`;
    const response = await fetch(`${this.url}/callgate.v1.${method}`, { method: "POST", headers, body: JSON.stringify(message) });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${method}: ${JSON.stringify(answer)}`);
    return answer;
  }

  async token(name, ...roles) {
    return (await this.call("TokenService/CreateToken", { name, roles }, this.admin)).token;
  }

  // Somebody with a window of their own. What the console must never do is noted, and asserted by `blameless`.
  async visitor({ name, token, ...options } = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    const page = await context.newPage();
    page.faults = [];
    page.on("console", (message) => {
      if (message.type() === "error" && !message.text().includes("status of 4")) page.faults.push(message.text());
    });
    page.on("pageerror", (error) => page.faults.push(String(error)));
    page.on("request", (request) => {
      if (!request.url().startsWith(this.url)) page.faults.push(`asked ${request.url()}`);
    });
    await page.goto(`${this.url}/sign-in`);
    if (token) await page.fill("#token", token);
    else await page.fill("#name", name ?? "ada");
    await page.keyboard.press("Enter");
    await page.waitForURL((url) => url.pathname !== "/sign-in");
    return page;
  }
}

// What axe finds wrong on a page as it is now.
export async function violations(page) {
  await page.evaluate(axe);
  return page.evaluate(async (values) => {
    const found = await globalThis.axe.run(document, { runOnly: { type: "tag", values } });
    return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`);
  }, STANDARDS);
}

// How far a page is wider than its window.
export function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}
