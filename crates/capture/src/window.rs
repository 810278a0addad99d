//! `--skip`, `--max-accesses`, `--instructions` and events: a window of the accesses.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use trace::{Address, Counted, Error, Event, Shape, ShapeId, Sink, Taken, WORD_ROWS_MAX};

use crate::facts::Image;
use crate::signs::{Lookout, Signs};

/// A [`Sink`] that passes on exactly the accesses from one index to another.
///
/// Events before the window are passed on, as they describe the address space in the window; events
/// after it are not.
#[derive(Debug)]
pub(crate) struct Window<S> {
    pub(crate) sink: S,
    /// The index of the first access to pass on, and of the first after the window.
    from: u64,
    to: u64,
    /// The index of the next access.
    at: u64,
    /// Instructions before the window that were not passed on.
    instructions: u64,
    entered: bool,
    /// Whether nothing is passed on any more, wherever the window ends.
    ended: bool,
    thread: u32,
    shapes: FxHashMap<ShapeId, Shape>,
    signs: Option<Watch>,
}

/// The beginning or end of a window that is given in another way than by a number of accesses.
#[derive(Debug)]
struct Watch {
    signs: Arc<Signs>,
    lookout: Lookout,
    /// Whether the window has not begun; until then accesses are left out, and they are counted
    /// from its beginning.
    waits: bool,
    skip: u64,
    max: Option<u64>,
    /// The number of instructions left in the window.
    instructions: Option<u64>,
}

impl<S: Sink> Window<S> {
    /// Passes on `max` accesses after `skip`.
    pub(crate) fn new(sink: S, skip: u64, max: Option<u64>) -> Window<S> {
        let to = max.map_or(u64::MAX, |max| skip.saturating_add(max));
        Window {
            sink,
            from: skip,
            to,
            at: 0,
            instructions: 0,
            entered: skip == 0,
            ended: false,
            thread: 0,
            shapes: FxHashMap::default(),
            signs: None,
        }
    }

    /// Also begins and ends by `signs`, and ends with the block that completes this number of
    /// `instructions`. The memory of the process has these `images` when it begins.
    pub(crate) fn watching(
        mut self,
        signs: &Arc<Signs>,
        images: &[Image],
        instructions: Option<u64>,
    ) -> Window<S> {
        let max = Some(self.to - self.from).filter(|_| self.to != u64::MAX);
        let (skip, waits) = (self.from, !signs.has_begun());
        if waits {
            (self.from, self.to, self.entered) = (u64::MAX, u64::MAX, false);
        }
        let (signs, lookout) = (Arc::clone(signs), Lookout::new(images, signs));
        self.signs = Some(Watch { signs, lookout, waits, skip, max, instructions });
        self
    }

    /// Before a block runs: begins the window, or ends it, if the block requires that.
    #[cold]
    fn look(&mut self, shape: ShapeId) {
        let Some(watch) = &mut self.signs else { return };
        if watch.waits && (watch.lookout.begins_with(shape) || watch.signs.has_begun()) {
            self.begin();
        } else if !watch.waits && watch.lookout.ends_with(shape) {
            watch.signs.end();
        }
        let Some(watch) = &mut self.signs else { return };
        let inside = self.at >= self.from && self.at < self.to;
        if let Some(left) = watch.instructions.as_mut().filter(|_| inside) {
            if *left == 0 {
                self.ended = true;
                watch.signs.fill();
            }
            *left = left.saturating_sub(u64::from(self.shapes[&shape].instructions));
        }
        self.ended |= watch.signs.is_over();
    }

    /// Begins the window here.
    fn begin(&mut self) {
        let Some(watch) = &mut self.signs else { return };
        watch.signs.begin();
        watch.waits = false;
        self.from = self.at.saturating_add(watch.skip);
        self.entered = self.from == 0;
        self.to = watch.max.map_or(u64::MAX, |max| self.from.saturating_add(max));
        if !watch.signs.has_end() && watch.instructions.is_none() {
            // Nothing else is looked for.
            self.signs = None;
        }
    }

    /// Whether everything is passed on and always will be.
    pub(crate) fn is_open(&self) -> bool {
        self.from == 0 && self.to == u64::MAX && !self.ended && self.signs.is_none()
    }

    /// Whether the last access was passed on.
    pub(crate) fn is_over(&self) -> bool {
        self.at >= self.to || self.ended
    }

    /// Passes on nothing more.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Takes note of accesses that were dropped before they came here.
    pub(crate) fn dropped(&mut self, accesses: u64, instructions: u64) {
        self.at += accesses;
        self.instructions += instructions;
    }

    /// Reports the skipped accesses if the window was never reached, and returns the sink.
    pub(crate) fn close(mut self) -> Result<S, Error> {
        if !self.entered {
            self.enter()?;
        }
        Ok(self.sink)
    }

    fn enter(&mut self) -> Result<(), Error> {
        self.entered = true;
        let gap = Event::Gap { accesses: self.at.min(self.from), instructions: self.instructions };
        self.sink.event(self.thread, gap)
    }

    /// The part of a block that is in the window.
    #[cold]
    fn part(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        let whole = &self.shapes[&shape];
        let rows = usize::from(whole.fetch) + addrs.len();
        let clip = |index: u64| index.saturating_sub(self.at).min(rows as u64) as usize;
        let (first, end) = (clip(self.from), clip(self.to));
        self.at += rows as u64;
        let fetch = usize::from(whole.fetch);
        let fetched = first < fetch;
        let ops = first.saturating_sub(fetch)..end.saturating_sub(fetch);
        // Instructions that began before the first row, and before the end.
        let begun = |ops: usize| {
            let last = ops.checked_sub(1).and_then(|last| whole.ops.get(last));
            let begun = last.map_or(u32::from(whole.fetch), |op| u32::from(op.instruction) + 1);
            // A block of 0 instructions goes on with one that has begun before.
            begun.min(whole.instructions)
        };
        let before = if fetched { 0 } else { begun(ops.start) };
        let after = if end == rows { whole.instructions } else { begun(ops.end) };
        let mut part = Shape {
            pc: whole.pc,
            bytes: whole.bytes,
            instructions: after - before,
            fetch: fetched,
            ops: whole.ops[ops.clone()].to_vec(),
        };
        for op in &mut part.ops {
            op.address = Address::Said;
            op.instruction = op.instruction.saturating_sub(before as u16);
        }
        self.instructions += u64::from(before);
        if !self.entered {
            self.enter()?;
        }
        let id = self.sink.shape(&part);
        self.sink.execute(id, &addrs[ops])
    }
}

impl<S: Sink> Sink for Window<S> {
    fn shape(&mut self, shape: &Shape) -> ShapeId {
        let id = self.sink.shape(shape);
        if !self.is_open() {
            self.shapes.insert(id, shape.clone());
        }
        if let Some(watch) = &mut self.signs {
            watch.lookout.block(id, shape);
        }
        id
    }

    fn thread(&mut self, thread: u32) {
        self.thread = thread;
        self.sink.thread(thread);
    }

    #[inline]
    fn execute(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        if self.is_open() {
            return self.sink.execute(shape, addrs);
        }
        if self.signs.is_some() {
            self.look(shape);
        }
        // Every shape that runs was made known here.
        let whole = &self.shapes[&shape];
        let end = self.at + u64::from(whole.fetch) + addrs.len() as u64;
        if end <= self.from || self.at >= self.to || self.ended {
            self.instructions += u64::from(whole.instructions);
            self.at = end;
            Ok(())
        } else if self.entered && self.at >= self.from && end <= self.to {
            self.at = end;
            self.sink.execute(shape, addrs)
        } else {
            self.part(shape, addrs)
        }
    }

    fn usual(&mut self, number: usize, shape: ShapeId, tags: &[u16]) {
        self.sink.usual(number, shape, tags);
    }

    fn execute_words(&mut self, words: &[u64]) -> Result<Taken, Error> {
        // Each block is looked at where a sign may come.
        let is_inside =
            self.entered && self.signs.is_none() && (self.from..self.to).contains(&self.at);
        if !is_inside {
            return Ok(Taken::default());
        }
        let left = (self.to - self.at) / WORD_ROWS_MAX as u64;
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let taken = self.sink.execute_words(&words[..words.len().min(left)])?;
        self.at += taken.accesses;
        Ok(taken)
    }

    fn execute_physical(
        &mut self,
        shape: ShapeId,
        addrs: &[u64],
        paddrs: &[u64],
    ) -> Result<(), Error> {
        self.sink.execute_physical(shape, addrs, paddrs)
    }

    fn advance(&mut self, instructions: u64) {
        if self.at >= self.from {
            self.sink.advance(instructions);
        } else {
            self.instructions += instructions;
        }
    }

    fn counted(&mut self, counted: Counted) -> Result<(), Error> {
        if self.is_over() { Ok(()) } else { self.sink.counted(counted) }
    }

    fn begin_program(&mut self) {
        self.shapes.clear();
        if let Some(watch) = &mut self.signs {
            watch.lookout.forget();
        }
        self.sink.begin_program();
    }

    fn accesses(&self) -> u64 {
        self.sink.accesses()
    }

    fn instructions(&self) -> u64 {
        self.sink.instructions()
    }

    fn stamp(&mut self, ns: u64) {
        if !self.is_over() {
            self.sink.stamp(ns);
        }
    }

    fn event(&mut self, thread: u32, event: Event) -> Result<(), Error> {
        if let Some(watch) = &mut self.signs {
            let (begins, ends) = watch.lookout.event(&event, &watch.signs);
            if watch.waits && begins {
                self.begin();
            } else if !watch.waits && ends {
                watch.signs.end();
                self.ended = true;
            }
        }
        if self.is_over() { Ok(()) } else { self.sink.event(thread, event) }
    }
}
