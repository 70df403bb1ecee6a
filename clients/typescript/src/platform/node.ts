/** Node: gRPC over HTTP/2. */
import { readFileSync } from "node:fs";
import { connect as dial } from "node:net";

import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import type { Settings } from "../settings.js";
import type { Platform } from "./platform.js";

// A connection that something in between has cut without a word is noticed in 8 seconds, so that a request on it is
// sent again on another one before its time is over. Idle ones are looked at with the next request: the session manager
// would throw from its timer, and end the process, if it pinged one that is gone (2.1.2).
const PINGS = { pingIntervalMs: 5_000, pingTimeoutMs: 3_000, pingIdleConnection: false };

export const platform: Platform = {
  connect(settings, interceptors) {
    const baseUrl = settings.server.origin;
    const sessionManager = new Http2SessionManager(baseUrl, PINGS, nodeOptions(settings));
    const transport = createGrpcTransport({ baseUrl, sessionManager, interceptors });
    return { transport, close: () => sessionManager.abort() };
  },
  defaults() {
    const { env } = process;
    return {
      server: env["CALLGATE_SERVER"],
      // A file is read where no token is given, and is not missed where one is.
      get token() {
        const file = env["CALLGATE_TOKEN_FILE"];
        return (file ? read("CALLGATE_TOKEN_FILE", file) : env["CALLGATE_TOKEN"])?.trim();
      },
      by: env["CALLGATE_BY"],
      ca: env["CALLGATE_CA"],
      cert: env["CALLGATE_CERT"],
      key: env["CALLGATE_KEY"],
    };
  },
  atEnd(work) {
    process.once("beforeExit", () => void work());
  },
};

function nodeOptions({ socket, ca, cert, key }: Settings) {
  return {
    ...(socket !== undefined && { createConnection: () => dial(socket) }),
    ...(ca && { ca: pem("ca", ca) }),
    ...(cert && key && { cert: pem("cert", cert), key: pem("key", key) }),
  };
}

function pem(name: string, given: string): string {
  return given.includes("-----BEGIN") ? given : read(name, given);
}

function read(name: string, file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new TypeError(`${name}: cannot read ${file}: ${(error as Error).message}`, { cause: error });
  }
}
