//! The uses of each page, in three words that the program's translated code writes.
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
//! A word has the time of the page's last use by this kind of access, and the number of such accesses that
//! were counted. The word of a page that is not held is 0. The *clock* has the same format: the time of the
//! next access, and a count of 1. Adding the count of a word to the clock gives the word after that access.
//!
//! An interval of counting begins at [`CLOCK`]. Each access advances the time by one, and each block the
//! instructions by its number of instructions. After [`STRETCH`] instructions the highest bit of the clock is
//! cleared, which tells translated code that the interval is over. Neither time nor count can overflow before,
//! since a counted block has at most two accesses for each instruction.
//!
//! The words are in memory that is reserved for all possible pages, and is allocated when it is first
//! written.

use core::ptr;

use held::ADDRESS_BITS;
use ring::HitsOf;

/// The number of bits of an offset in a page.
pub(crate) const PAGE_SHIFT: u32 = 12;
/// The log2 of the size in bytes of a page's words.
const WORDS_SHIFT: u32 = 5;
/// For computing the offset of a page's words from an address: the shift, and the mask.
pub(crate) const OFFSET_SHIFT: u32 = PAGE_SHIFT - WORDS_SHIFT;
pub(crate) const OFFSET_MASK: u64 = !((1 << WORDS_SHIFT) - 1);
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
/// The number of instructions in an interval.
pub(crate) const STRETCH: u64 = 1 << INSTRUCTIONS_BITS;
/// Set in the word of a page that is held, and in the clock during an interval.
pub(crate) const HELD: u64 = INSTRUCTION << INSTRUCTIONS_BITS;
const _: () = assert!(HELD == 1 << 63);
/// The clock at the beginning of an interval.
pub(crate) const CLOCK: u64 = HELD | STEP | 1;

/// A time: a word or clock without its count. In one interval, a later time is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// The time of a clock.
    #[inline]
    pub(crate) fn of(clock: u64) -> Stamp {
        Stamp(clock & !COUNT)
    }

    /// The time after `accesses` more accesses.
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

/// The number of time steps since the interval began.
pub(crate) fn steps(clock: u64) -> u64 {
    clock / STEP % (1 << TIME_BITS) - 1
}

/// The number of instructions since the interval began.
pub(crate) fn instructions(clock: u64) -> u64 {
    (clock ^ HELD) / INSTRUCTION
}

/// The words of all pages, for one thread.
#[derive(Clone, Copy)]
pub(crate) struct Words(*mut u64);

impl Words {
    /// No words.
    pub(crate) const NONE: Words = Words(ptr::null_mut());

    /// Words that are all zero; `None` if there is no memory for them.
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

    /// The address of the words of the page at address 0.
    pub(crate) fn start(self) -> u64 {
        self.0 as u64
    }

    /// The word of the page at `address` for this kind of access.
    #[inline]
    pub(crate) fn at(self, address: u64, of: HitsOf) -> *mut u64 {
        let offset = (address >> OFFSET_SHIFT & OFFSET_MASK) as usize & (BYTES - 1);
        // SAFETY: the masked offset is inside.
        unsafe { self.0.byte_add(offset).add(of as usize) }
    }

    /// The value of that word.
    #[inline]
    fn get(self, address: u64, of: HitsOf) -> u64 {
        // SAFETY: the words are this thread's.
        unsafe { *self.at(address, of) }
    }

    /// Sets that word.
    #[inline]
    pub(crate) fn set(self, address: u64, of: HitsOf, word: u64) {
        // SAFETY: as above.
        unsafe { *self.at(address, of) = word };
    }

    /// Whether the page at `address` is held for this kind of access.
    #[inline]
    pub(crate) fn holds(self, address: u64, of: HitsOf) -> bool {
        self.get(address, of) & HELD != 0
    }

    /// Takes the use of the page at `address` at the time `now`: the page is held, and `counted`
    /// more accesses are counted.
    #[inline]
    pub(crate) fn hold(self, address: u64, of: HitsOf, now: Stamp, counted: u64) {
        let word = self.at(address, of);
        // SAFETY: as above.
        unsafe { *word = now.0 + (*word & COUNT) + counted };
    }

    /// Holds the page at `address`, with a time before this interval and a count of zero.
    #[inline]
    pub(crate) fn hold_only(self, address: u64, of: HitsOf) {
        self.set(address, of, HELD);
    }

    /// Counts one access to the page at `address` less, as it is recorded after all.
    #[inline]
    pub(crate) fn count_less(self, address: u64, of: HitsOf) {
        // SAFETY: as above.
        unsafe { *self.at(address, of) -= 1 };
    }

    /// Returns the count in the word of a held page. The page is no longer held.
    #[inline]
    pub(crate) fn take(self, page: u64, of: HitsOf) -> u64 {
        // SAFETY: as above.
        unsafe { self.at(page, of).replace(0) & COUNT }
    }

    /// The time of the last use of the page at `address` by this kind of access, if the page is
    /// held.
    #[inline]
    pub(crate) fn stamp(self, address: u64, of: HitsOf) -> Stamp {
        Stamp::of(self.get(address, of))
    }

    /// The time of a held page's last use by any of `kinds`.
    #[inline(always)]
    pub(crate) fn last_use(self, page: u64, kinds: &[HitsOf]) -> Stamp {
        let mut last = Stamp::default();
        for &of in kinds {
            last = last.max(self.stamp(page, of));
        }
        last
    }
}
