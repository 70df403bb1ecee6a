//! `callgate top`: a fleet as it is now, on a terminal, once as text, or once as JSON (docs/cli.md#top). All of it
//! comes from the server; what is asked is in `fleet.rs`, what is shown in `lists.rs`, where it stands in `view.rs`.

mod figures;
mod fleet;
mod lists;
mod snapshot;
#[cfg(test)]
mod tests;
mod view;

use std::{io::IsTerminal as _, time::Duration};

use anyhow::Context as _;
use clap::Args;
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt as _;
use ratatui::DefaultTerminal;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    time::{sleep, timeout},
};

use self::{
    fleet::{Asker, Fleet},
    view::{Screen, Wish},
};
use super::remote::Remote;
use callgate_proto::v1::SessionState;

/// What `callgate top` takes.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// How many seconds lie between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    interval: u64,
    /// Print one look as text, and end; so it is where standard output is no terminal
    #[arg(long)]
    once: bool,
    /// Print one look as one JSON object, and end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

/// How far apart the two looks are that one is told by: rates are a difference.
const BETWEEN: Duration = Duration::from_secs(1);
/// How long all answers of one look may take.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// What is told to the screen.
enum News {
    Fleet(Box<Fleet>),
    Away(String),
    Details(String, Result<Box<SessionState>, String>),
}

/// Runs it.
pub(super) async fn run(args: TopArgs) -> anyhow::Result<()> {
    let asker = Asker::new(args.remote.connect_later()?, args.remote.server()?.to_owned());
    if args.once || args.json || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let before = asker.look(None).await?;
        sleep(BETWEEN).await;
        let fleet = asker.look(Some(&before)).await?;
        match args.json {
            true => outln!("{}", snapshot::json(&fleet)),
            false => out!("{}", snapshot::text(&fleet)),
        }
        return Ok(());
    }
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let ended = watched(&mut terminal, asker, Duration::from_secs(args.interval)).await;
    // Before anything is said of an error: it belongs below the prompt, not into a screen that goes away.
    ratatui::try_restore().context("the terminal cannot be given back")?;
    ended
}

/// Shows the fleet until somebody has seen enough.
async fn watched(terminal: &mut DefaultTerminal, asker: Asker, interval: Duration) -> anyhow::Result<()> {
    let (tell, mut news) = mpsc::channel(8);
    let (pause, paused) = watch::channel(false);
    let asking = tokio::spawn(ask(asker.clone(), interval, paused, tell.clone()));
    let mut keys = EventStream::new();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut screen = Screen::default();
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        let wish = tokio::select! {
            told = news.recv() => { told.into_iter().for_each(|told| hear(&mut screen, told)); Wish::Nothing }
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => pressed(&mut screen, key),
                // Another size is drawn like any other news.
                Some(Ok(_)) => Wish::Nothing,
                Some(Err(_)) | None => Wish::End,
            },
            _ = interrupt.recv() => Wish::End,
            _ = terminate.recv() => Wish::End,
        };
        match wish {
            Wish::Nothing => {}
            Wish::End => break,
            Wish::Pause(is_paused) => {
                let _ = pause.send(is_paused);
            }
            Wish::Details(session) => {
                let (asker, tell) = (asker.clone(), tell.clone());
                tokio::spawn(async move {
                    let state = asker.state(&session).await.map(Box::new).map_err(|error| format!("{error:#}"));
                    let _ = tell.send(News::Details(session, state)).await;
                });
            }
        }
    }
    asking.abort();
    Ok(())
}

fn hear(screen: &mut Screen, told: News) {
    match told {
        News::Fleet(fleet) => screen.see(*fleet),
        News::Away(problem) => screen.miss(problem),
        News::Details(session, state) => screen.learn(&session, state.map(|state| *state)),
    }
}

fn pressed(screen: &mut Screen, key: KeyEvent) -> Wish {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => Wish::End,
        KeyCode::Char('q') => Wish::End,
        KeyCode::Esc | KeyCode::Backspace => screen.back(),
        KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => screen.turn(1),
        KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => screen.turn(-1),
        KeyCode::Down | KeyCode::Char('j') => screen.step(1),
        KeyCode::Up | KeyCode::Char('k') => screen.step(-1),
        KeyCode::PageDown => screen.step(10),
        KeyCode::PageUp => screen.step(-10),
        KeyCode::Enter => screen.open(),
        KeyCode::Char('s') => screen.sort(),
        KeyCode::Char('p') => screen.pause(),
        _ => Wish::Nothing,
    }
}

/// Looks again and again; a server that is away is asked for until it is back.
async fn ask(asker: Asker, interval: Duration, mut paused: watch::Receiver<bool>, tell: mpsc::Sender<News>) {
    let mut before: Option<Fleet> = None;
    loop {
        let is_first = before.is_none();
        let look = timeout(LOOK_MAX, asker.look(before.as_ref())).await;
        let news = match look {
            Ok(Ok(fleet)) => {
                before = Some(fleet.clone());
                News::Fleet(Box::new(fleet))
            }
            Ok(Err(error)) => News::Away(format!("{error:#}")),
            Err(_) => News::Away(format!("no answer within {} s", LOOK_MAX.as_secs())),
        };
        if tell.send(news).await.is_err() {
            return;
        }
        // The first look has no rates: the second comes soon.
        sleep(if is_first { BETWEEN.min(interval) } else { interval }).await;
        if paused.wait_for(|is_paused| !is_paused).await.is_err() {
            return;
        }
    }
}
