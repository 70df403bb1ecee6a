//! Sets of well-known tools. Nothing is ever guessed from a name: an owner asks for a set because the tools are theirs.

use crate::{
    policy::file::{CaseKeys, EffectKey, PresetKey, Tool},
    rules::side_effects::SecondChange,
};

/// The tools of a preset, by name.
pub(super) fn tools(preset: PresetKey) -> Vec<(String, Tool)> {
    match preset {
        PresetKey::CommandPolls => vec![
            ("command_status".to_owned(), Tool { effect: Some(EffectKey::Poll), ..Tool::default() }),
            ("process.poll".to_owned(), Tool { effect: Some(EffectKey::Poll), ..Tool::default() }),
            ("process.log".to_owned(), Tool { effect: Some(EffectKey::Poll), ..Tool::default() }),
            ("process".to_owned(), Tool { effects: vec![polls("action", "^(poll|log)$")], ..Tool::default() }),
        ],
        PresetKey::CodingAgents => coding_agents(),
    }
}

fn polls(field: &str, matches: &str) -> CaseKeys {
    CaseKeys {
        when: None,
        field: Some(field.to_owned()),
        matches: Some(matches.to_owned()),
        effect: EffectKey::Poll,
        side_effect_resource: None,
    }
}

/// What coding agents have built in: the tool, what it touches.
const READS: [(&str, &str); 16] = [
    ("Read", "file/{file_path}"),
    ("NotebookRead", "file/{notebook_path}"),
    ("Glob", "file/{path}"),
    ("Grep", "file/{path}"),
    ("LS", "file/{path}"),
    ("WebFetch", "web/{url}"),
    ("WebSearch", "web"),
    ("view_image", "file/{path}"),
    ("read_file", "file/{file_path}"),
    ("read_many_files", "file"),
    ("list_directory", "file/{dir_path}"),
    ("glob", "file/{dir_path}"),
    ("search_file_content", "file/{dir_path}"),
    ("grep_search", "file/{dir_path}"),
    ("web_fetch", "web"),
    ("google_web_search", "web"),
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
/// They change nothing but the agent itself, or begin one, which asks for itself.
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
/// Lines of a shell: the tool, its line and its folder.
const SHELLS: [(&str, &str, &str); 2] = [("Bash", "command", "cwd"), ("run_shell_command", "command", "dir_path")];

fn coding_agents() -> Vec<(String, Tool)> {
    let tool = |name: &str, effect, resource: &str| {
        let (effect, resource) = (Some(effect), Some(resource.to_owned()));
        // A file is changed many times, and that is the work.
        let second_change = Some(SecondChange::Allow);
        (name.to_owned(), Tool { effect, side_effect_resource: resource, second_change, ..Tool::default() })
    };
    let reads = READS.iter().map(|(name, resource)| tool(name, EffectKey::Read, resource));
    // A second time it changes nothing, or says that what it looks for is gone.
    let writes = WRITES.iter().map(|(name, resource)| {
        let (name, tool) = tool(name, EffectKey::Write, resource);
        (name, Tool { idempotent: true, ..tool })
    });
    let never_blocked =
        NEVER_BLOCKED.iter().map(|name| ((*name).to_owned(), Tool { terminal: true, ..Tool::default() }));
    let shells = SHELLS.iter().map(|(name, line, folder)| {
        let (command_line, working_directory) = (Some((*line).to_owned()), Some((*folder).to_owned()));
        let second_change = Some(SecondChange::Allow);
        ((*name).to_owned(), Tool { command_line, working_directory, second_change, ..Tool::default() })
    });
    let polls = ["BashOutput", "TaskOutput"].into_iter();
    let polls = polls.map(|name| (name.to_owned(), Tool { effect: Some(EffectKey::Poll), ..Tool::default() }));
    reads.chain(writes).chain(never_blocked).chain(shells).chain(polls).collect()
}
