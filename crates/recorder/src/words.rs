//! What is known of the use of each page: three words, which the program's translated code writes.
//!
//! ```text
//!   by the page's address   fetch | load | store |  -
//!
//!                            63   62        43 42    21 20     0
//!                           +----+------------+--------+--------+
//!   such a word, the clock  |held|instructions|  time  | count  |
//!                           +----+------------+--------+--------+
//! ```
//!
//! A word holds when the page was used last for such accesses, and how many were counted. The word of a page that
//! is not held is 0. The *clock* has the same shape: when the next access comes, and a count of 1. Adding
//! the count of a word to the clock gives the word after that access.
//!
//! A stretch of counting begins at [`CLOCK`]. Each access moves the time on by one, and each block the
//! instructions by its own. After [`STRETCH`] instructions the clock has lost its highest bit: that is how translated code
//! sees that the stretch is over. Neither time nor count can overflow before, since a
//! block that is counted has at most two accesses for each instruction.
//!
//! The words lie in memory that is reserved for all pages that there can be, and is there once it is written.

use core::ptr;

use ring::HitsOf;

/// The bits of an offset in a page.
pub(crate) const PAGE_SHIFT: u32 = 12;
/// Bytes of a page's words.
const WORDS_SHIFT: u32 = 5;
/// From an address to the offset of its page's words: bits that go, and bits that stay.
pub(crate) const OFFSET_SHIFT: u32 = PAGE_SHIFT - WORDS_SHIFT;
pub(crate) const OFFSET_MASK: u64 = !((1 << WORDS_SHIFT) - 1);
/// Bits of an address of the guests whose accesses are counted.
pub(crate) const ADDRESS_BITS: u32 = 47;
const BYTES: usize = 1 << (ADDRESS_BITS - OFFSET_SHIFT);

const COUNT_BITS: u32 = 21;
const TIME_BITS: u32 = 22;
const INSTRUCTIONS_BITS: u32 = 20;
/// The bits of a count.
pub(crate) const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// One step of the time.
pub(crate) const STEP: u64 = 1 << COUNT_BITS;
/// One instruction.
pub(crate) const INSTRUCTION: u64 = STEP << TIME_BITS;
/// The instructions of a stretch.
pub(crate) const STRETCH: u64 = 1 << INSTRUCTIONS_BITS;
/// Set in the word of a page that is held, and in the clock while the stretch goes on.
pub(crate) const HELD: u64 = INSTRUCTION << INSTRUCTIONS_BITS;
const _: () = assert!(HELD == 1 << 63);
/// The clock when a stretch begins.
pub(crate) const CLOCK: u64 = HELD | STEP | 1;

/// When something was: a word or clock without its count. Of two in one stretch the later is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// That of a clock.
    #[inline]
    pub(crate) fn of(clock: u64) -> Stamp {
        Stamp(clock & !COUNT)
    }

    /// So many accesses later.
    #[inline]
    pub(crate) fn after(self, accesses: u64) -> Stamp {
        Stamp(self.0 + accesses * STEP)
    }

    /// The clock at that time.
    #[inline]
    pub(crate) fn clock(self) -> u64 {
        self.0 | 1
    }

    /// The stamp as a number.
    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0 >> COUNT_BITS
    }
}

/// Steps of the time since the stretch began.
pub(crate) fn steps(clock: u64) -> u64 {
    clock / STEP % (1 << TIME_BITS) - 1
}

/// Instructions since the stretch began.
pub(crate) fn instructions(clock: u64) -> u64 {
    (clock ^ HELD) / INSTRUCTION
}

/// The words of all pages. They are those of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Words(*mut u64);

impl Words {
    /// Not there yet.
    pub(crate) const NONE: Words = Words(ptr::null_mut());

    /// All zero; `None` if there is no room for them.
    pub(crate) fn new() -> Option<Words> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory.
        let mapped = unsafe {
            let mapped = libc::mmap(ptr::null_mut(), BYTES, rights, kind, -1, 0);
            // The kernel would look at each page of it for a core file.
            libc::madvise(mapped, BYTES, libc::MADV_DONTDUMP);
            mapped
        };
        (mapped != libc::MAP_FAILED).then_some(Words(mapped.cast()))
    }

    /// Where those of the page at address 0 are.
    pub(crate) fn start(self) -> u64 {
        self.0 as u64
    }

    /// That of the page at `address`.
    #[inline]
    pub(crate) fn at(self, address: u64, of: HitsOf) -> *mut u64 {
        let offset = (address >> OFFSET_SHIFT & OFFSET_MASK) as usize & (BYTES - 1);
        // SAFETY: the masked offset is inside.
        unsafe { self.0.byte_add(offset).add(of as usize) }
    }

    /// Its value.
    #[inline]
    fn get(self, address: u64, of: HitsOf) -> u64 {
        // SAFETY: the words are this thread's.
        unsafe { *self.at(address, of) }
    }

    /// Makes it that.
    #[inline]
    pub(crate) fn set(self, address: u64, of: HitsOf, word: u64) {
        // SAFETY: as above.
        unsafe { *self.at(address, of) = word };
    }

    /// Whether the page at `address` is held for such accesses.
    #[inline]
    pub(crate) fn holds(self, address: u64, of: HitsOf) -> bool {
        self.get(address, of) & HELD != 0
    }

    /// The page at `address` is used at the time `now`, and held; `counted` accesses more are.
    #[inline]
    pub(crate) fn hold(self, address: u64, of: HitsOf, now: Stamp, counted: u64) {
        let word = self.at(address, of);
        // SAFETY: as above.
        unsafe { *word = now.0 + (*word & COUNT) + counted };
    }

    /// The page at `address` is held, at no time of this stretch, and nothing was counted of it.
    #[inline]
    pub(crate) fn hold_only(self, address: u64, of: HitsOf) {
        self.set(address, of, HELD);
    }

    /// One of the accesses to the page at `address` is told after all.
    #[inline]
    pub(crate) fn count_less(self, address: u64, of: HitsOf) {
        // SAFETY: as above.
        unsafe { *self.at(address, of) -= 1 };
    }

    /// Takes what the word of a held page has counted; it is not held any more.
    #[inline]
    pub(crate) fn take(self, page: u64, of: HitsOf) -> u64 {
        // SAFETY: as above.
        unsafe { self.at(page, of).replace(0) & COUNT }
    }

    /// When the page at `address` was used last for such an access, if it is held.
    #[inline]
    pub(crate) fn stamp(self, address: u64, of: HitsOf) -> Stamp {
        Stamp::of(self.get(address, of))
    }

    /// When a held page was used last for one of `kinds`.
    #[inline(always)]
    pub(crate) fn last_use(self, page: u64, kinds: &[HitsOf]) -> Stamp {
        let mut last = Stamp::default();
        for &of in kinds {
            last = last.max(self.stamp(page, of));
        }
        last
    }
}
