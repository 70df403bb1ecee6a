//! Tokens for a measured server with authentication, created by the commands of its own build.

use std::path::Path;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::child::clean;
use callgate_client::remote::Bearer;

/// Names of `count` tenants, the first being the deployment's own.
pub(super) fn tenants(count: usize) -> Vec<String> {
    std::iter::once("default".to_owned()).chain((1..count).map(|n| format!("bench-{n}"))).collect()
}

/// An agent token for each tenant, the first being the deployment's own. Others get the policy, too.
pub(super) async fn make(
    program: &Path,
    server: &str,
    database: &str,
    policy: Option<&Path>,
    tenants: usize,
) -> anyhow::Result<Vec<Bearer>> {
    let names = self::tenants(tenants);
    // Before the first token: authentication is off.
    for name in &names[1..] {
        run_command(program, &["tenants", "create", name, "--server", server], &[]).await?;
    }
    let token = async |role: &str, tenant: &str| {
        let args = ["tokens", "create", role, "--role", role, "--tenant", tenant];
        run_command(program, &args, &[("CALLGATE_ADMIN_DATABASE_URL", database)]).await
    };
    let mut tokens = Vec::with_capacity(tenants);
    for (n, name) in names.iter().enumerate() {
        // The first token has to be an admin's.
        if n == 0 || policy.is_some() {
            let admin = token("admin", name).await?;
            if let Some(policy) = policy.filter(|_| n > 0) {
                let file = policy.to_str().context("a path that is no text")?;
                let args = ["policy", "apply", file, "--server", server];
                run_command(program, &args, &[("CALLGATE_TOKEN", admin.trim())]).await?;
            }
        }
        tokens.push(Bearer::of(&token("agent", name).await?)?);
    }
    Ok(tokens)
}

/// Output of a command; secrets are passed by environment.
async fn run_command(program: &Path, args: &[&str], secrets: &[(&str, &str)]) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    clean(command.args(args)).envs(secrets.iter().copied()).kill_on_drop(true);
    let output = command.output().await.with_context(|| format!("{} cannot be run", program.display()))?;
    if !output.status.success() {
        bail!("callgate {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}
