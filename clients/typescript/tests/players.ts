/** Every client of TypeScript, each driven by a scripted model that makes one call a turn of one tool. */
import type { Client, Running } from "@callgate/client";
import { gateTools } from "@callgate/client/ai-sdk";
import { toolMessages as anthropicMessages } from "@callgate/client/anthropic";
import { callgateMiddleware } from "@callgate/client/langchain";
import { gateClient } from "@callgate/client/mcp";
import { toolMessages, toolOutputs } from "@callgate/client/openai";
import { fakeModel } from "@langchain/core/testing";
import { Client as McpClient } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { tool as aiTool, generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { AIMessage, createAgent, createMiddleware, tool as langchainTool } from "langchain";
import { z } from "zod";

export type Args = Record<string, unknown>;

/** The one tool of a script. */
export interface ScriptedTool {
  name: string;
  /** Of its arguments. */
  shape: Record<string, z.ZodType>;
  /** A framework gives it the arguments alone. */
  execute: (args: Args, running?: Running) => unknown;
}

/** The arguments of the call of each turn. What a test does between two turns, it does before it gives the next. */
export type Script = AsyncGenerator<Args>;

/** Plays the script in a session with this tool, and gives what the model reads of each call. */
export type Player = (client: Client, session: string, tool: ScriptedTool, script: Script) => Promise<string[]>;

/** The texts of calls that are made one after the other. */
async function each(script: Script, call: (args: Args, n: number) => Promise<string>): Promise<string[]> {
  const texts: string[] = [];
  for await (const args of script) texts.push(await call(args, texts.length));
  return texts;
}

const gate: Player = (client, session, { name, execute }, script) =>
  each(script, async (args) => (await client.gate(session).run(name, args, execute)).text);

const toolbox: Player = (client, session, { name, execute }, script) => {
  const tools = client.gate(session).wrap({ [name]: execute });
  return each(script, async (args) => (await tools.run(name, args)).text);
};

const anthropic: Player = (client, session, { name, execute }, script) => {
  const tools = client.gate(session).wrap({ [name]: execute });
  return each(script, async (input, n) => {
    const use = { type: "tool_use", id: `toolu_${session}_${n}`, name, input };
    const [answer] = await anthropicMessages(tools, [{ role: "assistant", content: [use] }]);
    return (answer!.content[0] as { content: string }).content;
  });
};

const chat: Player = (client, session, { name, execute }, script) => {
  const tools = client.gate(session).wrap({ [name]: execute });
  const messages: object[] = [];
  return each(script, async (args) => {
    const made = { name, arguments: JSON.stringify(args) };
    messages.push({ role: "assistant", tool_calls: [{ id: "call_0", type: "function", function: made }] });
    const [answer] = await toolMessages(tools, messages as never);
    messages.push(answer!);
    return answer!.content;
  });
};

const responses: Player = (client, session, { name, execute }, script) => {
  const tools = client.gate(session).wrap({ [name]: execute });
  return each(script, async (args, n) => {
    const call_id = `call_${session}_${n}`;
    const call = { type: "function_call", call_id, name, arguments: JSON.stringify(args) };
    const [output] = await toolOutputs(tools, [call] as never);
    return output!.output;
  });
};

const aiSdk: Player = async (client, session, { name, shape, execute }, script) => {
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } } as never;
  const model = new MockLanguageModelV3({
    doGenerate: async () => {
      const { value, done } = await script.next();
      const call = { type: "tool-call" as const, toolCallId: "call_0", toolName: name, input: JSON.stringify(value) };
      const finishReason = { unified: done ? ("stop" as const) : ("tool-calls" as const), raw: undefined };
      return { content: [done ? { type: "text", text: "done" } : call], finishReason, usage, warnings: [] };
    },
  });
  const tools = { [name]: aiTool({ inputSchema: z.object(shape), execute: (args) => execute(args as Args) }) };
  const given = { model, prompt: "Go.", stopWhen: stepCountIs(20), tools: gateTools(client.gate(session), tools) };
  const { response } = await generateText(given);
  const parts = response.messages.flatMap(({ role, content }) => (role === "tool" ? content : []));
  return parts.map((part) => (part.type === "tool-result" ? String((part.output as { value: unknown }).value) : ""));
};

const langchain: Player = async (client, session, { name, shape, execute }, script) => {
  const scripted = createMiddleware({
    name: "scripted",
    wrapModelCall: async () => {
      const { value, done } = await script.next();
      return new AIMessage(done ? "done" : { content: "", tool_calls: [{ name, args: value, id: "call_0" }] });
    },
  });
  const tools = [
    langchainTool(async (args) => execute(args as Args), { name, description: "A tool.", schema: z.object(shape) }),
  ];
  const agent = createAgent({ model: fakeModel(), tools, middleware: [callgateMiddleware(client), scripted] });
  const thread = { configurable: { thread_id: session }, recursionLimit: 100 };
  const { messages } = await agent.invoke({ messages: "Go." }, thread);
  return messages.filter(({ type }) => type === "tool").map(({ text }) => text);
};

/** A client of a server of the Model Context Protocol with this tool. */
export async function connected({ name, shape, execute }: ScriptedTool) {
  const server = new McpServer({ name: "shop", version: "1" });
  server.registerTool(name, { inputSchema: shape }, async (args: Args) => {
    const given = await execute(args);
    const text = typeof given === "string" ? given : JSON.stringify(given);
    return { content: [{ type: "text" as const, text }] };
  });
  const [near, far] = InMemoryTransport.createLinkedPair();
  await server.connect(far);
  const mcp = new McpClient({ name: "host", version: "1" });
  await mcp.connect(near);
  return { mcp, server };
}

const mcp: Player = async (client, session, tool, script) => {
  const { mcp } = await connected(tool);
  const gated = gateClient(client.gate(session), mcp);
  await gated.listTools();
  const texts = await each(script, async (args) => {
    const { content } = await gated.callTool({ name: tool.name, arguments: args });
    return (content as { text: string }[]).map(({ text }) => text).join("\n");
  });
  await mcp.close();
  return texts;
};

export const PLAYERS: Record<string, Player> = {
  gate,
  toolbox,
  anthropic,
  "openai chat": chat,
  "openai responses": responses,
  "ai-sdk": aiSdk,
  langchain,
  mcp,
};
