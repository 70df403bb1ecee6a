/**
 * Model Context Protocol: a client whose tool calls pass the gate.
 *
 * ```ts
 * const client = gateClient(gate, mcpClient, { serverName: "shop" });
 * ```
 *
 * @module
 */
import { type Gate, type ParameterOptions, type Parameters, Result, ToolFailed } from "./index.js";

/** How a server's tools are put to the gate. */
export interface GateClientOptions extends ParameterOptions {
  /** The policy knows the tools as `mcp__NAME__TOOL`, as coding agents do. Default: by the server's own names. */
  serverName?: string | undefined;
}

// biome-ignore lint/suspicious/noExplicitAny: what follows the parameters differs between versions of the SDK
type Any = any;

/** A client of the protocol's SDK, of any version, as far as it is wrapped here. */
interface McpClient {
  callTool(params: CallParams, ...rest: Any[]): Promise<Any>;
  listTools(...args: Any[]): Promise<Any>;
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
 * The same client, whose `callTool` is asked for, executed under its permit, and reported, and whose `listTools` gives
 * the tools' schemas as the model is to see them.
 *
 * What the server gave comes back as it is, with what callgate says of it as one more text. A refusal, and a failure of
 * the protocol or the transport, is a result with `isError` and a text, since that is what models are shown. The call's
 * id is
 * `_meta["callgate/callId"]`, else a fresh one.
 */
export function gateClient<C extends McpClient>(gate: Gate, client: C, options: GateClientOptions = {}): C {
  const gated: McpClient = new GatedClient(gate, client, options);
  return new Proxy(client, {
    get(target, name) {
      if (name === "callTool" || name === "listTools") return gated[name].bind(gated);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

class GatedClient implements McpClient {
  readonly #parameters: Parameters;
  readonly #prefix: string;

  constructor(
    private readonly gate: Gate,
    private readonly client: McpClient,
    options: GateClientOptions,
  ) {
    this.#parameters = gate.parameters(options);
    this.#prefix = options.serverName === undefined ? "" : `mcp__${options.serverName}__`;
  }

  async listTools(...args: Any[]) {
    const listed = await this.client.listTools(...args);
    const named = listed.tools.map((tool: { name: string }) => ({ ...tool, name: this.#prefix + tool.name }));
    const shown: { name: string }[] = await this.#parameters.schemas(named);
    return { ...listed, tools: shown.map((tool) => ({ ...tool, name: tool.name.slice(this.#prefix.length) })) };
  }

  async callTool(params: CallParams, ...rest: Any[]) {
    const tool = this.#prefix + params.name;
    const [proposed, said] = this.#parameters.taken(tool, params.arguments ?? {});
    const execute = async (args: Record<string, unknown>) => {
      const given: CallResult = await this.client.callTool({ ...params, arguments: args }, ...rest);
      const text = textOf(given);
      if (given.isError) throw new ToolFailed(text, { cause: given });
      const { structuredContent } = given;
      return new Result(given, { text: structuredContent === undefined ? text : JSON.stringify(structuredContent) });
    };
    const signal = rest.find((options) => options?.signal)?.signal as AbortSignal | undefined;
    const named = params._meta?.["callgate/callId"];
    const callId = typeof named === "string" ? named : undefined;
    const outcome = await this.gate.run(tool, proposed, execute, {
      ...said,
      callId,
      signal,
      takes: this.#parameters.takes(tool),
    });
    const { value, error, isError, text, hint } = outcome;
    const given = value ?? (error instanceof ToolFailed ? (error.cause as CallResult | undefined) : undefined);
    const more = given && !isError ? hint : text;
    if (!more) return given;
    return { ...given, content: [...(given?.content ?? []), { type: "text", text: more }], isError };
  }
}

/** What the model reads of a result: its texts a line each, or as JSON where there is more than texts. */
function textOf({ content = [] }: CallResult): string {
  const isText = content.every(({ type }) => type === "text");
  return isText ? content.map(({ text }) => text).join("\n") : JSON.stringify(content);
}
