//! Processors that keep every translation, and the judgement of each use.
//!
//! ```text
//!   access --> front: used since anything changed? --yes--> nothing to do
//!                |no
//!              TLB: a translation that permits the access?
//!                |no: walk, load                 |yes: walk, compare
//!                                                +-- the same frame, and still permitted --> fine
//!                                                +-- otherwise: is the flush overdue? -----> report
//! ```

use addr::Kind;
use rustc_hash::FxHashMap;

use super::tables::{Page, Path, Stored, Tables, Walk};
use super::tlb::{Held, Tlb};
use super::{Allowed, Cause, Change, Code, Flushed, Report, Seed, Wrong};

/// The bits of control registers.
mod bits {
    pub(super) const WRITE_PROTECT: u64 = 1 << 16;
    pub(super) const PAGING: u64 = 1 << 31;
    /// Bits of CR4: page-size extensions, physical-address extension, global pages, five levels.
    pub(super) const PSE: u64 = 1 << 4;
    pub(super) const PAE: u64 = 1 << 5;
    pub(super) const PGE: u64 = 1 << 7;
    pub(super) const LA57: u64 = 1 << 12;
    pub(super) const PCIDE: u64 = 1 << 17;
    pub(super) const SMEP: u64 = 1 << 20;
    /// Bits of a value that is written to CR3: the root, the context, and whether the write flushes
    /// nothing.
    pub(super) const ROOT: u64 = 0x000f_ffff_ffff_f000;
    pub(super) const CONTEXT: u64 = 0xfff;
    pub(super) const NO_FLUSH: u64 = 1 << 63;
    /// Bits of the error code of a page fault.
    pub(super) const STORE: u32 = 2;
    pub(super) const USER: u32 = 4;
    pub(super) const FETCH: u32 = 16;
}

/// The pages that each processor has used since anything changed, by the low bits of the page number.
const FRONT: usize = 1024;
/// The most reports that are kept; all are counted.
const REPORTS_MAX: usize = 200;
/// The number of a task of the kernel that each processor has one of: its idle task.
const OF_PROCESSOR: u64 = 1 << 32;

#[derive(Clone, Copy, Default)]
struct Front {
    /// The page number plus one.
    page: u64,
    epoch: u64,
    /// One bit for each kind of access, of the kernel and of programs.
    rights: u8,
}

/// What an INVPCID instruction drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "QEMU has no INVPCID; the rules are tested"))]
pub(super) enum Invpcid {
    /// A page of a context.
    Address(u16, u64),
    /// All of a context, without global pages.
    Context(u16),
    /// Everything.
    All,
    /// All translations except those of global pages.
    AllButGlobal,
}

struct Processor {
    cr0: u64,
    cr3: u64,
    cr4: u64,
    tlb: Tlb,
    front: Box<[Front; FRONT]>,
    task: u64,
    /// Whether the processor runs a program, and not the kernel.
    in_program: bool,
    /// The last page in the lower half from which the processor fetched code, the epoch, and
    /// whether the page belongs to a program.
    low: (u64, u64, bool),
    code: Code,
    /// The last write of CR3 with another root, if it flushed nothing.
    entered: Option<Change>,
}

impl Processor {
    fn new(number: u32) -> Processor {
        Processor {
            cr0: 0,
            cr3: 0,
            cr4: 0,
            tlb: Tlb::default(),
            front: Box::new([Front::default(); FRONT]),
            task: OF_PROCESSOR | u64::from(number),
            in_program: false,
            low: (u64::MAX, 0, false),
            code: Code::default(),
            entered: None,
        }
    }

    fn context(&self) -> u16 {
        if self.cr4 & bits::PCIDE == 0 { 0 } else { (self.cr3 & bits::CONTEXT) as u16 }
    }
}

/// The system that is checked.
pub(super) struct Checker {
    pub(super) tables: Tables,
    processors: Vec<Processor>,
    /// Counts what may make a use differ from the last one.
    epoch: u64,
    /// The last change of each entry for which a flush is needed.
    changes: FxHashMap<u64, Change>,
    changes_count: u64,
    /// For each task that has run a program: how often it has returned to it.
    returns: FxHashMap<u64, u64>,
    tasks: FxHashMap<u64, String>,
    /// The number of changes before each frame was last mapped, or became a part of a page table.
    given: FxHashMap<u64, u64>,
    seed: Option<Seed>,
    seeded: u64,
    /// Whether an access that the page table does not permit was made with an old translation. Tests make such accesses
    /// otherwise.
    pub(super) believes: bool,
    pub(super) allowed: Allowed,
    pub(super) flushed: Flushed,
    pub(super) unknown: u64,
    /// The number of translations in the trace that agree with the page tables, and the number that
    /// do not.
    pub(super) compared: (u64, u64),
    pub(super) uses: u64,
    pub(super) reports: Vec<Report>,
}

impl Checker {
    pub(super) fn new(seed: Option<Seed>) -> Checker {
        Checker {
            tables: Tables::default(),
            processors: Vec::new(),
            epoch: 1,
            changes: FxHashMap::default(),
            changes_count: 0,
            returns: FxHashMap::default(),
            tasks: FxHashMap::default(),
            given: FxHashMap::default(),
            seed,
            seeded: 0,
            believes: true,
            allowed: Allowed::default(),
            flushed: Flushed::default(),
            unknown: 0,
            compared: (0, 0),
            uses: 0,
            reports: Vec::new(),
        }
    }

    /// The number of processors that have used a page table.
    pub(super) fn processors(&self) -> usize {
        self.processors.iter().filter(|of| of.cr0 & bits::PAGING != 0).count()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes_count
    }

    /// The processor of this number exists from now on.
    fn processor(&mut self, number: u32) -> &mut Processor {
        let index = number as usize;
        while self.processors.len() <= index {
            self.processors.push(Processor::new(self.processors.len() as u32));
        }
        &mut self.processors[index]
    }

    /// A page becomes a table.
    pub(super) fn table(&mut self, paddr: u64, level: u8) {
        self.tables.table(paddr, level);
        if level != 0 {
            self.given.insert(paddr, self.changes_count);
        }
        self.epoch += 1;
    }

    pub(super) fn found(&mut self, entry: u64, value: u64) {
        self.tables.found(entry, value);
        self.epoch += 1;
    }

    /// A store to a page-table entry, after `at` accesses.
    pub(super) fn store(&mut self, processor: u32, entry: u64, value: u64, at: u64) {
        let (stored, frame) = self.tables.store(entry, value);
        match stored {
            Stored::Nothing => {}
            Stored::Appeared => self.allowed.appeared += 1,
            Stored::Marked => self.allowed.marked += 1,
            Stored::Grown => self.allowed.grown += 1,
            Stored::Unknown => self.unknown += 1,
            Stored::Changed => {
                self.changes_count += 1;
                self.epoch += 1;
                let change = self.change(processor, at);
                self.changes.insert(entry, change);
            }
        }
        if let Some(frame) = frame {
            self.given.insert(frame, self.changes_count);
        }
    }

    fn change(&mut self, processor: u32, at: u64) -> Change {
        let number = self.changes_count;
        let Processor { task, code, .. } = *self.processor(processor);
        let returns = self.returns.get(&task).copied().unwrap_or_default();
        Change { processor, task, code, at, number, returns }
    }

    fn name_of(&self, task: u64) -> String {
        let pid = if task & OF_PROCESSOR == 0 { task } else { 0 };
        let name = self.tasks.get(&pid).map_or("", String::as_str);
        format!("{name} ({pid})").trim_start().to_owned()
    }

    /// Another task runs.
    pub(super) fn task(&mut self, processor: u32, pid: u32, name: &str) {
        let task = if pid == 0 { OF_PROCESSOR | u64::from(processor) } else { pid.into() };
        self.processor(processor).task = task;
        let known = self.tasks.get(&u64::from(pid));
        if known.is_none_or(|known| known != name) {
            self.tasks.insert(pid.into(), name.to_owned());
        }
    }

    pub(super) fn control(&mut self, processor: u32, number: u8, value: u64, at: u64) {
        self.epoch += 1;
        match number {
            0 => {
                let of = self.processor(processor);
                let old = std::mem::replace(&mut of.cr0, value);
                if old & !value & bits::PAGING != 0 {
                    of.tlb.drop_all();
                }
            }
            3 => self.enter(processor, value, at),
            4 => {
                let of = self.processor(processor);
                let old = std::mem::replace(&mut of.cr4, value);
                let modes = bits::PSE | bits::PAE | bits::PGE | bits::LA57;
                if (old ^ value) & modes | old & !value & bits::PCIDE | value & !old & bits::SMEP
                    != 0
                {
                    self.flushed.all += 1;
                    if !self.drops(Seed::ALL) {
                        self.processor(processor).tlb.drop_all();
                    }
                }
            }
            _ => {}
        }
    }

    /// CR3 is written.
    fn enter(&mut self, processor: u32, value: u64, at: u64) {
        let flushes = {
            let of = self.processor(processor);
            of.cr4 & bits::PCIDE == 0 || value & bits::NO_FLUSH == 0
        };
        let is_dropped = flushes && self.drops(Seed::CR3);
        let change = is_dropped.then(|| self.change(processor, at));
        self.flushed.cr3 += u64::from(flushes);
        let of = self.processor(processor);
        let old = std::mem::replace(&mut of.cr3, value & !bits::NO_FLUSH);
        let context = of.context();
        if flushes && !is_dropped {
            match of.cr4 & bits::PCIDE {
                0 => of.tlb.drop_own(),
                _ => of.tlb.drop_context(context),
            }
            of.entered = None;
        } else if (old ^ value) & bits::ROOT != 0 {
            of.entered = change;
        }
    }

    /// INVLPG.
    pub(super) fn flush(&mut self, processor: u32, addr: u64) {
        self.epoch += 1;
        self.flushed.invlpg += 1;
        if self.drops(Seed::INVLPG) {
            return;
        }
        let of = self.processor(processor);
        let context = of.context();
        of.tlb.drop_page(context, addr);
    }

    #[cfg_attr(not(test), expect(dead_code, reason = "QEMU has no INVPCID; the rules are tested"))]
    pub(super) fn invpcid(&mut self, processor: u32, what: Invpcid) {
        self.epoch += 1;
        let of = self.processor(processor);
        match what {
            Invpcid::Address(context, addr) => of.tlb.drop_own_page(context, addr),
            Invpcid::Context(context) => of.tlb.drop_context(context),
            Invpcid::All => of.tlb.drop_all(),
            Invpcid::AllButGlobal => of.tlb.drop_own(),
        }
    }

    /// Whether the seeded bug leaves this flush out.
    fn drops(&mut self, kinds: u8) -> bool {
        let Some(Seed { kinds: of, every }) = self.seed else { return false };
        if of & kinds == 0 {
            return false;
        }
        self.seeded += 1;
        let is_left_out = self.seeded.is_multiple_of(every);
        self.flushed.left_out += u64::from(is_left_out);
        is_left_out
    }

    /// The processor fetches a block of code.
    pub(super) fn block(&mut self, processor: u32, addr: u64, kernel_from: u64) {
        let is_program = addr < kernel_from && self.is_of_program(processor, addr);
        let of = self.processor(processor);
        of.code = Code { block: addr, instruction: 0 };
        let returns = is_program && !of.in_program;
        of.in_program = is_program;
        if returns {
            let task = of.task;
            *self.returns.entry(task).or_default() += 1;
        }
    }

    /// Whether a program may run code at this address of the lower half: a kernel has code there while it boots.
    #[inline]
    fn is_of_program(&mut self, processor: u32, addr: u64) -> bool {
        let (page, epoch) = (addr >> 12, self.epoch);
        let of = self.processor(processor);
        if (of.low.0, of.low.1) == (page, epoch) {
            return of.low.2;
        }
        let (root, is_paging) = (of.cr3 & bits::ROOT, of.cr0 & bits::PAGING != 0);
        let walk = self.tables.walk(root, addr);
        let is_kernel = !is_paging || matches!(walk, Walk::Page(page, _) if !page.user);
        self.processor(processor).low = (page, epoch, !is_kernel);
        !is_kernel
    }

    /// Instructions of the block were executed.
    #[inline]
    pub(super) fn executed(&mut self, processor: u32, instructions: u32) {
        if let Some(of) = self.processors.get_mut(processor as usize) {
            of.code.instruction += instructions;
        }
    }

    /// An access of `bytes` bytes, after `at` accesses.
    #[inline]
    pub(super) fn access(&mut self, processor: u32, addr: u64, bytes: u32, kind: Kind, at: u64) {
        self.part(processor, addr, kind, at);
        let last = addr.wrapping_add(u64::from(bytes.max(1)) - 1);
        if (addr ^ last) >> 12 != 0 {
            self.part(processor, last, kind, at);
        }
    }

    #[inline]
    fn part(&mut self, processor: u32, addr: u64, kind: Kind, at: u64) {
        let Some(of) = self.processors.get(processor as usize) else { return };
        let front = &of.front[(addr >> 12) as usize % FRONT];
        let right = right(kind, of.in_program);
        if front.page != (addr >> 12) + 1 || front.epoch != self.epoch || front.rights & right == 0
        {
            self.used(processor, addr, kind, of.in_program, at);
        }
    }

    /// A page fault: the processor would have used a translation that its TLB still had.
    pub(super) fn fault(&mut self, processor: u32, pc: u64, addr: u64, error: u32, at: u64) {
        let kind = if error & bits::FETCH != 0 {
            Kind::Fetch
        } else if error & bits::STORE != 0 {
            Kind::Store
        } else {
            Kind::Load
        };
        let of = self.processor(processor);
        let before = std::mem::replace(&mut of.code, Code { block: pc, instruction: 0 });
        if of.cr0 & bits::PAGING != 0 {
            let context = of.context();
            self.judge_all(processor, addr, kind, error & bits::USER != 0, at);
            // A page fault drops the translations of the faulting page from the TLB.
            self.processor(processor).tlb.drop_page(context, addr);
        }
        self.epoch += 1;
        self.processor(processor).code = before;
    }

    /// An access that may differ from the last one to its page.
    #[cold]
    fn used(&mut self, processor: u32, addr: u64, kind: Kind, is_program: bool, at: u64) {
        let of = &self.processors[processor as usize];
        if of.cr0 & bits::PAGING == 0 {
            return;
        }
        let (context, cr0) = (of.context(), of.cr0);
        let (mut has, is_current) = self.judge_all(processor, addr, kind, is_program, at);
        if !has {
            let of = &self.processors[processor as usize];
            match self.tables.walk(of.cr3 & bits::ROOT, addr) {
                Walk::Page(mut page, path) => {
                    if permits(&page, kind, is_program, cr0) {
                        if kind == Kind::Store && !page.dirty {
                            self.tables.set_dirty(&path);
                            page.dirty = true;
                        }
                        let of = &mut self.processors[processor as usize];
                        page.global &= of.cr4 & bits::PGE != 0;
                        let loaded = self.changes_count;
                        of.tlb.load(context, Held { page, path, loaded, reported: false });
                        has = true;
                    } else {
                        self.unfound(processor, (addr, kind, is_program), path, Wrong::Right, at);
                    }
                }
                Walk::Absent(path) => {
                    self.unfound(processor, (addr, kind, is_program), path, Wrong::Absent, at)
                }
                Walk::Unknown => self.unknown += 1,
            }
        }
        if !has || !is_current {
            return;
        }
        let epoch = self.epoch;
        let front = &mut self.processors[processor as usize].front[(addr >> 12) as usize % FRONT];
        if front.page != (addr >> 12) + 1 || front.epoch != epoch {
            *front = Front { page: (addr >> 12) + 1, epoch, rights: 0 };
        }
        front.rights |= right(kind, is_program);
    }

    /// Judges the use of all translations of `addr` that the TLB has. Returns whether there is one that permits the
    /// access, and whether all are what the page table says.
    fn judge_all(
        &mut self,
        processor: u32,
        addr: u64,
        kind: Kind,
        is_program: bool,
        at: u64,
    ) -> (bool, bool) {
        let of = &self.processors[processor as usize];
        let (context, cr0, root) = (of.context(), of.cr0, of.cr3 & bits::ROOT);
        let (mut has, mut is_current) = (false, true);
        for place in of.tlb.find(context, addr) {
            let tlb = &mut self.processors[processor as usize].tlb;
            let Some(&mut held) = tlb.get(context, place) else { continue };
            let walks_anew = kind == Kind::Store && !held.page.dirty;
            if walks_anew || !permits(&held.page, kind, is_program, cr0) {
                // The processor walks the page table, either to set the dirty bit or because the
                // access faults.
                tlb.remove(context, place);
                continue;
            }
            has = true;
            let now = self.tables.walk(root, addr);
            if let Some(wrong) = judge(&held.page, now, addr, kind, is_program, cr0) {
                is_current = false;
                self.stale(processor, (addr, kind, is_program), held, wrong, at);
                if let Some(held) = self.processors[processor as usize].tlb.get(context, place) {
                    held.reported |= self.reports.last().is_some_and(|last| last.at == at);
                }
            }
        }
        (has, is_current)
    }

    /// The recorded processor made an access that the page table does not permit: its own TLB had kept a translation
    /// that the TLB here has dropped, as a page fault at another address of a large page does.
    fn unfound(
        &mut self,
        processor: u32,
        access: (u64, Kind, bool),
        path: Path,
        wrong: Wrong,
        at: u64,
    ) {
        let of = &self.processors[processor as usize];
        let changes = path.entries().iter().filter_map(|entry| self.changes.get(entry));
        let found = changes.max_by_key(|change| change.number).copied();
        // A store of this block may have written the entry: the trace has such stores behind the
        // accesses of the block.
        let why = found.and_then(|change| self.overdue(&change, of.task, u64::MAX));
        let (Some(change), Some(why), true) = (found, why, self.believes) else {
            self.unknown += 1;
            return;
        };
        self.report(processor, access, None, wrong, (Cause::Entry, Some(change), why), at);
    }

    /// A translation is used that is not what the page table says.
    fn stale(
        &mut self,
        processor: u32,
        (addr, kind, is_program): (u64, Kind, bool),
        held: Held,
        wrong: Wrong,
        at: u64,
    ) {
        if let Wrong::Unknown = wrong {
            self.unknown += 1;
            return;
        }
        let of = &self.processors[processor as usize];
        let changes = held.path.entries().iter().filter_map(|entry| self.changes.get(entry));
        let change =
            changes.filter(|change| change.number > held.loaded).max_by_key(|of| of.number);
        let (cause, change, why) = match (change, &of.entered) {
            (Some(change), _) => {
                let Some(why) = self.overdue(change, of.task, held.page.at(addr)) else {
                    self.allowed.deferred += 1;
                    return;
                };
                (Cause::Entry, Some(*change), why)
            }
            (None, Some(entered)) => (Cause::Root, Some(*entered), WHY_ROOT),
            (None, None) => (Cause::Space, None, WHY_SPACE),
        };
        if held.reported {
            self.uses += 1;
            return;
        }
        let used = Some(held.page.at(addr));
        self.report(processor, (addr, kind, is_program), used, wrong, (cause, change, why), at);
    }

    fn report(
        &mut self,
        processor: u32,
        (addr, kind, is_program): (u64, Kind, bool),
        used: Option<u64>,
        wrong: Wrong,
        (cause, change, why): (Cause, Option<Change>, &'static str),
        at: u64,
    ) {
        self.uses += 1;
        if self.reports.len() >= REPORTS_MAX {
            return;
        }
        let of = &self.processors[processor as usize];
        let report = Report {
            at,
            processor,
            task: self.name_of(of.task),
            code: of.code,
            addr,
            kind,
            is_program,
            used,
            wrong,
            cause,
            change: change.map(|change| (change, self.name_of(change.task))),
            why,
        };
        self.reports.push(report);
    }

    /// Why the flush for a change is overdue when `task` uses the old translation; `None` if the
    /// operation that made the change may still be in progress.
    fn overdue(&self, change: &Change, task: u64, frame: u64) -> Option<&'static str> {
        if change.task == task {
            return Some(WHY_ITSELF);
        }
        match self.returns.get(&change.task) {
            Some(&returns) => (returns > change.returns).then_some(WHY_RETURNED),
            // A kernel thread never returns to a program. It must flush before the frame is used
            // for something else.
            None => {
                let given = self.given.get(&(frame & !0xfff));
                given.is_some_and(|&given| given >= change.number).then_some(WHY_GIVEN)
            }
        }
    }

    /// A translation that the recorded processor found by a walk is compared with the page tables.
    pub(super) fn compare(
        &mut self,
        processor: u32,
        (addr, paddr, bytes): (u64, u64, u64),
        entries: &[u64],
    ) {
        let Some(of) = self.processors.get(processor as usize) else { return };
        let is_equal = match self.tables.walk(of.cr3 & bits::ROOT, addr) {
            Walk::Page(page, path) => {
                page.at(addr) == paddr && 1 << page.size_log == bytes && path.entries() == entries
            }
            Walk::Absent(_) | Walk::Unknown => false,
        };
        if is_equal {
            self.compared.0 += 1;
        } else {
            self.compared.1 += 1;
        }
    }
}

const WHY_ITSELF: &str = "the task that changed the entry uses the old translation itself";
const WHY_RETURNED: &str =
    "the task that changed the entry has returned to its program without a flush";
const WHY_GIVEN: &str = "the frame was mapped anew, or became a page table, without a flush";
const WHY_ROOT: &str = "another page table was loaded without a flush";
const WHY_SPACE: &str = "the space of the translation has ended";

fn right(kind: Kind, is_program: bool) -> u8 {
    1 << (kind as u8 + 3 * u8::from(is_program))
}

/// Whether a translation permits an access.
fn permits(page: &Page, kind: Kind, is_program: bool, cr0: u64) -> bool {
    let is_protected = is_program || cr0 & bits::WRITE_PROTECT != 0;
    (page.user || !is_program)
        && match kind {
            Kind::Load => true,
            Kind::Store => page.write || !is_protected,
            Kind::Fetch => page.execute,
        }
}

/// What is wrong with an access that a translation permits, when a walk finds `now`.
fn judge(
    held: &Page,
    now: Walk,
    addr: u64,
    kind: Kind,
    is_program: bool,
    cr0: u64,
) -> Option<Wrong> {
    match now {
        Walk::Absent(_) => Some(Wrong::Absent),
        Walk::Unknown => Some(Wrong::Unknown),
        Walk::Page(page, _) if page.at(addr) != held.at(addr) => Some(Wrong::Frame(page.at(addr))),
        Walk::Page(page, _) if !permits(&page, kind, is_program, cr0) => Some(Wrong::Right),
        Walk::Page(page, _) if kind == Kind::Store && !page.dirty => Some(Wrong::Clean),
        Walk::Page(..) => None,
    }
}
