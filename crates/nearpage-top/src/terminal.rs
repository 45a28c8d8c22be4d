//! The terminal: taken, given back, gone.
//!
//! Restoring passes over errors: what is written to a terminal that is gone goes nowhere, and there is nobody to tell.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::panic;
use std::thread;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, enable_raw_mode};
use ratatui::{DefaultTerminal, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};

/// Takes the terminal: a screen of its own, keys as they are pressed, the mouse.
pub(crate) fn take() -> io::Result<DefaultTerminal> {
    let terminal = ratatui::try_init()?;
    let restore_rest = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let _ = execute!(io::stdout(), DisableMouseCapture);
        restore_rest(info);
    }));
    // A terminal without a mouse passes over this.
    let _ = execute!(io::stdout(), EnableMouseCapture);
    do_not_wait();
    Ok(terminal)
}

/// A read without a key returns. Otherwise the rest of a sequence would be waited for that does not come, and no signal be
/// seen meanwhile. The setting goes with raw mode.
fn do_not_wait() {
    let stdout = io::stdout();
    if let Ok(mut mode) = tcgetattr(&stdout) {
        mode.special_codes[SpecialCodeIndex::VMIN] = 0;
        mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        let _ = tcsetattr(&stdout, OptionalActions::Now, &mode);
    }
}

/// Gives it back as it was.
pub(crate) fn give_back() {
    let _ = execute!(io::stdout(), DisableMouseCapture);
    let _ = ratatui::try_restore();
}

/// Gives it back for good.
pub(crate) fn end(mut terminal: DefaultTerminal) {
    give_back();
    if terminal.show_cursor().is_err() {
        // Dropping it would tell that on standard error, and panic where that is gone too.
        std::mem::forget(terminal);
    }
}

/// Takes it once more. Whoever had it meanwhile may have left it in any mode, with anything on the screen.
pub(crate) fn take_again(terminal: &mut DefaultTerminal) -> io::Result<()> {
    // Raw mode is remembered as it was set: it is left first, so that it is entered.
    give_back();
    enable_raw_mode()?;
    do_not_wait();
    execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, Clear(ClearType::All))?;
    // One that has drawn nothing draws all.
    *terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    Ok(())
}

/// Whether it is closed for ever: a window that was closed, a connection that ended. Reading from it would not wait.
pub(crate) fn is_gone() -> bool {
    let stdout = io::stdout();
    let mut looked_at = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut looked_at, Some(&at_once)).is_ok() && looked_at[0].revents().intersects(GONE)
}

/// Waits until a key may be there, a signal came, or the time is over.
pub(crate) fn wait(time: Duration) {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let keys = if stdin.is_terminal() { stdin.as_fd() } else { stdout.as_fd() };
    let mut looked_at = [PollFd::from_borrowed_fd(keys, PollFlags::IN)];
    let most = Timespec::try_from(time).ok();
    if poll(&mut looked_at, most.as_ref()).is_ok() && looked_at[0].revents().intersects(GONE) {
        // It would be ready for ever. Whether the screen is gone, too, is seen at the next turn.
        thread::sleep(time);
    }
}

/// What is told without being asked for.
const GONE: PollFlags = PollFlags::HUP.union(PollFlags::ERR).union(PollFlags::NVAL);
