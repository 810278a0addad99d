//! The platform of the tests. The contents of each frame and of each page on disk are a number.
//! TLBs drop an entry only when it is flushed.

use alloc::collections::{BTreeMap, BTreeSet};

use addr::{PhysAddr, VirtAddr};
use hat::HatSpace;
use pagetable::{Flush, Translation};
use vm::{FileKey, Io, IoError, Platform, Store};

use crate::heap::unrefused;

#[derive(Default)]
pub(crate) struct Board {
    pub(crate) contents: BTreeMap<PhysAddr, u64>,
    disk: BTreeMap<Store, u64>,
    pub(crate) tlb: BTreeMap<(HatSpace, VirtAddr), Translation>,
    pub(crate) swap_reads: u64,
    /// The pages that the disk cannot transfer.
    pub(crate) broken: BTreeSet<Store>,
    /// Whether the disk cannot write to swap.
    pub(crate) swap_is_broken: bool,
}

impl Board {
    /// The contents that the disk has for a page of a file.
    pub(crate) fn on_disk(&self, file: FileKey, index: u64) -> u64 {
        let stored = self.disk.get(&Store::File(file, index)).copied();
        stored.unwrap_or_else(|| original(file, index))
    }
}

/// The initial contents of a page of a file.
pub(crate) fn original(file: FileKey, index: u64) -> u64 {
    1 << 60 | file.inode << 32 | index
}

impl Platform for Board {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        for (space, flush) in flushes {
            self.tlb.retain(|&(of, _), held| of != *space || !flush.scope().covers(held.page));
        }
    }

    fn zero(&mut self, frame: PhysAddr, _: u64) {
        unrefused(|| self.contents.insert(frame, 0));
    }

    fn copy(&mut self, from: PhysAddr, to: PhysAddr, _: u64) {
        let copied = self.contents[&from];
        unrefused(|| self.contents.insert(to, copied));
    }

    fn try_transfer(&mut self, io: Io) -> Result<(), IoError> {
        let is_lost = io.write && self.swap_is_broken && matches!(io.store, Store::Swap(_));
        if is_lost || self.broken.contains(&io.store) {
            return Err(IoError);
        }
        self.transfer(io);
        Ok(())
    }

    fn transfer(&mut self, io: Io) {
        if io.write {
            unrefused(|| self.disk.insert(io.store, self.contents[&io.frame]));
            return;
        }
        let stored = self.disk.get(&io.store).copied();
        let stored = match io.store {
            Store::File(file, index) => stored.unwrap_or_else(|| original(file, index)),
            Store::Swap(_) => {
                self.swap_reads += 1;
                self.disk.remove(&io.store);
                stored.expect("what is read from swap was written there")
            }
        };
        unrefused(|| self.contents.insert(io.frame, stored));
    }
}
