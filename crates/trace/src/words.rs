//! A recorder's words: which blocks ran, and the addresses of what they did.
//!
//! ```text
//!    63                                         16 15            0
//!   +---------------------------------------------+---------------+
//!   | number of a block, address of an operation  |      tag      |
//!   +---------------------------------------------+---------------+
//!
//!   words     block 17 | load a | store b | block 18 | load c | block 17 | ...
//!   usual 17              tag       tag                                          as it is known
//!   usual 18                                            tag
//! ```
//!
//! A block nearly always does the same operations. What is *usual* for a block is told to a
//! [`crate::Sink`] once. From then on the sink takes its words as they come, with one look at
//! what it knows of the block, which includes all that the sink wants of it for itself.

use rustc_hash::FxHashMap;

use crate::ShapeId;

/// Bits of a word below its number or address.
pub const WORD_SHIFT: u32 = 16;
/// The tag of a block. An operation's has not the highest bit.
pub const WORD_BLOCK: u16 = 1 << 15;
/// Tags from a block's to below this begin something, so that the block before has ended. Those
/// from this on may stand between a block and its operations.
pub const WORD_AMID: u16 = WORD_BLOCK + 3;

/// What was taken of words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// How many words.
    pub words: usize,
    /// How many accesses they are.
    pub accesses: u64,
}

/// What is usual for each block of a recorder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usual {
    blocks: Vec<Option<Known>>,
    /// What was last told of each shape: some blocks do now this, now that.
    shapes: FxHashMap<ShapeId, Known>,
    tags: Vec<u16>,
}

/// What is usual for a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) shape: ShapeId,
    ops: u16,
    /// Index of its first tag.
    tags: u32,
}

/// By number, the blocks of which nothing more needs to be known: for each, a `T` of the sink's.
#[derive(Clone, Debug)]
pub(crate) struct Ready<T>(Vec<Block<T>>);

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Block<T> {
    /// Blocks of another one than is asked for are not ready; 0 is never asked for.
    generation: u32,
    ops: u16,
    first_tags: [u16; FIRST],
    /// Index of its first tag among all.
    tags: u32,
    own: T,
}

/// Takes blocks that are ready.
pub(crate) trait Take<T> {
    /// A block ran; `words` are those of its operations.
    fn take(&mut self, own: &T, words: &[u64]);
}

/// Operations whose tags stand in the block itself. Nearly all blocks have no more.
const FIRST: usize = 2;
/// Words to fetch ahead: they lie in the cache of the core that wrote them.
const AHEAD: usize = 128;

impl Usual {
    /// Sets what is usual for block `number`.
    pub(crate) fn set(&mut self, number: usize, shape: ShapeId, tags: &[u16]) {
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, None);
        }
        let before = self.shapes.get(&shape).copied();
        let known = before.filter(|&known| self.tags(known) == tags).unwrap_or_else(|| {
            let from = self.tags.len() as u32;
            self.tags.extend_from_slice(tags);
            Known { shape, ops: tags.len() as u16, tags: from }
        });
        self.shapes.insert(shape, known);
        self.blocks[number] = Some(known);
    }

    /// The tags of `known`.
    fn tags(&self, known: Known) -> &[u16] {
        &self.tags[known.tags as usize..][..usize::from(known.ops)]
    }

    /// What the first of `words` stands for and the words of its operations, if it is a block
    /// that did what is usual and whose end is seen.
    pub(crate) fn first<'a>(&self, words: &'a [u64]) -> Option<(Known, &'a [u64])> {
        let (&block, rest) = words.split_first()?;
        let known = self.blocks.get((block >> WORD_SHIFT) as usize).copied()??;
        let (own, after) = rest.split_at_checked(usize::from(known.ops))?;
        let is_usual = own.iter().zip(self.tags(known)).all(|(&word, &tag)| word as u16 == tag);
        (block as u16 == WORD_BLOCK && is_usual && begins(*after.first()?)).then_some((known, own))
    }

    /// Gives `taker` the blocks at the beginning of `words` that are `ready` in `generation`, and
    /// that another block follows: others may go on. How many words they have.
    #[inline(always)]
    pub(crate) fn follow<T>(
        &self,
        words: &[u64],
        ready: &Ready<T>,
        generation: u32,
        taker: &mut impl Take<T>,
    ) -> usize {
        // The last index at which a block of `FIRST` operations and the word behind it are there.
        let Some(last) = words.len().checked_sub(FIRST + 2) else { return 0 };
        let is_block = |word: u64| word as u16 == WORD_BLOCK;
        if !is_block(words[0]) {
            return 0;
        }
        let mut at = 0;
        // Each number of operations has a way of its own, so that the processor guesses where the
        // next block begins and need not wait for what is known of this one.
        while at <= last {
            prefetch(words.as_ptr().wrapping_add(at + AHEAD));
            // SAFETY: `at` is at most `last`, and no index beyond `FIRST + 1` is asked for.
            let word = |index: usize| unsafe { *words.get_unchecked(at + index) };
            let Some(known) = ready.0.get(block_number(word(0))) else { break };
            if known.generation != generation {
                break;
            }
            let [first, second] = known.first_tags;
            at += match known.ops {
                1 if is_block(word(2)) && word(1) as u16 == first => {
                    taker.take(&known.own, &[word(1)]);
                    2
                }
                0 if is_block(word(1)) => {
                    taker.take(&known.own, &[]);
                    1
                }
                2 if is_block(word(3)) && [word(1) as u16, word(2) as u16] == [first, second] => {
                    taker.take(&known.own, &[word(1), word(2)]);
                    3
                }
                0..=2 => break,
                ops => {
                    let ops = usize::from(ops);
                    let Some((own, after)) = words[at + 1..].split_at_checked(ops) else { break };
                    let tags = &self.tags[known.tags as usize..][..ops];
                    let changed = |bits, (&word, tag): (&u64, &u16)| bits | word as u16 ^ tag;
                    let is_usual = own.iter().zip(tags).fold(0, changed) == 0;
                    if !is_usual || !after.first().is_some_and(|&word| is_block(word)) {
                        break;
                    }
                    taker.take(&known.own, own);
                    1 + ops
                }
            };
        }
        at
    }
}

impl<T: Copy + Default> Ready<T> {
    /// Block `number` does what is `known` of it, in `generation`.
    pub(crate) fn set(
        &mut self,
        number: usize,
        generation: u32,
        usual: &Usual,
        known: Known,
        own: T,
    ) {
        if self.0.len() <= number {
            self.0.resize(usual.blocks.len().max(number + 1), Block::default());
        }
        let mut first_tags = [0; FIRST];
        first_tags.iter_mut().zip(usual.tags(known)).for_each(|(first, &tag)| *first = tag);
        self.0[number] = Block { generation, ops: known.ops, first_tags, tags: known.tags, own };
    }

    /// What is kept of block `number`, which has been ready.
    pub(crate) fn own(&self, number: usize) -> &T {
        &self.0[number].own
    }

    /// Block `number` is not ready any more.
    pub(crate) fn forget(&mut self, number: usize) {
        if let Some(block) = self.0.get_mut(number) {
            block.generation = 0;
        }
    }
}

impl<T> Default for Ready<T> {
    fn default() -> Ready<T> {
        Ready(Vec::new())
    }
}

/// The number of the block that `word` stands for.
pub(crate) fn block_number(word: u64) -> usize {
    (word >> WORD_SHIFT) as usize
}

/// Whether a block before `word` has ended.
#[inline(always)]
fn begins(word: u64) -> bool {
    (WORD_BLOCK..WORD_AMID).contains(&(word as u16))
}

/// Begins to fetch words that another core has written.
#[inline(always)]
fn prefetch(words: *const u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; nothing is read, and no address is wrong.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(words.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}
