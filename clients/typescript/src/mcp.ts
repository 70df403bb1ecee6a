/**
 * Model Context Protocol: a client whose tool calls pass the gate.
 *
 * ```ts
 * const client = gateClient(gate, mcpClient, { serverName: "shop" });
 * ```
 *
 * @module
 */
import { type Gate, Result, ToolFailed } from "./index.js";

/** How a server's tools are put to the gate. */
export interface GateClientOptions {
  /** The policy knows the tools as `mcp__NAME__TOOL`, as coding agents do. Default: by the server's own names. */
  serverName?: string;
}

// biome-ignore lint/suspicious/noExplicitAny: what stands behind a call's parameters differs between versions of the SDK
type Any = any;

/** A client of the protocol's SDK, of any version, as far as it is wrapped here. */
interface McpClient {
  callTool(params: CallParams, ...rest: Any[]): Promise<Any>;
}

interface CallParams {
  name: string;
  arguments?: Record<string, unknown>;
  _meta?: Record<string, unknown>;
}

interface CallResult {
  content?: { type: string; text?: string }[];
  structuredContent?: unknown;
  isError?: boolean;
}

/**
 * The same client, whose `callTool` is asked for, executed under its permit, and reported.
 *
 * What the server gave comes back as it is, with what callgate says of it as one more text. A refusal, and a failure of the
 * protocol or the transport, is a result with `isError` and a text, since that is what models are shown. The call's id is
 * `_meta["callgate/callId"]`, else a fresh one.
 */
export function gateClient<C extends McpClient>(gate: Gate, client: C, options: GateClientOptions = {}): C {
  const { serverName } = options;
  const nameOf = (tool: string) => (serverName === undefined ? tool : `mcp__${serverName}__${tool}`);
  const callTool = (params: CallParams, ...rest: Any[]) => gatedCall(gate, client, nameOf(params.name), params, rest);
  return new Proxy(client, {
    get(target, name) {
      if (name === "callTool") return callTool;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

async function gatedCall(gate: Gate, client: McpClient, tool: string, params: CallParams, rest: Any[]) {
  const execute = async (args: Record<string, unknown>) => {
    const given: CallResult = await client.callTool({ ...params, arguments: args }, ...rest);
    const text = textOf(given);
    if (given.isError) throw new ToolFailed(text, { cause: given });
    const { structuredContent } = given;
    return new Result(given, { text: structuredContent === undefined ? text : JSON.stringify(structuredContent) });
  };
  const signal = rest.find((options) => options?.signal)?.signal as AbortSignal | undefined;
  const named = params._meta?.["callgate/callId"];
  const callId = typeof named === "string" ? named : undefined;
  const { value, error, isError, text, hint } = await gate.run(tool, params.arguments ?? {}, execute, {
    callId,
    signal,
  });
  const given = value ?? (error instanceof ToolFailed ? (error.cause as CallResult | undefined) : undefined);
  const more = given && !isError ? hint : text;
  if (!more) return given;
  return { ...given, content: [...(given?.content ?? []), { type: "text", text: more }], isError };
}

/** What the model reads of a result: its texts a line each, or as JSON where there is more than texts. */
function textOf({ content = [] }: CallResult): string {
  const isText = content.every(({ type }) => type === "text");
  return isText ? content.map(({ text }) => text).join("\n") : JSON.stringify(content);
}
