//! ChampSim's records of 64 bytes, one per instruction; the importer documents their layout.
//!
//! ```text
//!   fetch 0x1000 12B   load A +1   store B +1   fetch 0x2000   the block has 3 instructions
//!
//!   ip 0x1000            ip 0x1004  loads A      ip 0x1008  stores B, branch taken
//! ```
//!
//! For each basic block, a trace has the number of its instructions but not their addresses. The
//! exporter spreads the addresses of the instructions evenly over the block's bytes. The last
//! instruction is a taken branch if the next block does not follow directly; branches that were not
//! taken are unknown. An instruction with more accesses than a record can hold is written several
//! times. The format has no threads, so each export has one thread of a trace.

use std::path::Path;

use addr::Kind;

use super::output::Output;
use super::{Options, Summary, left_out};
use crate::{Batch, Error, Event, Meta, Source};

const RECORD_BYTES: usize = 64;
const LOADS: usize = 4;
const STORES: usize = 2;

/// ChampSim recognises a conditional branch by its registers: the branch reads and writes the
/// instruction pointer and reads the flags. Source: ChampSim `inc/instruction.h`,
/// `champsim::REG_*`.
const REG_FLAGS: u8 = 25;
const REG_IP: u8 = 26;

/// Writes the instructions of `source` to `path`, or to standard output for `-`.
///
/// `progress` is called from time to time with the number of accesses so far. If it returns false,
/// the export stops, and there is no file and no summary.
pub fn champsim(
    source: &mut dyn Source,
    path: &Path,
    options: &Options,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Summary>, Error> {
    if !source.header().fetches {
        return Err(Error::Parameters(
            "the trace has no instruction fetches, but each ChampSim record is an instruction \
             with its address; record the program without --no-fetch"
                .to_owned(),
        ));
    }
    let mut export = Export::new(Output::create(path, options.overwrite)?, options.thread);
    let mut batch = Batch::default();
    let mut seen = 0;
    loop {
        let more = source.next(&mut batch)?;
        export.batch(&batch)?;
        seen += batch.len() as u64;
        if !more {
            break;
        }
        if !progress(seen) {
            return Ok(None);
        }
    }
    export.close(None)?;
    let warnings = left_out(&[
        (
            export.unfetched,
            "access before the first fetch has",
            "accesses before the first fetch have",
            "no instruction",
        ),
        (
            export.zero,
            "access is",
            "accesses are",
            "at address 0, which in ChampSim's format means that there is no access",
        ),
    ]);
    Ok(Some(Summary { records: export.records, bytes: export.output.finish()?, warnings }))
}

/// The block that is being collected, and counts of the written records.
struct Export {
    output: Output,
    /// The thread that is exported; if none was requested, the thread of the first access.
    thread: Option<u32>,
    named: bool,
    open: bool,
    block: Block,
    records: u64,
    unfetched: u64,
    zero: u64,
}

/// A block and its accesses.
#[derive(Default)]
struct Block {
    pc: u64,
    bytes: u64,
    /// The number of the block's instructions that are known so far.
    begun: u64,
    /// For each access: the index of its instruction, its kind and its address.
    accesses: Vec<(u64, Kind, u64)>,
}

impl Export {
    fn new(output: Output, thread: Option<u32>) -> Export {
        Export {
            output,
            thread,
            named: thread.is_some(),
            open: false,
            block: Block::default(),
            records: 0,
            unfetched: 0,
            zero: 0,
        }
    }

    fn batch(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut events = batch.events.iter().peekable();
        let mut segments = batch.segments.iter().peekable();
        let mut wanted = true;
        for at in 0..=batch.len() {
            while let Some(placed) = events.next_if(|placed| placed.at as usize <= at) {
                if let Event::Gap { accesses: 0, instructions } = placed.event
                    && self.thread == Some(placed.thread)
                {
                    self.block.begun = self.block.begun.saturating_add(instructions);
                }
            }
            while let Some(segment) = segments.next_if(|segment| segment.start as usize <= at) {
                wanted = self.wants(segment.thread)?;
            }
            if at < batch.len() && wanted {
                self.row(batch.addr[at], batch.meta[at])?;
            }
        }
        Ok(())
    }

    /// Whether `thread` is exported. Returns an error if the trace has a second thread and the user
    /// has requested no thread.
    fn wants(&mut self, thread: u32) -> Result<bool, Error> {
        let only = *self.thread.get_or_insert(thread);
        if only != thread && !self.named {
            return Err(Error::Parameters(
                "the trace has several threads, and ChampSim's format has only one; export one of \
                 them with --thread N"
                    .to_owned(),
            ));
        }
        Ok(only == thread)
    }

    fn row(&mut self, addr: u64, meta: Meta) -> Result<(), Error> {
        let instructions = u64::from(meta.instructions());
        match meta.kind() {
            Kind::Fetch => {
                // Instructions that began since the last access belong to the block that ends.
                self.block.begun = self.block.begun.saturating_add(instructions.saturating_sub(1));
                self.close(Some(addr))?;
                self.open = true;
                (self.block.pc, self.block.bytes, self.block.begun) =
                    (addr, u64::from(meta.size()), 1);
            }
            _ if !self.open => self.unfetched += 1,
            _ if addr == 0 => {
                self.zero += 1;
                self.block.begun += instructions;
            }
            kind => {
                self.block.begun += instructions;
                let index = self.block.begun.saturating_sub(1);
                self.block.accesses.push((index, kind, addr));
            }
        }
        Ok(())
    }

    /// Writes the block; `next` is the address of the block after it.
    fn close(&mut self, next: Option<u64>) -> Result<(), Error> {
        if !std::mem::replace(&mut self.open, false) {
            return Ok(());
        }
        let accesses = std::mem::take(&mut self.block.accesses);
        let block = &self.block;
        let (pc, bytes) = (block.pc, block.bytes.max(1));
        // An instruction has at least one byte, so a block cannot have more instructions than
        // bytes. Further instructions were skipped by the program, unless accesses show that they
        // ran.
        let needed = accesses.last().map_or(1, |&(index, ..)| index + 1);
        let count = block.begun.clamp(needed, bytes.max(needed));
        let branches = next.is_some_and(|next| next != pc.wrapping_add(bytes));
        let mut rest = accesses.as_slice();
        for index in 0..count {
            let of_it = rest.iter().take_while(|access| access.0 == index).count();
            let (mut own, others) = rest.split_at(of_it);
            rest = others;
            let ip =
                pc.wrapping_add((u128::from(bytes) * u128::from(index) / u128::from(count)) as u64);
            loop {
                let (record, used) = record(ip, own);
                own = &own[used..];
                let last = own.is_empty() && index + 1 == count;
                self.write(record, last && branches)?;
                if own.is_empty() {
                    break;
                }
            }
        }
        self.block.accesses = accesses;
        self.block.accesses.clear();
        Ok(())
    }

    fn write(&mut self, mut record: [u8; RECORD_BYTES], branch: bool) -> Result<(), Error> {
        if branch {
            // is_branch, branch_taken, destination registers, source registers.
            record[8..16].copy_from_slice(&[1, 1, REG_IP, 0, REG_IP, REG_FLAGS, 0, 0]);
        }
        self.records += 1;
        self.output.write(&record)
    }
}

/// The record of an instruction at `ip`, and the number of `accesses` for which the record has
/// room.
fn record(ip: u64, accesses: &[(u64, Kind, u64)]) -> ([u8; RECORD_BYTES], usize) {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&ip.to_le_bytes());
    let (mut loads, mut stores, mut used) = (0, 0, 0);
    for &(_, kind, addr) in accesses {
        let at = match kind {
            Kind::Store if stores < STORES => {
                stores += 1;
                16 + 8 * (stores - 1)
            }
            Kind::Load if loads < LOADS => {
                loads += 1;
                32 + 8 * (loads - 1)
            }
            _ => break,
        };
        record[at..at + 8].copy_from_slice(&addr.to_le_bytes());
        used += 1;
    }
    (record, used)
}
