//! Publishing to a folder and listening to one, with no server in between. Must hold: whatever ends a listener but a
//! kill, be it a count, a time, a signal or a reader that has gone, nothing of it stays in the folder.

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

/// How long a line that is being written may still take once the listener has left the folder. Whoever reads it may
/// have stopped reading for good.
const LAST_LINE: Duration = Duration::from_millis(500);
/// Between two looks into a folder that cannot be written to for the moment.
const TROUBLE: Duration = Duration::from_millis(100);

pub fn publish(folder: &Path, channel: &[u8], payload: &[u8]) -> anyhow::Result<u64> {
    let local = open(folder, "tavern publish")?;
    let recipients = local.publish(channel, payload)?;
    local.close()?;
    Ok(recipients)
}

/// What to listen to, and for how long.
pub struct Wanted<'a> {
    pub channels: &'a [OsString],
    pub patterns: &'a [OsString],
    pub count: Option<u64>,
    pub wait: Option<Duration>,
}

pub fn subscribe(folder: &Path, wanted: &Wanted<'_>) -> anyhow::Result<()> {
    let farewell = Farewell::expect()?;
    let local = open(folder, "tavern subscribe")?;
    let channels = wanted.channels.iter().map(|name| Interest::channel(name.as_bytes()));
    let patterns = wanted.patterns.iter().map(|name| Interest::pattern(name.as_bytes()));
    local.add_interests(channels.chain(patterns))?;
    let ear = Arc::new(Ear::new(local));
    let (told, deserted) = (ear.clone(), ear.clone());
    thread::spawn(move || farewell.wait(&told));
    thread::spawn(move || await_desertion(&deserted));
    let heard = hear(&ear, wanted);
    let left = ear.leave();
    heard?;
    Ok(left?)
}

fn open(folder: &Path, program: &str) -> Result<Local, Error> {
    Local::open_with(folder, Options { program: program.to_owned(), ..Options::default() })
}

/// Prints what comes until it is enough.
fn hear(ear: &Ear, wanted: &Wanted<'_>) -> anyhow::Result<()> {
    let end = wanted.wait.and_then(|wait| Instant::now().checked_add(wait));
    let mut printed = 0;
    while let Some(message) = ear.next(end)? {
        print_line(&line_of(&message))?;
        printed += u64::from(message.publication().is_some());
        // The time is looked at here too: what never pauses must still end.
        if wanted.count == Some(printed) || is_over(end) {
            break;
        }
    }
    Ok(())
}

fn is_over(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}

/// A listener that several threads may end. It is closed once, by whoever comes first; the others wait for that.
struct Ear {
    local: Mutex<Option<Local>>,
    interrupter: Interrupter,
    leaving: AtomicBool,
}

impl Ear {
    fn new(local: Local) -> Ear {
        let interrupter = local.interrupter();
        Ear { local: Mutex::new(Some(local)), interrupter, leaving: AtomicBool::new(false) }
    }

    /// The next message. None: the time is over, or the listener has left.
    fn next(&self, end: Option<Instant>) -> Result<Option<Message>, Error> {
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(local) = &*local else { return Ok(None) };
        let mut troubled = false;
        while !self.leaving.load(Ordering::SeqCst) {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let message = match local.wait(left) {
                // It may pass, and nothing is lost meanwhile.
                Err(error @ (Error::Busy { .. } | Error::Full { .. })) => {
                    if !troubled {
                        eprintln!("{error}; still listening");
                    }
                    troubled = true;
                    thread::sleep(TROUBLE);
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
        // The main thread is faster, unless it is stuck.
        thread::sleep(LAST_LINE);
        exit(0)
    }
}

/// SIGTERM and SIGINT, heard from before anything is put into the folder.
struct Farewell {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Farewell {
    fn expect() -> anyhow::Result<Farewell> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let entered = runtime.enter();
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        drop(entered);
        Ok(Farewell { runtime, terminate, interrupt })
    }

    fn wait(mut self, ear: &Ear) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
        });
        ear.leave_and_exit()
    }
}

/// Waits until nobody reads our lines any more. On a quiet channel writing would notice it late or never.
fn await_desertion(ear: &Ear) {
    let stdout = std::io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    // Nothing is asked for, so only the end of a pipe, a socket or a terminal is told.
    while let Err(rustix::io::Errno::INTR) = poll(&mut watched, None) {}
    if watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
        ear.leave_and_exit();
    }
}
