//! `callgate policy check`, `schema` and `init`: problems of files, their schema, and an initial file.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
};

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use serde_json::{Value, json};

use callgate_client::json::OutputFormat;
use callgate_core::{
    domain::effect::EffectKind,
    policy::{
        self, Policy, PolicyError,
        unlisted::{UnlistedToolDecision, without_tier},
    },
    rules::{Mode, tier},
};
use callgate_server::policy_file::read_policy;

const STARTER: &str = include_str!("starter.yaml");

/// Maximum number of tools in a line.
const NAMED_MAX: usize = 5;

pub(super) fn check(files: &[PathBuf], form: OutputFormat) -> anyhow::Result<u8> {
    let mut code = 0;
    for file in files {
        let text = read_policy(file)?;
        if form.json {
            let (version, unlisted, warnings, errors) = match policy::compile(&text) {
                Ok(policy) => {
                    let unlisted = Some(UnlistedToolDecision::by(&policy));
                    (Some(policy.version.to_string()), unlisted, problems(&policy.warnings), Vec::new())
                }
                Err(errors) => (None, None, Vec::new(), problems(&errors)),
            };
            code |= u8::from(!errors.is_empty());
            outln!(
                "{}",
                json!({"file": file, "version": version, "unlistedTools": unlisted, "errors": errors,
                    "warnings": warnings})
            );
            continue;
        }
        match policy::compile(&text) {
            Ok(policy) => {
                policy.warnings.iter().for_each(|warning| print_error(file, warning, "warning", AnsiColor::Yellow));
                let good = Style::new().fg_color(Some(AnsiColor::Green.into()));
                outln!("{}: {good}good{good:#}, {}", file.display(), summary(&policy));
                outln!("  {}", UnlistedToolDecision::by(&policy).describe());
                let waiting = without_tier(&policy);
                if !waiting.is_empty() {
                    let more = match waiting.len().saturating_sub(NAMED_MAX) {
                        0 => String::new(),
                        more => format!(" and {more} more"),
                    };
                    let named: Vec<&str> = waiting.into_iter().take(NAMED_MAX).collect();
                    outln!("  held for approval (ASK), without a tier or risk_level: {}{more}", named.join(", "));
                }
            }
            Err(errors) => {
                errors.iter().for_each(|error| print_error(file, error, "error", AnsiColor::Red));
                outln!("{}: {}", file.display(), count_noun(errors.len(), "problem"));
                code = 1;
            }
        }
    }
    Ok(code)
}

fn problems(all: &[PolicyError]) -> Vec<Value> {
    all.iter().map(problem).collect()
}

fn problem(error: &PolicyError) -> Value {
    let PolicyError { line, column, path, problem } = error;
    json!({"line": line, "column": column, "path": path, "problem": problem})
}

/// `FILE:LINE: path: problem`, a format that editors parse.
fn print_error(file: &Path, error: &PolicyError, kind: &str, colour: AnsiColor) {
    let style = Style::new().fg_color(Some(colour.into()));
    let line = error.line.map(|line| format!("{line}:")).unwrap_or_default();
    let path = if error.path.is_empty() { String::new() } else { format!("{}: ", error.path) };
    outln!("{}:{line} {style}{kind}{style:#}: {path}{}", file.display(), error.problem);
}

/// Summary of a policy, in one line.
fn summary(policy: &Policy) -> String {
    let mut parts = vec![format!("version {}", policy.version)];
    for kind in [EffectKind::Read, EffectKind::Write, EffectKind::Poll, EffectKind::Check] {
        let count = policy.tools().filter(|(_, spec)| spec.kind() == kind).count();
        if count > 0 {
            parts.push(count_noun(count, &format!("{} tool", kind.as_str())));
        }
    }
    let unknown = policy.tools().filter(|(_, spec)| spec.kind() == EffectKind::Unknown && !spec.terminal);
    let unknown = unknown.count();
    if unknown > 0 {
        parts.push(format!("{} without an effect", count_noun(unknown, "tool")));
    }
    let tiers = policy.rules.get::<tier::Params>().tiers.len();
    if tiers > 0 {
        parts.push(count_noun(tiers, "tier"));
    }
    let soft = policy.rules.iter().map(|slot| (slot.rule.id, slot.mode)).filter(|(_, mode)| *mode != Mode::Enforce);
    parts.extend(soft.map(|(id, mode)| format!("{id} {}", if mode == Mode::Off { "off" } else { "shadowed" })));
    if policy.mode != Mode::Enforce {
        parts.push("all shadowed".to_owned());
    }
    parts.join(", ")
}

fn count_noun(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

pub(super) fn schema() -> anyhow::Result<()> {
    let schema = serde_json::to_string_pretty(&policy::schema()).context("cannot write the schema")?;
    outln!("{schema}");
    Ok(())
}

pub(super) fn init(file: &Path) -> anyhow::Result<()> {
    let name = file.display();
    let made = OpenOptions::new().write(true).create_new(true).open(file);
    let mut made = made.with_context(|| format!("cannot create {name} (an existing file is never overwritten)"))?;
    made.write_all(STARTER.as_bytes()).with_context(|| format!("cannot write {name}"))?;
    outln!("{name} is written. Next: callgate policy check {name}; callgate serve --policy {name}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_that_of_the_program() {
        let published: serde_json::Value =
            serde_json::from_str(include_str!("../../../deploy/policy.schema.json")).expect("JSON");
        assert_eq!(published, policy::schema(), "callgate policy schema > deploy/policy.schema.json");
    }

    #[test]
    fn the_starter_is_a_policy() {
        let policy = policy::compile(STARTER).expect("a good policy");
        assert!(policy.warnings.is_empty(), "{:?}", policy.warnings);
    }
}
