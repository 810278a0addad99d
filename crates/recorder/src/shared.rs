//! The mapping of the session, and this process's slot in it.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use ring::{
    Block, CHUNK_BYTES, Entrant, MAGIC, Origin, Process, ProcessState, Ring, SESSION_BYTES,
    Session, Slot, VERSION, chunk_offset, next_offset, process_offset, ring_offset,
};

use crate::wait;

/// The mapped session.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    base: *mut u8,
}

impl Shared {
    /// No mapping.
    pub(crate) const NONE: Shared = Shared { base: ptr::null_mut() };

    /// Maps the session at `path`. The error says what is wrong.
    pub(crate) fn open(path: &CStr) -> Result<Shared, &'static str> {
        // SAFETY: plain system calls on a terminated path; every result is checked.
        unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if fd < 0 {
                return Err("it cannot open the file of the recording's shared memory");
            }
            let mut stat: libc::stat = core::mem::zeroed();
            if libc::fstat(fd, &mut stat) != 0 || stat.st_size as usize != SESSION_BYTES {
                libc::close(fd);
                return Err(
                    "the recorder's version is not that of pagewalk: build the recorder and pagewalk again",
                );
            }
            // The plugin detects the end of a span by the low bits of a pointer. So chunks must
            // have the same alignment in memory as in the file.
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
                return Err("this process has no free address range that is large enough for the \
                     recording's shared memory");
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
                return Err("it cannot map the recording's shared memory");
            }
            let shared = Shared { base: base.cast() };
            let session = shared.session();
            if session.magic != MAGIC || session.version != VERSION {
                return Err(
                    "the recorder's version is not that of pagewalk: build the recorder and pagewalk again",
                );
            }
            Ok(shared)
        }
    }

    /// Makes the session inaccessible to this process, or accessible again. `mlockall` would
    /// otherwise load all accessible memory, and the session's file is sparse.
    pub(crate) fn hide(&self, hidden: bool) {
        let rights = if hidden { libc::PROT_NONE } else { libc::PROT_READ | libc::PROT_WRITE };
        // SAFETY: the mapping belongs to the recorder. A caller that hides it does not access it
        // until it is accessible again.
        if unsafe { libc::mprotect(self.base.cast(), SESSION_BYTES, rights) } != 0 && !hidden {
            // SAFETY: the process cannot continue without the session.
            unsafe { libc::abort() };
        }
    }

    /// The data common to all processes.
    pub(crate) fn session(&self) -> &'static Session {
        // SAFETY: the mapping stays for the life of the process and begins with a `Session`.
        unsafe { &*self.base.cast() }
    }

    /// The process slot with this index.
    pub(crate) fn process(&self, index: usize) -> &'static Process {
        // SAFETY: the offset is inside the mapping; all fields are atomic.
        unsafe { &*self.base.add(process_offset(index)).cast() }
    }

    /// The header of the chunk with this index.
    pub(crate) fn ring(&self, index: usize) -> &'static Ring {
        // SAFETY: as above.
        unsafe { &*self.base.add(ring_offset(index)).cast() }
    }

    /// The cursors of the process slot with this index.
    pub(crate) fn nexts(&self, index: usize) -> *mut u8 {
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.add(next_offset(index)) }
    }

    /// The records of the chunk with this index.
    pub(crate) fn records(&self, index: usize) -> *mut u64 {
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.add(chunk_offset(index)).cast() }
    }

    /// The block descriptors of the chunk with this index.
    pub(crate) fn blocks(&self, index: usize) -> *mut Block {
        self.records(index).cast()
    }

    /// Claims the free chunk with the lowest index for this process.
    pub(crate) fn claim_chunk(&self) -> Option<usize> {
        self.session().claim_chunk(|chunk| self.ring(chunk))
    }

    /// Where entry `at` of one of this process's logs is: its chunk, and its index in the chunk.
    pub(crate) fn place_in_log(
        &self,
        log: &[AtomicU32],
        at: usize,
        chunk_entries: usize,
        owner: &Slot,
    ) -> Option<(usize, usize)> {
        self.session().place_in_log(log, at, chunk_entries, owner, |chunk| self.ring(chunk))
    }

    /// Claims a slot for this process and makes it live.
    ///
    /// For a forked process, `parent` contains the slot of its parent and the flags of the `clone`
    /// call.
    pub(crate) fn enter(&self, machine: u32, parent: Option<(&Slot, u32)>) -> Option<Slot> {
        // SAFETY: no arguments, cannot fail.
        let pid = unsafe { libc::getpid() } as u32;
        let session = self.session();
        let high = session.processes_high.load(Ordering::Acquire) as usize;
        let was_recorded = (0..high).any(|slot| {
            let process = self.process(slot);
            process.state.load(Ordering::Acquire) == ProcessState::Live as u32
                && process.pid.load(Ordering::Relaxed) == pid
        });
        let entrant = Entrant {
            pid,
            machine,
            origin: match parent {
                Some(_) => Origin::Forked,
                None if was_recorded => Origin::Executed,
                None => Origin::Started,
            },
            parent: parent.map(|(slot, _)| *slot),
            blocks_inherited: parent
                .map_or(0, |(slot, _)| self.process(slot.index).blocks.load(Ordering::Relaxed)),
            fork_flags: parent.map_or(0, |(_, flags)| flags),
        };
        let slot = session.claim_process(|slot| self.process(slot), &entrant, wait::now)?;
        wait::announce(session);
        Some(slot)
    }
}
