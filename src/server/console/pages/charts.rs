//! `/charts`: the last hour by minute, as one table of all figures and the charts that are drawn from its columns. The
//! overview has the first of them.

use askama::Template;
use axum::{Router, extract::Query, response::Html, routing::get};
use chrono::DateTime;

use super::now::{self, OverviewQuery, count, find_problem};
use crate::console::{Console, fault::PageError, filters, frame::Frame, visitor::Visitor};
use callgate_proto::{
    time::{millis, unix_ms},
    v1::{
        Decision, Fleet, FleetMinute, FleetPart, GetFleetRequest, Savings, ServerMinute,
        fleet_service_client::FleetServiceClient,
    },
};

pub(super) fn router() -> Router<Console> {
    Router::new().route("/charts", get(show))
}

#[derive(Template)]
#[template(path = "charts.html", blocks = ["live"])]
struct Page {
    frame: Frame,
    /// Reason why nothing is known, where nothing is.
    problem: Option<String>,
    hour: Hour,
}

async fn show(visitor: Visitor, Query(asked): Query<OverviewQuery>) -> Result<Html<String>, PageError> {
    let fleet = FleetServiceClient::new(visitor.calls.clone()).get_fleet(GetFleetRequest::default()).await;
    let frame = Frame::new(&visitor, now::PATH, "Last hour");
    let (problem, hour) = match fleet {
        Ok(fleet) => {
            let fleet = fleet.into_inner().fleet.unwrap_or_default();
            (None, Hour::of(&fleet, unix_ms(fleet.as_of_time.as_ref()), CHARTS.len()))
        }
        Err(status) if now::is_outage(&status) => (Some(status.message().to_owned()), Hour::unknown()),
        Err(status) => return Err(status.into()),
    };
    let page = Page { frame, problem, hour };
    Ok(Html(if asked.part == "live" { page.as_live().render()? } else { page.render()? }))
}

/// A chart, and the columns of the table that it is drawn from.
pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// `line` for counts within a minute, `step` for states at its end.
    pub(super) kind: &'static str,
    /// Unit of its axis, where that is no plain count.
    pub(super) unit: &'static str,
    pub(super) note: &'static str,
    pub(super) lines: &'static [ChartLine],
    /// Parts of the fleet that it is drawn from.
    parts: &'static [FleetPart],
    /// Known of no minute in which the server that answers did not run.
    is_seen: bool,
    /// Of an hour that a server may still be counting.
    is_counted: bool,
    /// Left out of an hour in which there is nothing to draw.
    is_rare: bool,
}

/// A line of a chart. A dash distinguishes lines where colours alone would not.
pub(super) struct ChartLine {
    pub(super) name: &'static str,
    pub(super) colour: &'static str,
    pub(super) dash: bool,
    of: fn(&Minute<'_>) -> Value,
}

/// A minute, and when it ended; the last one has only begun, and ends now.
struct Minute<'a> {
    told: &'a FleetMinute,
    end: i64,
}

/// A figure as it is drawn; none where it is not known, and there is a gap.
type Value = Option<String>;

/// A minute, as a row of the table.
pub(super) struct ChartRow {
    pub(super) unix: i64,
    pub(super) words: String,
    pub(super) cells: Vec<String>,
}

/// Charts of an hour.
pub(super) struct Hour {
    /// Those with data.
    pub(super) charts: Vec<&'static Chart>,
    /// Titles of those without, each with its problem.
    pub(super) unavailable: Vec<(&'static str, String)>,
    pub(super) rows: Vec<ChartRow>,
    /// Start of this server's own samples, where they do not cover the hour.
    since: Option<String>,
    /// Savings are not counted to the end of the hour yet.
    is_behind: bool,
}

const fn solid_line(name: &'static str, colour: &'static str, of: fn(&Minute<'_>) -> Value) -> ChartLine {
    ChartLine { name, colour, dash: false, of }
}

const fn dashed_line(name: &'static str, colour: &'static str, of: fn(&Minute<'_>) -> Value) -> ChartLine {
    ChartLine { name, colour, dash: true, of }
}

const CHART: Chart = Chart {
    id: "",
    title: "",
    kind: "step",
    unit: "",
    note: "",
    lines: &[],
    parts: &[],
    is_seen: false,
    is_counted: false,
    is_rare: false,
};

const CHARTS: [Chart; 10] = [
    Chart {
        id: "chart-calls",
        title: "Calls per minute by decision",
        kind: "line",
        note: "Each judgement counts; a repeated delivery of a verdict does not. The last minute is incomplete.",
        parts: &[FleetPart::Decisions],
        lines: &[
            solid_line("ALLOW", "--line-5", |minute| minute.count_decisions(Decision::Allow)),
            solid_line("ASK", "--line-3", |minute| minute.count_decisions(Decision::Ask)),
            dashed_line("WAIT", "--line-4", |minute| minute.count_decisions(Decision::Wait)),
            dashed_line("REUSE", "--line-1", |minute| minute.count_decisions(Decision::Reuse)),
            solid_line("DENY", "--line-2", |minute| minute.count_decisions(Decision::Deny)),
            dashed_line("STOP", "--line-6", |minute| minute.count_decisions(Decision::Stop)),
        ],
        ..CHART
    },
    Chart {
        id: "chart-people",
        title: "Waiting for approvers",
        note: "At the end of each minute. A request counts until it is answered, withdrawn or expired.",
        parts: &[FleetPart::Approvals],
        lines: &[
            solid_line("Open requests", "--line-3", |minute| number(minute.told.open_approvals)),
            dashed_line("Sessions waiting", "--line-4", |minute| number(minute.told.held_sessions)),
        ],
        ..CHART
    },
    Chart {
        id: "chart-oldest",
        title: "Age of the oldest open request",
        unit: "minutes",
        note: "At the end of each minute. No line where no request was open.",
        parts: &[FleetPart::Approvals],
        lines: &[solid_line("Oldest request, minutes", "--line-3", |minute| minute.oldest())],
        ..CHART
    },
    Chart {
        id: "chart-stopped",
        title: "Stopped sessions and halts",
        note: "At the end of each minute: sessions whose last verdict in the hour before is STOP, and active halts.",
        parts: &[FleetPart::Stopped, FleetPart::StoppedMinutes, FleetPart::Halts],
        lines: &[
            solid_line("Sessions stopped", "--line-2", |minute| number(minute.told.stopped_sessions)),
            dashed_line("Halts", "--line-1", |minute| number(minute.told.halts)),
        ],
        ..CHART
    },
    Chart {
        id: "chart-troubles",
        title: "Open circuit breakers, budgets near their limit",
        note: "In each minute: the most tools at once, and the budgets that were 80 % used.",
        lines: &[
            solid_line("Open circuit breakers", "--line-2", |minute| {
                minute.told.open_circuit_breakers.and_then(number)
            }),
            dashed_line("Budgets near their limit", "--line-4", |minute| minute.told.near_budgets.and_then(number)),
        ],
        is_seen: true,
        ..CHART
    },
    Chart {
        id: "chart-saved",
        title: "Calls not run",
        kind: "line",
        note: "In the minute of the first refusal. A call counts once.",
        parts: &[FleetPart::Savings],
        lines: &[
            solid_line("Reused", "--line-1", |minute| {
                minute.find_savings().and_then(|saved| number(saved.reused_calls))
            }),
            solid_line("Denied", "--line-2", |minute| {
                minute.find_savings().and_then(|saved| number(saved.denied_calls))
            }),
            dashed_line("Stopped", "--line-6", |minute| {
                minute.find_savings().and_then(|saved| number(saved.stopped_calls))
            }),
        ],
        is_counted: true,
        ..CHART
    },
    Chart {
        id: "chart-cost",
        title: "Cost saved by reused results",
        kind: "line",
        unit: "US dollars",
        note: "As reported for the calls that they repeat. No line where none was reported.",
        parts: &[FleetPart::Savings],
        lines: &[solid_line("Cost, US dollars", "--line-5", |minute| {
            minute.reported_saving(|saved| saved.cost_micros).map(|micros| format!("{}", micros as f64 / 1e6))
        })],
        is_counted: true,
        is_rare: true,
        ..CHART
    },
    Chart {
        id: "chart-tokens",
        title: "Tokens saved by reused results",
        kind: "line",
        note: "As reported for the calls that they repeat. No line where none was reported.",
        parts: &[FleetPart::Savings],
        lines: &[solid_line("Tokens", "--line-5", |minute| {
            minute.reported_saving(|saved| saved.tokens).and_then(number)
        })],
        is_counted: true,
        is_rare: true,
        ..CHART
    },
    Chart {
        id: "chart-load",
        title: "Load of this server",
        note: "The most at once in each minute, and the polls of the database, one a second, without a response.",
        lines: &[
            solid_line("Calls in evaluation", "--line-5", |minute| {
                minute.plane().and_then(|plane| number(plane.judging))
            }),
            dashed_line("Calls queued", "--line-4", |minute| minute.plane().and_then(|plane| number(plane.queued))),
            solid_line("Uncommitted", "--line-1", |minute| minute.plane().and_then(|plane| number(plane.uncommitted))),
            dashed_line("No response", "--line-2", |minute| minute.plane().and_then(|plane| number(plane.unanswered))),
        ],
        is_seen: true,
        ..CHART
    },
    Chart {
        id: "chart-database",
        title: "Database response time",
        unit: "milliseconds",
        note: "The slowest response in each minute to a small query each second. No line where there was none.",
        lines: &[solid_line("Database, milliseconds", "--line-1", |minute| {
            let took = minute.plane()?.database_time;
            took.and_then(|took| number(millis(Some(&took))))
        })],
        is_seen: true,
        ..CHART
    },
];

fn number(number: u64) -> Value {
    Some(number.to_string())
}

impl Minute<'_> {
    fn count_decisions(&self, decision: Decision) -> Value {
        number(count(&self.told.decisions, decision))
    }

    fn oldest(&self) -> Value {
        let asked = unix_ms(Some(self.told.oldest_approval_time.as_ref()?));
        Some(format!("{:.1}", (self.end - asked).max(0) as f64 / 60_000.0))
    }

    fn find_savings(&self) -> Option<&Savings> {
        self.told.saved.as_ref()
    }

    fn plane(&self) -> Option<&ServerMinute> {
        self.told.server.as_ref()
    }

    /// A reported saving by reused results; zero without such calls, none where it was not reported.
    fn reported_saving(&self, of: impl Fn(&Savings) -> Option<u64>) -> Option<u64> {
        let saved = self.find_savings()?;
        of(saved).or((saved.reused_calls == 0).then_some(0))
    }
}

fn clock(unix: i64) -> String {
    DateTime::from_timestamp(unix, 0).map(|at| at.format("%H:%M").to_string()).unwrap_or_default()
}

fn start(minute: &FleetMinute) -> i64 {
    unix_ms(minute.start_time.as_ref()) / 1_000
}

impl Chart {
    fn has_something(&self, fleet: &Fleet, at: i64) -> bool {
        let is_some =
            |minute: Minute<'_>| self.lines.iter().any(|line| (line.of)(&minute).is_some_and(|value| value != "0"));
        minutes(fleet, at).any(is_some)
    }
}

fn minutes(fleet: &Fleet, at: i64) -> impl Iterator<Item = Minute<'_>> {
    fleet.minutes.iter().map(move |told| Minute { told, end: at.min((start(told) + 60) * 1_000) })
}

impl Hour {
    pub(super) fn unknown() -> Self {
        Self { charts: Vec::new(), unavailable: Vec::new(), rows: Vec::new(), since: None, is_behind: false }
    }

    /// The first `max` charts.
    pub(super) fn of(fleet: &Fleet, at: i64, max: usize) -> Self {
        static ALL: [Chart; 10] = CHARTS;
        let mut charts: Vec<&'static Chart> = ALL.iter().take(max).collect();
        let problems = charts.iter().filter_map(|chart| Some((chart.title, find_problem(fleet, chart.parts)?)));
        let unavailable = problems.collect();
        charts.retain(|chart| find_problem(fleet, chart.parts).is_none());
        charts.retain(|chart| !chart.is_rare || chart.has_something(fleet, at));
        let row = |minute: Minute<'_>| {
            let lines = charts.iter().flat_map(|chart| chart.lines);
            let cells = lines.map(|line| (line.of)(&minute).unwrap_or_default()).collect();
            let unix = start(minute.told);
            ChartRow { unix, words: clock(unix), cells }
        };
        let rows = minutes(fleet, at).map(row).collect();
        let first = fleet.minutes.iter().position(|minute| minute.server.is_some());
        let since = first.filter(|first| *first > 0).map(|first| clock(start(&fleet.minutes[first])));
        let is_behind = fleet.minutes.iter().any(|minute| minute.saved.is_none());
        Self { charts, unavailable, rows, since, is_behind }
    }

    /// Note below a chart.
    pub(super) fn note(&self, chart: &Chart) -> String {
        match &self.since {
            Some(since) if chart.is_seen => {
                format!("{} Sampled by this server since {since} UTC.", chart.note)
            }
            _ if chart.is_counted && self.is_behind => {
                format!("{} Counting in progress: a minute without a line is not counted yet.", chart.note)
            }
            None if chart.is_seen => format!("{} Sampled by this server.", chart.note),
            _ => chart.note.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    fn minute(start: i64, saved: Option<Savings>) -> FleetMinute {
        FleetMinute { start_time: Some(Timestamp { seconds: start, nanos: 0 }), saved, ..Default::default() }
    }

    fn column(hour: &Hour, name: &str) -> Vec<String> {
        let lines = hour.charts.iter().flat_map(|chart| chart.lines);
        let at = lines.map(|line| line.name).position(|one| one == name).expect("a column");
        hour.rows.iter().map(|row| row.cells[at].clone()).collect()
    }

    #[test]
    fn unknown_minute_is_a_gap_and_an_empty_one_is_zero() {
        let told = Savings { reused_calls: 2, priced_calls: 1, cost_micros: Some(500), ..Default::default() };
        let untold = Savings { reused_calls: 1, ..Default::default() };
        let saved = [Some(told), Some(untold), Some(Savings::default()), None];
        let minutes = saved.into_iter().zip(0..).map(|(saved, n)| minute(n * 60, saved)).collect();
        let hour = Hour::of(&Fleet { minutes, ..Default::default() }, 200_000, CHARTS.len());
        assert_eq!(column(&hour, "Reused"), ["2", "1", "0", ""]);
        assert_eq!(column(&hour, "Cost, US dollars"), ["0.0005", "", "0", ""]);
        assert_eq!(column(&hour, "Open circuit breakers"), ["", "", "", ""]);
        assert!(hour.charts.iter().all(|chart| chart.id != "chart-tokens"), "nobody told any");
        let notes = |id: &str| hour.charts.iter().find(|chart| chart.id == id).map(|chart| hour.note(chart));
        assert!(notes("chart-saved").expect("a chart").ends_with("a minute without a line is not counted yet."));
        assert!(notes("chart-calls").expect("a chart").ends_with("is incomplete."));
    }
}
