/** Tools behind a gate, by name, for loops that one writes oneself. */
import type { Call, Execute, RunOptions } from "./call.js";
import { CallgateUnavailable, ToolFailed } from "./errors.js";
import type { Gate } from "./gate.js";
import type { ToolDescription } from "./gen/callgate/v1/gate_service_pb.js";
import type { Outcome } from "./outcome.js";
import { type Added, adapted, NOTHING_ADDED, nameOf, names, type Said, taken } from "./schemas.js";

/** What a model is shown beside its tools' own parameters. */
export interface ParameterOptions {
  /**
   * The name of an optional parameter that every schema gets, by which the model can mean a repetition, such as
   * `repeat_intended`. Default: none.
   */
  repeatParameter?: string | undefined;
}

/** What tools' schemas are given for the model, and what it says by that. For who has the functions elsewhere. */
export class Parameters {
  readonly #added = new Map<string, Added>();
  readonly #given = new Map<string, object>();

  constructor(
    readonly gate: Gate,
    private readonly options: ParameterOptions = {},
  ) {}

  /**
   * The tools' schemas as the model is to see them, in the shape that they come in. What is no function, such as a
   * search of the provider's own, stays as it is. While the plane is away nothing is known of what the policy wants.
   *
   * @throws {@link CallgateError} if the request itself is at fault, such as its credential.
   */
  async schemas<T extends object>(schemas: Iterable<T>): Promise<T[]> {
    const given = [...schemas];
    const known = await this.#described(given.map(nameOf).filter(Boolean));
    return given.map((schema) => {
      const name = nameOf(schema);
      const wanted = known.get(name) ?? { needsJustification: false, idempotencyArgument: "" };
      const [made, added] = adapted(schema, wanted, this.options);
      this.#added.set(name, added);
      this.#given.set(name, schema);
      return made;
    });
  }

  /** What this tool's schema was given. */
  added(tool: string): Added {
    return this.#added.get(tool) ?? NOTHING_ADDED;
  }

  /** The arguments without what was added to this tool's schema, and what the model said by that. */
  taken<A extends object | string>(tool: string, args: A): [A, Said] {
    return taken(args, this.added(tool));
  }

  /**
   * Whether a tool takes an argument, by its schema: a framework keeps from it what that does not name. Undefined where
   * the schema is not known.
   */
  takes(tool: string): (argument: string) => boolean | undefined {
    const schema = this.#given.get(tool);
    return (argument) => schema && names(schema, argument);
  }

  async #described(tools: string[]): Promise<Map<string, ToolDescription>> {
    const { client } = this.gate;
    try {
      const described = await client.calls.describeTools({ tools });
      return new Map(described.tools.map((tool) => [tool.tool, tool]));
    } catch (error) {
      if (!(error instanceof CallgateUnavailable)) throw error;
      client.plane.settings.log(`callgate: the policy cannot be asked how tools are to be shown: ${error.message}`);
      return new Map();
    }
  }
}

/** Functions by name. */
export type Tools = Record<string, Execute<unknown>>;

/** Tools behind a gate, by {@link Gate.wrap}. */
export class Toolbox extends Parameters {
  constructor(
    gate: Gate,
    readonly tools: Tools,
    options: ParameterOptions = {},
  ) {
    super(gate, options);
  }

  /** As of the gate: then `tools: []` goes to the model. */
  get toolsDisabled(): boolean {
    return this.gate.toolsDisabled;
  }

  /**
   * A call of one of the tools, as `batch` of the gate takes it. A name that is no tool's is judged as well: a model
   * that makes up names is told so.
   */
  call(name: string, args: object | string, options: RunOptions = {}): Call {
    const [left, said] = this.taken(name, args);
    const execute = Object.hasOwn(this.tools, name) ? (this.tools[name] as Execute<unknown>) : this.#missing(name);
    return { ...said, ...options, tool: name, args: left, execute };
  }

  /** As `run` of the gate, with the tool of that name. */
  run(name: string, args: object | string, options: RunOptions = {}): Promise<Outcome> {
    const { tool, args: left, execute, ...rest } = this.call(name, args, options);
    return this.gate.run(tool, left, execute, rest);
  }

  #missing(name: string): Execute<never> {
    return () => {
      const known = Object.keys(this.tools).sort().join(", ") || "none";
      throw new ToolFailed(`There is no tool ${name}. The tools are: ${known}.`, {
        type: "UnknownTool",
        httpStatus: 404,
      });
    };
  }
}
