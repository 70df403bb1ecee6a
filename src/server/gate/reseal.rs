//! Re-encryption, and the report of the keys that are needed: one part of all rows after the other
//! (`store/postgres/reseal.rs`).

use std::sync::Arc;

use tokio::{
    sync::mpsc,
    time::{Duration, sleep},
};

use super::{NoAnswer, Privacy, PrivacyError, privacy::patiently};
use callgate_core::domain::{
    audit::{Actor, AuditEvent, AuditOperation},
    ids::TenantId,
};
use callgate_store::{
    PARTS, Reseal, Uses,
    sealing::{TenantKeys, TenantStorage},
};

/// Interval at which the end of another replica's run is polled.
const AGAIN: Duration = Duration::from_secs(1);

/// Parts between two reports of progress.
const TOLD_EVERY: u16 = 16;

/// Progress of a re-encryption.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResealProgress {
    /// Re-encrypted rows.
    pub rows: u64,
    /// Scanned rows that need each key; without a name, those with a value in the clear.
    pub uses: Uses,
    /// The keys of this replica, the encrypting one first.
    pub here: Vec<String>,
    /// Share of all rows that was scanned, in percent.
    pub percent: u8,
}

impl Privacy {
    /// Counts the rows that need each key.
    ///
    /// # Errors
    /// [`PrivacyError`]: the counts are unknown.
    pub async fn key_uses(
        &self,
        tenant: TenantId,
        told: &mpsc::Sender<ResealProgress>,
    ) -> Result<ResealProgress, PrivacyError> {
        let keys = self.keys_of(tenant)?;
        self.looked_through(tenant, &keys, None, told).await
    }

    /// Re-encrypts with the newest key the values under other keys, and those in the clear; returns the keys that are
    /// needed then. It goes slowly, so that agents do not feel it. It ends once the receiver is closed.
    ///
    /// # Errors
    /// [`PrivacyError`]: the rows that were re-encrypted stay so, and the next run goes on.
    pub async fn reseal(
        &self,
        tenant: TenantId,
        by: &Actor,
        told: &mpsc::Sender<ResealProgress>,
    ) -> Result<ResealProgress, PrivacyError> {
        let keys = self.keys_of(tenant)?;
        let reseal = loop {
            let reseal = self.operators.reseal(tenant, Arc::clone(&keys)).await.map_err(NoAnswer::from)?;
            match reseal {
                Some(reseal) => break reseal,
                None if told.is_closed() => return Ok(ResealProgress::default()),
                None => sleep(AGAIN).await,
            }
        };
        self.looked_through(tenant, &keys, Some((&reseal, by)), told).await
    }

    fn keys_of(&self, tenant: TenantId) -> Result<Arc<TenantKeys>, PrivacyError> {
        match self.store.keyring().of(tenant) {
            TenantStorage::Keys(keys) => Ok(keys),
            TenantStorage::Plain | TenantStorage::Locked => Err(PrivacyError::WithoutKeys),
        }
    }

    async fn looked_through(
        &self,
        tenant: TenantId,
        keys: &TenantKeys,
        sealing: Option<(&Reseal, &Actor)>,
        told: &mpsc::Sender<ResealProgress>,
    ) -> Result<ResealProgress, PrivacyError> {
        let newest = keys.newest();
        let here = keys.ids().map(str::to_owned).collect();
        let mut so_far = ResealProgress { here, ..ResealProgress::default() };
        let mut begun = false;
        for part in 0..PARTS {
            let (mut uses, older) = patiently(|| self.operators.key_uses(tenant, part, newest)).await?;
            if let Some((reseal, by)) = sealing.filter(|_| !older.is_empty()) {
                self.tell_reseal(tenant, by, newest, &mut begun).await?;
                for shard in older {
                    so_far.rows += patiently(|| self.operators.reseal_shard(reseal, shard)).await?;
                }
                uses = patiently(|| self.operators.key_uses(tenant, part, newest)).await?.0;
            }
            add(&mut so_far.uses, uses);
            so_far.percent = u8::try_from(u32::from(part + 1) * 99 / u32::from(PARTS)).unwrap_or(99);
            if told.is_closed() || part % TOLD_EVERY == TOLD_EVERY - 1 && told.send(so_far.clone()).await.is_err() {
                return Ok(so_far);
            }
        }
        let mut uses = patiently(|| self.operators.key_uses_of_audit(tenant)).await?;
        if let Some((reseal, by)) = sealing.filter(|_| uses.keys().any(|key| key != newest)) {
            self.tell_reseal(tenant, by, newest, &mut begun).await?;
            so_far.rows += self.reseal_audit(reseal).await?;
            uses = patiently(|| self.operators.key_uses_of_audit(tenant)).await?;
        }
        add(&mut so_far.uses, uses);
        if let Some((_, by)) = sealing.filter(|_| begun) {
            let what = format!("all that is stored was sealed anew with the key {newest}: {} rows", so_far.rows);
            let event = AuditEvent::new(AuditOperation::KeyRotated, by.clone(), what);
            patiently(|| self.operators.append_audit_entry(tenant, &event)).await?;
        }
        Ok(ResealProgress { percent: 100, ..so_far })
    }

    async fn reseal_audit(&self, reseal: &Reseal) -> Result<u64, NoAnswer> {
        let (mut after, mut rows) = (0, 0);
        while let Some((last, done)) = patiently(|| self.operators.reseal_audit(reseal, after)).await? {
            (after, rows) = (last, rows + done);
        }
        Ok(rows)
    }

    /// Says in the audit that it begins: before the first row is changed.
    async fn tell_reseal(&self, tenant: TenantId, by: &Actor, newest: &str, begun: &mut bool) -> Result<(), NoAnswer> {
        if !*begun {
            let what = format!("what is stored is sealed anew with the key {newest}");
            self.operators
                .append_audit_entry(tenant, &AuditEvent::new(AuditOperation::KeyRotated, by.clone(), what))
                .await?;
            *begun = true;
        }
        Ok(())
    }
}

fn add(all: &mut Uses, more: Uses) {
    for (key, rows) in more {
        *all.entry(key).or_default() += rows;
    }
}
