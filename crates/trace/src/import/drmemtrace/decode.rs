//! Decodes the records of one file to rows and events.
//!
//! ```text
//!   HEADER VERSION FILETYPE THREAD PID ... | TIMESTAMP CPU_ID  INSTR READ INSTR WRITE ... | TIMESTAMP ...
//!   \__ read when the file is opened ____/ |  \______________ a segment ________________/ |
//!                                          ^                                              ^
//!                                          decode() stops: another file may be next
//! ```
//!
//! A file contains one thread, or one processor on which threads alternate. In both cases its
//! segments are in the order of time. The caller decides from which file the next segment comes.

use addr::Kind;

use super::super::rows::{BATCH_ROWS, Fetches, Rows};
use super::super::stream::Fault;
use super::super::tags::Tags;
use super::physical::Pages;
use super::record::{RECORD_BYTES, Record, VERSIONS, filetype, kind, marker};
use super::shared::Shared;
use super::syscalls::Calls;
use crate::{Arch, Batch, Event};

/// Why decoding stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The remaining bytes are not a whole record.
    Bytes,
    /// The batch is full.
    Batch,
    /// A segment begins, at this time.
    Segment(u64),
}

/// Decodes one file.
#[derive(Debug)]
pub(crate) struct Decoder {
    rows: Rows,
    tid: u64,
    pid: u64,
    /// Whether the thread or process has changed since the last row.
    moved: bool,
    filetype: u64,
    /// The instruction set that the file names; if it names none, the instruction set that the user
    /// gave.
    arch: Arch,
    tags: Tags,
    page_bytes: u64,
    timestamp: Option<u64>,
    /// The address and length of the last instruction.
    pc: u64,
    pc_bytes: u64,
    calls: Calls,
    pages: Option<Pages>,
    physical: Option<u64>,
    footer: bool,
}

impl Decoder {
    /// A decoder at the start of a file. `arch` is the instruction set, unless the file names
    /// another one. `pages` has the physical addresses of pages, if they are known.
    pub(crate) fn new(fetches: Fetches, arch: Arch, pages: Option<Pages>) -> Decoder {
        let mut decoder = Decoder {
            rows: Rows::new(fetches),
            tid: 0,
            pid: 0,
            moved: true,
            filetype: 0,
            arch,
            tags: Tags::of(arch),
            page_bytes: 4096,
            timestamp: None,
            pc: 0,
            pc_bytes: 0,
            calls: Calls::default(),
            pages,
            physical: None,
            footer: false,
        };
        decoder.set_rules();
        decoder
    }

    /// The bits of the file type marker.
    pub(crate) fn filetype(&self) -> u64 {
        self.filetype
    }

    /// The instruction set.
    pub(crate) fn arch(&self) -> Arch {
        self.arch
    }

    /// The base page, in bytes.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// The thread id of the file's thread.
    pub(crate) fn tid(&self) -> u64 {
        self.tid
    }

    /// The process id of the next rows.
    pub(crate) fn pid(&self) -> u64 {
        self.pid
    }

    /// Whether the last record was the end of the file.
    pub(crate) fn complete(&self) -> bool {
        self.footer
    }

    /// Calls that were omitted because their arguments are not in the trace.
    pub(crate) fn calls_incomplete(&self) -> u64 {
        self.calls.incomplete
    }

    /// Accesses that were split into several rows.
    pub(crate) fn split_accesses(&self) -> u64 {
        self.rows.split_accesses()
    }

    /// Ends the open row, because the batch is returned or another file writes to the batch.
    pub(crate) fn cut(&mut self) {
        self.rows.cut();
    }

    /// Completes the last rows at the end of the file.
    pub(crate) fn finish(&mut self, batch: &mut Batch) {
        self.rows.finish(batch);
    }

    /// Decodes records from the front of `bytes`. Returns the number of bytes decoded, and why
    /// decoding stopped. `last` says that the file ends after `bytes`.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        shared: &mut Shared,
        batch: &mut Batch,
    ) -> Result<(usize, Stop), Fault> {
        let start = batch.len();
        let result = self.records(bytes, last, shared, batch);
        self.locate(shared, batch);
        self.tags.strip_all(&mut batch.addr[start..]);
        result
    }

    fn records(
        &mut self,
        bytes: &[u8],
        last: bool,
        shared: &mut Shared,
        batch: &mut Batch,
    ) -> Result<(usize, Stop), Fault> {
        let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
        for (index, record) in records.iter().enumerate() {
            let at = index * RECORD_BYTES;
            let record = Record::from_bytes(record);
            if kind::is_row(record.kind) {
                // A file without timestamps is one segment.
                if self.timestamp.is_none() {
                    self.timestamp = Some(0);
                    return Ok((at, Stop::Segment(0)));
                }
                if batch.len() >= BATCH_ROWS {
                    return Ok((at, Stop::Batch));
                }
                if self.moved {
                    self.settle(shared, batch).map_err(|what| Fault::new(at, what))?;
                }
            }
            match record.kind {
                kind::READ if record.size == 0 && record.addr == 0 => {
                    return Err(Fault::new(
                        at,
                        "a record of zeros: the file is truncated or damaged",
                    ));
                }
                kind::READ => self.access(batch, Kind::Load, record),
                kind::WRITE => self.access(batch, Kind::Store, record),
                kind::INSTR => self.instruction(batch, record, false),
                kind::BRANCH_FIRST..=kind::BRANCH_LAST => self.instruction(batch, record, true),
                kind::MARKER => {
                    // The record after a call's result says whether the call failed.
                    let next = Record::at(bytes, at + RECORD_BYTES);
                    if record.size == marker::FUNC_RETVAL && next.is_none() && !last {
                        return Ok((at, Stop::Bytes));
                    }
                    if let Some(time) = self
                        .marker(record, next, shared, batch)
                        .map_err(|what| Fault::new(at, what))?
                    {
                        return Ok((at + RECORD_BYTES, Stop::Segment(time)));
                    }
                }
                _ => self.other(record, shared, batch).map_err(|what| Fault::new(at, what))?,
            }
        }
        Ok((records.len() * RECORD_BYTES, Stop::Bytes))
    }

    /// Determines the thread and process of the next rows.
    #[cold]
    fn settle(&mut self, shared: &mut Shared, batch: &mut Batch) -> Result<(), String> {
        let thread = shared.thread(self.pid, self.tid, batch)?;
        self.rows.thread(thread);
        (self.moved, self.footer) = (false, false);
        Ok(())
    }

    /// Called after another file has written rows, which may be of another process.
    pub(crate) fn resume(&mut self) {
        self.moved = true;
    }

    #[inline]
    fn access(&mut self, batch: &mut Batch, kind: Kind, record: Record) {
        self.rows.access(batch, kind, record.addr, u32::from(record.size).max(1));
    }

    #[inline]
    fn instruction(&mut self, batch: &mut Batch, record: Record, ends: bool) {
        (self.pc, self.pc_bytes) = (record.addr, u64::from(record.size));
        // If the length is 0, a filter dropped the fetch of this instruction; only its accesses
        // follow.
        if record.size > 0 {
            self.rows.instruction(batch, record.addr, u32::from(record.size), ends);
        }
    }

    /// Decodes records of rare types.
    fn other(
        &mut self,
        record: Record,
        shared: &mut Shared,
        batch: &mut Batch,
    ) -> Result<(), String> {
        match record.kind {
            kind::TAKEN_JUMP | kind::UNTAKEN_JUMP | kind::INSTR_SYSENTER => {
                self.instruction(batch, record, true);
            }
            kind::INSTR_NO_FETCH => {
                (self.pc, self.pc_bytes) = (record.addr, u64::from(record.size))
            }
            kind::INSTR_MAYBE_FETCH => {
                if record.addr != self.pc {
                    self.instruction(batch, record, false);
                }
            }
            kind::INSTR_BUNDLE => {
                let lengths = record.addr.to_le_bytes();
                let count = usize::from(record.size);
                let lengths = lengths.get(..count).ok_or_else(|| {
                    format!("a bundle of {count} instructions, but at most 8 are possible")
                })?;
                for &length in lengths {
                    let pc = self.pc.wrapping_add(self.pc_bytes);
                    let record = Record { kind: kind::INSTR, size: u16::from(length), addr: pc };
                    self.instruction(batch, record, false);
                }
            }
            kind::ENCODING | kind::FLUSH_FIRST..=kind::FLUSH_LAST => {}
            kind::PREFETCH_FIRST..=kind::PREFETCH_LAST
            | kind::HARDWARE_PREFETCH
            | kind::TYPED_PREFETCH_FIRST..=kind::TYPED_PREFETCH_LAST => shared.prefetches += 1,
            kind::HEADER => version(record.addr)?,
            kind::THREAD => {
                self.moved |= self.tid != record.addr;
                self.tid = record.addr;
            }
            kind::PID => {
                self.moved |= self.pid != record.addr;
                self.pid = record.addr;
            }
            kind::THREAD_EXIT => {
                let thread = shared.thread(self.pid, record.addr, batch)?;
                batch.push_event(thread, Event::ThreadEnd);
                self.rows.cut();
            }
            kind::FOOTER => (self.footer, self.moved) = (true, true),
            unknown => {
                return Err(format!(
                    "a record of type {unknown}, which no version up to {} has; \
                 the file is damaged or newer than this program",
                    VERSIONS.end()
                ));
            }
        }
        Ok(())
    }

    /// Decodes a marker. Returns the time if a segment begins.
    fn marker(
        &mut self,
        record: Record,
        next: Option<Record>,
        shared: &mut Shared,
        batch: &mut Batch,
    ) -> Result<Option<u64>, String> {
        let value = record.addr;
        match record.size {
            // Each chunk of a zip repeats the last timestamp; this is not a new segment.
            marker::TIMESTAMP => {
                self.timestamp = Some(value);
                return Ok(Some(value));
            }
            marker::VERSION => version(value)?,
            marker::FILETYPE => {
                self.filetype = value;
                if let Some(arch) = filetype::arch(value) {
                    (self.arch, self.tags) = (arch, Tags::of(arch));
                    self.set_rules();
                }
            }
            marker::PAGE_SIZE => {
                if !value.is_power_of_two() || value > 1 << 30 {
                    return Err(format!(
                        "the page size is {value} bytes, but page sizes are powers of two of at most 1 GiB"
                    ));
                }
                self.page_bytes = value;
                self.set_rules();
            }
            // The time between two windows was not traced, and its length is unknown.
            marker::WINDOW_ID if shared.enter_window(value) => {
                self.rows.event(batch, Event::Gap { accesses: 0, instructions: 0 });
            }
            marker::PHYSICAL_ADDRESS => self.physical = Some(value),
            marker::VIRTUAL_ADDRESS => {
                if let Some(phys) = self.physical.take() {
                    self.set_page(value, Some(phys), shared, batch);
                }
            }
            marker::PHYSICAL_ADDRESS_NOT_AVAILABLE => self.set_page(value, None, shared, batch),
            marker::FUNC_ID => self.calls.id(value),
            marker::FUNC_ARG => {
                if let Some(event) = self.calls.arg(value, self.arch) {
                    self.tell(event, shared, batch)?;
                }
            }
            marker::FUNC_RETVAL => {
                let errno = next
                    .filter(|next| next.kind == kind::MARKER && next.size == marker::SYSCALL_FAILED)
                    .map(|next| next.addr);
                if let Some(event) = self.calls.returned(value, errno, self.arch) {
                    self.tell(event, shared, batch)?;
                }
            }
            marker::SYSCALL_TRACE_START => shared.kernel = true,
            marker::CONTEXT_SWITCH_START => {
                shared.kernel = true;
                let process = value == marker::CONTEXT_SWITCH_OF_PROCESS;
                self.tell(Event::ContextSwitch { process }, shared, batch)?;
            }
            // Other markers (processors, ordinals, branch targets and so on) do not concern memory.
            _ => {}
        }
        Ok(None)
    }

    /// Applies the address rules from the file's markers to its pages.
    fn set_rules(&mut self) {
        if let Some(pages) = &mut self.pages {
            pages.set_rules(self.tags, self.page_bytes);
        }
    }

    fn tell(&mut self, event: Event, shared: &mut Shared, batch: &mut Batch) -> Result<(), String> {
        if self.moved {
            self.settle(shared, batch)?;
        }
        self.rows.event(batch, self.tags.strip_event(event));
        Ok(())
    }

    fn set_page(&mut self, virt: u64, phys: Option<u64>, shared: &mut Shared, batch: &mut Batch) {
        // The rows so far get their physical addresses before the page's frame changes.
        self.locate(shared, batch);
        if !shared.physical {
            shared.physical = true;
            batch.paddr.resize(batch.len(), 0);
        }
        let (tags, page_bytes) = (self.tags, self.page_bytes);
        let pages = self.pages.get_or_insert_with(|| {
            let mut pages = Pages::new(page_bytes);
            pages.set_rules(tags, page_bytes);
            pages
        });
        pages.set(virt, phys);
    }

    /// Sets the physical addresses of the new rows of `batch`.
    fn locate(&mut self, shared: &Shared, batch: &mut Batch) {
        if !shared.physical {
            return;
        }
        match &mut self.pages {
            None => batch.paddr.resize(batch.addr.len(), 0),
            Some(pages) => {
                let new = &batch.addr[batch.paddr.len()..];
                batch.paddr.extend(new.iter().map(|&addr| pages.translate(addr)));
            }
        }
    }
}

fn version(value: u64) -> Result<(), String> {
    if VERSIONS.contains(&value) {
        return Ok(());
    }
    Err(format!(
        "version {value} of DynamoRIO's format; versions {} to {} are read",
        VERSIONS.start(),
        VERSIONS.end()
    ))
}
