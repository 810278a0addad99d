//! Translated code of several threads.
//!
//! Whoever changes code has the translator's lock, and others run the code meanwhile. So code that another
//! thread may run is only changed by single stores within one cache line: the displacement of a branch, and the
//! beginning of a retired block. Code is never dropped: if a region is full, another one is begun. All threads share
//! one table of targets.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Region, Translator};
use crate::emit::Code;
use crate::own;
use crate::state::{State, TABLE_ENTRIES};
use crate::sys::{self, nr};

/// The most regions.
const REGIONS_MAX: usize = 64;
const TABLE_BYTES: u64 = 8 * TABLE_ENTRIES as u64;
/// The size of a cache line in bytes.
const LINE_BYTES: u64 = 64;

/// The addresses of all regions: signal handlers look for them without the lock.
static REGIONS: [AtomicU64; REGIONS_MAX] = [const { AtomicU64::new(0) }; REGIONS_MAX];
/// The number of regions that have been claimed in this list.
static CLAIMED: AtomicUsize = AtomicUsize::new(0);

/// Whether `address` is in translated code.
pub(crate) fn holds(address: u64) -> bool {
    REGIONS
        .iter()
        .map(|region| region.load(Ordering::Relaxed))
        .take(CLAIMED.load(Ordering::Acquire))
        .any(|start| start != 0 && address.wrapping_sub(start) < super::REGION_BYTES)
}

impl Translator {
    /// Adds a region.
    pub(super) fn add(&mut self, mut region: Region) -> Result<usize, &'static str> {
        let at = self.regions.len();
        let claimed = CLAIMED.fetch_add(1, Ordering::AcqRel);
        let known = REGIONS.get(claimed).ok_or("it runs more code than the engine can keep")?;
        region.begin(self.enter, self.counting);
        known.store(region.start, Ordering::Release);
        self.regions.push(region);
        if at == 0 {
            self.clear_table();
        }
        Ok(at)
    }

    /// Whether there is executable memory at `pc`, as far as is known, or no other thread that could know more.
    pub(crate) fn is_known(&self, pc: u64) -> bool {
        self.is_alone || self.executable.iter().any(|part| part.start <= pc && pc < part.end)
    }

    /// Prepares for a second thread. False if there is no memory for that.
    pub(crate) fn share(&mut self) -> bool {
        if !self.is_alone {
            return true;
        }
        let name = c"pagewalk-targets".as_ptr() as u64;
        let at = self.state.0 + self.table as u64;
        // SAFETY: the name ends with a zero byte, and the contents of the table do not change
        // during the call.
        unsafe {
            let fd = sys::call(nr::MEMFD_CREATE, [name, 1, 0, 0, 0, 0]);
            if fd < 0 {
                return false;
            }
            let written = sys::call(nr::PWRITE64, [fd as u64, at, TABLE_BYTES, 0, 0, 0]);
            let rights = sys::PROT_READ | sys::PROT_WRITE;
            let is_mapped = written == TABLE_BYTES as i64
                && sys::map(at, TABLE_BYTES, rights, sys::MAP_SHARED | sys::MAP_FIXED, fd, 0)
                    .is_some();
            sys::call(nr::CLOSE, [fd as u64, 0, 0, 0, 0, 0]);
            self.is_alone = !is_mapped;
            is_mapped
        }
    }

    /// Gives the table of targets to a thread with this data.
    pub(crate) fn share_with(&self, state: State) -> bool {
        let (from, to) = (self.state.0 + self.table as u64, state.0 + self.table as u64);
        sys::again(from, TABLE_BYTES, to).is_some()
    }

    /// The contents of the table of targets, if several threads have it.
    pub(super) fn table_copy(&self) -> Option<u64> {
        if self.is_alone {
            return None;
        }
        let copy = own::private(TABLE_BYTES)?;
        let from = (self.state.0 + self.table as u64) as *const u64;
        // SAFETY: both tables have this number of entries.
        unsafe { core::ptr::copy_nonoverlapping(from, copy as *mut u64, TABLE_ENTRIES) };
        Some(copy)
    }

    /// In a child, whose only thread has this data: makes a copy of the table its own.
    pub(super) fn take_table(&mut self, state: State, copy: u64) {
        let at = state.0 + self.table as u64;
        let rights = sys::PROT_READ | sys::PROT_WRITE;
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
        if sys::map(at, TABLE_BYTES, rights, flags, -1, 0).is_some() {
            // SAFETY: as above.
            unsafe {
                core::ptr::copy_nonoverlapping(copy as *const u64, at as *mut u64, TABLE_ENTRIES)
            };
        }
        (self.state, self.is_alone) = (state, true);
    }
}

impl Code {
    /// Emits instructions without effect until `bytes` bytes, `before` bytes from here, are in one cache line.
    pub(super) fn align(&mut self, before: u64, bytes: u64) {
        while (self.at + before) % LINE_BYTES > LINE_BYTES - bytes {
            self.byte(0x90);
        }
    }
}
