// An agent of the Vercel AI SDK behind callgate.
import { openai } from "@ai-sdk/openai";
import { generateText, tool } from "ai";
import { z } from "zod";

import { gate } from "@callgate/client";
import { gateLoop } from "@callgate/client/ai-sdk";

const tools = {
  get_order: tool({
    description: "Reads an order.",
    inputSchema: z.object({ order_id: z.string() }),
    execute: ({ order_id }) => ({ order_id, total: 20 }),
  }),
};

const session = gate(`ai-sdk-${Date.now()}`);
const { text } = await generateText({
  model: openai.chat("gpt-5"),
  prompt: "What does order o-1 come to?",
  ...gateLoop(session, tools),
});
console.log(text);
