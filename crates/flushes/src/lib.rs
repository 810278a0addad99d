//! Flushes that a recorded kernel has left out.
//!
//! ```text
//!   trace --> page tables: every entry, at every moment            tables
//!         --> a TLB per processor that keeps everything            tlb
//!         --> each access: is what the TLB has what a walk finds?  processors
//! ```
//!
//! A processor may use a translation until it is flushed, however long ago the page table changed. Real processors and
//! emulators drop translations early, so that a missing flush rarely shows. Here only what must drop
//! a translation drops it: INVLPG, writes of CR0, CR3 and CR4 and INVPCID as the processor's manual says, and a page fault
//! at its address.
//!
//! A use is reported if it goes to another frame, or if the page table does not permit it any more, and the flush is
//! overdue. These changes need no flush, or none before the use:
//!
//! | rule | what it allows |
//! |---|---|
//! | appeared | an entry that was not present is in no TLB |
//! | grown | more rights: who has fewer takes a fault, which drops the translation |
//! | marked | accessed and dirty bits that are set, and bits that are the software's own |
//! | deferred | the task that changed the entry has not returned to its program: it may change more entries, and flush them all at the end (`munmap`, `mprotect`, `fork`, reclaim). A thread of the kernel must flush before the frame is mapped anew |
//! | unused | a translation that nobody uses before it is flushed: spaces that are not loaded, spaces of the lazy TLB mode, addresses of `vunmap` that are flushed in one go before they are used again |
#![forbid(unsafe_code)]

use addr::Kind;
use serde_json::{Value, json};
use trace::{Batch, Event, Meta, Origin, Seen, Source};

use self::processors::Checker;

mod processors;
mod tables;
#[cfg(test)]
mod tests;
mod tlb;

/// Where the upper half of the addresses begins, in which a kernel has itself.
const KERNEL_FROM: u64 = 1 << 63;
/// Accesses after which a recording with page tables has recorded one, or a write of a control register.
const PATIENCE: u64 = 1 << 20;
/// The vector of a page fault.
const PAGE_FAULT: u8 = 14;

/// A bug on purpose: every N-th flush of some kinds does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    kinds: u8,
    every: u64,
}

impl Seed {
    const INVLPG: u8 = 1;
    const CR3: u8 = 2;
    const ALL: u8 = 4;

    /// Reads `invlpg:N`, `cr3:N`, `all:N` or `any:N`.
    ///
    /// # Errors
    ///
    /// The text is another one.
    pub fn parse(text: &str) -> Result<Seed, String> {
        let wrong = || {
            format!(
                "`{text}` is not a flush to leave out: write invlpg:N, cr3:N, all:N (writes of CR4 that flush \
                 everything) or any:N, and every N-th one is left out"
            )
        };
        let (kind, every) = text.split_once(':').ok_or_else(wrong)?;
        let kinds = match kind {
            "invlpg" => Seed::INVLPG,
            "cr3" => Seed::CR3,
            "all" => Seed::ALL,
            "any" => Seed::INVLPG | Seed::CR3 | Seed::ALL,
            _ => return Err(wrong()),
        };
        match every.parse() {
            Ok(every @ 1..) => Ok(Seed { kinds, every }),
            _ => Err(wrong()),
        }
    }
}

/// A place in code: the address of a block, and the number of instructions before the one that is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Code {
    /// The address of the block.
    pub block: u64,
    /// The number of instructions of the block before the place, as far as it is known.
    pub instruction: u32,
}

/// What a use of an old translation does that the page table does not permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// The page table maps another frame: the physical address that the access should have.
    Frame(u64),
    /// The page table maps no page.
    Absent,
    /// The page table does not permit an access of this kind.
    Right,
    /// The page table marks the page as clean, and the store does not set the dirty bit.
    Clean,
    /// The trace does not show what the page table has.
    Unknown,
}

/// The event after which a translation was old.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A store to a page-table entry.
    Entry,
    /// A write of CR3.
    Root,
    /// The space has ended, and its page table was used for another space.
    Space,
}

/// A change after which a flush is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The processor that made the change.
    pub processor: u32,
    task: u64,
    /// The code.
    pub code: Code,
    /// The number of accesses before the change.
    pub at: u64,
    /// The number of the change; the first change has the number 1.
    number: u64,
    /// How often the task that made the change had returned to its program before.
    returns: u64,
}

/// The use of an old translation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The number of accesses before this use.
    pub at: u64,
    /// The processor.
    pub processor: u32,
    /// Name and number of the task.
    pub task: String,
    /// The code.
    pub code: Code,
    /// The virtual address.
    pub addr: u64,
    /// Fetch, load or store.
    pub kind: Kind,
    /// Whether the access was made by a program and not by the kernel.
    pub is_program: bool,
    /// The physical address that the old translation gives, if it is known.
    pub used: Option<u64>,
    /// What is wrong.
    pub wrong: Wrong,
    /// What made the translation old.
    pub cause: Cause,
    /// The change that needed a flush, if it is known, with the name and the number of the task that made it.
    pub change: Option<(Change, String)>,
    /// Why the flush is overdue.
    pub why: &'static str,
}

/// Changes and uses that are allowed, by rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allowed {
    appeared: u64,
    grown: u64,
    marked: u64,
    deferred: u64,
}

/// Flushes by their kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flushed {
    invlpg: u64,
    cr3: u64,
    all: u64,
    left_out: u64,
}

/// A part of the kernel's addresses that comes from a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// The path of the file.
    pub path: String,
    /// The identity of the file's build, if it is known.
    pub identity: Option<String>,
    /// The first address, the length in bytes, and the offset in the file.
    pub start: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The offset in the file.
    pub offset: u64,
}

/// What a check has found.
pub struct Found {
    checker: Checker,
    accesses: u64,
    tables: u64,
    has_controls: bool,
    /// Where the kernel's code comes from.
    pub images: Vec<Image>,
}

/// Why a check has not ended.
#[derive(Debug)]
pub enum Failure {
    /// The trace cannot be checked: why, and what to do.
    Unfit(String),
    /// The trace cannot be read.
    Trace(trace::Error),
    /// The caller has requested that the check ends.
    Stopped,
}

/// Checks a whole trace. `go_on` is called with the number of accesses so far, and returns whether
/// the check continues.
///
/// # Errors
///
/// The trace is not the recording of a whole system with stores to its page tables, or cannot be read.
pub fn check(
    source: &mut dyn Source,
    seed: Option<Seed>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Found, Failure> {
    if !source.header().fetches && source.is_system() {
        return Err(Failure::Unfit(
            "it has no instruction fetches, which tell programs from the kernel: record it again without \
             --no-fetches"
                .to_owned(),
        ));
    }
    let mut found = Found {
        checker: Checker::new(seed),
        accesses: 0,
        tables: 0,
        has_controls: false,
        images: Vec::new(),
    };
    let (mut batch, mut is_system, mut build) = (Batch::default(), false, None);
    loop {
        let more = source.next(&mut batch).map_err(Failure::Trace)?;
        found.take(&batch, &mut is_system, &mut build);
        found.accesses += batch.len() as u64;
        if found.tables == 0 && (!more || !found.has_controls && found.accesses > PATIENCE) {
            return Err(Failure::Unfit(if is_system {
                "it has no stores to page tables, as recordings of older versions: record it again"
                    .to_owned()
            } else {
                "it is not the recording of a whole system: `pagewalk record --system` makes one"
                    .to_owned()
            }));
        }
        if !go_on(found.accesses) {
            return Err(Failure::Stopped);
        }
        if !more {
            return Ok(found);
        }
    }
}

impl Found {
    /// The uses of old translations, at most 200; [`Found::uses`] counts all.
    pub fn reports(&self) -> &[Report] {
        &self.checker.reports
    }

    /// The number of all uses of old translations whose flush was overdue.
    pub fn uses(&self) -> u64 {
        self.checker.uses
    }

    /// The file with the code at this address of the kernel, and the offset in it.
    pub fn place(&self, addr: u64) -> Option<(&Image, u64)> {
        let inside = |image: &&Image| addr.wrapping_sub(image.start) < image.bytes;
        let image = self.images.iter().find(inside)?;
        Some((image, addr - image.start + image.offset))
    }

    /// Everything that was found. `name` gives the name of the code at an address.
    pub fn document(&self, name: &mut dyn FnMut(Code, bool) -> Option<String>) -> Value {
        let Checker { allowed, flushed, unknown, compared, .. } = &self.checker;
        let mut code = |code: Code, is_program: bool| {
            json!({
                "block": code.block,
                "instruction": code.instruction,
                "function": name(code, is_program),
            })
        };
        let reports: Vec<Value> = self
            .reports()
            .iter()
            .map(|report| {
                let change = report.change.as_ref().map(|(change, task)| {
                    json!({
                        "processor": change.processor,
                        "task": task,
                        "at": change.at,
                        "code": code(change.code, change.code.block < KERNEL_FROM),
                    })
                });
                let (wrong, should) = match report.wrong {
                    Wrong::Frame(should) => ("frame", Some(should)),
                    Wrong::Absent => ("absent", None),
                    Wrong::Right => ("right", None),
                    Wrong::Clean => ("clean", None),
                    Wrong::Unknown => ("unknown", None),
                };
                let cause = match report.cause {
                    Cause::Entry => "entry",
                    Cause::Root => "root",
                    Cause::Space => "space",
                };
                json!({
                    "at": report.at,
                    "processor": report.processor,
                    "task": report.task,
                    "program": report.is_program,
                    "code": code(report.code, report.is_program),
                    "access": report.kind.name(),
                    "address": report.addr,
                    "physical": report.used,
                    "wrong": wrong,
                    "should_be": should,
                    "cause": cause,
                    "change": change,
                    "why": report.why,
                })
            })
            .collect();
        json!({
            "accesses": self.accesses,
            "processors": self.checker.processors(),
            "tables": self.tables,
            "changes": self.checker.changes(),
            "allowed": {
                "appeared": allowed.appeared,
                "grown": allowed.grown,
                "marked": allowed.marked,
                "deferred": allowed.deferred,
            },
            "flushes": {
                "invlpg": flushed.invlpg,
                "cr3": flushed.cr3,
                "all": flushed.all,
                "left_out": flushed.left_out,
            },
            "unknown": unknown,
            "translations": { "equal": compared.0, "different": compared.1 },
            "uses": self.uses(),
            "reports": reports,
        })
    }

    fn take(&mut self, batch: &Batch, is_system: &mut bool, build: &mut Option<String>) {
        let mut events = batch.events.iter().peekable();
        let mut segments = batch.segments.iter().peekable();
        let (mut row, mut thread) = (0, 0);
        loop {
            while let Some(placed) = events.next_if(|placed| placed.at as usize <= row) {
                let at = self.accesses + row as u64;
                self.event(placed.thread, &placed.event, at, is_system, build);
            }
            while let Some(segment) = segments.next_if(|segment| segment.start as usize <= row) {
                thread = segment.thread;
            }
            if row == batch.len() {
                return;
            }
            let next = events.peek().map_or(batch.len(), |placed| placed.at as usize);
            let end = segments.peek().map_or(next, |segment| next.min(segment.start as usize));
            let end = end.min(batch.len());
            for (at, (&addr, &meta)) in
                (row..).zip(batch.addr[row..end].iter().zip(&batch.meta[row..end]))
            {
                self.row(thread, addr, meta, self.accesses + at as u64);
            }
            row = end;
        }
    }

    #[inline]
    fn row(&mut self, thread: u32, addr: u64, meta: Meta, at: u64) {
        let kind = meta.kind();
        match kind {
            Kind::Fetch => self.checker.block(thread, addr, KERNEL_FROM),
            Kind::Load | Kind::Store => self.checker.executed(thread, meta.instructions()),
        }
        self.checker.access(thread, addr, meta.size(), kind, at);
    }

    fn event(
        &mut self,
        thread: u32,
        event: &Event,
        at: u64,
        is_system: &mut bool,
        build: &mut Option<String>,
    ) {
        let checker = &mut self.checker;
        match *event {
            Event::Table { paddr, level } => {
                self.tables += u64::from(level != 0);
                checker.table(paddr, level);
            }
            Event::Entry { paddr, value, stored: false } => checker.found(paddr, value),
            Event::Entry { paddr, value, stored: true } => checker.store(thread, paddr, value, at),
            Event::Control { number, value } => {
                self.has_controls = true;
                checker.control(thread, number, value, at);
            }
            Event::Flush { addr } => checker.flush(thread, addr),
            Event::Task { pid, ref name, .. } => {
                *is_system = true;
                checker.task(thread, pid, name);
            }
            Event::Interrupt { vector: PAGE_FAULT, device: false, pc, error, addr: Some(addr) } => {
                checker.fault(thread, pc, addr, error, at);
            }
            Event::Translation(ref page) if page.seen == Seen::Walk => {
                *is_system = true;
                // A page table without entries means that paging is off.
                if let Some(paddr) = page.paddr.filter(|_| !page.entries.is_empty()) {
                    checker.compare(thread, (page.addr, paddr, page.page_bytes), &page.entries);
                }
            }
            Event::Image { ref identity, .. } => build.clone_from(identity),
            Event::Mapping {
                start,
                bytes,
                origin: Origin::File(ref path),
                offset: Some(offset),
                ..
            } if start >= KERNEL_FROM => {
                let identity = build.take();
                self.images.push(Image { path: path.clone(), identity, start, bytes, offset });
            }
            Event::Snapshot { .. }
            | Event::Interrupt { .. }
            | Event::Translation(_)
            | Event::Call(_)
            | trace::events!(memory)
            | trace::events!(program)
            | trace::events!(lives)
            | trace::events!(stream) => {}
        }
    }
}
