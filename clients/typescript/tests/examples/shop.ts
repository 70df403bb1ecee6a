// An MCP server with one tool, over standard input and output.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "shop", version: "1.0.0" });
server.registerTool("get_order", { inputSchema: { order_id: z.string() } }, ({ order_id }) => ({
  content: [{ type: "text", text: JSON.stringify({ order_id, total: 20 }) }],
}));
await server.connect(new StdioServerTransport());
