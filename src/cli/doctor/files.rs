//! Checks of a server's files: certificates, authentication, keys, and the policy.

use std::path::{Path, PathBuf};

use super::check::{Area, Check};
use callgate_core::policy;
use callgate_net::{
    clock::Clock,
    listener::{first_end, first_list_end},
};
use callgate_server::{config::ServeConfig, keys, serve, tenant_keys::KeyFile};
use callgate_store::Inspection;

const AREA: Area = Area::Files;
const DAY_S: i64 = 86_400;
/// Minimum remaining validity of a certificate, in days.
const DAYS_LEFT: i64 = 14;
/// Minimum remaining validity of a revocation list, in hours.
const HOURS_LEFT: i64 = 12;

const FORM: &str = "mend the file: docs/security.md#the---auth-file has its form";
const KEY_BACK: &str =
    "bring the key back: what is sealed with a lost one can never be read (docs/security.md#encryption-at-rest)";

/// All files but the policy, which is compared with the stored one.
pub(super) async fn looked_at(config: &ServeConfig) -> Vec<Check> {
    let mut checks = certificates(config);
    checks.push(match (keys::load(config.auth.as_deref()), &config.auth) {
        (_, None) => {
            Check::not(AREA, "auth", "no --auth is given: nobody is known by a certificate or an issuer's token")
        }
        (Ok(_), Some(path)) => Check::ok(AREA, "auth", path.display()),
        (Err(error), Some(_)) => Check::wrong(AREA, "auth", format!("{error:#}"), FORM),
    });
    checks.push(match &config.keys {
        None => Check::not(AREA, "keys", "no --keys is given: no tenant's values are sealed"),
        Some(path) => match KeyFile::read(path).await {
            Ok(keys) => Check::ok(AREA, "keys", format!("keys of {} tenants in {}", keys.named.len(), path.display())),
            Err(error) => Check::wrong(AREA, "keys", format!("{error:#}"), KEY_BACK),
        },
    });
    checks
}

fn certificates(config: &ServeConfig) -> Vec<Check> {
    let tls = &config.tls;
    let Some(certificate) = &tls.tls_cert else {
        return vec![Check::not(
            AREA,
            "certificates",
            "no --tls-cert is given: what other machines can reach needs one",
        )];
    };
    let opened = serve::way(tls);
    let is_usable = opened.is_ok();
    let mut checks = vec![match opened {
        Ok(_) => Check::ok(AREA, "certificates", "the key fits its certificate, and every file can be used"),
        Err(error) => Check::wrong(
            AREA,
            "certificates",
            format!("{error:#}"),
            "name files that are there and that the server's user can read, in PEM: the certificate with those \
             between it and its authority, its own first, and its key",
        ),
    }];
    let shown = [("certificate_end", Some(certificate)), ("client_ca_end", tls.client_ca.as_ref())];
    // Unreadable files are reported above; of others, the expiry.
    let told = shown.into_iter().filter_map(|(name, path)| end(name, path?));
    let told = told.chain(tls.client_crl.as_deref().and_then(list_end));
    checks.extend(told.filter(|(is_known, _)| is_usable || *is_known).map(|(_, check)| check));
    checks
}

/// Whether the file has an expiry, and the check of it; none if unreadable.
type End = Option<(bool, Check)>;

fn end(name: &'static str, path: &PathBuf) -> End {
    let (shown, text) = (path.display(), std::fs::read(path).ok()?);
    let Some(end) = first_end(&text) else {
        let cure = "it has to be a certificate of X.509 version 3 in PEM";
        let found = format!("{shown} has no certificate that can be read");
        return Some((false, Check::wrong(AREA, name, found, cure)));
    };
    let now = Clock::System.now().as_millis() / 1_000;
    let days = i64::try_from(end).unwrap_or(i64::MAX).saturating_sub(now).div_euclid(DAY_S);
    let cure = "put a new one in its place; a running server takes it over by itself";
    let check = match days {
        ..0 => Check::wrong(AREA, name, format!("{shown} has ended"), cure),
        0..DAYS_LEFT => Check::warning(AREA, name, format!("{shown} ends in {days} days"), cure),
        _ => Check::ok(AREA, name, format!("{shown} ends in {days} days")),
    };
    Some((true, check))
}

/// An expired list rejects all client certificates.
fn list_end(path: &Path) -> End {
    let (name, shown, text) = ("client_crl_end", path.display(), std::fs::read(path).ok()?);
    let now = Clock::System.now().as_millis() / 1_000;
    let Some(hours) = first_list_end(&text).map(|end| (end - now).div_euclid(3_600)) else {
        let cure = "have the authority say when its next list comes (nextUpdate)";
        return Some((false, Check::wrong(AREA, name, format!("{shown} does not say when it ends"), cure)));
    };
    let cure = "fetch the authority's next list into this file; a running server takes it over by itself";
    let check = match hours {
        ..0 => Check::wrong(AREA, name, format!("{shown} has ended: nobody is let in by a certificate"), cure),
        0..HOURS_LEFT => Check::warning(AREA, name, format!("{shown} ends in {hours} hours"), cure),
        _ => Check::ok(AREA, name, format!("{shown} ends in {hours} hours")),
    };
    Some((true, check))
}

/// Compares the policy file with the active policy. None without a file if the database, which has a check of its own,
/// is unavailable.
pub(super) fn policy(path: Option<&Path>, database: Option<&Inspection>) -> Option<Check> {
    let stored = database.map(|found| found.policy.as_ref());
    match (path, stored) {
        (Some(path), stored) => Some(of_file(path, stored.flatten())),
        (None, stored) => stored.map(of_database),
    }
}

fn of_database(stored: Option<&(String, String)>) -> Check {
    let Some((hash, text)) = stored else {
        return Check::warning(
            Area::Policy,
            "policy",
            "no --policy is given, and none is stored: nothing is declared about any tool",
            "callgate policy init, then serve --policy FILE, or callgate policy apply FILE",
        );
    };
    match policy::compile(text) {
        Ok(policy) => Check::ok(Area::Policy, "policy", format!("the stored one, {}", policy.version)),
        Err(errors) => Check::wrong(
            Area::Policy,
            "policy",
            format!("this build cannot use the stored active one ({hash}): {}", some(&errors)),
            "serve --policy FILE with one that it can use, or start the build that stored it",
        ),
    }
}

fn of_file(path: &Path, stored: Option<&(String, String)>) -> Check {
    let area = Area::Policy;
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let text = format!("{} cannot be read: {error}", path.display());
            return Check::wrong(area, "policy", text, "name a file that the server's user can read in --policy");
        }
    };
    let shown = path.display();
    match policy::compile(&text) {
        Err(errors) => {
            let cure = format!("callgate policy check {shown} says all of it, each with its line");
            Check::wrong(area, "policy", format!("{shown}: {}", some(&errors)), cure)
        }
        Ok(policy) if !policy.warnings.is_empty() => {
            let cure = format!("callgate policy check {shown} says all of it");
            Check::warning(
                area,
                "policy",
                format!("{shown} may not do what its owner meant: {}", some(&policy.warnings)),
                cure,
            )
        }
        Ok(policy) => match stored {
            Some((_, active)) if *active != text => Check::warning(
                area,
                "policy",
                format!(
                    "{shown} ({}) is not the stored active policy: a start of a server makes it that",
                    policy.version
                ),
                "callgate policy diff active FILE shows the difference; start the server without --policy to keep \
                 the stored one",
            ),
            _ => Check::ok(area, "policy", format!("{shown}, {}", policy.version)),
        },
    }
}

fn some(errors: &[policy::PolicyError]) -> String {
    let first = errors.first().map(ToString::to_string).unwrap_or_default();
    if errors.len() > 1 { format!("{first} (and {} more)", errors.len() - 1) } else { first }
}
