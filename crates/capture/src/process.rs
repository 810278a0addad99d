//! A recorded process, while it runs one program: merges the rings of its threads into one
//! sequence.
//!
//! ```text
//!   thread 0   |---- 300 ----|- 500 -|------ 800 ...
//!   thread 1      |-- 400 --|            |-700-|          times at the segments' ends
//!   merged     0 0 0 0 3 1 1 1 4 0 0 5 1 1 7
//! ```
//!
//! A round reads the clock, reads all earlier marks from all rings, and decodes the segments in the
//! order of their times. While a thread has read the clock and not yet published its mark, it
//! announces this, and the round stops before that time.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::slice;
use std::sync::atomic::{Ordering, fence};

use ring::{
    BLOCKS_PER_CHUNK, Block, ChunkState, Derived, EventCode, Mark, Next, ProcessState,
    RING_RECORDS, Ring, SPAN_ROOM, TAGS_PER_CHUNK,
};
use trace::{Contents, Counted, Event, Place, Shape, ShapeId, Sink, Taken, When};

use crate::decode::{Context, Decoder, Fault, Rest};
use crate::facts::Facts;
use crate::filter::Filters;
use crate::machine::Machine;
use crate::session::{Session, Shared, View, now, wake_writer};
use crate::snapshot::Snapshot;
use crate::window::Window;

/// A process in its slot.
pub(crate) struct Process<S> {
    pub(crate) slot: Shared<ring::Process>,
    pub(crate) slot_index: usize,
    pub(crate) generation: u32,
    pub(crate) pid: u32,
    pub(crate) world: World,
    pub(crate) output: Output<S>,
    /// The number of threads that earlier programs of this process had, without the first thread.
    /// Their numbers are not used again.
    others_before: u32,
    /// The processes that it has forked, with the number of its accesses before each fork.
    pub(crate) forks: Vec<(u32, u64)>,
    rings: Vec<Attached>,
    decoder: Decoder,
    /// Segments of this round that have not been decoded, the next one last.
    queue: Vec<(Mark, usize)>,
    skip_told: u64,
    skip_instructions_told: u64,
    /// Accesses that the filter of the recorder in QEMU dropped in threads that have ended.
    filtered: u64,
    /// If a filter is requested and the program runs with the engine: the filters that drop its
    /// accesses.
    filters: Option<Filters>,
    /// Snapshots of the process's pages that are not in the trace yet.
    pub(crate) snapshots: VecDeque<Snapshot>,
    /// The time of the last decoded segment.
    decoded_ns: u64,
    /// Whether the trace has times. A whole machine's trace has none, because its order contains the
    /// same information.
    has_times: bool,
}

/// The destination of a process's accesses.
pub(crate) enum Output<S> {
    /// Into a sink.
    Kept(Box<Window<S>>),
    /// Accesses are not kept, but the program that the process executes is still recorded.
    Muted,
    /// Nothing is kept.
    Dropped,
}

impl<S> Output<S> {
    /// The window, if accesses are kept.
    pub(crate) fn kept(&mut self) -> Option<&mut Window<S>> {
        match self {
            Output::Kept(window) => Some(window),
            Output::Muted | Output::Dropped => None,
        }
    }
}

/// The parts of a process that remain when its program has ended.
pub(crate) struct Remains<S> {
    pub(crate) output: Output<S>,
    /// The program that the process has executed, with its arguments.
    pub(crate) executed: Option<Vec<String>>,
    /// The number of threads so far, without the first one.
    pub(crate) others: u32,
}

/// A sink that drops everything.
struct Nowhere;

impl Sink for Nowhere {
    fn shape(&mut self, _: &Shape) -> ShapeId {
        ShapeId::default()
    }

    fn thread(&mut self, _: u32) {}

    fn execute(&mut self, _: ShapeId, _: &[u64]) -> Result<(), trace::Error> {
        Ok(())
    }

    fn usual(&mut self, _: usize, _: ShapeId, _: &[u16]) {}

    fn execute_words(&mut self, _: &[u64]) -> Result<Taken, trace::Error> {
        Ok(Taken::default())
    }

    fn execute_physical(&mut self, _: ShapeId, _: &[u64], _: &[u64]) -> Result<(), trace::Error> {
        Ok(())
    }

    fn advance(&mut self, _: u64) {}

    fn counted(&mut self, _: Counted) -> Result<(), trace::Error> {
        Ok(())
    }

    fn begin_program(&mut self) {}

    fn accesses(&self) -> u64 {
        0
    }

    fn instructions(&self) -> u64 {
        0
    }

    fn event(&mut self, _: u32, _: Event) -> Result<(), trace::Error> {
        Ok(())
    }
}

/// The decoder's context for a process.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) facts: Facts,
    pub(crate) blocks: Blocks,
    pub(crate) thread: u32,
    /// The state of the whole machine, if a whole machine is recorded.
    pub(crate) machine: Option<Box<Machine>>,
}

impl Context for World {
    fn block(&mut self, number: u64) -> Option<Block> {
        self.blocks.all.get(number as usize).copied()
    }

    fn tags(&mut self, number: u64, tags: &mut Vec<u16>) {
        if let Some(block) = self.blocks.all.get(number as usize) {
            let own = block.tags as usize..(block.tags + block.accesses) as usize;
            tags.extend_from_slice(&self.blocks.tags[own]);
        }
    }

    fn derived(&mut self, number: u64, derived: &mut Vec<Option<Derived>>) {
        if let Some(block) = self.blocks.all.get(number as usize)
            && block.recorded < block.accesses
        {
            let own = &self.blocks.tags[(block.tags + block.accesses) as usize..];
            let (words, _) = own.as_chunks();
            let words = words.iter().take(block.accesses as usize);
            derived.extend(words.map(|&words| Derived::from_words(words)));
        }
    }

    fn event(&mut self, code: EventCode, words: &[u64], sink: &mut dyn Sink) -> Result<(), Fault> {
        match &mut self.machine {
            Some(machine) => machine.take(self.thread, code, words, sink),
            None => self.facts.take(self.thread, code, words, sink),
        }
    }
}

/// The blocks of a process, its parent's first.
#[derive(Clone, Default)]
pub(crate) struct Blocks {
    /// Each block with the index of its tags in `tags`.
    all: Vec<Block>,
    tags: Vec<u16>,
    inherited: usize,
    tags_inherited: usize,
}

impl Blocks {
    /// Begins with the first `count` blocks of `parent`.
    pub(crate) fn inherit(parent: &Blocks, count: usize) -> Blocks {
        let mut all = parent.all[..count.min(parent.all.len())].to_vec();
        all.resize(count, Block::default());
        let tags = parent.tags.clone();
        Blocks { all, inherited: count, tags_inherited: tags.len(), tags }
    }

    /// Reads the new descriptors.
    fn update(&mut self, slot: &ring::Process, session: &Session) {
        let count = slot.blocks.load(Ordering::Acquire) as usize;
        while self.all.len() < count {
            let at = self.all.len() - self.inherited;
            let Some(chunk) = slot.log.get(at / BLOCKS_PER_CHUNK) else { break };
            let chunk = chunk.load(Ordering::Acquire) as usize;
            let block = session.block(chunk, at % BLOCKS_PER_CHUNK);
            let own = self.tags.len();
            let logged = block.tags as usize;
            let accesses = SPAN_ROOM.min(block.accesses as usize);
            let leaves_out = (block.recorded as usize) < accesses;
            let words = if leaves_out { (1 + Derived::WORDS) * accesses } else { accesses };
            for at in logged..logged + words {
                let Some(chunk) = slot.tag_log.get(at / TAGS_PER_CHUNK) else { break };
                let chunk = chunk.load(Ordering::Acquire) as usize;
                self.tags.push(session.tag(chunk, at % TAGS_PER_CHUNK));
            }
            if self.tags.len() - own != words {
                // A log cannot have these chunks, so its records are invalid. Such a block then
                // counts as one without accesses.
                self.tags.truncate(own);
                self.all.push(Block { accesses: 0, recorded: 0, tags: own as u32, ..block });
                continue;
            }
            let (accesses, tags) = (accesses as u32, own as u32);
            self.all.push(Block { accesses, tags, ..block });
        }
    }

    /// The chunks of a process's logs that are not inherited.
    fn chunks<'a>(&self, slot: &'a ring::Process) -> impl Iterator<Item = usize> + 'a {
        let blocks = self.all.len() - self.inherited;
        let tags = self.tags.len() - self.tags_inherited;
        let blocks = &slot.log[..blocks.div_ceil(BLOCKS_PER_CHUNK)];
        let tags = &slot.tag_log[..tags.div_ceil(TAGS_PER_CHUNK)];
        blocks.iter().chain(tags).map(|chunk| chunk.load(Ordering::Acquire) as usize)
    }
}

/// A thread's ring.
struct Attached {
    chunk: usize,
    ring: Shared<Ring>,
    records: View,
    thread: u32,
    /// The block whose execution the records decoded so far leave incomplete.
    rest: Option<Rest>,
    /// The number of decoded records. Records behind these, up to the last mark, may belong to a
    /// block that has not ended yet.
    done: u64,
    /// The number of marks taken into the queue.
    marks: u64,
    /// The ring position of the last of the marks that were taken into the queue.
    published: u64,
}

impl<S: Sink> Process<S> {
    /// A process that has just arrived, or has executed another program after its earlier programs had
    /// `others_before` threads, without the first one.
    pub(crate) fn new(
        slot: Shared<ring::Process>,
        slot_index: usize,
        world: World,
        decoder: Decoder,
        output: Output<S>,
        others_before: u32,
        filters: Option<Filters>,
    ) -> Process<S> {
        let has_times = world.machine.is_none();
        Process {
            slot_index,
            generation: slot.generation.load(Ordering::Relaxed),
            pid: slot.pid.load(Ordering::Relaxed),
            slot,
            world,
            output,
            others_before,
            forks: Vec::new(),
            rings: Vec::new(),
            decoder,
            queue: Vec::new(),
            skip_told: 0,
            skip_instructions_told: 0,
            filtered: 0,
            filters,
            snapshots: VecDeque::new(),
            decoded_ns: 0,
            has_times,
        }
    }

    /// Whether the ring of `chunk` is known.
    pub(crate) fn has(&self, chunk: usize) -> bool {
        self.rings.iter().any(|attached| attached.chunk == chunk)
    }

    /// Adds a thread. The first thread of a program is the first thread of the process, whichever
    /// thread executed the program, as it keeps the process's identifier.
    pub(crate) fn attach(&mut self, chunk: usize, ring: Shared<Ring>, records: View) {
        let thread = match ring.thread.load(Ordering::Relaxed) {
            0 => 0,
            other => self.others_before + other,
        };
        let (rest, done, marks, published) = (None, 0, 0, 0);
        self.rings.push(Attached { chunk, ring, records, thread, rest, done, marks, published });
    }

    /// Decodes all segments before the time `bound`, until `enough` returns true after a segment.
    /// All rings that existed at this time must have been attached. Returns whether there were any
    /// segments.
    pub(crate) fn round(
        &mut self,
        session: &Session,
        bound: u64,
        enough: &mut dyn FnMut(&S) -> bool,
    ) -> Result<bool, Fault> {
        if self.queue.is_empty() {
            let bound = self.settled(bound);
            self.gather(bound);
        }
        let any = !self.queue.is_empty();
        while self.next_ns().is_some() {
            self.next(session)?;
            if self.has_enough(enough) {
                break;
            }
        }
        Ok(any)
    }

    /// The time of the next gathered segment.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.queue.last().map(|(mark, _)| mark.ns)
    }

    /// Decodes the next gathered segment.
    pub(crate) fn next(&mut self, session: &Session) -> Result<(), Fault> {
        if let Some((mark, ring)) = self.queue.pop() {
            self.give_snapshots(mark.ns)?;
            self.segment(session, ring, mark.position, mark.whole, mark.ns)?;
            self.decoded_ns = mark.ns;
        }
        if self.queue.is_empty() {
            self.release(session);
        }
        Ok(())
    }

    /// Adds those snapshots to the trace that come before a segment that ended at `ns`. These are
    /// the snapshots from before the end of the previous segment, and the snapshots for which a
    /// program waited.
    fn give_snapshots(&mut self, ns: u64) -> Result<(), trace::Error> {
        let comes = |snapshot: &Snapshot, decoded_ns: u64| match snapshot.when {
            When::End => snapshot.ns < ns,
            When::Interval | When::Growth => snapshot.ns <= decoded_ns,
        };
        let decoded_ns = self.decoded_ns;
        while self.snapshots.front().is_some_and(|first| comes(first, decoded_ns))
            && let Some(snapshot) = self.snapshots.pop_front()
        {
            if let Some(window) = self.output.kept() {
                snapshot.events().try_for_each(|event| window.event(0, event))?;
            }
        }
        Ok(())
    }

    /// Lets the program end, if it waits until its last snapshot has been taken.
    pub(crate) fn let_go(&self) {
        let (waits, goes) = (ring::LAST_PAGES_WANTED, ring::LAST_PAGES_TAKEN);
        let word = &self.slot.last_pages;
        if word.compare_exchange(waits, goes, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.rings.iter().for_each(|attached| wake_writer(&attached.ring));
        }
    }

    /// Whether `enough` returns true for the kept part of the recording.
    pub(crate) fn has_enough(&mut self, enough: &mut dyn FnMut(&S) -> bool) -> bool {
        self.output.kept().is_some_and(|window| enough(&window.sink))
    }

    /// Answers the process if it asks for the contents of the first-level TLBs, for its fetches and its
    /// data.
    pub(crate) fn answer(&self, contents: Option<&[Contents; 2]>) {
        let to = &self.slot.contents;
        if !to.is_asked() {
            return;
        }
        let fits = |told: &Contents| told.places.len() <= to.places[0].len();
        let contents = contents.filter(|contents| contents.iter().all(fits));
        for (index, told) in contents.into_iter().flatten().enumerate() {
            to.sequences[index].store(told.sequence, Ordering::Relaxed);
            for (to, place) in to.places[index].iter().zip(&told.places) {
                let place = match *place {
                    Place::Empty => ring::Place::Empty,
                    Place::Other => ring::Place::Other,
                    Place::Page(start) => ring::Place::Page(start),
                };
                to.store(place.bits(), Ordering::Relaxed);
            }
        }
        to.answer(contents.is_some());
        self.rings.iter().for_each(|attached| wake_writer(&attached.ring));
    }

    /// Reads the new descriptors of blocks.
    pub(crate) fn update_blocks(&mut self, session: &Session) {
        self.world.blocks.update(&self.slot, session);
    }

    /// For a process that has ended: whether it had counted accesses that it did not report, and
    /// that would have been kept.
    pub(crate) fn has_uncounted(&mut self) -> bool {
        self.slot.counting.load(Ordering::Acquire) != 0
            && self.output.kept().is_some_and(|window| !window.is_over())
    }

    /// Called after the end of the process: decodes the records that its threads had not published,
    /// one thread at a time. Returns false when all threads are done.
    pub(crate) fn last_round(
        &mut self,
        session: &Session,
        enough: &mut dyn FnMut(&S) -> bool,
    ) -> Result<bool, Fault> {
        if self.round(session, now(), enough)? {
            return Ok(true);
        }
        while let Some(ring) = self.rings.len().checked_sub(1) {
            let attached = &self.rings[ring];
            let end = self.rest(attached, session);
            self.segment(session, ring, end, true, now())?;
            let attached = self.rings.remove(ring);
            self.filtered += attached.ring.filtered.load(Ordering::Relaxed);
            session.free_chunk(attached.chunk);
            if self.has_enough(enough) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reports the program's end at the time `ns`, and frees the slot. The process has ended or
    /// executed another program, and all its records are decoded.
    pub(crate) fn close(mut self, session: &Session, ns: u64) -> Result<Remains<S>, trace::Error> {
        let executing = self.world.facts.executing.take();
        self.world.blocks.chunks(&self.slot).for_each(|chunk| session.free_chunk(chunk));
        let others = self.slot.threads.load(Ordering::Relaxed).saturating_sub(1);
        let others = self.others_before + others;
        self.slot.state.store(ProcessState::Free as u32, Ordering::Release);
        self.decoded_ns = u64::MAX;
        self.give_snapshots(u64::MAX)?;
        if let Some(window) = self.output.kept() {
            let dropped = self.filters.as_ref().map_or(0, |filters| filters.dropped);
            let accesses = self.filtered + dropped;
            if accesses != 0 {
                window.event(0, Event::Gap { accesses, instructions: 0 })?;
            }
            if let Some(executing) = &executing {
                let event = Event::Execve { path: executing.path.clone(), result: 0 };
                window.event(executing.thread, event)?;
            }
            if self.has_times {
                window.stamp(ns);
            }
        }
        let executed = executing.map(|executing| {
            let arguments = executing.arguments.into_iter().skip(1);
            [executing.path].into_iter().chain(arguments).collect()
        });
        Ok(Remains { output: self.output, executed, others })
    }

    /// The latest time that is not after `bound` and before which all marks have been published.
    /// `bound` must be in the past.
    pub(crate) fn settled(&self, mut bound: u64) -> u64 {
        fence(Ordering::SeqCst);
        for attached in &self.rings {
            match attached.ring.stamping.load(Ordering::Acquire) {
                0 => {}
                stamping => bound = bound.min(stamping),
            }
        }
        bound
    }

    /// Reads all marks before `bound`. No mark with an earlier time may be published after this.
    pub(crate) fn gather(&mut self, bound: u64) {
        for (index, attached) in self.rings.iter_mut().enumerate() {
            while attached.marks < attached.ring.marks_head.load(Ordering::Acquire) {
                let mark = attached.ring.mark(attached.marks);
                if mark.ns >= bound {
                    break;
                }
                attached.marks += 1;
                attached.published = mark.position;
                self.queue.push((mark, index));
            }
        }
        let by_time = |(mark, ring): &(Mark, usize)| Reverse((mark.ns, *ring, mark.position));
        self.queue.sort_unstable_by_key(by_time);
    }

    /// Decodes a ring's records up to `end`.
    fn segment(
        &mut self,
        session: &Session,
        ring: usize,
        end: u64,
        whole: bool,
        ns: u64,
    ) -> Result<(), Fault> {
        self.world.blocks.update(&self.slot, session);
        let attached = &mut self.rings[ring];
        let length = end.wrapping_sub(attached.done);
        if length > RING_RECORDS as u64 {
            return Err(Fault::Garbled(format!("a segment of {length} records")));
        }
        // SAFETY: the view holds the ring twice in a row, so `length` records from any position are
        // inside; the thread does not write them before `tail` passes.
        let records = unsafe {
            let at = (attached.done % RING_RECORDS as u64) as usize;
            slice::from_raw_parts(attached.records.records().add(at), length as usize)
        };
        self.world.thread = attached.thread;
        let (rest, world) = (&mut attached.rest, &mut self.world);
        let used = match &mut self.output {
            Output::Kept(window) if !window.is_over() => {
                let skipped = self.slot.skipped_accesses.load(Ordering::Relaxed);
                if skipped != self.skip_told {
                    let instructions = self.slot.skipped_instructions.load(Ordering::Relaxed);
                    window.left_out(
                        skipped - self.skip_told,
                        instructions.saturating_sub(self.skip_instructions_told),
                    )?;
                    (self.skip_told, self.skip_instructions_told) = (skipped, instructions);
                }
                window.thread(attached.thread);
                if let Some(machine) = &mut world.machine {
                    machine.turn(attached.thread, &mut **window)?;
                }
                let used = if let Some(filters) = &mut self.filters {
                    let mut sink = filters.over(&mut **window, attached.thread);
                    let used = self.decoder.segment(records, whole, rest, world, &mut sink)?;
                    sink.settle();
                    used
                } else if window.is_open() {
                    self.decoder.segment(records, whole, rest, world, &mut window.sink)?
                } else {
                    self.decoder.segment(records, whole, rest, world, &mut **window)?
                };
                if self.has_times {
                    window.stamp(ns);
                }
                let reported = std::mem::take(&mut world.facts.windows);
                if reported.left_out != (0, 0) {
                    window.left_out(reported.left_out.0, reported.left_out.1)?;
                }
                if reported.begins {
                    window.sign_came();
                }
                if reported.asks {
                    tell_places(&self.slot, window.places());
                    wake_writer(&attached.ring);
                }
                let accesses = window.accesses();
                let forked = world.facts.forked.drain(..).map(|pid| (pid, accesses));
                self.forks.extend(forked);
                if window.is_over() {
                    self.slot.stop.store(1, Ordering::Release);
                }
                used as u64
            }
            Output::Muted => {
                let used = self.decoder.segment(records, whole, rest, world, &mut Nowhere)? as u64;
                let reported = std::mem::take(&mut world.facts.windows);
                if reported.asks {
                    tell_places(&self.slot, &[]);
                    wake_writer(&attached.ring);
                }
                used
            }
            Output::Kept(_) | Output::Dropped => length,
        };
        attached.done += used;
        attached.ring.tail.store(attached.done, Ordering::Release);
        attached.ring.marks_tail.store(attached.marks, Ordering::Release);
        // Threads are not woken for every segment, since both sides would then do little more than
        // wake each other. A thread sleeps when three quarters of its ring wait for the host.
        if attached.published.saturating_sub(attached.done) <= RING_RECORDS as u64 / 4 {
            wake_writer(&attached.ring);
        }
        if matches!(self.output, Output::Muted) {
            // These accesses are not simulated by a machine, so the contents of a machine's TLBs
            // cannot be reported.
            self.answer(None);
        }
        Ok(())
    }

    /// Frees the rings of threads that have ended.
    fn release(&mut self, session: &Session) {
        self.rings.retain(|attached| {
            let closed = attached.ring.state.load(Ordering::Acquire) == ChunkState::Closed as u32
                && attached.ring.marks_head.load(Ordering::Acquire) == attached.marks;
            if closed {
                self.filtered += attached.ring.filtered.load(Ordering::Relaxed);
                session.free_chunk(attached.chunk);
            }
            !closed
        });
    }

    /// The position up to which a dead thread has written records.
    fn rest(&self, attached: &Attached, session: &Session) -> u64 {
        // The last mark that was read is the thread's last mark, since the process is dead and all
        // marks were read.
        let published = match attached.marks {
            0 => 0,
            marks => attached.ring.mark(marks - 1).position,
        };
        if attached.ring.state.load(Ordering::Acquire) == ChunkState::Closed as u32 {
            // The cursor of the ended thread may belong to another thread now.
            return published;
        }
        let opened = attached.ring.opened.load(Ordering::Acquire);
        let span = attached.ring.span.load(Ordering::Relaxed);
        let position = match attached.ring.vcpu.load(Ordering::Relaxed) {
            Next::OWN => attached.ring.next.position(opened, span),
            vcpu => session.next(self.slot_index, vcpu).position(opened, span),
        };
        position.map_or(published, |position| position.max(published))
    }
}

/// Tells a process the addresses of the sign that begins its windows.
fn tell_places(slot: &ring::Process, places: &[u64]) {
    for (to, &place) in slot.places.iter().zip(places) {
        to.store(place, Ordering::Relaxed);
    }
    slot.places_count.store(places.len() as u32, Ordering::Relaxed);
    slot.places_answered.fetch_add(1, Ordering::Release);
}

/// The parts of an ended process that are kept for children that are found later.
pub(crate) struct Ended {
    pub(crate) slot: usize,
    pub(crate) generation: u32,
    pub(crate) told: trace::Process,
    pub(crate) number: Option<u32>,
    pub(crate) facts: Facts,
    pub(crate) blocks: Blocks,
}
