//! Shootdowns: makes every processor flush entries that page tables no longer have
//! (`Platform::shoot` of `hat`).
//!
//! ```text
//!   sender     tables changed -- who runs the space? -- request, interrupts -- waits: nobody pending -- frames free
//!   receiver                                                 `-> trap, or a turn of some wait: forgets, answers
//! ```
//!
//! There is one request at a time. A processor is asked if it has the space's root loaded, or if the request
//! has global pages: loading a root flushes what is not global. A processor that has not answered within
//! [`PATIENCE_SECONDS`] is lost: it is stopped by a non-maskable interrupt, so that it uses no stale
//! translation; the others continue without it, and the task that it ran is stopped.

use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
};

use addr::PhysAddr;
use hat::{
    HatSpace,
    locking::{Mutex, Site},
};
use pagetable::{Flush, Scope};

use crate::{PROCESSORS_MAX, arch, locks::PolledMutex, say};

/// The longest time for an answer, in seconds.
const PATIENCE_SECONDS: u64 = 5;
/// The most pages that are flushed one by one; for more, the whole TLB is flushed.
const PAGES_MAX: u64 = 32;
/// The most stale ranges of a request; for more, the whole TLB is flushed.
const STALE_MAX: usize = 8;

/// A stale range.
#[derive(Clone, Copy)]
struct Stale {
    root: u64,
    /// The addresses of its first and last base page; `None`: the whole space.
    range: Option<(u64, u64)>,
    is_global: bool,
}

impl Stale {
    fn of(flush: &Flush) -> Stale {
        let range = match (flush.scope(), flush.tables()) {
            (Scope::Pages { range, .. }, tables) => {
                let range = tables.map_or(range, |tables| range.hull(tables));
                Some((range.start().get(), range.last().get()))
            }
            (Scope::Nothing, Some(range)) => Some((range.start().get(), range.last().get())),
            (Scope::Nothing, None) => Some((1, 0)),
            (Scope::Space, _) => None,
        };
        let few = |&(first, last): &(u64, u64)| last.wrapping_sub(first) >> 12 < PAGES_MAX || last < first;
        Stale { root: flush.space().root().get(), range: range.filter(few), is_global: flush.global() }
    }

    fn concerns(&self, processor: usize) -> bool {
        self.is_global || ROOTS[processor].load(Ordering::SeqCst) == self.root
    }

    /// Flushes it on this processor.
    fn forget(&self) {
        match self.range {
            Some((first, last)) => (first..=last).step_by(4096).for_each(arch::forget_page),
            None if self.is_global => arch::forget_all(),
            // The kernel reads no user addresses, and loads the space's root again before it returns to user mode.
            None => enter(arch::this(), arch::kernel_root()),
        }
    }
}

const EVERYTHING: Stale = Stale { root: 0, range: None, is_global: true };

/// The root that each processor has loaded.
static ROOTS: [AtomicU64; PROCESSORS_MAX] = [const { AtomicU64::new(0) }; PROCESSORS_MAX];
/// A bit for each processor in use, and for each that is lost.
static ONLINE: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
/// A bit for each processor that has not answered.
static PENDING: AtomicU64 = AtomicU64::new(0);
static SENDER: PolledMutex<()> = PolledMutex::free(());
static SENT: AtomicUsize = AtomicUsize::new(0);
/// The flushes that tests omit on purpose: on this processor (1), or on other processors (2).
static OMITTED: AtomicU8 = AtomicU8::new(0);

struct Request(UnsafeCell<([Stale; STALE_MAX], usize)>);

// SAFETY: the sender writes it while nobody is pending; those that are pending read it.
unsafe impl Sync for Request {}

static REQUEST: Request = Request(UnsafeCell::new(([EVERYTHING; STALE_MAX], 0)));

/// Adds the processor with this number to those that take part in shootdowns.
pub fn join(processor: usize) {
    ONLINE.fetch_or(1 << processor, Ordering::SeqCst);
}

/// The number of processors in use.
pub fn online() -> u32 {
    ONLINE.load(Ordering::SeqCst).count_ones()
}

/// Whether a processor was lost, as it did not answer.
pub fn is_lost(processor: usize) -> bool {
    LOST.load(Ordering::SeqCst) >> processor & 1 != 0
}

/// Whether a processor is in use.
pub fn is_online(processor: usize) -> bool {
    ONLINE.load(Ordering::SeqCst) >> processor & 1 != 0
}

/// The number of requests sent to other processors.
pub fn sent() -> usize {
    SENT.load(Ordering::Relaxed)
}

/// Leaves out flushes here (1) or on other processors (2), to test whether this is found.
pub fn omit(what: u8) {
    OMITTED.store(what, Ordering::SeqCst);
}

/// Loads a root on this processor.
pub fn enter(processor: usize, root: PhysAddr) {
    if ROOTS[processor].load(Ordering::Relaxed) != root.get() {
        // Stored first: a processor that changes the table from now on sends its request to this
        // processor too.
        ROOTS[processor].store(root.get(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        arch::load_root(root);
    }
}

/// Answers a request, if there is one for this processor.
#[inline]
pub fn poll() {
    if PENDING.load(Ordering::Acquire) != 0 {
        answer();
    }
}

#[cold]
fn answer() {
    let own = 1 << arch::this();
    if PENDING.load(Ordering::Acquire) & own == 0 {
        return;
    }
    // SAFETY: this processor is pending, so that the request stays as it is.
    let (all, count) = unsafe { &*REQUEST.0.get() };
    if OMITTED.load(Ordering::Relaxed) & 2 == 0 {
        all[..*count].iter().for_each(Stale::forget);
    }
    PENDING.fetch_and(!own, Ordering::AcqRel);
}

/// Makes every processor flush. All have flushed when it returns.
pub fn shoot(flushes: &[(HatSpace, Flush)]) {
    shoot_tokens(flushes.iter().map(|(_, flush)| flush));
}

/// Makes every processor flush what these tokens name, which may be of several spaces. All have flushed when
/// it returns.
pub fn shoot_tokens<'a>(flushes: impl Iterator<Item = &'a Flush>) {
    let (mut all, mut count) = ([EVERYTHING; STALE_MAX], 0);
    for flush in flushes.filter(|flush| !flush.is_empty()) {
        if count == STALE_MAX {
            (all[0], count) = (EVERYTHING, 1);
            break;
        }
        all[count] = Stale::of(flush);
        count += 1;
    }
    ask(&all[..count]);
}

/// Makes every processor that has this root loaded load the kernel's: afterwards the root may be freed.
pub fn leave(root: PhysAddr) {
    ask(&[Stale { root: root.get(), range: None, is_global: false }]);
}

fn ask(stale: &[Stale]) {
    // The tables were changed before it is read who uses them.
    fence(Ordering::SeqCst);
    let own = arch::this();
    if OMITTED.load(Ordering::Relaxed) & 1 == 0 {
        stale.iter().filter(|stale| stale.concerns(own)).for_each(Stale::forget);
    }
    let online = ONLINE.load(Ordering::SeqCst);
    let concerned = |&processor: &usize| {
        processor != own && online >> processor & 1 != 0 && stale.iter().any(|stale| stale.concerns(processor))
    };
    let targets: u64 = (0..PROCESSORS_MAX).filter(concerned).map(|processor| 1 << processor).sum();
    if targets != 0 {
        SENDER.with(Site::Look, |()| send(stale, targets));
    }
}

fn send(stale: &[Stale], targets: u64) {
    // SAFETY: nobody is pending, and this is the one sender.
    unsafe {
        let request = &mut *REQUEST.0.get();
        request.0[..stale.len()].copy_from_slice(stale);
        request.1 = stale.len();
    }
    SENT.fetch_add(1, Ordering::Relaxed);
    PENDING.store(targets & ONLINE.load(Ordering::SeqCst), Ordering::SeqCst);
    let each = |of: u64| (0..PROCESSORS_MAX).filter(move |processor| of >> processor & 1 != 0);
    each(targets).for_each(arch::interrupt);
    let begun = arch::ticks();
    while PENDING.load(Ordering::Acquire) != 0 {
        core::hint::spin_loop();
        if arch::ticks().wrapping_sub(begun) > PATIENCE_SECONDS * arch::ticks_per_second() {
            each(PENDING.load(Ordering::Acquire)).for_each(lose);
        }
    }
}

fn lose(processor: usize) {
    ONLINE.fetch_and(!(1 << processor), Ordering::SeqCst);
    LOST.fetch_or(1 << processor, Ordering::SeqCst);
    arch::stop(processor);
    PENDING.fetch_and(!(1 << processor), Ordering::AcqRel);
    say!("processor {processor} does not answer: it is stopped, and the others go on");
}
