// The protocol's TypeScript SDK as a client: calls the tools in CALLS, and prints what it got, a line each.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [way, ...words] = process.argv.slice(2);
const capabilities = { sampling: {}, elicitation: {}, roots: {} };
const client = new Client({ name: 'callgate-through', version: '1' }, { capabilities });
client.setRequestHandler(CreateMessageRequestSchema, () => (
  { role: 'assistant', model: 'none', content: { type: 'text', text: 'sampled' } }));
client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { name: 'Ann', check: true } }));
const roots = [{ uri: `file://${process.env.ROOT}`, name: 'root' }];
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots }));
await client.connect(way === 'http'
  ? new StreamableHTTPClientTransport(new URL(words[0]))
  : new StdioClientTransport({ command: words[0], args: words.slice(1), env: process.env, stderr: 'ignore' }));
const { tools } = await client.listTools();
console.log(JSON.stringify(['tools/list', tools]));
let calls = JSON.parse(process.env.CALLS);
if (calls.length === 0) calls = tools.map((tool) => [tool.name, {}]);
for (const [name, args] of calls) {
  let told = 0;
  const answer = await client.callTool({ name, arguments: args }, undefined, { onprogress: () => { told += 1; } })
    .catch((error) => ({ failed: String(error) }));
  console.log(JSON.stringify([name, answer, told]));
}
await client.close();
