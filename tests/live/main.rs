//! Corpus of live work of a coding agent: verdicts compared with the true answers. `README.md` has the language.

#[path = "../common/mod.rs"]
mod common;
mod desk;
mod script;
#[path = "../serve/server.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod server;
mod stage;

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use self::{
    desk::{Class, Desk, PlayedRun},
    script::Scenario,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live");
/// Policies by their names in the figures.
const POLICIES: [(&str, &str); 2] = [("preset", "policy_engine: {presets: [coding_agents]}\n"), ("none", "")];
/// Scenarios that are played at the same time.
const AT_ONCE: usize = 4;
/// The quick form plays one scenario in this many.
const QUICK_SHARE: usize = 4;

/// Actions by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Figures {
    actions: usize,
    refused: usize,
    stale: usize,
    answered: usize,
    delayed: usize,
}

impl Figures {
    fn count(&mut self, class: Class) {
        self.actions += 1;
        match class {
            Class::Ran => {}
            Class::Refused => self.refused += 1,
            Class::Stale => self.stale += 1,
            Class::Answered => self.answered += 1,
            Class::Delayed => self.delayed += 1,
        }
    }

    fn is_worse_than(&self, record: &Self) -> bool {
        let counts = |figures: &Self| [figures.refused, figures.stale, figures.answered, figures.delayed];
        self.actions < record.actions || counts(self).iter().zip(counts(record)).any(|(now, then)| *now > then)
    }
}

/// By `all` or `quick`, and policy.
type Record = BTreeMap<String, BTreeMap<String, Figures>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_work_is_judged_no_worse_than_recorded() {
    let is_whole = std::env::var("CALLGATE_LIVE").is_ok_and(|value| value == "all");
    let form = if is_whole { "all" } else { "quick" };
    let scenarios = script::read(&Path::new(FOLDER).join("scenarios"));
    let share = if is_whole { 1 } else { QUICK_SHARE };
    let scenarios: Vec<Scenario> = scenarios.into_iter().step_by(share).collect();
    let mut figures = BTreeMap::new();
    for (name, policy) in POLICIES {
        figures.insert(name.to_owned(), play(name, policy, scenarios.clone()).await);
    }
    let path = Path::new(FOLDER).join("figures.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
    let mut record: Record = serde_json::from_str(&text).expect("figures");
    if std::env::var("CALLGATE_FIGURES").is_ok_and(|value| value == "write") {
        record.insert(form.to_owned(), figures);
        fs::write(path, serde_json::to_string_pretty(&record).expect("JSON") + "\n").expect("writable");
        return;
    }
    for (name, now) in &figures {
        let then = &record[form][name];
        assert!(!now.is_worse_than(then), "{name}: {now:?} is worse than {then:?} in tests/live/figures.json");
    }
}

#[expect(clippy::print_stdout, reason = "whoever changes a rule reads it")]
async fn play(name: &str, policy: &str, scenarios: Vec<Scenario>) -> Figures {
    let desk = Desk::open(policy).await;
    let (mut figures, mut playing, mut waiting) = (Figures::default(), JoinSet::new(), scenarios.into_iter());
    loop {
        while playing.len() < AT_ONCE
            && let Some(scenario) = waiting.next()
        {
            let desk = desk.clone();
            playing.spawn(async move { desk.play(&scenario).await });
        }
        let Some(played) = playing.join_next().await else { break };
        for PlayedRun { place, class, verdict } in played.expect("no panic") {
            figures.count(class);
            if class != Class::Ran {
                println!("{name} {place}: {class:?}: {verdict}");
            }
        }
    }
    println!("{name}: {figures:?}");
    figures
}

#[test]
fn an_answer_from_memory_is_stale_where_the_truth_is_another() {
    assert_eq!(Class::of("REUSE", "a", Some("a")), Class::Answered);
    assert_eq!(Class::of("REUSE", "b", Some("a")), Class::Stale);
    assert_eq!(Class::of("REUSE", "b", None), Class::Stale);
    assert_eq!([Class::of("DENY", "a", Some("a")), Class::of("WAIT", "a", None)], [Class::Refused, Class::Delayed]);
    let (mut now, record) =
        (Figures { actions: 2, ..Figures::default() }, Figures { actions: 2, ..Figures::default() });
    assert!(!now.is_worse_than(&record));
    now.count(Class::Stale);
    assert!(now.is_worse_than(&record));
}
