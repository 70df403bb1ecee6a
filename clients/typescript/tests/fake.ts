/** A plane that answers as a test says, and a way in between that fails. */
import { createServer, type Http2Server } from "node:http2";
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from "node:net";

import type { GateService } from "@callgate/client/v1";
import { GateService as Service } from "@callgate/client/v1";
import type { ServiceImpl } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

import type { Ending } from "./stage.js";

/** Serves these methods; the answer is its URL. */
export async function fakePlane(ending: Ending, methods: Partial<ServiceImpl<typeof GateService>>): Promise<string> {
  const routes = connectNodeAdapter({ routes: (router) => router.service(Service, methods) });
  const server: Http2Server = createServer(routes);
  server.listen(0, "127.0.0.1");
  const sessions = new Set<{ destroy(): void }>();
  server.on("session", (session) => sessions.add(session));
  await new Promise((resolve) => server.once("listening", resolve));
  ending.after(async () => {
    for (const session of sessions) session.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A proxy of TCP before a port. */
export class Between {
  /** Ways that were opened. */
  opened = 0;
  readonly #ways = new Set<[Socket, Socket]>();
  /** When set, the next bytes from the server are thrown away, and the way is cut: an answer is lost. */
  isDeaf = false;

  private constructor(
    private readonly target: number,
    private readonly idleMs: number | undefined,
  ) {}

  static async serve(ending: Ending, target: number, idleMs?: number): Promise<Between & { url: string }> {
    const proxy = new Between(target, idleMs);
    const server = createTcpServer((socket) => proxy.#join(socket)).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    ending.after(async () => {
      proxy.cut();
      server.close();
    });
    return Object.assign(proxy, { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  }

  /** Cuts what is open. */
  cut(): void {
    for (const way of this.#ways) for (const socket of way) socket.destroy();
  }

  /** Forgets what is open without a word: what is sent there from now on goes nowhere. */
  forget(): void {
    for (const [near, far] of this.#ways) {
      near.removeAllListeners("data").resume();
      far.removeAllListeners("data").resume();
      near.setTimeout(0);
    }
  }

  #join(near: Socket): void {
    this.opened += 1;
    const far = connect(this.target, "127.0.0.1");
    const way: [Socket, Socket] = [near, far];
    this.#ways.add(way);
    const end = () => {
      this.#ways.delete(way);
      near.destroy();
      far.destroy();
    };
    for (const socket of way) socket.on("error", end).on("close", end);
    near.on("data", (data) => far.write(data));
    far.on("data", (data) => {
      if (this.isDeaf) end();
      else near.write(data);
    });
    if (this.idleMs !== undefined) near.setTimeout(this.idleMs, end);
  }
}
