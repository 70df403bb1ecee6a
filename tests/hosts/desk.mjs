// An MCP server over standard input and output whose tools only write down that they ran: `node desk.mjs FILE`.

import { appendFileSync, existsSync } from "node:fs";
import { createInterface } from "node:readline";

const file = process.argv[2];
const text = { type: "object", properties: { text: { type: "string" } } };
const tools = ["send", "pay", "sign", "consent"].map((name) => ({ name, description: `Will ${name}.`, inputSchema: text }));
let count = 0;

const methods = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "desk", version: "1" },
  }),
  "tools/list": () => ({ tools }),
  "tools/call": ({ name, arguments: told }) => {
    // The user at Claude Code's prompt, who says yes to all but what says "never", and to nothing where FILE.no is.
    if (name === "consent") {
      const isRefused = told.input.text === "never" || existsSync(`${file}.no`);
      const yes = { behavior: "allow", updatedInput: told.input };
      const said = isRefused ? { behavior: "deny", message: "the user said no" } : yes;
      return { content: [{ type: "text", text: JSON.stringify(said) }] };
    }
    appendFileSync(file, `${name} ${told.text}\n`);
    return { content: [{ type: "text", text: `${name}: done as number ${++count}` }] };
  },
  ping: () => ({}),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const known = methods[method];
  const said = known ? { result: known(params ?? {}) } : { error: { code: -32601, message: `no ${method}` } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...said }));
}
