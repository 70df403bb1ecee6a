/**
 * A callgate server for the tests of an agent, in Node: in memory, without PostgreSQL.
 *
 *     import { MemoryServer } from "@callgate/client/testing";
 *
 *     const server = await MemoryServer.start({ policy: "policy_engine: {budgets: {run: {max_steps: 3}}}" });
 *     after(() => server.stop());
 *     const outcome = await server.client().gate("session-1").run("get_order", { order_id: 42 }, getOrder);
 *
 * It is `callgate serve --memory`: the decisions of a server with a database, lost when it ends.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";

import { Client } from "./client.js";
import type { ClientOptions } from "./settings.js";

const START_MS = 30_000;
const STOP_MS = 15_000;
const CLOSE_MS = 1_000;

/** How a server is started. */
export interface MemoryServerOptions {
  /** The text of a policy, or the path of its file: what has a colon is a text. Default: the built-in policy. */
  policy?: string | undefined;
  /** The program. Default: {@link findBinary}. */
  binary?: string | undefined;
  /** Further arguments of `callgate serve`. */
  args?: readonly string[] | undefined;
  /** How long it may take to be ready, in milliseconds; 30,000. */
  startTimeoutMs?: number | undefined;
}

/**
 * The program: `CALLGATE_BIN`, else that of the npm package `callgate` in the present folder or above it, else
 * `callgate` on PATH.
 *
 * @throws Error that there is none.
 */
export function findBinary(): string {
  const named = process.env["CALLGATE_BIN"];
  if (named) {
    if (isProgram(named)) return named;
    throw new Error(`CALLGATE_BIN names ${JSON.stringify(named)}, which is no program`);
  }
  const places = (process.env["PATH"] ?? "").split(delimiter).filter((place) => place);
  const found = [...packaged(), ...places].map((place) => join(place, "callgate")).find(isProgram);
  if (found) return found;
  throw new Error("there is no callgate in node_modules or on PATH: install it, or name the program by CALLGATE_BIN");
}

/** Where npm puts the programs of packages. Only npm's own scripts have them on PATH. */
function packaged(): string[] {
  const folders = [process.cwd()];
  for (let above = dirname(process.cwd()); above !== folders.at(-1); above = dirname(above)) folders.push(above);
  return folders.map((folder) => join(folder, "node_modules", ".bin"));
}

/**
 * A server in memory on a free port of this machine. It ends with `stop`, with `await using`, or with the process.
 * Settings in the environment (`CALLGATE_…`, `OTEL_…`) do not reach it: it is the same in every test run.
 */
export class MemoryServer {
  readonly #process: ChildProcess;
  readonly #folder: string;
  readonly #clients: Client[] = [];
  readonly #kill = () => void this.#process.kill("SIGKILL");
  /** `http://HOST:PORT`. */
  readonly url: string;

  private constructor(process: ChildProcess, folder: string, url: string) {
    this.#process = process;
    this.#folder = folder;
    this.url = url;
    globalThis.process.once("exit", this.#kill);
  }

  /**
   * Starts one; it is ready when the promise resolves.
   *
   * @throws Error that there is no program, or with what it printed before it ended, as for a mistake in the policy.
   */
  static async start(options: MemoryServerOptions = {}): Promise<MemoryServer> {
    const binary = options.binary ?? findBinary();
    const folder = await mkdtemp(join(tmpdir(), "callgate-"));
    try {
      const policy = await policyFile(options.policy, folder);
      const given = [...(policy === undefined ? [] : ["--policy", policy]), ...(options.args ?? [])];
      const server = spawn(binary, ["serve", "--memory", "--listen", "127.0.0.1:0", ...given], {
        env: environment(),
        stdio: ["ignore", "pipe", "pipe"],
      });
      const address = await ready(server, options.startTimeoutMs ?? START_MS);
      return new MemoryServer(server, folder, `http://${address}`);
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      throw error;
    }
  }

  /** A client of it, which is closed before it ends. */
  client(options: Omit<ClientOptions, "server" | "token"> = {}): Client {
    // An empty token is none, also where the environment has one.
    const client = new Client({ ...options, server: this.url, token: "" });
    this.#clients.push(client);
    return client;
  }

  /** Ends it, and all that it knows. A second time does nothing. */
  async stop(): Promise<void> {
    process.removeListener("exit", this.#kill);
    await Promise.all(this.#clients.splice(0).map((client) => client.close({ timeoutMs: CLOSE_MS })));
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      this.#process.ref();
      const ended = once(this.#process, "exit");
      const late = setTimeout(this.#kill, STOP_MS);
      this.#process.kill("SIGTERM");
      await ended;
      clearTimeout(late);
    }
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** As `stop`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

async function policyFile(policy: string | undefined, folder: string): Promise<string | undefined> {
  if (!policy?.includes(":")) return policy;
  const file = join(folder, "policy.yaml");
  await writeFile(file, policy);
  return file;
}

function environment(): NodeJS.ProcessEnv {
  const isOwn = ([name]: [string, unknown]) => !name.startsWith("CALLGATE_") && !name.startsWith("OTEL_");
  return Object.fromEntries(Object.entries(process.env).filter(isOwn));
}

function ready(server: ChildProcess, timeoutMs: number): Promise<string> {
  let printed = "";
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => server.kill("SIGKILL"), timeoutMs);
    const read = (chunk: Buffer) => {
      printed += chunk;
      const address = /serves gRPC on (\S+)/.exec(printed)?.[1];
      if (!address) return;
      clearTimeout(late);
      // What it prints from now on is nobody's, and must not fill the pipes, nor keep the process.
      for (const pipe of [server.stdout, server.stderr]) {
        pipe?.removeAllListeners("data").resume();
        (pipe as Socket | null)?.unref();
      }
      server.unref();
      resolve(address);
    };
    server.stdout?.on("data", read);
    server.stderr?.on("data", read);
    server.once("error", (error) => {
      clearTimeout(late);
      reject(error);
    });
    server.once("close", (code, signal) => {
      clearTimeout(late);
      const said = printed.trim() || "it printed nothing";
      reject(new Error(`callgate ended (${code ?? signal}) before it was ready: ${said}`));
    });
  });
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
