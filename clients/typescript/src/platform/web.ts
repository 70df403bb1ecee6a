/** Browsers, and whatever else has fetch: the Connect protocol. */
import { createConnectTransport } from "@connectrpc/connect-web";

import type { Platform } from "./platform.js";

export const platform: Platform = {
  connect(settings, interceptors) {
    for (const name of ["socket", "ca", "cert", "key"] as const) {
      if (settings[name]) throw new TypeError(`${name}: a browser makes its connections itself`);
    }
    // Binary: 64-bit integers and unknown fields survive, and a newer server may say more than this client knows.
    const transport = createConnectTransport({ baseUrl: settings.server.origin, interceptors, useBinaryFormat: true });
    // The browser ends its connections itself.
    return { transport, close: () => {} };
  },
  defaults() {
    const origin = globalThis.location?.origin;
    return { server: origin?.startsWith("http") ? origin : undefined };
  },
  // A page ends without a word.
  atEnd() {},
};
