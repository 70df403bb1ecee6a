/// <reference lib="esnext.disposable" preserve="true" />
/** Clients of a plane. */

import type { DescService } from "@bufbuild/protobuf";
import { createClient, type Client as Stub } from "@connectrpc/connect";
import { platform } from "#platform";

import { Gate, type GateOptions } from "./gate.js";
import { ApprovalService } from "./gen/callgate/v1/approval_service_pb.js";
import { AuditService } from "./gen/callgate/v1/audit_service_pb.js";
import { FleetService } from "./gen/callgate/v1/fleet_service_pb.js";
import { GateService } from "./gen/callgate/v1/gate_service_pb.js";
import { GrantService } from "./gen/callgate/v1/grant_service_pb.js";
import { PolicyService } from "./gen/callgate/v1/policy_service_pb.js";
import { PrivacyService } from "./gen/callgate/v1/privacy_service_pb.js";
import { ProfileService } from "./gen/callgate/v1/profile_service_pb.js";
import { ServerService } from "./gen/callgate/v1/server_service_pb.js";
import { SessionService } from "./gen/callgate/v1/session_service_pb.js";
import { TenantService } from "./gen/callgate/v1/tenant_service_pb.js";
import { TokenService } from "./gen/callgate/v1/token_service_pb.js";
import { Plane } from "./plane.js";
import { CLOSE_MS, type Unsent } from "./reports.js";
import { type ClientOptions, settingsOf } from "./settings.js";
import { checkMs } from "./times.js";

/** How a client is closed. */
export interface CloseOptions {
  /** How long that may take, in milliseconds; 3,000. */
  timeoutMs?: number | undefined;
}

/**
 * A plane, with all its services. Nothing connects before the first call. Each method takes a request and returns a
 * promise, or for what a server streams an async iterable; both fail with a {@link CallgateError}.
 */
export class Client {
  /** @internal */
  readonly plane: Plane;

  /** @throws Error naming the option, or the environment's variable in its place, that makes no sense. */
  constructor(options: ClientOptions = {}) {
    this.plane = new Plane(settingsOf(options, platform.defaults()));
  }

  /** The gate of one session: cheap to make. */
  gate(sessionId: string, options: GateOptions = {}): Gate {
    return new Gate(this, sessionId, options);
  }

  /** Questions to people: lists, watches, answers and withdraws them. */
  get approvals() {
    return this.#stub(ApprovalService);
  }
  /** What people and administrators did. */
  get audit() {
    return this.#stub(AuditService);
  }
  /** What gates are made of: Evaluate, Record, and a session's state. */
  get calls() {
    return this.#stub(GateService);
  }
  /** The fleet as it is now. */
  get fleet() {
    return this.#stub(FleetService);
  }
  /** Permits for a number of calls. */
  get grants() {
    return this.#stub(GrantService);
  }
  /** Policies and their versions. */
  get policies() {
    return this.#stub(PolicyService);
  }
  /** What is stored of a person or a session: found, given out and forgotten. */
  get privacy() {
    return this.#stub(PrivacyService);
  }
  /** What was learned of retries. */
  get profiles() {
    return this.#stub(ProfileService);
  }
  /** What the server is. */
  get server() {
    return this.#stub(ServerService);
  }
  /** Sessions: listed, shown, halted, compacted. */
  get sessions() {
    return this.#stub(SessionService);
  }
  /** Tenants of the plane. */
  get tenants() {
    return this.#stub(TenantService);
  }
  /** API tokens of callers. */
  get tokens() {
    return this.#stub(TokenService);
  }

  /**
   * Sends the reports that wait, executed outcomes first, and ends the connections; a later call connects anew. An open
   * client does not keep a process alive.
   *
   * @param options - `timeoutMs`: how long it waits for that, and for reports that other calls are making; 3,000.
   * @returns the reports that the plane has not stored: those that still wait, which are sent in the background as long
   * as the process lives; and those that were refused or dropped since the last `close`. Empty where all is stored.
   * @throws RangeError if `timeoutMs` is no time to wait.
   */
  async close({ timeoutMs = CLOSE_MS }: CloseOptions = {}): Promise<Unsent[]> {
    checkMs("timeoutMs", timeoutMs);
    return this.plane.close(timeoutMs);
  }

  /** As {@link close}: `await using client = new Client()`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #stubs = new Map<DescService, unknown>();

  #stub<T extends DescService>(service: T): Stub<T> {
    const stub = (this.#stubs.get(service) as Stub<T> | undefined) ?? createClient(service, this.plane.transport);
    this.#stubs.set(service, stub);
    return stub;
  }
}

let shared: Client | undefined;

/** The gate of one session, by a client that the environment's settings describe and all such gates share. */
export function gate(sessionId: string, options: GateOptions = {}): Gate {
  shared ??= new Client();
  return shared.gate(sessionId, options);
}
