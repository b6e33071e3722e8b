//! The public API: a handle is one subscriber, and can publish.

use crate::error::Error;
use crate::inspect::{Inspector, Stat};
use crate::limits;
use crate::message::{ChannelNamespace, Draft, Interest, InterestKind, Message};
use crate::open_folder::OpenFolder;
use crate::options::Options;
use crate::publisher::Publisher;
use crate::version::SharedVersion;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A handle on a folder: it publishes, and receives what it subscribes to. Closed when dropped.
///
/// All methods take `&self`; threads may share a handle. The handles of one process on one folder share its descriptors,
/// however many there are.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let local = tavern_local::open(folder)?;
/// local.subscribe(["news"])?;
/// local.publish("news", "hello")?;
/// assert_eq!(local.poll()?.expect("a message").payload(), b"hello");
/// local.close()?;
/// # Ok::<(), tavern_local::Error>(())
/// ```
pub struct Local {
    /// `None` once it is closed.
    folder: Option<Arc<OpenFolder>>,
    subscriber: u64,
    options: Options,
}

/// Ends a [`Local::wait`] from another thread.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let local = tavern_local::open(folder)?;
/// let interrupter = local.interrupter();
/// std::thread::spawn(move || interrupter.interrupt());
/// assert!(local.wait(None)?.is_none());
/// # Ok::<(), tavern_local::Error>(())
/// ```
#[derive(Clone)]
pub struct Interrupter {
    // Weak: it may outlive the handle, and must not keep the folder open then.
    folder: Weak<OpenFolder>,
    subscriber: u64,
}

/// The version of a folder's subscriptions: it grows with every change, at once for all processes. Reading it is one
/// load from memory. It stays readable after its handle is closed.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let local = tavern_local::open(folder)?;
/// let version = local.subscriptions_version();
/// let before = version.get();
/// local.subscribe(["news"])?;
/// assert!(version.get() > before);
/// # Ok::<(), tavern_local::Error>(())
/// ```
#[derive(Clone)]
pub struct SubscriptionsVersion(Arc<SharedVersion>);

/// Opens a folder with default [`Options`]. Creates it if it does not exist, and cleans up after dead processes.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let local = tavern_local::open(folder.join("bus"))?;
/// assert_eq!(local.publish("news", "hello")?, 0);
/// # Ok::<(), tavern_local::Error>(())
/// ```
pub fn open(folder: impl AsRef<Path>) -> Result<Local, Error> {
    Local::open_with(folder, Options::default())
}

impl Local {
    /// Opens a folder with options.
    pub fn open_with(folder: impl AsRef<Path>, options: Options) -> Result<Local, Error> {
        let (folder, subscriber) = OpenFolder::acquire(folder.as_ref(), &options)?;
        let local = Local { folder: Some(folder), subscriber, options };
        if local.options.sweep_on_open {
            local.sweep()?;
        }
        Ok(local)
    }

    /// Subscribes to channels. Returns how many channels and patterns this handle is subscribed to then.
    pub fn subscribe<N: AsRef<[u8]>>(&self, channels: impl IntoIterator<Item = N>) -> Result<usize, Error> {
        self.add_interests(channels.into_iter().map(Interest::channel))
    }

    /// Subscribes to channels whose names match Redis globs: `*`, `?`, `[a-z]`, `[^x]`, `\` before a special character.
    pub fn psubscribe<N: AsRef<[u8]>>(&self, patterns: impl IntoIterator<Item = N>) -> Result<usize, Error> {
        self.add_interests(patterns.into_iter().map(Interest::pattern))
    }

    /// Unsubscribes from channels. Messages published before are still delivered.
    pub fn unsubscribe<N: AsRef<[u8]>>(&self, channels: impl IntoIterator<Item = N>) -> Result<usize, Error> {
        self.remove_interests(channels.into_iter().map(Interest::channel))
    }

    /// Unsubscribes from patterns. Messages published before are still delivered.
    pub fn punsubscribe<N: AsRef<[u8]>>(
        &self,
        patterns: impl IntoIterator<Item = N>,
    ) -> Result<usize, Error> {
        self.remove_interests(patterns.into_iter().map(Interest::pattern))
    }

    /// Unsubscribes this handle from all its public channels.
    pub fn unsubscribe_all(&self) -> Result<usize, Error> {
        self.remove_interests(self.interests(InterestKind::Channel)?)
    }

    /// Unsubscribes this handle from all its public patterns.
    pub fn punsubscribe_all(&self) -> Result<usize, Error> {
        self.remove_interests(self.interests(InterestKind::Pattern)?)
    }

    /// Subscribes to interests of any kind. They are in force when this returns.
    pub fn add_interests(&self, interests: impl IntoIterator<Item = Interest>) -> Result<usize, Error> {
        let interests: BTreeSet<Interest> = interests.into_iter().collect();
        let limit = limits::MESSAGE_BYTES;
        if let Some(long) = interests.iter().find(|interest| interest.name.len() > limit) {
            return Err(Error::TooLarge { what: "name", bytes: long.name.len(), limit });
        }
        let folder = self.folder();
        folder.process.check()?;
        let timeout = self.options.busy_timeout;
        folder.receiver().add_interests(&folder.process, self.subscriber, interests, timeout)
    }

    /// Unsubscribes from interests of any kind. Messages published before are still delivered.
    pub fn remove_interests(&self, interests: impl IntoIterator<Item = Interest>) -> Result<usize, Error> {
        let interests = interests.into_iter().collect();
        let folder = self.folder();
        folder.process.check()?;
        let timeout = self.options.busy_timeout;
        folder.receiver().remove_interests(&folder.process, self.subscriber, interests, timeout)
    }

    /// The public interests of one kind that this handle has.
    fn interests(&self, kind: InterestKind) -> Result<Vec<Interest>, Error> {
        self.folder().process.check()?;
        let receiver = self.folder().receiver();
        let own = receiver.subscribers.get(self.subscriber).into_iter().flat_map(|own| own.interests.iter());
        let is_asked =
            |interest: &&Interest| interest.kind == kind && interest.namespace == ChannelNamespace::Public;
        Ok(own.filter(is_asked).cloned().collect())
    }

    /// Publishes a message. Returns how many subscriptions received it.
    pub fn publish(&self, channel: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<u64, Error> {
        let draft = Draft::new(channel.as_ref(), payload.as_ref());
        Ok(self.publish_all(&[draft])?.first().copied().unwrap_or(0))
    }

    /// Publishes many messages in order, much faster than one by one. Returns how many subscriptions received each. A
    /// long list is written in several transactions: when one fails, those before it are published.
    pub fn publish_all(&self, drafts: &[Draft<'_>]) -> Result<Vec<u64>, Error> {
        let publisher =
            Publisher { folder: self.folder(), subscriber: self.subscriber, options: &self.options };
        publisher.publish(drafts)
    }

    /// The next message, if there is one. Never waits for one.
    pub fn poll(&self) -> Result<Option<Message>, Error> {
        self.folder().poll(self.subscriber, self.options.busy_timeout)
    }

    /// Waits for the next message; without a timeout, for ever. `None`: the time is over, or another thread
    /// [interrupted](Local::interrupter) it.
    pub fn wait(&self, timeout: impl Into<Option<Duration>>) -> Result<Option<Message>, Error> {
        self.folder().wait(self.subscriber, timeout.into(), self.options.busy_timeout)
    }

    /// A handle with which another thread ends a wait of this one.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { folder: Arc::downgrade(self.folder()), subscriber: self.subscriber }
    }

    /// Public channels with subscriptions, sorted; only those that match a pattern, if one is given.
    pub fn channels(&self, pattern: Option<&[u8]>) -> Result<Vec<Vec<u8>>, Error> {
        self.inspector().channels(pattern)
    }

    /// How many subscriptions each channel has. Patterns do not count.
    pub fn numsub<N: AsRef<[u8]>>(
        &self,
        channels: impl IntoIterator<Item = N>,
    ) -> Result<Vec<(N, u64)>, Error> {
        let count = |name: N| {
            let count = self.inspector().numsub(name.as_ref())?;
            Ok((name, count))
        };
        channels.into_iter().map(count).collect()
    }

    /// How many different patterns are subscribed to.
    pub fn numpat(&self) -> Result<u64, Error> {
        self.inspector().numpat()
    }

    /// The state of the folder: its processes, their queues, the log.
    pub fn stat(&self) -> Result<Stat, Error> {
        self.inspector().stat()
    }

    /// Cleans up after dead processes. Returns how many there were. Opening and publishing do this by themselves.
    pub fn sweep(&self) -> Result<usize, Error> {
        self.folder().process.check()?;
        self.folder().process.database.sweep(self.options.busy_timeout)
    }

    /// Whether a message to a channel may reach anyone but this handle. Answers from memory, false only if it is
    /// certain. Publishing to the channel makes it known.
    pub fn may_have_subscribers(&self, namespace: ChannelNamespace, channel: &[u8]) -> bool {
        let folder = self.folder();
        // Another thread is changing one of these: answer yes rather than wait.
        let (Some(audiences), Some(receiver)) = (folder.try_audiences(), folder.try_receiver()) else {
            return true;
        };
        let Some(audience) = audiences.get(folder.version(), namespace, channel) else { return true };
        let own = receiver.subscribers.routes.matches(self.subscriber, namespace, channel);
        let here = folder.process.number();
        audience
            .iter()
            .any(|recipient| recipient.process != here || recipient.subscriptions > own.subscriptions)
    }

    /// The version of the subscriptions, if all subscriptions of the folder belong to this handle. As long as
    /// [`Local::subscriptions_version`] returns the same, publishing reaches no one else.
    pub fn version_if_alone(&self) -> Result<Option<u64>, Error> {
        self.inspector().version_if_alone(self.subscriber)
    }

    /// The version of the folder's subscriptions.
    pub fn subscriptions_version(&self) -> SubscriptionsVersion {
        SubscriptionsVersion(self.folder().process.database.version.clone())
    }

    /// Whether a publisher has asked this handle, which subscribes to [everything](Interest::everything), to subscribe to
    /// the names it really wants instead. True once per request; a request also ends [`Local::wait`].
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// use tavern_local::{Interest, ChannelNamespace};
    ///
    /// let local = tavern_local::open(folder)?;
    /// local.add_interests([Interest::everything(ChannelNamespace::Public)])?;
    /// if local.take_narrow_request() {
    ///     local.subscribe(["news"])?;
    ///     local.remove_interests([Interest::everything(ChannelNamespace::Public)])?;
    /// }
    /// # Ok::<(), tavern_local::Error>(())
    /// ```
    pub fn take_narrow_request(&self) -> bool {
        self.folder().receiver().subscribers.take_narrow_request(self.subscriber)
    }

    /// Ends all subscriptions and cleans up. Dropping does the same and ignores errors.
    pub fn close(mut self) -> Result<(), Error> {
        self.release()
    }

    fn release(&mut self) -> Result<(), Error> {
        match self.folder.take() {
            Some(folder) => folder.release(self.subscriber, self.options.busy_timeout),
            None => Ok(()),
        }
    }

    fn inspector(&self) -> Inspector<'_> {
        Inspector(self.folder())
    }

    fn folder(&self) -> &Arc<OpenFolder> {
        self.folder.as_ref().expect("it is there until the handle is closed")
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

impl Interrupter {
    /// Ends the current wait, or the next one.
    pub fn interrupt(&self) {
        if let Some(folder) = self.folder.upgrade() {
            folder.interrupt(self.subscriber);
        }
    }
}

impl SubscriptionsVersion {
    /// The current version.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}
