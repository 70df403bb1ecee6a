/** Refunds through every client, by each kind of failure: what is executed, what takes effect, what the model reads. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { CallState, type Client, type Running, ToolFailed } from "@callgate/client";
import { gateClient } from "@callgate/client/mcp";
import { OutcomeStatus } from "@callgate/client/v1";
import type { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { z } from "zod";

import { type Args, connected, PLAYERS, type ScriptedTool } from "./players.js";
import { Stage } from "./stage.js";

const POLICY = `
policy_engine:
  unknown_tools: allow
  retry: {probe_share: 0, per_minute: 10000, burst: 10000}
  rules: {tool_circuit_breaker: {mode: "off"}}  # a tool that fails in one case is none the less called in the others
  tool_schemas:
    refund_once: {effect: write, once: true}
    refund_keyed: {effect: write, once: true, key_honored: true}
    refund_deaf: {effect: write, once: true, key_honored: true}
`;
const INJECTED = `${POLICY}  idempotency: {inject_as: argument, argument: request_key}\n`;

const coded = (code: string) => Object.assign(new Error(`connection: ${code}`), { code });
const OPEN: Record<string, () => Error> = {
  timeout: () => new DOMException("The operation was aborted due to timeout", "TimeoutError"),
  network: () => coded("ECONNRESET"),
  unavailable: () => new ToolFailed("503 Service Unavailable", { httpStatus: 503 }),
  internal: () => new ToolFailed("500 Internal Server Error", { httpStatus: 500 }),
};
const CLEAR: Record<string, () => Error> = {
  "rate limited": () => new ToolFailed("429 Too Many Requests", { httpStatus: 429 }),
  refused: () => coded("ECONNREFUSED"),
};

const TURNS = 4;
const MAY_HAVE = "may have happened: ";
/** What the model reads, by a short name: the first that is found. */
const TEXTS: Record<string, RegExp> = {
  [`${MAY_HAVE}once more`]:
    /It may have taken effect\. If it only reads, .* after [\d.]+ s, once more; if it changes something, check first/s,
  [`${MAY_HAVE}check`]: /It may have taken effect: .* check whether it happened .*An earlier \w+ with these/s,
  [`${MAY_HAVE}ask`]: /"outcome_unknown".* may have taken effect\..*Do not repeat it: check whether/s,
  DENY: /"status":"outcome_unknown".*"reason":"same_call".*Check whether it happened, or ask the user/s,
  REUSE: /"status":"duplicate_call_blocked".*"previous_result":\{"id":"re_1"/s,
  success: /re_1/,
};

interface Case {
  tool: string;
  failure: string;
  tookEffect: boolean;
}

interface Row {
  executions: number;
  effects: number;
  read: string[];
}

const FAILURES = [
  ...Object.keys(OPEN).flatMap((failure) => [true, false].map((tookEffect) => ({ failure, tookEffect }))),
  ...Object.keys(CLEAR).map((failure) => ({ failure, tookEffect: false })),
];
const TOOLS = ["refund", "refund_once", "refund_keyed", "refund_deaf"];
const CASES: Case[] = TOOLS.flatMap((tool) => FAILURES.map((failed) => ({ tool, ...failed })));

/** The norm for every client (docs/semantics.md, Permission to repeat). */
function expected({ tool, failure, tookEffect }: Case): Row {
  const isAnswered = ["success", ...Array(TURNS - 1).fill("REUSE")];
  // Nothing was done: the client repeats it. Of an undeclared refund nobody knows that its repetition harms.
  if (failure in CLEAR) return { executions: 2, effects: 1, read: tool === "refund" ? ["success"] : isAnswered };
  if (tool === "refund_keyed") return { executions: 2, effects: 1, read: isAnswered };
  // The last turn comes after somebody has settled it.
  const settled = tookEffect ? "REUSE" : "success";
  const isDeclared = tool !== "refund";
  const asked = isDeclared ? [`${MAY_HAVE}ask`, "DENY"] : [`${MAY_HAVE}once more`, `${MAY_HAVE}check`];
  const executions = (isDeclared ? 1 : 2) + (tookEffect ? 0 : 1);
  return { executions, effects: isDeclared || !tookEffect ? 1 : 2, read: [...asked, "DENY", settled] };
}

/** Pays refunds. Until it is mended it fails after the effect or before it, and it honours a key. */
class Provider {
  executions = 0;
  effects = 0;
  /** Where the client repeats by itself, the repetition finds it mended. */
  failures: number;
  readonly #keys = new Set<unknown>();

  constructor(
    readonly given: Case,
    private readonly isInjected: boolean,
  ) {
    this.failures = given.failure in CLEAR || given.tool === "refund_keyed" ? 1 : 99;
  }

  get tool(): ScriptedTool {
    const isKeyed = this.given.tool === "refund_keyed";
    const text = z.string();
    const key = isKeyed && this.isInjected ? { request_key: text.optional() } : {};
    const execute = (args: Args, running?: Running) => {
      if (!isKeyed) return this.#pay(undefined);
      return this.#pay(this.isInjected ? args["request_key"] : running?.idempotencyKey);
    };
    return { name: this.given.tool, shape: { order: text, amount: text, note: text, ...key }, execute };
  }

  async #pay(key: unknown) {
    this.executions += 1;
    const fails = this.executions <= this.failures;
    if ((!fails || this.given.tookEffect) && (key === undefined || !this.#keys.has(key))) {
      this.effects += 1;
      this.#keys.add(key);
    }
    if (fails) throw { ...OPEN, ...CLEAR }[this.given.failure]!();
    return { id: "re_1", status: "succeeded" };
  }
}

/** Somebody looks whether the call that ran last took effect; of an undeclared one that is the model. */
async function settle(client: Client, sessionId: string, { tool, tookEffect }: Case): Promise<void> {
  const { state } = await client.calls.getSessionState({ sessionId, lastCalls: 64 });
  const callId = state!.calls.find((call) => call.state !== CallState.REFUSED)!.callId;
  const result = '{"id":"re_1"}';
  if (tool === "refund" && !tookEffect) {
    await client.gate(sessionId).run("find_refunds", { sessionId }, () => "none");
  } else if (tool === "refund") {
    await client.calls.record({ caller: { sessionId }, callId, status: OutcomeStatus.SUCCESS, result });
  } else {
    const found = tookEffect ? { status: OutcomeStatus.SUCCESS, result } : { status: OutcomeStatus.CANCELLED };
    const by = { headers: { "callgate-by": "ada" } };
    await client.sessions.settleOutcome({ sessionId, callId, reason: "looked it up", ...found }, by);
  }
}

const named = (text: string) => Object.entries(TEXTS).find(([, found]) => found.test(text))?.[0] ?? text;

async function played(player: string, client: Client, given: Case, isInjected: boolean): Promise<Row> {
  const provider = new Provider(given, isInjected);
  const session = [player, ...Object.values(given)].join("-").replaceAll(" ", "-");
  async function* script() {
    for (let turn = 0; turn < expected(given).read.length; turn++) {
      if (turn === TURNS - 1 && provider.failures > 1) {
        await settle(client, session, given);
        provider.failures = 0;
      }
      yield { order: `A-${session}`, amount: "12.50", note: "late parcel" };
    }
  }
  const read = await PLAYERS[player]!(client, session, provider.tool, script());
  return { executions: provider.executions, effects: provider.effects, read: read.map(named) };
}

async function check(client: Client, player: string, cases: Case[], isInjected: boolean): Promise<void> {
  // At once, since most of the time goes by in waits.
  const rows = await Promise.all(cases.map((given) => played(player, client, given, isInjected)));
  const table = (rows: Row[]) => rows.map((row, n) => ({ ...cases[n], ...row }));
  assert.deepEqual(table(rows), table(cases.map(expected)));
}

/** What gives the tool the arguments alone: the key has to be one of them. */
const FRAMEWORKS = ["ai-sdk", "langchain", "mcp"];

const injecting = Stage.serve({ after }, INJECTED);

for (const player of Object.keys(PLAYERS)) {
  const isInjected = FRAMEWORKS.includes(player);
  test(`a refund that fails is paid twice by no client: ${player}`, async (t) => {
    // On a plane of its own, which learns how long to wait.
    const client = (await Stage.serve(t, isInjected ? INJECTED : POLICY)).client();
    await check(client, player, CASES, isInjected);
  });
  if (!isInjected) {
    test(`a tool that does not read the argument has not received the key: ${player}`, async () => {
      const cases = ["refund_keyed", "refund_deaf"].map((tool) => ({ tool, failure: "timeout", tookEffect: true }));
      await check((await injecting).client(), player, cases, true);
    });
  }
}

/** How a server of the Model Context Protocol says nothing, after it has paid. */
const SILENCES: Record<string, (server: McpServer) => Promise<unknown>> = {
  "no answer in time": () => new Promise(() => {}),
  "the connection is closed": (server) => server.close(),
};

for (const [silence, keep] of Object.entries(SILENCES)) {
  test(`of a refund by the Model Context Protocol the effect is open: ${silence}`, async () => {
    for (const [name, read] of [
      ["refund", "once more"],
      ["refund_once", "ask"],
    ] as const) {
      let executions = 0;
      const shape = { order: z.string(), note: z.string() };
      const execute = async () => {
        executions += 1;
        await keep(server);
      };
      const { mcp, server } = await connected({ name, shape, execute });
      const gated = gateClient((await injecting).client().gate(`${silence}-${name}`), mcp);
      const call = { name, arguments: { order: silence, note: "late parcel" } };
      const { content } = await gated.callTool(call, undefined, { timeout: 200 });
      assert.equal(named((content as { text: string }[])[0]!.text), MAY_HAVE + read);
      assert.equal(executions, 1);
    }
  });
}

test("of a server whose tools nobody has listed it is not known whether it receives the key", async () => {
  const given = { tool: "refund_keyed", failure: "timeout", tookEffect: true };
  const provider = new Provider(given, true);
  const { mcp } = await connected(provider.tool);
  const gated = gateClient((await injecting).client().gate("mcp-not-listed"), mcp);
  const args = { order: "not-listed", amount: "12.50", note: "late parcel" };
  const { content } = await gated.callTool({ name: given.tool, arguments: args });
  assert.equal(named((content as { text: string }[]).map(({ text }) => text).join("\n")), `${MAY_HAVE}ask`);
  assert.equal(provider.executions, 1);
});
