//! The panes on the terminal.

use std::io;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::execute;

use crate::feed::{Feed, Way};
use crate::shown::{Pane, Shown};
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
/// Slowest and fastest play.
const SLOWEST: f64 = 0.25;
const FASTEST: f64 = 64.0;

/// Shows samples until `q`, Ctrl-C, or until `stops` is set. The terminal is restored at the end, also of a panic.
///
/// # Errors
///
/// The terminal cannot be switched to a screen of its own, or is gone.
pub fn run(
    source: &str,
    mut feed: Feed,
    delay: Duration,
    stops: &AtomicBool,
) -> Result<(), TopError> {
    let mut terminal = ratatui::try_init()?;
    let restore_rest = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let _ = execute!(io::stdout(), DisableMouseCapture);
        restore_rest(info);
    }));
    // A terminal without a mouse passes over this.
    let _ = execute!(io::stdout(), EnableMouseCapture);
    let result = show(&mut terminal, source, &mut feed, delay, stops);
    let _ = execute!(io::stdout(), DisableMouseCapture);
    ratatui::restore();
    Ok(result?)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    source: &str,
    feed: &mut Feed,
    mut delay: Duration,
    stops: &AtomicBool,
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
            if stops.load(Ordering::Relaxed) {
                return Ok(());
            }
            let left = next.saturating_duration_since(Instant::now());
            if event::poll(left.min(TURN))? {
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
                    Asked::Redraw => break,
                }
                next = next.min(Instant::now() + pace(feed, delay, speed));
                break;
            }
            if left.is_zero() {
                if !view.is_paused() {
                    feed.advance();
                }
                next = Instant::now() + pace(feed, delay, speed);
                break;
            }
        }
    }
}

/// How long the sample on the screen stays.
fn pace(feed: &Feed, delay: Duration, speed: f64) -> Duration {
    match feed.is_played() {
        true => feed.gap().map_or(LONGEST, |gap| gap.div_f64(speed)),
        false => delay,
    }
}
