//! The file of `--auth`: the mapping of certificates and issuers' tokens to identities
//! (docs/security.md#the---auth-file).

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

use super::{
    certificate,
    jwt::{self, Issuer, KeySetSource, SignIn},
};
use callgate_core::domain::{
    identity::{MappedIdentity, Role},
    ids::{Invalid, NAME_BYTES_MAX},
    pattern::Pattern,
};

/// Path of the sign-in redirect.
pub const CALLBACK: &str = "/sign-in/callback";
/// Maximum length of each list.
const RULES_MAX: usize = 1_000;

/// The parsed file.
#[derive(Debug, Clone, Default)]
pub struct Auth {
    /// Client certificates, by their names.
    pub certificates: Vec<certificate::CertificateRule>,
    /// Issuers of tokens.
    pub issuers: Vec<Issuer>,
}

impl Auth {
    /// Tenants that the file names.
    #[must_use]
    pub fn tenants(&self) -> Vec<&str> {
        let issued = self.issuers.iter().flat_map(|issuer| &issuer.rules).map(|rule| &rule.is);
        let all = self.certificates.iter().map(|rule| &rule.is).chain(issued);
        let mut tenants: Vec<&str> = all.map(|is| &*is.tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        tenants
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityFile {
    #[serde(default)]
    certificates: Vec<CertificateForm>,
    #[serde(default)]
    issuers: Vec<IssuerForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerForm {
    issuer: String,
    audience: String,
    /// A file, or `https://…`.
    jwks: String,
    ca: Option<PathBuf>,
    bearer_file: Option<PathBuf>,
    rules: Vec<ClaimsForm>,
    sign_in: Option<SignInForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignInForm {
    label: Option<String>,
    redirect: String,
    #[serde(default)]
    scopes: Vec<String>,
    client_secret_file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimsForm {
    claims: BTreeMap<String, String>,
    #[serde(rename = "as")]
    is: WhoForm,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateForm {
    san: String,
    #[serde(rename = "as")]
    is: WhoForm,
}

/// The identity of a mapping.
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
    pub(super) fn read(self, path: &str) -> Result<MappedIdentity, Invalid> {
        let tenant = self.tenant.unwrap_or_else(|| "default".to_owned());
        mapped_identity(path, tenant, self.name, &self.roles, self.groups, self.agents.as_deref(), self.any_session)
    }
}

/// Validates a mapped identity; `path` is its path in the file.
///
/// # Errors
/// [`Invalid`] with the path of the fault.
pub fn mapped_identity(
    path: &str,
    tenant: String,
    name: String,
    roles: &[String],
    groups: Vec<String>,
    agents: Option<&str>,
    any_session: bool,
) -> Result<MappedIdentity, Invalid> {
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
    Ok(MappedIdentity { tenant, name, roles, groups, agents, any_session })
}

/// Reads the file.
///
/// # Errors
/// [`Invalid`] for the first fault, with its path or line.
pub fn read(text: &str) -> Result<Auth, Invalid> {
    let form: IdentityFile =
        serde_saphyr::from_str(text).map_err(|error| Invalid::new("the file", error.to_string()))?;
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
        Ok(certificate::CertificateRule { san, is: form.is.read(&format!("{path}.as"))? })
    };
    let certificates = form.certificates.into_iter().enumerate().map(rule).collect::<Result<_, _>>()?;
    let issuers = form.issuers.into_iter().enumerate().map(|(i, form)| issuer(&format!("issuers[{i}]"), form));
    Ok(Auth { certificates, issuers: issuers.collect::<Result<_, _>>()? })
}

fn issuer(path: &str, form: IssuerForm) -> Result<Issuer, Invalid> {
    let IssuerForm { issuer, audience, jwks, ca, bearer_file: bearer, rules, sign_in: people } = form;
    for (field, text) in [("issuer", &issuer), ("audience", &audience), ("jwks", &jwks)] {
        if text.is_empty() {
            return Err(Invalid::new(format!("{path}.{field}"), "is empty"));
        }
    }
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(Invalid::new(format!("{path}.rules"), format!("needs 1 to {RULES_MAX} lines")));
    }
    let is_url = jwks.starts_with("https://") || jwks.starts_with("http://");
    let people = people.map(|form| sign_in(&format!("{path}.sign_in"), form, &issuer, ca.as_ref())).transpose()?;
    let keys = if is_url { KeySetSource::Url { url: jwks, ca, bearer } } else { KeySetSource::File(jwks.into()) };
    let rule = |(i, form): (usize, ClaimsForm)| {
        let path = format!("{path}.rules[{i}]");
        // Else every token of the issuer would match, of any subject.
        if form.claims.is_empty() {
            return Err(Invalid::new(format!("{path}.claims"), "is empty: say which claims a token must have"));
        }
        let pattern = |(name, text): (String, String)| {
            let pattern = Pattern::parse(&format!("{path}.claims.{name}"), &text)?;
            Ok((name, pattern))
        };
        let claims = form.claims.into_iter().map(pattern).collect::<Result<_, Invalid>>()?;
        Ok(jwt::ClaimRule { claims, is: form.is.read(&format!("{path}.as"))? })
    };
    let rules = rules.into_iter().enumerate().map(rule).collect::<Result<_, _>>()?;
    Ok(Issuer { issuer, audience, keys, rules, sign_in: people })
}

fn sign_in(path: &str, form: SignInForm, issuer: &str, ca: Option<&PathBuf>) -> Result<SignIn, Invalid> {
    let SignInForm { label, redirect, mut scopes, client_secret_file: secret } = form;
    let is_here =
        ["http://localhost", "http://127.0.0.1", "http://[::1]"].iter().any(|here| redirect.starts_with(here));
    if !redirect.ends_with(CALLBACK) || !(redirect.starts_with("https://") || is_here) {
        let problem = format!("must be https://HOST{CALLBACK}, as browsers reach this server");
        return Err(Invalid::new(format!("{path}.redirect"), problem));
    }
    if scopes.iter().any(|scope| scope.is_empty() || scope.contains(char::is_whitespace)) {
        return Err(Invalid::new(format!("{path}.scopes"), "has one that is empty, or has white space"));
    }
    if !scopes.iter().any(|scope| scope == "openid") {
        scopes.insert(0, "openid".to_owned());
    }
    let label = label.unwrap_or_else(|| issuer.to_owned());
    Ok(SignIn { label, redirect, scopes: scopes.join(" "), secret, ca: ca.cloned() })
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
    fn error_has_its_position() {
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
            (
                "issuers: [{issuer: i, audience: a, jwks: f, rules: [{claims: {sub: x}, as: {roles: [agent]}}],
                    sign_in: {redirect: 'http://plane.example/sign-in/callback'}}]",
                "issuers[0].sign_in.redirect",
                "must be https://HOST/sign-in/callback",
            ),
        ] {
            let wrong = read(text).expect_err(text);
            assert_eq!(wrong.field, field, "{text}: {wrong:?}");
            assert!(wrong.problem.contains(problem), "{text}: {wrong:?}");
        }
    }
}
