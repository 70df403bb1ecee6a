//! Encryption of texts from arguments and results, between the domain and rows. Only texts are encrypted, in their
//! usual columns: identities, counts and times stay readable.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    decode::{LoadedRow, corrupt},
    marks,
};
use crate::{
    error::StoreError,
    sealing::{DecryptError, Sealer, TenantKeys, TenantStorage, ValueLocation, is_sealed, key_id},
};
use callgate_core::domain::{
    answer::{PackedNames, ResultMarkers},
    audit::AuditEvent,
    control::Control,
    effect::Resource,
    event::{Append, Event, JudgmentEvent, SettledEvent},
    finding::Finding,
    ids::TenantId,
};

/// Kind of a value in its event, part of its authenticated place.
pub(super) const ARGUMENTS: &str = "call.arguments";
pub(super) const RESOURCE: &str = "call.resource";
pub(super) const JUSTIFICATION: &str = "call.justification";
const FINDING: &str = "call.findings";
pub(super) const RESULT: &str = "outcome.result";
pub(super) const GIST: &str = "outcome.gist";
pub(super) const MADE: &str = "outcome.made";
pub(super) const MARKS: &str = "outcome.marks";
pub(super) const NOTE: &str = "outcome.progress_note";
pub(super) const SIGNATURE: &str = "outcome.error_signature";
pub(super) const ERROR: &str = "outcome.error_message";
pub(super) const ERROR_LINE: &str = "outcome.error_line";
pub(super) const REASON: &str = "session_event.reason";
/// Audit entries count differently from events, so reasons are bound to their session alone.
pub(super) const WHY: u64 = 0;
pub(super) const CLEARED: &str = "session_event.cleared";
pub(super) const EDITED: &str = "session_event.edited";
/// A re-encrypted audit reason: bound to its entry, because the chain does not hash it.
pub(super) const AUDITED: &str = "audit.why";

/// Condition on the maximum length of a value, encrypted or plain.
pub(super) fn length_condition(column: &str, bytes: usize) -> String {
    let sealed = crate::sealing::sealed_length(bytes);
    format!(
        "(octet_length({column}) <= {bytes} or octet_length({column}) <= {sealed} and {column} like '{}%')",
        crate::sealing::MARK
    )
}

/// Decrypts the values of one tenant.
#[derive(Debug, Clone)]
pub(super) struct Opener {
    tenant: TenantId,
    access: TenantStorage,
}

impl Opener {
    pub(super) const fn new(tenant: TenantId, access: TenantStorage) -> Self {
        Self { tenant, access }
    }

    pub(super) const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// True for a tenant without encryption.
    pub(super) const fn is_plain(&self) -> bool {
        matches!(self.access, TenantStorage::Plain)
    }

    /// True for a tenant whose keys are missing.
    pub(super) const fn is_locked(&self) -> bool {
        matches!(self.access, TenantStorage::Locked)
    }

    /// A stored value, decrypted.
    pub(super) fn text(&self, what: &str, session: &str, seq: u64, stored: String) -> LoadedRow<String> {
        let missing = |key: &str| StoreError::KeyMissing { tenant: self.tenant, key: key.to_owned() };
        match &self.access {
            TenantStorage::Plain => Ok(stored),
            TenantStorage::Locked => match key_id(&stored) {
                Some(key) => Err(missing(key)),
                None => Ok(stored),
            },
            TenantStorage::Keys(keys) => {
                let place = ValueLocation { tenant: self.tenant, session, seq, what };
                keys.open(stored, &place).map_err(|why| match why {
                    DecryptError::KeyMissing(key) => missing(&key),
                    DecryptError::Changed => corrupt(&format!(
                        "{what} of event {seq} of session {session:?} does not open: it was changed, or put where it \
                         does not belong"
                    )),
                })
            }
        }
    }

    /// [`Self::text`] of an optional value.
    pub(super) fn optional_text(
        &self,
        what: &str,
        session: &str,
        seq: u64,
        stored: Option<String>,
    ) -> LoadedRow<Option<String>> {
        stored.map(|stored| self.text(what, session, seq, stored)).transpose()
    }

    /// The reason of an audit entry, re-encrypted or not.
    pub(super) fn reason(
        &self,
        session: &str,
        number: u64,
        written: Option<String>,
        resealed: Option<String>,
    ) -> LoadedRow<Option<String>> {
        match resealed {
            Some(_) => self.optional_text(AUDITED, session, number, resealed),
            None => self.optional_text(REASON, session, WHY, written),
        }
    }

    pub(super) fn resource(&self, session: &str, seq: u64, stored: Option<Resource>) -> LoadedRow<Option<Resource>> {
        match (&self.access, stored) {
            (TenantStorage::Plain, stored) => Ok(stored),
            (_, None) => Ok(None),
            (_, Some(stored)) => {
                let opened = self.text(RESOURCE, session, seq, stored.as_str().to_owned())?;
                Ok(Some(Resource::new(opened)))
            }
        }
    }

    /// A finding, by its index in its judgment.
    pub(super) fn finding(&self, session: &str, seq: u64, at: usize, mut finding: Finding) -> LoadedRow<Finding> {
        if matches!(self.access, TenantStorage::Plain) || !is_sealed(&finding.message) {
            return Ok(finding);
        }
        let opened = self.text(&finding_at(at), session, seq, std::mem::take(&mut finding.message))?;
        let words: FindingWords = serde_json::from_str(&opened).map_err(|error| corrupt(&error.to_string()))?;
        words.put_back(&mut finding);
        Ok(finding)
    }

    /// A loaded report.
    pub(super) fn open_report(&self, mut settled: SettledEvent) -> LoadedRow<SettledEvent> {
        if matches!(self.access, TenantStorage::Plain) {
            return Ok(settled);
        }
        let (session, seq) = (settled.session.clone(), settled.seq);
        let open = |what: &str, text: Option<String>| self.optional_text(what, session.as_str(), seq, text);
        settled.error_signature = open(SIGNATURE, settled.error_signature.take())?;
        settled.progress_note = open(NOTE, settled.progress_note.take())?;
        settled.result = open(RESULT, settled.result.take())?;
        let line = settled.error_line.take().map(|line| line.to_string());
        settled.error_line = open(ERROR_LINE, line)?.map(Into::into);
        if let Some(marks) = settled.marks.as_deref()
            && is_sealed(marks.named.as_str())
        {
            let opened = self.text(MARKS, session.as_str(), seq, marks.named.as_str().to_owned())?;
            settled.marks = Some(Arc::new(marks::read(&opened)?));
        }
        Ok(settled)
    }
}

/// Texts of a finding.
#[derive(Debug, Serialize, Deserialize)]
struct FindingWords {
    message: String,
    next_action: Option<String>,
    for_people: Option<String>,
    /// Field, message and hint of each.
    violations: Vec<(String, String, Option<String>)>,
}

impl FindingWords {
    fn take(finding: &mut Finding) -> Self {
        use std::mem::take;
        let violations = finding.violations.iter_mut();
        Self {
            message: take(&mut finding.message),
            next_action: finding.next_action.take(),
            for_people: finding.for_people.take(),
            violations: violations
                .map(|v| (take(&mut v.field), take(&mut v.message), v.user_facing_hint.take()))
                .collect(),
        }
    }

    fn put_back(self, finding: &mut Finding) {
        (finding.message, finding.next_action, finding.for_people) = (self.message, self.next_action, self.for_people);
        for (violation, (field, message, hint)) in finding.violations.iter_mut().zip(self.violations) {
            (violation.field, violation.message, violation.user_facing_hint) = (field, message, hint);
        }
    }
}

/// Takes the texts out of a finding, for encryption.
pub(super) fn words_of(finding: &mut Finding) -> Option<String> {
    serde_json::to_string(&FindingWords::take(finding)).ok()
}

/// Kind of a finding's texts, by its index in its judgment.
pub(super) fn finding_at(at: usize) -> String {
    format!("{FINDING}.{at}")
}

/// Marks with encrypted texts in place of the plain ones.
pub(super) fn with_sealed(marks: &ResultMarkers, sealed: String) -> ResultMarkers {
    ResultMarkers {
        named: PackedNames::from_stored(sealed),
        ..ResultMarkers::without_parts(0, marks.says, marks.failed)
    }
}

/// A change in its stored form; none if encryption fails, so that it must not be stored.
pub(super) fn append(append: &Append, keys: &TenantKeys) -> Option<Append> {
    let mut sealed = append.clone();
    let mut row = SealedRow { sealer: Sealer::new(keys)?, tenant: append.tenant };
    for event in &mut sealed.change.events {
        match event {
            Event::Judged(judged) => row.seal_judgment(judged)?,
            Event::Settled(settled) => row.seal_report(settled)?,
            Event::Controlled(controlled) => {
                let (session, seq) = (controlled.session.clone(), controlled.seq);
                row.seal_optional(REASON, session.as_str(), WHY, &mut controlled.reason)?;
                if let Control::Answered { clears: Some(clears), .. } = &mut controlled.control {
                    row.resource(CLEARED, session.as_str(), seq, &mut clears.resource)?;
                }
                if let Some(arguments) = controlled.control.chosen_mut() {
                    *arguments = row.text(EDITED, session.as_str(), seq, arguments)?.into();
                }
            }
        }
    }
    Some(sealed)
}

/// Encrypts the reason of an audit entry that is written apart from a change; none if that fails.
pub(super) fn seal_reason(tenant: TenantId, event: &mut AuditEvent, keys: &TenantKeys) -> Option<()> {
    let mut row = SealedRow { sealer: Sealer::new(keys)?, tenant };
    let session = event.session.clone().unwrap_or_default();
    row.seal_optional(REASON, &session, WHY, &mut event.why)
}

/// Encrypts the values of one change; each yields none on failure.
struct SealedRow<'k> {
    sealer: Sealer<'k>,
    tenant: TenantId,
}

impl SealedRow<'_> {
    fn text(&mut self, what: &str, session: &str, seq: u64, text: &str) -> Option<String> {
        self.sealer.seal(text, &ValueLocation { tenant: self.tenant, session, seq, what })
    }

    fn seal_optional(&mut self, what: &str, session: &str, seq: u64, text: &mut Option<String>) -> Option<()> {
        if let Some(text) = text {
            *text = self.text(what, session, seq, text)?;
        }
        Some(())
    }

    fn resource(&mut self, what: &str, session: &str, seq: u64, resource: &mut Option<Resource>) -> Option<()> {
        if let Some(resource) = resource {
            *resource = Resource::new(self.text(what, session, seq, resource.as_str())?);
        }
        Some(())
    }

    fn seal_judgment(&mut self, judged: &mut JudgmentEvent) -> Option<()> {
        let (session, seq) = (judged.session.clone(), judged.seq);
        let session = session.as_str();
        if let Some(arguments) = &mut judged.arguments {
            *arguments = self.text(ARGUMENTS, session, seq, arguments)?.into();
        }
        self.resource(RESOURCE, session, seq, &mut judged.effect.resource)?;
        self.seal_optional(JUSTIFICATION, session, seq, &mut judged.justification)?;
        let mut findings = judged.findings.to_vec();
        for (at, finding) in findings.iter_mut().enumerate() {
            let words = words_of(finding)?;
            finding.message = self.text(&finding_at(at), session, seq, &words)?;
        }
        judged.findings = findings.into();
        Some(())
    }

    fn seal_report(&mut self, settled: &mut SettledEvent) -> Option<()> {
        let (session, seq) = (settled.session.clone(), settled.seq);
        let session = session.as_str();
        self.seal_optional(SIGNATURE, session, seq, &mut settled.error_signature)?;
        self.seal_optional(NOTE, session, seq, &mut settled.progress_note)?;
        self.seal_optional(RESULT, session, seq, &mut settled.result)?;
        self.seal_optional(ERROR, session, seq, &mut settled.error_message)?;
        if let Some(line) = &mut settled.error_line {
            *line = self.text(ERROR_LINE, session, seq, line)?.into();
        }
        if let Some(gist) = &mut settled.gist {
            gist.says = self.text(GIST, session, seq, &gist.says)?;
            self.seal_optional(MADE, session, seq, &mut gist.made)?;
        }
        if let Some(marks) = &settled.marks {
            // Hashes of few words can be guessed.
            let sealed = self.text(MARKS, session, seq, &marks::json(marks))?;
            settled.marks = Some(Arc::new(with_sealed(marks, sealed)));
        }
        Some(())
    }
}
