//! Checks of a server's files: certificates, authentication, keys, and the policy.

use std::path::{Path, PathBuf};

use super::check::{Area, DoctorCheck};
use callgate_core::policy;
use callgate_net::{
    clock::Clock,
    listener::{first_lifetime, first_list_end},
};
use callgate_server::{config::ServeConfig, keys, serve, tenant_keys::KeyFile};
use callgate_store::Inspection;

const AREA: Area = Area::Files;
const DAY_S: i64 = 86_400;
/// Minimum remaining validity of a certificate, in days.
const DAYS_LEFT: i64 = 14;
/// Minimum remaining validity of a revocation list, in hours.
const HOURS_LEFT: i64 = 12;

const FORM: &str = "fix the file: docs/security.md#the---auth-file has its format";
const KEY_BACK: &str =
    "restore the key: values encrypted with a lost key are unreadable (docs/security.md#encryption-at-rest)";

/// All files but the policy, which is compared with the stored one.
pub(super) async fn looked_at(config: &ServeConfig) -> Vec<DoctorCheck> {
    let mut checks = certificates(config);
    checks.push(match (keys::load(config.auth.as_deref()), &config.auth) {
        (_, None) => {
            DoctorCheck::skipped(AREA, "auth", "--auth is not set: certificates and issuers' tokens identify no caller")
        }
        (Ok(_), Some(path)) => DoctorCheck::ok(AREA, "auth", path.display()),
        (Err(error), Some(_)) => DoctorCheck::wrong(AREA, "auth", format!("{error:#}"), FORM),
    });
    checks.push(match &config.keys {
        None => DoctorCheck::skipped(AREA, "keys", "--keys is not set: no tenant's values are encrypted"),
        Some(path) => match KeyFile::read(path).await {
            Ok(keys) => {
                DoctorCheck::ok(AREA, "keys", format!("keys of {} tenants in {}", keys.named.len(), path.display()))
            }
            Err(error) => DoctorCheck::wrong(AREA, "keys", format!("{error:#}"), KEY_BACK),
        },
    });
    checks
}

fn certificates(config: &ServeConfig) -> Vec<DoctorCheck> {
    let tls = &config.tls;
    let Some(certificate) = &tls.tls_cert else {
        return vec![DoctorCheck::skipped(
            AREA,
            "certificates",
            "--tls-cert is not set: addresses that other machines can reach need it",
        )];
    };
    let opened = serve::transport_settings(tls);
    let is_usable = opened.is_ok();
    let mut checks = vec![match opened {
        Ok(_) => DoctorCheck::ok(AREA, "certificates", "the key matches its certificate, and every file is usable"),
        Err(error) => DoctorCheck::wrong(
            AREA,
            "certificates",
            format!("{error:#}"),
            "pass PEM files that the server's user can read: the certificate followed by its intermediate \
             certificates, and its key",
        ),
    }];
    let shown = [("certificate_end", Some(certificate)), ("client_ca_end", tls.client_ca.as_ref())];
    // Unreadable files are reported above; of others, the expiry.
    let told = shown.into_iter().filter_map(|(name, path)| end(name, path?));
    let told = told.chain(tls.client_crl.as_deref().and_then(list_end));
    checks.extend(told.filter(|(is_known, _)| is_usable || *is_known).map(|(_, check)| check));
    checks
}

/// True for a file with an expiry, and its check; none if it cannot be read.
type ExpiryFinding = Option<(bool, DoctorCheck)>;

fn end(name: &'static str, path: &PathBuf) -> ExpiryFinding {
    let (shown, text) = (path.display(), std::fs::read(path).ok()?);
    let Some((_, end)) = first_lifetime(&text) else {
        let cure = "use an X.509 version 3 certificate in PEM";
        let found = format!("{shown} has no readable certificate");
        return Some((false, DoctorCheck::wrong(AREA, name, found, cure)));
    };
    let now = Clock::System.now().as_millis() / 1_000;
    let days = i64::try_from(end).unwrap_or(i64::MAX).saturating_sub(now).div_euclid(DAY_S);
    let cure = "replace the file; a running server reloads it";
    let check = match days {
        ..0 => DoctorCheck::wrong(AREA, name, format!("{shown} has expired"), cure),
        0..DAYS_LEFT => DoctorCheck::warning(AREA, name, format!("{shown} expires in {days} days"), cure),
        _ => DoctorCheck::ok(AREA, name, format!("{shown} expires in {days} days")),
    };
    Some((true, check))
}

/// An expired list rejects all client certificates.
fn list_end(path: &Path) -> ExpiryFinding {
    let (name, shown, text) = ("client_crl_end", path.display(), std::fs::read(path).ok()?);
    let now = Clock::System.now().as_millis() / 1_000;
    let Some(hours) = first_list_end(&text).map(|end| (end - now).div_euclid(3_600)) else {
        let cure = "have the authority set the date of its next list (nextUpdate)";
        return Some((false, DoctorCheck::wrong(AREA, name, format!("{shown} has no expiry date"), cure)));
    };
    let cure = "replace the file with the authority's next list; a running server reloads it";
    let check = match hours {
        ..0 => {
            DoctorCheck::wrong(AREA, name, format!("{shown} has expired: all client certificates are rejected"), cure)
        }
        0..HOURS_LEFT => DoctorCheck::warning(AREA, name, format!("{shown} expires in {hours} hours"), cure),
        _ => DoctorCheck::ok(AREA, name, format!("{shown} expires in {hours} hours")),
    };
    Some((true, check))
}

/// Compares the policy file with the active policy. None without a file if the database, which has a check of its own,
/// is unavailable.
pub(super) fn policy(path: Option<&Path>, database: Option<&Inspection>) -> Option<DoctorCheck> {
    let stored = database.map(|found| found.policy.as_ref());
    match (path, stored) {
        (Some(path), stored) => Some(of_file(path, stored.flatten())),
        (None, stored) => stored.map(of_database),
    }
}

fn of_database(stored: Option<&(String, String)>) -> DoctorCheck {
    let Some((hash, text)) = stored else {
        return DoctorCheck::warning(
            Area::Policy,
            "policy",
            "--policy is not set, and no policy is stored: no tool is declared",
            "callgate policy init, then serve --policy FILE, or callgate policy apply FILE",
        );
    };
    match policy::compile(text) {
        Ok(policy) => DoctorCheck::ok(Area::Policy, "policy", format!("the stored one, {}", policy.version)),
        Err(errors) => DoctorCheck::wrong(
            Area::Policy,
            "policy",
            format!("this build cannot use the stored active policy ({hash}): {}", list_errors(&errors)),
            "pass a usable policy with serve --policy FILE, or start the build that stored it",
        ),
    }
}

fn of_file(path: &Path, stored: Option<&(String, String)>) -> DoctorCheck {
    let area = Area::Policy;
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let text = format!("cannot read {}: {error}", path.display());
            return DoctorCheck::wrong(area, "policy", text, "set --policy to a file that the server's user can read");
        }
    };
    let shown = path.display();
    match policy::compile(&text) {
        Err(errors) => {
            let cure = format!("callgate policy check {shown} lists all errors with their lines");
            DoctorCheck::wrong(area, "policy", format!("{shown}: {}", list_errors(&errors)), cure)
        }
        Ok(policy) if !policy.warnings.is_empty() => {
            let cure = format!("callgate policy check {shown} lists all warnings");
            DoctorCheck::warning(
                area,
                "policy",
                format!("{shown} has warnings: {}", list_errors(&policy.warnings)),
                cure,
            )
        }
        Ok(policy) => match stored {
            Some((_, active)) if *active != text => DoctorCheck::warning(
                area,
                "policy",
                format!(
                    "{shown} ({}) is not the stored active policy: a server that starts activates it",
                    policy.version
                ),
                "compare them: callgate policy diff active FILE; start the server without --policy to keep the \
                 stored one",
            ),
            _ => DoctorCheck::ok(area, "policy", format!("{shown}, {}", policy.version)),
        },
    }
}

fn list_errors(errors: &[policy::PolicyError]) -> String {
    let first = errors.first().map(ToString::to_string).unwrap_or_default();
    if errors.len() > 1 { format!("{first} (and {} more)", errors.len() - 1) } else { first }
}
