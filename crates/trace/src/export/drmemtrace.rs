//! DynamoRIO's final traces: one file per thread or, of a whole system, per processor. The importer documents
//! the records.
//!
//! ```text
//!   HEADER VERSION FILETYPE | THREAD PID | ... PAGE_SIZE | TIMESTAMP CPU_ID | records | THREAD_EXIT FOOTER
//!
//!   record    [PHYSICAL_ADDRESS VIRTUAL_ADDRESS]  INSTR | READ | WRITE     the markers if the page is new or has moved
//! ```
//!
//! The addresses of instructions are those of [`super::blocks`]. The last instruction of a block is written as a
//! conditional jump, which is taken if the next block does not follow directly. A timestamp is a number
//! of accesses. So files that are exported from one trace have one order.
//!
//! In a trace of a whole system, the process id is the number of the address space, and the thread id that of Linux.
//! Physical addresses are written if batches have them. Readers may keep pages by file or by process, so that a
//! page is written where either would be wrong.

use std::path::Path;

use addr::Kind;
use rustc_hash::FxHashMap;

use super::blocks::{Blocks, Change, Instruction, Next, Records};
use super::output::Output;
use super::{Options, Summary, check_fetches, each, left_out};
use crate::import::drmemtrace::record::{Record, VERSIONS, filetype, kind, marker};
use crate::{Error, Source};

/// The endings of names of files that DynamoRIO unpacks in a way in which they are not packed here.
const PACKED: [&str; 3] = ["zip", "lz4", "sz"];
/// The length of a cache line, which the format must have.
const CACHE_LINE_BYTES: u64 = 64;
/// The first bit of the address within a page. The format knows only base pages.
const PAGE_SHIFT: u32 = 12;

/// Writes the instructions of `source` to `path`, or to standard output for `-`.
///
/// `progress` is called from time to time with the number of accesses so far. If it returns false,
/// the export stops, and there is no file and no summary.
pub fn drmemtrace(
    source: &mut dyn Source,
    path: &Path,
    options: &Options,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Summary>, Error> {
    let header = source.header();
    check_fetches(header, DrMemTrace::NAME)?;
    if let Some(ending) = path.extension().and_then(|ending| ending.to_str())
        && PACKED.contains(&ending)
    {
        return Err(Error::Parameters(format!(
            "{}: no .{ending} file can be written: end the name in .trace.gz or .trace, which DynamoRIO reads too",
            path.display()
        )));
    }
    let is_system = source.is_system();
    let of_system = if is_system { filetype::WHOLE_SYSTEM | filetype::CORE_SHARDED } else { 0 };
    let records = DrMemTrace {
        output: Output::create(path, options.overwrite)?,
        filetype: filetype::of(header.arch) | of_system,
        is_system,
        pids: source.processes().iter().map(|process| u64::from(process.pid)).collect(),
        pid: 0,
        tid: None,
        first: 1,
        is_begun: false,
        is_moved: true,
        by_file: FxHashMap::default(),
        by_process: FxHashMap::default(),
        is_physical: false,
        records: 0,
    };
    let mut blocks = Blocks::new(records, options.thread);
    let done = each(source, progress, |batch| {
        blocks.records.is_physical |= !batch.paddr.is_empty();
        blocks.batch(batch)
    })?;
    if !done {
        return Ok(None);
    }
    blocks.close(None)?;
    let Blocks { mut records, unfetched, .. } = blocks;
    records.end()?;
    let (one, many) = ("access before the first fetch has", "accesses before the first fetch have");
    let warnings = left_out(&[(unfetched, one, many, "no instruction")]);
    Ok(Some(Summary { records: records.records, bytes: records.output.finish()?, warnings }))
}

/// The file, and what has been written to it.
struct DrMemTrace {
    output: Output,
    filetype: u64,
    is_system: bool,
    /// The process ids that the trace has, by the numbers of processes.
    pids: Vec<u64>,
    /// The process and the thread that continue. Until the trace has said which thread it is, it is assumed to be the
    /// process's first one.
    pid: u64,
    tid: Option<u64>,
    first: u64,
    /// Whether the header has been written.
    is_begun: bool,
    /// Whether the process or the thread has changed since the last record.
    is_moved: bool,
    /// The frames that were last written for each page, by page number, and by process and page
    /// number; `None` if the frame was written as unknown.
    by_file: FxHashMap<u64, Option<u64>>,
    by_process: FxHashMap<(u64, u64), Option<u64>>,
    is_physical: bool,
    records: u64,
}

impl DrMemTrace {
    fn put(&mut self, kind: u16, size: u16, addr: u64) -> Result<(), Error> {
        self.records += 1;
        self.output.write(&Record { kind, size, addr }.to_bytes())
    }

    fn mark(&mut self, which: u16, value: u64) -> Result<(), Error> {
        self.put(kind::MARKER, which, value)
    }

    fn tid(&self) -> u64 {
        self.tid.unwrap_or(self.first)
    }

    /// Writes the thread and its process, in this order: a reader takes the process that the thread had before
    /// until it reads another one.
    fn moved(&mut self) -> Result<(), Error> {
        self.is_moved = false;
        self.put(kind::THREAD, 4, self.tid())?;
        self.put(kind::PID, 4, self.pid)
    }

    /// Writes the header, if it is missing, and the thread, if it has changed.
    fn settle(&mut self) -> Result<(), Error> {
        match (self.is_begun, self.is_moved) {
            (false, _) => self.begin(),
            (true, true) => self.moved(),
            (true, false) => Ok(()),
        }
    }

    /// Writes what comes before the first record.
    fn begin(&mut self) -> Result<(), Error> {
        self.is_begun = true;
        self.put(kind::HEADER, 0, *VERSIONS.end())?;
        self.mark(marker::VERSION, *VERSIONS.end())?;
        self.mark(marker::FILETYPE, self.filetype)?;
        self.moved()?;
        self.mark(marker::CACHE_LINE_BYTES, CACHE_LINE_BYTES)?;
        self.mark(marker::PAGE_SIZE, 1 << PAGE_SHIFT)
    }

    /// Writes the end, if anything was written.
    fn end(&mut self) -> Result<(), Error> {
        if !self.is_begun {
            return Ok(());
        }
        self.put(kind::THREAD_EXIT, 4, self.tid())?;
        self.put(kind::FOOTER, 0, 0)
    }

    /// Writes the frame of the page of `addr`, at the physical address `paddr` (0: unknown), unless every reader
    /// knows it.
    fn locate(&mut self, addr: u64, paddr: u64) -> Result<(), Error> {
        if !self.is_physical {
            return Ok(());
        }
        let page = addr >> PAGE_SHIFT;
        let frame = (paddr != 0).then_some(paddr >> PAGE_SHIFT);
        let in_file = self.by_file.insert(page, frame);
        let in_process = self.by_process.insert((self.pid, page), frame);
        if in_file == Some(frame) && in_process == Some(frame) {
            return Ok(());
        }
        let start = page << PAGE_SHIFT;
        match frame {
            Some(frame) => {
                self.mark(marker::PHYSICAL_ADDRESS, frame << PAGE_SHIFT)?;
                self.mark(marker::VIRTUAL_ADDRESS, start)
            }
            None => self.mark(marker::PHYSICAL_ADDRESS_NOT_AVAILABLE, start),
        }
    }
}

impl Records for DrMemTrace {
    const NAME: &'static str = "drmemtrace";

    fn instruction(&mut self, instruction: &Instruction<'_>) -> Result<(), Error> {
        self.settle()?;
        let &Instruction { ip, bytes, paddr, accesses, next } = instruction;
        self.locate(ip, paddr)?;
        let kind = match next {
            // A further iteration of a string instruction, as far as the trace shows.
            _ if bytes == 0 => kind::INSTR_NO_FETCH,
            Next::Same => kind::INSTR,
            Next::Below => kind::UNTAKEN_JUMP,
            Next::Elsewhere => kind::TAKEN_JUMP,
        };
        self.put(kind, bytes.max(1) as u16, ip)?;
        for access in accesses {
            self.locate(access.addr, access.paddr)?;
            if access.beyond != 0 {
                self.locate(access.addr.wrapping_add(1 << PAGE_SHIFT), access.beyond)?;
            }
            let kind = match access.kind {
                Kind::Store => kind::WRITE,
                Kind::Load | Kind::Fetch => kind::READ,
            };
            self.put(kind, access.bytes.max(1) as u16, access.addr)?;
        }
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), Error> {
        let before = (self.tid(), self.pid);
        match change {
            Change::Turn { accesses, thread } => {
                self.settle()?;
                let processor =
                    if self.is_system { u64::from(thread) } else { marker::CPU_UNKNOWN };
                self.mark(marker::TIMESTAMP, accesses + 1)?;
                self.mark(marker::CPU_ID, processor)?;
            }
            Change::Process(number) => {
                self.first = self.pids.get(number as usize).copied().unwrap_or(0).max(1);
                self.pid = if self.is_system { u64::from(number) } else { self.first };
            }
            Change::Thread(tid) => self.tid = Some(tid),
            Change::Interrupt(pc) if self.is_system && self.is_begun => {
                self.settle()?;
                self.mark(marker::HARDWARE_EVENT, pc)?;
            }
            Change::Interrupt(_) => {}
        }
        self.is_moved |= before != (self.tid(), self.pid);
        Ok(())
    }
}
