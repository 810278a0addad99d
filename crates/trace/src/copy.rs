//! Copies any source into a file, as compactly as recorded blocks.
//!
//! ```text
//!   rows    fetch  load  store | fetch  load | load | fetch ...
//!           \_____ a group ___/ \_ a group _/    ^ of the group before, if it was a block
//! ```
//!
//! A fetch and the data rows after it, up to the next fetch, are a group; in a trace without
//! fetches, each row is a group. The rows of a group without their addresses are its shape. The
//! addresses of each execution are predicted from earlier executions of the same shape. The
//! instruction of a row without a fetch is unknown. Such rows are therefore distinguished by the
//! part of the address space that they access.

use std::hash::{Hash, Hasher};

use addr::Kind;
use rustc_hash::{FxHashMap, FxHasher};

use crate::shape::Rows;
use crate::{Batch, Error, Meta, Shape, ShapeId, Sink, Source, Writer};

/// When this number of shapes is known, all are forgotten. This bounds the memory for any source.
const SHAPES_MAX: usize = 1 << 18;
/// In traces without fetches, all accesses to one aligned block of 64 MiB are assumed to be made by
/// one instruction. This is log2 of the block's size.
const PART_SHIFT: u32 = 26;
/// The number of parts that are distinguished.
const PARTS: u64 = 64;

/// Writes all of `source` to `writer`, which was created with the source's header. `progress` is
/// called after each batch with the number of accesses so far; returning false stops the copy.
pub fn copy(
    source: &mut dyn Source,
    writer: &mut Writer,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<(), Error> {
    let (mut copier, mut batch, mut done) = (Copier::default(), Batch::default(), 0);
    let mut more = true;
    while more {
        more = source.next(&mut batch)?;
        copier.batch(&batch, writer)?;
        done += batch.len() as u64;
        if !progress(done) {
            return Err(Error::Interrupted);
        }
    }
    copier.end_group(0, writer)
}

/// The group that is being collected, and the known shapes.
#[derive(Default)]
struct Copier {
    known: FxHashMap<u64, Vec<(Rows, ShapeId)>>,
    thread: u32,
    fetch: Option<u64>,
    metas: Vec<Meta>,
    addrs: Vec<u64>,
    paddrs: Vec<u64>,
    physical: bool,
}

impl Copier {
    fn batch(&mut self, batch: &Batch, writer: &mut Writer) -> Result<(), Error> {
        let mut segments = batch.segments.iter().peekable();
        let mut events = batch.events.iter().peekable();
        for index in 0..batch.len() {
            while let Some(event) = events.next_if(|event| event.at as usize <= index) {
                self.end_group(0, writer)?;
                writer.event(event.thread, event.event.clone())?;
            }
            if let Some(segment) = segments.next_if(|segment| segment.start as usize <= index) {
                self.end_group(0, writer)?;
                self.thread = segment.thread;
            }
            let paddr = batch.paddr.get(index).copied();
            self.row(batch.addr[index], batch.meta[index], paddr, writer)?;
        }
        for event in events {
            self.end_group(0, writer)?;
            writer.event(event.thread, event.event.clone())?;
        }
        Ok(())
    }

    fn row(
        &mut self,
        addr: u64,
        meta: Meta,
        paddr: Option<u64>,
        writer: &mut Writer,
    ) -> Result<(), Error> {
        let fetch = meta.kind() == Kind::Fetch;
        let mut meta = meta;
        if fetch && !self.metas.is_empty() {
            // Instructions that began after the last row of the group belong to the group, not to
            // this row.
            let left = meta.instructions().saturating_sub(1);
            meta = Meta::new(Kind::Fetch, meta.size(), meta.instructions() - left);
            self.end_group(left, writer)?;
        } else if self.fetch.is_none() || self.addrs.len() == Shape::OPS_MAX {
            self.end_group(0, writer)?;
        }
        match fetch {
            true => self.fetch = Some(addr),
            false => self.addrs.push(addr),
        }
        self.metas.push(meta);
        self.physical |= paddr.is_some();
        self.paddrs.push(paddr.unwrap_or(0));
        Ok(())
    }

    /// Writes the group and begins a new one. `left` is the number of instructions that began after
    /// the last row of the group.
    fn end_group(&mut self, left: u32, writer: &mut Writer) -> Result<(), Error> {
        if self.metas.is_empty() {
            return Ok(());
        }
        let shape = self.shape(left, writer)?;
        writer.thread(self.thread);
        match self.physical {
            true => writer.execute_physical(shape, &self.addrs, &self.paddrs)?,
            false => writer.execute(shape, &self.addrs)?,
        }
        self.fetch = None;
        self.metas.clear();
        self.addrs.clear();
        self.paddrs.clear();
        self.physical = false;
        Ok(())
    }

    fn shape(&mut self, left: u32, writer: &mut Writer) -> Result<ShapeId, Error> {
        let fetch = self.fetch.is_some();
        let pc = self.fetch.unwrap_or_else(|| part(self.addrs[0]));
        let mut hasher = FxHasher::default();
        (pc, fetch, left, &self.metas).hash(&mut hasher);
        let alike = self.known.entry(hasher.finish()).or_default();
        let same = |(rows, _): &&(Rows, ShapeId)| {
            (rows.pc, rows.fetch, rows.trailing) == (pc, fetch, left) && rows.metas == self.metas
        };
        if let Some(&(_, id)) = alike.iter().find(same) {
            return Ok(id);
        }
        let rows = Rows { pc, fetch, metas: self.metas.clone(), trailing: left, links: None };
        if writer.shapes() >= SHAPES_MAX {
            writer.forget_shapes()?;
            self.known.clear();
        }
        let id = writer.rows(rows.clone());
        self.known.entry(hasher.finish()).or_default().push((rows, id));
        Ok(id)
    }
}

/// The part of the address space that contains `addr`, as a small number.
fn part(addr: u64) -> u64 {
    (addr >> PART_SHIFT).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & (PARTS - 1)
}
