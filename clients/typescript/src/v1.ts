/**
 * The contract: every message and enum, as `proto/callgate/v1` has them.
 *
 * @module
 */
export * from "./gen/callgate/v1/approval_service_pb.js";
export * from "./gen/callgate/v1/audit_service_pb.js";
export * from "./gen/callgate/v1/fleet_service_pb.js";
export * from "./gen/callgate/v1/gate_service_pb.js";
export * from "./gen/callgate/v1/grant_service_pb.js";
export * from "./gen/callgate/v1/policy_service_pb.js";
export * from "./gen/callgate/v1/privacy_service_pb.js";
export * from "./gen/callgate/v1/profile_service_pb.js";
export * from "./gen/callgate/v1/server_service_pb.js";
export * from "./gen/callgate/v1/session_service_pb.js";
export * from "./gen/callgate/v1/tenant_service_pb.js";
export * from "./gen/callgate/v1/token_service_pb.js";
export * from "./gen/callgate/v1/types_pb.js";
