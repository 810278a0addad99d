//! Counting of the accesses that are guaranteed to hit the first-level TLBs of the machine that is
//! simulated at the same time. All other accesses are recorded.
//!
//! ```text
//!   translated code    its page's entry is held: count and time     ([`crate::translate::counted`], [`crate::table`])
//!                      else: the engine is called ([`crate::counting`])
//!   engine             who makes room is reported, with its counts ([`ring::Control::Hits`])
//!                      how many accesses were counted ([`ring::Control::Passed`]), and this access
//!                      its page is held from here on
//! ```
//!
//! The rules are those of the recorder in QEMU (`crates/recorder/src/sure.rs`), and so are the
//! reports: which pages are held, which page is evicted, and the reports before a system call. With
//! LRU, a set of n entries contains the n pages of this set that were used last.
//!
//! Unlike in QEMU, accesses are checked before they are made, and all earlier accesses are complete
//! at this time. So nothing has to be undone, except after a fault ([`crate::counting`]). A page is
//! probed before an access to it is reported.
//!
//! The *clock* is in r11 while translated code runs. It advances by two for each access. It is set
//! back at the end of an interval, when it reaches the end of [`table::POLL`].

mod string;

pub(crate) use string::{Piece, Pointer};

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;

use held::{ADDRESS_BITS, List, PAGES_MAX};
use ring::{Block, Control, HitsOf, Record, Replaces, Session, Tag};

use crate::detour;
use crate::record::Recorder;
use crate::state::{RING, State};
use crate::table::{self, BOTH, LOADED, RUN, STORED, Table};
use crate::translate::Log;
use crate::translate::counted::{Counting, Whole, rows};

pub(crate) const PAGE_BYTES: u64 = 1 << 12;
/// The minimum number of ways of a TLB for both code and data. With fewer ways, a block could evict
/// the page with its own code.
const TOGETHER_WAYS_MIN: usize = 8;
/// The counts of an entry are reported when they reach this number, before they can overflow.
const COUNT_MAX: u32 = 1 << 30;
/// The time at the beginning of an interval in which no page has a time yet.
const BEGIN: u64 = 2;

/// An access that is counted or recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) address: u64,
    /// The access's instruction, size and kinds.
    pub(crate) tag: Tag,
    /// The number of rows in the block before this access, including the fetch.
    pub(crate) before: u32,
}

/// An execution of a block. At least one of its accesses was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    whole: Whole,
    /// The number of accesses before this execution.
    begun: u64,
    /// The last instruction that is recorded.
    instruction: u16,
}

/// The accesses of a group that were not counted, at the last miss.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Uncounted {
    /// The number of accesses before the group.
    pub(crate) begun: u64,
    /// A set with one bit for each access that was recorded.
    pub(crate) told: u128,
    /// The index of the first access that would fault, if any. This access and the accesses after
    /// it were not counted.
    pub(crate) stopped: Option<usize>,
}

/// Stands for the sequence of random replacement, which the engine does not support.
struct NoSequence;

impl held::Sequence for NoSequence {
    fn new(_: u64) -> NoSequence {
        NoSequence
    }

    fn next(&mut self, places: Range<usize>) -> usize {
        places.start
    }
}

/// The counts of the thread of a process with one thread.
pub(crate) struct Counter {
    state: State,
    pub(crate) table: Table,
    pub(crate) is_on: bool,
    /// The held pages for fetches and those for data. If both use one TLB, only the first list is
    /// used.
    lists: [List<NoSequence>; 2],
    together: bool,
    /// While the engine runs: the clock. While translated code runs: the address of the next record.
    clock: u64,
    pub(crate) cursor: u64,
    /// Whether translated code runs.
    is_inside: bool,
    /// The time at the beginning of the interval, and the accesses and instructions before it.
    begin: u64,
    accesses: u64,
    instructions: u64,
    /// The numbers of accesses and instructions that were reported.
    accesses_told: u64,
    instructions_told: u64,
    run: Option<Run>,
    pub(crate) uncounted: Uncounted,
    /// The accesses of the last assisted instruction, and whether they were counted.
    pub(crate) assisted: Vec<(u64, Tag, bool)>,
    /// The number of accesses before the repeated instruction that is being executed.
    pub(crate) string_begun: u64,
    /// The numbers of the blocks that consist of one access. The key is the block, the access's
    /// tag, and the number of instructions, with [`WITH_FETCH`] if the block has a fetch.
    parts: BTreeMap<Part, u32>,
    /// Some of these parts, by a hash, because a look-up in the tree takes as long as all other
    /// work of a miss.
    recent: Vec<(Part, u32)>,
}

/// A part of a block: see [`Counter::parts`].
type Part = (Whole, u16, u32);

/// The number of parts that can be found by the hash. It is a power of two.
const RECENT: usize = 1 << 12;

/// The place of a part in [`Counter::recent`].
fn place((whole, bits, instructions): Part) -> usize {
    let word = whole.pc ^ u64::from(bits) << 20 ^ u64::from(instructions) << 40;
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % RECENT
}

/// See [`Counter::parts`].
const WITH_FETCH: u32 = 1 << 16;

impl Counter {
    /// A counter that counts nothing.
    pub(crate) fn off(state: State) -> Counter {
        Counter {
            state,
            table: Table::new(state),
            is_on: false,
            lists: [List::NONE; 2],
            together: false,
            clock: BEGIN,
            cursor: 0,
            is_inside: false,
            begin: BEGIN,
            accesses: 0,
            instructions: 0,
            accesses_told: 0,
            instructions_told: 0,
            run: None,
            uncounted: Uncounted::default(),
            assisted: Vec::new(),
            string_begun: 0,
            parts: BTreeMap::new(),
            recent: Vec::new(),
        }
    }

    /// A counter that counts if the session requests this, if it is supported here, and if no other
    /// process is recorded.
    pub(crate) fn new(session: &Session, state: State) -> Counter {
        let pages = session.sure_pages.map(|pages| pages as usize);
        let sets = session.sure_sets.map(|sets| sets as usize);
        let replaces = session.sure_replaces.map(Replaces::from_bits);
        let together = session.sure_together != 0;
        let is_fit = (0..2).all(|at| {
            (1..=PAGES_MAX).contains(&pages[at])
                && sets[at] > 0
                && replaces[at] == Some(Replaces::Lru)
        }) && !(together && pages[0] / sets[0] < TOGETHER_WAYS_MIN);
        let is_alone = session.running.load(Ordering::Acquire) <= 1;
        let is_on = is_fit && is_alone && table::map(state).is_some();
        let list = |at: usize| match is_on {
            true => List::new(pages[at], sets[at], Replaces::Lru),
            false => List::NONE,
        };
        if is_on {
            session.counts.store(1, Ordering::Relaxed);
        }
        let lists = [list(0), list(1)];
        Counter { is_on, lists, together, cursor: state.get(RING), ..Counter::off(state) }
    }

    /// Whether accesses are counted.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The tables and counters of translated code that counts accesses; `None` if the code does not count.
    pub(crate) fn counting(&self) -> Option<Counting> {
        self.is_on.then(|| Counting { together: self.together, missed: detour::missed() })
    }

    /// Called when the engine is entered by an exit of translated code, in which r11 was the clock.
    pub(crate) fn leave(&mut self) {
        if self.is_on && core::mem::take(&mut self.is_inside) {
            self.clock = self.state.get(RING);
            self.state.set(RING, self.cursor);
        }
    }

    /// Called before translated code is entered, in which r11 will be the clock.
    pub(crate) fn enter(&mut self) {
        if self.is_on {
            self.is_inside = true;
            self.cursor = self.state.get(RING);
            self.state.set(RING, self.clock);
        }
    }

    /// The number of accesses before this time.
    pub(crate) fn accesses_at(&self, clock: u64) -> u64 {
        self.accesses + clock.wrapping_sub(self.begin) / 2
    }

    fn index(&self, of: HitsOf) -> usize {
        usize::from(of != HitsOf::Fetch && !self.together)
    }

    /// The kinds of accesses whose pages are in the list with this index, as bits of an entry.
    fn bits(&self, index: usize) -> u8 {
        match (self.together, index) {
            (true, _) => LOADED | STORED | BOTH | RUN,
            (false, 0) => RUN,
            (false, _) => LOADED | STORED | BOTH,
        }
    }

    /// The time of a page's last use by the kinds of accesses of the list with this index.
    fn last_use(table: Table, together: bool, index: usize, page: u64) -> u64 {
        let entry = table.get(page);
        let last = match (together, index) {
            (true, _) => entry.used.max(entry.fetched),
            (false, 0) => entry.fetched,
            (false, _) => entry.used,
        };
        last.into()
    }

    /// Adds `page` to the list with this `index`. It must not be in the list yet. Reports the page
    /// that was replaced, if any.
    fn admit(&mut self, recorder: &mut Recorder, page: u64, index: usize) {
        recorder.process().counting.store(1, Ordering::Release);
        let (table, together) = (self.table, self.together);
        let list = &mut self.lists[index];
        let set = list.set_of(page / PAGE_BYTES);
        if list.count(set) < list.ways() {
            return list.add(set, page);
        }
        let last_use = |page| Counter::last_use(table, together, index, page);
        if let Some(gone) = list.exchange(set, page, last_use) {
            self.tell_gone(recorder, gone, index);
        }
    }

    /// The counts in the entry of `page`, for those kinds of accesses of the list with this index
    /// for which the page is held. Sets the counts to 0.
    fn take_counts(
        &mut self,
        page: u64,
        index: usize,
    ) -> impl Iterator<Item = (HitsOf, u32)> + use<> {
        let (entry, bits) = (self.table.get(page), self.bits(index));
        let kinds = entry.kinds & bits;
        let has = |bit: u8| kinds & bit != 0;
        if has(RUN) {
            self.instructions = self.instructions.wrapping_add(entry.drain());
        }
        let counts = [
            has(RUN).then(|| (HitsOf::Fetch, entry.take_fetches())),
            has(LOADED).then(|| (HitsOf::Load, entry.take_loads())),
            has(STORED).then(|| (HitsOf::Store, entry.take_stores())),
        ];
        counts.into_iter().flatten()
    }

    /// Reports the counts of a page that is evicted.
    fn tell_gone(&mut self, recorder: &mut Recorder, page: u64, index: usize) {
        let (mut goes, mut uncounted) = (true, None);
        for (of, count) in self.take_counts(page, index) {
            match count {
                0 => uncounted = Some(of),
                _ => hits(recorder, page, of, count, core::mem::take(&mut goes)),
            }
        }
        if let Some(of) = uncounted.filter(|_| goes) {
            hits(recorder, page, of, 0, true);
        }
        self.table.get(page).kinds &= !self.bits(index);
    }

    /// Reports all counted accesses, in the order of the pages' last uses. Afterwards no page is
    /// held.
    pub(crate) fn settle(&mut self, recorder: &mut Recorder) {
        if !self.is_on {
            return;
        }
        self.report(recorder, self.clock, None);
        let more = self.instructions.saturating_sub(self.instructions_told);
        if more != 0 {
            recorder.put(&[Record::control(Control::Advance, more).0]);
        }
        self.instructions_told += more;
        self.begin(self.clock, BEGIN);
        recorder.process().counting.store(0, Ordering::Release);
    }

    /// Reports the counts of all pages, and the number of accesses before the time `clock`.
    /// Afterwards no page is held. `current` may be a block that is being executed and the number
    /// of accesses before it. If this block's fetch was counted, the fetch is recorded, since the
    /// following accesses belong to it.
    fn report(&mut self, recorder: &mut Recorder, clock: u64, current: Option<(Whole, u64)>) {
        for index in 0..self.lists.len() {
            let mut uses = [(0, 0); PAGES_MAX];
            let mut count = 0;
            for page in self.lists[index].pages() {
                uses[count] = (Counter::last_use(self.table, self.together, index, page), page);
                count += 1;
            }
            uses[..count].sort_unstable();
            for &(_, page) in &uses[..count] {
                let is_code = |&(whole, _): &(Whole, u64)| {
                    whole.pc & !(PAGE_BYTES - 1) == page && self.bits(index) & RUN != 0
                };
                let current = current.filter(is_code);
                let current = current.filter(|_| self.table.get(page).uncount_fetch());
                for (of, count) in self.take_counts(page, index) {
                    hits(recorder, page, of, count, false);
                }
                self.table.get(page).kinds &= !self.bits(index);
                if let Some((whole, begun)) = current {
                    self.tell_fetch(recorder, whole, begun);
                }
            }
            self.lists[index].clear();
        }
        self.pass(recorder, self.accesses_at(clock));
    }

    /// Records the fetch of a block before which there were `begun` accesses.
    fn tell_fetch(&mut self, recorder: &mut Recorder, whole: Whole, begun: u64) {
        self.pass(recorder, begun);
        if let Some(number) = self.part(recorder, whole, None, 1, true) {
            recorder.put(&[Record::fixed(number, 0).0]);
        }
        self.accesses_told += 1;
        self.instructions_told += 1;
        self.run = Some(Run { whole, begun, instruction: 0 });
    }

    /// Reports that this number of accesses were made.
    fn pass(&mut self, recorder: &mut Recorder, accesses: u64) {
        let passed = accesses - self.accesses_told;
        if passed != 0 {
            recorder.put(&[Record::control(Control::Passed, passed).0]);
        }
        self.accesses_told = accesses;
    }

    /// Begins another interval at `time`.
    fn begin(&mut self, clock: u64, time: u64) {
        self.accesses = self.accesses_at(clock);
        (self.begin, self.clock) = (time, time);
    }

    /// Begins another interval: the times of pages become small numbers in the same order.
    pub(crate) fn renew(&mut self, recorder: &mut Recorder) {
        let mut times = [(0, 0, false); 4 * PAGES_MAX];
        let mut count = 0;
        for index in 0..self.lists.len() {
            for page in self.lists[index].pages().collect::<Vec<_>>() {
                let entry = self.table.get(page);
                let has = |bits: u8| entry.kinds & bits & self.bits(index) != 0;
                let uses =
                    [(has(RUN), entry.fetched, true), (has(LOADED | STORED), entry.used, false)];
                for (_, time, is_fetch) in uses.into_iter().filter(|(is_held, ..)| *is_held) {
                    times[count] = (time, page, is_fetch);
                    count += 1;
                }
                if has(RUN) {
                    self.instructions = self.instructions.wrapping_add(entry.drain());
                }
                let most = entry.most();
                if (COUNT_MAX..u32::MAX / 2).contains(&most) {
                    for (of, count) in self.take_counts(page, index) {
                        hits(recorder, page, of, count, false);
                    }
                }
            }
        }
        self.lists.iter_mut().for_each(List::forget_order);
        times[..count].sort_unstable();
        for (at, &(_, page, is_fetch)) in (1..).zip(&times[..count]) {
            let entry = self.table.get(page);
            *(if is_fetch { &mut entry.fetched } else { &mut entry.used }) = at;
        }
        // Times are even.
        self.begin(self.clock, (count as u64 + 2) & !1);
    }

    /// Holds the page of a block that is about to run at the time `clock`. If the fetch is not guaranteed to
    /// hit, it is recorded, and the entry is set so that counting the fetch again has no effect.
    pub(crate) fn fetch(&mut self, recorder: &mut Recorder, whole: Whole, clock: u64) {
        let Whole { pc, bytes, instructions } = whole;
        let last = pc.wrapping_add(u64::from(bytes)).wrapping_sub(1);
        let pages = pages(pc, last);
        if let ([page, None], true) = (pages, is_low(last))
            && let Some(page) = page
            && self.table.get(page).kinds & RUN != 0
        {
            self.table.get(page).fetched = clock as u32;
            return;
        }
        self.hold(recorder, pages, (HitsOf::Fetch, RUN), None, clock);
        self.tell_fetch(recorder, whole, self.accesses_at(clock));
        self.instructions += u64::from(instructions);
        if is_low(pc) {
            self.table.get(pc).uncount_run(instructions);
        }
    }

    /// Counts or records an access of a block at the time `clock`. Returns whether it was counted.
    /// `None` if `can_access` says that it would fault.
    pub(crate) fn access(
        &mut self,
        recorder: &mut Recorder,
        whole: Whole,
        access: Access,
        clock: u64,
        can_access: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let Access { address, tag, before } = access;
        let last = address.wrapping_add(u64::from(tag.size()) - 1);
        let pages = pages(address, last);
        let (loads, stores) = (tag.loads(), tag.stores());
        if let [Some(page), None] = pages
            && is_low(last)
            && self.table.get(page).kinds & table::needed(loads, stores) != 0
        {
            let entry = self.table.get(page);
            entry.count(loads.into(), stores.into());
            entry.used = clock as u32;
            return Some(true);
        }
        if !can_access() {
            return None;
        }
        let bits = if loads { LOADED } else { 0 } | if stores { STORED } else { 0 };
        let begun = self.accesses_at(clock) - u64::from(before);
        self.hold(recorder, pages, (HitsOf::Load, bits), Some((whole, begun)), clock);
        self.tell(recorder, whole, access, clock, begun);
        Some(false)
    }

    /// Makes these pages held pages for accesses of this kind, which use them at the time `clock`.
    /// Accesses to data belong to the execution `current` of a block: see [`Counter::report`].
    fn hold(
        &mut self,
        recorder: &mut Recorder,
        pages: [Option<u64>; 2],
        (of, bits): (HitsOf, u8),
        current: Option<(Whole, u64)>,
        clock: u64,
    ) {
        let index = self.index(of);
        if pages.iter().flatten().any(|&page| !is_low(page)) {
            // The table has no entries for this page, but the TLB has one.
            self.settle_at(recorder, current, clock);
            return;
        }
        if let [Some(first), Some(second)] = pages {
            // If both pages are new and only one entry is free, it is unknown whether the first
            // page needs this entry.
            let list = &self.lists[index];
            let set = |page: u64| list.set_of(page / PAGE_BYTES);
            let is_new = |page: u64| self.table.get(page).kinds & self.bits(index) == 0;
            let is_tight = set(first) == set(second)
                && list.count(set(first)) + 1 == list.ways()
                && is_new(first)
                && is_new(second);
            if is_tight {
                self.settle_at(recorder, current, clock);
            }
        }
        for (step, page) in (0..).zip(pages.into_iter().flatten()) {
            let is_new = self.table.get(page).kinds & self.bits(index) == 0;
            if is_new {
                self.admit(recorder, page, index);
            }
            let entry = self.table.get(page);
            if is_new && self.together {
                (entry.used, entry.fetched) = (0, 0);
            }
            entry.kinds |= bits;
            if entry.kinds & (LOADED | STORED) == LOADED | STORED {
                entry.kinds |= BOTH;
            }
            let time = clock as u32 + step;
            *(if of == HitsOf::Fetch { &mut entry.fetched } else { &mut entry.used }) = time;
        }
    }

    /// Reports all counted accesses, in the middle of an execution of a block. If code and data
    /// have separate TLBs, the page with the block's code stays held.
    fn settle_at(&mut self, recorder: &mut Recorder, current: Option<(Whole, u64)>, clock: u64) {
        let is_told = |&(whole, begun): &(Whole, u64)| {
            self.run.is_some_and(|run| run.whole == whole && run.begun == begun)
        };
        let page = current.map(|(whole, _)| whole.pc & !(PAGE_BYTES - 1));
        let is_held = |&page: &u64| is_low(page) && self.table.get(page).kinds & RUN != 0;
        let page = page.filter(is_held).filter(|_| !self.together);
        self.report(recorder, clock, current.filter(|current| !is_told(current)));
        let Some(page) = page else { return };
        // This page was used last.
        let set = self.lists[0].set_of(page / PAGE_BYTES);
        self.lists[0].add(set, page);
        let entry = self.table.get(page);
        entry.kinds |= RUN;
        entry.fetched = clock as u32;
    }

    /// Records an access of a run of a block that has begun after `begun` accesses.
    fn tell(
        &mut self,
        recorder: &mut Recorder,
        whole: Whole,
        access: Access,
        clock: u64,
        begun: u64,
    ) {
        let Access { address, tag, .. } = access;
        let (now, instruction) = (self.accesses_at(clock), tag.instruction());
        let before = self.run.filter(|run| run.whole == whole && run.begun == begun);
        // The fetch is recorded together with the access, and is no longer counted.
        let is_counted = is_low(whole.pc) && before.is_none() && {
            let entry = self.table.get(whole.pc);
            entry.kinds & RUN != 0 && entry.uncount_fetch()
        };
        if is_counted {
            self.pass(recorder, now - 1);
            let count = u32::from(instruction) + 1;
            if let Some(number) = self.part(recorder, whole, Some(tag), count, true) {
                recorder.put(&[Record::fixed(number, 1).0, address]);
            }
            self.accesses_told += 1;
            self.instructions_told += u64::from(count);
        } else {
            self.pass(recorder, now);
            let last = before.map_or(0, |run| run.instruction);
            let count = u32::from(instruction.saturating_sub(last));
            let within = (count as u16).saturating_sub(1);
            let tag = Tag(tag.0 & !Tag::INSTRUCTION_MASK | within);
            if let Some(number) = self.part(recorder, whole, Some(tag), count, false) {
                let control = Record::control(Control::Context, number.into()).0;
                if address <= Record::VALUE_MAX {
                    recorder.put(&[control, Record::access(address, tag.0).0]);
                } else {
                    let wide = Record::control(Control::Wide, tag.0.into()).0;
                    recorder.put(&[control, wide, address]);
                }
            }
            self.instructions_told += u64::from(count);
        }
        self.accesses_told += u64::from(rows(tag));
        self.run = Some(Run { whole, begun, instruction });
    }

    /// The number of a block of `instructions` instructions that consists of one access of `whole`, if there is
    /// one, and of the fetch if it `fetches`. `None` if there is no room for it.
    fn part(
        &mut self,
        recorder: &mut Recorder,
        whole: Whole,
        tag: Option<Tag>,
        instructions: u32,
        fetches: bool,
    ) -> Option<u32> {
        let bits = tag.map_or(0, |tag| tag.0);
        let key = (whole, bits, instructions | if fetches { WITH_FETCH } else { 0 });
        let place = place(key);
        if self.recent.is_empty() {
            self.recent.resize(RECENT, ((Whole::default(), 0, 0), 0));
        }
        if self.recent[place].0 == key {
            return Some(self.recent[place].1);
        }
        if let Some(&number) = self.parts.get(&key) {
            self.recent[place] = (key, number);
            return Some(number);
        }
        let count = u32::from(fetches && tag.is_some());
        let block = Block {
            pc: whole.pc,
            bytes: whole.bytes,
            instructions,
            accesses: count,
            recorded: count,
            tags: 0,
            pad: 0,
        };
        let tags = [bits];
        let number = recorder.append(block, &tags[..count as usize], &[None][..count as usize])?;
        self.parts.insert(key, number);
        Some(number)
    }

    /// The clock, while the engine runs.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// Advances the clock by this number of accesses and instructions.
    pub(crate) fn advance(&mut self, accesses: u64, instructions: u64) {
        self.clock += 2 * accesses;
        self.instructions += instructions;
    }

    /// Counts the fetch of a block of one instruction that the engine executes. The fetch is
    /// recorded if the page of code is not known to be in the TLB.
    pub(crate) fn run_fetch(&mut self, recorder: &mut Recorder, whole: Whole) {
        self.fetch(recorder, whole, self.clock);
        if is_low(whole.pc) {
            self.table.get(whole.pc).count_run(whole.instructions);
        }
        self.clock += 2;
    }

    /// Called if a block that was about to run at the time `clock` does not run. If its fetch was
    /// recorded, this counts as an execution of the block.
    pub(crate) fn run_not(&mut self, whole: Whole, clock: u64) {
        let begun = self.accesses_at(clock);
        if self.run.is_some_and(|run| run.whole == whole && run.begun == begun) {
            self.table.get(whole.pc).count_run(whole.instructions);
            self.accesses += 1;
            self.run = None;
        }
    }

    /// Called if the last assisted instruction has faulted. Takes those of its accesses that were
    /// not made back from the counts. Returns the clock without them.
    pub(crate) fn take_back_assisted(&mut self, clock: u64, fault: Option<u64>) -> u64 {
        let assisted = core::mem::take(&mut self.assisted);
        let faults = |&(address, tag, _): &(u64, Tag, bool)| {
            fault.is_some_and(|fault| fault.wrapping_sub(address) < tag.size().into())
        };
        let made = assisted.iter().position(faults).unwrap_or(0);
        let mut clock = clock;
        for &(address, tag, is_counted) in &assisted[made.min(assisted.len())..] {
            clock -= 2 * u64::from(rows(tag));
            if is_counted {
                let entry = self.table.get(address);
                entry.uncount(tag.loads().into(), tag.stores().into());
            }
        }
        clock
    }
}

/// Appends a report of counted accesses.
fn hits(recorder: &mut Recorder, page: u64, of: HitsOf, count: u32, goes: bool) {
    recorder.put(&[Record::hits(of, count.into(), goes).0, page]);
}

/// Whether there is an entry for this address.
pub(crate) fn is_low(address: u64) -> bool {
    address >> ADDRESS_BITS == 0
}

/// The pages of the bytes from `first` to `last`.
fn pages(first: u64, last: u64) -> [Option<u64>; 2] {
    let [first, last] = [first, last].map(|address| address & !(PAGE_BYTES - 1));
    [Some(first), (first != last).then_some(last)]
}
