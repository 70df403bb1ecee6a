// A plain loop over Anthropic's messages behind callgate.
import Anthropic from "@anthropic-ai/sdk";

import { gate } from "@callgate/client";
import { toolMessages } from "@callgate/client/anthropic";

const toolbox = gate(`anthropic-${Date.now()}`).wrap({
  get_order: ({ order_id }: { order_id: string }) => ({ order_id, total: 20 }),
});
const input_schema = { type: "object" as const, properties: { order_id: { type: "string" } }, required: ["order_id"] };
const tools = await toolbox.schemas([{ name: "get_order", description: "Reads an order.", input_schema }]);

const anthropic = new Anthropic();
const messages: Anthropic.MessageParam[] = [{ role: "user", content: "What does order o-1 come to?" }];
for (let answers: Anthropic.MessageParam[] = messages; answers.length > 0; messages.push(...answers)) {
  const tool_choice = { type: toolbox.toolsDisabled ? ("none" as const) : ("auto" as const) };
  const reply = await anthropic.messages.create({
    model: "claude-sonnet-5",
    max_tokens: 1000,
    messages,
    tools,
    tool_choice,
  });
  messages.push({ role: "assistant", content: reply.content });
  answers = await toolMessages(toolbox, messages, reply);
}
console.log(messages.at(-1)?.content);
