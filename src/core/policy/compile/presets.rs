//! Presets: sets of well-known tools. An owner enables one explicitly; nothing is guessed from names.

use serde_json::Value;

use crate::{
    domain::budget::{BudgetScope, Budgets, Dimension},
    policy::file::{CaseKeys, EffectKey, FreshKey, PresetKey, ToolSection},
    rules::{RuleSet, same_call, side_effects::SecondChange, tamper_protection},
};

/// Tools of a preset, by name.
pub(super) fn tools(preset: PresetKey) -> Vec<(String, ToolSection)> {
    match preset {
        PresetKey::CommandPolls => vec![
            ("command_status".to_owned(), ToolSection { effect: Some(EffectKey::Poll), ..ToolSection::default() }),
            ("process.poll".to_owned(), ToolSection { effect: Some(EffectKey::Poll), ..ToolSection::default() }),
            ("process.log".to_owned(), ToolSection { effect: Some(EffectKey::Poll), ..ToolSection::default() }),
            (
                "process".to_owned(),
                ToolSection { effects: vec![polls("action", "^(poll|log)$")], ..ToolSection::default() },
            ),
        ],
        PresetKey::CodingAgents => coding_agents(),
        PresetKey::Strict => Vec::new(),
    }
}

/// Settings of a file's presets beside tools, applied before the file's own keys.
pub(super) fn set(rules: &mut RuleSet, presets: &Value) {
    let has = |name: &str| presets.as_array().into_iter().flatten().any(|preset| preset == name);
    if has("coding_agents") {
        rules.get_mut::<tamper_protection::Params>().is_on = true;
        let budgets = rules.get_mut::<Budgets>();
        for (scope, dimension) in [
            (BudgetScope::Run, Dimension::Steps),
            (BudgetScope::CallTree, Dimension::Steps),
            (BudgetScope::CallTree, Dimension::ToolCalls),
            (BudgetScope::CallTree, Dimension::CallsPerTool),
        ] {
            budgets.of_mut(scope).set(dimension, None);
        }
    }
    if has("strict") {
        rules.get_mut::<same_call::Params>().is_strict = true;
    }
}

fn polls(field: &str, matches: &str) -> CaseKeys {
    CaseKeys {
        when: None,
        field: Some(field.to_owned()),
        matches: Some(matches.to_owned()),
        effect: EffectKey::Poll,
        side_effect_resource: None,
        fresh_ms: None,
    }
}

/// Reads of one file: the tool, the argument, the hosts that have it in their present versions. Others change files,
/// too; only a hook that sees the file has a witness.
const READS: [(&str, &str, &[&str]); 4] = [
    ("Read", "file/{file_path}", &["claude-code", "cursor"]),
    ("NotebookRead", "file/{notebook_path}", &[]),
    ("view_image", "file/{path}", &["codex"]),
    ("read_file", "file/{file_path}", &["gemini"]),
];
/// Reads of things that others change: folders, searches, the web, background jobs.
const POLLS: [&str; 14] = [
    "Glob",
    "Grep",
    "LS",
    "read_many_files",
    "list_directory",
    "glob",
    "search_file_content",
    "grep_search",
    "WebFetch",
    "WebSearch",
    "web_fetch",
    "google_web_search",
    "BashOutput",
    "TaskOutput",
];
const WRITES: [(&str, &str); 7] = [
    ("Edit", "file/{file_path}"),
    ("MultiEdit", "file/{file_path}"),
    ("Write", "file/{file_path}"),
    ("NotebookEdit", "file/{notebook_path}"),
    ("apply_patch", "file"),
    ("write_file", "file/{file_path}"),
    ("replace", "file/{file_path}"),
];
/// Tools that change only the agent itself, or start one with requests of its own.
const NEVER_BLOCKED: [&str; 15] = [
    "TodoWrite",
    "TodoRead",
    "Task",
    "Agent",
    "TaskCreate",
    "TaskUpdate",
    "TaskList",
    "TaskGet",
    "EnterPlanMode",
    "ExitPlanMode",
    "AskUserQuestion",
    "ToolSearch",
    "update_plan",
    "write_todos",
    "ask_user",
];
/// Shell tools: the tool, its line and its folder.
const SHELLS: [(&str, &str, &str); 2] = [("Bash", "command", "cwd"), ("run_shell_command", "command", "dir_path")];

/// True for a host's built-in tool that the preset `coding_agents` declares a read or a poll. The effect of a shell
/// line depends on variables, functions and folder: a shell is none.
#[must_use]
pub fn is_coding_agent_read(tool: &str) -> bool {
    READS.iter().any(|(name, ..)| *name == tool) || POLLS.contains(&tool)
}

/// False for a read that only other hosts have. A caller without a known host may have every tool.
pub(in crate::policy) fn has_tool(host: Option<&str>, tool: &str) -> bool {
    let is_of =
        |host: &str| READS.iter().find(|(name, ..)| *name == tool).is_none_or(|(.., hosts)| hosts.contains(&host));
    host.is_none_or(is_of)
}

fn coding_agents() -> Vec<(String, ToolSection)> {
    let tool = |name: &str, effect, resource: &str| {
        let (effect, resource) = (Some(effect), Some(resource.to_owned()));
        // A file is changed many times, and that is the work.
        let second_change = Some(SecondChange::Allow);
        (
            name.to_owned(),
            ToolSection { effect, side_effect_resource: resource, second_change, ..ToolSection::default() },
        )
    };
    let reads = READS.iter().map(|(name, resource, _)| {
        let (name, tool) = tool(name, EffectKey::Read, resource);
        (name, ToolSection { fresh_ms: Some(FreshKey::Ms(0)), ..tool })
    });
    // A repetition changes nothing, or fails because its target is gone.
    let writes = WRITES.iter().map(|(name, resource)| {
        let (name, tool) = tool(name, EffectKey::Write, resource);
        (name, ToolSection { idempotent: true, ..tool })
    });
    let never_blocked =
        NEVER_BLOCKED.iter().map(|name| ((*name).to_owned(), ToolSection { terminal: true, ..ToolSection::default() }));
    let shells = SHELLS.iter().map(|(name, line, folder)| {
        let (command_line, working_directory) = (Some((*line).to_owned()), Some((*folder).to_owned()));
        let second_change = Some(SecondChange::Allow);
        ((*name).to_owned(), ToolSection { command_line, working_directory, second_change, ..ToolSection::default() })
    });
    let polls = POLLS.iter();
    let polls =
        polls.map(|name| ((*name).to_owned(), ToolSection { effect: Some(EffectKey::Poll), ..ToolSection::default() }));
    reads.chain(writes).chain(never_blocked).chain(shells).chain(polls).collect()
}
