// An agent of Mastra behind callgate. The session is the thread of Mastra's memory.
import { Agent } from "@mastra/core/agent";
import { createTool, type ToolExecutionContext } from "@mastra/core/tools";
import { z } from "zod";

import { Client, gated } from "@callgate/client";

const client = new Client();
const gate = (context: ToolExecutionContext) => client.gate(context.agent!.threadId!);
const behindGate = <A extends object>(tool: string, execute: (args: A) => unknown) =>
  gated(gate, execute, { tool, forModel: true });

const find_orders = createTool({
  id: "find_orders",
  description: "Finds orders by a word.",
  inputSchema: z.object({ query: z.string(), limit: z.number().int().default(10) }),
  execute: behindGate("find_orders", ({ query, limit }: { query: string; limit: number }) => {
    console.log("finding", query);
    return ["o-17"].slice(0, limit);
  }),
});

const order = z.object({ order_id: z.string() });

const refund = createTool({
  id: "refund",
  description: "Pays an order back.",
  inputSchema: order,
  execute: behindGate("refund", async ({ order_id }: z.infer<typeof order>) => {
    console.log("refunding", order_id);
    return { refunded: order_id };
  }),
});

const delete_order = createTool({
  id: "delete_order",
  description: "Deletes an order.",
  inputSchema: order,
  execute: behindGate("delete_order", ({ order_id }: z.infer<typeof order>) => {
    console.log("deleting", order_id);
    return "deleted";
  }),
});

const clerk = new Agent({
  id: "clerk",
  name: "clerk",
  instructions: "You work in a shop.",
  model: { id: "openai/gpt-5", url: process.env["OPENAI_BASE_URL"] ?? "https://api.openai.com/v1" },
  tools: { find_orders, refund, delete_order },
});
const memory = { thread: "chat-1", resource: "ada" };
console.log((await clerk.generate("Refund the late order.", { memory })).text);
await client.close();
