//! A digest of the bytes of page tables that two systems can compare, although their frames differ.
//!
//! ```text
//!   entry  -->  flags and counts, as they are  +  the number of its frame
//! ```
//!
//! A frame's number is that in the order in which a walk over the tables comes to frames, so that
//! pages share a frame in both systems or in neither. `crates/machine/examples/beside.rs` has this
//! file as a module too.

/// The entries of a format: eight bytes each, in tables of 512, for base pages.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// The level of the root.
    pub levels: u32,
    /// The bits of an entry that have its frame, and how far they lie to the right of its address.
    pub frame: (u64, u32),
    /// The bits of an entry that is present and leads to no table.
    pub page: u64,
    /// A bit that hardware ignores in an entry of a page.
    pub ignored: u64,
}

/// The entries of x86-64, with four levels.
pub const X86_64: Entries =
    Entries { levels: 4, frame: (0x000f_ffff_ffff_f000, 0), page: 1 << 7, ignored: 1 << 10 };
/// The entries of Sv39.
pub const SV39: Entries =
    Entries { levels: 3, frame: (0x003f_ffff_ffff_fc00, 2), page: 7 << 1, ignored: 1 << 8 };

const TABLE_BYTES: u64 = 4096;
/// The level whose entries cover 1 GiB each, and the number of these entries in a digest.
const LEVEL: u32 = 3;
const COVERED: u64 = 4;
/// The most frames that can be numbered: the kernel has no memory for more.
const FRAMES_MAX: usize = 128;

impl Entries {
    fn table(self, entry: u64) -> u64 {
        (entry & self.frame.0) << self.frame.1
    }

    /// Where the entry of this level for `addr` lies, if tables lead to it.
    pub fn find(self, root: u64, level: u32, addr: u64, read: &impl Fn(u64) -> u64) -> Option<u64> {
        let place = |level| (addr >> (12 + 9 * (level - 1)) & 511) * 8;
        let mut table = root;
        for above in (level + 1..=self.levels).rev() {
            let entry = read(table + place(above));
            if entry == 0 || entry & self.page != 0 {
                return None;
            }
            table = self.table(entry);
        }
        Some(table + place(level))
    }

    /// A digest of the entries for 4 GiB of addresses from `start` on, which is a multiple of 1 GiB.
    /// `None` if they have too many frames, or lie in more than one table of level 3.
    pub fn digest(self, root: u64, start: u64, read: &impl Fn(u64) -> u64) -> Option<u64> {
        let mut digest = Digest { value: 0, frames: [0; FRAMES_MAX], count: 0 };
        let Some(first) = self.find(root, LEVEL, start, read) else { return Some(0) };
        if first % TABLE_BYTES > TABLE_BYTES - COVERED * 8 {
            return None;
        }
        for at in (0..COVERED).map(|nth| first + nth * 8) {
            self.add(at, LEVEL, read, &mut digest)?;
        }
        Some(digest.value)
    }

    /// Adds the entry of this level at `at`, and the entries below it.
    fn add(self, at: u64, level: u32, read: &impl Fn(u64) -> u64, sum: &mut Digest) -> Option<()> {
        let entry = read(at);
        if entry == 0 {
            return Some(());
        }
        let number = sum.number_of(entry & self.frame.0)?;
        let place = (u64::from(level) << 32) | (at % TABLE_BYTES);
        [place, entry & !self.frame.0, number].into_iter().for_each(|word| sum.mix(word));
        if level > 1 && entry & self.page == 0 {
            let table = self.table(entry);
            for below in (table..table + TABLE_BYTES).step_by(8) {
                self.add(below, level - 1, read, sum)?;
            }
        }
        Some(())
    }
}

struct Digest {
    value: u64,
    frames: [u64; FRAMES_MAX],
    count: usize,
}

impl Digest {
    fn mix(&mut self, word: u64) {
        self.value = (self.value ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.value ^= self.value >> 32;
    }

    /// The number of a frame; the next one if it is new.
    fn number_of(&mut self, frame: u64) -> Option<u64> {
        let known = self.frames[..self.count].iter().position(|&known| known == frame);
        let number = known.unwrap_or(self.count);
        *self.frames.get_mut(number)? = frame;
        self.count = self.count.max(number + 1);
        Some(number as u64)
    }
}
