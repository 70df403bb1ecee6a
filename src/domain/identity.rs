//! Who asks: whose plane it is, under what name, and what they may do. It comes from a credential alone, never from a
//! message.

use super::{
    ids::{DEFAULT_TENANT, TenantId},
    pattern::Pattern,
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
    /// By what they are known.
    pub credential: Credential,
    /// From which address; none over a Unix socket.
    pub from: Option<String>,
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
            credential: Credential::Local,
            from: None,
        }
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
}
