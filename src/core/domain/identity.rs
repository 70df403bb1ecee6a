//! Identity of a caller: tenant, name and roles. It comes from the credential alone, never from a message.

use super::{
    closed_set::closed_set,
    ids::{DEFAULT_TENANT, TenantId},
    pattern::Pattern,
    time::Timestamp,
};

closed_set! {
    /// Role. Each method of the contract names the roles that may call it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Role {
        /// Evaluates and records, for agents.
        Agent = "agent",
        /// Answers approval requests.
        Approver = "approver",
        /// Halts, resumes, grants, settles.
        Operator = "operator",
        /// Reads decisions and learning.
        Analyst = "analyst",
        /// Everything within its tenant, roles of others included.
        Admin = "admin",
    }
}

/// Kind of a credential, with its public id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialId {
    /// None: the server requires no credentials, and serves this machine only.
    Local,
    /// An API token, by its public id.
    Token(String),
    /// A client certificate, by the mapped name in it.
    Certificate(String),
    /// A token of an issuer, by issuer and subject.
    Jwt(String),
    /// A user of Slack, by their id, who pressed a button of a notification.
    Slack(String),
}

/// Identity that a token or a line of configuration maps a credential to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MappedIdentity {
    /// The tenant's name; empty where the tenant is determined otherwise.
    pub tenant: String,
    /// As in [`Identity`], and the same below.
    pub name: String,
    /// Roles.
    pub roles: Vec<Role>,
    /// Approver groups.
    pub groups: Vec<String>,
    /// Pattern of the agents that the caller may name; none for any.
    pub agents: Option<Pattern>,
    /// Access to sessions of other callers.
    pub any_session: bool,
}

impl MappedIdentity {
    /// With this name, if the mapping has none.
    #[must_use]
    pub fn with_default_name(mut self, name: &str) -> Self {
        if self.name.is_empty() {
            name.clone_into(&mut self.name);
        }
        self
    }

    /// The identity in a tenant.
    #[must_use]
    pub fn identity(&self, tenant: TenantId, credential: CredentialId, from: Option<String>) -> Identity {
        let Self { name, roles, groups, agents, any_session, .. } = self.clone();
        Identity { tenant, name, roles, groups, agents, any_session, credential, from, until: None }
    }
}

/// Identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Tenant.
    pub tenant: TenantId,
    /// Name, stored with the caller's operations. Empty without credentials; requests may then carry a name.
    pub name: String,
    /// Roles.
    pub roles: Vec<Role>,
    /// Approver groups of the caller.
    pub groups: Vec<String>,
    /// Pattern of the agents that the caller may name; none for any.
    pub agents: Option<Pattern>,
    /// True for access to sessions opened by others; otherwise only to the caller's own, and those below.
    pub any_session: bool,
    /// Credential.
    pub credential: CredentialId,
    /// Source address; none over a Unix socket.
    pub from: Option<String>,
    /// Expiry of the credential, if it has one.
    pub until: Option<Timestamp>,
}

impl Identity {
    /// The caller of a server without credentials.
    #[must_use]
    pub fn local() -> Self {
        Self {
            tenant: DEFAULT_TENANT,
            name: String::new(),
            roles: Role::ALL.to_vec(),
            groups: Vec::new(),
            agents: None,
            any_session: true,
            credential: CredentialId::Local,
            from: None,
            until: None,
        }
    }

    /// Owner of the sessions that the caller opens; none where sessions have no owner.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        (self.credential != CredentialId::Local).then_some(self.name.as_str())
    }

    /// True for access to all sessions.
    #[must_use]
    pub fn may_work_in_all(&self) -> bool {
        self.any_session || self.is_one_of(&[Role::Operator, Role::Admin])
    }

    /// True for access to a session of `owner`. A name below another, as `planner/search` is below `planner`, is that
    /// of a sub-agent: issuing such a credential delegates access.
    #[must_use]
    pub fn may_work_in(&self, owner: Option<&str>) -> bool {
        let is_below = |owner: &str| self.name.strip_prefix(owner).is_some_and(|rest| rest.starts_with('/'));
        self.may_work_in_all() || owner.is_none_or(|owner| owner == self.name || is_below(owner))
    }

    /// True when the caller may name this agent. A caller bound to some agents must name one.
    #[must_use]
    pub fn may_ask_for(&self, agent: Option<&str>) -> bool {
        self.agents.as_ref().is_none_or(|agents| agent.is_some_and(|agent| agents.matches(agent)))
    }

    /// True for one of these roles.
    #[must_use]
    pub fn is_one_of(&self, roles: &[Role]) -> bool {
        roles.iter().any(|role| self.roles.contains(role))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_known_by_its_name() {
        for role in Role::ALL {
            assert_eq!(Role::from_name(role.as_str()), Some(role));
        }
        assert_eq!(Role::from_name("root"), None);
        assert!(Identity::local().is_one_of(&[Role::Admin]));
    }

    fn planner() -> Identity {
        let is = MappedIdentity { name: "planner".into(), roles: vec![Role::Agent], ..MappedIdentity::default() };
        is.identity(DEFAULT_TENANT, CredentialId::Token("t".into()), None)
    }

    #[test]
    fn a_session_is_its_openers_and_their_sub_agents() {
        let planner = planner();
        for (owner, may) in [(None, true), (Some("planner"), true), (Some("plan"), false), (Some("planner/a"), false)] {
            assert_eq!(planner.may_work_in(owner), may, "{owner:?}");
        }
        let below = Identity { name: "planner/search".into(), ..planner.clone() };
        assert!(below.may_work_in(Some("planner")) && !below.may_work_in(Some("planner/s")));
        let beside = Identity { name: "planner2".into(), ..planner.clone() };
        assert!(!beside.may_work_in(Some("planner")));
        assert!(Identity { roles: vec![Role::Operator], ..beside.clone() }.may_work_in(Some("planner")));
        assert!(Identity { any_session: true, ..beside }.may_work_in(Some("planner")));
        assert_eq!((planner.owner(), Identity::local().owner()), (Some("planner"), None));
    }

    #[test]
    fn caller_bound_to_agents_names_one_of_them() {
        let agents = Some(Pattern::parse("agents", "desk-*").expect("a pattern"));
        let bound = Identity { agents, ..planner() };
        assert!(bound.may_ask_for(Some("desk-1")) && !bound.may_ask_for(Some("pay")) && !bound.may_ask_for(None));
        assert!(planner().may_ask_for(None) && planner().may_ask_for(Some("x")));
    }
}
