//! From a ring's records to blocks that ran.
//!
//! ```text
//!   records   block 17 | load a | store b | load c | block 18 | ...
//!   known 17           |  tag   |   tag   |  tag   |             as it ran last time
//!                          ^ all equal: execute(shape, [a, b, c])
//! ```
//!
//! A block nearly always does the same operations, so what it did last time is compared first.
//! A block may have several shapes: one that faults stops early, a masked load may not load.

use addr::Kind;
use ring::{Block, Control, EventCode, Record, Tag, event_parts};
use rustc_hash::FxHashMap;
use trace::{Op, Run, Shape, ShapeId, Sink};

/// Where the descriptors of blocks come from, and where events go.
pub(crate) trait Context {
    /// The block of that number, if the process has translated it.
    fn block(&mut self, number: u64) -> Option<Block>;
    /// An event of the thread whose segment it is.
    fn event(&mut self, code: EventCode, words: &[u64], sink: &mut dyn Sink) -> Result<(), Fault>;
}

/// Why records could not be decoded.
#[derive(Debug)]
pub(crate) enum Fault {
    /// They mean nothing.
    Garbled(String),
    /// The sink has failed.
    Sink(trace::Error),
}

impl From<trace::Error> for Fault {
    fn from(error: trace::Error) -> Fault {
        Fault::Sink(error)
    }
}

/// Operations that are compared and copied whether the block has them or not. Nearly all
/// blocks have no more.
const LANES: usize = 2;
/// What of their tags is compared, by how many of them the block has.
const MASKS: [u32; LANES + 1] = [0, 0xffff, 0xffff_ffff];

/// Records to fetch ahead: they lie in the cache of the core that wrote them.
const AHEAD: usize = 128;

/// The fewest accesses with which QEMU saves the registers of a signal's frame.
const STRAYS_MIN: usize = 24;

/// What is known of a block from its last run.
#[derive(Clone, Copy)]
struct Known {
    shape: ShapeId,
    /// The tags of its first [`LANES`] operations.
    first_tags: u32,
    /// Index of its first tag in [`Decoder::tags`].
    tags: u32,
    /// Its operations; [`UNKNOWN`] if it has not run.
    ops: u16,
}

/// No block is said to have as many operations.
const UNKNOWN: u16 = u16::MAX;

/// One way in which a block ran.
#[derive(Clone, Copy)]
struct Variant {
    shape: ShapeId,
    tags: u32,
    /// Whether some record is a load and a store at once.
    doubled: bool,
}

/// The decoder of one process.
pub(crate) struct Decoder {
    fetches: bool,
    known: Vec<Known>,
    tags: Vec<u16>,
    /// By block number, kind of fetch, and tags.
    variants: FxHashMap<Box<[u16]>, Variant>,
    /// Blocks are translated again and again; their shapes are told once.
    shapes: FxHashMap<Shape, ShapeId>,
    /// Blocks that did what they did last time, and their addresses in a row.
    runs: Vec<Run>,
    run_addrs: Vec<u64>,
    /// How many these are.
    run_ops: usize,
    /// Addresses of the block at hand otherwise, and what it is looked up by.
    addrs: Vec<u64>,
    key: Vec<u16>,
}

impl Decoder {
    /// A decoder that knows no block; `fetches` false leaves out fetch rows.
    pub(crate) fn new(fetches: bool) -> Decoder {
        Decoder {
            fetches,
            known: Vec::new(),
            tags: Vec::new(),
            variants: FxHashMap::default(),
            shapes: FxHashMap::default(),
            runs: Vec::new(),
            run_addrs: Vec::new(),
            run_ops: 0,
            addrs: Vec::new(),
            key: Vec::new(),
        }
    }

    /// Gives `records` to `sink` and returns how many it has used: all if `whole`, otherwise
    /// all up to the last block, which may go on.
    pub(crate) fn segment<S: Sink>(
        &mut self,
        records: &[u64],
        whole: bool,
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<usize, Fault> {
        let mut at = 0;
        while at < records.len() {
            at += self.usual(&records[at..]);
            if !self.runs.is_empty() {
                let done = sink.execute_all(&self.runs, &self.run_addrs[..self.run_ops]);
                self.runs.clear();
                done?;
            }
            if at == records.len() {
                break;
            }
            match self.slow(&records[at..], whole, context, sink)? {
                0 => break,
                used if used <= records.len() - at => at += used,
                _ => return Err(Fault::Garbled("a record longer than its segment".to_owned())),
            }
        }
        Ok(at)
    }

    /// Lists the blocks from the first record on that did what they did last time, and says how
    /// many records they have.
    ///
    /// Where blocks begin is found by their records' control bits, many at a time: it would
    /// take longer to find one after the other by how long each is known to be. Nothing turns
    /// on how many operations a block has, as long as they are few: that is unpredictable.
    fn usual(&mut self, records: &[u64]) -> usize {
        const BLOCK: u16 = Tag::CONTROL | Control::Block as u16;
        if self.run_addrs.len() < records.len() + LANES {
            self.run_addrs.resize(records.len() + LANES, 0);
        }
        let mut controls = Controls::new(records);
        let Some(mut at) = controls.next().filter(|&at| at == 0) else { return 0 };
        // Locals, so that what is written through them is not thought to change `self`.
        let (known, tags) = (&self.known[..], &self.tags[..]);
        let room = self.run_addrs.len();
        let mut addrs = &mut self.run_addrs[..];
        for next in controls {
            prefetch(records, at + AHEAD);
            let record = records[at];
            let Some(known) = known.get((record >> 16) as usize) else { break };
            let ops = next - at - 1;
            if record as u16 != BLOCK || usize::from(known.ops) != ops {
                break;
            }
            let Some(&[first, second]) = records[at + 1..].first_chunk() else { break };
            let Some([to_first, to_second, ..]) = addrs.first_chunk_mut::<LANES>() else { break };
            (*to_first, *to_second) = (first >> 16, second >> 16);
            let mut different =
                (u32::from(first as u16) | (second as u32) << 16) ^ known.first_tags;
            different &= MASKS[ops.min(LANES)];
            if ops > LANES {
                let Some(tags) = tags.get(known.tags as usize..known.tags as usize + ops) else {
                    break;
                };
                let Some(addrs) = addrs.get_mut(..ops) else { break };
                let run = records[at + 1..next].iter().zip(tags).zip(addrs);
                for ((record, tag), addr) in run.skip(LANES) {
                    different |= u32::from(*record as u16 ^ tag);
                    *addr = record >> 16;
                }
            }
            if different != 0 {
                break;
            }
            self.runs.push(Run { shape: known.shape, ops: ops as u32 });
            addrs = &mut std::mem::take(&mut addrs)[ops..];
            at = next;
        }
        self.run_ops = room - addrs.len();
        at
    }

    /// One block or control record, whatever it is; 0 if it may go on in the next segment.
    #[cold]
    #[inline(never)]
    fn slow<S: Sink>(
        &mut self,
        records: &[u64],
        whole: bool,
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<usize, Fault> {
        let record = Record(records[0]);
        match record.as_control() {
            Some(control @ (Control::Block | Control::Context)) => {
                let Some(ops) = self.operations(&records[1..], whole)? else { return Ok(0) };
                self.drop_strays(record.value(), context)?;
                self.run(record.value(), control, context, sink)?;
                Ok(1 + ops)
            }
            Some(Control::Advance) => {
                sink.advance(record.value());
                Ok(1)
            }
            Some(Control::Event) => {
                let (code, words) = event_parts(record.value());
                match (code, records.get(1..1 + words)) {
                    (Some(code), Some(words)) => context.event(code, words, sink)?,
                    _ => return Err(Fault::Garbled(format!("an event {:#x}", record.0))),
                }
                Ok(1 + words)
            }
            Some(Control::Pad) => Ok(1 + record.value() as usize),
            // What a killed thread left of a block that was skipped belongs to no block.
            Some(Control::Wide) => Ok(2),
            None if !record.is_control() => Ok(1),
            None => Err(Fault::Garbled(format!("a record {:#x}", record.0))),
        }
    }

    /// Collects addresses and tags of a block's operations; how many records they are, or
    /// `None` if there may be more of them in the next segment.
    fn operations(&mut self, records: &[u64], whole: bool) -> Result<Option<usize>, Fault> {
        self.addrs.clear();
        self.key.clear();
        self.key.extend([0; 4]);
        let mut at = 0;
        let ended = loop {
            let Some(&word) = records.get(at) else { break whole };
            let record = Record(word);
            match record.as_control() {
                None if !record.is_control() => {
                    self.addrs.push(record.value());
                    self.key.push(record.tag().0);
                    at += 1;
                }
                Some(Control::Wide) => {
                    let Some(&address) = records.get(at + 1) else { break whole };
                    self.addrs.push(address);
                    self.key.push(record.value() as u16);
                    at += 2;
                }
                // The end of a span, in the middle of a block.
                Some(Control::Pad) => at += 1 + record.value() as usize,
                _ => break true,
            }
        };
        Ok(ended.then_some(at))
    }

    /// Takes away what QEMU itself did after the block: QEMU 7.2 may leave the callbacks of a
    /// block's last instruction in place, and then calls them while it saves registers into a
    /// signal's frame. These accesses all name that one instruction.
    fn drop_strays(&mut self, number: u64, context: &mut dyn Context) -> Result<(), Fault> {
        let Some(block) = context.block(number) else {
            return Err(Fault::Garbled(format!("block {number} was not translated")));
        };
        let tags = &self.key[4..];
        let mut last = 0;
        let is_out_of_place = |&tag: &u16| {
            let instruction = Tag(tag).instruction();
            let before = std::mem::replace(&mut last, instruction);
            instruction < before || u32::from(instruction) >= block.instructions
        };
        let mut keep = tags.iter().position(is_out_of_place).unwrap_or(tags.len());
        if let Some(&Known { tags: first, ops, .. }) = self.known.get(number as usize)
            && ops != UNKNOWN
        {
            let usual = &self.tags[first as usize..][..ops.into()];
            let rest = tags.get(ops.into()..).unwrap_or_default();
            let one = |pair: &[u16]| Tag(pair[0]).instruction() == Tag(pair[1]).instruction();
            if rest.len() >= STRAYS_MIN && tags.starts_with(usual) && rest.windows(2).all(one) {
                keep = keep.min(ops.into());
            }
        }
        self.key.truncate(4 + keep);
        self.addrs.truncate(keep);
        Ok(())
    }

    /// Gives the block whose operations were collected to the sink.
    fn run<S: Sink>(
        &mut self,
        number: u64,
        control: Control,
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<(), Fault> {
        for (index, part) in self.key[..3].iter_mut().enumerate() {
            *part = (number >> (16 * index)) as u16;
        }
        self.key[3] = control as u16;
        let variant = match self.variants.get(&self.key[..]) {
            Some(&variant) => variant,
            None => self.learn(number, control, context, sink)?,
        };
        let ops = self.addrs.len();
        if control == Control::Block && !variant.doubled && ops < usize::from(UNKNOWN) {
            let index = number as usize;
            if self.known.len() <= index {
                let unknown = Known { shape: variant.shape, first_tags: 0, tags: 0, ops: UNKNOWN };
                self.known.resize(index + 1, unknown);
            }
            let first_tags = self.key[4..].iter().take(LANES).rev();
            self.known[index] = Known {
                shape: variant.shape,
                first_tags: first_tags.fold(0, |tags, &tag| tags << 16 | u32::from(tag)),
                tags: variant.tags,
                ops: ops as u16,
            };
        }
        if variant.doubled {
            let tags = &self.key[4..];
            let mut addrs = Vec::with_capacity(2 * self.addrs.len());
            for (&addr, &tag) in self.addrs.iter().zip(tags) {
                let tag = Tag(tag);
                let times = usize::from(tag.loads()) + usize::from(tag.stores());
                addrs.extend(std::iter::repeat_n(addr, times));
            }
            sink.execute(variant.shape, &addrs)?;
        } else {
            sink.execute(variant.shape, &self.addrs)?;
        }
        Ok(())
    }

    /// Makes a variant of what was collected.
    fn learn<S: Sink>(
        &mut self,
        number: u64,
        control: Control,
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<Variant, Fault> {
        let Some(block) = context.block(number) else {
            return Err(Fault::Garbled(format!("block {number} was not translated")));
        };
        let tags = &self.key[4..];
        let mut ops = Vec::with_capacity(tags.len());
        for &tag in tags {
            let tag = Tag(tag);
            let op = |kind| Op { instruction: tag.instruction(), kind, size: tag.size() };
            ops.extend(tag.loads().then(|| op(Kind::Load)));
            ops.extend(tag.stores().then(|| op(Kind::Store)));
        }
        let doubled = ops.len() != tags.len();
        let shape = Shape {
            pc: block.pc,
            bytes: block.bytes,
            instructions: block.instructions,
            fetch: self.fetches && control == Control::Block,
            ops,
        };
        let shape = match self.shapes.get(&shape) {
            Some(&id) => id,
            None => {
                let id = sink.shape(&shape);
                self.shapes.insert(shape, id);
                id
            }
        };
        let variant = Variant { shape, tags: self.tags.len() as u32, doubled };
        self.tags.extend_from_slice(tags);
        self.variants.insert(self.key.clone().into(), variant);
        Ok(variant)
    }
}

/// The indices of control records, in order.
struct Controls<'a> {
    records: &'a [u64],
    /// Index of the first record that `bits` stands for, and the control records among 64.
    base: usize,
    bits: u64,
}

impl<'a> Controls<'a> {
    fn new(records: &'a [u64]) -> Controls<'a> {
        Controls { records, base: 0, bits: control_bits(records) }
    }
}

impl Iterator for Controls<'_> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        while self.bits == 0 {
            self.base += 64;
            self.bits = control_bits(self.records.get(self.base..)?);
        }
        let at = self.base + self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some(at)
    }
}

/// The control records among the first 64: bit 0 is the first.
#[inline]
fn control_bits(records: &[u64]) -> u64 {
    let is_control = |record: u64| record >> 15 & 1;
    let mut bits = 0;
    if let Some(records) = records.first_chunk::<64>() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 has SSE2; both loads of a turn are inside the 64 records.
        unsafe {
            use std::arch::x86_64::*;
            for group in 0..16 {
                let at = records.as_ptr().add(4 * group).cast::<f32>();
                // The low halves of four records, their bit 15 made the sign.
                let low = _mm_loadu_ps(at);
                let high = _mm_loadu_ps(at.add(4));
                let halves = _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(low, high));
                let signs = _mm_castsi128_ps(_mm_slli_epi32::<16>(halves));
                bits |= (_mm_movemask_ps(signs) as u64) << (4 * group);
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        for (index, &record) in records.iter().enumerate() {
            bits |= is_control(record) << index;
        }
    } else {
        for (index, &record) in records.iter().enumerate() {
            bits |= is_control(record) << index;
        }
    }
    bits
}

/// Begins to fetch a record that another core has written.
#[inline(always)]
fn prefetch(records: &[u64], at: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; nothing is read, and no address is wrong.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(records.as_ptr().wrapping_add(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (records, at);
}

/// How many records a killed thread has left in the rest of its span.
pub(crate) fn left_behind(records: &[u64]) -> usize {
    let mut at = 0;
    while let Some(&word) = records.get(at) {
        let record = Record(word);
        let length = match record.as_control() {
            _ if word == 0 => break,
            Some(Control::Event) => 1 + event_parts(record.value()).1,
            Some(Control::Wide) => 2,
            Some(Control::Pad) => 1 + record.value() as usize,
            _ => 1,
        };
        if at + length > records.len() {
            break;
        }
        at += length;
    }
    at
}
