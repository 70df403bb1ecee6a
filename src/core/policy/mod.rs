//! Policies: facts about tools, parameters of the rules, and enforcement modes, as decided by the owner of a fleet.
//! This module knows the format of the file; it must not know files (text comes in), the store, the network or a clock.

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

pub use compile::{compile, compile_stored, compile_with, hash, is_coding_agent_read};
pub use error::PolicyError;
pub use schema::{schema, schema_with};

use self::{arguments::ArgumentCheck, tool::DeclaredTool};
use crate::{
    domain::{
        call::{Proposal, Request},
        effect::{DuplicateScope, Effect, EffectKind, Freshness, ResourceTemplate},
        fingerprint::{ArgsDigest, Fingerprint, WitnessDigest},
        hashing::Hashing,
        ids::{HostName, ToolName},
        json::Json,
        redaction::{Redaction, Secrets},
        route::ApprovalRoute,
        similarity::ArgumentShape,
        time::Timestamp,
        tool::{InjectAs, StorageMode, ToolSpec},
        truncation::RESULT_BYTES_MAX_DEFAULT,
        violation::CoercedField,
    },
    retry::advice,
    rules::{Mode, RuleSet, halted, same_call, tier},
};

/// Maximum number of suggested tools.
const SUGGESTED_MAX: usize = 3;
/// Default expiry of an approval request, in milliseconds: one hour.
pub const APPROVAL_TTL_MS_DEFAULT: u64 = 3_600_000;

/// Hosts with known built-in tools, by the names of their hooks.
const CODING_HOSTS: [&str; 4] = ["claude-code", "codex", "gemini", "cursor"];
/// Host of the MCP proxy's calls, which does not know the program in front of it.
const MCP_HOST: &str = "mcp-proxy";
/// Maximum size of a previous result in their hooks, in bytes: a hook's answer ends after 10,000 characters.
const HOST_ANSWER_BYTES_MAX: usize = 9_000;
/// Their built-in tools.
static HOST_TOOLS: LazyLock<Policy> =
    LazyLock::new(|| compile("policy_engine: {presets: [coding_agents]}\n").unwrap_or_else(|_| Policy::default()));

/// A compiled policy.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Version in every decision: `default`, or the first 16 hexadecimal digits of its hash.
    pub version: Arc<str>,
    /// Enforcement mode; `Off` counts as `Shadow` here.
    pub mode: Mode,
    /// The rules' parameters.
    pub rules: RuleSet,
    /// Parameters of retry advice.
    pub retry: advice::Params,
    /// Expiry of an approval request, in milliseconds.
    pub approval_ttl_ms: u64,
    /// Redaction of everything stored and shown.
    pub redaction: Redaction,
    /// Size above which a stored result is truncated, in bytes.
    pub result_bytes_max: usize,
    /// Hashing of fingerprints and digests: by the tenant's key, independent of the file.
    pub hashing: Hashing,
    /// Warnings: suspicious parts of the file, perhaps intended.
    pub warnings: Vec<PolicyError>,
    /// Declared tools, by name.
    tools: BTreeMap<String, DeclaredTool>,
    undeclared: DeclaredTool,
}

impl Default for Policy {
    /// The policy without a file: no declared tools, and wide limits.
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
            undeclared: DeclaredTool::default(),
        }
    }
}

impl Policy {
    /// Declares a tool.
    pub fn declare(&mut self, tool: &str, spec: ToolSpec) {
        self.insert_declared(tool, DeclaredTool { spec: Arc::new(spec), ..DeclaredTool::default() });
    }

    fn insert_declared(&mut self, tool: &str, declared: DeclaredTool) {
        self.tools.insert(tool.to_owned(), declared);
    }

    /// Declares the defaults for undeclared tools.
    fn declare_others(
        &mut self,
        stored: &(StorageMode, StorageMode),
        inject_as: Option<&InjectAs>,
        share: DuplicateScope,
    ) {
        let spec = ToolSpec { stored: *stored, inject_as: inject_as.cloned(), share, ..ToolSpec::default() };
        self.undeclared.spec = Arc::new(spec);
    }

    fn of(&self, name: &ToolName) -> &DeclaredTool {
        self.tools.get(name.as_str()).unwrap_or(&self.undeclared)
    }

    /// The approval route of a tool's calls.
    #[must_use]
    pub fn route(&self, tool: &ToolName) -> &ApprovalRoute {
        self.rules.get::<tier::Params>().route(tool.as_str(), self.tool(tool).risk)
    }

    /// The first tier that names a tool.
    #[must_use]
    pub fn tier(&self, tool: &ToolName) -> Option<&str> {
        self.rules.get::<tier::Params>().tier(tool.as_str()).map(|tier| tier.name.as_str())
    }

    /// True when the user of an agent's host may approve a tool's calls: not where a group or two people are named.
    #[must_use]
    pub fn host_may_approve(&self, tool: &ToolName) -> bool {
        let tier = self.rules.get::<tier::Params>().tier(tool.as_str());
        tier.is_some_and(|tier| tier.host_may_approve) && *self.route(tool) == ApprovalRoute::ANYBODY
    }

    /// Time of an approval request that expires at `expires_at`.
    #[must_use]
    pub fn asked_at(&self, expires_at: Timestamp) -> Timestamp {
        Timestamp::from_millis(expires_at.as_millis().saturating_sub_unsigned(self.approval_ttl_ms))
    }

    /// True when a rule's findings are enforced for a tool. Policy, rule and tool may each be in shadow mode. A halt is
    /// an operator's order, which a policy on trial does not lift: only the mode of its own rule does.
    #[must_use]
    pub fn holds(&self, rule: &str, spec: &ToolSpec) -> bool {
        let is_enforced = self.is_enforced() && !spec.shadow || rule == halted::RULE.id;
        is_enforced && self.rules.mode(rule) == Mode::Enforce
    }

    /// False in shadow mode.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.mode == Mode::Enforce
    }

    /// Facts about a tool.
    #[must_use]
    pub fn tool(&self, name: &ToolName) -> &ToolSpec {
        &self.of(name).spec
    }

    /// Maximum size of a returned previous result, in bytes.
    #[must_use]
    pub fn previous_result_bytes(&self) -> usize {
        self.rules.get::<same_call::Params>().previous_result_bytes
    }

    /// Suggestions for a refused call: the declared ones, otherwise declared reads of the resource that these arguments
    /// name. Built-in tools of other hosts are none.
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
        let host = proposal.request.host.as_ref().map(HostName::as_str).filter(|_| is_coding_host(&proposal.request));
        let readers = self.tools().filter(|(name, spec)| *name != tool && reads(spec) && compile::has_tool(host, name));
        readers.map(|(name, _)| name.to_owned()).take(SUGGESTED_MAX).collect()
    }

    /// True for a tool with an argument schema.
    #[must_use]
    pub fn has_schema(&self, name: &ToolName) -> bool {
        self.of(name).schema.is_some()
    }

    /// True when a declared tool has an argument schema.
    #[must_use]
    pub fn has_any_schema(&self) -> bool {
        self.tools.values().any(|declared| declared.schema.is_some())
    }

    /// True when the policy has an entry of its own for a tool.
    #[must_use]
    pub fn is_declared(&self, name: &ToolName) -> bool {
        self.tools.contains_key(name.as_str())
    }

    /// True when calls without a justification are refused, or would be outside shadow mode.
    #[must_use]
    pub fn needs_justification(&self, tool: &ToolName) -> bool {
        let tier = self.rules.get::<tier::Params>().tier(tool.as_str());
        tier.is_some_and(|tier| tier.require_reason) && self.rules.mode(tier::RULE.id) != Mode::Off
    }

    /// Every declared tool, by name.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &ToolSpec)> {
        self.tools.iter().map(|(name, declared)| (name.as_str(), &*declared.spec))
    }

    /// Declared tools without any declared effect.
    fn silent_tools(&self) -> impl Iterator<Item = &str> {
        let is_silent = |known: &DeclaredTool| {
            known.spec.kind() == EffectKind::Unknown && known.cases.is_empty() && known.command_line.is_none()
        };
        let silent = self.tools.iter().filter(move |(_, known)| is_silent(known) && !known.spec.terminal);
        silent.map(|(name, _)| name.as_str())
    }

    /// Effect of a call. Built-in reads and shell lines of coding agents' hosts need no declaration.
    fn effect_of(&self, known: &DeclaredTool, request: &Request) -> (Effect, Freshness) {
        let mut of_call = known.effect_of(&request.arguments);
        if is_coding_host(request) && !self.is_declared(&request.tool) {
            let (built_in, fresh) = HOST_TOOLS.of(&request.tool).effect_of(&request.arguments);
            let is_look = matches!(built_in.kind, EffectKind::Read | EffectKind::Poll);
            if is_look || built_in.in_steps {
                of_call = (Effect { share: of_call.0.share, ..built_in }, fresh);
            }
        }
        let (effect, fresh) = of_call;
        // A read without freshness is a poll, unless a witness shows whether it has changed.
        let is_poll = effect.kind == EffectKind::Read && fresh == Freshness::For(0) && request.witness.is_none();
        (Effect { kind: if is_poll { EffectKind::Poll } else { effect.kind }, ..effect }, fresh)
    }

    /// The request with all facts of the policy. Arguments are parsed and hashed here, outside of any lock.
    #[must_use]
    pub fn propose(&self, mut request: Request) -> Proposal {
        let known = self.of(&request.tool);
        let dropped = drop_key(&known.spec, &mut request.arguments);
        let mut checked = match (arguments::check_object(&request.arguments), &known.schema) {
            (Some(malformed), _) => ArgumentCheck { violations: vec![malformed], ..ArgumentCheck::default() },
            (None, Some(schema)) => schema.check(&request.arguments),
            (None, None) => ArgumentCheck::default(),
        };
        let repaired = checked.repaired.is_some() || dropped.is_some();
        checked.coerced.extend(dropped);
        if let Some(arguments) = checked.repaired {
            request.arguments = arguments;
        }
        let all: Arc<str> = request.arguments.canonical().into();
        // Coerced arguments are fingerprinted by the coerced values.
        let read = checked.accepted.as_ref().unwrap_or(&request.arguments);
        let read = known.schema.as_ref().map_or(Cow::Borrowed(read), |schema| schema.drop_defaults(read));
        let recognised = match (&known.canonical, &checked.accepted, &read) {
            (Some(canonical), _, _) => canonical.text(&read).into(),
            (None, None, Cow::Borrowed(_)) => Cow::Borrowed(&*all),
            _ => read.canonical().into(),
        };
        let shape = Arc::new(if known.canonical.is_some() {
            ArgumentShape::of(&recognised)
        } else {
            ArgumentShape::of_json(&read)
        });
        let mut secrets = Secrets::default();
        let stored = self.stored_arguments(&known.spec, &request.arguments, &all, &mut secrets);
        let said = |text: String| self.stored_text(known.spec.stored.0, &text, &mut secrets).into_owned();
        request.justification = request.justification.map(said);
        let (mut effect, fresh) = self.effect_of(known, &request);
        effect.resource = effect.resource.map(|resource| secrets.left_out_of_name(resource, &self.hashing));
        Proposal {
            fingerprint: Fingerprint::of(&request.tool, &recognised).with_key(&self.hashing),
            args_digest: ArgsDigest::of(&request.tool, &all).with_key(&self.hashing),
            shape,
            effect,
            fresh,
            witness: request.witness.as_deref().map(|value| WitnessDigest::of(value, &self.hashing)),
            stored,
            secrets,
            cost_micros: request.cost_estimate_micros.unwrap_or(known.spec.cost_micros),
            spec: Arc::clone(&known.spec),
            declared: self.is_declared(&request.tool),
            caller_waits: !is_coding_host(&request)
                && request.host.as_ref().is_none_or(|host| host.as_str() != MCP_HOST),
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

/// Removes a model's value for the idempotency key's argument: the model neither sees nor creates the key.
fn drop_key(spec: &ToolSpec, arguments: &mut Json) -> Option<CoercedField> {
    let Some(InjectAs::Argument(name)) = &spec.inject_as else { return None };
    let Json::Object(members) = arguments else { return None };
    let at = members.iter().position(|(field, _)| **field == **name)?;
    let (field, value) = members.remove(at);
    Some(CoercedField { field, from: value.canonical(), to: "left to the gate".to_owned() })
}
