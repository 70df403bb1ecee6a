/** What Node and browsers do each in their own way. `#platform` is the one that the program runs on. */
import type { Interceptor, Transport } from "@connectrpc/connect";

import type { ClientOptions, Settings } from "../settings.js";

/** A way to the plane, which is made with the first request. */
export interface Connection {
  transport: Transport;
  /** Ends it, with all that is open on it; a later request connects anew. */
  close(): void;
}

export interface Platform {
  /** @throws Error naming the option that cannot be used. */
  connect(settings: Settings, interceptors: Interceptor[]): Connection;
  /** What the surroundings say; empty values say nothing. */
  defaults(): ClientOptions;
  /** Has work begun once the program has nothing else to do, where that can be known; the process waits for it. */
  atEnd(work: () => Promise<void>): void;
}
