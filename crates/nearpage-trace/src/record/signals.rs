//! Interruptions and the end of the command, as messages to the recorder.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::error::RecordError;

/// What a recorder waits for.
pub(super) enum Message {
    /// SIGINT, SIGTERM or SIGHUP came.
    Signal(i32),
    /// The command has ended.
    Ended(io::Result<ExitStatus>),
}

/// Where messages arrive. From its making on, the three signals no longer end this process.
pub struct Inbox {
    messages: Receiver<Message>,
    sender: Sender<Message>,
    signals: Arc<AtomicUsize>,
}

impl Inbox {
    /// Begins to catch signals.
    ///
    /// # Errors
    ///
    /// The kernel does not allow it.
    pub fn open() -> Result<Inbox, RecordError> {
        let (sender, messages) = mpsc::channel();
        let signals = Arc::new(AtomicUsize::new(0));
        let mut caught = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(RecordError::Setup)?;
        let (count, to_inbox) = (signals.clone(), sender.clone());
        let thread = std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in caught.forever() {
                count.fetch_add(1, Ordering::Relaxed);
                if to_inbox.send(Message::Signal(signal)).is_err() {
                    return;
                }
            }
        });
        thread.map_err(RecordError::Setup)?;
        Ok(Inbox { messages, sender, signals })
    }

    /// A way to send to it.
    pub(super) fn sender(&self) -> Sender<Message> {
        self.sender.clone()
    }

    /// How many signals came so far.
    pub(super) fn signals(&self) -> usize {
        self.signals.load(Ordering::Relaxed)
    }

    /// The next message, or `None` at `deadline`.
    pub(super) fn wait(&self, deadline: Instant) -> Option<Message> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.messages.recv_timeout(left) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("a sender is kept beside it"),
        }
    }
}
