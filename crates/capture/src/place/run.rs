//! The launcher: waits for traced threads, and handles each stop.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::memory::{self, blocks, whole_pages};
use super::space::{Break, Got, Kind, Mapped, Move, Space, parts};
use super::start::{Started, Step, start};
use super::timer::Timer;
use super::{LARGE, Options, Wish};
use crate::Error;
use crate::command::Program;
use crate::inject::other_rights;
use crate::maps::Line;
use crate::signals::Guard;
use crate::tracee::{CALL_STOP, SYSCALL, Tracee, check_host};

const MADV_HUGEPAGE: u64 = 14;
const MADV_NOHUGEPAGE: u64 = 15;
const MADV_COLLAPSE: u64 = 25;
const CLONE_UNTRACED: u64 = libc::CLONE_UNTRACED as u64;
/// The code segment of 64-bit programs.
const CODE_64: u64 = 0x33;
/// The size in bytes to which a stack without a limit is grown.
const STACK_MAX: u64 = 64 << 20;
/// The stack is grown to its limit minus this number of bytes.
const STACK_LEFT: u64 = 256 << 10;
/// The period of searches for blocks that have filled up with base pages.
const PERIOD: Duration = Duration::from_millis(20);
/// The pause after a search is at least this many times as long as the search took.
const SHARE: u32 = 9;
/// The maximum number of blocks that are collapsed at once. This takes a few tens of milliseconds.
const BLOCKS_MAX: usize = 16;
/// The maximum number of notes that are kept. A program may cause notes very often.
const NOTES_MAX: usize = 32;

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The program's exit status; 128 plus the signal's number if a signal ended it.
    pub status: i32,
    /// The outcome of each rule.
    pub got: Vec<Got>,
    /// Notes, each once.
    pub notes: Vec<String>,
    /// The number of processes that were placed.
    pub processes: u64,
    /// The number of system calls that stopped the program.
    pub stops: u64,
    /// Whether the kernel reports which pages are large (`PAGEMAP_SCAN`).
    pub is_counted: bool,
    /// The resources used by the program and the children that it has waited for.
    pub usage: Usage,
}

/// The system's counts for a process and the children that it has waited for.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// Seconds in user mode.
    pub user_seconds: f64,
    /// Seconds in the kernel.
    pub system_seconds: f64,
    /// The largest resident size of one process in bytes.
    pub resident_bytes_max: u64,
    /// Page faults without disk reads.
    pub minor_faults: u64,
    /// Page faults with disk reads.
    pub major_faults: u64,
}

impl Usage {
    fn of(usage: &libc::rusage) -> Usage {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Usage {
            user_seconds: seconds(usage.ru_utime),
            system_seconds: seconds(usage.ru_stime),
            resident_bytes_max: (usage.ru_maxrss as u64) << 10,
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
        }
    }
}

/// Runs a program and all that it starts to their ends. Calls `look` for each process that ends, while its
/// memory still exists.
pub fn place(options: &Options, look: &mut dyn FnMut(i32)) -> Result<Outcome, Error> {
    check_host()?;
    let program = Program::find(&options.command)?;
    let path = located(&options.command, &program);
    // SAFETY: a plain system call.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root && let Some(why) = other_rights(&path) {
        return Err(Error::OtherRights { program: path, why });
    }
    let argv0 = &options.command[0];
    let failed = |error| Error::System { what: format!("cannot start {}", path.display()), error };
    let signals = Guard::new();
    let started = start(&path, argv0, options).map_err(failed)?;
    let traced = [
        libc::PTRACE_O_EXITKILL,
        libc::PTRACE_O_TRACESYSGOOD,
        libc::PTRACE_O_TRACESECCOMP,
        libc::PTRACE_O_TRACEFORK,
        libc::PTRACE_O_TRACEVFORK,
        libc::PTRACE_O_TRACECLONE,
        libc::PTRACE_O_TRACEEXEC,
        libc::PTRACE_O_TRACEEXIT,
    ];
    let traced = traced.into_iter().fold(0, |all, one| all | one);
    // SAFETY: the child was started by this process, and waits.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, started.pid, 0, traced) } < 0 {
        let mut status = 0;
        // SAFETY: the child waits for a byte and has done nothing.
        unsafe {
            libc::kill(started.pid, libc::SIGKILL);
            libc::waitpid(started.pid, &mut status, libc::__WALL);
        }
        return Err(Error::Untraced(path));
    }
    signals.set_program(started.pid as u32);
    started.go();
    let mut launcher = Launcher::new(options, is_root, started.pid, look);
    {
        let is_large = |rule: &super::Rule| rule.wish == Wish::Large;
        let _timer = options.rules.iter().any(is_large).then(|| Timer::new(PERIOD));
        launcher.run(&signals)?;
    }
    launcher.outcome(&path, &started)
}

/// The file that is executed: for a script, the script itself.
fn located(command: &[std::ffi::OsString], program: &Program) -> PathBuf {
    let name = &command[0];
    let script = program.arguments.iter().find(|&word| {
        let path = Path::new(word);
        path.file_name().is_some() && path.file_name() == Path::new(name).file_name()
    });
    if name.as_bytes().contains(&b'/') {
        PathBuf::from(name)
    } else if program.argv0 == *name {
        program.path.clone()
    } else {
        script.map_or_else(|| program.path.clone(), PathBuf::from)
    }
}

struct Process {
    space: Rc<RefCell<Space>>,
    /// Whether the process has a filter of its own. That filter might end the process because of a
    /// call that the launcher makes it execute.
    has_filter: bool,
    /// Whether the program is a 64-bit program.
    is_wide: bool,
}

/// A thread that has stopped, and the known state of its process.
struct Stop<'t> {
    tracee: &'t mut Tracee,
    space: &'t RefCell<Space>,
    /// Whether the stopped thread's process has installed a filter of its own.
    has_filter: bool,
}

impl Stop<'_> {
    /// Makes the thread call `madvise`.
    fn madvise(&mut self, (start, end): (u64, u64), advice: u64) -> io::Result<()> {
        // At the end of a system call, the previous instruction is the one that has made the call.
        let site = self.space.borrow().site.unwrap_or(self.tracee.registers.rip.wrapping_sub(2));
        let arguments = [start, end - start, advice, 0, 0, 0];
        self.tracee.call_at(site, libc::SYS_madvise as u64, arguments).map(|_| ())
    }

    /// Runs the system call at which the thread has stopped. Returns the error number if the call
    /// failed.
    fn finish(&mut self) -> io::Result<Option<i32>> {
        self.tracee.until_call()?;
        self.tracee.get()?;
        Ok(failed(self.tracee.registers.rax))
    }

    /// Returns an error if the thread has stopped for another reason meanwhile.
    fn left(&self) -> io::Result<()> {
        match self.tracee.left {
            Some(_) => Err(io::Error::other("its thread stopped before the system call ended")),
            None => Ok(()),
        }
    }
}

struct Launcher<'a> {
    options: &'a Options,
    is_root: bool,
    first: i32,
    status: Option<i32>,
    usage: Usage,
    /// The process of each thread.
    threads: HashMap<i32, i32>,
    processes: HashMap<i32, Process>,
    /// Children that have stopped before the parent's event for them.
    early: HashSet<i32>,
    pending: VecDeque<(i32, i32)>,
    got: Vec<Got>,
    by_address: Vec<bool>,
    notes: BTreeSet<String>,
    count: u64,
    stops: u64,
    is_counted: bool,
    /// For each thread that is interrupted: the blocks that it is to collapse.
    wanted: HashMap<i32, Vec<u64>>,
    /// Whether the kernel lets this process collapse memory of other processes.
    may_advise: bool,
    /// The earliest time of the next search for blocks.
    again: Instant,
    look: &'a mut dyn FnMut(i32),
}

impl<'a> Launcher<'a> {
    fn new(
        options: &'a Options,
        is_root: bool,
        first: i32,
        look: &'a mut dyn FnMut(i32),
    ) -> Launcher<'a> {
        let space = Rc::default();
        let process = Process { space, has_filter: false, is_wide: true };
        let rules = options.rules.len();
        Launcher {
            options,
            is_root,
            first,
            status: None,
            usage: Usage::default(),
            threads: HashMap::from([(first, first)]),
            processes: HashMap::from([(first, process)]),
            early: HashSet::new(),
            pending: VecDeque::new(),
            got: vec![Got::default(); rules],
            by_address: vec![false; rules],
            notes: BTreeSet::new(),
            count: 0,
            stops: 0,
            is_counted: true,
            wanted: HashMap::new(),
            may_advise: true,
            again: Instant::now(),
            look,
        }
    }

    /// Runs until no traced process is left. The caller may have other children.
    fn run(&mut self, signals: &Guard) -> Result<(), Error> {
        while self.status.is_none() || !self.processes.is_empty() {
            let (pid, status, usage) = match self.pending.pop_front() {
                // A pending process has only stopped, and has no usage to report yet.
                Some((pid, status)) => (pid, status, Usage::default()),
                None => match wait() {
                    Ok(stop) => stop,
                    Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                        self.fill();
                        continue;
                    }
                    Err(error) => {
                        let what = "cannot wait for the program".to_owned();
                        return Err(Error::System { what, error });
                    }
                },
            };
            if libc::WIFSTOPPED(status) {
                self.stopped(pid, status);
            } else {
                self.ended(pid, status, usage, signals);
            }
        }
        Ok(())
    }

    fn outcome(self, path: &Path, started: &Started) -> Result<Outcome, Error> {
        if let Some((step, number)) = started.failed() {
            let error = io::Error::from_raw_os_error(number);
            return Err(match step {
                Step::Only => Error::NoExcept,
                Step::Filter => Error::NoFilter(error),
                Step::Execute => {
                    Error::System { what: format!("cannot start {}", path.display()), error }
                }
            });
        }
        Ok(Outcome {
            status: self.status.unwrap_or(127),
            got: self.got,
            notes: self.notes.into_iter().collect(),
            processes: self.count,
            stops: self.stops,
            is_counted: self.is_counted,
            usage: self.usage,
        })
    }

    fn note(&mut self, text: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.insert(text);
        }
    }

    fn ended(&mut self, pid: i32, status: i32, usage: Usage, signals: &Guard) {
        self.early.remove(&pid);
        self.threads.remove(&pid);
        if self.processes.remove(&pid).is_none() {
            return;
        }
        if pid == self.first {
            self.status = Some(match libc::WIFSIGNALED(status) {
                true => 128 + libc::WTERMSIG(status),
                false => libc::WEXITSTATUS(status),
            });
            self.usage = usage;
            signals.program_ended();
        }
        if self.status.is_some()
            && let Some(&next) = self.processes.keys().next()
        {
            // A signal that would end the launcher is meant for the program for which the launcher
            // still waits.
            signals.set_program(next as u32);
        }
    }

    fn stopped(&mut self, pid: i32, status: i32) {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        match event {
            libc::PTRACE_EVENT_SECCOMP => {
                self.stops += 1;
                self.called(pid);
                proceed(pid, 0);
            }
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                self.born(pid, event);
                proceed(pid, 0);
            }
            libc::PTRACE_EVENT_EXEC => {
                self.executed(pid);
                proceed(pid, 0);
            }
            libc::PTRACE_EVENT_EXIT => {
                self.ending(pid);
                proceed(pid, 0);
            }
            libc::PTRACE_EVENT_STOP => {
                let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
                if !self.threads.contains_key(&pid) {
                    self.early.insert(pid);
                } else if stops.contains(&signal) {
                    // The process stays stopped until it gets SIGCONT. SAFETY: the process waits
                    // for its tracer.
                    unsafe { libc::ptrace(libc::PTRACE_LISTEN, pid, 0, 0) };
                } else {
                    self.interrupted(pid);
                    proceed(pid, 0);
                }
            }
            _ if signal == CALL_STOP => proceed(pid, 0),
            _ => proceed(pid, signal),
        }
    }

    /// Adds a new thread or process.
    fn born(&mut self, parent: i32, event: i32) {
        let Some(pid) = message(parent) else { return };
        let Some(&of) = self.threads.get(&parent) else { return };
        let process =
            if event == libc::PTRACE_EVENT_CLONE { process_of(pid).unwrap_or(of) } else { pid };
        self.threads.insert(pid, process);
        if process != of
            && let Some(from) = self.processes.get(&of)
        {
            let space = if event == libc::PTRACE_EVENT_FORK {
                Rc::new(RefCell::new(from.space.borrow().forked()))
            } else {
                Rc::clone(&from.space)
            };
            let (has_filter, is_wide) = (from.has_filter, from.is_wide);
            self.processes.insert(process, Process { space, has_filter, is_wide });
        }
        if self.early.remove(&pid) {
            proceed(pid, 0);
        }
    }

    /// Handles the end of a thread. If it is the first thread of its process to end, counts the
    /// memory of the process.
    fn ending(&mut self, pid: i32) {
        let Some(process) = self.processes.get(&pid) else { return };
        if Rc::strong_count(&process.space) > 1 {
            return;
        }
        let space = Rc::clone(&process.space);
        (self.look)(pid);
        if !space.borrow().is_copy && process.is_wide {
            // Replaces the advised ranges by all ranges that are mapped now. Small mappings may have
            // merged into one.
            space.borrow_mut().take(0, u64::MAX);
            let mut mappings = vec![0; self.got.len()];
            for (start, end, rule) in self.ruled(pid) {
                space.borrow_mut().add(start, end, rule);
                mappings[rule] += 1;
            }
            for (got, mappings) in self.got.iter_mut().zip(mappings) {
                // Memory that was mapped in parts of less than 2 MiB was never advised.
                if got.mappings == 0 {
                    got.mappings = mappings;
                }
            }
        }
        self.count_range(pid, &space, 0, u64::MAX);
    }

    /// The parts of a process's memory to which rules apply: start, end and index of the rule.
    fn ruled(&self, pid: i32) -> Vec<(u64, u64, usize)> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mut found = Vec::new();
        for (line, kind) in kinds(&maps) {
            let file = line.path.rsplit('/').next().unwrap_or_default();
            let (start, end) = (line.start, line.end);
            // Of mappings that are smaller than a large page, only those of a heap or of a stack
            // count.
            if end - start < LARGE && !matches!(kind, Kind::Heap | Kind::Stack) {
                continue;
            }
            let parts =
                parts(&self.options.rules, &Mapped { start, end, kind, file }, &self.by_address);
            found.extend(parts.iter().map(|part| (part.start, part.end, part.rule)));
        }
        found
    }

    /// Collapses blocks that have filled up with base pages, for a limited share of the time.
    fn fill(&mut self) {
        let began = Instant::now();
        if began < self.again {
            return;
        }
        let running = |process: &Process| {
            let is_own = Rc::strong_count(&process.space) == 1 && !process.space.borrow().is_copy;
            is_own && process.is_wide && !process.has_filter
        };
        let processes = self.processes.iter().filter(|(_, process)| running(process));
        let processes: Vec<i32> = processes.map(|(&pid, _)| pid).collect();
        for pid in processes {
            let blocks = self.filled(pid);
            if !blocks.is_empty() {
                self.make_large(pid, blocks);
            }
        }
        self.again = Instant::now() + began.elapsed() * SHARE;
    }

    /// The blocks of a process that are full of base pages, and for which a rule requests large
    /// pages.
    fn filled(&mut self, pid: i32) -> Vec<u64> {
        let Some(process) = self.processes.get(&pid) else { return Vec::new() };
        let space = Rc::clone(&process.space);
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        let now = pages.unwrap_or(0) * 4096;
        {
            // Memory that was freed since then may be filled again: a block that could not be made
            // large while it was being unmapped may now belong to other memory.
            let mut space = space.borrow_mut();
            if now < space.seen {
                space.seen = now;
                space.refused.clear();
            }
            if now < space.seen + 2 * LARGE || space.site.is_none() {
                return Vec::new();
            }
        }
        let Ok(pagemap) = File::open(format!("/proc/{pid}/pagemap")) else { return Vec::new() };
        let mut found = Vec::new();
        for (start, end, rule) in self.ruled(pid) {
            if self.options.rules[rule].wish == Wish::Large {
                found.extend(memory::full_blocks(&pagemap, start, end));
            } else {
                found.retain(|block| !(start..end).contains(block));
            }
        }
        found.retain(|block| !space.borrow().refused.contains(block));
        if found.len() <= BLOCKS_MAX {
            space.borrow_mut().seen = now;
        }
        found.truncate(BLOCKS_MAX);
        found
    }

    fn make_large(&mut self, pid: i32, blocks: Vec<u64>) {
        for &block in &blocks {
            if !self.may_advise {
                break;
            }
            match super::live::remotely(pid, block, block + LARGE) {
                Ok(0) => {}
                Ok(libc::EPERM) => self.may_advise = false,
                Ok(_) => self.refuse(pid, block),
                Err(_gone) => return,
            }
        }
        if !self.may_advise {
            // A call that waits might return EINTR if it were interrupted. So only a thread that
            // runs its own code is interrupted.
            let runs =
                self.threads.iter().find(|&(&thread, &of)| of == pid && computes(pid, thread));
            if let Some((&thread, _)) = runs {
                self.wanted.insert(thread, blocks);
                // SAFETY: this process traces the thread.
                unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) };
            }
        }
    }

    fn refuse(&mut self, pid: i32, block: u64) {
        if let Some(process) = self.processes.get(&pid) {
            process.space.borrow_mut().refused.insert(block);
        }
    }

    /// Handles a thread that has stopped because it was interrupted, or without a reason.
    fn interrupted(&mut self, thread: i32) {
        let Some(blocks) = self.wanted.remove(&thread) else { return };
        let Some(&pid) = self.threads.get(&thread) else { return };
        let Some(space) = self.processes.get(&pid).map(|process| Rc::clone(&process.space)) else {
            return;
        };
        let Ok(mut tracee) = Tracee::of(thread) else { return };
        let mut stop = Stop { tracee: &mut tracee, space: &space, has_filter: false };
        for block in blocks {
            if stop.madvise((block, block + LARGE), MADV_COLLAPSE).is_err() {
                self.refuse(pid, block);
            }
            if stop.tracee.left.is_some() {
                break;
            }
        }
        self.pending.extend(tracee.left.map(|status| (thread, status)));
    }

    fn count_range(&mut self, pid: i32, space: &RefCell<Space>, start: u64, end: u64) {
        let mut space = space.borrow_mut();
        if space.pagemap.is_none() {
            space.pagemap = File::open(format!("/proc/{pid}/pagemap")).ok();
        }
        let works = space.pagemap.as_ref().is_some_and(|file| memory::scan(file, 0, 0).is_some());
        self.is_counted &= works;
        space.count(start, end, &mut self.got);
    }

    /// Handles the beginning of a program.
    fn executed(&mut self, pid: i32) {
        self.threads.insert(pid, pid);
        let before = self.processes.get(&pid);
        let has_filter = before.is_some_and(|process| process.has_filter);
        let space = Rc::new(RefCell::new(Space::default()));
        let process = Process { space: Rc::clone(&space), has_filter, is_wide: true };
        self.processes.insert(pid, process);
        self.count += 1;
        let Ok(mut tracee) = Tracee::of(pid) else { return };
        if let Err(_gone) = tracee.until_call().and_then(|()| tracee.get()) {
            self.pending.extend(tracee.left.map(|status| (pid, status)));
            return;
        }
        if tracee.registers.cs != CODE_64 {
            self.note(format!("{} is a 32-bit program and was not placed", program_name(pid)));
            if let Some(process) = self.processes.get_mut(&pid) {
                process.is_wide = false;
            }
            return;
        }
        let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/maps")) else { return };
        let lines: Vec<Line<'_>> = maps.lines().filter_map(Line::parse).collect();
        let site = call_site(&tracee, &lines);
        space.borrow_mut().site = site;
        if has_filter || site.is_none() {
            return;
        }
        let mut stop = Stop { tracee: &mut tracee, space: &space, has_filter };
        for (line, kind) in kinds(&maps) {
            let file = line.path.rsplit('/').next().unwrap_or_default();
            if kind == Kind::Stack {
                self.grow_stack(&mut stop, &line);
            } else if line.end - line.start >= LARGE {
                let (start, end) = (line.start, line.end);
                self.advise(&mut stop, &Mapped { start, end, kind, file });
            }
        }
        self.pending.extend(tracee.left.map(|status| (pid, status)));
    }

    /// Makes the stack of a program grow to its limit at the beginning, and advises it.
    fn grow_stack(&mut self, stop: &mut Stop<'_>, line: &Line<'_>) {
        let mapped = Mapped { start: line.start, end: line.end, kind: Kind::Stack, file: "" };
        let is_wished = parts(&self.options.rules, &mapped, &self.by_address)
            .iter()
            .any(|part| self.options.rules[part.rule].wish == Wish::Large);
        let Some(site) = stop.space.borrow().site else { return };
        let tracee = &mut *stop.tracee;
        let mut start = line.start;
        if is_wished {
            let room = stack_limit(tracee.pid).min(STACK_MAX).saturating_sub(STACK_LEFT);
            let lowest = line.end.saturating_sub(room).next_multiple_of(LARGE);
            if lowest < line.start {
                // A write below the lowest block makes the kernel extend the stack down to it.
                let arguments = [libc::CLOCK_MONOTONIC as u64, lowest - 64, 0, 0, 0, 0];
                match tracee.call_at(site, libc::SYS_clock_gettime as u64, arguments) {
                    Ok(_) => start = lowest,
                    Err(error) => {
                        self.note(format!(
                            "the stack of {} could not be grown: {error}",
                            program_name(tracee.pid)
                        ));
                    }
                }
            }
        }
        self.advise(stop, &Mapped { start, ..mapped });
    }

    /// Makes the calls that the rules request for a mapping.
    fn advise(&mut self, stop: &mut Stop<'_>, mapped: &Mapped<'_>) {
        for part in parts(&self.options.rules, mapped, &self.by_address) {
            self.by_address[part.rule] |= !part.by_length;
            self.got[part.rule].by_length |= part.by_length;
            self.got[part.rule].mappings += 1;
            let (start, end) = whole_pages(part.start, part.end - part.start);
            stop.space.borrow_mut().add(start, end, part.rule);
            let advice = match self.options.rules[part.rule].wish {
                Wish::Large => MADV_HUGEPAGE,
                Wish::Base => MADV_NOHUGEPAGE,
            };
            let done = stop.madvise((start, end), advice);
            // Pages of files are in memory before advice can be given, so they must be collapsed.
            let text = mapped.kind == Kind::Text && advice == MADV_HUGEPAGE;
            let collapsed = blocks(start, end).filter(|_| text);
            let done = done.and_then(|()| match collapsed {
                Some(blocks) => stop.madvise(blocks, MADV_COLLAPSE),
                None => Ok(()),
            });
            self.tell(part.rule, done);
        }
    }

    fn tell(&mut self, rule: usize, done: io::Result<()>) {
        if let Err(error) = done {
            self.got[rule].failed += 1;
            self.got[rule].error = error.raw_os_error().unwrap_or(0);
        }
    }

    /// Collapses the blocks that are entirely in a range.
    fn collapse(&mut self, stop: &mut Stop<'_>, start: u64, end: u64) {
        let rule = stop.space.borrow().rule_at(start);
        let wished = rule.filter(|&rule| self.options.rules[rule].wish == Wish::Large);
        if let (Some(rule), Some(blocks)) = (wished, blocks(start, end)) {
            let done = stop.madvise(blocks, MADV_COLLAPSE);
            self.tell(rule, done);
        }
    }

    /// Handles a system call that the filter stops.
    fn called(&mut self, pid: i32) {
        let Some(&process) = self.threads.get(&pid) else { return };
        let Some(found) = self.processes.get(&process) else { return };
        let (space, has_filter) = (Rc::clone(&found.space), found.has_filter);
        let Ok(mut tracee) = Tracee::of(pid) else { return };
        let call = tracee.registers.orig_rax as i64;
        let mut stop = Stop { tracee: &mut tracee, space: &space, has_filter };
        let done = match call {
            libc::SYS_mmap => self.mmap(&mut stop),
            libc::SYS_mremap => self.mremap(&mut stop),
            libc::SYS_munmap => {
                let registers = &stop.tracee.registers;
                let (start, end) = whole_pages(registers.rdi, registers.rsi);
                self.count_range(pid, &space, start, end);
                Ok(())
            }
            libc::SYS_mprotect => self.mprotect(&mut stop),
            libc::SYS_brk => self.brk(&mut stop),
            libc::SYS_execve | libc::SYS_execveat => self.executes(stop.tracee),
            libc::SYS_clone if stop.tracee.registers.rdi & CLONE_UNTRACED != 0 => {
                stop.tracee.registers.rdi &= !CLONE_UNTRACED;
                stop.tracee.set()
            }
            libc::SYS_clone3 => traced_clone(stop.tracee),
            libc::SYS_seccomp | libc::SYS_prctl => {
                let name = program_name(process);
                self.note(format!(
                    "{name} filters its own system calls (seccomp): from then on, neither its \
                     memory nor that of its children is placed"
                ));
                if let Some(process) = self.processes.get_mut(&process) {
                    process.has_filter = true;
                }
                Ok(())
            }
            libc::SYS_ptrace => {
                let name = program_name(process);
                self.note(format!(
                    "{name} traces programs itself (ptrace), and pagewalk traces them already: run \
                     it outside of `pagewalk place`"
                ));
                Ok(())
            }
            _ => Ok(()),
        };
        // A thread that was killed meanwhile needs no further action.
        if done.is_err() {
            self.pending.extend(tracee.left.map(|status| (pid, status)));
        }
    }

    fn mmap(&mut self, stop: &mut Stop<'_>) -> io::Result<()> {
        let asked = stop.tracee.registers;
        let (prot, flags) = (asked.rdx as i32, asked.r10 as i32);
        let is_file = flags & libc::MAP_ANONYMOUS == 0;
        let file = if is_file { opened(stop.tracee.pid, asked.r8 as i32) } else { String::new() };
        if let Some(error) = stop.finish()? {
            if flags & libc::MAP_HUGETLB != 0 && error == libc::ENOMEM {
                let name = program_name(stop.tracee.pid);
                self.note(format!(
                    "{name} requested large pages of a pool (MAP_HUGETLB) and got none, because the \
                     pool is empty: write its size to /sys/kernel/mm/hugepages"
                ));
            }
            return Ok(());
        }
        let (start, end) = whole_pages(stop.tracee.registers.rax, asked.rsi);
        if flags & libc::MAP_FIXED != 0 {
            // The earlier mapping is gone. It was sampled only if a separate call unmapped it.
            stop.space.borrow_mut().take(start, end);
        }
        if flags & libc::MAP_HUGETLB != 0 || stop.has_filter {
            return Ok(());
        }
        let kind = match (is_file, prot & libc::PROT_WRITE != 0) {
            (true, true) => Kind::Data,
            (true, false) => Kind::Text,
            (false, _) if flags & libc::MAP_STACK != 0 => Kind::ThreadStack,
            (false, _) if flags & libc::MAP_FIXED != 0 && is_bss(stop.tracee.pid, start) => {
                Kind::Bss
            }
            (false, _) => Kind::Mmap,
        };
        self.advise(stop, &Mapped { start, end, kind, file: &file });
        stop.left()
    }

    fn mremap(&mut self, stop: &mut Stop<'_>) -> io::Result<()> {
        let asked = stop.tracee.registers;
        let (old, old_end) = whole_pages(asked.rdi, asked.rsi);
        if stop.finish()?.is_some() || stop.has_filter {
            return Ok(());
        }
        let (start, end) = whole_pages(stop.tracee.registers.rax, asked.rdx);
        let was_advised = stop.space.borrow().rule_at(old).is_some();
        if start == old && was_advised {
            // The mapping's advice also applies to the part by which it has grown.
            stop.space.borrow_mut().extend(start, end);
            return Ok(());
        }
        stop.space.borrow_mut().take(old, old_end);
        self.advise(stop, &Mapped { start, end, kind: Kind::Mmap, file: "" });
        // Moving has split large pages into base pages, unless the old and the new address have the
        // same offset in a block.
        let lies_alike = (start ^ old) & (LARGE - 1) == 0 && was_advised;
        if !lies_alike && stop.tracee.left.is_none() {
            self.collapse(stop, start, start + (old_end - old).min(end - start));
        }
        stop.left()
    }

    /// Handles an arena that grows within the memory that it has reserved. Blocks that have just
    /// become entirely writable may have been touched in part before.
    fn mprotect(&mut self, stop: &mut Stop<'_>) -> io::Result<()> {
        let asked = stop.tracee.registers;
        let (start, end) = whole_pages(asked.rdi, asked.rsi);
        if end - start >= LARGE || stop.has_filter || stop.space.borrow().rule_at(start).is_none() {
            return Ok(());
        }
        if stop.finish()?.is_none() {
            self.collapse(stop, start & !(LARGE - 1), end);
        }
        stop.left()
    }

    fn brk(&mut self, stop: &mut Stop<'_>) -> io::Result<()> {
        let wanted = stop.tracee.registers.rdi;
        let at =
            Mapped { start: wanted, end: wanted.saturating_add(1), kind: Kind::Heap, file: "" };
        let rules = &self.options.rules;
        let rule = parts(rules, &at, &self.by_address).last().map(|part| part.rule);
        let heap = stop.space.borrow().heap;
        let Some(heap) = heap else {
            if rule.is_none() {
                return Ok(());
            }
            stop.finish()?;
            let now = stop.tracee.registers.rax;
            // The C library first asks where the break is. If a program does not ask, its break may
            // be anywhere.
            let start = if wanted == 0 { now } else { 0 };
            stop.space.borrow_mut().heap = Some(Break::at(start, now));
            return Ok(());
        };
        let is_large = rule.is_some_and(|rule| rules[rule].wish == Wish::Large);
        let Move { real, said, zero } = heap.asked(wanted, if is_large { LARGE } else { 1 });
        if let Some((from, to)) = zero {
            stop.tracee.write(from, &vec![0; (to - from) as usize])?;
        }
        let Some(real) = real else {
            // The program's own call is not executed.
            stop.tracee.registers.orig_rax = u64::MAX;
            stop.tracee.registers.rax = said;
            stop.tracee.set()?;
            stop.space.borrow_mut().heap = Some(heap.moved(said, heap.real));
            return Ok(());
        };
        if real < heap.real {
            self.count_range(stop.tracee.pid, stop.space, real, heap.real);
        }
        stop.tracee.registers.rdi = real;
        stop.tracee.set()?;
        stop.finish()?;
        let mut now = stop.tracee.registers.rax;
        if now != real && real > heap.real {
            // There is no room for the rest of the block. The call is repeated with the program's
            // own argument.
            let site = stop.tracee.registers.rip.wrapping_sub(2);
            now = stop.tracee.call_at(site, libc::SYS_brk as u64, [said, 0, 0, 0, 0, 0])?;
        }
        let said = if now >= said { said } else { heap.said };
        stop.tracee.registers.rax = said;
        stop.tracee.registers.rdi = wanted;
        stop.tracee.set()?;
        stop.space.borrow_mut().heap = Some(heap.moved(said, now));
        if now > heap.real && !stop.has_filter {
            self.heap_grew(stop, heap.start, (heap.real, now));
        }
        stop.left()
    }

    fn heap_grew(&mut self, stop: &mut Stop<'_>, first: u64, (from, to): (u64, u64)) {
        let (start, end) = whole_pages(from, to - from);
        let is_new = stop.space.borrow().rule_at(from.saturating_sub(1)).is_none();
        if is_new {
            let (start, _) = whole_pages(first, 1);
            self.advise(stop, &Mapped { start, end, kind: Kind::Heap, file: "" });
            return;
        }
        let mapped = Mapped { start, end, kind: Kind::Heap, file: "" };
        for part in parts(&self.options.rules, &mapped, &self.by_address) {
            let advice = match self.options.rules[part.rule].wish {
                Wish::Large => MADV_HUGEPAGE,
                Wish::Base => MADV_NOHUGEPAGE,
            };
            let done = stop.madvise((part.start, part.end), advice);
            self.tell(part.rule, done);
        }
        stop.space.borrow_mut().extend(from.saturating_sub(1), end);
    }

    /// Handles a process that is about to execute a file. The call fails if the file would get
    /// other privileges. Otherwise the launcher's variables are removed.
    fn executes(&mut self, tracee: &mut Tracee) -> io::Result<()> {
        if self.count == 0 {
            // This is the `execve` of the program that the launcher starts.
            return Ok(());
        }
        let registers = tracee.registers;
        let memory = tracee.memory()?;
        let at = registers.orig_rax as i64 == libc::SYS_execveat;
        let (path, envp) =
            if at { (registers.rsi, registers.r10) } else { (registers.rdi, registers.rdx) };
        if let Ok(path) = memory::text(&memory, path) {
            let path = PathBuf::from(std::ffi::OsString::from_vec(path));
            let folder = if path.is_absolute() { "root" } else { "cwd" };
            let seen = Path::new(&format!("/proc/{}/{folder}", tracee.pid))
                .join(path.strip_prefix("/").unwrap_or(&path));
            if !self.is_root
                && let Some(why) = other_rights(&seen)
            {
                self.note(format!(
                    "{} {why}, which the kernel does not grant to a program that an unprivileged \
                     pagewalk traces: it was not executed; run it outside of `pagewalk place`, or \
                     run pagewalk as root",
                    path.display()
                ));
                tracee.registers.orig_rax = u64::MAX;
                tracee.registers.rax = (-i64::from(libc::EPERM)) as u64;
                return tracee.set();
            }
        }
        if !self.options.inherit {
            self.clean(&memory, envp)?;
        }
        Ok(())
    }

    /// Removes the variables that are meant only for the program from an environment.
    fn clean(&self, memory: &crate::tracee::Memory, envp: u64) -> io::Result<()> {
        if self.options.environment.is_empty() || envp == 0 {
            return Ok(());
        }
        let (mut from, mut to) = (envp, envp);
        loop {
            let pointer = memory::word(memory, from)?;
            if pointer != 0 {
                let text = memory::text(memory, pointer).unwrap_or_default();
                let own = self.options.environment.iter().find(|own| {
                    text.strip_prefix(own.name.as_bytes())
                        .and_then(|rest| rest.strip_prefix(b"="))
                        .is_some_and(|value| value == own.value.as_bytes())
                });
                match own.map(|own| (own, own.before.as_ref())) {
                    Some((_, None)) => {
                        from += 8;
                        continue;
                    }
                    Some((own, Some(before))) => {
                        let end = own.name.len() + 1 + before.len();
                        memory.write_at(&[0], pointer + end as u64)?;
                    }
                    None => {}
                }
            }
            if from != to {
                memory.write_at(&pointer.to_le_bytes(), to)?;
            }
            if pointer == 0 {
                return Ok(());
            }
            from += 8;
            to += 8;
        }
    }
}

/// Waits for the next event of this thread's children.
fn wait() -> io::Result<(i32, i32, Usage)> {
    let (mut status, flags) = (0, libc::__WALL | libc::__WNOTHREAD);
    // SAFETY: all zeros are valid counts; the counts and the status are variables of this function.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(-1, &mut status, flags, &mut usage), usage)
    };
    if pid > 0 { Ok((pid, status, Usage::of(&usage))) } else { Err(io::Error::last_os_error()) }
}

/// The mappings in `/proc/PID/maps` to which rules can apply.
fn kinds(maps: &str) -> Vec<(Line<'_>, Kind)> {
    let mut found = Vec::new();
    let mut last: Option<(u64, Kind)> = None;
    for line in maps.lines().filter_map(Line::parse) {
        let follows = last.is_some_and(|(end, _)| end == line.start);
        let kind = match line.path {
            "[stack]" => Some(Kind::Stack),
            "[heap]" => Some(Kind::Heap),
            "" if follows => Some(Kind::Bss),
            path if path.is_empty() || path.starts_with("[anon") => Some(Kind::Mmap),
            path if path.starts_with('/') && line.is_writable => Some(Kind::Data),
            path if path.starts_with('/') => Some(Kind::Text),
            _ => None,
        };
        // The zero-initialised data after a file's writable part.
        last =
            kind.filter(|kind| matches!(kind, Kind::Data | Kind::Bss)).map(|kind| (line.end, kind));
        found.extend(kind.map(|kind| (line, kind)));
    }
    found
}

/// Whether a thread is running its own code at this moment, and not a system call.
fn computes(pid: i32, thread: i32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall"));
    call.is_ok_and(|call| call.starts_with("running"))
}

/// Continues a thread. If `signal` is not 0, the thread gets this signal. The thread may have ended
/// already.
fn proceed(pid: i32, signal: i32) {
    // SAFETY: the thread waits for its tracer.
    unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, signal) };
}

/// The message of a stop event.
fn message(pid: i32) -> Option<i32> {
    let mut told: libc::c_ulong = 0;
    // SAFETY: the thread waits for its tracer, and the word is a variable of this function.
    let asked = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, &raw mut told) };
    (asked >= 0).then_some(told as i32)
}

fn failed(result: u64) -> Option<i32> {
    match result as i64 {
        error @ -4095..0 => Some(-error as i32),
        _ => None,
    }
}

fn process_of(thread: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn program_name(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// The name of an open file of a process.
fn opened(pid: i32, file: i32) -> String {
    let path = std::fs::read_link(format!("/proc/{pid}/fd/{file}")).unwrap_or_default();
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Whether the mapping that ends at `start` is a file's writable part.
fn is_bss(pid: i32, start: u64) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let below = maps.lines().filter_map(Line::parse).find(|line| line.end == start);
    below.is_some_and(|line| line.is_writable && line.path.starts_with('/'))
}

/// The limit of the stack of a process in bytes.
fn stack_limit(pid: i32) -> u64 {
    // SAFETY: all zeros are valid limits, and the structure is a variable of this function.
    unsafe {
        let mut limit: libc::rlimit64 = std::mem::zeroed();
        let asked = libc::prlimit64(pid, libc::RLIMIT_STACK, std::ptr::null(), &mut limit);
        if asked == 0 { limit.rlim_cur } else { 0 }
    }
}

/// The address of a `syscall` instruction in the vDSO.
fn call_site(tracee: &Tracee, lines: &[Line<'_>]) -> Option<u64> {
    let vdso = lines.iter().find(|line| line.path == "[vdso]")?;
    let mut code = vec![0; (vdso.end - vdso.start).min(1 << 20) as usize];
    tracee.memory().ok()?.read_at(&mut code, vdso.start).ok()?;
    let at = code.windows(2).position(|bytes| bytes == SYSCALL)?;
    Some(vdso.start + at as u64)
}

/// Removes the flag of `clone3` by which the child would not be traced.
fn traced_clone(tracee: &Tracee) -> io::Result<()> {
    let memory = tracee.memory()?;
    let flags = memory::word(&memory, tracee.registers.rdi)?;
    if flags & CLONE_UNTRACED != 0 {
        memory.write_at(&(flags & !CLONE_UNTRACED).to_le_bytes(), tracee.registers.rdi)?;
    }
    Ok(())
}
