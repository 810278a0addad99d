//! Decodes the records of a ring into executed blocks.
//!
//! ```text
//!   records   block 17 | load a | store b | load c | block 18 | ...
//!   usual 17           |  tag   |   tag   |  tag   |             as it ran last time
//!                          ^ all equal: the sink reads the records itself
//! ```
//!
//! A block nearly always makes the same operations as at its last execution. So the sink gets these
//! operations, and reads the records itself as long as they match. Only other executions are
//! handled here. A block may have several shapes. For example, it ends early at a fault, and it may
//! omit a masked load. The tags of a fixed block are in its descriptor, and its records are
//! addresses. A fixed block that ends early is handled here.
//!
//! In QEMU 10, all elements of a `rep` instruction are one execution of its block, which may have
//! more records than a ring. It is split into several executions with [`PART_OPS`] operations each.

use std::ops::Range;

use addr::Kind;
use ring::{Block, Control, Derived, EventCode, HitsOf, Record, STRAYS_MIN, Tag, event_parts};
use rustc_hash::FxHashMap;
use trace::{Address, Counted, Op, Shape, ShapeId, Sink};

/// The source of block descriptors, and the destination of events.
pub(crate) trait Context {
    /// The block with this number, if the process has translated it.
    fn block(&mut self, number: u64) -> Option<Block>;
    /// Appends the tags of the block with this number to `tags`. The block must be a fixed block.
    fn tags(&mut self, number: u64, tags: &mut Vec<u16>);
    /// If the block with this number does not record all addresses, appends how the addresses of
    /// its accesses are derived.
    fn derived(&mut self, number: u64, derived: &mut Vec<Option<Derived>>);
    /// Handles an event of the thread whose segment is decoded.
    fn event(&mut self, code: EventCode, words: &[u64], sink: &mut dyn Sink) -> Result<(), Fault>;
}

/// Why decoding failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The records are invalid.
    Garbled(String),
    /// The sink has failed.
    Sink(trace::Error),
}

impl From<trace::Error> for Fault {
    fn from(error: trace::Error) -> Fault {
        Fault::Sink(error)
    }
}

/// The most operations of an execution. Each may be a load and a store at once.
const PART_OPS: usize = 2000;
const _: () = assert!(2 * PART_OPS <= Shape::OPS_MAX);
/// The maximum number of accesses that an instruction is expected to make if it is not a repeated
/// one. The few instructions that make more are treated as repeated.
const ACCESSES_PER_INSTRUCTION: usize = 2;

/// A block that was executed in part, and that may continue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    number: u64,
    /// The first instruction of the block that is not counted in any part.
    from: u16,
}

/// A part of one execution of a block.
#[derive(Clone, Copy)]
struct Part {
    number: u64,
    /// The record that began the part; `None` if the block began in an earlier part.
    control: Option<Control>,
    /// The first instruction of the part.
    from: u16,
    /// Whether the block continues after the part.
    cut: bool,
    /// Whether this is a fixed block that was left before its end.
    left: bool,
    /// If the block was left before its end in a whole machine: the number of its instructions that
    /// were completed.
    done: Option<u16>,
}

/// One of the sequences of operations with which a block was executed.
#[derive(Clone, Copy)]
struct Variant {
    shape: ShapeId,
    tags: u32,
    /// Whether one of the records is both a load and a store.
    doubled: bool,
}

/// The decoder of one process.
pub(crate) struct Decoder {
    fetches: bool,
    strays: bool,
    /// For each block, by its number: the range of the tags of its last execution.
    usual: Vec<Option<Range<usize>>>,
    tags: Vec<u16>,
    /// The variants by block number, kind of fetch, and tags.
    variants: FxHashMap<Box<[u16]>, Variant>,
    /// The shapes that were passed to the sink. A block that is translated again gets the same
    /// shape.
    shapes: FxHashMap<Shape, ShapeId>,
    /// Addresses of an unusual block, and the key of its variant.
    addrs: Vec<u64>,
    key: Vec<u16>,
    /// How the addresses in a fixed block are derived.
    derived: Vec<Option<Derived>>,
    /// The records of translations among the records of a block, and the record that says after how
    /// many instructions the block was left.
    amid: Vec<(EventCode, Range<usize>)>,
    /// The records of stores to page tables among those of a block: they are reported behind its accesses, which
    /// the stores follow.
    after: Vec<(EventCode, Range<usize>)>,
    done: Option<u16>,
}

impl Decoder {
    /// A decoder that knows no blocks. If `fetches` is false, it leaves out fetches. If `strays`,
    /// it separates accesses that QEMU itself may make from those of the program.
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
            derived: Vec::new(),
            amid: Vec::new(),
            after: Vec::new(),
            done: None,
        }
    }

    /// Decodes `records` into `sink`. Returns how many records were used. With `whole`, these are
    /// all records. Otherwise the last block is left, since it may continue. `rest` belongs to the
    /// thread and is kept between calls.
    pub(crate) fn segment<S: Sink>(
        &mut self,
        records: &[u64],
        whole: bool,
        rest: &mut Option<Rest>,
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<usize, Fault> {
        let mut at = 0;
        while at < records.len() {
            if rest.is_none() {
                at += counted(&records[at..], sink)?;
                at += sink.execute_words(&records[at..])?.words;
            }
            if at == records.len() {
                break;
            }
            match self.slow(&records[at..], whole, rest, context, sink)? {
                0 => break,
                used if used <= records.len() - at => at += used,
                _ => return Err(Fault::Garbled("a record longer than its segment".to_owned())),
            }
        }
        Ok(at)
    }

    /// Handles one block or control record of any kind. Returns the number of its records; 0 if it
    /// may continue in the next segment.
    #[cold]
    #[inline(never)]
    fn slow<S: Sink>(
        &mut self,
        records: &[u64],
        whole: bool,
        rest: &mut Option<Rest>,
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<usize, Fault> {
        if let Some(Rest { number, from }) = *rest {
            let part = Part { number, control: None, from, cut: false, left: false, done: None };
            match self.part(records, whole, part, rest, context, sink)? {
                // The block had ended.
                Some(0) => {}
                used => return Ok(used.unwrap_or(0)),
            }
        }
        let record = Record(records[0]);
        match record.as_control() {
            Some(control @ (Control::Block | Control::Context)) => {
                let number = record.value();
                let control = Some(control);
                let part = Part { number, control, from: 0, cut: false, left: false, done: None };
                let used = self.part(&records[1..], whole, part, rest, context, sink)?;
                Ok(used.map_or(0, |ops| 1 + ops))
            }
            Some(Control::Fixed) => self.fixed(record, &records[1..], whole, context, sink),
            Some(Control::Advance) => {
                sink.advance(record.value());
                Ok(1)
            }
            Some(Control::Passed | Control::Hits | Control::Ask) => counted(records, sink),
            Some(Control::Event) => {
                let (code, words) = event_parts(record.value());
                match (code, records.get(1..1 + words)) {
                    (Some(code), Some(words)) => context.event(code, words, sink)?,
                    _ => return Err(Fault::Garbled(format!("an event {:#x}", record.0))),
                }
                Ok(1 + words)
            }
            Some(Control::Pad) => Ok(1 + record.value() as usize),
            // If a block of a killed thread was skipped, its words belong to no block.
            Some(Control::Wide) => Ok(2),
            None if !record.is_control() => Ok(1),
            None => Err(Fault::Garbled(format!("a record {:#x}", record.0))),
        }
    }

    /// Executes a fixed block as far as it ran. Returns the number of its records, together with
    /// those of the events that happened in it. The block's own records are in one segment. Returns
    /// 0 if more events may follow in the next segment.
    fn fixed<S: Sink>(
        &mut self,
        record: Record,
        records: &[u64],
        whole: bool,
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<usize, Fault> {
        let (number, count) = record.fixed_parts();
        let number = number.into();
        self.key.clear();
        self.key.extend([0; 4]);
        context.tags(number, &mut self.key);
        self.derived.clear();
        context.derived(number, &mut self.derived);
        let accesses = self.key.len() - 4;
        self.derived.resize(accesses, None);
        let recorded = self.derived.iter().filter(|derived| derived.is_none()).count();
        let Some(addrs) = records.get(..count).filter(|_| recorded == count) else {
            return Err(Fault::Garbled(format!("block {number} with {count} addresses")));
        };
        let pc = block(number, context)?.pc;
        (self.done, self.amid, self.after) = (None, Vec::new(), Vec::new());
        let mut behind = 0;
        if record.has_events() {
            match self.events(&records[count..], whole)? {
                None => return Ok(0),
                Some(used) => behind = used,
            }
            self.tell(&records[count..], context, sink)?;
        }
        self.addrs.clear();
        let completed = |done: u16| {
            self.key[4..].iter().take_while(|&&tag| Tag(tag).instruction() < done).count()
        };
        let made = self.done.map(completed).or(record.made()).unwrap_or(accesses);
        let mut said = addrs.iter();
        for derived in self.derived.iter().take(made) {
            let addr = match *derived {
                None => said.next().copied().filter(|&addr| addr != Record::NONE),
                Some(Derived { from: 0, distance }) => Some(pc.wrapping_add(distance)),
                Some(Derived { from, distance }) => addrs
                    .get(usize::from(from) - 1)
                    .filter(|&&addr| addr != Record::NONE)
                    .map(|addr| addr.wrapping_add(distance)),
            };
            let Some(addr) = addr else { break };
            self.addrs.push(addr);
        }
        self.key.truncate(4 + self.addrs.len());
        let left = self.addrs.len() < accesses;
        let (control, done) = (Some(Control::Block), self.done);
        let part = Part { number, control, from: 0, cut: false, left, done };
        self.run(part, context, sink)?;
        self.tell_after(&records[count..], context, sink)?;
        Ok(1 + count + behind)
    }

    /// Finds the events at the beginning of `records` that happened in a fixed block: translations,
    /// and that the block was left. Returns the number of their records. `None` if more may follow
    /// in the next segment.
    fn events(&mut self, records: &[u64], whole: bool) -> Result<Option<usize>, Fault> {
        let mut at = 0;
        loop {
            let Some(&word) = records.get(at) else { return Ok(whole.then_some(at)) };
            let record = Record(word);
            match record.as_control() {
                Some(Control::Pad) => at += 1 + record.value() as usize,
                Some(Control::Event) => match self.event(records, at)? {
                    Some(words) => at += words,
                    None => return Ok(Some(at)),
                },
                _ => return Ok(Some(at)),
            }
            if self.done.is_some() {
                return Ok(Some(at));
            }
        }
    }

    /// Handles the event at `at` if it happened in the block before it: a translation, a change of a
    /// page table, or that the
    /// block was left. Returns the number of its records.
    fn event(&mut self, records: &[u64], at: usize) -> Result<Option<usize>, Fault> {
        let (code, words) = event_parts(Record(records[at]).value());
        let own = at + 1..at + 1 + words;
        let garbled = || Fault::Garbled(format!("an event {:#x}", records[at]));
        let parts = records.get(own.clone()).ok_or_else(garbled)?;
        match (code, parts) {
            (Some(code @ (EventCode::Translation | EventCode::Physical)), _) => {
                self.amid.push((code, own));
            }
            // A table that was found when an address was translated comes before the accesses, as the translation
            // does; one that a store has added or removed comes behind them.
            (Some(code @ (EventCode::Table | EventCode::Entries | EventCode::Stored)), _) => {
                let is_level = parts.first().is_some_and(|table| table & 0xfff != 0);
                let is_found = code == EventCode::Table && is_level;
                match self.after.is_empty() && (is_found || code == EventCode::Entries) {
                    true => self.amid.push((code, own)),
                    false => self.after.push((code, own)),
                }
            }
            (Some(EventCode::Left), &[done]) => self.done = Some(done as u16),
            _ => return Ok(None),
        }
        Ok(Some(1 + words))
    }

    /// Reports the translations that were found among a block's `records`.
    fn tell<S: Sink>(
        &mut self,
        records: &[u64],
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<(), Fault> {
        for (code, own) in self.amid.drain(..) {
            context.event(code, &records[own], sink)?;
        }
        Ok(())
    }

    /// Reports the stores to page tables that were found among a block's `records`.
    fn tell_after<S: Sink>(
        &mut self,
        records: &[u64],
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<(), Fault> {
        for (code, own) in self.after.drain(..) {
            context.event(code, &records[own], sink)?;
        }
        Ok(())
    }

    /// Executes as much of a block as makes one execution, and sets `rest` if the block may
    /// continue. Returns the number of records; `None` if more may come in the next segment.
    fn part<S: Sink>(
        &mut self,
        records: &[u64],
        whole: bool,
        mut part: Part,
        rest: &mut Option<Rest>,
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<Option<usize>, Fault> {
        let Some(used) = self.operations(records, whole)? else { return Ok(None) };
        self.tell(records, context, sink)?;
        part.done = self.done;
        self.drop_strays(part, context)?;
        let instruction = |tag: &u16| Tag(*tag).instruction();
        let tags = &self.key[4..];
        part.cut = tags.len() == PART_OPS && part.done.is_none();
        part.from = tags.first().map_or(part.from, |tag| part.from.min(instruction(tag)));
        *rest = tags
            .last()
            .filter(|_| part.cut)
            .map(|tag| Rest { number: part.number, from: instruction(tag) + 1 });
        self.run(part, context, sink)?;
        self.tell_after(records, context, sink)?;
        Ok(Some(used))
    }

    /// Collects the addresses and tags of a block's operations, at most [`PART_OPS`], and the events among them.
    /// Returns the number of records; `None` if more may come in the next segment.
    fn operations(&mut self, records: &[u64], whole: bool) -> Result<Option<usize>, Fault> {
        (self.done, self.amid, self.after) = (None, Vec::new(), Vec::new());
        self.addrs.clear();
        self.key.clear();
        self.key.extend([0; 4]);
        let mut at = 0;
        while self.addrs.len() < PART_OPS {
            let Some(&word) = records.get(at) else { return Ok(whole.then_some(at)) };
            let record = Record(word);
            match record.as_control() {
                None if !record.is_control() => {
                    self.addrs.push(record.address());
                    self.key.push(record.tag().0);
                    at += 1;
                }
                Some(Control::Wide) => {
                    let Some(&address) = records.get(at + 1) else {
                        return Ok(whole.then_some(at));
                    };
                    self.addrs.push(address);
                    self.key.push(record.value() as u16);
                    at += 2;
                }
                // The end of a span, in the middle of a block.
                Some(Control::Pad) => at += 1 + record.value() as usize,
                Some(Control::Event) => match self.event(records, at)? {
                    Some(words) => at += words,
                    None => break,
                },
                _ => break,
            }
            if self.done.is_some() {
                break;
            }
        }
        Ok(Some(at))
    }

    /// Removes accesses that QEMU itself made after the block: QEMU 7.2 may leave the callbacks of
    /// a block's last instruction in place, and then calls them while it saves registers into a
    /// signal frame. These accesses are all attributed to that one instruction.
    fn drop_strays(&mut self, part: Part, context: &mut dyn Context) -> Result<(), Fault> {
        let block = block(part.number, context)?;
        let tags = &self.key[4..];
        let mut last = part.from.saturating_sub(1);
        let is_out_of_place = |&tag: &u16| {
            let instruction = Tag(tag).instruction();
            let before = std::mem::replace(&mut last, instruction);
            instruction < before || u32::from(instruction) >= block.instructions.max(1)
        };
        let mut keep = tags.iter().position(is_out_of_place).unwrap_or(tags.len());
        if self.strays
            && part.control.is_some()
            && let Some(Some(usual)) = self.usual.get(part.number as usize)
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

    /// Drops the accesses of an instruction that was not completed, since the instruction makes
    /// them again. The accesses of a repeated instruction are kept. Returns whether nothing is left
    /// of the block.
    fn drop_unfinished(&mut self, done: u16) -> bool {
        let tags = &self.key[4..];
        let completed = tags.iter().take_while(|&&tag| Tag(tag).instruction() < done).count();
        if tags.len() - completed <= ACCESSES_PER_INSTRUCTION {
            self.key.truncate(4 + completed);
            self.addrs.truncate(completed);
        }
        done == 0 && self.addrs.is_empty()
    }

    /// Passes the part whose operations were collected to the sink.
    fn run<S: Sink>(
        &mut self,
        part: Part,
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<(), Fault> {
        for (index, bits) in self.key[..3].iter_mut().enumerate() {
            *bits = (part.number >> (16 * index)) as u16;
        }
        // `Pad` stands for parts that continue a block and do not begin one.
        let control = part.control.unwrap_or(Control::Pad) as u16;
        self.key[3] = part.from << 5 | u16::from(part.cut) << 4 | control;
        if let Some(done) = part.done
            && self.drop_unfinished(done)
        {
            return Ok(());
        }
        // Few blocks are left early. The number of instructions that they have completed is not in
        // the key, so no variant can be used.
        let known = self.variants.get(&self.key[..]).filter(|_| part.done.is_none());
        let variant = match known {
            Some(&variant) => variant,
            None => self.learn(part, context, sink)?,
        };
        let is_whole = !part.cut && !part.left && part.done.is_none();
        if part.control == Some(Control::Block) && is_whole && !variant.doubled {
            let index = part.number as usize;
            if self.usual.len() <= index {
                self.usual.resize(index + 1, None);
            }
            let from = variant.tags as usize;
            let tags = Some(from..from + self.key.len() - 4);
            if self.usual[index] != tags {
                self.usual[index] = tags;
                self.derived.clear();
                context.derived(part.number, &mut self.derived);
                self.derived.resize(self.key.len() - 4, None);
                let tags = self.key[4..].iter().zip(&self.derived);
                let said = tags.filter(|(_, derived)| derived.is_none()).map(|(&tag, _)| tag);
                sink.usual(index, variant.shape, &said.collect::<Vec<_>>());
            }
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

    /// Makes a variant from the collected operations.
    fn learn<S: Sink>(
        &mut self,
        part: Part,
        context: &mut dyn Context,
        sink: &mut S,
    ) -> Result<Variant, Fault> {
        let block = block(part.number, context)?;
        let tags = &self.key[4..];
        self.derived.clear();
        context.derived(part.number, &mut self.derived);
        let is_recorded = |(_, derived): &(usize, &Option<Derived>)| derived.is_none();
        let recorded = self.derived.iter().enumerate().filter(is_recorded);
        let recorded: Vec<usize> = recorded.map(|(index, _)| index).collect();
        let mut ops = Vec::with_capacity(tags.len());
        for (index, &tag) in tags.iter().enumerate() {
            let tag = Tag(tag);
            // Accesses of an instruction that was interrupted between its repetitions count for the
            // instruction before it.
            let last = part.done.map_or(u16::MAX, |done| done.saturating_sub(1));
            let instruction = tag.instruction().min(last).saturating_sub(part.from);
            let address = match self.derived.get(index).copied().flatten() {
                None => Address::Said,
                Some(Derived { from: 0, distance }) => Address::BehindStart(distance),
                Some(Derived { from, distance }) => {
                    let from = recorded.get(usize::from(from) - 1);
                    Address::Behind { op: from.map_or(u16::MAX, |&op| op as u16), distance }
                }
            };
            let op = |kind| Op { instruction, kind, size: tag.size(), address };
            ops.extend(tag.loads().then(|| op(Kind::Load)));
            ops.extend(tag.stores().then(|| op(Kind::Store)));
        }
        let doubled = ops.len() != tags.len();
        if doubled {
            ops.iter_mut().for_each(|op| op.address = Address::Said);
        }
        let end = match ops.last() {
            Some(last) if part.cut => u32::from(part.from + last.instruction) + 1,
            _ => part.done.map_or(block.instructions, u32::from),
        };
        // In a whole machine, a repeated instruction may have made accesses although it was not
        // completed.
        let least = u32::from(part.done.is_some() && !ops.is_empty());
        // A fixed block without instructions continues a repeated instruction.
        let begins = part.control == Some(Control::Block) && block.instructions != 0;
        let shape = Shape {
            pc: block.pc,
            bytes: block.bytes,
            instructions: end.saturating_sub(part.from.into()).max(least),
            fetch: self.fetches && begins && part.done != Some(0),
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
        if part.done.is_none() {
            self.tags.extend_from_slice(tags);
            self.variants.insert(self.key.clone().into(), variant);
        }
        Ok(variant)
    }
}

/// Passes on a report of counted accesses at the beginning of `records`. Returns its number of records; 0 if
/// it continues in the next segment.
#[inline]
fn counted<S: Sink>(records: &[u64], sink: &mut S) -> Result<usize, Fault> {
    let mut at = 0;
    while let Some(&word) = records.get(at) {
        let record = Record(word);
        match record.as_control() {
            Some(Control::Passed) => {
                sink.counted(Counted::Passed(record.value()))?;
                at += 1;
            }
            Some(Control::Ask) => {
                sink.counted(Counted::Asked)?;
                at += 1;
            }
            Some(Control::Hits) => {
                let (Some(of), count, goes) = record.hits_parts() else {
                    return Err(Fault::Garbled(format!("hits {:#x}", record.0)));
                };
                let Some(&page) = records.get(at + 1) else { break };
                let kind = match of {
                    HitsOf::Fetch => Kind::Fetch,
                    HitsOf::Load => Kind::Load,
                    HitsOf::Store => Kind::Store,
                };
                sink.counted(Counted::Hits { kind, page, count, goes })?;
                at += 2;
            }
            Some(
                Control::Block
                | Control::Context
                | Control::Advance
                | Control::Fixed
                | Control::Wide
                | Control::Event
                | Control::Pad,
            )
            | None => break,
        }
    }
    Ok(at)
}

/// The block with this number. It must have been translated.
fn block(number: u64, context: &mut dyn Context) -> Result<Block, Fault> {
    let untranslated = || Fault::Garbled(format!("block {number} was not translated"));
    context.block(number).ok_or_else(untranslated)
}

#[cfg(test)]
mod tests;
