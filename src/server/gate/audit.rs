//! What people and administrators did, looked at and checked.

use super::{NoAnswer, Privacy};
use callgate_core::domain::{
    audit::{Anchor, Checked, Entry},
    ids::TenantId,
};

impl Privacy {
    /// Entries of the audit, the newest first: those before a number.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn audit(&self, tenant: TenantId, before: Option<u64>, most: usize) -> Result<Vec<Entry>, NoAnswer> {
        Ok(self.store.audit(tenant, before, most).await?)
    }

    /// Checks the whole audit of a tenant, and holds it against anchors that were kept elsewhere.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn check_audit(&self, tenant: TenantId, anchors: Vec<Anchor>) -> Result<Checked, NoAnswer> {
        Ok(self.store.check_audit(tenant, anchors).await?)
    }
}
