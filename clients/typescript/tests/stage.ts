/** A callgate server of one test, and the people whom it asks. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Client, type ClientOptions } from "@callgate/client";

/** What ends when a test does, or a file of tests: a test's context, or node:test itself. */
export interface Ending {
  after(end: () => Promise<void>): void;
}

let sessions = 0;

/** A session that no other test has. */
export function newSession(): string {
  return `session-${process.pid}-${++sessions}`;
}

export class Stage {
  #server: ChildProcess | undefined;
  #address = "127.0.0.1:0";
  readonly #clients: Client[] = [];

  private constructor(
    private readonly folder: string,
    private readonly args: string[],
  ) {}

  /** A server with a policy and a database of its own, which end with the test. */
  static async serve(ending: Ending, policy = "policy_engine: {}\n", ...args: string[]): Promise<Stage> {
    const folder = await mkdtemp(join(tmpdir(), "callgate-"));
    // Run as root, callgate has its database run as another user.
    await chmod(folder, 0o755);
    await writeFile(join(folder, "policy.yaml"), policy);
    const stage = new Stage(folder, args);
    ending.after(async () => {
      await Promise.all(stage.#clients.map((client) => client.close()));
      await stage.stop();
      await rm(folder, { recursive: true, force: true });
    });
    await stage.start();
    return stage;
  }

  /** http://127.0.0.1:PORT. */
  get url(): string {
    return `http://${this.#address}`;
  }

  get port(): number {
    return Number(this.#address.split(":")[1]);
  }

  /** A client that is closed before the server ends. */
  client(options: ClientOptions = {}): Client {
    const client = new Client({ server: this.url, log: () => {}, ...options });
    this.#clients.push(client);
    return client;
  }

  /** At the address that it had before, if it had one. */
  async start(): Promise<void> {
    const places = ["--data-dir", join(this.folder, "data"), "--policy", join(this.folder, "policy.yaml")];
    const server = spawn(binary(), ["serve", "--listen", this.#address, ...places, ...this.args], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#server = server;
    let said = "";
    this.#address = await new Promise<string>((resolve, reject) => {
      const read = (chunk: Buffer) => {
        said += chunk;
        const address = /serves gRPC on (\S+)/.exec(said)?.[1];
        if (address) resolve(address);
      };
      server.stdout.on("data", read);
      server.stderr.on("data", read);
      server.once("error", reject);
      server.once("exit", () => reject(new Error(`callgate has ended:\n${said}`)));
    });
  }

  /** Ends it in order, or at once as a machine that fails. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (!server || server.exitCode !== null || server.signalCode !== null) return;
    const ended = once(server, "exit");
    server.kill(signal);
    await ended;
  }

  /** Has it stand still, as a machine that is too slow, until it is continued. */
  signal(signal: "SIGSTOP" | "SIGCONT"): void {
    assert(this.#server?.kill(signal));
  }
}

function binary(): string {
  const places = [process.env["CALLGATE_BIN"], ...["release", "debug"].map((kind) => `../../target/${kind}/callgate`)];
  const found = places.find((place) => place && existsSync(place));
  assert(found, "no callgate: build it, or name one by CALLGATE_BIN");
  return found;
}
