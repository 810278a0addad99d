//! Accesses that surely hit the first TLBs of the machine that runs beside are counted, not told.
//!
//! ```text
//!   an access        its page's word: time = now, count += 1    ([`crate::words`])
//!
//!   a block          all its words held, no page crossed?       it has left no trace but there
//!                    else it is told, as without all this       --> its pages are held from here on
//! ```
//!
//! Under LRU, a set of n entries has those n of its pages that were used last. So it is known here which
//! those are: a page is *held* that was used since counting began, and an access to it hits. Translated
//! code ([`crate::counted`]) writes down the time of the last access to each page, by kind, and counts them.
//! What it does not find held is told, and its page is held. When n pages of a set are held and another comes,
//! the one goes that was used longest ago: that is told before ([`Control::Hits`]), with the accesses that were
//! counted. The machine's TLB has the order in which pages were told, and not that of their uses. It needs
//! none: of pages that are not held it is right, and these go before any that is held; and once as many
//! are held as a set has entries, it is told who goes.
//!
//! Before anything comes that is not counted, all held pages are told in the order of their times and are held
//! no more: then the machine's TLB is as if every access had been told. So segments end where
//! other processes are recorded too, whose accesses come between segments, and so system calls begin, whatever
//! they may do to TLBs.
//!
//! A block is told as a whole, after it has run. Its own code has written into the words; what they were before
//! was kept ([`OLD`]), is put back, and its accesses are gone through again, one after the other.
//!
//! Blocks whose accesses are not known when they are translated are told as ever, while no page is
//! held. So is everything once the process has a second thread, or if for long so many blocks have to be told that it
//! would cost less to tell all.

use core::cell::UnsafeCell;
use core::ffi::{c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use ring::{Control, HitsOf, Next, Record, SPAN_RECORDS, SPAN_ROOM, Session, Tag};

use crate::calls::Guest;
use crate::derived::{self, Block};
use crate::held::{List, PAGES_MAX};
use crate::vcpu::{self, Phase, cursor};
use crate::words::{ADDRESS_BITS, ONE, PAGE_SHIFT, TIME_SHIFT, Words};
use crate::{global, span};

/// Accesses after which what was counted is told at the latest.
const STRETCH: u64 = 1 << 20;
/// Blocks of a stretch that are told, of which more cost more than to tell all.
const TOLD_MAX: u64 = STRETCH / 40;
/// Stretches of that kind in a row, after which all is told.
const DEAR_MAX: u32 = 16;

const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;
/// From one access to the next. In between is the second page of one that crosses into it.
pub(crate) const UNIT: u64 = 2 << TIME_SHIFT;
/// Times do not come near their end.
const CLOCK_MAX: u64 = u64::MAX - 4 * STRETCH * UNIT;

/// Records that tell what was counted of a page, for each kind of access.
const WORD_RECORDS: usize = 2;
const KINDS: usize = 3;
/// Other records that are put when all is told.
const OTHERS: usize = 4;
const _: () = assert!(2 * WORD_RECORDS * KINDS * PAGES_MAX + OTHERS + 2 * SPAN_ROOM < SPAN_RECORDS);

/// What the words were that a block writes, in the order of its accesses, its fetch first.
#[repr(C, align(64))]
struct Old(UnsafeCell<[u64; SPAN_ROOM]>);

// SAFETY: it is used while the process has one thread, by that.
unsafe impl Sync for Old {}

static OLD: Old = Old(UnsafeCell::new([0; SPAN_ROOM]));

/// Whether there is room for the pages that a block uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// There is, or as many others go that are held.
    Left,
    /// Some set would be full before the last of them comes. Nobody knows which of them the TLB has room for, and
    /// so for which a page goes that is held: it is known where none is.
    Anew,
    /// The block uses as many pages of a set as that keeps.
    Never,
}

struct State {
    words: Words,
    /// For fetches and for data; the first for both, if they are in one TLB.
    lists: [List; 2],
    together: bool,
    /// The clock, while it is not in [`Next`].
    clock: u64,
    /// The clock when something was told last.
    told: u64,
    /// Blocks told in the present stretch, and stretches in a row that had too many.
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
    clock: UNIT | ONE,
    told: 0,
    blocks: 0,
    dear: 0,
}));
static ON: AtomicBool = AtomicBool::new(false);

/// Begins to count, if the session asks for it and the guest and this host can.
pub(crate) fn prepare(session: &Session, guest: Guest) {
    let pages = session.sure_pages.map(|pages| pages as usize);
    let sets = session.sure_sets.map(|sets| sets as usize);
    let is_known = matches!(guest, Guest::X86_64 | Guest::I386);
    if pages.contains(&0)
        || sets.contains(&0)
        || pages.iter().any(|&pages| pages > PAGES_MAX)
        || !is_known
        || session.inline_code == 0
        || !cfg!(target_arch = "x86_64")
    {
        return;
    }
    let Some(words) = Words::new() else { return };
    // SAFETY: the process has one thread, which runs nothing yet.
    let state = unsafe { &mut *STATE.0.get() };
    state.words = words;
    state.together = session.sure_together != 0;
    let shapes = pages.into_iter().zip(sets);
    state.lists.iter_mut().zip(shapes).for_each(|(list, (pages, sets))| list.be_for(pages, sets));
    ON.store(true, Ordering::Release);
}

/// Whether blocks that are translated now are counted.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Acquire)
}

/// From here on blocks are translated so that they tell everything. Before the process gets a second thread, what was
/// counted must be told.
pub(crate) fn stop() {
    ON.store(false, Ordering::Release);
}

/// Where the words of the page at address 0 are.
pub(crate) fn words() -> u64 {
    // SAFETY: set before anything is translated.
    unsafe { (*STATE.0.get()).words.start() }
}

/// Where [`OLD`] is.
pub(crate) fn old() -> u64 {
    OLD.0.get() as u64
}

/// Whether a block of so many bytes from `pc` on can be followed.
pub(crate) fn can_follow(pc: u64, bytes: u32) -> bool {
    is_on() && pc.checked_add(bytes.into()).is_some_and(|end| end >> ADDRESS_BITS == 0)
}

/// Whether the accesses of a block with such `tags` can be counted: none is a load and a store, and some page is
/// left in each TLB that the block does not use.
pub(crate) fn can_count(tags: &[u16]) -> bool {
    // SAFETY: as for `words`.
    let state = unsafe { &*STATE.0.get() };
    let most = state.most_pages(tags.len());
    let leaves_some = |(list, most): (&List, usize)| most == 0 || most < list.sets() * list.ways();
    state.lists.iter().zip(most).all(leaves_some)
        && tags.iter().all(|&tag| Tag(tag).loads() != Tag(tag).stores())
}

/// A block comes that is followed, and the last one was not counted, or something must be told.
pub(crate) unsafe extern "C" fn on_told(vcpu: c_uint, _: *mut c_void) {
    // SAFETY: QEMU calls this on the thread of `vcpu`, which is the only one.
    let state = unsafe { &mut *STATE.0.get() };
    let next = vcpu::shared(vcpu);
    if counts(vcpu) {
        state.tell_block(vcpu, next);
        let is_due = next.clock.load(Ordering::Relaxed) >= next.limit.load(Ordering::Relaxed);
        let is_tight = span::left(vcpu) < state.records();
        if is_due || is_tight && !is_only_process() {
            settle(vcpu);
        } else if is_tight {
            span::make_room(vcpu, state.records());
        }
        if is_due {
            span::heed(vcpu);
            span::mark(vcpu, true);
            state.weigh(vcpu);
        }
    }
    if !counts(vcpu) || !is_attached(vcpu) {
        state.open(vcpu, next);
    }
    next.home.store(vcpu::position(vcpu) as u64, Ordering::Relaxed);
    next.pending.store(0, Ordering::Relaxed);
}

/// Whether no other process is recorded, whose accesses would come between this one's segments.
fn is_only_process() -> bool {
    global::shared().session().running.load(Ordering::Acquire) <= 1
}

/// A block comes that is told as ever.
pub(crate) unsafe extern "C" fn on_plain(vcpu: c_uint, _: *mut c_void) {
    settle(vcpu);
}

/// The same, and its record is written here.
pub(crate) unsafe extern "C" fn on_block(vcpu: c_uint, record: *mut c_void) {
    settle(vcpu);
    // SAFETY: as QEMU calls this.
    unsafe { vcpu::on_block(vcpu, record) };
}

/// Whether there may be something that was counted and not told.
pub(crate) fn counts(vcpu: u32) -> bool {
    vcpu::shared(vcpu).home.load(Ordering::Relaxed) != 0
}

/// Tells all that was counted, and holds no page any more: something comes that is not counted.
pub(crate) fn settle(vcpu: u32) {
    let next = vcpu::shared(vcpu);
    if !counts(vcpu) {
        return;
    }
    // SAFETY: counting, the process has one thread, and this is it.
    let state = unsafe { &mut *STATE.0.get() };
    state.tell_block(vcpu, next);
    state.tell_all(vcpu);
    let clock = next.clock.load(Ordering::Relaxed);
    put_control(vcpu, Control::Passed, (clock - state.told) / UNIT);
    put_control(vcpu, Control::Advance, next.instructions.swap(0, Ordering::Relaxed));
    state.clock = clock;
    next.home.store(0, Ordering::Relaxed);
    next.pending.store(1, Ordering::Relaxed);
}

impl State {
    fn index(&self, of: HitsOf) -> usize {
        usize::from(of != HitsOf::Fetch && !self.together)
    }

    /// Records that must be free when a block begins: it may be told, then what was counted, and that
    /// once more at the segment's end.
    fn records(&self) -> usize {
        let [first, second] =
            [&self.lists[0], &self.lists[1]].map(|list| list.sets() * list.ways());
        let words = if self.together { KINDS * first } else { first + 2 * second };
        2 * WORD_RECORDS * words + OTHERS + 2 * SPAN_ROOM
    }

    /// Begins to count anew.
    fn open(&mut self, vcpu: u32, next: &Next) {
        if self.clock > CLOCK_MAX {
            self.words.anew();
            self.clock = UNIT | ONE;
        }
        span::make_room(vcpu, self.records());
        self.told = self.clock;
        next.clock.store(self.clock, Ordering::Relaxed);
        next.limit.store(self.clock + STRETCH * UNIT, Ordering::Relaxed);
        next.instructions.store(0, Ordering::Relaxed);
    }

    /// A stretch has ended: where so many blocks are told that counting the others does not pay, what is
    /// translated from here on tells all.
    fn weigh(&mut self, vcpu: u32) {
        let is_dear = std::mem::take(&mut self.blocks) > TOLD_MAX;
        self.dear = if is_dear { self.dear + 1 } else { 0 };
        if self.dear == DEAR_MAX {
            stop();
            global::internals().flush(vcpu);
        }
    }

    /// If the last block was not counted: tells it, and holds its pages.
    fn tell_block(&mut self, vcpu: u32, next: &Next) {
        let home = next.home.load(Ordering::Relaxed) as *mut u64;
        if next.pending.swap(0, Ordering::Relaxed) == 0 || !is_attached(vcpu) {
            return;
        }
        // SAFETY: the block's code has written its record there, and its addresses behind it.
        let record = Record(unsafe { *home });
        let (number, count) = record.fixed_parts();
        let Some(block) = derived::block(number) else { return };
        let mut addresses = [0; SPAN_ROOM];
        let Some(addresses) = addresses.get_mut(..count) else { return };
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(home.add(1), addresses.as_mut_ptr(), count) };
        let clock = next.clock.load(Ordering::Relaxed) >> TIME_SHIFT;
        let begun = match block.is_counted {
            true => self.words.time(block.pc, HitsOf::Fetch),
            false => clock,
        };
        let after = |accesses: usize| begun + 2 * (1 + accesses as u64);
        let whole = block.is_counted && clock == after(block.accesses.len());
        let made = match block.is_counted {
            true => self.take_back(block, addresses, begun, whole),
            false => derived::accesses(record, addresses),
        };
        let mut record = Record::fixed(number, count as u8);
        if made < block.accesses.len() {
            record = record.left_after(made as u8);
        }
        if whole {
            next.instructions.fetch_sub(block.instructions.into(), Ordering::Relaxed);
        }
        self.blocks += 1;
        vcpu::go_back(vcpu, home);
        let room = match block.is_counted && self.leaves_room(made) {
            true => Room::Left,
            false => self.room(block, addresses, made),
        };
        if room != Room::Left {
            self.tell_all(vcpu);
        }
        if room != Room::Never {
            self.go_through(vcpu, block, addresses, begun, made);
        }
        put_control(vcpu, Control::Passed, (begun - (self.told >> TIME_SHIFT)) / 2);
        put_words(vcpu, &[record.0]);
        put_words(vcpu, addresses);
        self.told = after(made) << TIME_SHIFT | ONE;
        next.clock.store(self.told, Ordering::Relaxed);
    }

    /// Whether there is room in any case for the pages of a counted block that has made so many accesses: each
    /// TLB has one set, which is full or will not be.
    fn leaves_room(&self, made: usize) -> bool {
        self.lists.iter().zip(self.most_pages(made)).all(|(list, most)| {
            let (count, ways) = (list.count(0), list.ways());
            most == 0 || list.sets() == 1 && (count == ways || count + most <= ways)
        })
    }

    /// Whether there is room for the pages that a block uses.
    fn room(&self, block: &Block, addresses: &[u64], made: usize) -> Room {
        // Each of them once, with its list and set, and whether it is new.
        let mut used = [(0, (0, 0), false); 2 * SPAN_ROOM];
        let mut count = 0;
        let mut note = |first: u64, last: u64, index: usize| {
            for address in [first, last] {
                let page = address & !(PAGE_BYTES - 1);
                if !used[..count].iter().any(|&(other, (of, _), _)| (other, of) == (page, index)) {
                    let place = (index, self.set_of(page, index));
                    used[count] = (page, place, !self.has(page, index));
                    count += 1;
                }
            }
        };
        note(block.pc, block.last(), self.index(HitsOf::Fetch));
        for (address, tag) in accesses(block, addresses).take(made) {
            note(address, last_byte(address, tag), self.index(HitsOf::Load));
        }
        let used = &used[..count];
        let mut room = Room::Left;
        for &(_, place, _) in used.iter().filter(|&&(.., is_new)| is_new) {
            let here = || used.iter().filter(|&&(_, other, _)| other == place);
            let (count, ways) = (self.lists[place.0].count(place.1), self.lists[place.0].ways());
            if here().count() >= ways {
                return Room::Never;
            }
            if count < ways && count + here().filter(|&&(.., is_new)| is_new).count() > ways {
                room = Room::Anew;
            }
        }
        room
    }

    /// How many pages of each list a block uses at most that makes so many accesses.
    fn most_pages(&self, accesses: usize) -> [usize; 2] {
        if self.together { [2 + 2 * accesses, 0] } else { [2, 2 * accesses] }
    }

    /// Makes the words what they were before the block, and gives how many accesses it has made: those
    /// whose words were written since it began at the time `begun`, if it is not `whole`.
    fn take_back(&self, block: &Block, addresses: &[u64], begun: u64, whole: bool) -> usize {
        let word = |(index, (address, tag)): (usize, (u64, Tag))| {
            let now = begun + 2 * (1 + index as u64);
            let is_made = whole || self.words.time(address, of(tag)) >= now;
            is_made.then(|| self.words.at(address, of(tag)))
        };
        let mut written = [ptr::null_mut(); SPAN_ROOM];
        let words = accesses(block, addresses).enumerate().map_while(word);
        let made = written[1..].iter_mut().zip(words).map(|(to, word)| *to = word).count();
        written[0] = self.words.at(block.pc, HitsOf::Fetch);
        // SAFETY: the block's code has kept what these words were.
        unsafe {
            let old = OLD.0.get().cast::<u64>();
            (0..=made).rev().for_each(|index| *written[index] = *old.add(index));
        }
        made
    }

    /// Goes through the accesses of a block that is told, up to those that it has `made`: their pages are
    /// held from here on.
    fn go_through(&mut self, vcpu: u32, block: &Block, addresses: &[u64], begun: u64, made: usize) {
        self.access(vcpu, block.pc, block.last(), HitsOf::Fetch, begun);
        for (index, (address, tag)) in accesses(block, addresses).take(made).enumerate() {
            let last = last_byte(address, tag);
            let now = begun + 2 * (1 + index as u64);
            if tag.loads() {
                self.access(vcpu, address, last, HitsOf::Load, now);
            }
            if tag.stores() {
                self.access(vcpu, address, last, HitsOf::Store, now);
            }
        }
    }

    /// An access to the bytes from `first` to `last` at the time `now`, which is told.
    fn access(&mut self, vcpu: u32, first: u64, last: u64, of: HitsOf, now: u64) {
        self.touch(vcpu, first, of, now);
        if first >> PAGE_SHIFT != last >> PAGE_SHIFT {
            self.touch(vcpu, last, of, now + 1);
        }
    }

    /// The page at `address` is used at the time `now`, and held.
    fn touch(&mut self, vcpu: u32, address: u64, of: HitsOf, now: u64) {
        let (page, index) = (address & !(PAGE_BYTES - 1), self.index(of));
        if !self.words.holds(address, of) && !self.has(page, index) {
            let set = self.set_of(page, index);
            let list = &self.lists[index];
            if list.count(set) < list.ways() {
                self.lists[index].add(set, page);
            } else {
                self.make_room(vcpu, page, index, set);
            }
        }
        self.words.hold(address, of, now);
    }

    /// Whether a page is in the list of that index: it is held for some kind of access.
    fn has(&self, page: u64, index: usize) -> bool {
        self.kinds(index).iter().any(|&of| self.words.holds(page, of))
    }

    /// The set of a page in the list of that index.
    fn set_of(&self, page: u64, index: usize) -> usize {
        self.lists[index].set_of(page >> PAGE_SHIFT)
    }

    /// Holds `page` in place of the one of its full `set` that was used longest ago, and tells that this goes.
    fn make_room(&mut self, vcpu: u32, page: u64, index: usize, set: usize) {
        let (words, kinds) = (self.words, self.kinds(index));
        let page = self.lists[index].exchange(set, page, |page| words.last_use(page, kinds));
        let (mut goes, mut uncounted) = (true, None);
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

    /// Tells what was counted of all pages, in the order of their last uses. None is held any more.
    fn tell_all(&mut self, vcpu: u32) {
        let words = self.words;
        for index in 0..self.lists.len() {
            let kinds = self.kinds(index);
            let mut uses = [(0, 0, HitsOf::Fetch); KINDS * PAGES_MAX];
            let mut count = 0;
            for page in self.lists[index].pages() {
                for &of in kinds.iter().filter(|&&of| words.holds(page, of)) {
                    uses[count] = (words.time(page, of), page, of);
                    count += 1;
                }
            }
            uses[..count].sort_unstable_by_key(|&(time, ..)| time);
            for &(_, page, of) in &uses[..count] {
                put_hits(vcpu, page, of, words.take(page, of), false);
            }
            self.lists[index].clear();
        }
    }

    /// What accesses are for which the TLB is asked whose pages are in the list of that index.
    fn kinds(&self, index: usize) -> &'static [HitsOf] {
        match (self.together, index) {
            (true, _) => &[HitsOf::Fetch, HitsOf::Load, HitsOf::Store],
            (false, 0) => &[HitsOf::Fetch],
            (false, _) => &[HitsOf::Load, HitsOf::Store],
        }
    }
}

/// The accesses of a block that has recorded these `addresses`.
fn accesses<'a>(
    block: &'a Block,
    addresses: &'a [u64],
) -> impl Iterator<Item = (u64, Tag)> + use<'a> {
    let mut said = addresses.iter();
    block.accesses.iter().map_while(move |&(tag, derived)| {
        let address = match derived {
            None => said.next().copied()?,
            Some(derived) if derived.from == 0 => block.pc.wrapping_add(derived.distance),
            Some(derived) => {
                addresses.get(usize::from(derived.from) - 1)?.wrapping_add(derived.distance)
            }
        };
        Some((address, Tag(tag)))
    })
}

/// The last byte of an access.
fn last_byte(address: u64, tag: Tag) -> u64 {
    address.wrapping_add(u64::from(tag.size()) - 1)
}

/// Whether an access loads or stores; it does not do both.
fn of(tag: Tag) -> HitsOf {
    if tag.stores() { HitsOf::Store } else { HitsOf::Load }
}

/// Whether the thread of `vcpu` has a ring.
fn is_attached(vcpu: u32) -> bool {
    // SAFETY: only this thread uses the cursor.
    unsafe { (*cursor(vcpu)).phase == Phase::Attached }
}

/// Puts a record of that `value`, unless it is 0.
fn put_control(vcpu: u32, control: Control, value: u64) {
    if value != 0 {
        put_words(vcpu, &[Record::control(control, value).0]);
    }
}

/// Puts the `count` accesses to a page that were counted, and whether it `goes`.
fn put_hits(vcpu: u32, page: u64, of: HitsOf, count: u64, goes: bool) {
    put_words(vcpu, &[Record::hits(of, count, goes).0, page]);
}

/// Puts records for which there is room: see [`State::records`].
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
