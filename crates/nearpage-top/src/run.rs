//! The panes on the terminal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event;

use crate::feed::{Feed, Way};
use crate::shown::{Pane, Shown};
use crate::terminal;
use crate::view::{Asked, View};

/// The terminal cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the terminal: {0}")]
pub struct TopError(#[from] io::Error);

/// Shortest and longest interval.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60);
/// How soon a signal is seen.
const TURN: Duration = Duration::from_millis(100);
/// For how long a key is looked for that may be there: what waits no time does not look at all. The library waits in whole
/// milliseconds, and spins for the rest of its time.
const LOOK: Duration = Duration::from_micros(50);
/// Slowest and fastest play.
const SLOWEST: f64 = 0.25;
const FASTEST: f64 = 64.0;

/// What signals ask of the panes. Whoever takes signals sets these; the panes look ten times a second.
#[derive(Clone, Debug)]
pub struct Signals {
    /// To end.
    pub ends: Arc<AtomicBool>,
    /// To give the terminal back and stop.
    pub stops: Arc<AtomicBool>,
    /// The process goes on: somebody else may have had the terminal.
    pub goes_on: Arc<AtomicBool>,
    /// Stops the process until it is told to go on. Ctrl-Z calls it too, with the terminal given back.
    pub stop: fn(),
}

impl Default for Signals {
    /// Those of a program that takes none, and cannot be stopped.
    fn default() -> Signals {
        let flag = Arc::default;
        Signals { ends: flag(), stops: flag(), goes_on: flag(), stop: || {} }
    }
}

/// Shows samples until `q`, Ctrl-C, or until `signals` ask to end. The terminal is restored at the end, also of a panic,
/// and while the process is stopped.
///
/// # Errors
///
/// The terminal cannot be switched to a screen of its own, or is gone.
pub fn run(
    source: &str,
    mut feed: Feed,
    delay: Duration,
    signals: &Signals,
) -> Result<(), TopError> {
    let mut terminal = terminal::take()?;
    let result = show(&mut terminal, source, &mut feed, delay, signals);
    terminal::end(terminal);
    Ok(result?)
}

fn show(
    terminal: &mut DefaultTerminal,
    source: &str,
    feed: &mut Feed,
    mut delay: Duration,
    signals: &Signals,
) -> io::Result<()> {
    let mut view = View::default();
    let mut speed = 1.0;
    let mut next = Instant::now() + pace(feed, delay, speed);
    loop {
        feed.count_traffic(view.pane() == Pane::Pagesets);
        let status = feed.status(speed);
        let shown = Shown::new(source, feed.before(), feed.now());
        let shown = shown.with_past(feed.past()).with_status(&status);
        terminal.draw(|frame| view.draw(frame, &shown))?;
        loop {
            if signals.ends.load(Ordering::Relaxed) {
                return Ok(());
            }
            if terminal::is_gone() {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "it was closed"));
            }
            if signals.stops.swap(false, Ordering::Relaxed) {
                stop(signals);
            }
            if signals.goes_on.swap(false, Ordering::Relaxed) {
                terminal::take_again(terminal)?;
                break;
            }
            if event::poll(LOOK)? {
                match view.handle(&event::read()?) {
                    Asked::Quit => return Ok(()),
                    Asked::Plus if feed.is_played() => speed = (speed * 2.0f64).min(FASTEST),
                    Asked::Minus if feed.is_played() => speed = (speed / 2.0f64).max(SLOWEST),
                    Asked::Plus => delay = (delay * 2).min(LONGEST),
                    Asked::Minus => delay = (delay / 2).max(SHORTEST),
                    Asked::Seek(steps) => feed.seek(steps),
                    Asked::NextMark => feed.seek_mark(Way::On),
                    Asked::LastMark => feed.seek_mark(Way::Back),
                    Asked::Process(pid) => feed.want_process(pid),
                    Asked::Types => feed.want_types(),
                    Asked::Stop => stop(signals),
                    Asked::Redraw => break,
                }
                next = next.min(Instant::now() + pace(feed, delay, speed));
                break;
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if !view.is_paused() {
                    feed.advance();
                }
                next = Instant::now() + pace(feed, delay, speed);
                break;
            }
            terminal::wait(left.min(TURN));
        }
    }
}

/// Gives the terminal back while the process is stopped. It is taken again at the next turn.
fn stop(signals: &Signals) {
    terminal::give_back();
    (signals.stop)();
    signals.goes_on.store(true, Ordering::Relaxed);
}

/// How long the sample on the screen stays.
fn pace(feed: &Feed, delay: Duration, speed: f64) -> Duration {
    match feed.is_played() {
        true => feed.gap().map_or(LONGEST, |gap| gap.div_f64(speed)),
        false => delay,
    }
}
