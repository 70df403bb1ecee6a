/** A plane as one client sees it: its connections, and what goes on in the background. */

import { create } from "@bufbuild/protobuf";
import { Code, createClient, type Client as Stub, type Transport } from "@connectrpc/connect";
import { platform } from "#platform";

import { CallIdReused } from "./errors.js";
import { FirstValues } from "./firsts.js";
import { ApprovalService } from "./gen/callgate/v1/approval_service_pb.js";
import { GateService, RecordRequestSchema } from "./gen/callgate/v1/gate_service_pb.js";
import { type Caller, OutcomeStatus, type Permit } from "./gen/callgate/v1/types_pb.js";
import { keyOf, type Report, Reports, type Unsent } from "./reports.js";
import type { Settings } from "./settings.js";
import { timestampMs, unref } from "./times.js";
import { headers, retry, typed } from "./transport.js";
import { PendingUsage } from "./usage.js";

// The lease is told by the plane's clock. Where this machine's is another one, it would look longer than it is.
const LONGEST_BEAT_MS = 60_000;
const SHORTEST_BEAT_MS = 200;

export class Plane {
  readonly transport: Transport;
  readonly calls: Stub<typeof GateService>;
  /** For what waits long, on a connection of its own: a server answers so many requests of one at a time. */
  readonly waiting: Stub<typeof GateService>;
  readonly reports: Reports;
  readonly firsts = new FirstValues();
  readonly usage = new PendingUsage();
  readonly #connections;
  readonly #approvals: Stub<typeof ApprovalService>;
  readonly #running = new Set<string>();

  constructor(readonly settings: Settings) {
    const interceptors = [retry, headers(settings)];
    this.#connections = [1, 2].map(() => platform.connect(settings, interceptors));
    const [transport, waiting] = this.#connections.map((way) => typed(way.transport, settings));
    this.transport = transport as Transport;
    this.calls = createClient(GateService, this.transport);
    this.waiting = createClient(GateService, waiting as Transport);
    this.#approvals = createClient(ApprovalService, this.transport);
    const { server, socket, token, cert } = settings;
    const identity = JSON.stringify([server, socket, token, cert]);
    this.reports = new Reports((report) => this.#send(report), settings.log, identity);
  }

  /**
   * Marks a call as run by this process, which the plane would permit again; the answer takes the mark back.
   *
   * @throws CallIdReused if it is running here already.
   */
  begin(caller: Caller, callId: string): () => void {
    const key = keyOf(caller.sessionId, callId);
    if (this.#running.has(key)) {
      const message = `callId: ${callId} of session ${caller.sessionId} is running in this process`;
      throw new CallIdReused(message, { code: Code.FailedPrecondition, field: "call_id" });
    }
    this.#running.add(key);
    return () => this.#running.delete(key);
  }

  /** Renews the call's lease until the answer is called. */
  beat(caller: Caller, callId: string, permit: Permit): () => void {
    const leftMs = permit.leaseExpireTime ? timestampMs(permit.leaseExpireTime) - Date.now() : 0;
    const pauseMs = Math.min(Math.max(leftMs / 3, SHORTEST_BEAT_MS), LONGEST_BEAT_MS);
    const report = create(RecordRequestSchema, { caller, callId, status: OutcomeStatus.RUNNING });
    // A lease that is not renewed ends as unknown, which the outcome then settles: nothing else depends on a beat.
    const timer = setInterval(() => void this.calls.record(report).catch(() => {}), pauseMs);
    unref(timer);
    return () => clearInterval(timer);
  }

  async close(timeoutMs: number): Promise<Unsent[]> {
    const unsent = await this.reports.flush(timeoutMs);
    for (const connection of this.#connections) connection.close();
    return unsent;
  }

  async #send({ request, withdrawal }: Report): Promise<void> {
    if (withdrawal) {
      // Who asked may take it back, by the name of the session where nobody has a credential.
      const by = { headers: { "callgate-by": request.caller?.sessionId ?? "" } };
      try {
        await this.#approvals.withdrawApproval(withdrawal, by);
      } catch {
        // The question expires; and a session whose name is no header cannot be named there.
      }
    }
    await this.calls.record(request);
  }
}
