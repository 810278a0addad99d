//! Claiming free process slots and free chunks of a session. Several processes and threads may do
//! this at the same time.
//!
//! ```text
//!   slot    Free -- claim --> Claimed -- filled --> Live
//!   chunk   Free -- claim --> Claimed -- filled --> Attached | Log
//! ```
//!
//! The thread that exchanges `Free` for `Claimed` is the only one that fills the header. It then
//! publishes the header by storing the next state. Only the caller knows where slots and chunks are
//! mapped, so each function takes a closure that returns the slot or the ring with a given index.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::{
    CHUNKS_MAX, ChunkState, OWN_RANGES_MAX, Origin, PROCESSES_MAX, Process, ProcessState, Ring,
    Session,
};

/// A process's place in the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slot {
    /// The index of the process's [`Process`] slot.
    pub index: usize,
    /// A number that distinguishes this process from other users of the slot: see
    /// [`Process::generation`].
    pub generation: u32,
    /// The number of the first block in the process's own log: see [`Process::blocks_inherited`].
    pub blocks_inherited: u32,
}

/// The data about a process that claims a slot.
#[derive(Clone, Copy, Debug)]
pub struct Entrant {
    /// The process identifier.
    pub pid: u32,
    /// The guest's processor, as the machine number in ELF files.
    pub machine: u32,
    /// How the recording of the process began.
    pub origin: Origin,
    /// If the process was forked: the slot of its parent.
    pub parent: Option<Slot>,
    /// The number of blocks that the process inherited from its parent.
    pub blocks_inherited: u32,
    /// The flags of the `clone` call that forked the process.
    pub fork_flags: u32,
}

impl Session {
    /// Claims the free slot with the lowest index for `entrant` and makes it live. `began_ns`
    /// returns the time of the system's monotonic clock. The caller must wake the host afterwards.
    /// If all slots are in use, increments [`Session::lost`] and returns `None`.
    pub fn claim_process<'a>(
        &self,
        process: impl Fn(usize) -> &'a Process,
        entrant: &Entrant,
        began_ns: impl FnOnce() -> u64,
    ) -> Option<Slot> {
        let free = |&index: &usize| {
            let (free, claimed) = (ProcessState::Free as u32, ProcessState::Claimed as u32);
            let state = &process(index).state;
            state.compare_exchange(free, claimed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(index) = (0..PROCESSES_MAX).find(free) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let generation = self.arrivals.load(Ordering::Relaxed).wrapping_add(1);
        let process = process(index);
        process.fill(entrant, generation, began_ns());
        process.state.store(ProcessState::Live as u32, Ordering::Release);
        self.processes_high.fetch_max(index as u32 + 1, Ordering::AcqRel);
        Some(Slot { index, generation, blocks_inherited: entrant.blocks_inherited })
    }

    /// Claims the free chunk with the lowest index. If all chunks are in use, increments
    /// [`Session::lost`] and returns `None`.
    pub fn claim_chunk<'a>(&self, ring: impl Fn(usize) -> &'a Ring) -> Option<usize> {
        let free = |&index: &usize| {
            let (free, claimed) = (ChunkState::Free as u32, ChunkState::Claimed as u32);
            let state = &ring(index).state;
            state.load(Ordering::Relaxed) == free
                && state
                    .compare_exchange(free, claimed, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        };
        let Some(index) = (0..CHUNKS_MAX).find(free) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.chunks_high.fetch_max(index as u32 + 1, Ordering::AcqRel);
        Some(index)
    }

    /// Where entry `at` of a log is: its chunk, and its index in the chunk. The log belongs to the
    /// process in `owner`, and each chunk has `chunk_entries` entries. A chunk is claimed when its
    /// first entry is placed. If the log is full or no chunk is free, increments [`Session::lost`]
    /// and returns `None`.
    pub fn place_in_log<'a>(
        &self,
        log: &[AtomicU32],
        at: usize,
        chunk_entries: usize,
        owner: &Slot,
        ring: impl Fn(usize) -> &'a Ring,
    ) -> Option<(usize, usize)> {
        let (piece, index) = (at / chunk_entries, at % chunk_entries);
        let Some(piece) = log.get(piece) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        if index == 0 {
            let chunk = self.claim_chunk(&ring)?;
            let ring = ring(chunk);
            ring.process.store(owner.index as u32, Ordering::Relaxed);
            ring.generation.store(owner.generation, Ordering::Relaxed);
            ring.state.store(ChunkState::Log as u32, Ordering::Release);
            piece.store(chunk as u32, Ordering::Release);
        }
        Some((piece.load(Ordering::Relaxed) as usize, index))
    }
}

impl Process {
    /// Initialises the slot for `entrant`. Only the process that has claimed the slot may call it.
    fn fill(&self, entrant: &Entrant, began: u32, began_at_ns: u64) {
        let &Entrant { pid: number, machine: processor, origin: how, .. } = entrant;
        let &Entrant { parent: from, blocks_inherited: inherited, fork_flags: flags, .. } = entrant;
        let Process {
            // The caller sets the state.
            state: _,
            pid,
            origin,
            machine,
            parent,
            parent_generation,
            blocks_inherited,
            generation,
            stop,
            leaving,
            threads,
            blocks,
            skipped_accesses,
            skipped_instructions,
            tags,
            fork_flags,
            executing,
            counting,
            tracing,
            executes,
            last_pages,
            began_ns,
            position,
            places_asked,
            places_answered,
            places_count,
            own,
            // They are counted by `places_count`.
            places: _,
            // A reader reads only those words of the logs that have been written and counted.
            log: _,
            tag_log: _,
            // The contents are read only after an answer to a request.
            contents: _,
        } = self;
        own.set(&[[0; 2]; OWN_RANGES_MAX]);
        let from = from.unwrap_or_default();
        for (word, value) in [
            (pid, number),
            (machine, processor),
            (origin, how as u32),
            (parent, from.index as u32),
            (parent_generation, from.generation),
            (blocks_inherited, inherited),
            (blocks, inherited),
            (tags, 0),
            (generation, began),
            (stop, 0),
            (leaving, 0),
            (executing, 0),
            (counting, 0),
            (tracing, 0),
            (executes, 0),
            (last_pages, 0),
            (threads, 0),
            (fork_flags, flags),
            (places_asked, 0),
            (places_answered, 0),
            (places_count, 0),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        skipped_accesses.store(0, Ordering::Relaxed);
        skipped_instructions.store(0, Ordering::Relaxed);
        position.store(0, Ordering::Relaxed);
        began_ns.store(began_at_ns, Ordering::Relaxed);
    }
}
