//! The screen of a fleet: what is chosen on it, and how it is drawn. It asks nobody.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize as _},
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row as TableRow, Table, TableState, Wrap},
};

use super::{
    fleet::Fleet,
    lists::{self, List, Order, Row, oldest, standing},
};
use crate::cli::remote::at;
use callgate_proto::v1::SessionState;

/// What a key asks for beside the screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    End,
    Pause(bool),
    Details(String),
}

/// What is looked at of one session.
#[derive(Debug)]
struct Details {
    session: String,
    state: Option<Result<SessionState, String>>,
    chosen: usize,
}

/// All that is on it.
#[derive(Debug, Default)]
pub(super) struct Screen {
    fleet: Option<Fleet>,
    /// Why there is nothing newer.
    problem: Option<String>,
    pub(super) list: List,
    order: Order,
    chosen: usize,
    is_paused: bool,
    details: Option<Details>,
}

const DIM: Style = Style::new().fg(Color::DarkGray);

impl Screen {
    /// Takes a new look.
    pub(super) fn see(&mut self, fleet: Fleet) {
        self.problem = None;
        self.fleet = Some(fleet);
        self.chosen = self.chosen.min(self.rows().len().saturating_sub(1));
    }

    /// The server gave no answer, or not all: what was seen last is shown no more, since nobody knows it now.
    pub(super) fn miss(&mut self, problem: String) {
        self.problem = Some(problem);
    }

    /// Takes what was asked of a session, while it is still looked at.
    pub(super) fn learn(&mut self, session: &str, state: Result<SessionState, String>) {
        if let Some(details) = self.details.as_mut().filter(|details| details.session == session) {
            details.state = Some(state);
        }
    }

    pub(super) fn back(&mut self) -> Wish {
        self.details = None;
        Wish::Nothing
    }

    /// Turns to the next list, or the one before.
    pub(super) fn turn(&mut self, by: isize) -> Wish {
        let all = List::ALL;
        let place = all.iter().position(|list| *list == self.list).unwrap_or_default() as isize;
        self.list = all[(place + by).rem_euclid(all.len() as isize) as usize];
        (self.chosen, self.details) = (0, None);
        Wish::Nothing
    }

    /// Chooses another row.
    pub(super) fn step(&mut self, by: isize) -> Wish {
        let rows = match &self.details {
            Some(details) => details.rows().len(),
            None => self.rows().len(),
        };
        let chosen = self.details.as_mut().map_or(&mut self.chosen, |details| &mut details.chosen);
        *chosen = chosen.saturating_add_signed(by).min(rows.saturating_sub(1));
        Wish::Nothing
    }

    /// Looks at the session of the row.
    pub(super) fn open(&mut self) -> Wish {
        if self.details.is_some() {
            return Wish::Nothing;
        }
        let Some(session) = self.rows().get(self.chosen).and_then(|row| row.session.clone()) else {
            return Wish::Nothing;
        };
        self.details = Some(Details { session: session.clone(), state: None, chosen: 0 });
        Wish::Details(session)
    }

    pub(super) fn sort(&mut self) -> Wish {
        self.order = self.order.next();
        self.chosen = 0;
        Wish::Nothing
    }

    pub(super) fn pause(&mut self) -> Wish {
        self.is_paused = !self.is_paused;
        Wish::Pause(self.is_paused)
    }

    fn rows(&self) -> Vec<Row> {
        self.fleet.as_ref().map(|fleet| self.list.rows(fleet, self.order)).unwrap_or_default()
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let [head, tabs, body, foot] =
            Layout::vertical([Constraint::Length(4), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        let fleet = match (&self.fleet, &self.problem) {
            (Some(fleet), None) => fleet,
            (seen, problem) => {
                let [all, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
                let text = nothing_seen(seen.as_ref(), problem.as_deref());
                frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), all);
                frame.render_widget(Paragraph::new("q quit").style(DIM), foot);
                return;
            }
        };
        frame.render_widget(Paragraph::new(summary(fleet)), head);
        frame.render_widget(Paragraph::new(self.tabs(fleet)), tabs);
        match &self.details {
            Some(details) => details.draw(frame, body),
            None => self.list(frame, body, fleet),
        }
        frame.render_widget(Paragraph::new(self.foot()), foot);
    }

    fn tabs(&self, fleet: &Fleet) -> Line<'static> {
        let tab = |list: List| {
            let count = list.rows(fleet, self.order).len();
            let more = if list == List::Sessions && fleet.has_more { "+" } else { "" };
            let text = format!(" {} {count}{more} ", list.title());
            if list == self.list { Span::from(text).reversed() } else { Span::from(text) }
        };
        Line::from(List::ALL.map(tab).to_vec())
    }

    fn list(&self, frame: &mut Frame<'_>, area: Rect, fleet: &Fleet) {
        let rows = self.list.rows(fleet, self.order);
        if rows.is_empty() {
            frame.render_widget(Paragraph::new(self.list.nothing(fleet)).style(DIM), area);
            return;
        }
        let note = self.list.note(&rows);
        let [area, below] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(note.is_some().into())]).areas(area);
        table(frame, area, self.list.columns(), &rows, self.chosen);
        frame.render_widget(Paragraph::new(note.unwrap_or_default()).style(DIM), below);
    }

    fn foot(&self) -> Line<'static> {
        let keys = match &self.details {
            Some(_) => "esc back  ↑↓ move  q quit".to_owned(),
            None => format!("tab list  ↑↓ choose  enter session  s sort: {}  p pause  q quit", self.order.title()),
        };
        let paused = if self.is_paused { Span::from("paused  ").yellow() } else { Span::default() };
        Line::from(vec![paused, Span::styled(keys, DIM)])
    }
}

/// What stands in the place of figures.
fn nothing_seen(seen: Option<&Fleet>, problem: Option<&str>) -> Vec<Line<'static>> {
    let Some(problem) = problem else { return vec![Line::from("asking the server …")] };
    let mut lines = vec![Line::from(format!("asking again: {problem}")).red()];
    if let Some(seen) = seen {
        let at_last = at(Some(&prost_types::Timestamp { seconds: seen.at.as_millis() / 1_000, nanos: 0 }));
        lines.push(Line::from(format!("{} was seen last at {at_last}; no figure is shown that may be old.", seen.url)));
    }
    lines
}

impl Details {
    fn rows(&self) -> Vec<Row> {
        self.state.as_ref().and_then(|state| state.as_ref().ok()).map(lists::timeline).unwrap_or_default()
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        let state = match &self.state {
            None => "asking …".to_owned(),
            Some(Err(problem)) => problem.clone(),
            Some(Ok(state)) => {
                let stopped = if state.is_stopped { "; stopped: no call is let through" } else { "" };
                let loops: Vec<String> =
                    state.loops.iter().map(|one| format!("{} at {}", one.rule, one.count)).collect();
                let loops = if loops.is_empty() { String::new() } else { format!("; loops: {}", loops.join(", ")) };
                format!("run {}{stopped}{loops}", if state.run_id.is_empty() { "-" } else { &state.run_id })
            }
        };
        let line = Line::from(vec![Span::from(self.session.clone()).bold(), Span::from(format!("  {state}"))]);
        frame.render_widget(Paragraph::new(line), head);
        let rows = self.rows();
        if !rows.is_empty() {
            table(frame, body, &[("at", 8), ("state", 9), ("call", 0), ("said", 24)], &rows, self.chosen);
        }
    }
}

fn table(frame: &mut Frame<'_>, area: Rect, columns: &[(&'static str, u16)], rows: &[Row], chosen: usize) {
    let widths = columns.iter().map(|(_, width)| match width {
        0 => Constraint::Min(8),
        width => Constraint::Length(*width),
    });
    let fixed: u16 = columns.iter().map(|(_, width)| width + 1).sum();
    let room = usize::from(area.width.saturating_sub(fixed).max(8));
    let cell = |(text, (_, width)): (&String, &(&str, u16))| {
        // What comes from agents has no control characters on a terminal.
        let text = text.replace(char::is_control, " ");
        Cell::from(if *width == 0 { shortened(text, room) } else { text })
    };
    let lines = rows.iter().map(|row| TableRow::new(row.cells.iter().zip(columns).map(cell)));
    let head = TableRow::new(columns.iter().map(|(name, _)| Cell::from(*name))).style(DIM);
    let table = Table::new(lines, widths).header(head).row_highlight_style(Style::new().reversed());
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(chosen));
}

/// Names that begin alike differ at their end: what is too long loses its middle.
fn shortened(text: String, room: usize) -> String {
    let length = text.chars().count();
    if length <= room {
        return text;
    }
    let (first, last) = (room / 2, room - room / 2 - 1);
    text.chars().take(first).chain(['…']).chain(text.chars().skip(length - last)).collect()
}

/// The four lines at the top.
pub(super) fn summary(fleet: &Fleet) -> Vec<Line<'static>> {
    let policy = match fleet.server.policy_version.as_str() {
        "default" => "built-in policy".to_owned(),
        hash => format!("policy {hash}"),
    };
    let revision = fleet.revision.as_ref().map(|one| format!(" rev {}", one.revision)).unwrap_or_default();
    let mode = if fleet.server.enforced { "" } else { "  only watching (shadow)" };
    let now = prost_types::Timestamp { seconds: fleet.at.as_millis() / 1_000, nanos: 0 };
    let first = Line::from(vec![
        Span::from(format!("callgate {}", fleet.server.version)).bold(),
        Span::from(format!("  {}  {policy}{revision}", fleet.url)),
        Span::from(mode).yellow(),
        Span::styled(format!("  {}", at(Some(&now)).get(11..).unwrap_or_default()), DIM),
    ]);
    vec![first, calls(fleet), plane(fleet), sessions(fleet)]
}

fn calls(fleet: &Fleet) -> Line<'static> {
    if !fleet.has_rates {
        let why = if fleet.figures.is_some() { "…".to_owned() } else { fleet.without_figures.clone() };
        return Line::from(format!("calls/s   {why}"));
    }
    let colours = [
        ("ALLOW", Color::Green),
        ("ASK", Color::Magenta),
        ("WAIT", Color::Yellow),
        ("REUSE", Color::Cyan),
        ("DENY", Color::Red),
        ("STOP", Color::LightRed),
    ];
    let told = colours.into_iter().flat_map(|(decision, colour)| {
        let rate = fleet.rate(decision);
        let style = if rate > 0.0 { Style::new().fg(colour) } else { DIM };
        [Span::styled(format!("{decision} {rate:.1}"), style), Span::from("  ")]
    });
    Line::from(std::iter::once(Span::from("calls/s   ")).chain(told).collect::<Vec<_>>())
}

fn plane(fleet: &Fleet) -> Line<'static> {
    let ready = if fleet.is_ready { Span::from("ready").green() } else { Span::from("not ready").red() };
    let Some(figures) = &fleet.figures else { return Line::from(vec![Span::from("plane     "), ready]) };
    let mut told = vec![
        Span::from("plane     "),
        ready,
        Span::from(format!("  judging {:.0}  waiting {:.0}", figures.at_work, figures.waiting)),
    ];
    if let Some(ms) = fleet.commit_ms {
        told.push(Span::from(format!("  commit {ms:.1} ms")));
    }
    if fleet.turned_away > 0.0 {
        told.push(Span::from(format!("  turned away {:.1}/s", fleet.turned_away)).red());
    }
    if figures.policy_behind > 0.0 {
        told.push(Span::from(format!("  policy {:.0} behind", figures.policy_behind)).red());
    } else if figures.policy_unconfirmed_s > 5.0 {
        told.push(Span::from(format!("  policy unconfirmed {:.0} s", figures.policy_unconfirmed_s)).red());
    } else {
        told.push(Span::from("  policy current"));
    }
    Line::from(told)
}

fn sessions(fleet: &Fleet) -> Line<'static> {
    let open: u64 = fleet.sessions.iter().map(|session| u64::from(session.open_calls)).sum();
    let are = |what: &str| fleet.sessions.iter().filter(|session| standing(fleet, session) == what).count();
    let more = if fleet.has_more { "+" } else { "" };
    let text = format!(
        "sessions  {}{more}, calls open {open}, held {}, stopped {}, halted {}",
        fleet.sessions.len(),
        are("held"),
        are("stopped"),
        are("halted"),
    );
    let approvals = match oldest(fleet) {
        Some(age) => Span::from(format!("  approvals {}, oldest {age}", fleet.approvals.len())).yellow(),
        None => Span::styled("  approvals 0", DIM),
    };
    Line::from(vec![Span::from(text), approvals])
}
