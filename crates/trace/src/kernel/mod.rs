//! Adds a kernel's accesses to a recording: a model of the kernel's work when programs call it, and
//! when it switches from one program to another.
//!
//! ```text
//!   recording     a: ... | Call read |  a: ...        Run b      b: ...
//!   given         a: ... | kernel    |  a: ...        kernel     b: ...
//!                                         |              |
//!                       at user level:   kernel | Linux, a space of its own | kernel
//! ```
//!
//! A recording contains the accesses of programs, but not those of the kernel, which also uses TLBs
//! and caches. For each call this source adds the accesses of [`Kernel`]'s footprint. It also adds
//! one access per line of the buffers that the call names, in the program's memory and in a page of
//! the pipe or file. A switch occurs when a program continues on a processor on which another
//! program ran: because a call waited (the call is not added a second time), or because of the
//! clock. Only recordings made with `--calls` have calls; in other recordings only switches are
//! known.
//!
//! The bounds of a part of a trace, including its warm-up, count only the program's accesses.

mod model;
pub(crate) mod path;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use addr::Kind;
use sha2::{Digest, Sha256};

use crate::process::Program;
pub use crate::process::SERVER;
use crate::switches::Switches;
use crate::{
    Arch, Batch, Call, Error, Event, FileKind, Header, KERNEL, Meta, Placed, Process, Source,
};
use path::{LINE, Linux, PAGE, Piece, Place, Region, Turn};

pub use model::Kernel;

/// The name of the server among the names of programs.
const SERVER_NAME: &str = "linux";
/// The number of pages of each of two windows: one through which Linux sees a program's memory, and
/// one with contents of files.
const WINDOW_PAGES: u64 = 4096;
/// The address of both windows of a Linux at user level, after its code.
const ALIAS: u64 = 64 << 20;
const CACHE: u64 = 96 << 20;
/// The number of instructions of a loop that copies one line.
const LINE_INSTRUCTIONS: u32 = 8;
/// The calls for which the kernel writes to the memory that they name. For all other calls, the
/// kernel reads this memory.
const FILLS: [&str; 9] =
    ["read", "readv", "pread64", "preadv", "recv", "recvfrom", "recvmsg", "recvmmsg", "getdents64"];

/// A source with a kernel's code path added.
pub struct KernelPath {
    source: Box<dyn Source + Send>,
    header: Header,
    linux: Linux,
    kernel: Kernel,
    place: Place,
    processes: Vec<Process>,
    /// The current batch of the source. Events after its last access belong to the next batch.
    read: Batch,
    held: Vec<Placed>,
    /// The processor of the running program; the following fields say which program ran last on
    /// each processor.
    cpu: Option<u32>,
    space: u32,
    ran: BTreeMap<u32, u32>,
    /// The space of the last `Run` event in the batch that is returned.
    placed: u32,
    /// Spaces in which everything that a call needs is mapped: the kernel, the server, and the
    /// library.
    mapped: BTreeSet<u32>,
    given: u64,
    /// Instructions of the kernel's fetches that no row has counted yet, in a trace without
    /// fetches.
    carried: u32,
    has_calls: bool,
    warnings: Vec<String>,
}

impl KernelPath {
    /// The accesses of `source` with those of `kernel` inserted.
    pub fn new(source: Box<dyn Source + Send>, kernel: Kernel) -> KernelPath {
        let mut header = source.header().clone();
        header.notes.push(kernel.note());
        let bits = if matches!(header.arch, Arch::I386 | Arch::Arm) { 32 } else { 47 };
        let mut processes = source.processes().to_vec();
        if kernel.is_microkernel && !processes.is_empty() {
            let program =
                Program { arch: Arch::Unknown, command: vec![SERVER_NAME.to_owned()], from: 0 };
            processes.push(Process {
                number: SERVER,
                pid: 0,
                parent: None,
                parent_accesses: None,
                shares_space: false,
                began_ns: 0,
                programs: vec![program],
                accesses: 0,
                instructions: 0,
            });
        }
        KernelPath {
            source,
            header,
            linux: kernel.linux(),
            kernel,
            place: Place::new(bits, 0x1000_0000_0000),
            processes,
            read: Batch::default(),
            held: Vec::new(),
            cpu: None,
            space: 0,
            ran: BTreeMap::new(),
            placed: 0,
            mapped: BTreeSet::new(),
            given: 0,
            carried: 0,
            has_calls: false,
            warnings: Vec::new(),
        }
    }

    /// Copies the source's batch into `batch`, with the kernel's accesses inserted.
    fn merge(&mut self, batch: &mut Batch, more: bool) -> Result<(), Error> {
        let mut read = std::mem::take(&mut self.read);
        if !read.paddr.is_empty() {
            let what = "--kernel: this trace has physical addresses, which the model of a kernel \
                        does not have; leave --kernel out";
            return Err(Error::Parameters(what.to_owned()));
        }
        let length = read.len() as u32;
        let mut events: VecDeque<Placed> = std::mem::take(&mut self.held).into();
        events.iter_mut().for_each(|placed| placed.at = 0);
        events.extend(read.events.drain(..));
        let mut switches = read.switches.iter().copied().peekable();
        let mut stamps = read.stamps.iter().copied().peekable();
        let mut at = 0;
        loop {
            let count = events.iter().take_while(|placed| placed.at == at).count();
            let here: Vec<Placed> = events.drain(..count).collect();
            if at == length && more {
                self.held = here;
                break;
            }
            if !here.is_empty() {
                let thread = here.last().map_or(0, |placed| placed.thread);
                let thread = if at < length { read.thread_of(at as usize) } else { thread };
                self.here(here, thread, batch)?;
            }
            if at == length {
                break;
            }
            let next = events.front().map_or(length, |placed| placed.at);
            // Switches and stamps among these rows are moved together with the rows.
            let base = batch.len() as u32;
            while let Some((place, cause)) = switches.next_if(|(place, _)| *place < next) {
                batch.switches.push((base + place.saturating_sub(at), cause));
            }
            while let Some(mut stamp) = stamps.next_if(|stamp| stamp.at < next) {
                stamp.at = base + stamp.at.saturating_sub(at);
                batch.stamps.push(stamp);
            }
            self.rows(&read, at..next, batch);
            at = next;
        }
        let end = batch.len() as u32;
        batch.switches.extend(switches.map(|(_, cause)| (end, cause)));
        batch.stamps.extend(stamps.map(|stamp| crate::Stamp { at: end, ..stamp }));
        self.read = read;
        Ok(())
    }

    /// Appends rows of the source.
    fn rows(&mut self, read: &Batch, rows: Range<u32>, batch: &mut Batch) {
        let mut start = rows.start;
        let first = read.segments.partition_point(|segment| segment.start <= start);
        let mut thread = read.thread_of(start as usize);
        for end in read.segments[first..].iter().map(|one| one.start).chain([rows.end]) {
            let end = end.min(rows.end);
            if start < end {
                if batch.segments.last().is_none_or(|segment| segment.thread != thread) {
                    let start = batch.addr.len() as u32;
                    batch.segments.push(crate::Segment { start, thread });
                }
                let rows = start as usize..end as usize;
                batch.addr.extend_from_slice(&read.addr[rows.clone()]);
                batch.meta.extend_from_slice(&read.meta[rows]);
            }
            if end == rows.end {
                break;
            }
            (start, thread) = (end, read.thread_of(end as usize));
        }
    }

    /// Handles what happens before one access: appends `events`, and the kernel's accesses for
    /// them.
    fn here(&mut self, events: Vec<Placed>, thread: u32, batch: &mut Batch) -> Result<(), Error> {
        let (mut last_run, mut call, first) = (None, None, self.space);
        for (index, placed) in events.iter().enumerate() {
            if let Event::Run { cpu, space } = placed.event {
                if space == KERNEL {
                    let what = "--kernel: this trace already has accesses of the kernel; leave \
                                --kernel out";
                    return Err(Error::Parameters(what.to_owned()));
                }
                (self.cpu, self.space, last_run) = (cpu, space, Some(index));
            } else if let Event::Call(made) = &placed.event {
                // If there are several calls without an access between them, all except the last
                // belong to a part of the trace that was skipped.
                call = Some((**made).clone());
                self.has_calls = true;
            } else if matches!(placed.event, Event::Execve { result: 0, .. }) {
                self.mapped.remove(&self.space);
            }
        }
        let to = self.space;
        // A trace begins in space 0, without an event. The first program to run on a processor does
        // not count as a switch.
        let has_begun = self.given > 0 || !batch.is_empty();
        let known = (self.ran.is_empty() && has_begun).then_some(first);
        let from = self.ran.insert(self.cpu.unwrap_or(0), to).or(known).unwrap_or(to);
        let asks = from != to || call.is_some();
        let mut behind = Vec::new();
        let split = if from == to { None } else { last_run };
        for (index, placed) in events.into_iter().enumerate() {
            if split == Some(index) {
                behind = self.ask((from, to), call.as_ref(), thread, batch);
            }
            let at = batch.len() as u32;
            if let Event::Run { space, .. } = placed.event {
                self.placed = space;
            }
            batch.events.push(Placed { at, ..placed });
        }
        if asks && split.is_none() {
            behind = self.ask((from, to), call.as_ref(), thread, batch);
        }
        behind.iter().for_each(|turn| self.turn(turn, thread, batch));
        self.go(to, thread, batch);
        Ok(())
    }

    /// Appends the kernel's accesses between the programs `from` and `to`. Returns the turns that
    /// come after the switch to `to`.
    fn ask(
        &mut self,
        (from, to): (u32, u32),
        call: Option<&Call>,
        thread: u32,
        batch: &mut Batch,
    ) -> Vec<Turn> {
        let mut turns = path::call(self.linux, self.place, (from, to), SERVER);
        let (kept, seen) = call.map(|call| self.copies(call, to)).unwrap_or_default();
        let behind = if self.linux.is_server {
            if let Some(server) = turns.iter_mut().find(|turn| turn.space == SERVER) {
                server.pieces.extend(kept.into_iter().chain(seen));
            }
            turns.split_off(turns.len() - 1)
        } else {
            turns.iter_mut().for_each(|kernel| kernel.pieces.extend(&kept));
            vec![Turn { space: to, pieces: seen }]
        };
        turns.iter().for_each(|turn| self.turn(turn, thread, batch));
        behind
    }

    /// The accesses with which a call copies lines: to the kernel's data, and to the program's
    /// memory. A Linux in the kernel accesses the program's memory at the program's own addresses.
    fn copies(&self, call: &Call, space: u32) -> (Vec<Piece>, Vec<Piece>) {
        let file = call
            .descriptors
            .iter()
            .find(|open| Some(open.fd) == call.fd)
            .or(call.descriptors.first());
        let kept = match (file, call.offset) {
            (Some(file), Some(offset)) if file.kind == FileKind::Regular => {
                file.file.inode.wrapping_mul(0x9e37) + offset / PAGE
            }
            (Some(file), _) => file.file.inode,
            (None, _) => 0,
        };
        let (window, own) = match self.linux.is_server {
            true => (self.place.server + CACHE, Some(self.place.server + ALIAS)),
            false => (self.place.kernel + CACHE, None),
        };
        let (from, to) = match FILLS.contains(&call.name.as_str()) {
            true => (Kind::Store, Kind::Load),
            false => (Kind::Load, Kind::Store),
        };
        let piece = |start: u64, count: u64, kind: Kind| Piece {
            start,
            stride: LINE,
            count,
            meta: Meta::new(kind, LINE as u32, LINE_INSTRUCTIONS),
        };
        let mut left = u64::try_from(call.result).unwrap_or(0);
        let mut pieces = (Vec::new(), Vec::new());
        for buffer in &call.buffers {
            let bytes = buffer.bytes.min(left);
            left -= bytes;
            let first = buffer.addr & !(LINE - 1);
            let end = buffer.addr.saturating_add(bytes.saturating_sub(1)) & !(LINE - 1);
            let mut addr = first;
            // One page at a time: pages that are adjacent for the program are not adjacent for
            // Linux.
            while bytes > 0 && addr <= end {
                let lines = (PAGE - addr % PAGE).min(end - addr + LINE) / LINE;
                let page = |window: u64, page: u64| window + page % WINDOW_PAGES * PAGE;
                let seen = own.map_or(addr, |alias| {
                    page(alias, (addr / PAGE) ^ u64::from(space).wrapping_mul(0x9e37)) + addr % PAGE
                });
                let at = kept + (addr - first) / PAGE * u64::from(call.offset.is_some());
                pieces.0.push(piece(page(window, at), lines, to));
                pieces.1.push(piece(seen, lines, from));
                addr += lines * LINE;
            }
        }
        pieces
    }

    /// Makes `space` the space of the following rows and events.
    fn go(&mut self, space: u32, thread: u32, batch: &mut Batch) {
        let at = batch.len() as u32;
        if self.placed != space {
            self.placed = space;
            batch.events.push(Placed { at, thread, event: Event::Run { cpu: self.cpu, space } });
        }
    }

    /// Appends a turn; before the first turn of a space, its mappings are reported.
    fn turn(&mut self, turn: &Turn, thread: u32, batch: &mut Batch) {
        if turn.pieces.is_empty() {
            return;
        }
        self.go(turn.space, thread, batch);
        if self.mapped.insert(turn.space) {
            let at = batch.len() as u32;
            let regions = self.regions(turn.space);
            batch.events.extend(regions.iter().map(|region| Placed {
                at,
                thread,
                event: region.event(),
            }));
        }
        for &Piece { start, stride, count, meta } in &turn.pieces {
            for step in 0..count {
                if meta.kind() == Kind::Fetch && !self.header.fetches {
                    self.carried += meta.instructions();
                    continue;
                }
                let instructions = meta.instructions() + std::mem::take(&mut self.carried);
                let meta = Meta::new(meta.kind(), meta.size(), instructions);
                batch.push(thread, start + step * stride, meta);
            }
        }
    }

    /// The regions in `space` that are mapped for the kernel.
    fn regions(&self, space: u32) -> Vec<Region> {
        let window =
            |name: &'static str, start: u64| path::region(name, start, WINDOW_PAGES * PAGE, 3);
        let known = path::linux_regions(self.linux, self.place, SERVER);
        let mut own: Vec<Region> = known
            .into_iter()
            .filter(|(of, _)| *of == space)
            .flat_map(|(_, regions)| regions)
            .collect();
        // The buffer of the generators' calls does not exist in a recording.
        own.retain(|region| region.name != "buffer");
        match space {
            KERNEL if !self.linux.is_server => {
                own.push(window("contents of files", self.place.kernel + CACHE));
            }
            KERNEL => {}
            SERVER => {
                own.push(window("programs' memory", self.place.server + ALIAS));
                own.push(window("contents of files", self.place.server + CACHE));
            }
            _ if self.linux.is_server => {
                own = path::library_regions(self.linux, self.place);
                own.retain(|region| region.name != "buffer");
            }
            _ => {}
        }
        own
    }
}

impl Source for KernelPath {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        let more = self.source.next(&mut self.read)?;
        self.merge(batch, more)?;
        batch.first = self.given;
        self.given += batch.len() as u64;
        if !more {
            self.warnings = self.source.warnings().to_vec();
            if !self.has_calls {
                self.warnings.push(
                    "--kernel: the recording has no system calls, so that only switches are \
                     modelled: record with --calls"
                        .to_owned(),
                );
            }
        }
        Ok(more)
    }

    fn while_waiting(&mut self, go_on: Box<dyn FnMut() -> bool + Send>) {
        self.source.while_waiting(go_on);
    }

    fn stored(&self) -> Option<crate::Stored> {
        self.source.stored()
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn switches(&self) -> Option<Switches> {
        self.source.switches()
    }

    /// The digest of the source and of the kernel's parameters.
    fn digest(&self) -> Option<String> {
        let digest = Sha256::digest(format!("kernel 1 {} {}", self.kernel, self.source.digest()?));
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
