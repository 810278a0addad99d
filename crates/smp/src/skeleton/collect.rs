use std::collections::BTreeMap;

use addr::Kind;
use rustc_hash::FxHashMap;
use trace::{Batch, CLONE_VM, Error, Event, FileId, Origin, Source};

use super::{Backing, Process, Skeleton, Step};

const PAGE_BITS: u32 = 12;

/// The number of pages of a program's address range; the addresses above it belong to the kernel.
const PAGES_MAX: u64 = 1 << 39;

/// If there are fewer instructions than this between two steps, they are added to the instructions
/// before the next step.
const WORK_MIN: u64 = 500;

/// The argument `MADV_DONTNEED` of `madvise`, and the flags `MAP_SHARED` and `MAP_ANONYMOUS` of
/// `mmap`.
const MADV_DONTNEED: u32 = 4;
const MAP_SHARED: u32 = 1;
const MAP_ANONYMOUS: u32 = 0x20;

/// Bits for the operations on a page of a space.
const TOUCHED: u8 = 1;
const STORED: u8 = 2;

/// The skeleton of all processes of a trace, or of its only program. `progress` is called with the
/// number of accesses read, and returns whether to continue. If `progress` returns false, the
/// result is `None`.
pub fn collect(
    source: &mut dyn Source,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Skeleton>, Error> {
    let mut collector = Collector::default();
    let mut batch = Batch::default();
    let mut read = 0;
    loop {
        let more = source.next(&mut batch)?;
        collector.batch(&batch, source.processes());
        if !more {
            break;
        }
        read += batch.len() as u64;
        if !progress(read) {
            return Ok(None);
        }
    }
    Ok(Some(collector.finish(source.processes())))
}

#[derive(Default)]
struct Collector {
    /// The processes by number.
    processes: Vec<Making>,
    /// By space and page: the operations on the page so far.
    spaces: BTreeMap<u32, FxHashMap<u64, u8>>,
    files: Vec<String>,
    process: u32,
    /// The last access: its page, and the operations on this page so far.
    last: (u64, u8),
}

/// A process, as far as it has been read.
#[derive(Default)]
struct Making {
    steps: Vec<Step>,
    /// Instructions since the last step.
    work: u64,
    space: u32,
    /// Whether the process inherited its mappings from its parent; the trace repeats the events of
    /// these mappings.
    inherits: bool,
    begun: bool,
    /// The end of the heap, if there is one.
    heap: Option<u64>,
    /// The children: for each, the index of its fork among the steps and its process identifier.
    forks: Vec<(usize, i64)>,
}

impl Collector {
    fn batch(&mut self, batch: &Batch, known: &[trace::Process]) {
        self.enter(self.process, known);
        let mut events = batch.events.iter().peekable();
        for (row, (&addr, meta)) in batch.addr.iter().zip(&batch.meta).enumerate() {
            while let Some(placed) = events.next_if(|placed| placed.at as usize <= row) {
                self.event(&placed.event, known);
            }
            self.access(addr, meta.kind(), meta.instructions().into());
        }
        events.for_each(|placed| self.event(&placed.event, known));
    }

    #[inline]
    fn access(&mut self, addr: u64, kind: Kind, instructions: u64) {
        let making = &mut self.processes[self.process as usize];
        making.work += instructions;
        let page = addr >> PAGE_BITS;
        let done = if kind == Kind::Store { TOUCHED | STORED } else { TOUCHED };
        if self.last.0 == page && self.last.1 & done == done {
            return;
        }
        let state = self.spaces.entry(making.space).or_default().entry(page).or_insert(0);
        let is_new = *state & done != done;
        *state |= done;
        self.last = (page, *state);
        if is_new {
            making.touch(page, kind);
        }
    }

    fn enter(&mut self, process: u32, known: &[trace::Process]) {
        self.process = process;
        self.last = (u64::MAX, 0);
        if self.processes.len() <= process as usize {
            self.processes.resize_with(process as usize + 1, Making::default);
        }
        let shared = known.get(process as usize).and_then(|known| Some((known.parent?, known)));
        let space = match shared {
            Some((parent, known)) if known.shares_space => self.processes[parent as usize].space,
            _ => process,
        };
        let making = &mut self.processes[process as usize];
        if !making.begun {
            (making.begun, making.space, making.inherits) = (true, space, shared.is_some());
        }
    }

    fn event(&mut self, event: &Event, known: &[trace::Process]) {
        self.last = (u64::MAX, 0);
        let number = self.process as usize;
        match event {
            Event::Process { number } => self.enter(*number, known),
            Event::Mapping { start, bytes, rights, origin, offset, file } => {
                if self.processes[number].inherits {
                    return;
                }
                let path = match origin {
                    Origin::File(path) => Some(path.as_str()),
                    _ => None,
                };
                if matches!(origin, Origin::Heap) {
                    self.processes[number].heap = Some(up(start + bytes));
                }
                let first = offset.unwrap_or(*start) >> PAGE_BITS;
                let backing = self.backing(file.as_ref(), path, first, false);
                let (page, pages) = pages(*start, *bytes);
                self.change(page, pages, Step::Map { page, pages, rights: rights & 7, backing });
            }
            Event::Mmap { bytes, prot, flags, offset, path, file, result, .. } => {
                let Ok(start) = u64::try_from(*result) else { return };
                let shared = flags & MAP_SHARED != 0;
                let backing = if flags & MAP_ANONYMOUS != 0 {
                    if shared { Backing::Shared } else { Backing::Anonymous }
                } else {
                    self.backing(file.as_ref(), path.as_deref(), offset >> PAGE_BITS, shared)
                };
                let (page, pages) = pages(start, *bytes);
                let rights = (prot & 7) as u8;
                self.change(page, pages, Step::Map { page, pages, rights, backing });
            }
            Event::Munmap { addr, bytes, result: 0 } => {
                let (page, pages) = pages(*addr, *bytes);
                self.change(page, pages, Step::Unmap { page, pages });
            }
            Event::Madvise { addr, bytes, advice: MADV_DONTNEED, result: 0 } => {
                let (page, pages) = pages(*addr, *bytes);
                self.change(page, pages, Step::Discard { page, pages });
            }
            Event::Mprotect { addr, bytes, prot, result: 0 } => {
                let (page, pages) = pages(*addr, *bytes);
                let rights = (prot & 7) as u8;
                if pages > 0 {
                    self.step(Step::Protect { page, pages, rights });
                }
            }
            Event::Mremap { addr, old_bytes, new_bytes, result, .. } => {
                let Ok(to) = u64::try_from(*result) else { return };
                let ((page, pages), (to, to_pages)) =
                    (pages(*addr, *old_bytes), pages(to, *new_bytes));
                self.moved(page, pages, to, to_pages);
            }
            Event::Brk { result, .. } => {
                let Ok(now) = u64::try_from(*result) else { return };
                let before = self.processes[number].heap.replace(up(now)).unwrap_or(up(now));
                let (from, to) = (before.min(up(now)), before.max(up(now)));
                let (page, pages) = (from >> PAGE_BITS, (to - from) >> PAGE_BITS);
                let backing = Backing::Anonymous;
                match up(now) < before {
                    _ if pages == 0 => {}
                    true => self.change(page, pages, Step::Unmap { page, pages }),
                    false => {
                        self.change(page, pages, Step::Map { page, pages, rights: 3, backing })
                    }
                }
            }
            Event::Fork { result, flags } if *result > 0 => {
                let making = &mut self.processes[number];
                making.step(Step::Fork(0));
                making.forks.push((making.steps.len() - 1, *result));
                if flags & CLONE_VM == 0 {
                    self.copy(making_space(&self.processes, number), *result, known);
                }
            }
            Event::Execve { result: 0, .. } => {
                let making = &mut self.processes[number];
                making.step(Step::Exec);
                (making.inherits, making.space, making.heap) = (false, self.process, None);
                self.spaces.insert(self.process, FxHashMap::default());
            }
            // Calls that failed, and calls that cause no work for a memory manager.
            Event::Munmap { .. }
            | Event::Mprotect { .. }
            | Event::Madvise { .. }
            | Event::ProcessMadvise { .. }
            | Event::Mlock { .. }
            | Event::Munlock { .. }
            | Event::Mlockall { .. }
            | Event::Munlockall { .. }
            | Event::Msync { .. }
            | Event::Shmat { .. }
            | Event::Shmdt { .. }
            | Event::Mbind { .. }
            | Event::HugePages { .. }
            | Event::PageSize { .. }
            | Event::Call(_)
            | Event::Run { .. }
            | Event::ContextSwitch { .. }
            | Event::WarmupEnd
            | Event::Gap { .. }
            | trace::events!(translation)
            | trace::events!(program)
            | trace::events!(lives) => {}
        }
    }

    /// Resets the stores that were recorded for the pages of a parent and its child. After the
    /// fork, both processes fault at their next store to each page.
    fn copy(&mut self, parent: u32, pid: i64, known: &[trace::Process]) {
        let of = self.spaces.entry(parent).or_default();
        of.values_mut().for_each(|state| *state &= TOUCHED);
        let copied = of.clone();
        if let Some(child) = self.child(pid, known) {
            self.spaces.insert(child, copied);
        }
    }

    /// The number of the running process's child whose process identifier is `pid`.
    fn child(&self, pid: i64, known: &[trace::Process]) -> Option<u32> {
        let is_child = |process: &&trace::Process| {
            process.parent == Some(self.process) && i64::from(process.pid) == pid
        };
        known.iter().find(is_child).map(|process| process.number)
    }

    fn backing(
        &mut self,
        file: Option<&FileId>,
        path: Option<&str>,
        first: u64,
        shared: bool,
    ) -> Backing {
        let name = match (path, file) {
            (Some(path), _) => path.replace('\n', " "),
            (None, Some(file)) => format!("{}:{}", file.device, file.inode),
            (None, None) => return Backing::Anonymous,
        };
        let known = self.files.iter().position(|known| *known == name);
        let number = known.unwrap_or_else(|| {
            self.files.push(name);
            self.files.len() - 1
        }) as u32;
        Backing::File { number, first, shared }
    }

    fn step(&mut self, step: Step) {
        self.processes[self.process as usize].step(step);
    }

    /// Adds a step, and drops the recorded operations on these pages.
    fn change(&mut self, page: u64, pages: u64, step: Step) {
        if pages == 0 {
            return;
        }
        let making = &mut self.processes[self.process as usize];
        making.step(step);
        if let Some(of) = self.spaces.get_mut(&making.space) {
            of.retain(|of, _| !(page..page + pages).contains(of));
        }
    }

    fn moved(&mut self, page: u64, pages: u64, to: u64, to_pages: u64) {
        if pages == 0 || to_pages == 0 {
            return;
        }
        self.step(Step::Move { page, pages, to, to_pages });
        let space = self.processes[self.process as usize].space;
        let of = self.spaces.entry(space).or_default();
        let old = page..page + pages;
        let moved: Vec<(u64, u8)> = of
            .iter()
            .filter(|(of, _)| old.contains(of) && **of - page < to_pages)
            .map(|(of, state)| (of - page + to, *state))
            .collect();
        of.retain(|of, _| !old.contains(of) && !(to..to + to_pages).contains(of));
        of.extend(moved);
    }

    fn finish(mut self, known: &[trace::Process]) -> Skeleton {
        let mut processes = Vec::new();
        for number in 0..self.processes.len() {
            self.process = number as u32;
            let children: Vec<(usize, Option<u32>)> = self.processes[number]
                .forks
                .iter()
                .map(|&(place, pid)| (place, self.child(pid, known)))
                .collect();
            let making = &mut self.processes[number];
            for &(place, child) in &children {
                // The fork of a child that was not recorded is left out.
                making.steps[place] = child.map_or(Step::Work(0), Step::Fork);
            }
            making.flush(0);
            let mut steps = std::mem::take(&mut making.steps);
            steps.retain(|step| *step != Step::Work(0));
            let known = known.get(number);
            let name = known.map_or("program", trace::Process::name).replace('\n', " ");
            let shares_space = known.is_some_and(|known| known.shares_space);
            processes.push(Process { name, shares_space, steps });
        }
        Skeleton { files: self.files, processes }
    }
}

fn making_space(processes: &[Making], number: usize) -> u32 {
    processes[number].space
}

impl Making {
    /// Adds the instructions since the last step as a step, if there are at least `least`.
    fn flush(&mut self, least: u64) {
        if self.work > least {
            self.steps.push(Step::Work(std::mem::take(&mut self.work)));
        }
    }

    fn step(&mut self, step: Step) {
        self.flush(WORK_MIN);
        self.steps.push(step);
    }

    fn touch(&mut self, page: u64, kind: Kind) {
        if page >= PAGES_MAX {
            return;
        }
        self.flush(WORK_MIN);
        match self.steps.last_mut() {
            Some(Step::Touch { page: first, pages, kind: of })
                if *of == kind && *first + *pages == page =>
            {
                *pages += 1;
            }
            _ => self.steps.push(Step::Touch { page, pages: 1, kind }),
        }
    }
}

/// The first page and the number of pages that the bytes touch, up to the end of a program's
/// address range.
fn pages(start: u64, bytes: u64) -> (u64, u64) {
    let page = start >> PAGE_BITS;
    if start.saturating_add(bytes) > PAGES_MAX << PAGE_BITS {
        return (page, 0);
    }
    (page, (up(start.saturating_add(bytes)) >> PAGE_BITS).saturating_sub(page))
}

fn up(addr: u64) -> u64 {
    addr.saturating_add((1 << PAGE_BITS) - 1) & !((1 << PAGE_BITS) - 1)
}
