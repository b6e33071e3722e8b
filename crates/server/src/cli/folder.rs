//! Publishing to a folder and subscribing to one, without a server. Must hold: however a subscriber ends (count, time,
//! signal, closed stdout), except by a kill, it removes itself from the folder.

use super::line::line_of;
use super::print_line;
use rustix::event::{PollFd, PollFlags, poll};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tavern_local::{Error, Interest, Interrupter, Local, Message, Options};
use tokio::signal::unix::{SignalKind, signal};

/// How long a pending write to stdout may take after the subscriber has left the folder: the reader may be stuck.
const LAST_LINE: Duration = Duration::from_millis(500);
/// Between two attempts at a folder that is busy or full.
const RETRY: Duration = Duration::from_millis(100);

pub fn publish(folder: &Path, channel: &[u8], payload: &[u8]) -> anyhow::Result<u64> {
    let local = open(folder, "tavern publish")?;
    let recipients = local.publish(channel, payload)?;
    local.close()?;
    Ok(recipients)
}

/// The channels and patterns, and when to stop.
pub struct ListenRequest<'a> {
    pub channels: &'a [OsString],
    pub patterns: &'a [OsString],
    pub count: Option<u64>,
    pub wait: Option<Duration>,
}

pub fn subscribe(folder: &Path, wanted: &ListenRequest<'_>) -> anyhow::Result<()> {
    let signals = FolderSignals::catch()?;
    let local = open(folder, "tavern subscribe")?;
    let channels = wanted.channels.iter().map(|name| Interest::channel(name.as_bytes()));
    let patterns = wanted.patterns.iter().map(|name| Interest::pattern(name.as_bytes()));
    local.add_interests(channels.chain(patterns))?;
    let listener = Arc::new(FolderListener::new(local));
    let (on_signal, on_closed_stdout) = (listener.clone(), listener.clone());
    thread::spawn(move || signals.wait(&on_signal));
    thread::spawn(move || watch_stdout(&on_closed_stdout));
    let printed = print_messages(&listener, wanted);
    let left = listener.leave();
    printed?;
    Ok(left?)
}

fn open(folder: &Path, program: &str) -> Result<Local, Error> {
    Local::open_with(folder, Options { program: program.to_owned(), ..Options::default() })
}

/// Prints messages until the count or the time is reached.
fn print_messages(listener: &FolderListener, wanted: &ListenRequest<'_>) -> anyhow::Result<()> {
    let end = wanted.wait.and_then(|wait| Instant::now().checked_add(wait));
    let mut printed = 0;
    while let Some(message) = listener.next(end)? {
        print_line(&line_of(&message))?;
        printed += u64::from(message.publication().is_some());
        // Checked here too: a channel that never pauses must still end in time.
        if wanted.count == Some(printed) || is_over(end) {
            break;
        }
    }
    Ok(())
}

fn is_over(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}

/// A subscriber that several threads may end. The first closes it; the others wait for that.
struct FolderListener {
    local: Mutex<Option<Local>>,
    interrupter: Interrupter,
    leaving: AtomicBool,
}

impl FolderListener {
    fn new(local: Local) -> FolderListener {
        let interrupter = local.interrupter();
        FolderListener { local: Mutex::new(Some(local)), interrupter, leaving: AtomicBool::new(false) }
    }

    /// The next message. None: the time is over, or the subscriber has left.
    fn next(&self, end: Option<Instant>) -> Result<Option<Message>, Error> {
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(local) = &*local else { return Ok(None) };
        let mut reported = false;
        while !self.leaving.load(Ordering::SeqCst) {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let message = match local.wait(left) {
                // Transient, and nothing is lost.
                Err(error @ (Error::Busy { .. } | Error::Full { .. })) => {
                    if !reported {
                        eprintln!("{error}; retrying");
                    }
                    reported = true;
                    thread::sleep(RETRY);
                    None
                }
                outcome => outcome?,
            };
            if message.is_some() || is_over(end) {
                return Ok(message);
            }
        }
        Ok(None)
    }

    fn leave(&self) -> Result<(), Error> {
        self.leaving.store(true, Ordering::SeqCst);
        self.interrupter.interrupt();
        let mut local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        local.take().map_or(Ok(()), Local::close)
    }

    /// Leaves the folder and ends the program, even if its main thread is stuck in writing.
    fn leave_and_exit(&self) -> ! {
        if let Err(error) = self.leave() {
            eprintln!("error: {error}");
            exit(1);
        }
        // The main thread exits first, unless it is stuck.
        thread::sleep(LAST_LINE);
        exit(0)
    }
}

/// SIGTERM and SIGINT, caught before the folder is changed.
struct FolderSignals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl FolderSignals {
    fn catch() -> anyhow::Result<FolderSignals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let entered = runtime.enter();
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        drop(entered);
        Ok(FolderSignals { runtime, terminate, interrupt })
    }

    fn wait(mut self, listener: &FolderListener) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
        });
        listener.leave_and_exit()
    }
}

/// Waits until stdout is closed at the other end. On a quiet channel a failing write would notice that late or never.
fn watch_stdout(listener: &FolderListener) {
    let stdout = std::io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    // No events are requested, so poll reports only errors and hang-ups.
    while let Err(rustix::io::Errno::INTR) = poll(&mut watched, None) {}
    if watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
        listener.leave_and_exit();
    }
}
