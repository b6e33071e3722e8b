//! One number that all processes of a folder share: the version of who listens to what. Reading it costs a load, so a
//! publisher knows without asking the disk whether what it remembers still holds.
//! Must hold: a subscription is in the database, then here, then confirmed.

use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const BYTES: usize = 4096;

pub struct Page {
    start: NonNull<AtomicU64>,
}

// SAFETY: the mapping is plain memory that lives as long as the page and is touched through an atomic only.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Maps the file. The caller has its turn to write: nobody else gives the file its size meanwhile.
    pub fn map(file: &File) -> io::Result<Page> {
        if file.metadata()?.len() < BYTES as u64 {
            // Written, not stretched: a hole in a full file system could not be stored to later.
            file.write_all_at(&[0; BYTES], 0)?;
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; it aliases nothing of ours.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Page { start })
    }

    pub fn version(&self) -> u64 {
        self.number().load(Ordering::SeqCst)
    }

    /// It only grows, whoever comes first.
    pub fn raise(&self, version: u64) {
        self.number().fetch_max(version, Ordering::SeqCst);
    }

    fn number(&self) -> &AtomicU64 {
        // SAFETY: mapped, aligned to a page, and unmapped by `drop` only.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, and nobody refers to it after this.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), BYTES) };
    }
}
