//! `callgate agents list`: installed hooks, without running any.

use std::{fs, path::Path};

use serde_json::json;

use super::{
    OutputFormat, Remote, SettingsFolders,
    host::SettingsScope,
    places,
    settings::{Handler, HostSettings},
    version,
};
use crate::hosts::Host;

pub(super) async fn list(form: OutputFormat, remote: &Remote) -> anyhow::Result<()> {
    let places = places()?;
    if form.json {
        for host in Host::ALL {
            let version = version::told_by(host.facts().program).await;
            for (scope, name) in [(SettingsScope::User, "user"), (SettingsScope::Project, "project")] {
                let path = places.file(host, scope);
                let text = fs::read_to_string(&path).ok();
                let settings = text.and_then(|text| HostSettings::read(host, &text).ok());
                let is_installed =
                    settings.is_some_and(|settings| settings.handlers().iter().any(|handler| handler.is_ours));
                outln!(
                    "{}",
                    json!({"host": host.as_str(), "version": version, "scope": name, "file": path,
                        "installed": is_installed, "status": of_file(host, &places, scope)})
                );
            }
        }
        return Ok(());
    }
    for host in Host::ALL {
        let facts = host.facts();
        let told = version::told_by(facts.program).await;
        let version = told.unwrap_or_else(|| format!("`{} --version` prints no version", facts.program));
        outln!("{} ({}): {version}", host.as_str(), host.title());
        for (scope, name) in [(SettingsScope::User, "user"), (SettingsScope::Project, "project")] {
            outln!("  {name:<8} {}", of_file(host, &places, scope));
        }
    }
    match remote.connect().await {
        Ok(_) => outln!("a server answers at {}", remote.server()?),
        Err(error) => {
            outln!("{error:#}: its hooks refuse every tool, unless installed with --fail-open")
        }
    }
    Ok(())
}

/// A line about one file.
fn of_file(host: Host, places: &SettingsFolders, scope: SettingsScope) -> String {
    let path = places.file(host, scope);
    let name = path.display();
    let Ok(text) = fs::read_to_string(&path) else {
        return if path.exists() { format!("{name}: cannot be read") } else { format!("{name}: no such file") };
    };
    let settings = match HostSettings::read(host, &text) {
        Ok(settings) => settings,
        Err(error) => return format!("{name}: {error}"),
    };
    let (ours, others): (Vec<Handler>, Vec<Handler>) =
        settings.handlers().into_iter().partition(|handler| handler.is_ours);
    let others = match others.len() {
        0 => String::new(),
        count => format!("; other hooks: {count}"),
    };
    let obstacle = settings.obstacle().map_or_else(String::new, |obstacle| format!("; {obstacle}"));
    format!("{name}: {}{others}{obstacle}", of_ours(host, &ours))
}

/// Description of installed hooks and their problems.
fn of_ours(host: Host, ours: &[Handler]) -> String {
    let text = |name: &str| ours.iter().find_map(|handler| handler.value.get(name)?.as_str());
    let way = match (text("url"), text("command")) {
        (Some(url), _) => format!("asks {url}"),
        (None, Some(command)) => match program(host, command) {
            program if Path::new(program).is_file() => format!("runs {program}"),
            program => format!("runs {program}, which does not exist: install the hooks again"),
        },
        (None, None) => return "no hooks of callgate".to_owned(),
    };
    let is_http = text("url").is_some();
    let wanted = host.facts().events.iter().filter(|event| event.has_http || !is_http);
    let missing: Vec<&str> =
        wanted.map(|event| event.name).filter(|name| !ours.iter().any(|handler| handler.event == *name)).collect();
    let guards = host.facts().events.iter().filter(|event| event.is_guard);
    let lets_run = host == Host::ClaudeCode
        && guards.clone().any(|guard| {
            ours.iter().any(|handler| handler.event == guard.name && handler.value["onFailure"] != "block")
        });
    let missing = if missing.is_empty() { String::new() } else { format!("; not for {}", missing.join(", ")) };
    let lets_run = if lets_run { "; tools run when the hook fails" } else { "" };
    format!("callgate's hooks, {way}{missing}{lets_run}")
}

/// The program of a command line; quoted if it has special characters. Without arguments the line is the program.
fn program(host: Host, command: &str) -> &str {
    match command.strip_prefix('\'') {
        Some(rest) => rest.split('\'').next().unwrap_or_default(),
        None => match command.split_once(&format!(" {}", host.as_str())) {
            Some((program, _)) => program.strip_suffix(" hook").unwrap_or(program),
            None => command,
        },
    }
}
