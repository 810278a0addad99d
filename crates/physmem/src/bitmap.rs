use alloc::{boxed::Box, collections::TryReserveError, vec::Vec};

use crate::frame::FrameId;

const CHUNK_WORDS: usize = 512;
const CHUNK_BITS: usize = CHUNK_WORDS * 64;

/// One bit per base frame, set while the frame is free (G98 section 6.4.1).
///
/// The bitmap is allocated in chunks, when a frame of the chunk is first taken; all bits of other
/// chunks are set.
#[derive(Default)]
pub(crate) struct Bitmap {
    chunks: Vec<Option<Box<[u64]>>>,
}

impl Bitmap {
    /// Sets or clears the bits of the `2^order` frames from `first`, which is aligned to that
    /// number.
    pub(crate) fn set(&mut self, first: FrameId, order: u32, free: bool) {
        let (at, bits) = (first.0 as usize, 1usize << order);
        // The frames of a part that does not exist have never been in use, so they count as free
        // already.
        if free && bits <= CHUNK_BITS && !self.has(at / CHUNK_BITS) {
            return;
        }
        if bits < 64 {
            let (word, mask) = (at % CHUNK_BITS / 64, mask(at as u64, bits as u64));
            let word = &mut self.chunk(at / CHUNK_BITS)[word];
            *word = if free { *word | mask } else { *word & !mask };
            return;
        }
        // The bits are whole words, either in one chunk or in several whole chunks.
        for number in at / CHUNK_BITS..(at + bits).div_ceil(CHUNK_BITS) {
            let word = at % CHUNK_BITS / 64;
            let words = (bits / 64).min(CHUNK_WORDS);
            if free && !self.has(number) {
                continue;
            }
            self.chunk(number)[word..word + words].fill(if free { u64::MAX } else { 0 });
        }
    }

    /// Whether the part with this number exists.
    fn has(&self, number: usize) -> bool {
        self.chunks.get(number).is_some_and(Option::is_some)
    }

    /// Allocates the parts of the map for `2^order` frames from `first`, so that setting their bits
    /// needs no memory. Returns whether there was enough memory.
    pub(crate) fn reserve(&mut self, first: FrameId, order: u32) -> bool {
        let (at, bits) = (first.0 as usize, 1usize << order);
        (at / CHUNK_BITS..(at + bits).div_ceil(CHUNK_BITS))
            .all(|number| self.has(number) || self.make(number).is_ok())
    }

    #[cold]
    fn make(&mut self, number: usize) -> Result<(), TryReserveError> {
        if number >= self.chunks.len() {
            self.chunks.try_reserve(number + 1 - self.chunks.len())?;
            self.chunks.resize_with(number + 1, || None);
        }
        let mut words = Vec::new();
        words.try_reserve_exact(CHUNK_WORDS)?;
        words.resize(CHUNK_WORDS, u64::MAX);
        self.chunks[number] = Some(words.into_boxed_slice());
        Ok(())
    }

    /// The part with this number, which must exist.
    fn chunk(&mut self, number: usize) -> &mut [u64] {
        self.chunks[number].as_mut().expect("the part was made when a frame in it was first used")
    }

    /// Whether the bits of `2^order` frames from `first` are all set.
    pub(crate) fn is_free(&self, first: FrameId, order: u32) -> bool {
        self.clear_bits(first, order, 1) == 0
    }

    /// The number of clear bits among those of the `2^order` frames from `first`; counting stops
    /// at `enough`.
    pub(crate) fn clear_bits(&self, first: FrameId, order: u32, enough: u64) -> u64 {
        let mut clear = 0;
        let (mut at, end) = (u64::from(first.0), u64::from(first.0) + (1 << order));
        while at < end && clear < enough {
            let bits = (64 - at % 64).min(end - at);
            if let Some(Some(chunk)) = self.chunks.get(at as usize / CHUNK_BITS) {
                let word = chunk[at as usize % CHUNK_BITS / 64];
                clear += u64::from((!word & mask(at, bits)).count_ones());
                at += bits;
            } else {
                at = (at / CHUNK_BITS as u64 + 1) * CHUNK_BITS as u64;
            }
        }
        clear
    }
}

/// A mask of `bits` ones that begins at the position of bit `at` in its word.
const fn mask(at: u64, bits: u64) -> u64 {
    (u64::MAX >> (64 - bits)) << (at % 64)
}
