//! Policy files, as arguments of commands.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use callgate_core::policy::Policy;

/// The text of a policy file.
///
/// # Errors
/// A file that cannot be read.
pub fn read_policy(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read the policy {}", path.display()))
}

/// The policy of a file, or the default one. An error has all problems of a file.
pub fn load_policy(path: Option<&Path>) -> anyhow::Result<Arc<Policy>> {
    let Some(path) = path else {
        return Ok(Arc::new(Policy::default()));
    };
    let name = path.display();
    match callgate_core::policy::compile(&read_policy(path)?) {
        Ok(policy) => Ok(Arc::new(policy)),
        Err(errors) => {
            let errors: Vec<String> = errors.iter().map(|error| format!("\n  {name}: {error}")).collect();
            bail!("the policy cannot be used, {} problem(s):{}", errors.len(), errors.concat())
        }
    }
}
