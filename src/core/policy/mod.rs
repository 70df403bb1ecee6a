//! What the owner of a fleet has decided: facts about tools, the rules' parameters, and how they hold. This room knows
//! the file's form; it must not know files (text comes in), the store, the network or a clock.

pub mod arguments;
mod compile;
pub mod differences;
mod error;
mod file;
mod form;
pub mod normalizers;
mod prompt;
mod redact;
mod schema;
mod tool;
pub mod unlisted;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

pub use compile::{compile, compile_with, hash};
pub use error::PolicyError;
pub use schema::{schema, schema_with};

use self::{arguments::Checked, tool::Declared};
use crate::{
    domain::{
        call::{Proposal, Request},
        effect::{Effect, EffectKind, Fresh, ResourceTemplate, Share},
        fingerprint::{ArgsDigest, Fingerprint, Witness},
        hashing::Hashing,
        ids::ToolName,
        json::Json,
        redaction::{Redaction, Secrets},
        route::Route,
        similarity::Shape,
        time::Timestamp,
        tool::{InjectAs, Stored, ToolSpec},
        violation::CoercedField,
        whole::RESULT_BYTES_MAX_DEFAULT,
    },
    retry::advice,
    rules::{Mode, RuleSet, same_call, tier},
};

/// Tools that are suggested at once.
const SUGGESTED_MAX: usize = 3;
/// How long a question to a person stays open, in milliseconds: one hour.
pub const APPROVAL_TTL_MS_DEFAULT: u64 = 3_600_000;

/// Hosts whose built-in tools are known, as hooks name them.
const CODING_HOSTS: [&str; 4] = ["claude-code", "codex", "gemini", "cursor"];
/// What their hooks hand on of a previous result, in bytes: a hook's answer ends after 10,000 characters.
const HOST_ANSWER_BYTES_MAX: usize = 9_000;
/// Their tools.
static HOST_TOOLS: LazyLock<Policy> =
    LazyLock::new(|| compile("policy_engine: {presets: [coding_agents]}\n").unwrap_or_else(|_| Policy::default()));

/// A policy, ready to judge by.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Names this policy in every decision it makes: `default`, or the first 16 hexadecimal digits of its hash.
    pub version: Arc<str>,
    /// Whether refusals hold. `Off` is not meant for a whole policy and counts as `Shadow`.
    pub mode: Mode,
    /// The rules' parameters.
    pub rules: RuleSet,
    /// When a retry is worth it.
    pub retry: advice::Params,
    /// How long a question to a person stays open, in milliseconds.
    pub approval_ttl_ms: u64,
    /// What is left out of all that is stored and shown.
    pub redaction: Redaction,
    /// How large a stored result may be before it is cut, in bytes.
    pub result_bytes_max: usize,
    /// How values are hashed by which calls and results are known again: the tenant's, whatever the file says.
    pub hashing: Hashing,
    /// What is suspicious about the file, and may be intended.
    pub warnings: Vec<PolicyError>,
    /// What is known about tools, by name.
    tools: BTreeMap<String, Declared>,
    undeclared: Declared,
}

impl Default for Policy {
    /// The policy that needs no file: nothing is known about any tool, and every limit is wide.
    fn default() -> Self {
        Self {
            version: "default".into(),
            mode: Mode::Enforce,
            rules: RuleSet::default(),
            retry: advice::Params::default(),
            approval_ttl_ms: APPROVAL_TTL_MS_DEFAULT,
            redaction: Redaction::default(),
            result_bytes_max: RESULT_BYTES_MAX_DEFAULT,
            hashing: Hashing::default(),
            warnings: Vec::new(),
            tools: BTreeMap::new(),
            undeclared: Declared::default(),
        }
    }
}

impl Policy {
    /// Declares a tool.
    pub fn declare(&mut self, tool: &str, spec: ToolSpec) {
        self.declared(tool, Declared { spec: Arc::new(spec), ..Declared::default() });
    }

    fn declared(&mut self, tool: &str, declared: Declared) {
        self.tools.insert(tool.to_owned(), declared);
    }

    /// What holds for tools that are not declared.
    fn declare_others(&mut self, stored: &(Stored, Stored), inject_as: Option<&InjectAs>, share: Share) {
        let spec = ToolSpec { stored: *stored, inject_as: inject_as.cloned(), share, ..ToolSpec::default() };
        self.undeclared.spec = Arc::new(spec);
    }

    fn of(&self, name: &ToolName) -> &Declared {
        self.tools.get(name.as_str()).unwrap_or(&self.undeclared)
    }

    /// Who is asked about a tool's calls.
    #[must_use]
    pub fn route(&self, tool: &ToolName) -> &Route {
        self.rules.get::<tier::Params>().route(tool.as_str(), self.tool(tool).risk)
    }

    /// The first tier that names a tool.
    #[must_use]
    pub fn tier(&self, tool: &ToolName) -> Option<&str> {
        self.rules.get::<tier::Params>().tier(tool.as_str()).map(|tier| tier.name.as_str())
    }

    /// True when the user of an agent's host may answer for a tool's calls. Where a group or two people are named, they
    /// answer.
    #[must_use]
    pub fn host_may_approve(&self, tool: &ToolName) -> bool {
        let tier = self.rules.get::<tier::Params>().tier(tool.as_str());
        tier.is_some_and(|tier| tier.host_may_approve) && *self.route(tool) == Route::ANYBODY
    }

    /// When a question was asked that counts as denied at `expires_at`.
    #[must_use]
    pub fn asked_at(&self, expires_at: Timestamp) -> Timestamp {
        Timestamp::from_millis(expires_at.as_millis().saturating_sub_unsigned(self.approval_ttl_ms))
    }

    /// Whether the findings of a rule hold for a tool. Policy, rule and tool may each be in shadow.
    #[must_use]
    pub fn holds(&self, rule: &str, spec: &ToolSpec) -> bool {
        self.is_enforced() && self.rules.mode(rule) == Mode::Enforce && !spec.shadow
    }

    /// False while the policy only watches.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.mode == Mode::Enforce
    }

    /// What is known about a tool.
    #[must_use]
    pub fn tool(&self, name: &ToolName) -> &ToolSpec {
        &self.of(name).spec
    }

    /// How much of a previous result is given again, in bytes.
    #[must_use]
    pub fn previous_result_bytes(&self) -> usize {
        self.rules.get::<same_call::Params>().previous_result_bytes
    }

    /// What may help when a call is refused: what the owner says, else the declared reads of the same thing that these
    /// arguments name.
    #[must_use]
    pub fn suggested_next(&self, proposal: &Proposal) -> Vec<String> {
        let own = &proposal.spec.suggested_next;
        let Some(resource) = proposal.effect.resource.as_ref().filter(|_| own.is_empty()) else { return own.clone() };
        let (tool, arguments) = (proposal.request.tool.as_str(), &proposal.request.arguments);
        let reads = |spec: &ToolSpec| {
            let looks = matches!(spec.effect, EffectKind::Read | EffectKind::Poll);
            let template = spec.resource.as_ref().filter(|template| {
                looks
                    && template.fields().next().is_some()
                    && template.fields().all(|field| arguments.get(field).is_some())
            });
            let named = |template: &ResourceTemplate| {
                proposal.secrets.left_out_of_name(template.fill(arguments), &self.hashing)
            };
            template.is_some_and(|template| named(template).overlaps(resource))
        };
        let readers = self.tools().filter(|(name, spec)| *name != tool && reads(spec));
        readers.map(|(name, _)| name.to_owned()).take(SUGGESTED_MAX).collect()
    }

    /// True when the arguments of a tool are checked against a schema.
    #[must_use]
    pub fn has_schema(&self, name: &ToolName) -> bool {
        self.of(name).schema.is_some()
    }

    /// True when the policy has an entry of its own for a tool.
    #[must_use]
    pub fn is_declared(&self, name: &ToolName) -> bool {
        self.tools.contains_key(name.as_str())
    }

    /// True when calls of a tool are refused that come without a justification, or would be, were it enforced.
    #[must_use]
    pub fn needs_justification(&self, tool: &ToolName) -> bool {
        let tier = self.rules.get::<tier::Params>().tier(tool.as_str());
        tier.is_some_and(|tier| tier.require_reason) && self.rules.mode(tier::RULE.id) != Mode::Off
    }

    /// Every declared tool, by name.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &ToolSpec)> {
        self.tools.iter().map(|(name, declared)| (name.as_str(), &*declared.spec))
    }

    /// Declared tools of which nothing says what they do, whatever their arguments.
    fn silent_tools(&self) -> impl Iterator<Item = &str> {
        let is_silent = |known: &Declared| {
            known.spec.kind() == EffectKind::Unknown && known.cases.is_empty() && known.command_line.is_none()
        };
        let silent = self.tools.iter().filter(move |(_, known)| is_silent(known) && !known.spec.terminal);
        silent.map(|(name, _)| name.as_str())
    }

    /// What a call does to the world. Of the tools that a coding agent's host has built in, looks and lines of a shell
    /// are known without a declaration.
    fn effect_of(&self, known: &Declared, request: &Request) -> (Effect, Fresh) {
        let mut of_call = known.effect_of(&request.arguments);
        if is_coding_host(request) && !self.is_declared(&request.tool) {
            let (built_in, fresh) = HOST_TOOLS.of(&request.tool).effect_of(&request.arguments);
            let is_look = matches!(built_in.kind, EffectKind::Read | EffectKind::Poll);
            if is_look || built_in.in_steps {
                of_call = (Effect { share: of_call.0.share, ..built_in }, fresh);
            }
        }
        let (effect, fresh) = of_call;
        // What is read anew each time is looked at again and again, unless a witness tells whether it has changed.
        let is_poll = effect.kind == EffectKind::Read && fresh == Fresh::For(0) && request.witness.is_none();
        (Effect { kind: if is_poll { EffectKind::Poll } else { effect.kind }, ..effect }, fresh)
    }

    /// The request with all that the policy knows of it. This is where arguments are read and hashed, outside of any
    /// lock.
    #[must_use]
    pub fn propose(&self, mut request: Request) -> Proposal {
        let known = self.of(&request.tool);
        let dropped = drop_key(&known.spec, &mut request.arguments);
        let mut checked = match (arguments::malformed(&request.arguments), &known.schema) {
            (Some(malformed), _) => Checked { violations: vec![malformed], ..Checked::default() },
            (None, Some(schema)) => schema.check(&request.arguments),
            (None, None) => Checked::default(),
        };
        let repaired = checked.repaired.is_some() || dropped.is_some();
        checked.coerced.extend(dropped);
        if let Some(arguments) = checked.repaired {
            request.arguments = arguments;
        }
        let all: Arc<str> = request.arguments.canonical().into();
        // What was read as another value is known again by that value.
        let read = checked.accepted.as_ref().unwrap_or(&request.arguments);
        let read = known.schema.as_ref().map_or(Cow::Borrowed(read), |schema| schema.recognised(read));
        let recognised = match (&known.canonical, &checked.accepted, &read) {
            (Some(canonical), _, _) => canonical.text(&read).into(),
            (None, None, Cow::Borrowed(_)) => Cow::Borrowed(&*all),
            _ => read.canonical().into(),
        };
        let shape = Arc::new(if known.canonical.is_some() { Shape::of(&recognised) } else { Shape::of_json(&read) });
        let mut secrets = Secrets::default();
        let stored = self.stored_arguments(&known.spec, &request.arguments, &all, &mut secrets);
        let said = |text: String| self.stored_text(known.spec.stored.0, &text, &mut secrets).into_owned();
        request.justification = request.justification.map(said);
        let (mut effect, fresh) = self.effect_of(known, &request);
        effect.resource = effect.resource.map(|resource| secrets.left_out_of_name(resource, &self.hashing));
        Proposal {
            fingerprint: Fingerprint::of(&request.tool, &recognised).keyed(&self.hashing),
            args_digest: ArgsDigest::of(&request.tool, &all).keyed(&self.hashing),
            shape,
            effect,
            fresh,
            witness: request.witness.as_deref().map(|value| Witness::of(value, &self.hashing)),
            stored,
            secrets,
            cost_micros: request.cost_estimate_micros.unwrap_or(known.spec.cost_micros),
            spec: Arc::clone(&known.spec),
            declared: self.is_declared(&request.tool),
            caller_waits: !is_coding_host(&request),
            answer_bytes_max: match is_coding_host(&request) {
                true => self.previous_result_bytes().min(HOST_ANSWER_BYTES_MAX),
                false => self.previous_result_bytes(),
            },
            violations: checked.violations,
            coerced: checked.coerced,
            unknown_fields: checked.unknown,
            repaired,
            canonical: all,
            request,
        }
    }
}

fn is_coding_host(request: &Request) -> bool {
    request.host.as_ref().is_some_and(|host| CODING_HOSTS.contains(&host.as_str()))
}

/// Takes away what a model put where the idempotency key goes: it neither sees nor makes it.
fn drop_key(spec: &ToolSpec, arguments: &mut Json) -> Option<CoercedField> {
    let Some(InjectAs::Argument(name)) = &spec.inject_as else { return None };
    let Json::Object(members) = arguments else { return None };
    let at = members.iter().position(|(field, _)| **field == **name)?;
    let (field, value) = members.remove(at);
    Some(CoercedField { field, from: value.canonical(), to: "left to the gate".to_owned() })
}
