//! Examples of commands, shown at the end of help and man pages. A test (`tests` below) parses each.

use clap::Command;

/// Examples by command, each with its purpose.
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    ("", &[("callgate serve", "serve on 127.0.0.1:7600"), ("callgate demo", "show decisions, without an agent")]),
    (
        "serve",
        &[
            ("callgate serve --policy callgate.yaml", "on 127.0.0.1:7600, with a private PostgreSQL"),
            ("callgate serve --memory", "without PostgreSQL, for a trial: lost when it ends"),
            (
                "callgate serve --listen unix:/run/callgate/socket --database-url postgres://db/callgate",
                "one of several replicas",
            ),
        ],
    ),
    ("health", &[("callgate health", "exit code 0 while the server is ready")]),
    ("doctor", &[("callgate doctor --policy callgate.yaml", "with the server's flags")]),
    (
        "backup",
        &[
            ("callgate backup /backup/callgate-monday", ""),
            ("callgate backup --in /backup --keep 14 --verify", "every night: verify it, and keep the newest 14"),
        ],
    ),
    ("backup verify", &[("callgate backup verify /backup/callgate-monday", "")]),
    ("restore", &[("callgate restore /backup/callgate-monday --data-dir /var/lib/callgate", "")]),
    ("database distribute", &[("callgate database distribute --database-url postgres://coordinator/callgate", "")]),
    ("database retain", &[("callgate database retain --older-than 90 --database-url postgres://db/callgate", "")]),
    ("database prices", &[("callgate database prices prices.yaml --database-url postgres://db/callgate", "")]),
    (
        "database clock",
        &[
            ("callgate database clock --data-dir /var/lib/callgate", ""),
            (
                "callgate database clock --confirm --database-url postgres://db/callgate",
                "after a time without a server",
            ),
        ],
    ),
    ("psql", &[("callgate psql -- -c 'select count(*) from callgate.tool_call'", "")]),
    ("demo", &[("callgate demo", "with a server of its own"), ("callgate demo --server http://127.0.0.1:7600", "")]),
    ("policy check", &[("callgate policy check callgate.yaml", "")]),
    ("policy diff", &[("callgate policy diff active callgate.yaml", "what applying it would change")]),
    (
        "policy backtest",
        &[
            ("callgate policy backtest callgate.yaml --since 7d", "on the stored calls of 7 days"),
            ("callgate policy backtest callgate.yaml calls.jsonl.gz", "on recorded calls"),
        ],
    ),
    (
        "policy test",
        &[
            ("callgate policy test callgate.yaml --inject-duplicates --since 24h", ""),
            ("callgate policy test callgate.yaml --coverage --fail-under 80 --junit policy.xml calls.jsonl", "in CI"),
        ],
    ),
    ("policy suggest", &[("callgate policy suggest --since 7d > callgate.yaml", "")]),
    ("policy schema", &[("callgate policy schema > policy.schema.json", "for an editor")]),
    ("policy init", &[("callgate policy init callgate.yaml", "")]),
    ("policy apply", &[("callgate policy apply callgate.yaml --note 'ceilings as agreed' --expect 7", "")]),
    ("policy list", &[("callgate policy list --json | jq -r .hash", "")]),
    ("policy show", &[("callgate policy show 9f2c", "by the beginning of its hash")]),
    ("policy activate", &[("callgate policy activate 9f2c --note 'previous version'", "")]),
    ("policy rollback", &[("callgate policy rollback --note 'refuses too much'", "")]),
    (
        "policy rollout start",
        &[
            ("callgate policy rollout start 9f2c41d0", "in shadow"),
            ("callgate policy rollout start 9f2c41d0 --share 10% --agent billing", ""),
        ],
    ),
    ("policy rollout status", &[("callgate policy rollout status --json | jq .comparison", "")]),
    ("policy rollout promote", &[("callgate policy rollout promote 9f2c41d0 --note 'as compared'", "")]),
    ("policy rollout abort", &[("callgate policy rollout abort --note 'refuses too much'", "")]),
    ("explain", &[("callgate explain call-17 --session s-42", "")]),
    ("agents install", &[("callgate agents install claude-code --dry-run", "show the change without writing")]),
    ("agents list", &[("callgate agents list", "")]),
    ("agents uninstall", &[("callgate agents uninstall codex", "")]),
    ("hook", &[("callgate hook claude-code < event.json", "as the host calls it")]),
    (
        "approvals list",
        &[
            ("callgate approvals list", ""),
            ("callgate approvals list --tool refund_order --min-amount 100 --sort amount", ""),
            ("callgate approvals list --group-by tool", "how many requests of each tool"),
            ("callgate approvals list --json | jq -r .approvalId", "their ids alone"),
        ],
    ),
    ("approvals show", &[("callgate approvals show 0195f2c4", "")]),
    (
        "approvals approve",
        &[
            ("callgate approvals approve 0195f2c4 --scope resource --minutes 30 --reason 'asked Ann'", ""),
            ("callgate approvals approve 0195f2c4 --arguments @less.json", "with other arguments, once"),
        ],
    ),
    ("approvals deny", &[("callgate approvals deny 0195f2c4 --reason 'not this customer'", "")]),
    (
        "approvals claim",
        &[("callgate approvals claim 0195f2c4", ""), ("callgate approvals claim 0195f2c4 --release", "")],
    ),
    ("approvals comment", &[("callgate approvals comment 0195f2c4 'asked the customer'", "")]),
    (
        "approvals approve-many",
        &[(
            "callgate approvals approve-many @seen.jsonl",
            "those lines of `approvals list --json`, with these arguments or not at all",
        )],
    ),
    ("approvals deny-many", &[("callgate approvals deny-many --agent crawler --reason 'the crawler is halted'", "")]),
    ("approvals withdraw", &[("callgate approvals withdraw 0195f2c4 --by s-42", "")]),
    ("approvals watch", &[("callgate approvals watch --json | jq -r .tool", "")]),
    (
        "notifications test",
        &[("callgate notifications test --notifications notifications.yaml finance-chat", "one destination")],
    ),
    (
        "sessions list",
        &[
            ("callgate sessions list", ""),
            ("callgate sessions list --tool create_order --decision deny", "with a matching call"),
            ("callgate sessions list --all --json > sessions.jsonl", ""),
        ],
    ),
    ("sessions names", &[("callgate sessions names refund", "agents, users and tools")]),
    ("sessions halts", &[("callgate sessions halts", "")]),
    ("sessions show", &[("callgate sessions show s-42", "")]),
    (
        "sessions halt",
        &[
            ("callgate sessions halt session s-42 --reason 'it deletes too much'", ""),
            ("callgate sessions halt all --reason incident", "the kill switch"),
        ],
    ),
    ("sessions resume", &[("callgate sessions resume session s-42", "")]),
    ("sessions phase", &[("callgate sessions phase s-42 commit create_order send_mail", "")]),
    (
        "sessions raise",
        &[
            ("callgate sessions raise s-42 max_steps 200 --reason 'nearly done'", ""),
            ("callgate sessions raise s-42 max_total_cost_usd 5 --scope run", "five dollars more, until the run ends"),
        ],
    ),
    (
        "sessions settle",
        &[("callgate sessions settle s-42 call-17 happened --result '{\"id\": 7}' --reason 'saw it'", "")],
    ),
    ("sessions compacted", &[("callgate sessions compacted s-42", "")]),
    ("grants create", &[("callgate grants create s-42 'create_*|update_*' 5 --minutes 30", "")]),
    ("grants list", &[("callgate grants list s-42", "")]),
    ("grants revoke", &[("callgate grants revoke s-42 0195f2c4", "")]),
    ("audit list", &[("callgate audit list --all --json > audit.jsonl", "")]),
    ("audit verify", &[("callgate audit verify", "keep the printed anchor for the next verification")]),
    ("tenants create", &[("callgate tenants create acme --calls-per-second 50", "")]),
    ("tenants list", &[("callgate tenants list", "")]),
    ("tenants quotas", &[("callgate tenants quotas acme --sessions 10000", "removes all other quotas")]),
    ("tenants retention", &[("callgate tenants retention acme --texts-days 30 --calls-days 365", "")]),
    ("tenants suspend", &[("callgate tenants suspend acme --reason 'unpaid'", "")]),
    ("tenants resume", &[("callgate tenants resume acme", "")]),
    ("tenants delete", &[("callgate tenants delete acme --yes", "")]),
    (
        "tokens create",
        &[
            ("callgate tokens create desk --role agent --days 90 > desk.token", ""),
            (
                "callgate tokens create ann --role admin --data-dir /var/lib/callgate",
                "the first token, on the database",
            ),
        ],
    ),
    ("tokens list", &[("callgate tokens list --all", "")]),
    ("tokens revoke", &[("callgate tokens revoke 0195f2c4", "")]),
    ("tokens rotate", &[("callgate tokens rotate 0195f2c4 --overlap-hours 48 > desk.token", "")]),
    ("forget", &[("callgate forget user ann", "show the amount"), ("callgate forget user ann --yes", "")]),
    ("export", &[("callgate export user ann --out ann.jsonl", "")]),
    ("export calls", &[("callgate export calls --since 7d --data-dir /var/lib/callgate > calls.csv", "")]),
    ("keys list", &[("callgate keys list", "")]),
    ("keys reencrypt", &[("callgate keys reencrypt", "")]),
    ("profiles", &[("callgate profiles get_order", ""), ("callgate profiles --json | jq -r '[.tool, .trials]'", "")]),
    ("profiles rebuild", &[("callgate profiles rebuild", "")]),
    ("report", &[("callgate report --days 30", "")]),
    (
        "replay",
        &[
            ("callgate replay --policy callgate.yaml --enforce calls.jsonl.gz > judged.jsonl", ""),
            ("callgate replay --policy callgate.yaml --json calls.jsonl.gz | jq .refused", ""),
        ],
    ),
    ("contexts list", &[("callgate contexts list", "")]),
    ("contexts show", &[("callgate contexts show production", "")]),
    ("contexts use", &[("callgate contexts use production", "")]),
    ("tools import", &[("callgate tools import tools.json -o callgate.yaml", "")]),
    ("tools lint", &[("callgate tools lint tools.json --deny warnings", "")]),
    ("tools changes", &[("callgate tools changes --json | jq -r .tool", "")]),
    ("tools accept", &[("callgate tools accept files mcp__files__read_file 5b1f09ac --reason 'release 2.1'", "")]),
    ("tools reject", &[("callgate tools reject files mcp__files__read_file 5b1f09ac --reason 'not announced'", "")]),
    ("tools prompt", &[("callgate tools prompt --policy callgate.yaml", "")]),
    ("mcp-proxy", &[("callgate mcp-proxy --server-name files -- npx server-filesystem /srv", "")]),
    ("mcp wrap", &[("callgate mcp wrap .mcp.json --dry-run", "")]),
    ("mcp tools", &[("callgate mcp tools files", "")]),
    ("mcp approve", &[("callgate mcp approve files", "")]),
    ("mcp effects", &[("callgate mcp effects files > callgate.yaml", "")]),
    (
        "evaluate",
        &[
            ("callgate evaluate --session s-42 --tool get_order --arguments '{\"order_id\": 42}'", ""),
            ("callgate evaluate --session s-42 --tool pay --arguments @pay.json --wait 600 --json > verdict.json", ""),
        ],
    ),
    (
        "run",
        &[
            ("callgate run --session nightly -- ./reindex orders", "the exit code is the command's"),
            ("callgate run --session s-42 --tool deploy --max-wait 3600 -- make release", "waits for an approval"),
        ],
    ),
    (
        "top",
        &[
            ("callgate top", ""),
            ("callgate top --watch", ""),
            ("callgate top --json | jq .callsPerSecond", "for programs"),
        ],
    ),
    (
        "record",
        &[
            ("callgate record call-17 success --session s-42 --result @answer.json", ""),
            ("callgate record call-17 error --session s-42 --error 'slow down' --http-status 429", ""),
        ],
    ),
    ("completions", &[("callgate completions bash > /etc/bash_completion.d/callgate", "")]),
    ("man", &[("callgate man /usr/local/share/man/man1", "")]),
];

/// The command line with its examples.
pub(super) fn add_examples(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (path, examples)| {
        let words: Vec<&str> = path.split_whitespace().collect();
        match words.first().is_some_and(|first| command.find_subcommand(first).is_none()) {
            true => command,
            false => with(command, &words, examples),
        }
    })
}

fn with(command: Command, words: &[&str], examples: &[(&str, &str)]) -> Command {
    match words {
        [] => command.after_help(text(examples)),
        [first, rest @ ..] => {
            let (first, rest) = ((*first).to_owned(), rest.to_vec());
            command.mut_subcommand(first, |command| with(command, &rest, examples))
        }
    }
}

fn text(examples: &[(&str, &str)]) -> String {
    let lines = examples.iter().map(|(line, does)| match *does {
        "" => format!("  {line}"),
        does => format!("  {line}\n      {does}"),
    });
    format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::cli::{AgentSideCli, Cli};

    /// The words of a line, up to a redirection.
    fn split_words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
        for c in line.chars().chain([' ']) {
            match c {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
                c => word.push(c),
            }
        }
        let end = words.iter().position(|word| ["|", ">", "<"].contains(&word.as_str())).unwrap_or(words.len());
        words.truncate(end);
        words
    }

    fn leaves(path: &str, command: &Command, all: &mut BTreeSet<String>) {
        if !command.has_subcommands() || !command.is_subcommand_required_set() {
            all.insert(path.to_owned());
        }
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            leaves(format!("{path} {}", sub.get_name()).trim_start(), sub, all);
        }
    }

    #[test]
    fn every_command_has_an_example_that_is_read_as_it_stands() {
        let mut all = BTreeSet::new();
        leaves("", &Cli::command(), &mut all);
        all.remove("");
        let told: BTreeSet<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
        let silent: Vec<&String> = all.iter().filter(|path| !told.contains(path.as_str())).collect();
        assert!(silent.is_empty(), "commands without an example: {silent:?}");
        for (path, examples) in EXAMPLES {
            for (line, _) in *examples {
                assert!(line.starts_with(&format!("callgate {path}")), "{line} is no example of {path}");
                let read = Cli::try_parse_from(split_words(line));
                assert!(read.is_ok(), "{line}: {}", read.expect_err("checked"));
            }
        }
    }

    #[test]
    fn hook_program_has_the_help_of_its_command() {
        for name in ["hook", "mcp-proxy"] {
            let help = |command: Command| {
                let read = add_examples(command).try_get_matches_from(["callgate", name, "--help"]);
                read.expect_err("help").to_string()
            };
            assert_eq!(help(AgentSideCli::command()), help(Cli::command()), "{name}");
        }
    }

    #[test]
    fn help_fits_into_eighty_columns_but_for_examples() {
        let help = crate::cli::command().term_width(80).render_long_help().to_string();
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:?}");
    }

    #[test]
    fn the_command_line_is_whole() {
        add_examples(Cli::command()).debug_assert();
    }

    /// Commands without a list or item, or with an output format of their own.
    const WITHOUT: &[&str] = &[
        "agents install",
        "agents uninstall",
        "backup verify",
        "completions",
        "database clock",
        "database distribute",
        "database prices",
        "database retain",
        "demo",
        "export calls",
        "health",
        "hook",
        "man",
        "mcp effects",
        "mcp wrap",
        "mcp-proxy",
        "policy init",
        "policy schema",
        "psql",
        "restore",
        "run",
        "serve",
        "tools import",
        "tools prompt",
    ];

    fn without(path: &str, command: &clap::Command, is_given: bool, all: &mut Vec<String>) {
        let subs: Vec<&clap::Command> =
            command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help").collect();
        let json = command.get_arguments().find(|arg| arg.get_long() == Some("json"));
        let is_given = is_given || json.is_some_and(clap::Arg::is_global_set);
        if subs.is_empty() && json.is_none() && !is_given {
            all.push(path.to_owned());
        }
        subs.into_iter().for_each(|sub| without(format!("{path} {}", sub.get_name()).trim_start(), sub, is_given, all));
    }

    #[test]
    fn every_command_that_lists_something_has_json() {
        let mut found = Vec::new();
        without("", &crate::cli::command(), false, &mut found);
        found.sort();
        assert_eq!(found, WITHOUT, "a command that prints a thing or a list takes Form; others stand in WITHOUT");
    }
}
