//! For each page, three words with its uses, which the program's translated code writes.
//!
//! ```text
//!   by the page's address   fetch | load | store |  -
//!
//!                            63   62        43 42    21 20     0
//!                           +----+------------+--------+--------+
//!   a word, or the clock    |held|instructions|  time  | count  |
//!                           +----+------------+--------+--------+
//! ```
//!
//! There is a word for each page and each kind of access. It contains the time of the page's last
//! use by an access of this kind, and the number of these accesses that were counted. The word is 0
//! if the page is not held. The *clock* has the same format: the time of the next access, and a
//! count of 1. Adding the count of a word to the clock gives the word after that access.
//!
//! An interval of counting begins at [`CLOCK`]. Each access advances the clock's time by one. Each
//! block advances the clock's instructions by the number of instructions in the block. After
//! [`STRETCH`] instructions the highest bit of the clock becomes 0. By this, translated code
//! detects that the interval is over. The time and the counts cannot overflow before that, since a
//! counted block has at most two accesses for each instruction.
//!
//! The words are in memory that is reserved for all possible pages. Each part of it is allocated
//! when it is first written.

use core::ptr;

use held::ADDRESS_BITS;
use ring::HitsOf;

/// The number of bits of an offset in a page.
pub(crate) const PAGE_SHIFT: u32 = 12;
/// The log2 of the size in bytes of a page's words.
const WORDS_SHIFT: u32 = 5;
/// A page's words are at the offset that results from an address by this shift and mask.
pub(crate) const OFFSET_SHIFT: u32 = PAGE_SHIFT - WORDS_SHIFT;
pub(crate) const OFFSET_MASK: u64 = !((1 << WORDS_SHIFT) - 1);
const BYTES: usize = 1 << (ADDRESS_BITS - OFFSET_SHIFT);

const COUNT_BITS: u32 = 21;
const TIME_BITS: u32 = 22;
const INSTRUCTIONS_BITS: u32 = 20;
/// The bits of a word that contain the count.
pub(crate) const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// One step of the time in a word.
pub(crate) const STEP: u64 = 1 << COUNT_BITS;
/// One instruction in a clock.
pub(crate) const INSTRUCTION: u64 = STEP << TIME_BITS;
/// The number of instructions in an interval.
pub(crate) const STRETCH: u64 = 1 << INSTRUCTIONS_BITS;
/// Set in the word of a page that is held, and in the clock during an interval.
pub(crate) const HELD: u64 = INSTRUCTION << INSTRUCTIONS_BITS;
const _: () = assert!(HELD == 1 << 63);
/// The clock at the beginning of an interval.
pub(crate) const CLOCK: u64 = HELD | STEP | 1;

/// A time: a word or clock without its count. Within one interval, a later time is a larger number.
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

    /// The clock at this time.
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
    /// A value without words, for a process that does not count.
    pub(crate) const NONE: Words = Words(ptr::null_mut());

    /// Words that are all zero; `None` if there is no memory for them.
    pub(crate) fn new() -> Option<Words> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory.
        let mapped = unsafe {
            let mapped = libc::mmap(ptr::null_mut(), BYTES, rights, kind, -1, 0);
            // Without this, the kernel would examine each page of this memory when it writes a core
            // file.
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
        // SAFETY: the masked offset is inside the memory of the words.
        unsafe { self.0.byte_add(offset).add(of as usize) }
    }

    /// The value of the word of the page at `address` for this kind of access.
    #[inline]
    fn get(self, address: u64, of: HitsOf) -> u64 {
        // SAFETY: only this thread uses the words.
        unsafe { *self.at(address, of) }
    }

    /// Sets the word of the page at `address` for this kind of access.
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

    /// Records a use of the page at `address` at the time `now`. The page is held, and its count
    /// increases by `counted`.
    #[inline]
    pub(crate) fn hold(self, address: u64, of: HitsOf, now: Stamp, counted: u64) {
        let word = self.at(address, of);
        // SAFETY: as above.
        unsafe { *word = now.0 + (*word & COUNT) + counted };
    }

    /// Makes the page at `address` a held page, with a time before this interval and a count of
    /// zero.
    #[inline]
    pub(crate) fn hold_only(self, address: u64, of: HitsOf) {
        self.set(address, of, HELD);
    }

    /// Reduces the count of the page at `address` by one, since one of the counted accesses is
    /// recorded after all.
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

    /// The time of the last use, by any of `kinds`, of a page that is known to be in the TLB.
    #[inline(always)]
    pub(crate) fn last_use(self, page: u64, kinds: &[HitsOf]) -> Stamp {
        let mut last = Stamp::default();
        for &of in kinds {
            last = last.max(self.stamp(page, of));
        }
        last
    }
}
