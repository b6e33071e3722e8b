//! A folder that this process has open. All handles of the process on that folder share it, so a thousand subscribers
//! need no descriptor each. Must hold: the lock file is open once; opening and closing are serialised; a forked child
//! touches nothing of its parent's.

mod wait;

use crate::audience::AudienceCache;
use crate::error::Error;
use crate::folder::{FolderIdentity, LocalFolder};
use crate::options::Options;
use crate::process::Process;
use crate::receiver::FolderReceiver;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

pub struct OpenFolder {
    identity: FolderIdentity,
    pub process: Process,
    audiences: Mutex<AudienceCache>,
    receiver: Mutex<FolderReceiver>,
}

/// The folders that this process has open, each with the number of its handles.
static OPEN: Mutex<BTreeMap<u64, OpenEntry>> = Mutex::new(BTreeMap::new());
/// The process that opened them. A child forked since then must not even take the mutex above.
static OPENER: AtomicU32 = AtomicU32::new(0);

struct OpenEntry {
    folder: Arc<OpenFolder>,
    handles: usize,
}

impl OpenFolder {
    /// Opens a folder, or finds it open, and adds a subscriber to it.
    pub fn acquire(path: &Path, options: &Options) -> Result<(Arc<OpenFolder>, u64), Error> {
        let pid = std::process::id();
        let opener = OPENER.load(Ordering::SeqCst);
        if opener != 0 && opener != pid {
            return Err(Error::Forked);
        }
        let folder = LocalFolder::open(path)?;
        let mut open = lock(&OPEN);
        OPENER.store(pid, Ordering::SeqCst);
        if let Some(entry) = open.values_mut().find(|entry| entry.folder.identity == folder.identity) {
            entry.handles += 1;
            let subscriber = entry.folder.receiver().add_subscriber(options);
            return Ok((entry.folder.clone(), subscriber));
        }
        let opened = OpenFolder::new(folder, options);
        if opened.is_err() && open.is_empty() {
            OPENER.store(0, Ordering::SeqCst);
        }
        let folder = Arc::new(opened?);
        let subscriber = folder.receiver().add_subscriber(options);
        let key = open.last_key_value().map_or(0, |(key, _)| key + 1);
        open.insert(key, OpenEntry { folder: folder.clone(), handles: 1 });
        Ok((folder, subscriber))
    }

    /// Removes a subscriber. With the last one, unregisters the process and closes the folder.
    pub fn release(self: Arc<OpenFolder>, subscriber: u64, timeout: Duration) -> Result<(), Error> {
        if self.process.check().is_err() {
            // A forked child: whatever it would close or release belongs to its parent.
            std::mem::forget(self);
            return Ok(());
        }
        let removed = self.receiver().remove_subscriber(&self.process, subscriber, timeout);
        let mut open = lock(&OPEN);
        let key = open.iter().find(|(_, entry)| Arc::ptr_eq(&entry.folder, &self)).map(|(key, _)| *key);
        let Some(key) = key else { return removed };
        let entry = open.get_mut(&key).expect("it was found above");
        entry.handles -= 1;
        if entry.handles > 0 {
            return removed;
        }
        let unregistered = self.process.unregister(timeout);
        open.remove(&key);
        close(self);
        if open.is_empty() {
            OPENER.store(0, Ordering::SeqCst);
        }
        removed.and(unregistered)
    }

    fn new(folder: LocalFolder, options: &Options) -> Result<OpenFolder, Error> {
        Ok(OpenFolder {
            identity: folder.identity,
            process: Process::open(folder, options)?,
            audiences: Mutex::default(),
            receiver: Mutex::new(FolderReceiver::new()),
        })
    }

    pub fn receiver(&self) -> MutexGuard<'_, FolderReceiver> {
        lock(&self.receiver)
    }

    /// The receiver, unless another thread holds it.
    pub fn try_receiver(&self) -> Option<MutexGuard<'_, FolderReceiver>> {
        try_lock(&self.receiver)
    }

    pub fn audiences(&self) -> MutexGuard<'_, AudienceCache> {
        lock(&self.audiences)
    }

    /// The audience cache, unless another thread holds it.
    pub fn try_audiences(&self) -> Option<MutexGuard<'_, AudienceCache>> {
        try_lock(&self.audiences)
    }

    /// The current version of the subscriptions.
    pub fn version(&self) -> u64 {
        self.process.database.version.get()
    }
}

/// Closes everything before the folder may be opened again: closing later would release the locks of the next opener.
fn close(mut folder: Arc<OpenFolder>) {
    // An interrupter may hold it for a moment.
    while let Err(held) = Arc::try_unwrap(folder) {
        folder = held;
        std::thread::yield_now();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked while it held one of these left a valid value: nothing is changed in two steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
