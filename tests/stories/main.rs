//! The corpus of business stories: what the rules make of honest and of wasteful work. `README.md` has the
//! language of the stories.

#[path = "../common/mod.rs"]
mod common;
mod player;
mod script;

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};

use self::{
    player::{Player, Verdict},
    script::Story,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories");
/// The call by which a wasteful story should have been stopped.
const BY_CALL: usize = 20;

/// What became of one story.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StoryFigures {
    /// The first call that did not run at once, from 1, and why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<String>,
    refused: usize,
    delayed: usize,
    warned: usize,
    stopped: bool,
    /// Stopped or made to wait by [`BY_CALL`].
    ended: bool,
}

/// What became of all stories of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SetFigures {
    stories: usize,
    stories_refused: usize,
    stories_ended: usize,
    calls_refused: usize,
    calls_delayed: usize,
    calls_warned: usize,
    runs_stopped: usize,
    by_story: BTreeMap<String, StoryFigures>,
}

type Figures = BTreeMap<String, SetFigures>;

impl StoryFigures {
    fn of(verdicts: &[Verdict]) -> Self {
        let first = verdicts.iter().position(|verdict| verdict.decision != "ALLOW" || verdict.waited);
        let named = |at: usize| {
            let verdict = &verdicts[at];
            let decision = if verdict.decision == "ALLOW" { "WAIT" } else { &verdict.decision };
            format!("{} {decision} {}", at + 1, verdict.rule)
        };
        let count = |counts: &dyn Fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| counts(verdict)).count();
        Self {
            first: first.map(named),
            refused: count(&|verdict| !["ALLOW", "WAIT"].contains(&&*verdict.decision)),
            delayed: count(&|verdict| verdict.waited || verdict.decision == "WAIT"),
            warned: count(&|verdict| verdict.warned),
            stopped: verdicts.iter().any(|verdict| verdict.decision == "STOP"),
            ended: first.is_some_and(|at| at < BY_CALL),
        }
    }
}

impl SetFigures {
    fn count(&mut self, name: String, story: StoryFigures) {
        self.stories += 1;
        self.stories_refused += usize::from(story.refused > 0);
        self.stories_ended += usize::from(story.ended);
        self.calls_refused += story.refused;
        self.calls_delayed += story.delayed;
        self.calls_warned += story.warned;
        self.runs_stopped += usize::from(story.stopped);
        assert!(self.by_story.insert(name.clone(), story).is_none(), "two stories are called {name:?}");
    }

    /// Worse than the record: honest work that is stopped more, or waste that is stopped less.
    fn worse_than(&self, record: &Self, is_honest: bool) -> Vec<String> {
        let mut worse = Vec::new();
        let mut compare = |what: &str, now: usize, then: usize, grows_worse: bool| {
            if if grows_worse { now > then } else { now < then } {
                worse.push(format!("{what}: {now}, recorded {then}"));
            }
        };
        compare("stories", self.stories, record.stories, false);
        if is_honest {
            compare("stories refused", self.stories_refused, record.stories_refused, true);
            compare("calls refused", self.calls_refused, record.calls_refused, true);
            compare("calls delayed", self.calls_delayed, record.calls_delayed, true);
            compare("calls warned", self.calls_warned, record.calls_warned, true);
            compare("runs stopped", self.runs_stopped, record.runs_stopped, true);
        } else {
            compare("stories ended", self.stories_ended, record.stories_ended, false);
        }
        worse
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stories_come_out_no_worse_than_recorded() {
    let mut figures = Figures::new();
    let mut player = Player::default();
    for set in ["honest", "wasteful", "long"] {
        for story in script::read(&Path::new(FOLDER).join(set)) {
            let verdicts = player.play(&story).await;
            report(set, &story, &verdicts);
            figures.entry(set.to_owned()).or_default().count(story.name.clone(), StoryFigures::of(&verdicts));
        }
    }
    let path = Path::new(FOLDER).join("figures.json");
    if std::env::var("CALLGATE_FIGURES").is_ok_and(|value| value == "write") {
        let text = serde_json::to_string_pretty(&figures).expect("JSON") + "\n";
        fs::write(path, text).expect("writable");
        return;
    }
    let record: Figures = serde_json::from_str(&fs::read_to_string(path).expect("figures")).expect("figures");
    let mut worse = Vec::new();
    for (set, now) in &figures {
        let problems = now.worse_than(&record[set], set != "wasteful");
        worse.extend(problems.into_iter().map(|problem| format!("{set}: {problem}")));
    }
    assert!(worse.is_empty(), "worse than tests/stories/figures.json:\n{}", worse.join("\n"));
}

/// Prints the verdicts that are wrong for the kind of story.
#[expect(clippy::print_stdout, reason = "whoever changes a rule reads it")]
fn report(set: &str, story: &Story, verdicts: &[Verdict]) {
    let figures = StoryFigures::of(verdicts);
    if set == "wasteful" {
        if !figures.ended {
            println!("{} {:?}: not ended by call {BY_CALL}: {:?}", story.place, story.name, figures.first);
        }
        return;
    }
    let wrong = verdicts.iter().enumerate().filter(|(_, verdict)| verdict.decision != "ALLOW" || verdict.waited);
    for (at, Verdict { decision, rule, message, .. }) in wrong.take(2) {
        println!("{} {:?}, call {}: {decision} {rule}: {message}", story.place, story.name, at + 1);
    }
}

#[test]
fn figures_see_a_worse_and_a_better_result() {
    let verdict = |decision: &str| Verdict { decision: decision.to_owned(), ..Verdict::default() };
    let set = |decisions: &[&str]| {
        let mut set = SetFigures::default();
        let verdicts: Vec<Verdict> = decisions.iter().map(|decision| verdict(decision)).collect();
        set.count("a story".to_owned(), StoryFigures::of(&verdicts));
        set
    };
    let (free, refused) = (set(&["ALLOW", "ALLOW"]), set(&["ALLOW", "DENY"]));
    assert_eq!(refused.worse_than(&free, true), ["stories refused: 1, recorded 0", "calls refused: 1, recorded 0"]);
    assert_eq!(free.worse_than(&refused, true), [""; 0]);
    assert_eq!(free.worse_than(&refused, false), ["stories ended: 0, recorded 1"]);
}
