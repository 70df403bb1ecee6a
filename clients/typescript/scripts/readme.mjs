// Runs the README's program as it stands, in the present folder, against a server of its own.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
writeFileSync("agent.mjs", /```js\n(.*?)```/s.exec(readme)[1]);
const folder = mkdtempSync(join(tmpdir(), "callgate-"));
chmodSync(folder, 0o755);
const args = ["serve", "--listen", "127.0.0.1:0", "--data-dir", join(folder, "data")];
const server = spawn(process.env.CALLGATE_BIN, args, { stdio: ["ignore", "pipe", "inherit"] });
const ended = once(server, "exit");
try {
  for await (const line of createInterface({ input: server.stdout })) {
    const address = /serves gRPC on (\S+)/.exec(line)?.[1];
    if (!address) continue;
    const env = { ...process.env, CALLGATE_SERVER: `http://${address}` };
    const said = execFileSync(process.execPath, ["agent.mjs"], { env, encoding: "utf8", timeout: 30_000 });
    console.log(said);
    assert.deepEqual(said.match(/^(ran|did not run):/gm), ["ran:", "ran:", "ran:", "did not run:"]);
    break;
  }
} finally {
  server.kill("SIGTERM");
  await ended;
  rmSync(folder, { recursive: true, force: true });
}
