//! What is known of the use of each page: three words, which the program's translated code writes.
//!
//! ```text
//!   by the page's address   fetch | load | store |  -
//!                           +---------------+---------+------+
//!                           |     time      |  count  | held |
//!                           +---------------+---------+------+
//! ```
//!
//! They lie in memory that is reserved for all pages that there can be, and is there once it is written.

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

/// Set in the word of a page that is held.
const HELD: u64 = 1;
/// One access more.
pub(crate) const ONE: u64 = 2;
/// Position of the time.
pub(crate) const TIME_SHIFT: u32 = 28;
/// The bits below the time.
pub(crate) const LOW: u64 = (1 << TIME_SHIFT) - 1;

/// The words of all pages. They are those of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Words(*mut u64);

impl Words {
    /// Not there yet.
    pub(crate) const NONE: Words = Words(ptr::null_mut());

    /// All zero; `None` if there is no room for them.
    pub(crate) fn new() -> Option<Words> {
        Words::NONE.anew()
    }

    /// The same once more, in the same place.
    pub(crate) fn anew(self) -> Option<Words> {
        let place = if self.0.is_null() { 0 } else { libc::MAP_FIXED };
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | place;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory, or that of the words once more.
        let mapped = unsafe {
            let mapped = libc::mmap(self.0.cast(), BYTES, rights, kind, -1, 0);
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
    pub(crate) fn at(self, address: u64, of: HitsOf) -> *mut u64 {
        let offset = (address >> OFFSET_SHIFT & OFFSET_MASK) as usize & (BYTES - 1);
        // SAFETY: the masked offset is inside.
        unsafe { self.0.byte_add(offset).add(of as usize) }
    }

    /// Whether the page at `address` is held for such accesses.
    pub(crate) fn holds(self, address: u64, of: HitsOf) -> bool {
        // SAFETY: the words are this thread's.
        unsafe { *self.at(address, of) & HELD != 0 }
    }

    /// The page at `address` is used at the time `now`, and held.
    pub(crate) fn hold(self, address: u64, of: HitsOf, now: u64) {
        let word = self.at(address, of);
        // SAFETY: as above.
        unsafe { *word = *word & LOW | HELD | now << TIME_SHIFT };
    }

    /// Takes what the word of a held page has counted; it is not held any more.
    pub(crate) fn take(self, page: u64, of: HitsOf) -> u64 {
        let word = self.at(page, of);
        // SAFETY: as above.
        unsafe {
            let was = *word;
            *word = was & !LOW;
            (was & LOW) / ONE
        }
    }

    /// When the page at `address` was used last for such an access; of one that is not held it is some time
    /// before.
    pub(crate) fn time(self, address: u64, of: HitsOf) -> u64 {
        // SAFETY: as above.
        unsafe { *self.at(address, of) >> TIME_SHIFT }
    }

    /// When a held page was used last for one of `kinds`.
    pub(crate) fn last_use(self, page: u64, kinds: &[HitsOf]) -> u64 {
        kinds.iter().map(|&of| self.time(page, of)).max().unwrap_or(0)
    }
}
