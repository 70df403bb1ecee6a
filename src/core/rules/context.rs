//! What a rule may look at.

use std::collections::BTreeMap;

use crate::domain::{
    books::Books,
    budget::{CounterKey, Usage},
    call::{Call, Proposal, Sayable},
    content::Content,
    creation::Creation,
    effect::Share,
    finding::{Decision, Finding},
    fingerprint::{Fingerprint, Witness},
    grant::Grant,
    halt::Halt,
    health::Cooldown,
    ids::SessionId,
    json::Json,
    previous::{Held, Previous},
    reason::Reason,
    similarity::{Shape, differ_in_identities},
    time::Timestamp,
    tree::{CallTree, Closed, Run, Session},
};
use crate::retry::self_correction::SelfCorrections;

use super::{
    Closes, Rule,
    condition::{Bindings, ConditionError},
};

/// What a question to a person leaves to do.
pub(super) const ASKED_FOR: &str = "It has been asked for: go on with other work, or tell the user that it is pending.";

/// For the model with a WAIT, where its caller waits.
const CALLER_WAITS: &str =
    "The application waits and asks again by itself, which costs nothing; you need not repeat the call.";
/// The same where nobody does: the hook of a coding agent ends with its answer.
const MODEL_WAITS: &str = "Call it again then.";

/// What is known when a call is judged.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The call tree, as it stands before this call.
    pub tree: &'a CallTree,
    /// The asking session, unless it is new.
    pub session: Option<&'a Session>,
    /// The session's calls in this run, newest first, as far as it remembers them and as rules may look at: [`past`].
    pub past: &'a [&'a Call],
    /// The call.
    pub proposal: &'a Proposal,
    /// What people were asked about the same call.
    pub held: Option<&'a Held>,
    /// The newest earlier execution of the same call.
    pub previous: Option<&'a Previous>,
    /// What the same agent made by the same call in any call tree, within the deduplication window.
    pub creation: Option<&'a Creation>,
    /// The tool is left alone for a while, or was and is being tried again.
    pub cooldown: Option<Cooldown>,
    /// What is halted.
    pub halts: &'a [Halt],
    /// What earlier refusals for arguments came to.
    pub self_corrections: &'a SelfCorrections,
    /// Shared counters, as last seen; the store has the last word on them.
    pub counters: &'a BTreeMap<CounterKey, u64>,
    /// A session without runs asks again after it was idle: what a loop had stopped goes on.
    pub resumes: bool,
    /// True unless the same call_id was judged before.
    pub is_new: bool,
    /// The batch it came in, when an earlier call of the same batch was judged.
    pub batch: Option<u64>,
    /// How deep the session is nested; a root is 0.
    pub depth: u32,
    /// How many calls loop detectors look back over.
    pub window: usize,
    /// When it is judged.
    pub now: Timestamp,
}

/// The calls of a session in the run that `request` belongs to, newest first; none when it `resumes`. A judgement made
/// again does not see itself (unless the call_id `is_new`); nor is it evidence that a call had to wait, for its time or
/// for a person, or was answered from memory for the first time in this run: an agent that lost its context asks for
/// everything again. Nor is an earlier look whose witness says that what it read was another thing.
#[must_use]
pub fn past<'a>(session: Option<&'a Session>, proposal: &Proposal, is_new: bool, resumes: bool) -> Vec<&'a Call> {
    let request = &proposal.request;
    let Some(session) = session.filter(|_| !resumes) else { return Vec::new() };
    if session.current_run().is_none_or(|run| run.id != request.run) {
        return Vec::new();
    }
    let is_question = |call: &Call| matches!(call.decision, Decision::Ask | Decision::Wait);
    let is_first_reuse = |call: &Call| {
        let mut before = session.calls_in_run().filter(|other| other.seq < call.seq && other.was_reused());
        call.was_reused() && !before.any(|other| other.fingerprint == call.fingerprint)
    };
    let is_look = proposal.effect.kind.is_look();
    let read_another =
        |call: &Call| is_look && call.fingerprint == proposal.fingerprint && differ(call.witness, proposal.witness);
    let mine = session.calls_in_run().filter(|call| !read_another(call));
    mine.filter(|call| is_new || !call.was_refused() || call.call_id != request.call_id)
        .filter(|call| !(is_first_reuse(call) || call.was_refused() && is_question(call)))
        .collect()
}

/// True for two states that are known, and are not one.
fn differ(one: Option<Witness>, other: Option<Witness>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

impl<'a> Context<'a> {
    /// By what the model itself can say more than the arguments do.
    #[must_use]
    pub fn sayable(&self) -> Option<&Sayable> {
        self.proposal.request.sayable.as_deref()
    }

    /// The finding, with the way by which a model repeats a call on purpose where it has one, and what comes of that.
    #[must_use]
    pub fn or_on_purpose(&self, finding: Finding, then: &str) -> Finding {
        let Some(parameter) = self.sayable().and_then(|sayable| sayable.repeat.as_ref()) else { return finding };
        let next = finding.next_action.as_deref().map(|next| format!("{next} ")).unwrap_or_default();
        let next = format!("{next}If it is to be done again on purpose, set `{parameter}` to true: {then}.");
        finding.next(next)
    }

    /// The finding for a condition of the policy that cannot be judged: its owner's fault, so that a person decides,
    /// and the model is told nothing of the condition.
    #[must_use]
    pub fn unjudged(&self, rule: &'static str, problem: &ConditionError) -> Finding {
        let tool = self.tool();
        let message = format!(
            "{tool} with these arguments needs a person's decision: a rule for it could not be applied to them. Go on \
             with other work, or tell the user."
        );
        let for_people = format!("A condition of the policy for {tool} could not be judged: {problem}.");
        Finding::new(rule, Decision::Ask, Reason::PolicyFault, message).telling_people(for_people)
    }

    /// The asking session, unless it is new.
    #[must_use]
    pub fn session(&self) -> Option<&'a Session> {
        self.session
    }

    /// The asking session's id.
    #[must_use]
    pub fn session_id(&self) -> &'a SessionId {
        &self.proposal.request.session
    }

    /// The asking session and those above it, the nearest first; one that is new stands below its parent.
    pub fn line(&self) -> impl Iterator<Item = &'a SessionId> + use<'a> {
        let id = self.session_id();
        let parent = self.session().is_none().then_some(self.proposal.request.parent.as_ref()).flatten();
        let above = parent.into_iter().flat_map(|parent| self.tree.line(parent));
        self.tree.line(id).chain(above)
    }

    /// The grant of the asking session, or of one above it, that covers the tool and is not used up.
    #[must_use]
    pub fn grant(&self) -> Option<&'a Grant> {
        let is_mine = |grant: &&Grant| self.line().any(|session| *session == grant.session);
        self.tree.grants.iter().filter(|grant| self.tree.covers(grant, self.tool(), self.now)).find(is_mine)
    }

    /// What a condition may ask for. `last` gives the answer of an earlier call.
    #[must_use]
    pub fn known<'b>(&self, last: &'b dyn Fn(&str) -> Option<&'b Json>) -> Bindings<'b>
    where
        'a: 'b,
    {
        let session = self.session();
        let run = self.run();
        Bindings {
            args: &self.proposal.request.arguments,
            now: self.now,
            steps: run.map_or(0, |run| run.spent.steps),
            calls: run.map_or(0, |run| run.spent.calls),
            cost_micros: run.map_or(0, |run| run.spent.cost_micros),
            phase: self.proposal.request.phase.as_deref().or(session.and_then(|session| session.phase.as_deref())),
            last,
        }
    }

    /// For the model with a WAIT: who asks again after it.
    #[must_use]
    pub fn who_waits(&self) -> &'static str {
        if self.proposal.caller_waits { CALLER_WAITS } else { MODEL_WAITS }
    }

    /// What the arguments hold. A line of a shell has several words whatever it does: they are no content.
    #[must_use]
    pub fn content(&self) -> Content {
        if self.proposal.effect.in_steps { Content::Bare } else { self.proposal.shape.content() }
    }

    /// They hold what somebody wrote.
    #[must_use]
    pub fn has_content(&self) -> bool {
        self.content() == Content::Written
    }

    /// The call's fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.proposal.fingerprint
    }

    /// The current run, unless this call opens one.
    #[must_use]
    pub fn run(&self) -> Option<&'a Run> {
        self.session()?.current_run().filter(|run| !self.resumes && run.id == self.proposal.request.run)
    }

    /// The run in which attempts are counted: the current one, also where the call begins another since nobody asked
    /// for a while. Who waits as told is not idle.
    #[must_use]
    pub fn attempts_run(&self) -> Option<u64> {
        let run = self.session()?.current_run().filter(|run| run.id == self.proposal.request.run);
        run.map(|run| run.from)
    }

    /// The session's calls in this run, newest first, as far as detectors look back: calls that still run or were
    /// refused are no evidence, and take no place in the window.
    pub fn calls(&self) -> impl Iterator<Item = &'a Call> + use<'a> {
        let window = self.window;
        self.run_calls().scan(0, move |seen, call| {
            *seen += usize::from(!call.is_open() && !call.was_refused());
            (*seen <= window).then_some(call)
        })
    }

    /// The same, as far as the session remembers.
    pub fn run_calls(&self) -> impl Iterator<Item = &'a Call> + use<'a> {
        self.past.iter().copied()
    }

    /// The same, and calls of this fingerprint by other sessions of the tree since its root's run began; newest first.
    #[must_use]
    pub fn tree_run_calls(&self) -> Vec<&'a Call> {
        let from = self.tree.sessions.get(&self.tree.root).map_or(0, |root| root.run.from);
        let others = self.tree.calls_of(self.fingerprint()).filter(|(id, _, _)| *id != self.session_id());
        let others = others.map(|(_, _, call)| call).filter(|call| call.seq >= from && !call.was_refused());
        let mut calls: Vec<&Call> = self.run_calls().collect();
        let own = calls.len();
        calls.extend(others);
        if calls.len() > own {
            calls.sort_by_key(|call| std::cmp::Reverse(call.seq));
        }
        calls
    }

    /// Whether a call is this one again: the same fingerprint, or one that differs in nothing but nonces.
    #[must_use]
    pub fn is_same(&self, call: &Call) -> bool {
        let steady = |shape: &Shape| shape.without_nonces();
        call.fingerprint == self.fingerprint()
            || call.tool == self.proposal.request.tool
                && steady(&self.proposal.shape)
                    .is_some_and(|mine| call.shape.as_deref().and_then(steady).is_some_and(|theirs| theirs == mine))
    }

    /// The break by `rule` that holds for this call for the rest of the run.
    #[must_use]
    pub fn closed(&self, rule: &Rule) -> Option<&'a Closed> {
        let concerns = |closed: &&Closed| match rule.closes {
            Closes::Nothing => false,
            Closes::Call => closed.fingerprint == self.fingerprint() && !(self.looks() && self.is_another_state()),
            Closes::Tool => closed.tool == self.proposal.request.tool,
            Closes::Run => true,
        };
        self.run()?.closed.iter().filter(|closed| closed.rule == rule.id).find(concerns)
    }

    fn looks(&self) -> bool {
        self.proposal.effect.kind.is_look()
    }

    /// True where what the call is about is not what its previous execution read or left, by their witnesses.
    #[must_use]
    pub fn is_another_state(&self) -> bool {
        differ(self.previous.and_then(|previous| previous.witness), self.proposal.witness)
    }

    /// True for a look at what its previous execution read, by the witnesses of both.
    #[must_use]
    pub fn looks_at_the_same(&self) -> bool {
        let before = self.previous.and_then(|previous| previous.witness);
        self.looks() && before.is_some() && before == self.proposal.witness
    }

    /// Whether a call's arguments are nearly those of this one.
    #[must_use]
    pub fn is_like(&self, call: &Call) -> bool {
        call.shape.as_deref().is_some_and(|shape| match self.proposal.effect.in_steps {
            true => shape.runs_the_same(&self.proposal.shape),
            false => shape.is_near(&self.proposal.shape),
        })
    }

    /// True where this call and those before it differ in nothing but the identity of a thing: a sweep.
    #[must_use]
    pub fn sweeps(&self, before: &[&Call]) -> bool {
        let shapes: Option<Vec<&Shape>> = before.iter().map(|call| call.shape.as_deref()).collect();
        let shapes = shapes.map(|shapes| shapes.into_iter().chain([&*self.proposal.shape]).collect::<Vec<_>>());
        shapes.is_some_and(|shapes| differ_in_identities(&shapes))
    }

    /// True for what is still in the context of the asking model: asked for in this run of this session, and not before
    /// its last compaction. Where sessions share what they did, the owner has said that it holds for all of them.
    #[must_use]
    pub fn is_in_context(&self, previous: &Previous) -> bool {
        if self.proposal.effect.share != Share::Tree {
            return true;
        }
        let run = self.run().filter(|_| !self.resumes);
        let is_mine = previous
            .run
            .as_ref()
            .zip(run)
            .is_some_and(|((id, from), run)| id == self.session_id() && *from == run.from);
        is_mine && previous.seq > self.session().map_or(0, |session| session.compacted)
    }

    /// The model usage that is booked with this judgement: none when the call_id was judged before.
    #[must_use]
    pub fn usage(&self) -> Usage {
        if self.is_new { self.proposal.request.usage } else { Usage::default() }
    }

    /// True for a step: a new call_id, unless the call was told to wait in this run and has not run since.
    #[must_use]
    pub fn is_step(&self) -> bool {
        let mine = self.run().and(self.session()).into_iter().flat_map(Session::calls_in_run);
        let newest = mine.filter(|call| call.fingerprint == self.fingerprint()).max_by_key(|call| (call.at, call.seq));
        self.is_new && newest.is_none_or(|call| !call.was_refused() || call.decision != Decision::Wait)
    }

    /// What has been spent.
    #[must_use]
    pub fn books(&self) -> Books<'a> {
        let request = &self.proposal.request;
        let books =
            Books::of(self.tree, self.session(), request.agent.as_ref(), &request.tool, self.counters, self.now);
        Books { run: self.run(), depth: self.depth, ..books }
    }

    /// The tool's name, for messages.
    #[must_use]
    pub fn tool(&self) -> &'a str {
        self.proposal.request.tool.as_str()
    }
}
