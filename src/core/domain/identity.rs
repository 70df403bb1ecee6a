//! Who asks: whose plane it is, under what name, and what they may do. It comes from a credential alone, never from a
//! message.

use super::{
    ids::{DEFAULT_TENANT, TenantId},
    pattern::Pattern,
    time::Timestamp,
};

/// What somebody may do. Each call of the contract names the roles that may make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Asks and reports, for agents.
    Agent,
    /// Answers the questions that calls wait for.
    Approver,
    /// Halts, resumes, grants, settles.
    Operator,
    /// Reads what was decided and learned.
    Analyst,
    /// Everything of its tenant, and who else may do what in it.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Agent, Self::Approver, Self::Operator, Self::Analyst, Self::Admin];

    /// The name used in commands, in the database and in credentials.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Approver => "approver",
            Self::Operator => "operator",
            Self::Analyst => "analyst",
            Self::Admin => "admin",
        }
    }

    /// The role of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// By what somebody is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// By nothing: the server knows no credentials, and serves this machine only.
    Local,
    /// By an API token, told by its public id.
    Token(String),
    /// By a client certificate, told by the name in it that was mapped.
    Certificate(String),
    /// By a token of an issuer, told by issuer and subject.
    Jwt(String),
}

/// Who shows a credential, as a token or a line of configuration says it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapped {
    /// The tenant's name; empty for one that is known otherwise.
    pub tenant: String,
    /// As in [`Identity`], and the same below.
    pub name: String,
    /// What they may do.
    pub roles: Vec<Role>,
    /// Whose questions they answer.
    pub groups: Vec<String>,
    /// The agents that they may ask for.
    pub agents: Option<Pattern>,
    /// Not only their own sessions.
    pub any_session: bool,
}

impl Mapped {
    /// With this name, if it has none.
    #[must_use]
    pub fn or_named(mut self, name: &str) -> Self {
        if self.name.is_empty() {
            name.clone_into(&mut self.name);
        }
        self
    }

    /// Who that is in a tenant.
    #[must_use]
    pub fn identity(&self, tenant: TenantId, credential: Credential, from: Option<String>) -> Identity {
        let Self { name, roles, groups, agents, any_session, .. } = self.clone();
        Identity { tenant, name, roles, groups, agents, any_session, credential, from, until: None }
    }
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Whose plane.
    pub tenant: TenantId,
    /// Who: stored with what is done. Empty without credentials: who asks may say it then.
    pub name: String,
    /// What they may do.
    pub roles: Vec<Role>,
    /// The groups of people whose questions they answer.
    pub groups: Vec<String>,
    /// The agents that they may ask for; none for any.
    pub agents: Option<Pattern>,
    /// True for who works in sessions that others have opened; others only in their own, and in those below.
    pub any_session: bool,
    /// By what they are known.
    pub credential: Credential,
    /// From which address; none over a Unix socket.
    pub from: Option<String>,
    /// From when on they are somebody else, where the credential itself says so.
    pub until: Option<Timestamp>,
}

impl Identity {
    /// Whoever asks a server that knows no credentials.
    #[must_use]
    pub fn local() -> Self {
        Self {
            tenant: DEFAULT_TENANT,
            name: String::new(),
            roles: Role::ALL.to_vec(),
            groups: Vec::new(),
            agents: None,
            any_session: true,
            credential: Credential::Local,
            from: None,
            until: None,
        }
    }

    /// Whose sessions they open; none where nobody's are told apart.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        (self.credential != Credential::Local).then_some(self.name.as_str())
    }

    /// True for who works in anybody's sessions.
    #[must_use]
    pub fn may_work_in_all(&self) -> bool {
        self.any_session || self.is_one_of(&[Role::Operator, Role::Admin])
    }

    /// May they work in a session that `owner` has opened? A name below another's, as `planner/search` is below
    /// `planner`, is that of a sub-agent: who makes credentials delegates by it.
    #[must_use]
    pub fn may_work_in(&self, owner: Option<&str>) -> bool {
        let is_below = |owner: &str| self.name.strip_prefix(owner).is_some_and(|rest| rest.starts_with('/'));
        self.may_work_in_all() || owner.is_none_or(|owner| owner == self.name || is_below(owner))
    }

    /// May they ask for this agent? Who is bound to some says for which.
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
        let is = Mapped { name: "planner".into(), roles: vec![Role::Agent], ..Mapped::default() };
        is.identity(DEFAULT_TENANT, Credential::Token("t".into()), None)
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
    fn who_is_bound_to_agents_says_for_which_one_they_ask() {
        let agents = Some(Pattern::parse("agents", "desk-*").expect("a pattern"));
        let bound = Identity { agents, ..planner() };
        assert!(bound.may_ask_for(Some("desk-1")) && !bound.may_ask_for(Some("pay")) && !bound.may_ask_for(None));
        assert!(planner().may_ask_for(None) && planner().may_ask_for(Some("x")));
    }
}
