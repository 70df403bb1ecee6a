//! Forgetting and export of the data of a session, an agent or a user. Stored data goes by call trees, a batch a
//! transaction (`store/postgres/forget.rs`); the memory of replicas goes by marks that each reads every second.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::mpsc, time::sleep};

use super::{NoAnswer, Privacy, new_id};
use callgate_core::domain::{
    audit::Actor,
    forgetting::{ErasureMarks, ErasureProgress, ErasureRun, ErasureSubject, Mark},
    ids::{SessionId, TenantId},
    time::Timestamp,
};
use callgate_net::clock::{Clock, Tick};
use callgate_store::{ExportSession, ExportedRow, FORGOTTEN_TREES, Forgetting, PARTS, Store, StoreError};

/// Attempts at a batch after conflicts.
const TRIES: u32 = 5;
/// Longest pause between two batches. It is as long as the batch took, so that at most half of one connection's time
/// goes into forgetting.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Overlap of two reads of marks: they become visible with their commit, which the audit may delay.
const LOOKED_BACK: Duration = Duration::from_secs(60);
/// Time for which a mark is applied again: loads that ran when it was read have ended by then.
const AGAIN: Duration = Duration::from_secs(5);
/// Time for which marks are kept. A replica that has not read them for longer empties its memory.
pub(super) const KEPT: Duration = Duration::from_secs(3_600);
/// Parts between two reports of progress.
const TOLD_EVERY: u16 = 16;

/// A row that is given out.
pub type ExportRow = ExportedRow;

/// Errors of forgetting, export and re-encryption.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrivacyError {
    /// Nothing is known by that name.
    #[error("nothing is known by that name")]
    Unknown,
    /// The tenant's values are not encrypted.
    #[error("the tenant has no keys here")]
    WithoutKeys,
    /// It was not done, or not to its end.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

/// Forgetting marks that were read: when each became known here, and when they were read last.
#[derive(Debug, Default)]
pub(super) struct ForgettingMarks(Mutex<(BTreeMap<i64, Tick>, Option<Tick>)>);

impl ForgettingMarks {
    /// Span of the next read; none for a replica whose last read is so old that marks may be gone.
    fn read_span(&self, clock: &Clock) -> Option<Duration> {
        let silent = self.0.lock().1.map_or(Duration::ZERO, |last| clock.elapsed_since(last));
        (silent + LOOKED_BACK < KEPT).then_some(silent + LOOKED_BACK)
    }

    /// Those of `all` that are to be applied: new ones, and those that were new a moment ago.
    fn applying(&self, all: Vec<ErasureMarks>, asked: Tick, clock: &Clock) -> Vec<ErasureMarks> {
        let mut known = self.0.lock();
        let (seen, last) = &mut *known;
        *last = Some(asked);
        let ids: BTreeSet<i64> = all.iter().map(|marks| marks.id).collect();
        seen.retain(|id, _| ids.contains(id));
        all.into_iter().filter(|marks| clock.elapsed_since(*seen.entry(marks.id).or_insert(asked)) <= AGAIN).collect()
    }
}

/// Marks by tenant and salt, each with its creation time.
#[derive(Debug, Default)]
struct ForgottenNames(BTreeMap<TenantId, BTreeMap<Vec<u8>, BTreeMap<Mark, Timestamp>>>);

impl ForgottenNames {
    fn of(all: Vec<ErasureMarks>) -> Self {
        let mut gone = Self::default();
        for ErasureMarks { tenant, salt, marks, at, .. } in all {
            let salted = gone.0.entry(tenant).or_default().entry(salt).or_default();
            salted.extend(marks.into_iter().map(|mark| (mark, at)));
        }
        gone
    }

    /// True for a name that was forgotten after its bearer began.
    fn has(&self, tenant: TenantId, name: &str, began: Option<Timestamp>) -> bool {
        self.0.get(&tenant).is_some_and(|salted| {
            let mut of_each = salted.iter().filter_map(|(salt, marks)| marks.get(&Mark::of(salt, name)));
            of_each.any(|at| began.is_none_or(|began| began <= *at))
        })
    }
}

impl Privacy {
    /// Counts the call trees and sessions that [`Privacy::forget`] would delete at this moment.
    ///
    /// # Errors
    /// [`PrivacyError`]: the counts are unknown.
    pub async fn would_forget(
        &self,
        tenant: TenantId,
        whom: &ErasureSubject,
        told: &mpsc::Sender<ErasureProgress>,
    ) -> Result<ErasureProgress, PrivacyError> {
        let mut forgot = ErasureProgress::default();
        for part in 0..count_parts(whom) {
            let roots = self.operators.trees_of(tenant, whom, part).await.map_err(NoAnswer::from)?;
            if !roots.is_empty() {
                forgot.trees += roots.len() as u64;
                forgot.sessions += self.operators.sessions_in(tenant, &roots).await.map_err(NoAnswer::from)?;
            }
            if !send_progress(told, &mut forgot, part, whom).await {
                break;
            }
        }
        Ok(ErasureProgress { percent: 100, ..forgot })
    }

    /// Forgets a session, an agent or a user: whole call trees, and other rows with their name. Every replica forgets
    /// them in memory within two seconds. It sends its progress, and ends once the receiver is closed.
    ///
    /// # Errors
    /// [`PrivacyError`]: the forgotten part stays forgotten, and the next run goes on.
    pub async fn forget(
        &self,
        tenant: TenantId,
        whom: &ErasureSubject,
        (by, why): (&Actor, &str),
        told: &mpsc::Sender<ErasureProgress>,
    ) -> Result<ErasureProgress, PrivacyError> {
        let salt = new_id("").into_bytes();
        let run = ErasureRun { salt, nobody: new_id("forgotten"), at: self.store.now() };
        let of = Forgetting { tenant, whom, by, why, run: &run };
        let mut forgot = ErasureProgress::default();
        for part in 0..count_parts(whom) {
            let roots = patiently(|| self.operators.trees_of(tenant, whom, part)).await?;
            for roots in roots.chunks(FORGOTTEN_TREES) {
                let began = self.server.clock.tick();
                patiently(|| self.operators.unname(&of, roots)).await?;
                let done = patiently(|| self.operators.forget_trees(&of, roots)).await?;
                forgot.trees += done.trees;
                forgot.sessions += done.sessions;
                sleep(self.server.clock.elapsed_since(began).min(PAUSE_MAX)).await;
                if told.is_closed() {
                    return Ok(forgot);
                }
            }
            if !send_progress(told, &mut forgot, part, whom).await {
                return Ok(forgot);
            }
        }
        forgot.others = patiently(|| self.operators.forget_name(&of)).await?;
        // If it cannot be read here, it is within a second.
        let _ = self.server.read_halts_from(&*self.operators).await;
        let _ = self.read_forgotten_from(&self.operators).await;
        if forgot.trees == 0 && forgot.others == 0 {
            return Err(PrivacyError::Unknown);
        }
        Ok(ErasureProgress { percent: 100, ..forgot })
    }

    /// Exports the stored data of a session, an agent or a user, row by row. The audit log has it before the first row
    /// is sent. It ends once the receiver is closed.
    ///
    /// # Errors
    /// [`PrivacyError`]: the export is incomplete.
    pub async fn export(
        &self,
        tenant: TenantId,
        whom: &ErasureSubject,
        (by, why): (&Actor, &str),
        rows: &mpsc::Sender<ExportRow>,
    ) -> Result<(), PrivacyError> {
        let beside = self.operators.export_name(tenant, whom).await.map_err(NoAnswer::from)?;
        let mut is_told = false;
        if !beside.is_empty() {
            self.tell_export(tenant, whom, (by, why), &mut is_told).await?;
            give(rows, beside).await;
        }
        for part in 0..count_parts(whom) {
            for place in patiently(|| self.operators.places_of(tenant, whom, part)).await? {
                self.tell_export(tenant, whom, (by, why), &mut is_told).await?;
                if !self.export_place(tenant, whom, &place, rows).await? {
                    return Ok(());
                }
            }
        }
        if is_told { Ok(()) } else { Err(PrivacyError::Unknown) }
    }

    async fn tell_export(
        &self,
        tenant: TenantId,
        whom: &ErasureSubject,
        (by, why): (&Actor, &str),
        is_told: &mut bool,
    ) -> Result<(), NoAnswer> {
        if !*is_told {
            self.operators.tell_export(tenant, whom, by, why).await?;
            *is_told = true;
        }
        Ok(())
    }

    /// False once the receiver is closed.
    async fn export_place(
        &self,
        tenant: TenantId,
        whom: &ErasureSubject,
        place: &ExportSession,
        rows: &mpsc::Sender<ExportRow>,
    ) -> Result<bool, NoAnswer> {
        if !give(rows, patiently(|| self.operators.export_session(tenant, whom, place)).await?).await {
            return Ok(false);
        }
        let mut after = 0;
        loop {
            let (page, last) = patiently(|| self.operators.export_calls(tenant, whom, place, after)).await?;
            let Some(last) = last else { return Ok(true) };
            if !give(rows, page).await {
                return Ok(false);
            }
            after = last;
        }
    }

    /// Applies the store's forgetting marks to the memory. To be called each second.
    ///
    /// # Errors
    /// [`NoAnswer`]: the memory stays until the next run. No replica answers from it, since it is not the stored state
    /// any more.
    pub async fn apply_erasure_marks(&self) -> Result<(), NoAnswer> {
        self.read_forgotten_from(&self.store).await
    }

    async fn read_forgotten_from(&self, store: &Store) -> Result<(), NoAnswer> {
        let asked = self.server.clock.tick();
        let Some(back) = self.forgotten.read_span(&self.server.clock) else {
            let known = store.read_erasure_marks(LOOKED_BACK).await?;
            self.forget_in_memory(|_, _, _| true);
            self.forgotten.applying(known, asked, &self.server.clock);
            return Ok(());
        };
        let known = store.read_erasure_marks(back).await?;
        let applying = self.forgotten.applying(known, asked, &self.server.clock);
        if !applying.is_empty() {
            let gone = ForgottenNames::of(applying);
            self.forget_in_memory(|tenant, name, began| gone.has(tenant, name, began));
        }
        Ok(())
    }

    fn forget_in_memory(&self, is_gone: impl Fn(TenantId, &str, Option<Timestamp>) -> bool) {
        self.server.slots.forget_trees(|tenant, root: &SessionId, began| is_gone(tenant, root.as_str(), began));
        self.server.owners.forget(|tenant, root| is_gone(tenant, root.as_str(), None));
        self.store.forget_counters(|tenant, agent| is_gone(tenant, agent.as_str(), None));
    }
}

/// Does a step again that others were in the way of: each may be done twice.
pub(super) async fn patiently<T, F>(step: impl Fn() -> F) -> Result<T, NoAnswer>
where
    F: Future<Output = Result<T, StoreError>>,
{
    for _ in 1..TRIES {
        match step().await {
            Err(StoreError::Overloaded(_)) => sleep(PAUSE_MAX / 4).await,
            done => return Ok(done?),
        }
    }
    Ok(step().await?)
}

/// False once the receiver is closed.
async fn give(rows: &mpsc::Sender<ExportRow>, all: Vec<ExportRow>) -> bool {
    for row in all {
        if rows.send(row).await.is_err() {
            return false;
        }
    }
    true
}

/// Parts that have to be scanned: a session is found by its name.
const fn count_parts(whom: &ErasureSubject) -> u16 {
    if matches!(whom, ErasureSubject::Session(_)) { 1 } else { PARTS }
}

/// Sends the progress now and then; false once the receiver is closed.
async fn send_progress(
    told: &mpsc::Sender<ErasureProgress>,
    forgot: &mut ErasureProgress,
    part: u16,
    whom: &ErasureSubject,
) -> bool {
    let done = u32::from(part) + 1;
    forgot.percent = u8::try_from(done * 99 / u32::from(count_parts(whom))).unwrap_or(99);
    if done % u32::from(TOLD_EVERY) == 0 { told.send(*forgot).await.is_ok() } else { !told.is_closed() }
}
