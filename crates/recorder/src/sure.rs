//! Counting of the accesses that are guaranteed to hit the first-level TLBs of the machine that is
//! simulated at the same time. All other accesses are recorded.
//!
//! ```text
//!   an access   its page's word: time = now, count += 1    ([`crate::words`])
//!
//!   a block     all its pages held, no page crossed:       it changes only these words
//!               otherwise its uncertain accesses           --> their pages are held from now on
//!               are recorded
//! ```
//!
//! With LRU, a TLB set of n entries contains the n pages of this set that were used last. So the
//! recorder knows these pages. A page that was used since counting began is called *held*, and an
//! access to it hits. Translated code (`qemu/pagewalk/counted.c`) writes the time of the last
//! access to each page, for each kind of access, and counts the accesses. An access to a page that
//! is not held is recorded, and its page is held from then on. If n pages of a set are held and
//! another page is accessed, the least recently used page is evicted. The recorder first reports
//! this eviction ([`Control::Hits`]), with the number of accesses to the page that it has counted.
//! The machine's TLB gets the pages in the order of the reports, and not in the order of their
//! uses. This is sufficient. While fewer pages of a set are held than it has entries, an eviction
//! takes a page that is not held, and the order of these pages is correct. Once as many pages are
//! held as the set has entries, the report says which page is evicted.
//!
//! Before events that cannot be counted, all held pages are reported in the order of their last
//! uses, and are no longer held. After this, the machine's TLB is in the same state as if every
//! access had been recorded. This is done at three times: at the end of a segment if other
//! processes are recorded too, since their accesses are simulated between segments; at the
//! beginning of a system call, since the call may change TLBs; and when a signal ends the process
//! ([`crate::ending`]).
//!
//! With FIFO and random replacement, hits do not change the TLB. A page is held if it is in the
//! TLB. The host reports the TLB's contents when asked, and from then on the recorder can compute
//! the evictions ([`known`]). The machine computes the same evictions itself. So before an
//! eviction, only the number of counted accesses to the page is reported. Pages stay held when all
//! counted accesses have been reported. They are no longer held after a system call that changes
//! mappings, or after another process may have run.
//!
//! ```text
//!                  the held pages                an eviction is      at a system call
//!   LRU            those used since counting     reported            no page stays held
//!                  began, up to n of each set
//!   FIFO, random   all pages of the TLB, once    computed on both    they stay held, unless the
//!                  the host has reported them    sides               call changes mappings
//! ```
//!
//! If the accesses of a block are not known when the block is translated, the block is recorded in
//! full. Before it runs, all counted accesses are reported. Nothing is counted any more once the
//! process has a second thread, or once so many blocks have had to be recorded for a long time that
//! recording everything would cost less.

mod block;
mod known;
mod room;

use core::cell::UnsafeCell;
use core::ffi::{c_uint, c_void};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use held::{ADDRESS_BITS, List, PAGES_MAX};
use mmu::Replacement;
use ring::{Control, HitsOf, Record, Replaces, SPAN_RECORDS, SPAN_ROOM, Session, Tag};

use crate::isa::Guest;
use crate::trail::{Trail, trail};
use crate::vcpu::{self, Phase, cursor};
use crate::words::{self, CLOCK, HELD, PAGE_SHIFT, STRETCH, Stamp, Words};
use crate::{global, qemu, span};
use known::Known;
use room::Use;

/// Recording everything costs less than counting if more than one block is recorded per this number
/// of accesses.
const ACCESSES_PER_TOLD: u64 = 30;
/// After this number of consecutive intervals in which counting cost more, everything is recorded.
const DEAR_MAX: u32 = 32;
/// An interval ends early if its time is more than two steps for each instruction plus this number
/// of steps. Recorded blocks advance the time without counting instructions.
const AHEAD_MAX: u64 = STRETCH;

const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;

/// The number of records that report the counted accesses of a page, for each kind of access.
const WORD_RECORDS: usize = 2;
const KINDS: usize = 3;
/// The number of other records that are written when all counted accesses are reported.
const OTHERS: usize = 4;
const _: () = assert!(2 * WORD_RECORDS * KINDS * PAGES_MAX + OTHERS + 2 * SPAN_ROOM < SPAN_RECORDS);

/// The pseudo-random sequence by which the machine's TLBs replace entries.
struct Random(mmu::Random);

impl held::Sequence for Random {
    fn new(seed: u64) -> Random {
        Random(mmu::Random::new(seed))
    }

    fn next(&mut self, places: Range<usize>) -> usize {
        self.0.victim(places)
    }
}

struct State {
    words: Words,
    /// The held pages for fetches and those for data. If both use one TLB, only the first list is
    /// used.
    lists: [List<Random>; 2],
    together: bool,
    /// For TLBs that replace by FIFO or at random: what is known of their contents. `None` for LRU.
    known: Option<Known>,
    /// The number of records that must be free when a block begins: for the block itself, for a report
    /// of the counted accesses after it, and for another such report at the end of the segment.
    records: usize,
    /// A buffer for [`State::room_by_set`].
    used: Vec<Use>,
    /// The number of time steps in this interval that are not accesses.
    extra: u64,
    /// The numbers of accesses and instructions of this interval that were reported to the host.
    accesses: u64,
    instructions: u64,
    /// The number of blocks recorded in this interval, and the number of consecutive intervals that
    /// had too many recorded blocks.
    blocks: u64,
    dear: u32,
}

struct Cell(UnsafeCell<State>);

// SAFETY: the state is used only while the process has one thread, by this thread.
unsafe impl Sync for Cell {}

static STATE: Cell = Cell(UnsafeCell::new(State {
    words: Words::NONE,
    lists: [List::NONE; 2],
    together: false,
    known: None,
    records: 0,
    used: Vec::new(),
    extra: 0,
    accesses: 0,
    instructions: 0,
    blocks: 0,
    dear: 0,
}));
/// `ON`: whether blocks are translated so that their accesses are counted. `COUNTS`: whether there
/// may be counted accesses that were not reported.
static ON: AtomicBool = AtomicBool::new(false);
static COUNTS: AtomicBool = AtomicBool::new(false);

/// Begins counting, if the session requests it and the guest and this host support it.
pub(crate) fn prepare(session: &Session, guest: Guest) {
    let pages = session.sure_pages.map(|pages| pages as usize);
    let sets = session.sure_sets.map(|sets| sets as usize);
    let replaces = session.sure_replaces.map(Replaces::from_bits);
    let [Some(code), Some(data)] = replaces else { return };
    let can_follow = matches!(guest, Guest::X86_64 | Guest::I386);
    if pages.contains(&0)
        || sets.contains(&0)
        || pages.iter().any(|&pages| pages > PAGES_MAX)
        || !can_follow
        || session.inline_code == 0
        || !cfg!(target_arch = "x86_64")
    {
        return;
    }
    session.counts.store(1, Ordering::Relaxed);
    // The contents of such TLBs stay known only while no other process runs. If several processes
    // run, they would not be known for long.
    let is_vain = code != Replaces::Lru && session.running.load(Ordering::Acquire) > 1;
    let Some(words) = Words::new().filter(|_| !is_vain) else { return };
    // SAFETY: the process has one thread, which runs nothing yet.
    let state = unsafe { &mut *STATE.0.get() };
    state.words = words;
    state.together = session.sure_together != 0;
    state.used = Vec::with_capacity(2 * SPAN_ROOM);
    state.lists = [List::new(pages[0], sets[0], code), List::new(pages[1], sets[1], data)];
    state.known = (code != Replaces::Lru).then(|| Known::new(session.sure_patience));
    let words = if state.together { KINDS * pages[0] } else { pages[0] + (KINDS - 1) * pages[1] };
    state.records = 2 * WORD_RECORDS * words + OTHERS + 2 * SPAN_ROOM;
    ON.store(true, Ordering::Release);
}

/// Whether blocks that are translated now are counted.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Acquire)
}

/// From now on, blocks are translated to record all of their accesses. All counted accesses must be
/// reported before the process gets a second thread.
pub(crate) fn stop() {
    ON.store(false, Ordering::Release);
}

/// The address of the words of the page at address 0.
pub(crate) fn words() -> u64 {
    // SAFETY: set before anything is translated.
    unsafe { (*STATE.0.get()).words.start() }
}

/// Whether the pages of a block of `bytes` bytes at `pc` can be determined while hits are counted.
pub(crate) fn can_follow(pc: u64, bytes: u32) -> bool {
    is_on() && pc.checked_add(bytes.into()).is_some_and(|end| end >> ADDRESS_BITS == 0)
}

/// Whether the accesses of a block with these `tags` and this number of instructions can be
/// counted. Three conditions must hold: no access is both a load and a store; each TLB has more
/// entries than the block can use; and the counts and times in the words cannot overflow.
pub(crate) fn can_count(tags: &[u16], instructions: u32) -> bool {
    // SAFETY: as for `words`.
    let state = unsafe { &*STATE.0.get() };
    let most = state.most_pages(tags.len());
    let leaves_some =
        |(list, most): (&List<Random>, usize)| most == 0 || most < list.sets() * list.ways();
    state.lists.iter().zip(most).all(leaves_some)
        && tags.iter().all(|&tag| Tag(tag).loads() != Tag(tag).stores())
        && tags.len() < 2 * instructions as usize
}

/// Called before a block whose pages can be determined, if not all accesses of the last block were
/// counted, or the interval is over.
pub(crate) unsafe extern "C" fn on_told(vcpu: c_uint, _: *mut c_void) {
    // SAFETY: QEMU calls this on the thread of `vcpu`, which is the only one.
    let state = unsafe { &mut *STATE.0.get() };
    if counts() {
        state.tell_block(vcpu);
        let is_due = state.is_due();
        let is_tight = span::left(vcpu) < state.records;
        if is_due || is_tight && !is_only_process() {
            state.settle(vcpu);
        } else if is_tight {
            span::make_room(vcpu, state.records);
        }
        if is_due {
            span::heed(vcpu);
            span::mark(vcpu, true);
            state.weigh(vcpu);
        }
    }
    state.ask_if_due(vcpu);
    if !counts() || !is_attached(vcpu) {
        state.open(vcpu);
    }
    // SAFETY: as above.
    unsafe { (*trail()).state = Trail::TOLD };
}

/// Whether this process is the only recorded one. Accesses of other processes would be simulated
/// between its segments.
fn is_only_process() -> bool {
    global::shared().session().running.load(Ordering::Acquire) <= 1
}

/// Called before a block that is recorded in full.
pub(crate) unsafe extern "C" fn on_plain(vcpu: c_uint, _: *mut c_void) {
    settle(vcpu);
    known::watch(vcpu);
}

/// Called when a block begins that is recorded in full; `record` is its whole record.
pub(crate) unsafe extern "C" fn on_block(vcpu: c_uint, record: *mut c_void) {
    settle(vcpu);
    known::watch(vcpu);
    // SAFETY: QEMU has called this function with the same arguments.
    unsafe { vcpu::on_block(vcpu, record) };
}

/// Whether there may be counted accesses that were not reported.
pub(crate) fn counts() -> bool {
    COUNTS.load(Ordering::Relaxed)
}

/// Sets whether there may be counted accesses that were not reported. The host can read this too.
fn set_counts(counts: bool) {
    COUNTS.store(counts, Ordering::Relaxed);
    global::process().counting.store(counts.into(), Ordering::Release);
}

/// Reports all counted accesses. Called before events that cannot be counted. With LRU no page is
/// held afterwards.
pub(crate) fn settle(vcpu: u32) {
    if counts() || known::is_watching() {
        // SAFETY: while hits are counted, the process has one thread, which runs this function.
        unsafe { (*STATE.0.get()).settle(vcpu) };
    }
}

/// Called before a system call that changes mappings, or after which other processes may run. Such
/// a call may flush any TLB entry. All counted accesses have already been reported.
pub(crate) fn forget() {
    // The state is used only while the process has one thread, so it is not changed if there are
    // several.
    if vcpu::is_alone() {
        // SAFETY: the process has one thread.
        unsafe { (*STATE.0.get()).forget() };
    }
}

impl State {
    /// See [`settle`].
    fn settle(&mut self, vcpu: u32) {
        self.look(vcpu);
        if !counts() {
            return;
        }
        self.tell_block(vcpu);
        self.tell_all(vcpu);
        put_control(vcpu, Control::Passed, self.accesses_now() - self.accesses);
        put_control(vcpu, Control::Advance, self.instructions_now() - self.instructions);
        self.note_run();
        set_counts(false);
        // SAFETY: the trail is this thread's.
        unsafe { (*trail()).state = Trail::UNTOLD };
    }

    fn index(&self, of: HitsOf) -> usize {
        usize::from(of != HitsOf::Fetch && !self.together)
    }

    /// The indices of the lists of pages that are in use.
    fn in_use(&self) -> Range<usize> {
        0..if self.together { 1 } else { self.lists.len() }
    }

    /// Begins an interval.
    fn open(&mut self, vcpu: u32) {
        self.look(vcpu);
        span::make_room(vcpu, self.records);
        (self.extra, self.accesses, self.instructions) = (0, 0, 0);
        // SAFETY: the trail is this thread's.
        unsafe { (*trail()).clock = CLOCK };
        set_counts(true);
    }

    fn clock(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (*trail()).clock }
    }

    /// The number of accesses in this interval so far.
    fn accesses_now(&self) -> u64 {
        words::steps(self.clock()) - self.extra
    }

    /// The number of instructions in this interval so far, without the instructions of blocks that
    /// are not counted.
    fn instructions_now(&self) -> u64 {
        words::instructions(self.clock())
    }

    /// Whether the interval is over.
    fn is_due(&self) -> bool {
        let clock = self.clock();
        clock & HELD == 0 || words::steps(clock) > 2 * words::instructions(clock) + AHEAD_MAX
    }

    /// Called at the end of an interval. If so many blocks are recorded that counting is not worth
    /// its cost, blocks that are translated from now on record all of their accesses.
    fn weigh(&mut self, vcpu: u32) {
        let is_dear = std::mem::take(&mut self.blocks) * ACCESSES_PER_TOLD > self.accesses_now();
        // With other processes, the contents of the TLBs would not stay known for long.
        let is_vain = self.known.is_some() && !is_only_process();
        let more = if is_vain { DEAR_MAX / 2 } else { 1 };
        self.dear = if is_dear { self.dear + more } else { 0 };
        if self.dear >= DEAR_MAX {
            stop();
            qemu::flush(vcpu);
        }
    }

    /// Whether a page is in the list with this index: it is held for some kind of access.
    fn has(&self, page: u64, index: usize) -> bool {
        self.kinds(index).iter().any(|&of| self.words.holds(page, of))
    }

    /// The set to which a page belongs in the list with this index.
    fn set_of(&self, page: u64, index: usize) -> usize {
        self.lists[index].set_of(page >> PAGE_SHIFT)
    }

    /// Adds `page` to the list with this `index`. The page must not be in the list yet. Returns the
    /// page that was replaced, if any.
    fn admit(&mut self, page: u64, index: usize) -> Option<u64> {
        let (words, kinds, set) = (self.words, self.kinds(index), self.set_of(page, index));
        let list = &mut self.lists[index];
        let gone = if list.count(set) < list.ways() {
            list.add(set, page);
            None
        } else {
            list.exchange(set, page, |page| words.last_use(page, kinds).number())
        };
        if self.known.is_some() {
            // The page is held for all kinds of access: the TLB has an entry for it, whatever the
            // access.
            kinds.iter().for_each(|&of| words.hold_only(page, of));
        }
        gone
    }

    /// Reports the counted accesses to a `page` that was replaced. With LRU, the report says that
    /// this page is evicted. Otherwise the machine itself computes which page is evicted.
    fn tell_gone(&mut self, vcpu: u32, page: u64, index: usize) {
        let (words, kinds) = (self.words, self.kinds(index));
        let (mut goes, mut uncounted) = (self.known.is_none(), None);
        for &of in kinds.iter().filter(|&&of| words.holds(page, of)) {
            match words.take(page, of) {
                0 => uncounted = Some(of),
                count => put_hits(vcpu, page, of, count, std::mem::take(&mut goes)),
            }
        }
        if let Some(of) = uncounted.filter(|_| goes) {
            put_hits(vcpu, page, of, 0, true);
        }
    }

    /// Reports the counted accesses to all pages. With LRU they are reported in the order of their
    /// last uses, and no page is held afterwards.
    fn tell_all(&mut self, vcpu: u32) {
        let words = self.words;
        for index in 0..self.lists.len() {
            let kinds = self.kinds(index);
            if self.known.is_some() {
                for page in self.lists[index].pages() {
                    for &of in kinds {
                        let count = words.take(page, of);
                        words.hold_only(page, of);
                        if count > 0 {
                            put_hits(vcpu, page, of, count, false);
                        }
                    }
                }
                continue;
            }
            let mut uses = [(Stamp::default(), 0, HitsOf::Fetch); KINDS * PAGES_MAX];
            let mut count = 0;
            for page in self.lists[index].pages() {
                for &of in kinds.iter().filter(|&&of| words.holds(page, of)) {
                    uses[count] = (words.stamp(page, of), page, of);
                    count += 1;
                }
            }
            uses[..count].sort_unstable_by_key(|&(stamp, ..)| stamp);
            for &(_, page, of) in &uses[..count] {
                put_hits(vcpu, page, of, words.take(page, of), false);
            }
            self.lists[index].clear();
        }
    }

    /// The kinds of access that look up the TLB to which the list with this index belongs.
    fn kinds(&self, index: usize) -> &'static [HitsOf] {
        match (self.together, index) {
            (true, _) => &[HitsOf::Fetch, HitsOf::Load, HitsOf::Store],
            (false, 0) => &[HitsOf::Fetch],
            (false, _) => &[HitsOf::Load, HitsOf::Store],
        }
    }
}

/// Whether the thread of `vcpu` has a ring.
fn is_attached(vcpu: u32) -> bool {
    // SAFETY: only this thread uses the cursor.
    unsafe { (*cursor(vcpu)).phase == Phase::Attached }
}

/// Appends a control record with this `value`, unless the value is 0.
fn put_control(vcpu: u32, control: Control, value: u64) {
    if value != 0 {
        put_words(vcpu, &[Record::control(control, value).0]);
    }
}

/// Appends a report of `count` counted accesses to a page. `goes` says whether the page is evicted.
fn put_hits(vcpu: u32, page: u64, of: HitsOf, count: u64, goes: bool) {
    put_words(vcpu, &[Record::hits(of, count, goes).0, page]);
}

/// Appends records. There must be room for them: see [`State::records`].
fn put_words(vcpu: u32, words: &[u64]) {
    if is_attached(vcpu) {
        let at = vcpu::position(vcpu);
        // SAFETY: the rest of the span belongs to this thread and is longer than `words`.
        unsafe {
            ptr::copy_nonoverlapping(words.as_ptr(), at, words.len());
            vcpu::advance(vcpu, at.add(words.len()));
        }
    }
}
