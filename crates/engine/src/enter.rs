//! How a process enters the session: the first one, one that has executed another program, and a child.
//!
//! ```text
//!   session    [ Session | slots | ring headers ... | chunks ... ]   mapped once, and inherited by children
//!                                  |                  |
//!   gs:0x1000                      header             |              the same pages once more
//!   view                                              chunk | chunk
//! ```
//!
//! A child inherits its parent's mappings of ring and cursor. It writes nothing until it has mapped its own
//! over them. No descriptor stays open, and none is opened again, as a child may have lost the right to open it.

use core::sync::atomic::Ordering;

use ring::{
    CHUNK_BYTES, ChunkState, Entrant, MAGIC, Next, Origin, ProcessState, SESSION_BYTES, Slot,
    VERSION, chunk_offset, ring_offset,
};

use crate::own;
use crate::record::{Recorder, SLACK, SPAN};
use crate::state::{NEXT, RING_PAGE, State};
use crate::sys::{self, nr};

/// AMD64, as ELF's machine number.
const MACHINE: u32 = 62;
const PAGE_BYTES: u64 = 4096;

/// The state that a child takes over from its parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parent {
    slot: Slot,
    /// The number of the parent's blocks when it forked.
    blocks: u32,
    /// The flags of the `clone` call.
    flags: u32,
}

impl Recorder {
    /// Enters the session at `path`, a zero-terminated name.
    pub(crate) fn enter(path: *const u8, state: State) -> Result<Recorder, &'static str> {
        const O_RDWR: u64 = 2;
        const O_CLOEXEC: u64 = 0o2000000;
        // SAFETY: the host has stored a name there that ends with a zero byte.
        let fd = unsafe {
            let here = -100i64 as u64;
            sys::call(nr::OPENAT, [here, path as u64, O_RDWR | O_CLOEXEC, 0, 0, 0])
        };
        if fd < 0 {
            return Err("it cannot open the file of the recording's shared memory");
        }
        let rights = sys::PROT_READ | sys::PROT_WRITE;
        let fixed = sys::MAP_SHARED | sys::MAP_NORESERVE | sys::MAP_FIXED;
        let base = own::private(SESSION_BYTES as u64)
            .and_then(|at| sys::map(at, SESSION_BYTES as u64, rights, fixed, fd, 0));
        // SAFETY: the engine owns the descriptor.
        unsafe { sys::call(nr::CLOSE, [fd as u64, 0, 0, 0, 0, 0]) };
        let base =
            base.ok_or("the process has no free address range for the recording's shared memory")?;
        let room = own::private(3 * CHUNK_BYTES as u64);
        let room =
            room.ok_or("the process has no free address range for the recording's buffer")?;
        let mut recorder = Recorder {
            base,
            slot: Slot::default(),
            ring: 0,
            view: room.next_multiple_of(CHUNK_BYTES as u64),
            before: 0,
            guard: 0,
            state,
            is_off: false,
            is_hidden: false,
            hidden_at: 0,
            counts: false,
            walked: 0,
            span: SPAN,
        };
        let session = recorder.session();
        if session.magic != MAGIC || session.version != VERSION {
            return Err(
                "the recorder's version is not that of pagewalk: build the recorder and pagewalk again",
            );
        }
        recorder
            .take_slot(None)
            .ok_or("too many processes run at one time: 1024 can be recorded")?;
        recorder.attach()?;
        Ok(recorder)
    }

    /// The state that a child takes over if it is forked now, with `flags` as the flags of `clone`.
    pub(crate) fn parent(&self, flags: u64) -> Parent {
        let blocks = self.process().blocks.load(Ordering::Relaxed);
        Parent { slot: self.slot, blocks, flags: flags as u32 }
    }

    /// Begins the recording of a child, which until now has its parent's ring. False if there is no room for
    /// it.
    pub(crate) fn enter_child(&mut self, parent: Parent) -> bool {
        (self.is_hidden, self.counts, self.span) = (false, false, SPAN);
        self.take_slot(Some(parent)).is_some() && self.attach().is_ok()
    }

    /// The recorder of a new thread, with the thread's shared data and room for its ring at `view`.
    pub(crate) fn of_thread(&self, state: State, view: u64) -> Recorder {
        Recorder { state, view, is_hidden: false, counts: false, span: SPAN, ..*self }
    }

    /// Begins the recording of a new thread, by the thread itself.
    pub(crate) fn begin_thread(&mut self) {
        if self.is_off || self.attach().is_err() {
            // The process's accesses are counted as lost, unless recording has ended.
            self.apart();
        }
    }

    /// Makes this thread write to memory that is not read.
    fn apart(&mut self) {
        let rights = sys::PROT_READ | sys::PROT_WRITE;
        let kind = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
        sys::map(self.state.0 + RING_PAGE as u64, PAGE_BYTES, rights, kind, -1, 0);
        self.is_off = false;
        self.off();
        self.moved(self.view);
    }

    /// Ends the ring of a thread that ends.
    pub(crate) fn close(&mut self) {
        if !self.is_off {
            self.ring().state.store(ChunkState::Closed as u32, Ordering::Release);
            self.ring_doorbell();
        }
    }

    fn take_slot(&mut self, parent: Option<Parent>) -> Option<()> {
        // SAFETY: `getpid` takes no arguments and cannot fail.
        let pid = unsafe { sys::call(nr::GETPID, [0; 6]) } as u32;
        let session = self.session();
        let high = session.processes_high.load(Ordering::Acquire) as usize;
        let mut earlier = (0..high).filter(|&slot| {
            let process = self.process_at(slot);
            process.state.load(Ordering::Acquire) == ProcessState::Live as u32
                && process.pid.load(Ordering::Relaxed) == pid
        });
        let earlier = earlier.next();
        let entrant = Entrant {
            pid,
            machine: MACHINE,
            origin: match parent {
                Some(_) => Origin::Forked,
                None if earlier.is_some() => Origin::Executed,
                None => Origin::Started,
            },
            parent: parent.map(|parent| parent.slot),
            blocks_inherited: parent.map_or(0, |parent| parent.blocks),
            fork_flags: parent.map_or(0, |parent| parent.flags),
        };
        let position = earlier.map(|slot| self.process_at(slot).position.load(Ordering::Relaxed));
        self.slot = session.claim_process(|slot| self.process_at(slot), &entrant, sys::now)?;
        if let (None, Some(position)) = (parent, position) {
            self.process().position.store(position, Ordering::Relaxed);
        }
        own::publish(&self.process().own);
        self.announce();
        Some(())
    }

    /// Claims a ring for the first thread of the process, and maps it over the earlier mapping.
    fn attach(&mut self) -> Result<(), &'static str> {
        let chunk = self
            .claim_chunk()
            .ok_or("too many threads run at one time for the recording's shared memory")?;
        let bytes = CHUNK_BYTES as u64;
        self.ring = self.base + ring_offset(chunk) as u64;
        let number = self.process().threads.fetch_add(1, Ordering::Relaxed);
        let ring = self.ring();
        ring.reset(self.slot.index as u32, self.slot.generation, number, Next::OWN);
        ring.span.store((SPAN + SLACK) as u32, Ordering::Relaxed);
        sys::again(self.ring, PAGE_BYTES, self.state.0 + RING_PAGE as u64)
            .ok_or("it cannot map the part of the recording's shared memory with its position")?;
        let records = self.base + chunk_offset(chunk) as u64;
        for half in [self.view, self.view + bytes] {
            sys::again(records, bytes, half).ok_or("it cannot map the recording's buffer")?;
        }
        self.before = 0;
        self.guard = self.view + 8 * SPAN;
        self.protect(self.guard, 0);
        self.moved(self.view);
        ring.state.store(ChunkState::Attached as u32, Ordering::Release);
        self.announce();
        Ok(())
    }
}

const _: () = assert!((NEXT - RING_PAGE) as u64 + size_of::<Next>() as u64 <= PAGE_BYTES);
