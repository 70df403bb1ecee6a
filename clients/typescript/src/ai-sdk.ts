/**
 * Vercel AI SDK: tools whose calls pass the gate.
 *
 * ```ts
 * const { text } = await generateText({ model, prompt, tools: gateTools(gate, tools) });
 * ```
 *
 * @module
 */
import { asSchema, jsonSchema } from "ai";

import { answerQuestion } from "./approvals.js";
import {
  type Client,
  Decision,
  type Execute,
  type Gate,
  type Outcome,
  type ParameterOptions,
  type Parameters,
  type Said,
} from "./index.js";

/** How tools are put to the gate. */
export interface GateToolsOptions extends ParameterOptions {
  /**
   * Let the application's user answer where a person must approve, by the SDK's own tool approval
   * (`tool-approval-request`), instead of waiting for somebody in callgate. `by` names the user; `client` is one with
   * the credential of who answers, where callgate has credentials.
   */
  approvals?: { by?: string | undefined; client?: Client | undefined } | undefined;
}

/** A call was refused, or failed: the message is what the model is to see, the cause the tool's own error if it ran. */
export class ToolCallError extends Error {
  override readonly name = "ToolCallError";

  constructor(readonly outcome: Outcome) {
    super(outcome.text, { cause: outcome.error });
  }
}

// biome-ignore lint/suspicious/noExplicitAny: each tool says itself what it takes and gives
type Any = any;

/** A tool of any version of the SDK, as far as it is wrapped here. */
interface AnyTool {
  type?: string;
  strict?: boolean;
  inputSchema: Any;
  execute?: (input: Any, options: CallOptions) => unknown;
  needsApproval?: boolean | ((input: Any, options: CallOptions) => boolean | PromiseLike<boolean>);
  toModelOutput?: (shown: Shown) => Any;
}

interface CallOptions {
  toolCallId: string;
  messages: readonly { role: string; content: unknown }[];
  abortSignal?: AbortSignal;
}

interface Shown {
  toolCallId: string;
  input: Any;
  output: Any;
}

/**
 * The same tools, each of whose calls is asked for, executed under its permit, and reported.
 *
 * The application gets the tool's own output, the model what callgate says of it, hints included. A refusal and a
 * failure are thrown as {@link ToolCallError}, whose message the SDK hands to the model. Tools without `execute` run
 * elsewhere and are left as they are. Input that does not fit a tool's schema is refused by the SDK before callgate is
 * asked.
 */
export function gateTools<T extends Record<string, object>>(gate: Gate, tools: T, options: GateToolsOptions = {}): T {
  const shown = new ShownTools(gate.parameters(options), tools as Record<string, AnyTool>);
  const gated = Object.entries(tools).map(([name, tool]) => [
    name,
    gateTool(gate, name, tool as AnyTool, shown, options),
  ]);
  return Object.fromEntries(gated) as T;
}

function gateTool(
  gate: Gate,
  name: string,
  tool: AnyTool,
  shown: ShownTools,
  { approvals }: GateToolsOptions,
): AnyTool {
  const { execute, needsApproval, toModelOutput } = tool;
  if (!execute) return tool;
  const told = new Told();

  const run = async (input: Any, options: CallOptions, each?: (part: unknown) => void): Promise<unknown> => {
    const { toolCallId: callId, messages, abortSignal: signal } = options;
    const [args, said] = await shown.taken(name, input);
    const ask = (approvalWaitMs?: number) => {
      const run: Execute<Promise<unknown>> = (mended, running) =>
        last(execute(restored(args, mended), { ...options, abortSignal: running.signal }), each);
      return gate.run(name, args, run, { ...said, callId, turn: turnOf(messages), signal, approvalWaitMs });
    };
    const isApproved = approvals && isAnswered(messages);
    let outcome = await ask(isApproved ? 0 : undefined);
    if (isApproved && outcome.approvalId) {
      await answerQuestion(approvals.client ?? gate.client, outcome.approvalId, { approve: true, by: approvals.by });
      outcome = await ask();
    }
    if (outcome.isError || outcome.approvalId) throw new ToolCallError(outcome);
    return told.keep(callId, outcome.unwrap(), outcome);
  };

  return {
    ...tool,
    inputSchema: shown.schema(name, tool),
    execute: isGenerator(execute) ? (input, options) => streamed((each) => run(input, options, each)) : run,
    toModelOutput: async (shown) => {
      const outcome = told.of(shown);
      if (outcome && !(toModelOutput && outcome.ran)) return { type: "text", value: outcome.text };
      const output = toModelOutput ? await toModelOutput(shown) : plain(shown.output);
      return outcome?.hint ? hinted(output, outcome.hint) : output;
    },
    ...(approvals && {
      needsApproval: async (input, options) => {
        if (typeof needsApproval === "function" ? await needsApproval(input, options) : needsApproval) return true;
        if (isAnswered(options.messages)) return true;
        const { toolCallId: callId, messages } = options;
        // Judged without storing anything: where the user says no, nobody is left with an open question.
        const [args, said] = await shown.taken(name, input);
        const verdict = await gate.evaluate(name, args, { ...said, callId, turn: turnOf(messages), dryRun: true });
        return verdict.decision === Decision.ASK;
      },
    }),
  };
}

/** The tools' schemas as the model is to see them: asked for once, with the first of them that is needed. */
class ShownTools {
  #shown: Promise<Map<string, Any>> | undefined;

  constructor(
    private readonly parameters: Parameters,
    private readonly tools: Record<string, AnyTool>,
  ) {}

  /** A provider's own tools keep their schemas: the provider shows them to the model. */
  schema(name: string, { type, inputSchema }: AnyTool): Any {
    if (type === "provider") return inputSchema;
    const { validate } = asSchema(inputSchema);
    const check = async (value: unknown) => {
      const [args] = await this.taken(name, value as object);
      const checked = await validate?.(args);
      if (checked?.success !== true) return checked ?? { success: true as const, value };
      const added = Object.entries(value as object).filter(([member]) => !Object.hasOwn(args, member));
      return { ...checked, value: { ...(checked.value as object), ...Object.fromEntries(added) } };
    };
    return jsonSchema(async () => (await this.#schemas()).get(name), { validate: check });
  }

  /** A call may come before any model is asked: of a conversation that goes on in another process. */
  async taken(name: string, input: object): Promise<[object, Said]> {
    await this.#schemas();
    return this.parameters.taken(name, input);
  }

  #schemas(): Promise<Map<string, Any>> {
    this.#shown ??= this.#ask();
    return this.#shown;
  }

  async #ask(): Promise<Map<string, Any>> {
    const own = Object.entries(this.tools).filter(([, { type, execute }]) => execute && type !== "provider");
    const given = own.map(async ([name, { inputSchema, strict }]) => {
      return { name, parameters: await asSchema(inputSchema).jsonSchema, strict };
    });
    const shown = await this.parameters.schemas(await Promise.all(given));
    return new Map(shown.map(({ name, parameters }) => [name, parameters]));
  }
}

/** What came of the calls whose output the model has yet to be told; the oldest are forgotten. */
class Told {
  readonly #kept = new Map<string, { output: unknown; outcome: Outcome }>();

  keep<T>(callId: string, output: T, outcome: Outcome): T {
    this.#kept.delete(callId);
    this.#kept.set(callId, { output, outcome });
    for (const oldest of this.#kept.keys()) if (this.#kept.size > 256) this.#kept.delete(oldest);
    return output;
  }

  /** By id and output: an id may come again in another turn. */
  of({ toolCallId, output }: Shown): Outcome | undefined {
    const kept = this.#kept.get(toolCallId);
    return kept && Object.is(kept.output, output) ? kept.outcome : undefined;
  }
}

/** How many times the model has spoken before it proposed the call, which tells apart ids that come again. */
function turnOf(messages: CallOptions["messages"]): string {
  const spoken = messages.filter(({ role }) => role === "assistant").length;
  return `${isAnswered(messages) ? spoken - 1 : spoken}`;
}

/** Is the call one that the user was asked about? Then the messages end with the proposal and the answers. */
function isAnswered(messages: CallOptions["messages"]): boolean {
  const { role, content } = messages.at(-1) ?? {};
  return role === "tool" && Array.isArray(content) && content.some(({ type }) => type === "tool-approval-response");
}

/** The arguments to execute, with what the schema had made of them (dates, defaults) where callgate left them alone. */
function restored(input: Any, args: Record<string, unknown>): unknown {
  const isSame = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);
  if (isSame(input, args)) return input;
  const entries = Object.entries(args).map(([name, value]) => [name, isSame(input[name], value) ? input[name] : value]);
  return Object.fromEntries(entries);
}

/** The last of what a tool gives, which may give several in turn. */
async function last(given: unknown, each?: (part: unknown) => void): Promise<unknown> {
  const value = await given;
  if (!isIterable(value)) return value;
  let latest: unknown;
  for await (const part of value) {
    latest = part;
    each?.(part);
  }
  return latest;
}

const isIterable = (value: unknown): value is AsyncIterable<unknown> =>
  typeof value === "object" && value !== null && Symbol.asyncIterator in value;

const isGenerator = (execute: object) => Object.prototype.toString.call(execute) === "[object AsyncGeneratorFunction]";

/** Gives what a call gives in turn as it comes, and for a call that did not run what stands in its place. */
async function* streamed(run: (each: (part: unknown) => void) => Promise<unknown>): AsyncGenerator<unknown> {
  const parts: unknown[] = [];
  let wake = () => {};
  let isOver = false;
  let ran = false;
  const done = run((part) => {
    ran = true;
    parts.push(part);
    wake();
  }).finally(() => {
    isOver = true;
    wake();
  });
  done.catch(() => {});
  while (!isOver || parts.length > 0) {
    if (parts.length > 0) yield parts.shift();
    else await new Promise<void>((resolve) => (wake = resolve));
  }
  const value = await done;
  if (!ran) yield value;
}

/** As the SDK shows an output itself. */
const plain = (output: unknown) =>
  typeof output === "string" ? { type: "text", value: output } : { type: "json", value: output ?? null };

/** An output of a tool's own making, with a hint after it. */
function hinted(output: { type: string; value: Any }, hint: string) {
  const text = (value: string) => ({ type: "text", text: value });
  if (output.type === "content") return { ...output, value: [...output.value, text(hint)] };
  if (output.type === "text") return { ...output, value: `${output.value}\n\n${hint}` };
  return { type: "content", value: [text(JSON.stringify(output.value)), text(hint)] };
}
