// A host of MCP servers behind callgate: each call of a server's tool is asked for and reported.
import { Client as McpClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

import { gate } from "@callgate/client";
import { gateClient } from "@callgate/client/mcp";

const [command = "npx", ...args] = process.argv.slice(2);
const server = new McpClient({ name: "example", version: "1.0.0" });
await server.connect(new StdioClientTransport({ command, args }));

const shop = gateClient(gate(`mcp-${Date.now()}`), server);
const { content } = await shop.callTool({ name: "get_order", arguments: { order_id: "o-1" } });
console.log(content);
await shop.close();
