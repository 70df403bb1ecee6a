//! What decisions read and append, as their contract has it.

use std::{collections::BTreeMap, sync::Arc};

use super::{Counted, DueTree, DueTrees, Found, Learn, QueueSlot, Store};
use crate::{
    decision_store::{Answer, DecisionStore},
    sealing::Keyring,
};
use callgate_core::domain::{
    audit::Actor,
    budget::CounterKey,
    control::Edited,
    event::Event,
    fingerprint::LedgerKey,
    halt::{Halt, Halted},
    health::{HealthRow, Seen},
    history::PastCall,
    ids::{CallId, SessionId, TenantId, ToolName},
    inbox::{Question, Wanted},
    ledger::LedgerRow,
    previous::Given,
    profile::{Counts, ResidualState},
    time::Timestamp,
    tree::CallTree,
    violation::SelfCorrectionCount,
};

impl DecisionStore for Store {
    fn now(&self) -> Timestamp {
        self.now()
    }

    fn now_of_leases(&self) -> Timestamp {
        self.now_of_leases()
    }

    fn skip(&self, ms: u64) {
        self.skip(ms);
    }

    fn keyring(&self) -> &Arc<Keyring> {
        self.keyring()
    }

    fn namespace(&self) -> &str {
        self.namespace()
    }

    fn ping(&self) -> Answer<'_, ()> {
        Box::pin(self.ping())
    }

    fn find<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        parent: Option<&'a SessionId>,
    ) -> Answer<'a, Option<Found>> {
        Box::pin(self.find(tenant, session, parent))
    }

    fn tree<'a>(&'a self, tenant: TenantId, root: &'a SessionId, epoch: Option<i32>) -> Answer<'a, Option<CallTree>> {
        Box::pin(self.tree(tenant, root, epoch))
    }

    fn catch_up(&self, known: CallTree) -> Answer<'_, Option<CallTree>> {
        Box::pin(self.catch_up(known))
    }

    fn head<'a>(&'a self, tenant: TenantId, root: &'a SessionId) -> Answer<'a, Option<(u64, Timestamp)>> {
        Box::pin(self.head(tenant, root))
    }

    fn call<'a>(&'a self, tenant: TenantId, session: &'a SessionId, call_id: &'a CallId) -> Answer<'a, Vec<Event>> {
        Box::pin(self.call(tenant, session, call_id))
    }

    fn result<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> Answer<'a, Option<Given>> {
        Box::pin(self.result(tenant, session, call_id))
    }

    fn arguments<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> Answer<'a, Option<String>> {
        Box::pin(self.arguments(tenant, session, call_id))
    }

    fn edited<'a>(
        &'a self,
        tenant: TenantId,
        session: &'a SessionId,
        call_id: &'a CallId,
    ) -> Answer<'a, Option<Edited>> {
        Box::pin(self.edited(tenant, session, call_id))
    }

    fn past_calls<'a>(&'a self, tenant: TenantId, session: &'a SessionId, most: usize) -> Answer<'a, Vec<PastCall>> {
        Box::pin(self.past_calls(tenant, session, most))
    }

    fn ledger_rows<'a>(
        &'a self,
        tenant: TenantId,
        root: &'a SessionId,
        keys: Vec<Option<LedgerKey>>,
    ) -> Answer<'a, Vec<Option<LedgerRow>>> {
        Box::pin(self.ledger_rows(tenant, root, keys))
    }

    fn counters(&self, tenant: TenantId, keys: BTreeMap<CounterKey, u64>) -> Answer<'_, BTreeMap<CounterKey, u64>> {
        Box::pin(self.counters(tenant, keys))
    }

    fn queue_slot(&self) -> Answer<'_, QueueSlot> {
        Box::pin(QueueSlot::reserve(&self.queue, &self.keyring))
    }

    fn take_due(&self, now: Timestamp) -> Answer<'_, DueTrees> {
        Box::pin(self.take_due(now))
    }

    fn put_off<'a>(&'a self, tree: &'a DueTree, due: Option<Timestamp>) -> Answer<'a, ()> {
        Box::pin(self.put_off(tree, due))
    }

    fn owner<'a>(&'a self, tenant: TenantId, root: &'a SessionId) -> Answer<'a, Option<String>> {
        Box::pin(self.owner(tenant, root))
    }

    fn own<'a>(&'a self, tenant: TenantId, root: &'a SessionId, name: &'a str) -> Answer<'a, String> {
        Box::pin(self.own(tenant, root, name))
    }

    fn halt<'a>(&'a self, tenant: TenantId, what: &'a Halted, by: &'a Actor, reason: &'a str) -> Answer<'a, Halt> {
        Box::pin(self.halt(tenant, what, by, reason))
    }

    fn resume<'a>(&'a self, tenant: TenantId, what: &'a Halted, by: &'a Actor, reason: &'a str) -> Answer<'a, bool> {
        Box::pin(self.resume(tenant, what, by, reason))
    }

    fn halts(&self) -> Answer<'_, BTreeMap<TenantId, Vec<Halt>>> {
        Box::pin(self.halts())
    }

    fn questions<'a>(&'a self, tenant: TenantId, wanted: &'a Wanted) -> Answer<'a, Vec<Question>> {
        Box::pin(self.questions(tenant, wanted))
    }

    fn claim_probe<'a>(&'a self, tenant: TenantId, tool: &'a ToolName, until: Timestamp) -> Answer<'a, bool> {
        Box::pin(self.claim_probe(tenant, tool, until))
    }

    fn release_probe<'a>(&'a self, tenant: TenantId, tool: &'a ToolName, until: Timestamp) -> Answer<'a, ()> {
        Box::pin(self.release_probe(tenant, tool, until))
    }

    fn add_health<'a>(&'a self, seen: &'a [Seen], per_minute: f64) -> Answer<'a, Vec<HealthRow>> {
        Box::pin(self.add_health(seen, per_minute))
    }

    fn changed_health(&self, since: Timestamp) -> Answer<'_, Vec<HealthRow>> {
        Box::pin(self.changed_health(since))
    }

    fn count_trials<'a>(&'a self, learn: Learn<'a>) -> Answer<'a, Counted> {
        Box::pin(self.count_trials(learn))
    }

    fn profiles_version(&self) -> Answer<'_, u64> {
        Box::pin(self.profiles_version())
    }

    fn profiles(&self, tenant: TenantId) -> Answer<'_, (Counts, Vec<ResidualState>)> {
        Box::pin(self.profiles(tenant))
    }

    fn self_corrections(&self, tenant: TenantId) -> Answer<'_, Vec<SelfCorrectionCount>> {
        Box::pin(self.self_corrections(tenant))
    }
}
