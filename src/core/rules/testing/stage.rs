//! Stage of a story: an in-memory world, a policy and a clock, advanced by the steps.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    expect::{describe, expect_verdict},
    step_words::{Options, duration, fill_numbers, letters, matching_brace, micros, number, require_known, whole},
};
use crate::{
    domain::{
        audit::Actor,
        budget::{BudgetLimits, BudgetScope, Budgets, Dimension, Usage},
        call::{Proposal, Request},
        control::EditedArguments,
        effect::{EffectKind, Freshness, ResourceTemplate},
        failure::{ErrorReport, FailureKind},
        finding::Decision,
        identity::Identity,
        ids::{AgentId, CallId, DEFAULT_TENANT, RunId, SessionId, ToolName},
        json,
        outcome::OutcomeStatus,
        previous::StoredResult,
        rejection::{EvaluateRejection, RecordRejection},
        report::{Operator, OutcomeReport},
        time::Timestamp,
        tool::{InjectAs, ToolSpec},
        verdict::Verdict,
    },
    engine::RecordResult,
    offline::world::World,
    policy::Policy,
    rules::{Mode, Rule, RuleSet, levels::DetectorLevels},
};

pub(super) struct Stage {
    pub(super) policy: Policy,
    pub(super) rules: Vec<Rule>,
    pub(super) world: World,
    pub(super) now: Timestamp,
    step_ms: u64,
    pub(super) session: String,
    parent: Option<String>,
    run: Option<String>,
    agent: Option<String>,
    batch: Option<Option<u64>>,
    fresh: u64,
    keys: BTreeMap<String, String>,
    limits_cleared: bool,
    off: Option<&'static str>,
    pub(super) said: Vec<Verdict>,
    /// The last text for the model, about a call or a report.
    pub(super) told: String,
    pub(super) results: BTreeMap<String, StoredResult>,
    /// The last edited arguments.
    pub(super) edited: Option<EditedArguments>,
    pub(super) log: String,
}

pub(super) type Step = Result<(), String>;

impl Stage {
    pub(super) fn new(rules: &[Rule], off: Option<&'static str>) -> Self {
        let mut policy = Policy::default();
        policy.rules = RuleSet::new(rules);
        Self {
            policy,
            rules: rules.to_vec(),
            world: World::new(DEFAULT_TENANT).with_past(),
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
            off,
            said: Vec::new(),
            told: String::new(),
            results: BTreeMap::new(),
            edited: None,
            log: String::new(),
        }
    }

    pub(super) fn play_line(&mut self, text: &str) -> Step {
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
                self.step(step).map_err(|problem| format!("(round {}) {step}: {problem}", round + 1))?;
            }
        }
        Ok(())
    }

    fn step(&mut self, text: &str) -> Step {
        let words: Vec<&str> = text.split_whitespace().collect();
        if let Some(done) = self.people(&words) {
            return done;
        }
        match words.as_slice() {
            ["rules", names @ ..] => {
                self.policy.rules.keep_only(names);
                names.iter().try_for_each(|name| require_known(self.policy.rules.find(name).is_some(), "rule", name))
            }
            ["mode", name, mode] => {
                self.policy.rules.set_mode(name, if *mode == "shadow" { Mode::Shadow } else { Mode::Off });
                require_known(self.policy.rules.find(name).is_some(), "rule", name)
            }
            ["tool", name, facts @ ..] => self.declare(name, facts),
            ["limit", scope, dimension, limit] => self.limit(scope, dimension, limit),
            ["retry", key, value] => self.retry(key, value),
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
            ["summary", ..] => self.summary_step(text.trim_start_matches("summary").trim()),
            ["record", call_id, ..] => self.record_step(call_id, text),
            ["observe", ..] => self.observe_step(text.trim_start_matches("observe ")),
            _ => self.call_step(text),
        }
    }

    fn declare(&mut self, name: &str, facts: &[&str]) -> Step {
        let mut spec = ToolSpec::default();
        let mut facts = facts.iter();
        while let Some(fact) = facts.next() {
            match *fact {
                "read" => spec.effect = EffectKind::Read,
                "always" => spec.fresh = Freshness::Always,
                "private_to_call_tree" => spec.fresh = Freshness::BySession,
                "fresh" => spec.fresh = Freshness::For(duration(facts.next().unwrap_or(&""))?),
                "write" => spec.effect = EffectKind::Write,
                "poll" => spec.effect = EffectKind::Poll,
                "once" => spec.once = true,
                "check" => spec.effect = EffectKind::Check,
                "idempotent" => spec.idempotent = true,
                "key_honored" => spec.key_honoured = true,
                "repeatable" => spec.repeatable = true,
                "argument" => spec.inject_as = Some(InjectAs::Argument(facts.next().unwrap_or(&"").to_string().into())),
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
        let budget = self.policy.rules.get_mut::<Budgets>();
        if !self.limits_cleared {
            BudgetScope::ALL.into_iter().for_each(|scope| *budget.of_mut(scope) = BudgetLimits::default());
            self.limits_cleared = true;
        }
        let scope = BudgetScope::from_name(scope).ok_or("unknown scope")?;
        let dimension = Dimension::from_name(dimension).ok_or("unknown dimension")?;
        let limit = if dimension == Dimension::Cost { micros(limit)? } else { number(limit)? };
        budget.of_mut(scope).set(dimension, Some(limit));
        Ok(())
    }

    fn retry(&mut self, key: &str, value: &str) -> Step {
        let retry = &mut self.policy.retry;
        match key {
            "attempts" => retry.attempts = number(value)? as u32,
            "exclude_honored_waits" => retry.exclude_honored_waits = value == "true",
            "probe_share" => retry.probe_share = value.parse().map_err(|_| format!("{value} is no share"))?,
            "burst" => retry.allowance.max = number(value)? as f64,
            _ => return Err(format!("no retry key {key}")),
        }
        Ok(())
    }

    fn levels(&mut self, rule: &str, levels: &[&str]) -> Step {
        let at = |i: usize| levels.get(i).and_then(|n| n.parse::<u32>().ok());
        let levels = DetectorLevels { warning: at(0), critical: at(1), break_at: at(2) };
        require_known(self.policy.rules.set_levels(rule, None, levels), "detector", rule)
    }

    fn call_step(&mut self, text: &str) -> Step {
        let (tool, rest) = text.split_once(' ').ok_or("a call is a tool and its arguments")?;
        let end = matching_brace(rest).ok_or("the arguments must be an object")?;
        let arguments = self.freshen(&rest[..=end]);
        let rest = &rest[end + 1..];
        let (front, expected) = rest.split_once("=>").map_or((rest, None), |(front, e)| (front, Some(e.trim())));
        let (front, outcome) = front.split_once("->").map_or((front, None), |(front, o)| (front, Some(o.trim())));
        let options = Options::read(&format!("{front} {}", expected.unwrap_or_default()))?;
        let more = Options::read(outcome.unwrap_or_default())?;
        let call_id = options.call_id.clone().unwrap_or_else(|| self.next_call_id());
        let request = self.request(tool, &arguments, &call_id, &options)?;
        let proposal = self.policy.propose(request);
        let must_run = outcome.is_some() && expected.is_none();
        let verdict = self.evaluate(&proposal, must_run).map_err(|caller_error| format!("{caller_error:?}"))?;
        let _ = writeln!(self.log, "  {tool} {arguments}: {}", describe(&verdict));
        if let Some(expected) = expected.filter(|expected| *expected != "whatever") {
            expect_verdict(&verdict, expected)?;
        }
        if let Some(outcome) = outcome.filter(|_| must_run || verdict.permit.is_some() || expected != Some("whatever"))
        {
            let key = verdict.permit.as_ref().map(|permit| permit.idempotency_key.clone()).unwrap_or_default();
            self.expect_key(&more, key)?;
            self.record(&call_id, outcome).map_err(|caller_error| format!("{caller_error:?}"))?;
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
        if *known == key { Ok(()) } else { Err(format!("{label} was {known}, now {key}")) }
    }

    fn record_step(&mut self, call_id: &str, text: &str) -> Step {
        let rest = text.splitn(3, char::is_whitespace).nth(2).ok_or("an outcome is missing")?;
        let (outcome, expected) = rest.split_once("=>").map_or((rest, ""), |(o, e)| (o.trim(), e.trim()));
        let recorded = self.record(call_id, outcome);
        let told = match &recorded {
            Err(RecordRejection::AttemptSuperseded) => "superseded",
            Err(RecordRejection::AlreadySettled) => "settled",
            Err(caller_error) => return Err(format!("{caller_error:?}")),
            Ok(recorded) if recorded.advice.is_some_and(|advice| advice.retryable) => "retryable",
            Ok(_) => "final",
        };
        let _ = writeln!(self.log, "  record {call_id} {outcome}: {told}");
        match expected.split_whitespace().next() {
            Some(expected) if expected != told => Err(format!("expected {expected}, got {told}")),
            Some(_) => Ok(()),
            None => recorded.map(drop).map_err(|caller_error| format!("{caller_error:?}")),
        }
    }

    fn next_call_id(&mut self) -> String {
        self.fresh += 1;
        format!("call-{}", self.fresh)
    }

    fn freshen(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        if text.contains('$') {
            self.fresh += 1;
            text = fill_numbers(&text, self.fresh);
        }
        while let Some(at) = text.find(":new") {
            self.fresh += 1;
            text.replace_range(at..at + 4, &format!(":{}", 1_000_000 + self.fresh));
        }
        text
    }

    fn request(&self, tool: &str, arguments: &str, call_id: &str, options: &Options) -> Result<Request, String> {
        let name = |e: crate::domain::ids::Invalid| e.problem;
        let session = SessionId::parse("session", &self.session).map_err(name)?;
        let call_id = CallId::parse("call_id", call_id).map_err(name)?;
        let tool = ToolName::parse("tool", tool).map_err(name)?;
        Ok(Request {
            parent: self.parent.as_ref().map(|p| SessionId::parse("parent", p)).transpose().map_err(name)?,
            run: self.run.as_ref().map(|run| RunId::parse("run", run)).transpose().map_err(name)?,
            agent: self.agent.as_ref().map(|agent| AgentId::parse("agent", agent)).transpose().map_err(name)?,
            usage: Usage { input_tokens: options.tokens, ..Usage::default() },
            cost_estimate_micros: options.cost_micros,
            justification: options.because.clone(),
            repeat_intended: options.repeat,
            sayable: options.sayable.clone(),
            phase: options.phase.clone(),
            witness: options.witness.clone(),
            ..Request::new(DEFAULT_TENANT, session, call_id, tool, json::parse(arguments)?)
        })
    }

    fn evaluate(&mut self, proposal: &Proposal, must_run: bool) -> Result<Verdict, EvaluateRejection> {
        let batch = self.batch.flatten();
        let mut policy = self.policy.clone();
        self.off.into_iter().for_each(|rule| policy.rules.set_mode(rule, Mode::Off));
        let verdict = self.world.preview(&policy, proposal, batch, self.now)?;
        if must_run && verdict.decision != Decision::Allow {
            policy.mode = Mode::Shadow;
        }
        let (verdict, judged_in) = self.world.evaluate(&policy, proposal, batch, self.now)?;
        if let (Some(batch), Some(judged_in)) = (self.batch.as_mut(), judged_in) {
            batch.get_or_insert(judged_in);
        }
        self.told = self.text_of(&policy, proposal, &verdict);
        self.said.push(verdict.clone());
        Ok(verdict)
    }

    fn observe_step(&mut self, text: &str) -> Step {
        let (call, outcome) = text.split_once("->").ok_or("an outcome is missing")?;
        let (tool, arguments) = call.trim().split_once(' ').ok_or("a call is a tool and its arguments")?;
        let (arguments, call_id) = (self.freshen(arguments), self.next_call_id());
        let request = self.request(tool, &arguments, &call_id, &Options::default())?;
        let observed = Some(Box::new(self.policy.propose(request)));
        let report = OutcomeReport { observed, ..self.report(&call_id, outcome.trim()) };
        let recorded = self.world.record(&self.policy, &report, self.now);
        self.now = self.now.plus_ms(self.step_ms);
        recorded.map(drop).map_err(|caller_error| format!("{caller_error:?}"))
    }

    fn record(&mut self, call_id: &str, outcome: &str) -> Result<RecordResult, RecordRejection> {
        let report = self.report(call_id, outcome);
        let recorded = self.world.record(&self.policy, &report, self.now)?;
        if let Some(text) = &report.result {
            self.results
                .insert(call_id.to_owned(), StoredResult { text: Some(text.clone()), ..StoredResult::default() });
        }
        self.told = self.text_of_report(&report, &recorded);
        Ok(recorded)
    }

    fn report(&mut self, call_id: &str, outcome: &str) -> OutcomeReport {
        let options = Options::read(outcome).unwrap_or_default();
        let (word, text) = outcome.split_once(' ').unwrap_or((outcome, ""));
        let status = match word {
            "ok" => OutcomeStatus::Success,
            "error" => OutcomeStatus::Error,
            "cancelled" | "unstarted" => OutcomeStatus::Cancelled,
            "running" => OutcomeStatus::Running,
            _ => OutcomeStatus::Unknown,
        };
        let first = text.split_whitespace().next().unwrap_or_default().to_owned();
        let said = text.split_once("saying ").map(|(_, said)| if said == "nothing" { "" } else { said });
        let kind = FailureKind::from_name(&first);
        let error = kind.filter(|_| status == OutcomeStatus::Error).map(|kind| ErrorReport {
            error_type: Some(kind.as_str().to_owned()),
            message: said.map_or_else(|| format!("{} from the provider", kind.as_str()), str::to_owned),
            retry_after_ms: options.after_ms,
            ..ErrorReport::default()
        });
        let fresh = self.fresh;
        let result = (status == OutcomeStatus::Success).then(|| {
            self.fresh += 1;
            match first.as_str() {
                "new" => format!("result {}", letters(fresh)),
                _ => fill_numbers(&whole(text).unwrap_or(first), self.fresh),
            }
        });
        let session = SessionId::parse("session", &self.session).expect("valid");
        OutcomeReport {
            not_started: word == "unstarted",
            witness_after: options.witness,
            key_sent: options.is_sent,
            by: options
                .is_by_operator
                .then(|| Operator { by: Actor::of(&Identity::local(), "operator"), reason: None }),
            error,
            result,
            usage: Usage { cost_micros: options.cost_micros.unwrap_or(0), ..Usage::default() },
            ..OutcomeReport::new(session, CallId::parse("call_id", call_id).expect("valid"), status)
        }
    }
}
