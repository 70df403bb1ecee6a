// A plain loop over OpenAI's chat completions behind callgate.
import OpenAI from "openai";

import { gate } from "@callgate/client";
import { toolMessages } from "@callgate/client/openai";

const toolbox = gate(`openai-${Date.now()}`).wrap({
  get_order: ({ order_id }: { order_id: string }) => ({ order_id, total: 20 }),
});
const parameters = { type: "object", properties: { order_id: { type: "string" } }, required: ["order_id"] };
const get_order = { name: "get_order", description: "Reads an order.", parameters };
const tools = await toolbox.schemas([{ type: "function" as const, function: get_order }]);

const openai = new OpenAI();
const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "What does order o-1 come to?" }];
for (let answers: OpenAI.ChatCompletionMessageParam[] = messages; answers.length > 0; messages.push(...answers)) {
  const offered = toolbox.toolsDisabled ? {} : { tools };
  const completion = await openai.chat.completions.create({ model: "gpt-5", messages, ...offered });
  messages.push(completion.choices[0]!.message);
  answers = await toolMessages(toolbox, messages, completion);
}
console.log(messages.at(-1)?.content);
