"""The services of the contract on one connection, each made when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from .v1.approval_service_pb2_grpc import ApprovalServiceStub
from .v1.audit_service_pb2_grpc import AuditServiceStub
from .v1.fleet_service_pb2_grpc import FleetServiceStub
from .v1.gate_service_pb2_grpc import GateServiceStub
from .v1.grant_service_pb2_grpc import GrantServiceStub
from .v1.policy_service_pb2_grpc import PolicyServiceStub
from .v1.privacy_service_pb2_grpc import PrivacyServiceStub
from .v1.profile_service_pb2_grpc import ProfileServiceStub
from .v1.server_service_pb2_grpc import ServerServiceStub
from .v1.session_service_pb2_grpc import SessionServiceStub
from .v1.tenant_service_pb2_grpc import TenantServiceStub
from .v1.token_service_pb2_grpc import TokenServiceStub

if TYPE_CHECKING:
    import grpc
    import grpc.aio

    from .v1.approval_service_pb2_grpc import ApprovalServiceAsyncStub
    from .v1.audit_service_pb2_grpc import AuditServiceAsyncStub
    from .v1.fleet_service_pb2_grpc import FleetServiceAsyncStub
    from .v1.gate_service_pb2_grpc import GateServiceAsyncStub
    from .v1.grant_service_pb2_grpc import GrantServiceAsyncStub
    from .v1.policy_service_pb2_grpc import PolicyServiceAsyncStub
    from .v1.privacy_service_pb2_grpc import PrivacyServiceAsyncStub
    from .v1.profile_service_pb2_grpc import ProfileServiceAsyncStub
    from .v1.server_service_pb2_grpc import ServerServiceAsyncStub
    from .v1.session_service_pb2_grpc import SessionServiceAsyncStub
    from .v1.tenant_service_pb2_grpc import TenantServiceAsyncStub
    from .v1.token_service_pb2_grpc import TokenServiceAsyncStub


class Stubs:
    """The services for threads. Methods raise `CallgateError`; streams raise gRPC's own."""

    def __init__(self, channel: grpc.Channel) -> None:
        """On this connection."""
        self.channel = channel

    @cached_property
    def approvals(self) -> ApprovalServiceStub:
        """Questions to people."""
        return ApprovalServiceStub(self.channel)

    @cached_property
    def audit(self) -> AuditServiceStub:
        """What people and administrators did."""
        return AuditServiceStub(self.channel)

    @cached_property
    def calls(self) -> GateServiceStub:
        """Judging and reporting calls, as `Gate` does it for you."""
        return GateServiceStub(self.channel)

    @cached_property
    def fleet(self) -> FleetServiceStub:
        """The fleet as it is now."""
        return FleetServiceStub(self.channel)

    @cached_property
    def grants(self) -> GrantServiceStub:
        """What sessions were granted."""
        return GrantServiceStub(self.channel)

    @cached_property
    def policies(self) -> PolicyServiceStub:
        """The policy that judges."""
        return PolicyServiceStub(self.channel)

    @cached_property
    def privacy(self) -> PrivacyServiceStub:
        """What is stored of a person."""
        return PrivacyServiceStub(self.channel)

    @cached_property
    def profiles(self) -> ProfileServiceStub:
        """What was learned of retries."""
        return ProfileServiceStub(self.channel)

    @cached_property
    def server(self) -> ServerServiceStub:
        """What the plane is and takes."""
        return ServerServiceStub(self.channel)

    @cached_property
    def sessions(self) -> SessionServiceStub:
        """Sessions, halts and phases."""
        return SessionServiceStub(self.channel)

    @cached_property
    def tenants(self) -> TenantServiceStub:
        """Whose plane it is."""
        return TenantServiceStub(self.channel)

    @cached_property
    def tokens(self) -> TokenServiceStub:
        """Credentials of callers."""
        return TokenServiceStub(self.channel)


class AsyncStubs:
    """The services for an event loop. Methods raise `CallgateError`; streams raise gRPC's own."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """On this connection."""
        self.channel = channel

    @cached_property
    def approvals(self) -> ApprovalServiceAsyncStub:
        """Questions to people."""
        return cast("ApprovalServiceAsyncStub", ApprovalServiceStub(self.channel))

    @cached_property
    def audit(self) -> AuditServiceAsyncStub:
        """What people and administrators did."""
        return cast("AuditServiceAsyncStub", AuditServiceStub(self.channel))

    @cached_property
    def calls(self) -> GateServiceAsyncStub:
        """Judging and reporting calls, as `Gate` does it for you."""
        return cast("GateServiceAsyncStub", GateServiceStub(self.channel))

    @cached_property
    def fleet(self) -> FleetServiceAsyncStub:
        """The fleet as it is now."""
        return cast("FleetServiceAsyncStub", FleetServiceStub(self.channel))

    @cached_property
    def grants(self) -> GrantServiceAsyncStub:
        """What sessions were granted."""
        return cast("GrantServiceAsyncStub", GrantServiceStub(self.channel))

    @cached_property
    def policies(self) -> PolicyServiceAsyncStub:
        """The policy that judges."""
        return cast("PolicyServiceAsyncStub", PolicyServiceStub(self.channel))

    @cached_property
    def privacy(self) -> PrivacyServiceAsyncStub:
        """What is stored of a person."""
        return cast("PrivacyServiceAsyncStub", PrivacyServiceStub(self.channel))

    @cached_property
    def profiles(self) -> ProfileServiceAsyncStub:
        """What was learned of retries."""
        return cast("ProfileServiceAsyncStub", ProfileServiceStub(self.channel))

    @cached_property
    def server(self) -> ServerServiceAsyncStub:
        """What the plane is and takes."""
        return cast("ServerServiceAsyncStub", ServerServiceStub(self.channel))

    @cached_property
    def sessions(self) -> SessionServiceAsyncStub:
        """Sessions, halts and phases."""
        return cast("SessionServiceAsyncStub", SessionServiceStub(self.channel))

    @cached_property
    def tenants(self) -> TenantServiceAsyncStub:
        """Whose plane it is."""
        return cast("TenantServiceAsyncStub", TenantServiceStub(self.channel))

    @cached_property
    def tokens(self) -> TokenServiceAsyncStub:
        """Credentials of callers."""
        return cast("TokenServiceAsyncStub", TokenServiceStub(self.channel))
