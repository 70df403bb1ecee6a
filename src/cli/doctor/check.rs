//! Result of one check: finding and advice.

use std::fmt::{Display, Write as _};

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use serde::Serialize;

/// Line width.
const WIDTH: usize = 80;
const INDENT: usize = 13;

/// Area of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Area {
    Files,
    Private,
    Disk,
    Database,
    Schema,
    Rights,
    Clock,
    Policy,
    Collector,
    Server,
}

impl Area {
    const fn as_text(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Private => "private database",
            Self::Disk => "disk",
            Self::Database => "database",
            Self::Schema => "schema",
            Self::Rights => "rights",
            Self::Clock => "clock",
            Self::Policy => "policy",
            Self::Collector => "collector",
            Self::Server => "running server",
        }
    }
}

/// Status of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Ok,
    /// Works, with a risk.
    Warning,
    /// Does not work, or loses data.
    Wrong,
    NotLookedAt,
}

impl Status {
    const fn as_styled_text(self) -> (&'static str, Option<AnsiColor>) {
        match self {
            Self::Ok => ("ok", Some(AnsiColor::Green)),
            Self::Warning => ("warning", Some(AnsiColor::Yellow)),
            Self::Wrong => ("wrong", Some(AnsiColor::Red)),
            Self::NotLookedAt => ("skipped", None),
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct DoctorCheck {
    pub(super) area: Area,
    /// Stable id within its area.
    pub(super) check: &'static str,
    pub(super) status: Status,
    pub(super) found: String,
    /// Advice; none if healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cure: Option<String>,
}

impl DoctorCheck {
    pub(super) fn ok(area: Area, check: &'static str, found: impl Display) -> Self {
        Self { area, check, status: Status::Ok, found: found.to_string(), cure: None }
    }

    pub(super) fn warning(area: Area, check: &'static str, found: impl Display, cure: impl Display) -> Self {
        let (found, cure) = (found.to_string(), Some(cure.to_string()));
        Self { area, check, status: Status::Warning, found, cure }
    }

    pub(super) fn wrong(area: Area, check: &'static str, found: impl Display, cure: impl Display) -> Self {
        Self { status: Status::Wrong, ..Self::warning(area, check, found, cure) }
    }

    /// A skipped check, with the reason.
    pub(super) fn skipped(area: Area, check: &'static str, why: impl Display) -> Self {
        Self { status: Status::NotLookedAt, ..Self::ok(area, check, why) }
    }
}

fn count(checks: &[DoctorCheck], status: Status) -> usize {
    checks.iter().filter(|check| check.status == status).count()
}

/// One JSON line per check.
pub(super) fn json(checks: &[DoctorCheck]) -> anyhow::Result<String> {
    let lines = checks.iter().map(|check| serde_json::to_string(check).map(|line| line + "\n"));
    lines.collect::<Result<String, _>>().context("cannot write the findings")
}

/// For people.
pub(super) fn text(checks: &[DoctorCheck]) -> String {
    let (mut text, mut area) = (String::new(), None);
    for check in checks {
        if area != Some(check.area) {
            let bold = Style::new().bold();
            let _ = writeln!(text, "{bold}{}{bold:#}", check.area.as_text());
            area = Some(check.area);
        }
        let (word, colour) = check.status.as_styled_text();
        let style = Style::new().fg_color(colour.map(Into::into));
        let mut lines = broken(&format!("{}: {}", check.check, check.found)).into_iter();
        let first = lines.next().unwrap_or_default();
        let _ = writeln!(text, "  {style}{word:<width$}{style:#}{first}", width = INDENT - 2);
        let cure = check.cure.iter().flat_map(|cure| broken(&format!("-> {cure}")));
        for line in lines.chain(cure) {
            let _ = writeln!(text, "{:INDENT$}{line}", "");
        }
    }
    let (wrong, warnings) = (count(checks, Status::Wrong), count(checks, Status::Warning));
    let unseen = match count(checks, Status::NotLookedAt) {
        0 => String::new(),
        unseen => format!(", {unseen} skipped"),
    };
    let _ = writeln!(text, "{} checks: {wrong} wrong, {warnings} warnings{unseen}", checks.len());
    text
}

fn broken(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > WIDTH - INDENT {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_fits_a_terminal_and_its_fix_stands_below() {
        let checks = [
            DoctorCheck::ok(Area::Database, "version", "PostgreSQL 15.18"),
            DoctorCheck::wrong(Area::Database, "fsync", "off", "alter system set fsync = on ".repeat(6)),
            DoctorCheck::skipped(Area::Server, "all", "nobody answers"),
        ];
        let text = anstream::adapter::strip_str(&text(&checks)).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("  ok         version: PostgreSQL 15.18\n  wrong      fsync: off\n"), "{text}");
        assert!(text.contains("\n             -> alter system"), "{text}");
        assert!(text.ends_with("3 checks: 1 wrong, 0 warnings, 1 skipped\n"), "{text}");
    }

    #[test]
    fn programs_are_told_the_same() {
        let checks = [DoctorCheck::warning(Area::Disk, "data", "little", "free some")];
        let json = json(&checks).expect("JSON");
        let told = r#"{"area":"disk","check":"data","status":"warning","found":"little","cure":"free some"}"#;
        assert_eq!(json, format!("{told}\n"));
    }
}
