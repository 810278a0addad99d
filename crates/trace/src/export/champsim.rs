//! ChampSim's records of 64 bytes, one per instruction; the importer documents their layout.
//!
//! ```text
//!   fetch 0x1000 12B   load A +1   store B +1   fetch 0x2000   the block has 3 instructions
//!
//!   ip 0x1000            ip 0x1004  loads A      ip 0x1008  stores B, branch taken
//! ```
//!
//! The addresses of instructions are those of [`super::blocks`]. Branches that were not
//! taken are unknown. An instruction with more accesses than a record can hold is written several
//! times. The format has no threads, so each export has one thread of a trace; it has no physical addresses, as
//! ChampSim translates addresses itself.

use std::path::Path;

use addr::Kind;

use super::blocks::{Access, Blocks, Change, Instruction, Next, Records};
use super::output::Output;
use super::{Options, Summary, check_fetches, each, left_out};
use crate::{Error, Source};

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
    check_fetches(source.header(), ChampSim::NAME)?;
    let output = Output::create(path, options.overwrite)?;
    let mut blocks = Blocks::new(ChampSim { output, records: 0, zero: 0 }, options.thread);
    if !each(source, progress, |batch| blocks.batch(batch))? {
        return Ok(None);
    }
    blocks.close(None)?;
    let Blocks { records: export, unfetched, .. } = blocks;
    let warnings = left_out(&[
        (
            unfetched,
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

/// The file, and counts of what was written to it.
struct ChampSim {
    output: Output,
    records: u64,
    /// The number of accesses at address 0.
    zero: u64,
}

impl Records for ChampSim {
    const NAME: &'static str = "champsim";

    fn instruction(&mut self, instruction: &Instruction<'_>) -> Result<(), Error> {
        let mut rest = instruction.accesses;
        loop {
            let (mut record, used) = record(instruction.ip, rest);
            self.zero += rest[..used].iter().filter(|access| access.addr == 0).count() as u64;
            rest = &rest[used..];
            if rest.is_empty() && instruction.next == Next::Elsewhere {
                // is_branch, branch_taken, destination registers, source registers.
                record[8..16].copy_from_slice(&[1, 1, REG_IP, 0, REG_IP, REG_FLAGS, 0, 0]);
            }
            self.records += 1;
            self.output.write(&record)?;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn change(&mut self, _: Change) -> Result<(), Error> {
        Ok(())
    }
}

/// The record of an instruction at `ip`, and the number of `accesses` for which the record has
/// room.
fn record(ip: u64, accesses: &[Access]) -> ([u8; RECORD_BYTES], usize) {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&ip.to_le_bytes());
    let (mut loads, mut stores, mut used) = (0, 0, 0);
    for &Access { kind, addr, .. } in accesses {
        let at = match kind {
            // A zero is no access. The access is counted and left out.
            _ if addr == 0 => {
                used += 1;
                continue;
            }
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
