//! From a ring's records to blocks that ran.
//!
//! ```text
//!   records   block 17 | load a | store b | load c | block 18 | ...
//!   usual 17           |  tag   |   tag   |  tag   |             as it ran last time
//!                          ^ all equal: the sink takes it as it is
//! ```
//!
//! A block nearly always does the same operations. So the sink is told what it did last time, and
//! takes it from the records by itself; what is left for here is the unusual. A block may have
//! several shapes: one that faults stops early, a masked load may not load.

use std::ops::Range;

use addr::Kind;
use ring::{Block, Control, EventCode, Record, Tag, event_parts};
use rustc_hash::FxHashMap;
use trace::{Op, Shape, ShapeId, Sink};

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

/// The fewest accesses with which QEMU saves the registers of a signal's frame.
const STRAYS_MIN: usize = 24;

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
    strays: bool,
    /// By block number, where the tags of its last run are.
    usual: Vec<Option<Range<usize>>>,
    tags: Vec<u16>,
    /// By block number, kind of fetch, and tags.
    variants: FxHashMap<Box<[u16]>, Variant>,
    /// Blocks are translated again and again; their shapes are told once.
    shapes: FxHashMap<Shape, ShapeId>,
    /// Addresses of an unusual block, and what it is looked up by.
    addrs: Vec<u64>,
    key: Vec<u16>,
}

impl Decoder {
    /// A decoder that knows no block; `fetches` false leaves out fetch rows. Where `strays` may
    /// be, it tells them from what the program did.
    pub(crate) fn new(fetches: bool, strays: bool) -> Decoder {
        Decoder {
            fetches,
            strays,
            usual: Vec::new(),
            tags: Vec::new(),
            variants: FxHashMap::default(),
            shapes: FxHashMap::default(),
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
            at += sink.execute_words(&records[at..])?.words;
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
        if self.strays
            && let Some(Some(usual)) = self.usual.get(number as usize)
        {
            let usual = &self.tags[usual.clone()];
            let rest = tags.get(usual.len()..).unwrap_or_default();
            let one = |pair: &[u16]| Tag(pair[0]).instruction() == Tag(pair[1]).instruction();
            if rest.len() >= STRAYS_MIN && tags.starts_with(usual) && rest.windows(2).all(one) {
                keep = keep.min(usual.len());
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
        if control == Control::Block && !variant.doubled {
            let index = number as usize;
            if self.usual.len() <= index {
                self.usual.resize(index + 1, None);
            }
            let from = variant.tags as usize;
            self.usual[index] = Some(from..from + self.key.len() - 4);
            sink.usual(index, variant.shape, &self.key[4..]);
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

#[cfg(test)]
mod tests;
