/** Which plane is asked, and what is shown to it. */
import { checkFunction, checkNames, checkText } from "./call.js";
import { checkMs } from "./times.js";

/** What a client is told. What is left out comes from the environment (Node alone), by the command line's names. */
export interface ClientOptions {
  /**
   * `http://HOST:PORT`, `https://HOST:PORT`, or in Node `unix:PATH`. Without a scheme: `http://` for this machine
   * (`localhost`, `127.0.0.1`, `[::1]`), `https://` for any other. Default: `CALLGATE_SERVER`, else
   * `http://127.0.0.1:7600`; in a page its own origin.
   */
  server?: string | undefined;
  /** The API token to show. Default: what is in the file `CALLGATE_TOKEN_FILE`, else `CALLGATE_TOKEN`. */
  token?: string | undefined;
  /** Who does what is done, where nobody has a credential. Default: `CALLGATE_BY`. */
  by?: string | undefined;
  /** The authority of the server's certificate: a PEM file's name, or its text. Node alone. Default: `CALLGATE_CA`. */
  ca?: string | undefined;
  /** The certificate to show, in the same way. Node alone. Default: `CALLGATE_CERT`. */
  cert?: string | undefined;
  /** Its key, in the same way. Node alone. Default: `CALLGATE_KEY`. */
  key?: string | undefined;
  /** How long an answer may take, retries included, in milliseconds; 10,000. What waits for people has longer. */
  timeoutMs?: number | undefined;
  /** Where warnings go, such as that of an outcome that could not be stored. Default: `console.warn`. */
  log?: ((message: string) => void) | undefined;
}

/** The options with all that is known. */
export interface Settings {
  server: URL;
  /** The path of a Unix socket; then the host of `server` means nothing. */
  socket: string | undefined;
  token: string | undefined;
  by: string | undefined;
  ca: string | undefined;
  cert: string | undefined;
  key: string | undefined;
  timeoutMs: number;
  log: (message: string) => void;
}

export const DEFAULT_SERVER = "http://127.0.0.1:7600";
const TIMEOUT_MS = 10_000;
/** A day, with which what is waited for goes into a timer of JavaScript: past 2^31 it would fire at once. */
const LONGEST_TIMEOUT_MS = 86_400_000;
const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

const OPTIONS = {
  server: 1,
  token: 1,
  by: 1,
  ca: 1,
  cert: 1,
  key: 1,
  timeoutMs: 1,
  log: 1,
} satisfies Record<keyof ClientOptions, 1>;

/** @throws Error naming the option that makes no sense. */
export function settingsOf(options: ClientOptions, defaults: ClientOptions): Settings {
  checkNames("a client", options, OPTIONS);
  for (const name of ["server", "token", "by", "ca", "cert", "key"] as const) checkText(name, options[name]);
  checkFunction("log", options.log);
  checkMs("timeoutMs", options.timeoutMs);
  const pick = <K extends keyof ClientOptions>(name: K) => options[name] ?? (defaults[name] || undefined);
  const given = pick("server") ?? DEFAULT_SERVER;
  const socket = given.startsWith("unix:") ? given.slice("unix:".length) : undefined;
  const server = urlOf(socket === undefined ? given : "http://localhost");
  const token = pick("token");
  const [cert, key] = [pick("cert"), pick("key")];
  const timeoutMs = Math.min(options.timeoutMs ?? TIMEOUT_MS, LONGEST_TIMEOUT_MS);
  if (!cert !== !key) throw new TypeError("cert and key go together: a certificate is shown with its key");
  const by = pick("by");
  for (const [name, value] of Object.entries({ token, by })) {
    if (value && !/^[\x20-\x7e]+$/.test(value)) {
      throw new TypeError(`${name}: it has other characters than those of printable ASCII`);
    }
  }
  if (token && server.protocol === "http:" && !LOOPBACK.test(server.hostname)) {
    throw new TypeError(`server: a token would travel to ${given} for everybody to read; use https://`);
  }
  const say = options.log ?? ((message: string) => console.warn(message));
  // What it throws is its own: no report is to wait for ever since it could not be logged.
  const log = (message: string) => {
    try {
      say(message);
    } catch {}
  };
  return { server, socket, token, by, ca: pick("ca"), cert, key, timeoutMs, log };
}

function urlOf(server: string): URL {
  const here = (text: string) => URL.canParse(text) && LOOPBACK.test(new URL(text).hostname);
  // Without a scheme this machine is asked in plain text, and any other by TLS.
  const text = server.includes("://") ? server : `${here(`http://${server}`) ? "http" : "https"}://${server}`;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || url.pathname !== "/" || url.username || url.search || url.hash) {
    throw new TypeError(`server: "${server}" is not http://HOST:PORT, https://HOST:PORT or unix:PATH`);
  }
  return url;
}
