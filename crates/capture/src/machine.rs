//! A whole machine: translates its recorder's reports into events of the trace.
//!
//! ```text
//!   write of CR3: root 0x1a2000   --> is it known?  no: the next process number
//!   Task 812 "sqlite3", this root --> the process of this root is called sqlite3
//!   Translation addr -> paddr     --> the same as the last one of this page: nothing
//!                                     otherwise: an event
//!   Table, Entries, Stored        --> events: the page tables themselves
//!   SpaceEnd of this root         --> the next program that gets this root is another process
//! ```
//!
//! Each virtual CPU is a thread of the trace. A space of the trace is an address space of the
//! guest, and has the number of a process of the recording. Process 0 is the kernel, whose
//! addresses are [`KERNEL_FROM`] and higher.

use ring::EventCode;
use rustc_hash::FxHashMap;
use trace::{Arch, Event, Process, Program, Seen, Sink, Translation};

use crate::decode::Fault;

/// The first address of the upper half of the addresses. Linux maps its kernel there in all spaces.
pub(crate) const KERNEL_FROM: u64 = 1 << 63;
/// The bits of CR3 that are the physical address of the root.
const ROOT: u64 = 0x000f_ffff_ffff_f000;
/// The name of a task without a name.
const UNNAMED: &str = "unnamed";

/// The name of a space whose task is not known, or not known yet.
fn nameless(root: u64) -> String {
    format!("space {root:#x}")
}

/// A translation as it was last recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Told {
    frame: u64,
    size_log: u8,
    rights: u8,
    entries: Box<[u64]>,
}

/// The recorded state of a whole machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The processes by their numbers: the kernel, then one for each address space.
    pub(crate) processes: Vec<Process>,
    /// The kernel's regions in its half of the addresses, which are recorded before everything else.
    regions: Vec<Event>,
    /// The kernel's regions at lower addresses. They are recorded in process 0, which runs before
    /// there are page tables, and in every space if the kernel has none in its half.
    lower: Vec<Event>,
    is_lower: bool,
    /// The numbers of the spaces that exist, by the physical address of their root.
    spaces: FxHashMap<u64, u32>,
    /// The recorded translations of each space. Those of the kernel are in the space
    /// [`trace::KERNEL`].
    told: FxHashMap<u32, FxHashMap<u64, Told>>,
    /// The space of each virtual CPU.
    here: Vec<u32>,
    /// The virtual CPU and the space of the last recorded access or event.
    last: Option<(u32, u32)>,
    /// If the recorder is being checked: the number of accesses that were compared with QEMU's TLB,
    /// and the number of these that differ.
    pub(crate) checked: (u64, u64),
    pub(crate) differences: Vec<String>,
    /// The numbers of accesses and instructions that were counted before.
    counted: (u64, u64),
}

impl Machine {
    /// A machine. `kernel` is the name of its kernel; `regions` and `lower` are events with the
    /// regions in the kernel's half of the addresses, and with those at lower addresses.
    pub(crate) fn new(kernel: &str, regions: Vec<Event>, lower: Vec<Event>) -> Machine {
        let mut machine = Machine {
            processes: Vec::new(),
            is_lower: regions.is_empty(),
            regions,
            lower,
            spaces: FxHashMap::default(),
            told: FxHashMap::default(),
            here: Vec::new(),
            last: None,
            checked: (0, 0),
            differences: Vec::new(),
            counted: (0, 0),
        };
        machine.begin(kernel, 0);
        machine
    }

    /// Begins a process. `from` is the number of accesses before it.
    fn begin(&mut self, name: &str, from: u64) -> u32 {
        let number = self.processes.len() as u32;
        self.processes.push(Process {
            number,
            pid: 0,
            parent: None,
            parent_accesses: None,
            shares_space: false,
            began_ns: 0,
            programs: vec![Program { arch: Arch::X86_64, command: vec![name.to_owned()], from }],
            accesses: 0,
            instructions: 0,
        });
        number
    }

    /// Ends the space with this root, if there is one.
    fn end(&mut self, root: u64) {
        if let Some(space) = self.spaces.remove(&root) {
            self.told.remove(&space);
        }
    }

    /// Sets the space in which the virtual CPU `thread` runs from now on.
    fn enter(&mut self, thread: u32, space: u32) {
        let thread = thread as usize;
        if self.here.len() <= thread {
            self.here.resize(thread + 1, 0);
        }
        self.here[thread] = space;
    }

    fn space_of(&self, thread: u32) -> u32 {
        self.here.get(thread as usize).copied().unwrap_or(0)
    }

    /// Adds the accesses and instructions since the last call to the counts of the space that has
    /// run.
    pub(crate) fn count(&mut self, (accesses, instructions): (u64, u64)) {
        let process = self.last.and_then(|(_, space)| self.processes.get_mut(space as usize));
        if let Some(process) = process {
            process.accesses += accesses - self.counted.0;
            process.instructions += instructions - self.counted.1;
        }
        self.counted = (accesses, instructions);
    }

    /// Reports which virtual CPU and which space the next accesses belong to, if one of them has
    /// changed.
    pub(crate) fn turn(&mut self, thread: u32, sink: &mut dyn Sink) -> Result<(), trace::Error> {
        let space = self.space_of(thread);
        if self.last != Some((thread, space)) {
            self.count((sink.accesses(), sink.instructions()));
            let is_first = self.last.is_none();
            if !self.regions.is_empty() {
                let space = trace::KERNEL;
                sink.event(thread, Event::Run { cpu: Some(thread), space })?;
                self.regions.drain(..).try_for_each(|event| sink.event(thread, event))?;
            }
            if self.last.is_none_or(|(_, before)| before != space) {
                sink.event(thread, Event::Process { number: space })?;
            }
            sink.event(thread, Event::Run { cpu: Some(thread), space })?;
            self.last = Some((thread, space));
            if is_first {
                self.tell_lower(thread, sink)?;
            }
        }
        Ok(())
    }

    /// Records the kernel's regions at lower addresses in the space that runs.
    fn tell_lower(&self, thread: u32, sink: &mut dyn Sink) -> Result<(), trace::Error> {
        self.lower.iter().cloned().try_for_each(|event| sink.event(thread, event))
    }

    /// Handles an event of the virtual CPU `thread`.
    pub(crate) fn take(
        &mut self,
        thread: u32,
        code: EventCode,
        words: &[u64],
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        match (code, words) {
            (EventCode::Translation, &[addr, paddr, about, ref entries @ ..]) => {
                let about = ring::Machine::from_bits(about);
                self.translated(thread, (addr, paddr), about, entries, sink)?;
            }
            (EventCode::Control, &[3, _, value]) => {
                sink.event(thread, Event::Control { number: 3, value })?;
                let root = value & ROOT;
                let known = self.spaces.get(&root).copied();
                let space = known.unwrap_or_else(|| {
                    let space = self.begin(&nameless(root), sink.accesses());
                    self.spaces.insert(root, space);
                    space
                });
                self.enter(thread, space);
                self.turn(thread, sink)?;
                if known.is_none() && self.is_lower {
                    self.tell_lower(thread, sink)?;
                }
            }
            (EventCode::Control, &[number @ (0 | 4), _, value]) => {
                sink.event(thread, Event::Control { number: number as u8, value })?;
            }
            (EventCode::Table, &[table]) => {
                let (paddr, level) = (table & !0xfff, (table & 0xfff) as u8);
                if level == 0 {
                    self.end(paddr);
                }
                sink.event(thread, Event::Table { paddr, level })?;
            }
            (EventCode::Entries, &[first, ref values @ ..]) => {
                for (at, &value) in values.iter().enumerate() {
                    let paddr = first.wrapping_add(8 * at as u64);
                    sink.event(thread, Event::Entry { paddr, value, stored: false })?;
                }
            }
            (EventCode::Stored, &[paddr, value]) => {
                sink.event(thread, Event::Entry { paddr, value, stored: true })?;
            }
            (EventCode::Control, &[_, _, _]) | (EventCode::Left, &[_]) => {}
            (EventCode::Flush, &[addr]) => sink.event(thread, Event::Flush { addr })?,
            (EventCode::Interrupt, &[about, pc, addr]) => {
                let (vector, error) = (about as u8, (about >> 32) as u32);
                let device = about >> 8 & 0xff == 2;
                let addr = (vector == PAGE_FAULT && !device).then_some(addr);
                sink.event(thread, Event::Interrupt { vector, device, pc, error, addr })?;
            }
            (EventCode::Task, &[ids, is_program, root, first, second]) => {
                let name = text([first, second]);
                if is_program != 0 {
                    self.name(root, ids, &name, sink.accesses());
                }
                let (pid, tgid) = (ids as u32, (ids >> 32) as u32);
                sink.event(thread, Event::Task { pid, tgid, name })?;
            }
            (EventCode::Named, &[ids, _, root, first, second]) => {
                self.name(root, ids, &text([first, second]), sink.accesses());
            }
            (EventCode::Physical, &[addr, paddr, size_log]) => {
                self.check(thread, addr, paddr, size_log)
            }
            (EventCode::SpaceEnd, &[root]) => self.end(root & ROOT),
            _ => return Err(Fault::Garbled(format!("an event {code:?} in {} words", words.len()))),
        }
        Ok(())
    }

    /// Compares the translation of `addr` with that of QEMU's own TLB.
    fn check(&mut self, thread: u32, addr: u64, paddr: u64, size_log: u64) {
        let space = if addr >= KERNEL_FROM { trace::KERNEL } else { self.space_of(thread) };
        let size_log = size_log.max(12) as u8;
        let mask = (1u64 << size_log.min(51)) - 1;
        let told = self.told.get(&space).and_then(|pages| pages.get(&(addr & !mask)));
        let is_equal =
            told.is_some_and(|told| told.size_log == size_log && told.frame == paddr & !mask);
        self.checked.0 += 1;
        if !is_equal {
            self.checked.1 += 1;
            if self.differences.len() < DIFFERENCES_MAX {
                let text = format!(
                    "{addr:#x} in space {space} is at {paddr:#x} in QEMU's TLB, but was recorded \
                     as {told:x?}"
                );
                self.differences.push(text);
            }
        }
    }

    /// Gives the process of the space with this `root` the name and identifiers of the task that
    /// runs in it.
    fn name(&mut self, root: u64, ids: u64, name: &str, from: u64) {
        // A kernel thread may have no space.
        let Some(&space) = self.spaces.get(&(root & ROOT)).filter(|_| root != 0) else { return };
        let process = &mut self.processes[space as usize];
        process.pid = (ids >> 32) as u32;
        match process.programs.last_mut() {
            Some(last) if last.name() == name => {}
            Some(last) if last.name() == nameless(root & ROOT) => {
                last.command = vec![name.to_owned()]
            }
            _ => {
                let command = vec![name.to_owned()];
                process.programs.push(Program { arch: Arch::X86_64, command, from });
            }
        }
    }

    /// Handles the event that a page was looked up in the page table.
    fn translated(
        &mut self,
        thread: u32,
        (addr, paddr): (u64, u64),
        about: ring::Machine,
        entries: &[u64],
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        if !(12..=51).contains(&about.size_log) {
            return Err(Fault::Garbled(format!("a page of 2^{} bytes", about.size_log)));
        }
        let mask = (1u64 << about.size_log) - 1;
        let (addr, frame) = (addr & !mask, paddr & !mask);
        let rights = Translation::READ
            | if about.writable { Translation::WRITE } else { 0 }
            | if about.executable { Translation::EXECUTE } else { 0 }
            | if about.user { Translation::USER } else { 0 }
            | if about.global { Translation::GLOBAL } else { 0 };
        let told = Told { frame, size_log: about.size_log, rights, entries: entries.into() };
        let space = if addr >= KERNEL_FROM { trace::KERNEL } else { self.space_of(thread) };
        let pages = self.told.entry(space).or_default();
        if pages.get(&addr) == Some(&told) {
            return Ok(());
        }
        let translation = Translation {
            page_bytes: mask + 1,
            paddr: Some(frame),
            rights: Some(rights),
            entries: entries.to_vec(),
            ..Translation::base(Seen::Walk, addr)
        };
        forget_others(pages, addr, about.size_log);
        pages.insert(addr, told);
        sink.event(thread, Event::Translation(Box::new(translation)))?;
        Ok(())
    }
}

/// Drops pages of other sizes at the addresses of a page that begins at `addr`.
fn forget_others(pages: &mut FxHashMap<u64, Told>, addr: u64, size_log: u8) {
    for other in PAGE_LOGS {
        let (other_bytes, bytes) = (1u64 << other, 1u64 << size_log);
        if other > size_log {
            let start = addr & !(other_bytes - 1);
            if pages.get(&start).is_some_and(|told| told.size_log == other) {
                pages.remove(&start);
            }
        } else if other < size_log && bytes / other_bytes <= 1 << 10 {
            for start in (addr..addr + (bytes - 1)).step_by(other_bytes as usize) {
                if pages.get(&start).is_some_and(|told| told.size_log == other) {
                    pages.remove(&start);
                }
            }
        }
    }
}

/// The logarithms of the sizes of pages.
const PAGE_LOGS: [u8; 4] = [12, 21, 22, 30];

/// The maximum number of differences that are listed.
const DIFFERENCES_MAX: usize = 10;

/// The vector of a page fault.
const PAGE_FAULT: u8 = 14;

/// A name of at most 16 bytes.
fn text(words: [u64; 2]) -> String {
    let bytes = words.map(u64::to_le_bytes).concat();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let name = String::from_utf8_lossy(&bytes[..end]).into_owned();
    if name.is_empty() { UNNAMED.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use trace::{Batch, Batcher};

    use super::*;

    /// A machine, and the sink that receives its events.
    struct Told {
        machine: Machine,
        sink: Batcher,
    }

    impl Told {
        fn new() -> Told {
            Told { machine: Machine::new("Linux", Vec::new(), Vec::new()), sink: Batcher::new() }
        }

        fn take(&mut self, thread: u32, code: EventCode, words: &[u64]) -> Vec<Event> {
            self.machine.turn(thread, &mut self.sink).unwrap();
            self.machine.take(thread, code, words, &mut self.sink).unwrap();
            let mut batch = Batch::default();
            self.sink.take(&mut batch);
            batch.events.into_iter().map(|placed| placed.event).collect()
        }

        fn root(&mut self, thread: u32, root: u64) {
            self.take(thread, EventCode::Control, &[3, 0, root]);
        }

        /// Whether a page that was looked up gives an event.
        fn page(&mut self, thread: u32, addr: u64, paddr: u64, size_log: u8) -> bool {
            let about = ring::Machine { size_log, entries: 1, ..ring::Machine::from_bits(0) };
            let words = [addr, paddr, about.bits(), 0x1000];
            let events = self.take(thread, EventCode::Translation, &words);
            events.iter().any(|event| matches!(event, Event::Translation(_)))
        }

        fn name(&mut self, root: u64, name: &[u8; 16]) {
            let [first, second] =
                [&name[..8], &name[8..]].map(|half| u64::from_le_bytes(half.try_into().unwrap()));
            let ids = 7 << 32 | 8;
            self.take(0, EventCode::Task, &[ids, 1, root, first, second]);
        }
    }

    #[test]
    fn a_page_is_told_when_it_changes() {
        let mut told = Told::new();
        told.root(0, 0x5000);
        assert!(told.page(0, 0x40_1234, 0x7234, 12));
        assert!(!told.page(0, 0x40_1fff, 0x7fff, 12));
        assert!(told.page(0, 0x40_1000, 0x8000, 12));
        // A page of 2M replaces all smaller pages in it, and a smaller page replaces the page of
        // 2M.
        assert!(told.page(0, 0x40_0000, 0x20_0000, 21));
        assert!(!told.page(0, 0x40_1000, 0x20_1000, 21));
        assert!(told.page(0, 0x40_1000, 0x8000, 12));
        assert!(told.page(0, 0x40_0000, 0x20_0000, 21));
        // Each space has its own translations of user addresses. Translations of kernel addresses
        // are common to all spaces.
        let kernel = KERNEL_FROM | 0x1000;
        assert!(told.page(0, kernel, 0x1000, 12));
        told.root(0, 0x6000);
        assert!(told.page(0, 0x40_0000, 0x20_0000, 21));
        assert!(!told.page(0, kernel, 0x1000, 12));
        told.root(0, 0x5000);
        assert!(!told.page(0, 0x40_0000, 0x20_0000, 21));
        // If the root of a space that has ended, or a root that is no longer a table, is used again, it
        // is the root of a new space.
        for (code, words) in [(EventCode::SpaceEnd, [0x5000]), (EventCode::Table, [0x5000])] {
            told.take(0, code, &words);
            told.root(0, 0x5000);
            assert!(told.page(0, 0x40_0000, 0x20_0000, 21));
        }
    }

    #[test]
    fn spaces_are_processes_with_the_names_of_their_tasks() {
        let mut told = Told::new();
        told.root(0, 0x4000);
        told.root(0, 0x5000);
        told.name(0x5000, b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        told.name(0x5000, b"a-name-of-16-let");
        told.name(0x5000, b"a-name-of-16-let");
        told.root(1, 0x6000);
        let names = |process: &Process| {
            let programs = process.programs.iter();
            programs.map(|program| program.name().to_owned()).collect::<Vec<_>>()
        };
        let processes = &told.machine.processes;
        let found: Vec<_> = processes.iter().map(names).collect();
        let program = vec!["sh", "a-name-of-16-let"];
        let all = [vec!["Linux"], vec!["space 0x4000"], program, vec!["space 0x6000"]];
        assert_eq!(found, all);
        assert_eq!((processes[2].pid, processes[2].number), (7, 2));
    }

    /// A kernel's regions at lower addresses are in every space only if it has no others.
    #[test]
    fn lower_regions_are_told_where_they_are() {
        let region = |start| Event::Mapping {
            start,
            bytes: 0x1000,
            rights: 5,
            origin: trace::Origin::Other("image".to_owned()),
            offset: None,
            file: None,
        };
        for (upper, in_spaces) in [(vec![], 1), (vec![region(KERNEL_FROM)], 0)] {
            let mut told = Told::new();
            let all = upper.len();
            told.machine = Machine::new("kernel", upper, vec![region(0x10_0000)]);
            let mut count = |code, words: &[u64]| {
                let events = told.take(0, code, words);
                events.iter().filter(|event| matches!(event, Event::Mapping { .. })).count()
            };
            assert_eq!(count(EventCode::Left, &[1]), all + 1);
            assert_eq!(count(EventCode::Control, &[3, 0, 0x5000]), in_spaces);
            assert_eq!(count(EventCode::Control, &[3, 0, 0x5000]), 0);
            assert_eq!(count(EventCode::Control, &[3, 0, 0x6000]), in_spaces);
        }
    }

    /// Each virtual CPU runs in a space of its own, and the trace says in which.
    #[test]
    fn a_turn_of_another_processor_is_told() {
        let mut told = Told::new();
        told.root(0, 0x5000);
        told.root(1, 0x6000);
        let runs = |events: Vec<Event>| {
            let run = |event: &Event| match *event {
                Event::Run { cpu, space } => Some((cpu, space)),
                _ => None,
            };
            events.iter().filter_map(run).collect::<Vec<_>>()
        };
        assert_eq!(runs(told.take(0, EventCode::Left, &[1])), [(Some(0), 1)]);
        assert_eq!(runs(told.take(0, EventCode::Left, &[1])), []);
        assert_eq!(runs(told.take(1, EventCode::Left, &[1])), [(Some(1), 2)]);
        assert_eq!(runs(told.take(1, EventCode::Control, &[3, 0, 0x5000])), [(Some(1), 1)]);
    }

    #[test]
    fn page_tables_and_control_registers_are_events() {
        let mut told = Told::new();
        let mut events = |code, words: &[u64]| {
            let events = told.take(0, code, words);
            let is_table = |event: &Event| {
                matches!(event, Event::Table { .. } | Event::Entry { .. } | Event::Control { .. })
            };
            events.into_iter().filter(is_table).collect::<Vec<_>>()
        };
        let entry = |paddr, value, stored| Event::Entry { paddr, value, stored };
        let control = |number, value| vec![Event::Control { number, value }];
        assert_eq!(events(EventCode::Control, &[4, 0, 0x20]), control(4, 0x20));
        assert_eq!(events(EventCode::Control, &[3, 0, 0x5018]), control(3, 0x5018));
        let table = Event::Table { paddr: 0x5000, level: 4 };
        assert_eq!(events(EventCode::Table, &[0x5004]), [table]);
        let found = [entry(0x5ff0, 7, false), entry(0x5ff8, 9, false)];
        assert_eq!(events(EventCode::Entries, &[0x5ff0, 7, 9]), found);
        assert_eq!(events(EventCode::Stored, &[0x5008, 1]), [entry(0x5008, 1, true)]);
        let ends = Event::Table { paddr: 0x5000, level: 0 };
        assert_eq!(events(EventCode::Table, &[0x5000]), [ends]);
    }

    #[test]
    fn what_no_recorder_writes_is_refused() {
        for (code, words) in [
            (EventCode::Translation, &[0, 0][..]),
            (EventCode::Translation, &[0, 0, 99]),
            (EventCode::Control, &[3]),
            (EventCode::Task, &[]),
            (EventCode::ThreadStart, &[1]),
        ] {
            let mut told = Told::new();
            assert!(told.machine.take(0, code, words, &mut told.sink).is_err());
        }
    }
}
