//! Copies of translated code, for a child: the code is in shared memory, which a fork does not
//! copy.

use alloc::vec::Vec;

use super::{REGION_BYTES, Region, Translator};
use crate::state::{State, TABLE_ENTRIES};
use crate::sys::{self, nr};

/// A copy of all translated code.
#[derive(Debug)]
pub(crate) struct Copied {
    /// For each region a descriptor of its memory.
    regions: Vec<i64>,
    /// The address of a copy of the table of targets, if several threads have it.
    table: Option<u64>,
}

impl Copied {
    /// Closes the descriptors.
    pub(crate) fn close(self) {
        for fd in self.regions {
            // SAFETY: the engine owns the descriptor.
            unsafe { sys::call(nr::CLOSE, [fd as u64, 0, 0, 0, 0, 0]) };
        }
        if let Some(at) = self.table {
            // SAFETY: the memory belongs to the copy.
            unsafe { sys::call(nr::MUNMAP, [at, 8 * TABLE_ENTRIES as u64, 0, 0, 0, 0]) };
        }
    }
}

impl Translator {
    /// Copies all translated code.
    pub(crate) fn copy(&self) -> Result<Copied, &'static str> {
        let mut copied = Copied { regions: Vec::new(), table: self.table_copy() };
        for region in &self.regions {
            match region.copy() {
                Ok(fd) => copied.regions.push(fd),
                Err(why) => {
                    copied.close();
                    return Err(why);
                }
            }
        }
        Ok(copied)
    }

    /// Replaces all translated code by its copy, in a child whose only thread has the data `state`.
    pub(crate) fn take(&mut self, copied: Copied, state: State) -> Result<(), &'static str> {
        const WHY: &str = "the system cannot map a copy of translated code";
        let mut taken = Ok(());
        let flags = sys::MAP_SHARED | sys::MAP_FIXED;
        let views = |region: &Region| {
            [
                (region.start, sys::PROT_READ | sys::PROT_EXEC),
                (region.start.wrapping_add(region.hot.shift), sys::PROT_READ | sys::PROT_WRITE),
            ]
        };
        for (region, &fd) in self.regions.iter().zip(&copied.regions) {
            for (at, rights) in views(region) {
                if sys::map(at, REGION_BYTES, rights, flags, fd, 0).is_none() {
                    taken = Err(WHY);
                }
            }
        }
        if let Some(table) = copied.table {
            self.take_table(state, table);
        }
        self.state = state;
        copied.close();
        taken
    }

    /// Unmaps all translated code.
    pub(crate) fn unmap(&self) {
        for region in &self.regions {
            for at in [region.start, region.start.wrapping_add(region.hot.shift)] {
                // SAFETY: the memory belongs to the engine, and no thread executes code in it.
                unsafe { sys::call(nr::MUNMAP, [at, REGION_BYTES, 0, 0, 0, 0]) };
            }
        }
    }
}

impl Region {
    /// Copies the code of the region into new memory. Returns its descriptor.
    fn copy(&self) -> Result<i64, &'static str> {
        let fd = super::memory()?;
        let [hot, cold] = self.beginnings();
        for (from, until) in [(hot, self.hot.at), (cold, self.cold.at)] {
            let mut at = from;
            while at < until {
                let (bytes, offset) = (until - at, at - self.start);
                // SAFETY: the memory belongs to the region.
                let done = unsafe { sys::call(nr::PWRITE64, [fd as u64, at, bytes, offset, 0, 0]) };
                if done <= 0 {
                    // SAFETY: the engine owns the descriptor.
                    unsafe { sys::call(nr::CLOSE, [fd as u64, 0, 0, 0, 0, 0]) };
                    return Err("the system gives no memory for a copy of translated code");
                }
                at += done as u64;
            }
        }
        Ok(fd)
    }
}
