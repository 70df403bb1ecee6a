//! Start of each host program with its model and tool server, and its requests to the model.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

/// Where `make hosts` puts the programs.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/hosts/node_modules/.bin");

/// A program in which an agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agent {
    ClaudeCode,
    Codex,
    Gemini,
}

impl Agent {
    /// As callgate calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }

    /// The program, where it is installed.
    pub(crate) fn program(self) -> Option<PathBuf> {
        let name = match self {
            Self::ClaudeCode => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        };
        Some(Path::new(PROGRAMS).join(name)).filter(|path| path.exists())
    }

    /// A tool of the tool server, as the model calls it.
    pub(crate) fn tool(self, name: &str) -> String {
        match self {
            Self::ClaudeCode | Self::Codex => format!("mcp__desk__{name}"),
            Self::Gemini => format!("mcp_desk_{name}"),
        }
    }

    /// A call of the program's shell.
    pub(crate) fn shell(self, line: &str) -> Value {
        let (tool, field) = match self {
            Self::ClaudeCode => ("Bash", "command"),
            Self::Codex => ("exec_command", "cmd"),
            Self::Gemini => ("run_shell_command", "command"),
        };
        json!({"call": tool, "with": {field: line}})
    }

    /// Writes the program's settings for the tool server, and for the model where no variable sets it.
    pub(crate) fn settle(self, home: &Path, server: &[&str]) {
        let (command, arguments) = (server[0], &server[1..]);
        let servers = json!({"mcpServers": {"desk": {"command": command, "args": arguments}}});
        match self {
            Self::ClaudeCode => write(&home.join("servers.json"), &servers.to_string()),
            Self::Gemini => {
                let mut settings = servers;
                settings["security"] = json!({"auth": {"selectedType": "gemini-api-key"}});
                write(&home.join(".gemini/settings.json"), &settings.to_string());
            }
            Self::Codex => {
                let server = format!("[mcp_servers.desk]\ncommand = {command:?}\nargs = {arguments:?}\n");
                let model = "[model_providers.script]\nname = \"script\"\nwire_api = \"responses\"\n";
                let full = "model_auto_compact_token_limit = 50000\n";
                write(&home.join(".codex/config.toml"), &format!("{full}{model}{server}"));
            }
        }
    }

    /// The program with a prompt, in a new conversation or the last one; its model listens on this port.
    pub(crate) fn command(self, home: &Path, port: u16, prompt: &str, goes_on: bool) -> Command {
        let mut command = Command::new(self.program().expect("installed"));
        let model = format!("http://127.0.0.1:{port}");
        command.env_clear().env("HOME", home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.current_dir(home.join("work"));
        match self {
            Self::ClaudeCode => {
                command.env("ANTHROPIC_BASE_URL", model).env("ANTHROPIC_API_KEY", "none");
                command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
                command.args(goes_on.then_some("--continue"));
                // Where a prompt would be, a tool answers for the user.
                command.args(["--permission-prompt-tool", "mcp__desk__consent", "--strict-mcp-config", "--mcp-config"]);
                command.arg(home.join("servers.json")).args(["-p", prompt]);
            }
            Self::Codex => {
                command.env("OPENAI_API_KEY", "none").arg("exec");
                command.args(goes_on.then_some(["resume", "--last"]).into_iter().flatten());
                command.args(["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]);
                command.args(["--dangerously-bypass-hook-trust", "--model", "script"]);
                let url = format!("model_providers.script.base_url=\"{model}/v1\"");
                command.args(["--config", "model_provider=\"script\"", "--config", &url, prompt]);
            }
            Self::Gemini => {
                command.env("GEMINI_API_KEY", "none").env("GOOGLE_GEMINI_BASE_URL", model);
                command.args(goes_on.then_some(["--resume", "latest"]).into_iter().flatten());
                // Another model is chosen by asking one.
                command.args(["--yolo", "--skip-trust", "--model", "gemini-2.5-flash", "--prompt", prompt]);
            }
        }
        command
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("writable");
}

/// Messages of a request.
pub(crate) fn conversation(request: &Value) -> &[Value] {
    let items = ["messages", "input", "contents"].into_iter().find_map(|name| request[name].as_array());
    items.expect("a conversation")
}

/// Messages since the model's last one: results of its calls, and added texts.
pub(crate) fn news(request: &Value) -> String {
    let items = conversation(request);
    let is_its_own = |item: &Value| {
        ["assistant", "model"].iter().any(|role| item["role"] == *role) || item["type"] == "function_call"
    };
    let news = items.iter().rposition(is_its_own).map_or(0, |at| at + 1);
    Value::from(&items[news..]).to_string()
}
