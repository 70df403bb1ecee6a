/** How requests are sent: with a time limit, what the caller shows, the current span, and again after a pause. */
import { MethodOptions_IdempotencyLevel as Idempotency } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type Interceptor, type StreamResponse, type Transport } from "@connectrpc/connect";

import { CallgateError, CallgateUnavailable } from "./errors.js";
import { RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import type { Settings } from "./settings.js";
import { msOf, sleep } from "./times.js";

/** Those that look at much; in milliseconds. */
const LONG_MS: Record<string, number> = { VerifyAudit: 35_000, RebuildRetryProfiles: 600_000 };
const UNLIMITED = new Set(["Forget", "ExportSubject", "Reencrypt"]);
const REPEATED = new Set([Code.Unavailable, Code.Aborted, Code.Canceled]);
const ATTEMPTS = 4;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 2_000;

/** What every request carries. */
export function headers({ token, by }: Settings): Interceptor {
  return (next) => (request) => {
    if (token && !request.header.has("authorization")) request.header.set("authorization", `Bearer ${token}`);
    if (by && !request.header.has("callgate-by")) request.header.set("callgate-by", by);
    spanHeaders(request.header);
    return next(request);
  };
}

/** What @opentelemetry/api registers, by names that its versions keep for each other. */
interface OpenTelemetry {
  context?: { active(): unknown };
  propagation?: {
    inject(context: unknown, carrier: Headers, setter: { set(c: Headers, k: string, v: string): void }): void;
  };
}

function spanHeaders(header: Headers): void {
  const registered = Symbol.for("opentelemetry.js.api.1");
  const api = (globalThis as { [registered]?: OpenTelemetry })[registered];
  if (!api?.context) return;
  api.propagation?.inject(api.context.active(), header, { set: (carrier, name, value) => carrier.set(name, value) });
}

/** Sends what may be sent again, and got no answer, with the same request. */
export const retry: Interceptor = (next) => async (request) => {
  const isRepeatable = !request.stream && request.method.idempotency !== undefined;
  if (!isRepeatable || request.method.idempotency === Idempotency.IDEMPOTENCY_UNKNOWN) return next(request);
  for (let attempt = 1; ; attempt++) {
    try {
      return await next(request);
    } catch (error) {
      // A connection that was lost ends its streams as if somebody had cancelled them.
      const isOurs = request.signal.aborted;
      if (attempt === ATTEMPTS || isOurs || !REPEATED.has(ConnectError.from(error).code)) throw error;
      // When the time is over the last answer says more than that.
      await sleep(pauseMs(attempt, error), request.signal).catch(() => Promise.reject(error));
    }
  }
};

function pauseMs(attempt: number, error: unknown): number {
  const told = msOf(ConnectError.from(error).findDetails(RetryInfoSchema)[0]?.retryDelay) ?? 0;
  const own = Math.min(FIRST_PAUSE_MS * 2 ** (attempt - 1), LONGEST_PAUSE_MS);
  // Callers who were turned away together shall not come back together.
  return Math.max(own, told) * (0.5 + Math.random());
}

/** The transport with time limits, and with typed errors. */
export function typed(transport: Transport, settings: Settings): Transport {
  return {
    async unary(method, signal, limitMs, ...rest) {
      const ownMs = UNLIMITED.has(method.name) ? undefined : (LONG_MS[method.name] ?? settings.timeoutMs);
      try {
        return await transport.unary(method, signal, limitMs ?? ownMs, ...rest);
      } catch (error) {
        signal?.throwIfAborted();
        throw typedError(error, settings);
      }
    },
    async stream(method, signal, ...rest) {
      try {
        const response = await transport.stream(method, signal, ...rest);
        return { ...response, message: typedMessages(response.message, signal) } as StreamResponse as typeof response;
      } catch (error) {
        signal?.throwIfAborted();
        throw CallgateError.of(error);
      }
    },
  };
}

/** What OpenSSL says of a server that answers a TLS handshake in plain text. */
const PLAIN_TEXT = /SSL routines.*(wrong version number|packet length too long|unknown protocol)/;

function typedError(error: unknown, { server }: Settings): CallgateError {
  if (server.protocol !== "https:" || !PLAIN_TEXT.test(String(error))) return CallgateError.of(error);
  const next = `start it with a certificate, or use http://${server.host}`;
  const message = `server: ${server.origin} does not speak TLS; ${next}`;
  return new CallgateUnavailable(message, { code: Code.Unavailable, cause: error });
}

async function* typedMessages<T>(messages: AsyncIterable<T>, signal: AbortSignal | undefined): AsyncIterable<T> {
  try {
    yield* messages;
  } catch (error) {
    signal?.throwIfAborted();
    throw CallgateError.of(error);
  }
}
