//! The mapping of the session, and this process's place in it.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::Ordering;

use ring::{
    Block, CHUNK_BYTES, CHUNKS_MAX, ChunkState, MAGIC, Origin, PROCESSES_MAX, Process,
    ProcessState, Ring, SESSION_BYTES, Session, VERSION, chunk_offset, next_offset, process_offset,
    ring_offset,
};

use crate::wait;

/// The mapped session.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    base: *mut u8,
}

impl Shared {
    /// Not mapped.
    pub(crate) const NONE: Shared = Shared { base: ptr::null_mut() };

    /// Maps the session at `path`, or says what is wrong.
    pub(crate) fn open(path: &CStr) -> Result<Shared, &'static str> {
        // SAFETY: plain system calls on a terminated path; every result is checked.
        unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if fd < 0 {
                return Err("cannot open the session");
            }
            let mut stat: libc::stat = core::mem::zeroed();
            if libc::fstat(fd, &mut stat) != 0 || stat.st_size as usize != SESSION_BYTES {
                libc::close(fd);
                return Err("the session has another size: plugin and pagewalk differ in version");
            }
            // The plugin sees the end of a span by the low bits of a pointer, so chunks must
            // be as aligned in memory as they are in the file.
            let room = libc::mmap(
                ptr::null_mut(),
                SESSION_BYTES + CHUNK_BYTES,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if room == libc::MAP_FAILED {
                libc::close(fd);
                return Err("no address space for the session");
            }
            let start = (room as usize).next_multiple_of(CHUNK_BYTES);
            let base = libc::mmap(
                start as *mut _,
                SESSION_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
                fd,
                0,
            );
            libc::close(fd);
            if base == libc::MAP_FAILED {
                return Err("cannot map the session");
            }
            let shared = Shared { base: base.cast() };
            let session = shared.session();
            if session.magic != MAGIC || session.version != VERSION {
                return Err("the session is of another version of pagewalk");
            }
            Ok(shared)
        }
    }

    /// Lets nobody in this process touch the session, or lets it again. `mlockall` would bring all
    /// of what can be touched into memory, and the session's file is sparse.
    pub(crate) fn hide(&self, hidden: bool) {
        let rights = if hidden { libc::PROT_NONE } else { libc::PROT_READ | libc::PROT_WRITE };
        // SAFETY: the mapping is ours; whoever hides it does not touch it until it is back.
        if unsafe { libc::mprotect(self.base.cast(), SESSION_BYTES, rights) } != 0 && !hidden {
            // SAFETY: there is nothing to go on with.
            unsafe { libc::abort() };
        }
    }

    /// What all processes share.
    pub(crate) fn session(&self) -> &'static Session {
        // SAFETY: the mapping stays for the life of the process and begins with a `Session`.
        unsafe { &*self.base.cast() }
    }

    /// The process slot of that number.
    pub(crate) fn process(&self, index: usize) -> &'static Process {
        // SAFETY: the offset is inside the mapping; all fields are atomic.
        unsafe { &*self.base.add(process_offset(index)).cast() }
    }

    /// The header of the chunk of that number.
    pub(crate) fn ring(&self, index: usize) -> &'static Ring {
        // SAFETY: as above.
        unsafe { &*self.base.add(ring_offset(index)).cast() }
    }

    /// The cursors of the process slot of that number.
    pub(crate) fn nexts(&self, index: usize) -> *mut u8 {
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.add(next_offset(index)) }
    }

    /// The records of the chunk of that number.
    pub(crate) fn records(&self, index: usize) -> *mut u64 {
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.add(chunk_offset(index)).cast() }
    }

    /// The descriptors of the chunk of that number.
    pub(crate) fn blocks(&self, index: usize) -> *mut Block {
        self.records(index).cast()
    }

    /// Takes a free chunk for this process, the lowest there is.
    pub(crate) fn claim_chunk(&self) -> Option<usize> {
        for index in 0..CHUNKS_MAX {
            let state = &self.ring(index).state;
            let (free, claimed) = (ChunkState::Free as u32, ChunkState::Claimed as u32);
            if state.load(Ordering::Relaxed) == free
                && state
                    .compare_exchange(free, claimed, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                self.session().chunks_high.fetch_max(index as u32 + 1, Ordering::AcqRel);
                return Some(index);
            }
        }
        self.session().lost.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Takes a slot for this process and makes it live.
    ///
    /// A forked process knows its `parent`'s place and the flags with which it was forked.
    pub(crate) fn enter(&self, machine: u32, parent: Option<(&Place, u32)>) -> Option<Place> {
        // SAFETY: no arguments, cannot fail.
        let pid = unsafe { libc::getpid() } as u32;
        let high = self.session().processes_high.load(Ordering::Acquire) as usize;
        let was_recorded = (0..high).any(|slot| {
            let process = self.process(slot);
            process.state.load(Ordering::Acquire) == ProcessState::Live as u32
                && process.pid.load(Ordering::Relaxed) == pid
        });
        for slot in 0..PROCESSES_MAX {
            let process = self.process(slot);
            let (free, claimed) = (ProcessState::Free as u32, ProcessState::Claimed as u32);
            if process
                .state
                .compare_exchange(free, claimed, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            let session = self.session();
            let generation = session.arrivals.load(Ordering::Relaxed).wrapping_add(1);
            let (origin, from, from_generation, blocks) = match parent {
                Some((place, _)) => {
                    let blocks = self.process(place.slot).blocks.load(Ordering::Relaxed);
                    (Origin::Forked, place.slot as u32, place.generation, blocks)
                }
                None if was_recorded => (Origin::Executed, 0, 0, 0),
                None => (Origin::Started, 0, 0, 0),
            };
            for (word, value) in [
                (&process.pid, pid),
                (&process.machine, machine),
                (&process.origin, origin as u32),
                (&process.parent, from),
                (&process.parent_generation, from_generation),
                (&process.blocks_inherited, blocks),
                (&process.blocks, blocks),
                (&process.tags, 0),
                (&process.generation, generation),
                (&process.stop, 0),
                (&process.leaving, 0),
                (&process.executing, 0),
                (&process.counting, 0),
                (&process.threads, 0),
                (&process.fork_flags, parent.map_or(0, |(_, flags)| flags)),
            ] {
                word.store(value, Ordering::Relaxed);
            }
            process.skipped_accesses.store(0, Ordering::Relaxed);
            process.skipped_instructions.store(0, Ordering::Relaxed);
            process.began_ns.store(wait::now(), Ordering::Relaxed);
            process.state.store(ProcessState::Live as u32, Ordering::Release);
            session.processes_high.fetch_max(slot as u32 + 1, Ordering::AcqRel);
            wait::announce(session);
            return Some(Place { slot, generation, blocks_inherited: blocks });
        }
        self.session().lost.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// A process's slot.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) slot: usize,
    pub(crate) generation: u32,
    /// The number of its log's first block.
    pub(crate) blocks_inherited: u32,
}
