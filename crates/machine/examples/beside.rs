//! Runs a simulated machine beside the kernel that boots (`kernel/`). The machine repeats each
//! operation and access of the kernel's random stream; after each, the counts and page tables of
//! both are compared.
//!
//! ```text
//!   kernel/run run=4 seed=7 events=300 | beside MACHINE [KEY=VALUE ...]
//! ```
//!
//! A line of the kernel's output (`kernel/user/stream.rs`) has an operation, the faults of each
//! kind so far, the pages that are mapped with their accessed and dirty bits, the frames in use,
//! page tables among them, and a digest of the bytes of page tables (`kernel/src/bytes.rs`).

#[allow(dead_code, unreachable_pub)]
#[path = "../../../kernel/src/bytes.rs"]
mod bytes;

#[path = "../tests/machine/support/mod.rs"]
mod support;

use std::{
    io::{self, BufRead},
    process::ExitCode,
};

use addr::{Kind, PhysAddr, VirtAddr};
use bytes::Entries;
use machine::Machine;
use pagetable::Space;
use run::{Run, Runnable};
use support::{Row, Rows};
use trace::{Batch, Event, Source};
use vm::How;

const PAGE: u64 = 4096;
/// The number of groups of pages. Each group has page tables of its own. `kernel/user/stream.rs`
/// has an equal constant.
const GROUPS: u64 = 4;
const PAGES: u64 = 16;
const FIRST: u64 = 0x4000_0000;

/// What the kernel, or the machine, has done so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Done {
    /// Faults by the way in which they were resolved, in the order of [`How::ALL`].
    faults: Vec<u64>,
    /// For each group, three bits per page: whether it is mapped (bits 0 to 15), accessed (from bit
    /// 16 on) and dirty (from bit 32 on).
    usage: Vec<u64>,
    /// The number of frames that were allocated since the beginning.
    frames: i64,
    /// A digest of the bytes of page tables.
    bytes: u64,
}

impl Done {
    fn parse(text: &str) -> Option<Done> {
        let mut parts = text.split('|').map(str::trim);
        let mut words = |radix| -> Option<Vec<u64>> {
            parts.next()?.split(' ').map(|word| u64::from_str_radix(word, radix).ok()).collect()
        };
        let (faults, usage) = (words(10)?, words(16)?);
        let frames = parts.next()?.parse().ok()?;
        Some(Done { faults, usage, frames, bytes: u64::from_str_radix(parts.next()?, 16).ok()? })
    }

    fn of(run: &Run, space: Space, frames_before: u64, entries: Entries) -> Done {
        let ram = &run.stack.guest;
        let counts = run.system.counts(ram);
        let faults = How::ALL
            .map(|how| counts.as_ref().map_or(0, |counts| counts.faults[how.name()]))
            .to_vec();
        let bits = |group: u64, page: u64| {
            let at = VirtAddr::new((1 + group) * FIRST + page * PAGE);
            let usage = ram.mapping(space, at)?.usage;
            let bits = 1 | u64::from(usage.referenced) << 16 | u64::from(usage.dirty) << 32;
            Some(bits << page)
        };
        let usage = (0..GROUPS).map(|group| (0..PAGES).filter_map(|page| bits(group, page)).sum());
        let read = |at| ram.word(PhysAddr::new(at)).unwrap_or(0);
        let bytes = entries.digest(space.root().get(), FIRST, &read).unwrap_or(0);
        let frames = frames(run) as i64 - frames_before as i64;
        Done { faults, usage: usage.collect(), frames, bytes }
    }
}

fn frames(run: &Run) -> u64 {
    run.stack.guest.frame_bytes().1 / PAGE
}

/// The event or access, as a row of a trace, that the words of a step describe.
fn row(words: &[&str]) -> Option<Row> {
    let &[what, at, pages, rights] = words else { return None };
    let addr = u64::from_str_radix(at, 16).ok()?;
    let (bytes, prot) = (pages.parse::<u64>().ok()? * PAGE, rights.parse::<u32>().ok()?);
    Some(match what {
        "map" => mmap(addr, bytes, prot),
        "unmap" => Row::Event(Event::Munmap { addr, bytes, result: 0 }),
        "protect" => Row::Event(Event::Mprotect { addr, bytes, prot, result: 0 }),
        "discard" => Row::Event(Event::Madvise { addr, bytes, advice: 4, result: 0 }),
        "load" => Row::Access(Kind::Load, addr, 8),
        "store" => Row::Access(Kind::Store, addr, 8),
        _ => return None,
    })
}

fn mmap(addr: u64, bytes: u64, prot: u32) -> Row {
    let (flags, fd, offset, path, file, result) = (0x22, -1, 0, None, None, addr as i64);
    Row::Event(Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result })
}

/// Compares the steps. Returns their number.
fn compare(name: &str, settings: &[String]) -> Result<u64, String> {
    let text = |error: machine::Error| error.to_string();
    let machine = Machine::load(name, settings).map_err(text)?;
    let entries = match machine.description().page_table.as_ref().map(|table| table.format.as_str())
    {
        Some("x86-64") => bytes::X86_64,
        Some("sv39") => bytes::SV39,
        _ => return Err(
            "the kernel that boots has page tables only of x86-64 and sv39: choose a machine with \
             one of them"
                .to_owned(),
        ),
    };
    let mut walkers = machine.walkers().map_err(text)?;
    let mut run = machine.start(true, machine.description().os.clock).map_err(text)?;
    let space = run.stack.guest.first_space().map_err(|refused| refused.what)?;
    let mut position = 0;
    let mut make = |run: &mut Run, row: Row| -> Result<(), String> {
        let mut batch = Batch::default();
        Rows::new(vec![row]).next(&mut batch).map_err(|error| error.to_string())?;
        batch.first = position;
        position += batch.len() as u64;
        run.batch::<true>(&batch, &mut walkers).map_err(text)
    };
    // The kernel's program has page tables of its own, which are in use before the stream begins.
    make(&mut run, mmap(0x1000_0000, PAGE, 3))?;
    make(&mut run, Row::Access(Kind::Store, 0x1000_0000, 8))?;
    let (frames_before, before) = (frames(&run), Done::of(&run, space, 0, entries).faults);
    let (mut has_begun, mut steps) = (false, 0);
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        has_begun |= line.starts_with("stream ");
        let Some(rest) = line.strip_prefix("step ").filter(|_| has_begun) else { continue };
        let (words, said) = rest.split_once(" | ").unwrap_or_default();
        let row = row(&words.split(' ').collect::<Vec<_>>());
        let (Some(row), Some(kernel)) = (row, Done::parse(said)) else {
            return Err(format!("this line of the kernel's output is not a complete step: {line}"));
        };
        make(&mut run, row)?;
        let mut machine = Done::of(&run, space, frames_before, entries);
        machine.faults.iter_mut().zip(&before).for_each(|(now, before)| *now -= before);
        if machine != kernel {
            return Err(format!(
                "step {steps}, {words}: the kernel has {kernel:x?}, but the machine has \
                 {machine:x?}"
            ));
        }
        steps += 1;
    }
    if steps == 0 {
        Err("the kernel's output has no line that begins with \"step\": was the kernel run with \
         run=4?"
            .to_owned())
    } else {
        Ok(steps)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((name, settings)) => compare(name, settings),
        None => Err("beside MACHINE [KEY=VALUE ...] < OUTPUT OF THE KERNEL".to_owned()),
    };
    match done {
        Ok(steps) => {
            println!("{steps} steps are alike");
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}
