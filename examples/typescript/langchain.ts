// An agent of LangChain.js behind callgate. Where a person must approve, the graph is interrupted.
import { createInterface } from "node:readline/promises";

import { Command, MemorySaver } from "@langchain/langgraph";
import { createAgent, tool } from "langchain";
import { z } from "zod";

import { Client } from "@callgate/client";
import { type ApprovalRequest, callgateMiddleware } from "@callgate/client/langchain";

const getOrder = tool(({ order_id }) => ({ order_id, total: 20 }), {
  name: "get_order",
  description: "Reads an order.",
  schema: z.object({ order_id: z.string() }),
});

const terminal = createInterface({ input: process.stdin, output: process.stdout });
const agent = createAgent({
  model: "openai:gpt-5",
  tools: [getOrder],
  checkpointer: new MemorySaver(),
  middleware: [callgateMiddleware(new Client())],
});
const thread = { configurable: { thread_id: `langchain-${Date.now()}` } };
let state = await agent.invoke({ messages: "What does order o-1 come to?" }, thread);
while ("__interrupt__" in state) {
  const { requests } = state.__interrupt__![0]!.value as ApprovalRequest;
  const decisions: { type: string }[] = [];
  for (const { message, args } of requests) {
    const answer = await terminal.question(`${message} ${JSON.stringify(args)} [y/n] `);
    decisions.push({ type: answer === "y" ? "approve" : "reject" });
  }
  state = await agent.invoke(new Command({ resume: { decisions } }), thread);
}
terminal.close();
console.log(state.messages.at(-1)?.text);
