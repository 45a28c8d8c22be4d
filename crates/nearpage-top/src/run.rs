//! The panes on the terminal.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearpage_watch::{Sample, Sampler};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::shown::Shown;
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

/// Shows samples until `q`, Ctrl-C, or until `stops` is set. The terminal is restored at the end, also of a panic.
///
/// # Errors
///
/// The terminal cannot be switched to a screen of its own, or is gone.
pub fn run(
    source: &str,
    sampler: &mut Sampler,
    delay: Duration,
    stops: &AtomicBool,
) -> Result<(), TopError> {
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, source, sampler, delay, stops);
    ratatui::restore();
    Ok(result?)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    source: &str,
    sampler: &mut Sampler,
    mut delay: Duration,
    stops: &AtomicBool,
) -> io::Result<()> {
    let mut view = View::default();
    let (mut before, mut now): (Option<Sample>, Sample) = (None, sampler.sample());
    let mut next = Instant::now() + delay;
    while !stops.load(Ordering::Relaxed) {
        terminal.draw(|frame| view.draw(frame, &Shown::new(source, before.as_ref(), &now)))?;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if event::poll(left.min(TURN))? {
                match asked(&event::read()?, &mut view) {
                    Asked::Quit => return Ok(()),
                    Asked::Slower => delay = (delay * 2).min(LONGEST),
                    Asked::Faster => delay = (delay / 2).max(SHORTEST),
                    Asked::Redraw => {}
                }
                break;
            }
            if stops.load(Ordering::Relaxed) {
                return Ok(());
            }
            if left.is_zero() {
                if !view.is_paused() {
                    before = Some(std::mem::replace(&mut now, sampler.sample()));
                }
                next = Instant::now() + delay;
                break;
            }
        }
    }
    Ok(())
}

fn asked(event: &Event, view: &mut View) -> Asked {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Asked::Quit,
            code => view.key(code),
        },
        // A new size is drawn like a new sample.
        _ => Asked::Redraw,
    }
}
