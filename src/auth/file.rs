//! The file of `--auth`: which certificates are whom. docs/security.md has its form.

use serde::Deserialize;

use super::certificate;
use crate::domain::{
    identity::{Mapped, Role},
    ids::{Invalid, NAME_BYTES_MAX},
    pattern::Pattern,
};

/// Lines of each list.
const RULES_MAX: usize = 1_000;

/// What the file says.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    /// Client certificates, by their names.
    pub certificates: Vec<certificate::Rule>,
}

impl Auth {
    /// The tenants that are named in it.
    #[must_use]
    pub fn tenants(&self) -> Vec<&str> {
        let mut tenants: Vec<&str> = self.certificates.iter().map(|rule| &*rule.is.tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        tenants
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default)]
    certificates: Vec<CertificateForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateForm {
    san: String,
    #[serde(rename = "as")]
    is: WhoForm,
}

/// Who it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WhoForm {
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    name: String,
    roles: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    agents: Option<String>,
    #[serde(default)]
    any_session: bool,
}

impl WhoForm {
    pub(super) fn read(self, path: &str) -> Result<Mapped, Invalid> {
        let tenant = self.tenant.unwrap_or_else(|| "default".to_owned());
        who(path, tenant, self.name, &self.roles, self.groups, self.agents.as_deref(), self.any_session)
    }
}

/// Checks who somebody is said to be; `path` is where that is said.
///
/// # Errors
/// [`Invalid`] with the path of what is wrong.
pub fn who(
    path: &str,
    tenant: String,
    name: String,
    roles: &[String],
    groups: Vec<String>,
    agents: Option<&str>,
    any_session: bool,
) -> Result<Mapped, Invalid> {
    let at = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    let is_name = |field: &str, name: &str| match name {
        name if name.len() > NAME_BYTES_MAX => {
            Err(Invalid::new(at(field), format!("is longer than {NAME_BYTES_MAX} bytes")))
        }
        // It also travels in metadata and in lines of logs.
        name if name.chars().any(char::is_control) => Err(Invalid::new(at(field), "contains a control character")),
        _ => Ok(()),
    };
    is_name("name", &name)?;
    is_name("tenant", &tenant)?;
    groups.iter().try_for_each(|group| is_name("groups", group))?;
    let known = || Role::ALL.map(Role::as_str).join(", ");
    let role = |role: &String| {
        Role::from_name(role).ok_or_else(|| Invalid::new(at("roles"), format!("has {role:?}; roles are {}", known())))
    };
    let mut roles: Vec<Role> = roles.iter().map(role).collect::<Result<_, _>>()?;
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        return Err(Invalid::new(at("roles"), format!("is empty; roles are {}", known())));
    }
    let agents = agents.map(|agents| Pattern::parse(&at("agents"), agents)).transpose()?;
    Ok(Mapped { tenant, name, roles, groups, agents, any_session })
}

/// Reads the file.
///
/// # Errors
/// [`Invalid`] for the first thing that is wrong, with its path, or its line.
pub fn read(text: &str) -> Result<Auth, Invalid> {
    let form: Form = serde_saphyr::from_str(text).map_err(|error| Invalid::new("the file", error.to_string()))?;
    if form.certificates.len() > RULES_MAX {
        return Err(Invalid::new("certificates", format!("has more than {RULES_MAX} lines")));
    }
    let rule = |(i, form): (usize, CertificateForm)| {
        let path = format!("certificates[{i}]");
        let san = Pattern::parse(&format!("{path}.san"), &form.san)?;
        if !form.san.split('|').all(|part| ["dns:", "uri:"].iter().any(|kind| part.trim().starts_with(kind))) {
            return Err(Invalid::new(
                format!("{path}.san"),
                "has to begin with `dns:` or `uri:`, and so each alternative",
            ));
        }
        Ok(certificate::Rule { san, is: form.is.read(&format!("{path}.as"))? })
    };
    Ok(Auth { certificates: form.certificates.into_iter().enumerate().map(rule).collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_who_the_names_in_certificates_are() {
        let text = "certificates:\n- san: 'uri:spiffe://fleet/*'\n  as: {tenant: acme, roles: [agent], agents: 'd-*'}\n\
                    - {san: 'dns:ops.fleet', as: {name: ops, roles: [operator, approver], groups: [payments]}}\n";
        let auth = read(text).expect("good");
        assert_eq!(auth.tenants(), ["acme", "default"]);
        let ops = &auth.certificates[1].is;
        assert_eq!((&*ops.name, &*ops.roles), ("ops", [Role::Approver, Role::Operator].as_slice()));
        assert!(!auth.certificates[0].is.any_session && auth.certificates[0].is.agents.is_some());
        assert_eq!(read("{}").expect("nobody").tenants(), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, field, problem) in [
            (
                "certificates: [{san: 'uri:*', as: {roles: [root]}}]",
                "certificates[0].as.roles",
                "has \"root\"; roles are",
            ),
            ("certificates: [{san: 'uri:*', as: {roles: []}}]", "certificates[0].as.roles", "is empty"),
            ("certificates: [{san: '*', as: {roles: [agent]}}]", "certificates[0].san", "has to begin with"),
            ("certificates: [{san: 'dns:a|*', as: {roles: [agent]}}]", "certificates[0].san", "has to begin with"),
            ("certificate: []", "the file", "certificate"),
        ] {
            let wrong = read(text).expect_err(text);
            assert_eq!(wrong.field, field, "{text}: {wrong:?}");
            assert!(wrong.problem.contains(problem), "{text}: {wrong:?}");
        }
    }
}
