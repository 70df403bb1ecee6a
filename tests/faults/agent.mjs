// An agent that uses the TypeScript client: agent.mjs FILE TENANT SEED. It ends with its standard input, and prints
// what was acknowledged, a JSON object a line.
import { appendFileSync } from "node:fs";
import { Client } from "@callgate/client";

const [file, tenant, seed] = process.argv.slice(2);
const client = new Client({ timeoutMs: 3_000 });
let ended = false;
process.stdin.on("end", () => { ended = true; }).resume();

for (let turn = 1; !ended; turn += 1) {
  const session = `typescript-${Math.floor(turn / 9)}`;
  const callId = `t${turn}`;
  const invoice = `inv-${Math.floor(Date.now() / 3_000)}-${(turn * 7 + Number(seed)) % 3}`;
  const execute = async (args) => {
    const sorted = JSON.stringify({ invoice: args.invoice }).replace(":", ": ");
    const line = { tenant, tool: "pay", args: sorted, by: `typescript ${session} ${callId}`, at: Date.now() / 1_000 };
    appendFileSync(file, `${JSON.stringify(line)}\n`);
    return `done for mark-${tenant}`;
  };
  try {
    const outcome = await client.gate(session, { patienceMs: 3_000 }).run("pay", { invoice }, execute, { callId });
    const { ran, recorded, decision, text } = outcome;
    console.log(JSON.stringify({ session, callId, ran, recorded, decision, text }));
  } catch (error) {
    console.log(JSON.stringify({ session, callId, error: String(error) }));
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
}
await client.close({ timeoutMs: 10_000 });
