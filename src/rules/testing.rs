//! The one test helper: a story in text against the engine. It plays on every wall between the rooms, and is built for
//! tests only.
//!
//! A story is a line a step; `#` begins a comment.
//!
//! ```text
//! rules repeat cycle                 only these rules run
//! tool pay once order/{id} lease 60s declares a tool
//! limit run max_steps 5              sets a limit; the first one lifts all defaults
//! step 0s                            time that passes with each call (1s at first)
//! wait 10m                           time passes
//! run next | session a parent b | agent x | batch (the next calls are one model turn) | turn (it is over)
//! pay {"n":new} cost 0.5 tokens 9 repeat as c1       `new` is a fresh value each time
//!   -> ok text | error KIND [after 2s] | cancelled | unknown      the call runs whatever the verdict, and is recorded
//!   => DECISION [reason] [after 2s] [attempt 2] [disabled], level rule count     the verdict holds, and is so
//!   ... x10                          the line, ten times; (a; b) x4 repeats a group
//! record c1 OUTCOME [cost 0.5] [=> retryable | final | superseded | settled]
//! ```

use std::{collections::BTreeMap, fmt::Write as _, fs};

use crate::{
    domain::{
        budget::{Limits, Usage},
        call::{Proposal, Request},
        effect::{EffectKind, ResourceTemplate},
        event::{Change, Event},
        failure::{ErrorReport, FailureKind},
        finding::Decision,
        fingerprint::LedgerKey,
        ids::{AgentId, CallId, DEFAULT_TENANT, RunId, SessionId, ToolName},
        json,
        ledger::LedgerRow,
        outcome::OutcomeStatus,
        reason::Reason,
        time::Timestamp,
        tool::ToolSpec,
        tree::CallTree,
        verdict::Verdict,
    },
    engine::{self, Judgement, Misuse, Recorded, Report, Shared},
    policy::Policy,
    rules::{Mode, RULES},
};

/// Plays a story; panics with the line that came out otherwise.
pub(crate) fn check(story: &str) {
    let mut stage = Stage::new();
    for (i, line) in story.lines().enumerate() {
        let text = line.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        if let Err(problem) = stage.line(text) {
            panic!("line {}: {text}\n{problem}\nso far:\n{}", i + 1, stage.log);
        }
    }
    stage.check_fold();
}

/// Plays every story of a folder; panics with the file and line that came out otherwise.
pub(crate) fn check_folder(folder: &str) -> usize {
    let mut played = 0;
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    for path in paths
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "trace"))
    {
        let story = fs::read_to_string(path).expect("readable");
        let outcome = std::panic::catch_unwind(|| check(&story));
        if let Err(problem) = outcome {
            let text = problem.downcast_ref::<String>().cloned().unwrap_or_default();
            panic!("{}: {text}", path.display());
        }
        played += 1;
    }
    played
}

struct Stage {
    policy: Policy,
    trees: BTreeMap<SessionId, (CallTree, CallTree)>,
    roots: BTreeMap<SessionId, SessionId>,
    ledger: BTreeMap<LedgerKey, LedgerRow>,
    shared: Shared,
    now: Timestamp,
    step_ms: u64,
    session: String,
    parent: Option<String>,
    run: Option<String>,
    agent: Option<String>,
    batch: Option<Option<u64>>,
    fresh: u64,
    keys: BTreeMap<String, String>,
    limits_cleared: bool,
    log: String,
}

type Step = Result<(), String>;

impl Stage {
    fn new() -> Self {
        Self {
            policy: Policy::default(),
            trees: BTreeMap::new(),
            roots: BTreeMap::new(),
            ledger: BTreeMap::new(),
            shared: Shared::default(),
            now: Timestamp::from_millis(1_700_000_000_000),
            step_ms: 1_000,
            session: "s".to_owned(),
            parent: None,
            run: None,
            agent: None,
            batch: None,
            fresh: 0,
            keys: BTreeMap::new(),
            limits_cleared: false,
            log: String::new(),
        }
    }

    fn line(&mut self, text: &str) -> Step {
        let (text, times) = match text.rsplit_once(" x") {
            Some((rest, n)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => {
                (rest.trim(), n.parse().unwrap_or(1))
            }
            _ => (text, 1),
        };
        let group = text.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
        let steps: Vec<&str> = group.map_or_else(|| vec![text], |inner| inner.split(';').map(str::trim).collect());
        for round in 0..times {
            for step in &steps {
                self.step(step)
                    .map_err(|problem| format!("(round {}) {step}: {problem}", round + 1))?;
            }
        }
        Ok(())
    }

    fn step(&mut self, text: &str) -> Step {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["rules", names @ ..] => {
                let off = RULES
                    .iter()
                    .filter(|(id, _)| !names.contains(id))
                    .map(|(id, _)| (*id, Mode::Off));
                self.policy.rules.modes = off.collect();
                names
                    .iter()
                    .try_for_each(|n| known(RULES.iter().any(|(id, _)| id == n), "rule", n))
            }
            ["tool", name, facts @ ..] => self.declare(name, facts),
            ["limit", scope, dimension, limit] => self.limit(scope, dimension, limit),
            ["loops", rule, levels @ ..] => self.levels(rule, levels),
            ["step", time] => duration(time).map(|ms| self.step_ms = ms),
            ["wait", time] => duration(time).map(|ms| self.now = self.now.plus_ms(ms)),
            ["run", name] => {
                self.run = Some((*name).to_owned());
                Ok(())
            }
            ["agent", name] => {
                self.agent = Some((*name).to_owned());
                Ok(())
            }
            ["session", name, rest @ ..] => {
                self.session = (*name).to_owned();
                self.parent = rest.get(1).map(|parent| (*parent).to_owned());
                Ok(())
            }
            ["batch"] => {
                self.batch = Some(None);
                Ok(())
            }
            ["turn"] => {
                self.batch = None;
                Ok(())
            }
            ["record", call_id, ..] => self.record_step(call_id, text),
            _ => self.call_step(text),
        }
    }

    fn declare(&mut self, name: &str, facts: &[&str]) -> Step {
        let mut spec = ToolSpec::default();
        let mut facts = facts.iter();
        while let Some(fact) = facts.next() {
            match *fact {
                "read" => spec.effect = EffectKind::Read,
                "write" => spec.effect = EffectKind::Write,
                "poll" => spec.effect = EffectKind::Poll,
                "once" => spec.once = true,
                "idempotent" => spec.idempotent = true,
                "lease" => spec.lease_ms = duration(facts.next().unwrap_or(&""))?,
                "volatile" => spec.volatile.push((*facts.next().unwrap_or(&"")).to_owned()),
                "then" => spec.suggested_next.push((*facts.next().unwrap_or(&"")).to_owned()),
                path => spec.resource = Some(ResourceTemplate::parse("resource", path).map_err(|e| e.problem)?),
            }
        }
        self.policy.declare(name, spec);
        Ok(())
    }

    fn limit(&mut self, scope: &str, dimension: &str, limit: &str) -> Step {
        use crate::domain::budget::{Dimension, Scope};
        let budget = &mut self.policy.rules.budget;
        if !self.limits_cleared {
            for limits in [
                &mut budget.run,
                &mut budget.call_tree,
                &mut budget.agent,
                &mut budget.tenant,
            ] {
                *limits = Limits::default();
            }
            self.limits_cleared = true;
        }
        let scope = Scope::ALL
            .into_iter()
            .find(|s| s.as_str() == scope)
            .ok_or("unknown scope")?;
        let dimension = Dimension::ALL
            .into_iter()
            .find(|d| d.as_str() == dimension)
            .ok_or("unknown dimension")?;
        let limits = match scope {
            Scope::Run => &mut budget.run,
            Scope::CallTree => &mut budget.call_tree,
            Scope::Agent => &mut budget.agent,
            Scope::Tenant => &mut budget.tenant,
        };
        let limit = if dimension == Dimension::Cost {
            micros(limit)?
        } else {
            number(limit)?
        };
        limits.set(dimension, Some(limit));
        Ok(())
    }

    fn levels(&mut self, rule: &str, levels: &[&str]) -> Step {
        let rules = &mut self.policy.rules;
        let target = match rule {
            "repeat" => &mut rules.repeat,
            "poll" => &mut rules.poll,
            "cycle" => &mut rules.cycle,
            "breaker" => &mut rules.breaker,
            "refused" => &mut rules.refused,
            _ => return Err(format!("no levels for {rule}")),
        };
        let at = |i: usize| levels.get(i).and_then(|n| n.parse::<u32>().ok());
        *target = super::levels::Levels {
            warning: at(0),
            critical: at(1),
            break_at: at(2),
        };
        Ok(())
    }

    fn call_step(&mut self, text: &str) -> Step {
        let (tool, rest) = text.split_once(' ').ok_or("a call is a tool and its arguments")?;
        let end = matching_brace(rest).ok_or("the arguments must be an object")?;
        let arguments = self.freshen(&rest[..=end]);
        let rest = &rest[end + 1..];
        let (front, expected) = rest
            .split_once("=>")
            .map_or((rest, None), |(front, e)| (front, Some(e.trim())));
        let (front, outcome) = front
            .split_once("->")
            .map_or((front, None), |(front, o)| (front, Some(o.trim())));
        let options = Options::read(&format!("{front} {}", expected.unwrap_or_default()))?;
        let more = Options::read(outcome.unwrap_or_default())?;
        let call_id = options.call_id.clone().unwrap_or_else(|| self.next_call_id());
        let request = self.request(tool, &arguments, &call_id, &options)?;
        let proposal = self.policy.propose(request);
        let must_run = outcome.is_some() && expected.is_none();
        let verdict = self
            .evaluate(&proposal, must_run)
            .map_err(|misuse| format!("{misuse:?}"))?;
        let _ = writeln!(self.log, "  {tool} {arguments}: {}", describe(&verdict));
        if let Some(expected) = expected {
            expect_verdict(&verdict, expected)?;
        }
        if let Some(outcome) = outcome {
            let key = verdict
                .permit
                .as_ref()
                .map(|permit| permit.idempotency_key.clone())
                .unwrap_or_default();
            self.expect_key(&more, key)?;
            self.record(&call_id, outcome).map_err(|misuse| format!("{misuse:?}"))?;
        }
        self.now = self.now.plus_ms(self.step_ms);
        Ok(())
    }

    fn expect_key(&mut self, options: &Options, key: String) -> Step {
        let Some(label) = &options.key else { return Ok(()) };
        if let Some((other, _)) = self.keys.iter().find(|(name, known)| *name != label && **known == key) {
            return Err(format!("{label} has the key of {other}"));
        }
        let known = self.keys.entry(label.clone()).or_insert_with(|| key.clone());
        if *known == key {
            Ok(())
        } else {
            Err(format!("{label} was {known}, now {key}"))
        }
    }

    fn record_step(&mut self, call_id: &str, text: &str) -> Step {
        let rest = text
            .splitn(3, char::is_whitespace)
            .nth(2)
            .ok_or("an outcome is missing")?;
        let (outcome, expected) = rest.split_once("=>").map_or((rest, ""), |(o, e)| (o.trim(), e.trim()));
        let recorded = self.record(call_id, outcome);
        let told = match &recorded {
            Err(Misuse::AttemptSuperseded) => "superseded",
            Err(Misuse::AlreadySettled) => "settled",
            Err(misuse) => return Err(format!("{misuse:?}")),
            Ok(recorded) if recorded.advice.is_some_and(|advice| advice.retryable) => "retryable",
            Ok(_) => "final",
        };
        let _ = writeln!(self.log, "  record {call_id} {outcome}: {told}");
        match expected.split_whitespace().next() {
            Some(expected) if expected != told => Err(format!("expected {expected}, got {told}")),
            Some(_) => Ok(()),
            None => recorded.map(drop).map_err(|misuse| format!("{misuse:?}")),
        }
    }

    fn next_call_id(&mut self) -> String {
        self.fresh += 1;
        format!("call-{}", self.fresh)
    }

    fn freshen(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        while let Some(at) = text.find(":new") {
            self.fresh += 1;
            text.replace_range(at..at + 4, &format!(":{}", 1_000_000 + self.fresh));
        }
        text
    }

    fn request(&self, tool: &str, arguments: &str, call_id: &str, options: &Options) -> Result<Request, String> {
        let name = |e: crate::domain::ids::Invalid| e.problem;
        Ok(Request {
            tenant: DEFAULT_TENANT,
            session: SessionId::parse("session", &self.session).map_err(name)?,
            parent: self
                .parent
                .as_ref()
                .map(|p| SessionId::parse("parent", p))
                .transpose()
                .map_err(name)?,
            run: self
                .run
                .as_ref()
                .map(|run| RunId::parse("run", run))
                .transpose()
                .map_err(name)?,
            agent: self
                .agent
                .as_ref()
                .map(|agent| AgentId::parse("agent", agent))
                .transpose()
                .map_err(name)?,
            call_id: CallId::parse("call_id", call_id).map_err(name)?,
            tool: ToolName::parse("tool", tool).map_err(name)?,
            arguments: json::parse(arguments)?,
            usage: Usage {
                input_tokens: options.tokens,
                ..Usage::default()
            },
            cost_estimate_micros: options.cost_micros,
            justification: None,
            repeat_intended: options.repeat,
        })
    }

    fn root_of(&mut self, session: &SessionId, parent: Option<&SessionId>) -> SessionId {
        let root = match (self.roots.get(session), parent) {
            (Some(root), _) => root.clone(),
            (None, Some(parent)) => self.roots.get(parent).cloned().unwrap_or_else(|| parent.clone()),
            (None, None) => session.clone(),
        };
        self.roots.insert(session.clone(), root.clone());
        root
    }

    fn evaluate(&mut self, proposal: &Proposal, must_run: bool) -> Result<Verdict, Misuse> {
        let request = &proposal.request;
        let root = self.root_of(&request.session, request.parent.as_ref());
        let now = self.now;
        let fresh = || {
            (
                CallTree::new(request.tenant, root.clone(), now),
                CallTree::new(request.tenant, root.clone(), now),
            )
        };
        let batch = self.batch.flatten();
        self.shared.ledger = engine::ledger_key(&root, proposal).and_then(|key| self.ledger.get(&key).cloned());
        let (tree, _) = self.trees.entry(root.clone()).or_insert_with(fresh);
        let mut shadow = self.policy.clone();
        shadow.mode = Mode::Shadow;
        let judgement = match engine::evaluate(&self.policy, tree, &self.shared, proposal, batch, now)? {
            Judgement::New(verdict, _) if must_run && verdict.decision != Decision::Allow => {
                engine::evaluate(&shadow, tree, &self.shared, proposal, batch, now)?
            }
            judgement => judgement,
        };
        match judgement {
            Judgement::Replay(verdict) => Ok(verdict),
            Judgement::New(verdict, change) => {
                if let (Some(batch), Some(Event::Judged(judged))) = (self.batch.as_mut(), change.events.first()) {
                    batch.get_or_insert(judged.batch);
                }
                self.commit(&root, *change);
                Ok(verdict)
            }
        }
    }

    /// Does what the store does: the tree, the ledger and the counters move together.
    fn commit(&mut self, root: &SessionId, change: Change) {
        for change in &change.ledger {
            let revision = self.ledger.get(&change.key).map_or(0, |row| row.revision);
            assert_eq!(
                revision, change.expected,
                "a ledger change was decided on another revision"
            );
            self.ledger.insert(change.key, change.row.clone());
        }
        for add in &change.counters {
            let used = self.shared.counters.entry(add.key.clone()).or_default();
            *used = used.saturating_add_signed(add.amount);
            assert!(
                add.limit.is_none_or(|limit| *used <= limit),
                "a counter passed its limit: {add:?}"
            );
        }
        let Some((tree, fold)) = self.trees.get_mut(root) else {
            return;
        };
        change.events.iter().for_each(|event| fold.apply(event));
        let _ = engine::advance(tree, change);
    }

    fn record(&mut self, call_id: &str, outcome: &str) -> Result<Recorded, Misuse> {
        let options = Options::read(outcome).unwrap_or_default();
        let (word, text) = outcome.split_once(' ').unwrap_or((outcome, ""));
        let status = match word {
            "ok" => OutcomeStatus::Success,
            "error" => OutcomeStatus::Error,
            "cancelled" => OutcomeStatus::Cancelled,
            "running" => OutcomeStatus::Running,
            _ => OutcomeStatus::Unknown,
        };
        let first = text.split_whitespace().next().unwrap_or_default().to_owned();
        let kind = FailureKind::from_name(&first);
        let error = kind.filter(|_| status == OutcomeStatus::Error).map(|kind| ErrorReport {
            error_type: Some(kind.as_str().to_owned()),
            message: format!("{} from the provider", kind.as_str()),
            retry_after_ms: options.after_ms,
            ..ErrorReport::default()
        });
        let fresh = self.fresh;
        let result = (status == OutcomeStatus::Success).then(|| {
            self.fresh += 1;
            if first == "new" {
                format!("result {fresh}")
            } else {
                first
            }
        });
        let session = SessionId::parse("session", &self.session).expect("valid");
        let root = self.roots.get(&session).cloned().unwrap_or_else(|| session.clone());
        let report = Report {
            session,
            call_id: CallId::parse("call_id", call_id).expect("valid"),
            status,
            error,
            result,
            result_digest: None,
            result_bytes: None,
            is_complete: None,
            total_matches: None,
            progress_note: None,
            usage: Usage {
                cost_micros: options.cost_micros.unwrap_or(0),
                ..Usage::default()
            },
            by_lease: false,
            duration_ms: None,
            observed: None,
        };
        let Some((tree, _)) = self.trees.get(&root) else {
            return Err(Misuse::UnknownCall);
        };
        let call = tree
            .sessions
            .get(&report.session)
            .and_then(|session| session.call(&report.call_id));
        self.shared.ledger = call.and_then(|call| {
            let keys = [
                crate::domain::fingerprint::Reach::Tenant,
                crate::domain::fingerprint::Reach::Tree(&root),
            ];
            keys.iter()
                .find_map(|reach| self.ledger.get(&LedgerKey::of(*reach, &call.fingerprint)).cloned())
        });
        let recorded = engine::record(&self.policy, tree, &self.shared, &report, self.now)?;
        if let Some(change) = recorded.change.clone() {
            self.commit(&root, *change);
        }
        Ok(recorded)
    }

    /// A tree that was advanced and one that was folded from its events are one.
    fn check_fold(&self) {
        for (tree, fold) in self.trees.values() {
            assert_eq!(tree, fold, "the fold of all events is not the tree");
        }
    }
}

#[derive(Debug, Default)]
struct Options {
    call_id: Option<String>,
    key: Option<String>,
    tokens: u64,
    cost_micros: Option<u64>,
    after_ms: Option<u64>,
    repeat: bool,
}

impl Options {
    fn read(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = text
            .split(|c: char| c.is_whitespace() || c == ',')
            .filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word {
                "as" => options.call_id = Some(value().to_owned()),
                "key" => options.key = Some(value().to_owned()),
                "tokens" => options.tokens = number(value())?,
                "cost" => options.cost_micros = Some(micros(value())?),
                "after" => options.after_ms = Some(duration(value())?),
                "repeat" => options.repeat = true,
                "warning" | "critical" | "break" => {
                    let _ = (words.next(), words.next());
                }
                _ => {}
            }
        }
        Ok(options)
    }
}

fn expect_verdict(verdict: &Verdict, expected: &str) -> Step {
    let got = describe(verdict);
    let must = |holds: bool, what: &str| {
        if holds {
            Ok(())
        } else {
            Err(format!("expected {what}; got {got}"))
        }
    };
    let (mut has_finding, mut disabled) = (false, false);
    let mut words = expected
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty());
    let decision = words.next().unwrap_or_default().to_uppercase();
    must(verdict.decision.as_str() == decision, &decision)?;
    while let Some(word) = words.next() {
        match word {
            "as" => drop(words.next()),
            "disabled" => disabled = true,
            "replayed" => must(verdict.replayed, "a replay")?,
            "after" => {
                let after = duration(words.next().unwrap_or_default())?;
                must(verdict.retry_after_ms() == Some(after), &format!("after {after} ms"))?;
            }
            "attempt" => {
                let attempt = number(words.next().unwrap_or_default())?;
                let got = verdict.permit.as_ref().map(|permit| u64::from(permit.attempt));
                must(got == Some(attempt), &format!("attempt {attempt}"))?;
            }
            level @ ("warning" | "critical" | "break") => {
                has_finding = true;
                let (rule, count) = (
                    words.next().unwrap_or_default(),
                    number(words.next().unwrap_or_default())?,
                );
                let found = verdict.findings.iter().any(|f| {
                    f.rule == rule
                        && f.level.is_some_and(|l| l.as_str() == level)
                        && f.count.map(u64::from) == Some(count)
                });
                must(found, &format!("{level} {rule} {count}"))?;
            }
            reason => {
                has_finding = true;
                let known = Reason::from_name(reason).ok_or_else(|| format!("{reason} is no word of a verdict"))?;
                must(verdict.winner().is_some_and(|winner| winner.reason == known), reason)?;
            }
        }
    }
    must(
        disabled == verdict.tools_disabled,
        if disabled {
            "disabled tools"
        } else {
            "tools that are not disabled"
        },
    )
    .or_else(|problem| if decision == "STOP" { Ok(()) } else { Err(problem) })?;
    must(has_finding || verdict.findings.is_empty(), "no finding")
}

fn describe(verdict: &Verdict) -> String {
    let mut text = verdict.decision.as_str().to_owned();
    for f in &verdict.findings {
        let level = f.level.map_or("-", |level| level.as_str());
        let _ = write!(
            text,
            " [{} {} {} {level} {:?}]",
            f.rule,
            f.decision.as_str(),
            f.reason.as_str(),
            f.count
        );
    }
    if let Some(permit) = &verdict.permit {
        let _ = write!(text, " attempt {}", permit.attempt);
    }
    if let Some(after) = verdict.retry_after_ms() {
        let _ = write!(text, " after {after} ms");
    }
    if verdict.tools_disabled {
        text.push_str(" disabled");
    }
    text
}

fn matching_brace(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 {
            return text.starts_with('{').then_some(i);
        }
    }
    None
}

fn known(is: bool, what: &str, name: &str) -> Step {
    if is {
        Ok(())
    } else {
        Err(format!("{name} is no {what}"))
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn micros(text: &str) -> Result<u64, String> {
    let dollars: f64 = text.parse().map_err(|_| format!("{text:?} is no amount"))?;
    Ok((dollars * 1_000_000.0).round() as u64)
}

fn duration(text: &str) -> Result<u64, String> {
    let at = text
        .find(|c: char| !c.is_ascii_digit())
        .ok_or_else(|| format!("{text:?} has no unit"))?;
    let amount = number(&text[..at])?;
    let unit = match &text[at..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        unit => return Err(format!("{unit:?} is no unit")),
    };
    Ok(amount * unit)
}
