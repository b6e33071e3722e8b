//! The public face: one handle is one subscriber, and may publish.

use crate::error::Error;
use crate::limits;
use crate::message::{Draft, Interest, Kind, Message, Space};
use crate::page::Page;
use crate::process::{self, Process};
use crate::publish::Speaker;
use crate::stat::Stat;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How a folder is used. The bounds are those of the whole log; what a publisher says here holds when it publishes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Messages that are kept for those who have not read them.
    pub log_messages: u64,
    pub log_bytes: u64,
    pub log_age: Duration,
    /// The largest name, payload and note that this handle publishes.
    pub message_bytes: usize,
    /// How long to wait for the turn to write. A turn is short; only a stopped process holds it this long.
    pub patience: Duration,
    /// False: this handle does not hear what it publishes itself, and does not count.
    pub echo: bool,
    /// False: opening does not clean up behind processes that died, so that [`Local::stat`] shows them.
    pub sweep: bool,
    /// What the process is called in [`Local::stat`].
    pub program: String,
}

impl Default for Options {
    fn default() -> Options {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = Path::new(&program).file_name().unwrap_or_default();
        Options {
            log_messages: 100_000,
            log_bytes: 64 << 20,
            log_age: Duration::from_secs(3600),
            message_bytes: limits::MESSAGE_BYTES,
            patience: Duration::from_millis(limits::BUSY_MS),
            echo: true,
            sweep: true,
            program: program.to_string_lossy().into_owned(),
        }
    }
}

/// A place at a folder: it publishes, and once it has subscribed to something it hears. Closed when dropped.
///
/// All methods take `&self`; threads may share a handle. Handles of one process on one folder share what they need
/// of the operating system, however many there are.
pub struct Local {
    process: Option<Arc<Process>>,
    subscriber: u64,
    options: Options,
}

/// Ends a [`Local::wait`] from another thread.
#[derive(Clone)]
pub struct Interrupter {
    // Weak: it may outlive the handle, and must not keep the folder open then.
    process: Weak<Process>,
    subscriber: u64,
}

/// The version of who listens to what in a folder: it grows with every change, at once for all processes. Reading it
/// costs a load from memory. It stays readable when the handle it came from is closed.
#[derive(Clone)]
pub struct RosterVersion(Arc<Page>);

/// Opens a folder, which is made if there is none, and cleans up behind processes that died.
pub fn open(folder: impl AsRef<Path>) -> Result<Local, Error> {
    Local::open_with(folder, Options::default())
}

impl Local {
    pub fn open_with(folder: impl AsRef<Path>, options: Options) -> Result<Local, Error> {
        let (process, subscriber) = process::enter(folder.as_ref(), &options)?;
        let local = Local { process: Some(process), subscriber, options };
        if local.options.sweep {
            local.sweep()?;
        }
        Ok(local)
    }

    /// Listens to channels. Tells how many channels and patterns this handle listens to now.
    pub fn subscribe<N: AsRef<[u8]>>(&self, channels: impl IntoIterator<Item = N>) -> Result<usize, Error> {
        self.listen(channels.into_iter().map(Interest::channel))
    }

    /// Listens to the channels whose names match Redis globs: `*`, `?`, `[a-z]`, `[^x]`, `\` before a special character.
    pub fn psubscribe<N: AsRef<[u8]>>(&self, patterns: impl IntoIterator<Item = N>) -> Result<usize, Error> {
        self.listen(patterns.into_iter().map(Interest::pattern))
    }

    pub fn unsubscribe<N: AsRef<[u8]>>(&self, channels: impl IntoIterator<Item = N>) -> Result<usize, Error> {
        self.unlisten(channels.into_iter().map(Interest::channel))
    }

    pub fn punsubscribe<N: AsRef<[u8]>>(
        &self,
        patterns: impl IntoIterator<Item = N>,
    ) -> Result<usize, Error> {
        self.unlisten(patterns.into_iter().map(Interest::pattern))
    }

    /// Ends all of this handle's channels, and nobody else's.
    pub fn unsubscribe_all(&self) -> Result<usize, Error> {
        self.unlisten(self.interests(Kind::Channel)?)
    }

    pub fn punsubscribe_all(&self) -> Result<usize, Error> {
        self.unlisten(self.interests(Kind::Pattern)?)
    }

    /// Begins to listen to anything that can be listened to. It holds when this returns.
    pub fn listen(&self, interests: impl IntoIterator<Item = Interest>) -> Result<usize, Error> {
        let interests: BTreeSet<Interest> = interests.into_iter().collect();
        let most = limits::MESSAGE_BYTES;
        if let Some(long) = interests.iter().find(|interest| interest.name.len() > most) {
            return Err(Error::TooLarge { what: "name", bytes: long.name.len(), most });
        }
        let process = self.process();
        process.check()?;
        let mut state = process.state();
        process.listen(&mut state, self.subscriber, interests, self.options.patience)?;
        Ok(state.subscribers.get(&self.subscriber).map_or(0, |own| own.interests.len()))
    }

    /// Stops listening. What was published before is still delivered.
    pub fn unlisten(&self, interests: impl IntoIterator<Item = Interest>) -> Result<usize, Error> {
        let interests = interests.into_iter().collect();
        let process = self.process();
        process.check()?;
        let mut state = process.state();
        process.unlisten(&mut state, self.subscriber, interests, self.options.patience)?;
        Ok(state.subscribers.get(&self.subscriber).map_or(0, |own| own.interests.len()))
    }

    fn interests(&self, kind: Kind) -> Result<Vec<Interest>, Error> {
        self.process().check()?;
        let state = self.process().state();
        let own = state.subscribers.get(&self.subscriber).into_iter().flat_map(|own| own.interests.iter());
        Ok(own.filter(|interest| interest.kind == kind && interest.space == Space::Public).cloned().collect())
    }

    /// Publishes; tells how many subscriptions received it.
    pub fn publish(&self, channel: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<u64, Error> {
        let draft = Draft::new(channel.as_ref(), payload.as_ref());
        Ok(self.publish_all(&[draft])?.first().copied().unwrap_or(0))
    }

    /// Publishes many at once, in order, for a fraction of the cost of one by one. A long list goes in parts: when one
    /// fails, those before it are published.
    pub fn publish_all(&self, drafts: &[Draft<'_>]) -> Result<Vec<u64>, Error> {
        let speaker = Speaker { subscriber: self.subscriber, options: &self.options };
        self.process().publish(speaker, drafts)
    }

    /// The next message, if one is there. Never waits.
    pub fn poll(&self) -> Result<Option<Message>, Error> {
        self.process().poll(self.subscriber, self.options.patience)
    }

    /// Waits for the next message, for ever without a timeout. None: the time is over, or another thread
    /// [interrupted](Local::interrupter) it.
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<Option<Message>, Error> {
        self.process().wait(self.subscriber, timeout.into(), self.options.patience)
    }

    pub fn interrupter(&self) -> Interrupter {
        Interrupter { process: Arc::downgrade(self.process()), subscriber: self.subscriber }
    }

    /// Channels that somebody listens to, in order; only those that match a pattern, if one is given.
    pub fn channels(&self, pattern: Option<&[u8]>) -> Result<Vec<Vec<u8>>, Error> {
        self.process().channels(pattern)
    }

    /// How many subscriptions each channel has. Patterns do not count.
    pub fn numsub<N: AsRef<[u8]>>(
        &self,
        channels: impl IntoIterator<Item = N>,
    ) -> Result<Vec<(N, u64)>, Error> {
        let count = |name: N| {
            let count = self.process().numsub(name.as_ref())?;
            Ok((name, count))
        };
        channels.into_iter().map(count).collect()
    }

    /// How many different patterns are listened to.
    pub fn numpat(&self) -> Result<u64, Error> {
        self.process().numpat()
    }

    /// What is going on in the folder: who listens, what waits.
    pub fn stat(&self) -> Result<Stat, Error> {
        self.process().stat()
    }

    /// Cleans up behind processes that died; tells how many there were. Opening and publishing do this by themselves.
    pub fn sweep(&self) -> Result<usize, Error> {
        self.process().check()?;
        self.process().sweep(self.options.patience)
    }

    /// Whether anybody beside this handle may hear a channel, from memory alone: false only when it is sure. What is
    /// not known becomes known when the channel is published to.
    pub fn may_be_heard(&self, space: Space, channel: &[u8]) -> bool {
        let process = self.process();
        // Whoever holds these at this moment changes them: better say yes than wait.
        let (Ok(reach), Ok(state)) = (process.reach.try_lock(), process.try_state()) else { return true };
        let Some(audience) = reach.remembered(process.page.version(), space, channel) else { return true };
        let own = state.roster.own(self.subscriber, space, channel);
        let here = process.number();
        audience.iter().any(|hearer| hearer.process != here || hearer.listeners > own.listeners)
    }

    /// Looks whether anybody beside this handle listens to anything. Gives the version of the roster for which nobody does.
    pub fn look_around(&self) -> Result<Option<u64>, Error> {
        self.process().check()?;
        self.process().look_around(self.subscriber)
    }

    pub fn roster_version(&self) -> RosterVersion {
        RosterVersion(self.process().page.clone())
    }

    /// Whether somebody wants to know what this handle, which hears everything, really listens to. True once.
    pub fn is_asked_to_narrow(&self) -> bool {
        let mut state = self.process().state();
        let asked = state.narrow;
        let Some(own) = state.subscribers.get_mut(&self.subscriber) else { return false };
        std::mem::replace(&mut own.narrowed, asked) != asked
    }

    /// Ends all subscriptions and cleans up. Dropping does the same and says nothing of what fails.
    pub fn close(mut self) -> Result<(), Error> {
        self.exit()
    }

    fn exit(&mut self) -> Result<(), Error> {
        match self.process.take() {
            Some(process) => process::exit(process, self.subscriber, self.options.patience),
            None => Ok(()),
        }
    }

    fn process(&self) -> &Arc<Process> {
        self.process.as_ref().expect("it is there until it is closed")
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = self.exit();
    }
}

impl Interrupter {
    /// Ends the wait that is under way, or the next one.
    pub fn interrupt(&self) {
        if let Some(process) = self.process.upgrade() {
            process.interrupt(self.subscriber);
        }
    }
}

impl RosterVersion {
    pub fn get(&self) -> u64 {
        self.0.version()
    }
}
