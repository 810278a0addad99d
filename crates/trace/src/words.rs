//! A recorder's words: which blocks ran, and the addresses of their operations.
//!
//! ```text
//!    63      56 55                              16 15            0
//!   +----------+----------------------------------+---------------+
//!   |  count   |   number of a block              |      tag      |   all addresses of the block
//!   +----------+----------------------------------+---------------+   follow, as they are
//!   |  number of a block, address of an operation |      tag      |
//!   +---------------------------------------------+---------------+
//!
//!   words     fixed 17, 2 | a | b | block 18 | load c | store d | fixed 17, 2 | ...
//!   usual 18                                    tag       tag
//! ```
//!
//! A *fixed* block performs the same operations each time. Its words have only the addresses of
//! these operations, except derived addresses. If the block was left before its end, its first word
//! says so, or the words of operations that were not reached are [`WORD_NONE`].
//!
//! Other blocks nearly always perform the same operations too. A [`crate::Sink`] gets the *usual*
//! shape of a block once. From then on the sink processes the block's words without decoding each,
//! with one lookup of its own data about the block.

use rustc_hash::FxHashMap;

use crate::ShapeId;

/// The number of bits in a word below the block's number or the address.
pub const WORD_SHIFT: u32 = 16;
/// The tag of a block. The tag of an operation has the highest bit clear.
pub const WORD_BLOCK: u16 = 1 << 15;
/// The tag of a fixed block.
pub const WORD_FIXED: u16 = WORD_BLOCK + 3;
/// A word with a tag from [`WORD_BLOCK`] up to, but not including, this value does not belong to
/// the block before it, which has therefore ended. Words with tags from this value up can come
/// between a block and its operations.
pub const WORD_AMID: u16 = WORD_BLOCK + 6;
/// The number of bits of a fixed block's word below the count of its operations.
pub const WORD_COUNT_SHIFT: u32 = 56;
/// The lowest of the eight bits below the count, which are 0 unless a fixed block was left early.
pub const WORD_MADE_SHIFT: u32 = 48;
/// The maximum number of rows per word of a block that can be decoded by its usual shape.
pub const WORD_ROWS_MAX: usize = 128;
/// The value instead of an address for an operation of a fixed block that was not reached.
pub const WORD_NONE: u64 = u64::MAX;

/// The result of processing words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// The number of words processed.
    pub words: usize,
    /// The number of accesses that these words contained.
    pub accesses: u64,
}

/// The usual shape and words of each block of a recorder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usual {
    blocks: Vec<Option<Known>>,
    /// The last declaration for each shape. It is kept because the shape of some blocks changes
    /// back and forth.
    shapes: FxHashMap<ShapeId, Known>,
    tags: Vec<u16>,
    /// The largest number of rows per word of any block so far; 0 before the first block.
    rows_per_word: usize,
}

/// The usual shape and words of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) shape: ShapeId,
    ops: u16,
    /// The index of the block's first tag.
    tags: u32,
}

/// The blocks for which all data are ready: for each, the sink's data `T`.
#[derive(Clone, Debug)]
pub(crate) struct Ready<T> {
    /// The blocks by number, including those that are not ready.
    blocks: Vec<Block<T>>,
    /// The numbers of the blocks that became ready since the last reset of all blocks.
    numbers: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Block<T> {
    /// The block's word, or [`WORD_NONE`] while it is not ready.
    word: u64,
    /// The index of the block's first tag.
    tags: u32,
    ops: u16,
    own: T,
}

/// How many words were processed, and the last block among them that has operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Followed {
    /// The number of words processed.
    pub(crate) words: usize,
    /// The position of the last block that has operations, if there is one. Each block after it
    /// consists of one word.
    busy: usize,
}

/// Receives blocks that are ready.
pub(crate) trait Take<T> {
    /// Receives one execution of a block. `words` has a word for each of its operations, with the address above the
    /// lowest `SHIFT` bits.
    fn take<const SHIFT: u32>(&mut self, own: &T, words: &[u64]);
}

/// An index beyond all words.
const NOWHERE: usize = usize::MAX;
/// How many words ahead words are prefetched, since they are in the cache of the processor that
/// wrote them.
const AHEAD: usize = 128;

impl Usual {
    /// Sets the usual shape and tags of block `number`. One execution of the block has `rows` rows.
    pub(crate) fn set(&mut self, number: usize, shape: ShapeId, tags: &[u16], rows: usize) {
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, None);
        }
        let rows_per_word = rows.div_ceil(1 + tags.len());
        if rows_per_word > WORD_ROWS_MAX {
            self.blocks[number] = None;
            return;
        }
        self.rows_per_word = self.rows_per_word.max(rows_per_word);
        let before = self.shapes.get(&shape).copied();
        let known = before.filter(|&known| self.tags(known) == tags).unwrap_or_else(|| {
            let from = self.tags.len() as u32;
            self.tags.extend_from_slice(tags);
            Known { shape, ops: tags.len() as u16, tags: from }
        });
        self.shapes.insert(shape, known);
        self.blocks[number] = Some(known);
    }

    /// A number of words that can never stand for more than `rows` rows.
    pub(crate) fn words_of(&self, rows: usize) -> usize {
        rows / self.rows_per_word.max(1)
    }

    /// The most rows that `words` words can stand for.
    pub(crate) fn rows_of(&self, words: usize) -> usize {
        words * self.rows_per_word.max(1)
    }

    /// The tags of `known`.
    fn tags(&self, known: Known) -> &[u16] {
        &self.tags[known.tags as usize..][..usize::from(known.ops)]
    }

    /// The block at the beginning of `words` and the explicit addresses of its operations, if the
    /// block was executed with its usual shape and its end is in `words`.
    pub(crate) fn first(&self, words: &[u64]) -> Option<(Known, Vec<u64>)> {
        let (&block, rest) = words.split_first()?;
        let known = self.blocks.get(block_number(block)).copied()??;
        let (own, after) = rest.split_at_checked(usize::from(known.ops))?;
        match block as u16 {
            WORD_FIXED => {
                let is_left = block >> WORD_MADE_SHIFT & 0xff != 0;
                let is_whole =
                    !is_left && own.len() == count(block) && own.last() != Some(&WORD_NONE);
                is_whole.then(|| (known, own.to_vec()))
            }
            // Only fixed blocks have a count, by which they are distinguished from other blocks.
            WORD_BLOCK if count(block) == 0 => {
                let tags = self.tags(known);
                let is_usual = own.iter().zip(tags).all(|(&word, &tag)| word as u16 == tag);
                let addrs = || own.iter().map(|&word| address::<WORD_SHIFT>(word)).collect();
                (is_usual && begins(*after.first()?)).then(|| (known, addrs()))
            }
            _ => None,
        }
    }

    /// Passes the blocks at the beginning of `words` to `taker`, up to the first block that is not
    /// `ready` or whose end is not in `words`.
    #[inline(always)]
    pub(crate) fn follow<T>(
        &self,
        words: &[u64],
        ready: &Ready<T>,
        taker: &mut impl Take<T>,
    ) -> Followed {
        // At an index below this one, at least two more words follow.
        let two = words.len().saturating_sub(2);
        let (mut at, mut busy) = (0, NOWHERE);
        while let Some(&block) = words.get(at) {
            prefetch(words.as_ptr().wrapping_add(at + AHEAD));
            // SAFETY: it is called only with 1 and 2, and only if `at` is below `two`.
            let word = |index: usize| unsafe { *words.get_unchecked(at + index) };
            let known = ready.blocks.get(block_number(block));
            let Some(known) = known.filter(|known| known.word == block) else { break };
            // Each small number of operations has separate code, so that the processor can predict
            // where the next block begins. The word itself confirms the prediction, and the
            // processor need not wait for the block's data, which may be far away.
            at += match count(block) {
                1 if at < two && word(1) != WORD_NONE => {
                    busy = at;
                    taker.take::<0>(&known.own, &[word(1)]);
                    2
                }
                0 if block as u16 == WORD_FIXED => {
                    taker.take::<0>(&known.own, &[]);
                    1
                }
                2 if at < two && word(2) != WORD_NONE => {
                    busy = at;
                    taker.take::<0>(&known.own, &[word(1), word(2)]);
                    3
                }
                // The block is not a fixed block.
                0 => {
                    let Some(own) = self.usual(&words[at + 1..], known) else { break };
                    busy = if own.is_empty() { busy } else { at };
                    taker.take::<WORD_SHIFT>(&known.own, own);
                    1 + own.len()
                }
                ops => {
                    let own = words.get(at + 1..at + 1 + ops);
                    let Some(own) = own.filter(|own| own.last() != Some(&WORD_NONE)) else { break };
                    busy = at;
                    taker.take::<0>(&known.own, own);
                    1 + own.len()
                }
            };
        }
        Followed { words: at, busy }
    }

    /// The words of a block's operations, if their tags are the usual ones of `known` and another
    /// block follows. Without a following block, this block might continue.
    #[inline(always)]
    fn usual<'a, T>(&self, words: &'a [u64], known: &Block<T>) -> Option<&'a [u64]> {
        let (own, after) = words.split_at_checked(known.ops.into())?;
        let tags = &self.tags[known.tags as usize..][..own.len()];
        let changed = |bits, (&word, tag): (&u64, &u16)| bits | word as u16 ^ tag;
        let is_usual = own.iter().zip(tags).fold(0, changed) == 0;
        (is_usual && begins(*after.first()?)).then_some(own)
    }
}

impl<T: Copy + Default> Ready<T> {
    /// Sets the data `own` of the block with this `word`, whose usual shape and words are `known`.
    pub(crate) fn set(&mut self, word: u64, usual: &Usual, known: Known, own: T) {
        let number = block_number(word);
        if self.blocks.len() <= number {
            let none = Block { word: WORD_NONE, tags: 0, ops: 0, own: T::default() };
            self.blocks.resize(usual.blocks.len().max(number + 1), none);
        }
        let Known { ops, tags, .. } = known;
        self.blocks[number] = Block { word, tags, ops, own };
        self.numbers.push(number);
    }

    /// The data of the last block that [`Usual::follow`] processed in `words`, and the address of
    /// the last operation.
    pub(crate) fn last(&self, words: &[u64], followed: Followed) -> Option<(&T, Option<u64>)> {
        let of = |word| &self.blocks[block_number(word)];
        let words = &words[..followed.words];
        let last = *words.last()?;
        let Some((&block, own)) = words.get(followed.busy..).and_then(<[u64]>::split_first) else {
            return Some((&of(last).own, None));
        };
        let busy = of(block);
        let own = &own[..usize::from(busy.ops)];
        let shift = if block as u16 == WORD_FIXED { 0 } else { WORD_SHIFT };
        let is_last = followed.busy + 1 + own.len() == words.len();
        let last = if is_last { busy } else { of(last) };
        Some((&last.own, own.last().map(|&word| (word as i64 >> shift) as u64)))
    }

    /// Makes block `number` no longer ready.
    pub(crate) fn forget(&mut self, number: usize) {
        if let Some(block) = self.blocks.get_mut(number) {
            block.word = WORD_NONE;
        }
    }

    /// Makes no block ready.
    pub(crate) fn forget_all(&mut self) {
        for number in self.numbers.drain(..) {
            self.blocks[number].word = WORD_NONE;
        }
    }
}

impl<T> Default for Ready<T> {
    fn default() -> Ready<T> {
        Ready { blocks: Vec::new(), numbers: Vec::new() }
    }
}

/// The address in `word`. Only the lowest `64 - SHIFT` bits of an address are stored. The upper
/// bits are copies of the highest stored bit, so that addresses of a kernel are correct too.
#[inline(always)]
pub(crate) fn address<const SHIFT: u32>(word: u64) -> u64 {
    (word as i64 >> SHIFT) as u64
}

/// The number of the block in `word`.
#[inline(always)]
fn block_number(word: u64) -> usize {
    // A recorder numbers blocks with 32 bits; the count of a fixed block is in the bits above.
    (word >> WORD_SHIFT) as u32 as usize
}

/// The number of operations of the fixed block in `word`.
#[inline(always)]
fn count(word: u64) -> usize {
    (word >> WORD_COUNT_SHIFT) as usize
}

/// Whether `word` does not belong to the block before it, which has therefore ended.
#[inline(always)]
fn begins(word: u64) -> bool {
    (WORD_BLOCK..WORD_AMID).contains(&(word as u16))
}

/// Prefetches words that another processor has written.
#[inline(always)]
fn prefetch(words: *const u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is only a hint; it reads nothing, and every address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(words.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}
