// An agent of LangChain.js behind callgate. Where a person must approve, the graph is interrupted.
import { MemorySaver } from "@langchain/langgraph";
import { createAgent, tool } from "langchain";
import { z } from "zod";

import { Client } from "@callgate/client";
import { callgateMiddleware } from "@callgate/client/langchain";

const getOrder = tool(({ order_id }) => ({ order_id, total: 20 }), {
  name: "get_order",
  description: "Reads an order.",
  schema: z.object({ order_id: z.string() }),
});

const agent = createAgent({
  model: "openai:gpt-5",
  tools: [getOrder],
  checkpointer: new MemorySaver(),
  middleware: [callgateMiddleware(new Client())],
});
const thread = { configurable: { thread_id: `langchain-${Date.now()}` } };
const { messages } = await agent.invoke({ messages: "What does order o-1 come to?" }, thread);
console.log(messages.at(-1)?.text);
