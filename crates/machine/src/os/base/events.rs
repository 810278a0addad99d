//! What the events of a trace ask of the memory manager.

use addr::{Rights, VirtAddr, VirtRange};
use hat::HatSpace;
use trace::{Event, Origin};
use vm::Source;

use super::Base;
use crate::os::{Failure, Platform};

/// `MAP_SHARED` of `mmap`'s flags, and of `MAP_SHARED_VALIDATE`'s.
const MAP_SHARED: u32 = 1;
/// `MAP_ANONYMOUS`.
const MAP_ANONYMOUS: u32 = 0x20;
/// `MADV_DONTNEED`.
const MADV_DONTNEED: u32 = 4;
/// `MCL_CURRENT` and `MCL_FUTURE` of `mlockall`.
const MCL_CURRENT: u32 = 1;
const MCL_FUTURE: u32 = 2;
/// What Linux counts offsets of mappings in.
const FILE_PAGE_BYTES: u64 = 4096;

impl Base {
    /// Does what `event` asks for in the space that the trace calls `number`. Calls that failed ask
    /// for nothing.
    pub(super) fn apply(
        &mut self,
        number: u32,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let space = self.space(number, platform)?;
        match event {
            Event::Mapping { start, bytes, rights, origin, offset, file } => {
                let Some(range) = range(*start, *bytes) else { return Ok(()) };
                // A forked child has what its parent had.
                if self.vm.rights(space, range.start()).is_some() {
                    return Ok(());
                }
                let (path, name) = match origin {
                    Origin::File(path) => (Some(path.as_str()), path.as_str()),
                    Origin::Stack => (None, "stack"),
                    Origin::Heap => (None, "heap"),
                    Origin::Bss => (None, "bss"),
                    Origin::Other(name) => (None, name.as_str()),
                };
                let key = self.files.key(file.as_ref(), path);
                // Without an offset, pages of a file are told apart by where they are.
                let first = offset.unwrap_or(*start) / FILE_PAGE_BYTES;
                let source = key.map_or(Source::Anonymous, |key| Source::File {
                    key,
                    first: self.first(first),
                    shared: false,
                });
                self.map(space, range, Rights::from_bits(*rights & 7), source, name, platform)
            }
            Event::Mmap { bytes, prot, flags, offset, path, file, result, .. } => {
                let Some(range) = returned(*result, *bytes) else { return Ok(()) };
                let shared = flags & MAP_SHARED != 0;
                let anonymous = flags & MAP_ANONYMOUS != 0;
                let key = self.files.key(file.as_ref(), path.as_deref()).filter(|_| !anonymous);
                let first = self.first(offset / FILE_PAGE_BYTES);
                let source = match key {
                    Some(key) => Source::File { key, first, shared },
                    None if shared => Source::SharedMemory,
                    None => Source::Anonymous,
                };
                let name = path.as_deref().filter(|_| !anonymous).unwrap_or("anonymous");
                self.map(space, range, rights_of(*prot), source, name, platform)
            }
            Event::Shmat { id, bytes: Some(bytes), file, result, .. } => {
                let Some(range) = returned(*result, *bytes) else { return Ok(()) };
                let key = self.files.segment(file.as_ref(), *id);
                let source = Source::File { key, first: 0, shared: true };
                let rights = Rights::READ | Rights::WRITE;
                self.map(space, range, rights, source, "shared memory", platform)
            }
            Event::Munmap { addr, bytes, result: 0 } => {
                let Some(range) = range(*addr, *bytes) else { return Ok(()) };
                self.with(platform, |kernel| kernel.unmap(space, range))
            }
            Event::Mprotect { addr, bytes, prot, result: 0 } => {
                let Some(range) = range(*addr, *bytes) else { return Ok(()) };
                let rights = rights_of(*prot);
                self.with(platform, |kernel| kernel.protect(space, range, rights))
            }
            Event::Mremap { addr, old_bytes, new_bytes, result, .. } => {
                let (from, to) = (range(*addr, *old_bytes), returned(*result, *new_bytes));
                let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
                self.with(platform, |kernel| kernel.move_pages(space, from, to.start(), to.bytes()))
            }
            Event::Brk { result, .. } => {
                let Ok(now) = u64::try_from(*result) else { return Ok(()) };
                let regions = platform.layout().regions(number);
                let before = regions.and_then(|regions| regions.program_break()).unwrap_or(now);
                let (before, now) = (VirtAddr::new(before), VirtAddr::new(now));
                let label = self.files.label("heap");
                self.with(platform, |kernel| kernel.set_break(space, before, now, label))
            }
            Event::Madvise { addr, bytes, advice: MADV_DONTNEED, result: 0 } => {
                let Some(range) = range(*addr, *bytes) else { return Ok(()) };
                self.with(platform, |kernel| kernel.discard(space, range))
            }
            Event::Mlock { addr, bytes, result: 0, .. } => {
                let Some(range) = range(*addr, *bytes) else { return Ok(()) };
                self.with(platform, |kernel| kernel.lock(space, range))
            }
            Event::Munlock { addr, bytes, result: 0 } => {
                let Some(range) = range(*addr, *bytes) else { return Ok(()) };
                self.with(platform, |kernel| kernel.unlock(space, range))
            }
            Event::Mlockall { flags, result: 0 } => {
                let (current, future) = (flags & MCL_CURRENT != 0, flags & MCL_FUTURE != 0);
                self.with(platform, |kernel| kernel.lock_all(space, current, future))
            }
            Event::Munlockall { result: 0 } => {
                self.with(platform, |kernel| kernel.unlock_all(space))
            }
            // A child that shares the space goes on in it; one that the trace does not have takes
            // no frames.
            Event::Fork { result, flags } => {
                if flags & trace::CLONE_VM != 0 || !self.forked.remove(result) {
                    return Ok(());
                }
                let child = self.with(platform, |kernel| {
                    let child = kernel.create()?;
                    kernel.fork(space, child)?;
                    Ok(child)
                })?;
                self.children.push_back(child);
                Ok(())
            }
            // The space may be used again: its page table stays.
            Event::Execve { result: 0, .. } | Event::Exit { group: true, .. } => {
                self.with(platform, |kernel| kernel.exec(space))
            }
            // They failed, or give advice that asks for no page to go, or end a thread.
            Event::Shmat { .. }
            | Event::Munmap { .. }
            | Event::Mprotect { .. }
            | Event::Madvise { .. }
            | Event::Mlock { .. }
            | Event::Munlock { .. }
            | Event::Mlockall { .. }
            | Event::Munlockall { .. }
            | Event::Execve { .. }
            | Event::Exit { .. } => Ok(()),
            // A segment that is detached keeps its pages until something is mapped over them.
            Event::Shmdt { .. } => Ok(()),
            // What is advised for another process is not followed to it. Dirty pages are written
            // when they leave memory. There is one node, and one size of pages.
            Event::ProcessMadvise { .. }
            | Event::Msync { .. }
            | Event::Mbind { .. }
            | Event::HugePages { .. }
            | Event::PageSize { .. } => Ok(()),
            // They tell and ask for nothing.
            Event::Clone { .. }
            | Event::Call(_)
            | Event::ThreadStart { .. }
            | Event::ThreadEnd
            | Event::Marker { .. }
            | Event::Run { .. }
            | Event::Process { .. }
            | Event::ContextSwitch { .. }
            | Event::WarmupEnd
            | Event::Gap { .. } => Ok(()),
        }
    }

    fn map(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        rights: Rights,
        source: Source,
        name: &str,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let label = self.files.label(name);
        self.with(platform, |kernel| kernel.map(space, range, rights, source, label))
    }

    /// The page of a file in which its page of 4 KiB is.
    fn first(&self, file_page: u64) -> u64 {
        file_page * FILE_PAGE_BYTES / self.vm.base().bytes()
    }
}

fn rights_of(prot: u32) -> Rights {
    Rights::from_bits((prot & 7) as u8)
}

fn range(start: u64, bytes: u64) -> Option<VirtRange> {
    VirtRange::new(VirtAddr::new(start), bytes).ok()
}

/// What a call has mapped, if it succeeded.
fn returned(result: i64, bytes: u64) -> Option<VirtRange> {
    range(u64::try_from(result).ok()?, bytes)
}
