//! A number in memory that all processes of a folder share: the version of its subscriptions. Reading it is one load, so
//! a publisher knows without a query whether its cache is current.
//! Must hold: a subscription is committed to the database, then raises this version, then is confirmed.

use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: usize = 4096;

pub struct SharedVersion {
    page: NonNull<AtomicU64>,
}

// SAFETY: the mapping is plain memory that lives as long as this value and is accessed through an atomic only.
unsafe impl Send for SharedVersion {}
// SAFETY: as above.
unsafe impl Sync for SharedVersion {}

impl SharedVersion {
    /// Maps the file. The caller holds the write lock: nothing else resizes the file at the same time.
    pub fn map(file: &File) -> io::Result<SharedVersion> {
        if file.metadata()?.len() < PAGE_BYTES as u64 {
            // Written, not extended: storing to a hole fails later if the disk is full.
            file.write_all_at(&[0; PAGE_BYTES], 0)?;
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; it aliases nothing of ours.
        let page = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), PAGE_BYTES, protection, MapFlags::SHARED, file, 0)?
        };
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedVersion { page })
    }

    pub fn get(&self) -> u64 {
        self.number().load(Ordering::SeqCst)
    }

    /// Sets it, unless another process has set a higher one.
    pub fn raise(&self, version: u64) {
        self.number().fetch_max(version, Ordering::SeqCst);
    }

    fn number(&self) -> &AtomicU64 {
        // SAFETY: mapped, page-aligned, and unmapped by `drop` only.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for SharedVersion {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, and nothing refers to it after this.
        let _ = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}
