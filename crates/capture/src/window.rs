//! `--skip`, `--max-accesses`, `--instructions`, `--sample` and events: windows of the accesses.
//!
//! ```text
//!   --skip S --max-accesses M    S left out | M passed on | nothing more
//!   --sample W/P                 S left out | W passed on | P - W left out | W passed on | ...
//! ```
//!
//! The engine leaves most accesses before a window out itself, and reports how many ([`Window::left_out`]). They count as
//! if they had come here.

use std::ops::Range;
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
    /// The index of the first access that was not passed on since the last window, and the instructions since then.
    gap_from: u64,
    instructions: u64,
    /// The lengths of windows and periods, if there are several windows.
    sample: Option<Sample>,
    entered: bool,
    /// Whether nothing is passed on any more, wherever the window ends.
    ended: bool,
    thread: u32,
    shapes: FxHashMap<ShapeId, Shape>,
    signs: Option<Watch>,
}

/// Windows that come again.
#[derive(Clone, Copy, Debug)]
struct Sample {
    window: u64,
    period: u64,
    /// The index of the beginning of the current period, and the accesses that may still be passed on from there on.
    begin: u64,
    max: u64,
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
            gap_from: 0,
            instructions: 0,
            sample: None,
            entered: skip == 0,
            ended: false,
            thread: 0,
            shapes: FxHashMap::default(),
            signs: None,
        }
    }

    /// Passes on only the first `window` accesses of each `period`, beginning where the window would begin; all of them
    /// together are limited.
    pub(crate) fn sampling(mut self, window: u64, period: u64) -> Window<S> {
        let max = if self.to == u64::MAX { u64::MAX } else { self.to - self.from };
        self.sample = Some(Sample { window, period, begin: self.from, max });
        self.to = self.from.saturating_add(window.min(max));
        self
    }

    /// Also begins and ends by `signs`, and ends with the block that completes this number of
    /// `instructions`. The memory of the process has these `images` when it begins.
    pub(crate) fn watching(
        mut self,
        signs: &Arc<Signs>,
        images: &[Image],
        instructions: Option<u64>,
    ) -> Window<S> {
        let max = match self.sample {
            Some(sample) => Some(sample.max).filter(|&max| max != u64::MAX),
            None => Some(self.to - self.from).filter(|_| self.to != u64::MAX),
        };
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
        if let Some(sample) = &mut self.sample {
            sample.begin = self.from;
            self.to = self.from.saturating_add(sample.window.min(sample.max));
        }
        if !watch.signs.has_end() && watch.instructions.is_none() {
            // No other sign is awaited.
            self.signs = None;
        }
    }

    /// Whether everything is passed on and always will be.
    pub(crate) fn is_open(&self) -> bool {
        self.from == 0 && self.to == u64::MAX && !self.ended && self.signs.is_none()
    }

    /// Whether the last access was passed on.
    pub(crate) fn is_over(&self) -> bool {
        self.ended || self.sample.is_none() && self.at >= self.to
    }

    /// Passes on nothing more.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Counts accesses that were left out in the recorded process. If another thread left accesses
    /// out before a window that has begun since, these accesses are no part of the window.
    pub(crate) fn left_out(&mut self, accesses: u64, instructions: u64) -> Result<(), Error> {
        if self.is_over() {
            return Ok(());
        }
        let is_inside = self.entered && self.at >= self.from && self.at < self.to;
        if is_inside {
            self.sink.event(self.thread, Event::Gap { accesses, instructions })?;
            if self.sample.is_none() {
                let later = |at: u64| at.saturating_add(accesses);
                (self.at, self.from, self.to) = (later(self.at), later(self.from), later(self.to));
                return Ok(());
            }
        } else {
            self.instructions += instructions;
        }
        self.at += accesses;
        if is_inside && self.at < self.to {
            return Ok(());
        }
        if is_inside {
            if let Some(sample) = &mut self.sample {
                let passed = self.at - accesses - self.from;
                sample.max = sample.max.saturating_sub(passed);
            }
            // The next rows follow everything that was left out.
            self.gap_from = self.at;
            self.entered = false;
        }
        self.next_windows();
        Ok(())
    }

    /// Begins the window, because the process has reported that it reached the sign of the window.
    pub(crate) fn sign_came(&mut self) {
        if self.signs.as_ref().is_some_and(|watch| watch.waits) {
            self.begin();
        }
    }

    /// The addresses of the symbol that begins the window, if it has not begun.
    pub(crate) fn places(&self) -> &[u64] {
        match &self.signs {
            Some(watch) if watch.waits => watch.lookout.beginnings(),
            _ => &[],
        }
    }

    /// Goes on to the first window of a sample that does not end before the next access.
    fn next_windows(&mut self) {
        let Some(sample) = &mut self.sample else { return };
        while self.at >= self.to && !self.ended && self.to != u64::MAX {
            if self.entered {
                sample.max = sample.max.saturating_sub(self.to - self.from);
                (self.gap_from, self.instructions, self.entered) = (self.to, 0, false);
            }
            let periods = ((self.at - sample.begin) / sample.period).max(1);
            sample.begin = sample.begin.saturating_add(periods * sample.period);
            self.from = sample.begin;
            self.to = self.from.saturating_add(sample.window.min(sample.max));
            self.ended = sample.max == 0;
        }
    }

    /// Passes on the parts of a block that are in windows of a sample.
    #[cold]
    fn parts(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        let rows = u64::from(self.shapes[&shape].fetch) + addrs.len() as u64;
        let (begin, mut done) = (self.at, 0);
        while done < rows && !self.ended {
            self.at = begin + done;
            self.next_windows();
            let is_inside = (self.from..self.to).contains(&self.at);
            let until = if is_inside { self.to } else { self.from };
            let end = rows.min(done + until.saturating_sub(self.at).max(1));
            self.piece(shape, addrs, done as usize..end as usize, is_inside)?;
            done = end;
        }
        self.at = begin + rows;
        self.next_windows();
        Ok(())
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
        let accesses = self.at.min(self.from).saturating_sub(self.gap_from);
        let gap = Event::Gap { accesses, instructions: self.instructions };
        self.sink.event(self.thread, gap)
    }

    /// The part of a block that is in the window.
    #[cold]
    fn part(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        let rows = usize::from(self.shapes[&shape].fetch) + addrs.len();
        let clip = |index: u64| index.saturating_sub(self.at).min(rows as u64) as usize;
        let (first, end) = (clip(self.from), clip(self.to));
        self.at += rows as u64;
        self.piece(shape, addrs, 0..first, false)?;
        self.piece(shape, addrs, first..end, true)
    }

    /// Rows of a block, which are passed on if they are `inside`.
    fn piece(
        &mut self,
        shape: ShapeId,
        addrs: &[u64],
        own: Range<usize>,
        inside: bool,
    ) -> Result<(), Error> {
        let whole = &self.shapes[&shape];
        let fetch = usize::from(whole.fetch);
        let rows = fetch + addrs.len();
        let Range { start: first, end } = own;
        let fetched = first < fetch;
        let ops = first.saturating_sub(fetch)..end.saturating_sub(fetch);
        // Instructions that began before the first row, and before the end.
        let begun = |ops: usize| {
            let last = ops.checked_sub(1).and_then(|last| whole.ops.get(last));
            let begun = last.map_or(u32::from(whole.fetch), |op| u32::from(op.instruction) + 1);
            // A block of 0 instructions continues an instruction that has begun before.
            begun.min(whole.instructions)
        };
        let before = if first == 0 { 0 } else { begun(ops.start) };
        let after = match end {
            0 => 0,
            end if end == rows => whole.instructions,
            _ => begun(ops.end),
        };
        if !inside {
            self.instructions += u64::from(after - before);
            return Ok(());
        }
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
        // Every shape was defined here before it runs.
        let whole = &self.shapes[&shape];
        let end = self.at + u64::from(whole.fetch) + addrs.len() as u64;
        if self.sample.is_some() {
            // Most blocks are in a window, or between two.
            if self.ended || end <= self.from {
                self.instructions += u64::from(whole.instructions);
                self.at = end;
                return Ok(());
            }
            if !(self.entered && self.at >= self.from && end < self.to) {
                return self.parts(shape, addrs);
            }
            self.at = end;
            return self.sink.execute(shape, addrs);
        }
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
        // Where a sign may come, each block is examined.
        let is_inside =
            self.entered && self.signs.is_none() && (self.from..self.to).contains(&self.at);
        if !is_inside {
            return Ok(Taken::default());
        }
        let left = (self.to - self.at) / WORD_ROWS_MAX as u64;
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let taken = self.sink.execute_words(&words[..words.len().min(left)])?;
        self.at += taken.accesses;
        if self.at >= self.to {
            self.next_windows();
        }
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
        if self.at >= self.from && (self.sample.is_none() || self.entered) {
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
