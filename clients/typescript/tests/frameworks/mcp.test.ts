// The protocol's own client and server SDK, with callgate between them, against the real server.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { gateClient } from "@callgate/client/mcp";
import { Client as McpClient } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { z } from "zod";

import { Stage } from "../stage.js";
import { person } from "./people.js";
import { answer, check, LETTER, POLICY, Shop, turnsOf } from "./story.js";

const stage = await Stage.serve({ after }, POLICY);
const client = stage.client();

/** A client of a server with the story's tools. */
async function connected({ tools }: Shop): Promise<McpClient> {
  const server = new McpServer({ name: "shop", version: "1" });
  const shapes = {
    get_order: { order_id: z.string() },
    delete_order: { order_id: z.string() },
    get_quote: { item: z.number() },
    get_stock: { item: z.number() },
    charge_card: { order_id: z.string(), amount: z.number() },
  };
  for (const [name, inputSchema] of Object.entries(shapes)) {
    server.registerTool(name, { inputSchema }, async (args: unknown) => ({
      content: [{ type: "text" as const, text: JSON.stringify(tools[name as keyof typeof tools](args as never)) }],
    }));
  }
  return connectedTo(server);
}

async function connectedTo(server: McpServer): Promise<McpClient> {
  const [near, far] = InMemoryTransport.createLinkedPair();
  await server.connect(far);
  const mcp = new McpClient({ name: "host", version: "1" });
  await mcp.connect(near);
  return mcp;
}

test("a host is refused, waits, asks a person, retries on advice, and finishes", async () => {
  const shop = new Shop();
  after(person(client, "mcp-story", ({ amount }) => answer(amount)));
  const mcp = gateClient(client.gate("mcp-story"), await connected(shop));
  assert.equal((await mcp.listTools()).tools.length, 5);
  const told: string[] = [];
  for (const { tool, args } of turnsOf("o-1")) {
    const result = await mcp.callTool({ name: tool, arguments: args });
    told.push((result.content as { text: string }[]).map(({ text }) => text).join("\n"));
  }
  await mcp.close();
  check("o-1", shop, told);
});

test("calls that a host makes at once are judged by themselves", async () => {
  const shop = new Shop();
  const mcp = gateClient(client.gate("mcp-parallel"), await connected(shop));
  await mcp.listTools();
  const orders = ["m-1", "m-2"];
  const call = (name: string, order_id: string) => mcp.callTool({ name, arguments: { order_id } });
  const found = await Promise.all([...orders.map((id) => call("get_order", id)), call("delete_order", "m-1")]);
  assert.deepEqual(
    found.map(({ isError }) => isError === true),
    [false, false, true],
  );
  assert.equal(shop.executed.length, 2);
});

test("what a server says of its own failure stays, with callgate's advice after it", async () => {
  const server = new McpServer({ name: "shop", version: "1" });
  server.registerTool("get_order", { inputSchema: { order_id: z.string() } }, () => ({
    content: [{ type: "text", text: "line 1\nline 2" }],
    isError: true,
  }));
  const mcp = gateClient(client.gate("mcp-failure"), await connectedTo(server));
  const result = await mcp.callTool({ name: "get_order", arguments: { order_id: "o-1" } });
  const [own, advice] = result.content as { text: string }[];
  assert.equal(own!.text, "line 1\nline 2");
  assert.match(advice!.text, /"status":"error".*"retryable":/);
  assert.equal(result.isError, true);
});

test("a failure of the protocol is a result that the model is shown, and structured content stays", async () => {
  const server = new McpServer({ name: "shop", version: "1" });
  const shape = { total: z.number() };
  server.registerTool("get_order", { inputSchema: { order_id: z.string() }, outputSchema: shape }, ({ order_id }) => {
    return order_id === "o-1" ? { content: [], structuredContent: { total: 20 } } : { content: [] };
  });
  const mcp = gateClient(client.gate("mcp-protocol"), await connectedTo(server));
  await mcp.listTools();
  const good = await mcp.callTool({ name: "get_order", arguments: { order_id: "o-1" } });
  assert.deepEqual(good.structuredContent, { total: 20 });
  const again = await mcp.callTool({ name: "get_order", arguments: { order_id: "o-1" } });
  assert.match((again.content as { text: string }[])[0]!.text, /"previous_result":{"total":20}/);
  const bad = await mcp.callTool({ name: "get_order", arguments: { order_id: "o-2" } });
  assert.equal(bad.isError, true);
});

test("a server's name goes before its tools', and a host's id of a call makes it one call", async () => {
  const shop = new Shop();
  const gate = client.gate("mcp-names");
  const mcp = gateClient(gate, await connected(shop), { serverName: "shop" });
  const params = { name: "get_order", arguments: { order_id: "o-1" }, _meta: { "callgate/callId": "host-1" } };
  const refused = await mcp.callTool(params);
  assert.match((refused.content as { text: string }[])[0]!.text, /mcp__shop__get_order/);
  const { state } = await client.calls.getSessionState({ sessionId: "mcp-names" });
  assert.deepEqual(
    state?.calls.map(({ callId, tool }) => [callId, tool]),
    [["host-1", "mcp__shop__get_order"]],
  );
});

test("the model gives the reason that the policy wants, and the server does not see it", async () => {
  const given: unknown[] = [];
  const server = new McpServer({ name: "post", version: "1" });
  server.registerTool("send_letter", { inputSchema: z.strictObject({ to: z.string() }) }, (args) => {
    given.push(args);
    return { content: [] };
  });
  const mcp = gateClient(client.gate("mcp-reason"), await connectedTo(server));
  const { tools } = await mcp.listTools();
  assert.deepEqual(tools[0]!.inputSchema.required, ["to", "justification"]);
  const result = await mcp.callTool({ name: LETTER.tool, arguments: LETTER.args });
  assert.deepEqual(given, [{ to: "ada" }], JSON.stringify(result));
});
