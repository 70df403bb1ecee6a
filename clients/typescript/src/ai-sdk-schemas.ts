/** The tools of the AI SDK as a model is to see them. */
import { asSchema, jsonSchema } from "ai";

import type { Any, AnyTool } from "./ai-sdk-calls.js";
import { type Parameters, type Said, ToolFailed } from "./index.js";

/** The tools' schemas as the model is to see them: asked for once, with the first of them that is needed. */
export class ShownTools {
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
    const [args, said] = this.parameters.taken(name, input);
    return [args, { ...said, takes: this.parameters.takes(name) }];
  }

  /**
   * Arguments that a person chose, as the tool's schema makes them (dates, defaults).
   *
   * @throws ToolFailed if they do not fit it.
   */
  async fit({ inputSchema }: AnyTool, args: unknown): Promise<unknown> {
    const checked = await asSchema(inputSchema).validate?.(args);
    if (checked?.success === false) {
      throw new ToolFailed(`The approved arguments do not fit the tool: ${checked.error.message}`);
    }
    return checked ? checked.value : args;
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
