//! Counting of accesses that are guaranteed to hit the first-level TLBs of the machine that is
//! simulated at the same time. Other accesses are recorded.
//!
//! ```text
//!   an access        its page's word: time = now, count += 1    ([`crate::words`])
//!
//!   a block          all its words held, no page crossed?       it has left no trace but there
//!                    else what is not sure of it is told        --> its pages are held from here on
//! ```
//!
//! With LRU, a set of n entries holds the n of its pages that were used last. So these pages are known here: a page
//! that was used since counting began is *held*, and an access to it hits. Translated code
//! (`qemu/pagewalk/counted.c`) writes the time of the last access to each page, by kind, and counts the accesses. An
//! access to a page that is not held is recorded, and its page is held from then on. If n pages of a set are held and
//! another one comes, the least recently used one is evicted: this is reported first ([`Control::Hits`]), with the
//! accesses that were counted. The machine's TLB sees the pages in the order of the reports, and not in the order of
//! their uses. That is sufficient: the order of pages that are not held is correct, and these are evicted before any
//! page that is held. Once as many pages of a set are held as the set has entries, the TLB is told which page is
//! evicted.
//!
//! Before anything that is not counted, all held pages are reported in the order of their times and are no
//! longer held: then the machine's TLB is in the same state as if every access had been recorded. This is
//! done at the end of a segment if other processes are recorded too, whose accesses come between segments; at
//! the beginning of a system call, as it may change TLBs; and at the end of a process by a signal
//! ([`crate::ending`]).
//!
//! With FIFO and random replacement, hits do not change the TLB. A page is held if it is in the TLB: the host
//! reports the contents when asked, and from then on the evictions are known here ([`known`]). The machine
//! computes the same evictions itself, so that only a page's counted accesses are reported before its
//! eviction. Pages stay held when all counted accesses have been reported, but not at system calls that
//! change mappings, nor where another process may run.
//!
//! ```text
//!                        held are                   who goes is        at a system call
//!   LRU                  pages used since counting   told               none is held any more
//!                        began, n of each set
//!   FIFO, random         all pages of the TLB, once  known to both      they stay, unless it changes mappings
//!                        it was asked                sides
//! ```
//!
//! Blocks whose accesses are not known when they are translated are recorded in full, while no page is held
//! or after all counted accesses have been reported. Everything is recorded once the process has a second
//! thread, or if for a long time so many blocks have to be recorded that recording everything would cost
//! less.

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

/// Recording everything costs less if more than one block is recorded per this number of accesses.
const ACCESSES_PER_TOLD: u64 = 30;
/// The number of such intervals in a row after which everything is recorded.
const DEAR_MAX: u32 = 32;
/// How far the time may exceed two steps for each instruction: recorded blocks advance it too.
const AHEAD_MAX: u64 = STRETCH;

const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;

/// The number of records that report the counted accesses of a page, for each kind of access.
const WORD_RECORDS: usize = 2;
const KINDS: usize = 3;
/// The number of further records when all counted accesses are reported.
const OTHERS: usize = 4;
const _: () = assert!(2 * WORD_RECORDS * KINDS * PAGES_MAX + OTHERS + 2 * SPAN_ROOM < SPAN_RECORDS);

/// The sequence of the machine's TLBs.
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
    /// For fetches and for data; only the first one is used if both use one TLB.
    lists: [List<Random>; 2],
    together: bool,
    /// The contents of TLBs that do not replace by LRU; `None` if they replace by LRU.
    known: Option<Known>,
    /// The number of records that must be free when a block begins: for the block itself, for a report
    /// of the counted accesses after it, and for another such report at the end of the segment.
    records: usize,
    /// A buffer for [`State::room_by_set`].
    used: Vec<Use>,
    /// Steps of this interval's time that are not accesses.
    extra: u64,
    /// Accesses and instructions of this interval that were reported to the host.
    accesses: u64,
    instructions: u64,
    /// Blocks recorded in this interval, and the number of intervals in a row that had too many.
    blocks: u64,
    dear: u32,
}

struct Cell(UnsafeCell<State>);

// SAFETY: it is used while the process has one thread, by that.
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
/// Whether blocks are translated to be counted, and whether there may be counted accesses that were
/// not reported.
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
    // What TLBs hold can be known of a process that is alone: another does not stay so for long.
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

/// From here on, blocks are translated to record everything. Before the process gets a second thread, all
/// counted accesses must be reported.
pub(crate) fn stop() {
    ON.store(false, Ordering::Release);
}

/// The address of the words of the page at address 0.
pub(crate) fn words() -> u64 {
    // SAFETY: set before anything is translated.
    unsafe { (*STATE.0.get()).words.start() }
}

/// Whether a block of `bytes` bytes at `pc` can be followed.
pub(crate) fn can_follow(pc: u64, bytes: u32) -> bool {
    is_on() && pc.checked_add(bytes.into()).is_some_and(|end| end >> ADDRESS_BITS == 0)
}

/// Whether the accesses of a block with such `tags` and this number of instructions can be counted: no access
/// is both a load and a store, each TLB has at least one page that the block does not use, and the words have
/// room for the accesses.
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

/// Called before a block that is followed, if not all accesses of the last block were counted, or
/// the interval is over.
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

/// Whether no other process is recorded, whose accesses would come between this one's segments.
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
    // SAFETY: as QEMU calls this.
    unsafe { vcpu::on_block(vcpu, record) };
}

/// Whether there may be counted accesses that were not reported.
pub(crate) fn counts() -> bool {
    COUNTS.load(Ordering::Relaxed)
}

/// Sets whether there may be counted accesses that were not reported, also for the host.
fn set_counts(counts: bool) {
    COUNTS.store(counts, Ordering::Relaxed);
    global::process().counting.store(counts.into(), Ordering::Release);
}

/// Reports all counted accesses, before anything that is not counted. With LRU no page is held
/// afterwards.
pub(crate) fn settle(vcpu: u32) {
    if counts() || known::is_watching() {
        // SAFETY: counting, the process has one thread, and this is it.
        unsafe { (*STATE.0.get()).settle(vcpu) };
    }
}

/// Called before a system call that changes mappings, or after which other processes may run: any TLB entry
/// may be dropped. All counted accesses have been reported.
pub(crate) fn forget() {
    // Code that was translated to count may run on for a while after that has ended.
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

    /// The indices of the lists that are in use.
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

    /// The number of instructions in this interval so far, without those of blocks that are not
    /// counted.
    fn instructions_now(&self) -> u64 {
        words::instructions(self.clock())
    }

    /// Whether the interval is over.
    fn is_due(&self) -> bool {
        let clock = self.clock();
        clock & HELD == 0 || words::steps(clock) > 2 * words::instructions(clock) + AHEAD_MAX
    }

    /// Called at the end of an interval: if so many blocks are recorded that counting does not pay, blocks
    /// that are translated from here on record everything.
    fn weigh(&mut self, vcpu: u32) {
        let is_dear = std::mem::take(&mut self.blocks) * ACCESSES_PER_TOLD > self.accesses_now();
        // It will not be known for long what the TLBs hold.
        let is_vain = self.known.is_some() && !is_only_process();
        let more = if is_vain { DEAR_MAX / 2 } else { 1 };
        self.dear = if is_dear { self.dear + more } else { 0 };
        if self.dear >= DEAR_MAX {
            stop();
            qemu::flush(vcpu);
        }
    }

    /// Whether a page is in the list of that index: it is held for some kind of access.
    fn has(&self, page: u64, index: usize) -> bool {
        self.kinds(index).iter().any(|&of| self.words.holds(page, of))
    }

    /// The set of a page in the list of that index.
    fn set_of(&self, page: u64, index: usize) -> usize {
        self.lists[index].set_of(page >> PAGE_SHIFT)
    }

    /// Holds `page`, which is in no list yet. Returns the page that it replaces, if any.
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
            // Nothing forbids accesses of any kind.
            kinds.iter().for_each(|&of| words.hold_only(page, of));
        }
        gone
    }

    /// Reports the counted accesses of a `page` that was replaced. With LRU, the report says that this page
    /// is evicted; otherwise the machine computes that itself.
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

    /// Reports the counted accesses of all pages; with LRU in the order of their last uses, after which no
    /// page is held.
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

    /// The kinds of access that look up the TLB whose pages are in the list of that index.
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

/// Appends a report of `count` counted accesses to a page, and whether the page is evicted
/// (`goes`).
fn put_hits(vcpu: u32, page: u64, of: HitsOf, count: u64, goes: bool) {
    put_words(vcpu, &[Record::hits(of, count, goes).0, page]);
}

/// Appends records for which there is room: see [`State::records`].
fn put_words(vcpu: u32, words: &[u64]) {
    if is_attached(vcpu) {
        let at = vcpu::position(vcpu);
        // SAFETY: the rest of the span is this thread's, and longer.
        unsafe {
            ptr::copy_nonoverlapping(words.as_ptr(), at, words.len());
            vcpu::advance(vcpu, at.add(words.len()));
        }
    }
}
