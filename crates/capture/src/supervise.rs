//! Supervises all recorded processes of a session.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ring::{ChunkState, Origin, ProcessState};
use trace::{Arch, CLONE_VM, Filter, Sink};

use crate::decode::{Decoder, Fault};
use crate::filter::Filters;
use crate::machine::Machine;
use crate::pages::Sampler;
use crate::process::{Blocks, Ended, Output, Process, Remains, World};
use crate::session::{Session, now};
use crate::signs::Signs;
use crate::window::Window;
use crate::{Engine, Error, Options};

/// The number of ended processes that are remembered, for children that are found later.
const ENDED_MAX: usize = 64;
/// The message about a process that was killed while it had counted accesses that were not
/// reported.
const UNCOUNTED: &str = "it was killed while its guaranteed hits were counted and not recorded: \
                         hits of its last million instructions may be missing from all counts; \
                         with --tell-all no hits are missing";
/// The time between two checks for ended processes while records are being decoded.
const LOOK: Duration = Duration::from_millis(20);
/// The maximum duration of a sleep, in milliseconds, while there are no records to decode.
const SLEEP_MS: i64 = 5;
/// The time to wait for more work before recorded programs have to wake this process: a busy
/// program does not fill its ring in this time, and waking for each span costs both sides more than
/// the span does.
const NAP: Duration = Duration::from_micros(50);

/// The destinations of accesses, by process.
pub(crate) trait Outputs {
    /// The destination of the accesses of one process.
    type Sink: Sink;
    /// Opens the destination of a new process, whose number follows that of the last process
    /// opened.
    fn open(&mut self, process: &trace::Process) -> Result<Self::Sink, trace::Error>;
    /// Updates the description of a process.
    fn tell(&mut self, process: &trace::Process) -> Result<(), trace::Error>;
    /// Closes the destination of a process, after all of its accesses have been written to the
    /// sink.
    fn close(&mut self, process: &trace::Process, sink: Self::Sink) -> Result<(), trace::Error>;
}

/// All processes of a session.
pub(crate) struct Supervisor<O: Outputs> {
    pub(crate) session: Session,
    pub(crate) outputs: O,
    pub(crate) processes: Vec<Watched<O::Sink>>,
    /// The descriptions of all processes that are kept, by their numbers.
    pub(crate) family: Vec<trace::Process>,
    /// The number of processes and programs that have begun to be recorded.
    pub(crate) seen: u32,
    /// The first failure.
    pub(crate) failure: Option<Failure>,
    pub(crate) notes: Vec<String>,
    /// Messages about missing accesses of processes that have ended.
    lost: Vec<String>,
    /// Programs that were executed by a process whose earlier program is not known to have ended.
    waiting: Vec<Waiting>,
    ended: VecDeque<Ended>,
    /// Parent, the child's process identifier, and the number of the parent's accesses before the
    /// fork.
    forks: Vec<(u32, u32, u64)>,
    arrivals: u32,
    /// Whether no records have arrived since the last short sleep.
    idle: bool,
    looked: Instant,
    /// Whether nothing more is kept.
    is_over: bool,
    first: trace::Program,
    wanted: Option<String>,
    arguments: bool,
    skip: u64,
    max: Option<u64>,
    sample: Option<[u64; 2]>,
    /// The events at which the windows of the session begin and end, if windows were requested.
    pub(crate) signs: Arc<Signs>,
    pub(crate) watches: bool,
    instructions: Option<u64>,
    fetches: bool,
    is_native: bool,
    /// Whether accesses are dropped here: the recorder in QEMU drops them itself.
    filters: bool,
    /// Takes snapshots of the processes' pages, if they are recorded.
    pub(crate) pages: Option<Sampler>,
    /// The state of the whole machine, if one is recorded; afterwards, what was learned about it.
    pub(crate) machine: Option<Box<Machine>>,
}

/// A failure while recording.
pub(crate) enum Failure {
    Trace(trace::Error),
    Other(Error),
}

/// A process, and the means by which its end is detected.
pub(crate) struct Watched<S> {
    pub(crate) process: Process<S>,
    /// The description of the process. The number in it is valid only if the process is kept.
    told: trace::Process,
    /// The number of the process, if it is kept.
    pub(crate) number: Option<u32>,
    life: Option<OwnedFd>,
    dead: bool,
}

/// A program that a process has executed, while its earlier program is not completely decoded.
struct Waiting {
    slot: usize,
    generation: u32,
    pid: u32,
    began_ns: u64,
}

impl<O: Outputs> Supervisor<O> {
    /// Supervises `session`, whose first process runs `first`.
    pub(crate) fn new(
        session: Session,
        outputs: O,
        options: &Options,
        first: trace::Program,
    ) -> Supervisor<O> {
        Supervisor {
            session,
            outputs,
            processes: Vec::new(),
            family: Vec::new(),
            seen: 0,
            failure: None,
            notes: Vec::new(),
            lost: Vec::new(),
            waiting: Vec::new(),
            ended: VecDeque::new(),
            forks: Vec::new(),
            arrivals: 0,
            idle: false,
            looked: Instant::now(),
            is_over: false,
            first,
            wanted: options.process.clone(),
            arguments: options.arguments,
            skip: options.skip_accesses,
            max: options.accesses_max,
            sample: options.sample,
            signs: Arc::new(Signs::new(options)),
            watches: options.watches(),
            instructions: options.instructions_max,
            fetches: options.fetches,
            is_native: options.engine == Engine::Native,
            filters: options.engine == Engine::Native && options.filter != Filter::None,
            pages: None,
            machine: None,
        }
    }

    /// Decodes the records that are available, process by process. Returns whether there were any.
    pub(crate) fn step(&mut self) -> bool {
        // A thread that begins after this time may have earlier segments than threads that are
        // already known.
        let bound = now();
        self.discover();
        let mut any = false;
        for index in 0..self.processes.len() {
            let watched = &mut self.processes[index];
            match watched.process.round(&self.session, bound, &mut |_| false) {
                Ok(more) => any |= more,
                Err(fault) => self.fail(index, fault),
            }
        }
        self.rest(any, &mut |_| false)
    }

    /// Decodes segments of one process, the earliest by the clock, until another process has the
    /// earliest segment or `enough` returns true. Returns that other process. If there is none, the
    /// second value says whether there may be more work.
    pub(crate) fn step_in_order(
        &mut self,
        enough: &mut dyn FnMut(&O::Sink) -> bool,
    ) -> (Option<u32>, bool) {
        let times = self.processes.iter().map(|watched| watched.process.next_ns());
        let mut times: Vec<(u64, usize)> =
            times.enumerate().filter_map(|(index, ns)| Some((ns?, index))).collect();
        times.sort_unstable();
        let Some(&(_, index)) = times.first() else {
            // All segments before some time have been decoded. Accesses that have not arrived yet
            // are later than this time.
            let now = now();
            self.discover();
            let bound = self.waiting.iter().map(|waiting| waiting.began_ns).fold(now, u64::min);
            // If a thread is about to publish an earlier time, all processes must wait for it.
            let processes = &mut self.processes;
            let bound = processes.iter_mut().fold(bound, |bound, it| it.process.settled(bound));
            for watched in processes {
                watched.process.gather(bound);
            }
            let any = self.processes.iter().any(|watched| watched.process.next_ns().is_some());
            return (None, if any { true } else { self.rest(false, enough) });
        };
        let until = times.get(1).map_or(u64::MAX, |other| other.0);
        let watched = &mut self.processes[index];
        while watched.process.next_ns().is_some_and(|ns| ns <= until) {
            if let Err(fault) = watched.process.next(&self.session) {
                self.fail(index, fault);
                break;
            }
            if watched.process.has_enough(enough) {
                break;
            }
        }
        (self.processes[index].number, true)
    }

    /// Checks for processes that have ended: periodically, and whenever there were no records to
    /// decode.
    fn rest(&mut self, mut any: bool, enough: &mut dyn FnMut(&O::Sink) -> bool) -> bool {
        if !any || self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.look();
            any |= self.bury(enough);
        }
        self.idle &= !any;
        any
    }

    /// Sleeps until there may be records to decode. Called after a step that decoded none.
    pub(crate) fn sleep(&mut self) {
        if std::mem::replace(&mut self.idle, true) {
            self.session.sleep(SLEEP_MS, self.arrivals);
        } else {
            std::thread::sleep(NAP);
        }
    }

    /// Whether no process is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.waiting.is_empty()
    }

    /// Stops recording all processes, and decodes the records that have arrived so far.
    pub(crate) fn abandon(&mut self) {
        self.is_over = true;
        for watched in &mut self.processes {
            watched.process.slot.stop.store(1, Ordering::Release);
            watched.dead = true;
        }
        while self.bury(&mut |_| false) {
            self.processes.iter_mut().for_each(|watched| watched.dead = true);
        }
    }

    /// Takes the snapshots of pages that are due.
    pub(crate) fn look_at_pages(&mut self) {
        let Some(sampler) = &mut self.pages else { return };
        let is_time = sampler.is_time(|pid, generation| {
            let processes = self.processes.iter().map(|watched| &watched.process);
            processes.into_iter().any(|it| (it.pid, it.generation) == (pid, generation))
        });
        for watched in &mut self.processes {
            sampler.look(&mut watched.process, is_time);
            watched.process.let_go();
        }
    }

    /// If nothing was kept of a program that ended with `status`: the reason.
    pub(crate) fn why_nothing(&self, status: i32) -> Option<Error> {
        if self.family.is_empty() {
            let process = self.wanted.clone().unwrap_or_default();
            return Some(Error::NoProcess { process, status });
        }
        self.signs.why_nothing().map(|what| Error::NeverBegan { what, status })
    }

    /// Whether the window has ended, or all requested accesses of all processes together have been kept.
    pub(crate) fn has_all(&mut self) -> bool {
        self.signs.has_ended() || self.max.is_some_and(|max| self.accesses() >= max)
    }

    /// The number of accesses that were kept so far.
    pub(crate) fn accesses(&mut self) -> u64 {
        let ended: u64 = self.family.iter().map(|process| process.accesses).sum();
        let open = self.processes.iter_mut().filter_map(|watched| watched.process.output.kept());
        ended + open.map(|window| window.accesses()).sum::<u64>()
    }

    /// Kills all recorded processes.
    pub(crate) fn kill(&self) {
        for life in self.processes.iter().filter_map(|watched| watched.life.as_ref()) {
            let no_info = std::ptr::null::<libc::siginfo_t>();
            let (fd, signal) = (life.as_raw_fd(), libc::SIGKILL);
            // SAFETY: this value owns the descriptor. If the call fails, the process has ended.
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, no_info, 0) };
        }
    }

    /// Keeps nothing more; all processes run on.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
        for watched in &mut self.processes {
            watched.process.slot.stop.store(1, Ordering::Release);
            if let Some(window) = watched.process.output.kept() {
                window.end();
            }
        }
    }

    /// Stops recording; all processes continue to run, and the kept recording is not completed.
    pub(crate) fn stop(&mut self) {
        self.is_over = true;
        for watched in &mut self.processes {
            watched.process.slot.stop.store(1, Ordering::Release);
            watched.process.output = Output::Dropped;
        }
    }

    /// Messages about missing accesses: of processes that have ended, and of those for which the
    /// session had no room.
    pub(crate) fn take_lost(&mut self) -> Vec<String> {
        let mut lost = std::mem::take(&mut self.lost);
        match self.session.head().lost.load(Ordering::Relaxed) {
            0 => {}
            count => lost.push(format!(
                "{count} threads, processes or blocks did not fit into the recorder's memory and \
                 are not recorded"
            )),
        }
        lost
    }

    /// Sets where in their parents the processes began, as far as the parents reported it.
    pub(crate) fn link(&mut self) -> Result<(), trace::Error> {
        let mut forks = std::mem::take(&mut self.forks);
        for process in &mut self.family {
            let Some(parent) = process.parent else { continue };
            let mine = |fork: &(u32, u32, u64)| (fork.0, fork.1) == (parent, process.pid);
            // A process identifier may be used again. The first fork with it belongs to the first
            // child.
            if let Some(at) = forks.iter().position(mine) {
                process.parent_accesses = Some(forks.remove(at).2);
                self.outputs.tell(process)?;
            }
        }
        Ok(())
    }

    fn fail(&mut self, index: usize, fault: Fault) {
        let failure = match fault {
            Fault::Sink(error) => Failure::Trace(error),
            Fault::Garbled(what) => {
                Failure::Other(Error::Garbled { pid: self.processes[index].process.pid, what })
            }
        };
        self.fault(failure);
    }

    fn fault(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
        self.stop();
    }

    /// Finds new processes and threads.
    fn discover(&mut self) {
        let arrivals = self.session.head().arrivals.load(Ordering::SeqCst);
        if arrivals == self.arrivals {
            return;
        }
        self.arrivals = arrivals;
        let mut fresh = Vec::new();
        for slot in 0..self.session.head().processes_high.load(Ordering::Acquire) as usize {
            let process = self.session.process(slot);
            let is_live = process.state.load(Ordering::Acquire) == ProcessState::Live as u32;
            let generation = process.generation.load(Ordering::Relaxed);
            let is_known = self.processes.iter().any(|watched| {
                watched.process.slot_index == slot && watched.process.generation == generation
            });
            let waits =
                |waiting: &Waiting| (waiting.slot, waiting.generation) == (slot, generation);
            if is_live && !is_known && !self.waiting.iter().any(waits) {
                fresh.push((generation, slot));
            }
        }
        // Parents come before their children.
        fresh.sort_unstable();
        let mut early = Vec::new();
        for (_, slot) in fresh {
            let pid = self.session.process(slot).pid.load(Ordering::Relaxed);
            // A program that such a process has executed is early too.
            if self.is_early(slot) || early.contains(&pid) {
                // The process is searched for again later, even if no other process arrives.
                self.arrivals = arrivals.wrapping_sub(1);
                early.push(pid);
            } else {
                self.welcome(slot);
            }
        }
        self.attach();
    }

    /// Whether a program was found before its predecessor, which is its parent or the earlier
    /// program of its process. The predecessor is then still waiting to be added, or it has begun
    /// since the slots were examined.
    fn is_early(&self, slot_index: usize) -> bool {
        let slot = self.session.process(slot_index);
        let pid = slot.pid.load(Ordering::Relaxed);
        let is_known = |index: usize, generation: u32| {
            self.processes.iter().any(|watched| {
                let process = &watched.process;
                (process.slot_index, process.generation) == (index, generation)
            })
        };
        let is_live = |index: usize| {
            let process = self.session.process(index);
            process.state.load(Ordering::Acquire) == ProcessState::Live as u32
        };
        match slot.origin.load(Ordering::Relaxed) {
            origin if origin == Origin::Forked as u32 => {
                let parent = slot.parent.load(Ordering::Relaxed) as usize % ring::PROCESSES_MAX;
                let generation = slot.parent_generation.load(Ordering::Relaxed);
                let now = self.session.process(parent).generation.load(Ordering::Relaxed);
                is_live(parent) && now == generation && !is_known(parent, generation)
            }
            origin if origin == Origin::Executed as u32 => {
                let high = self.session.head().processes_high.load(Ordering::Acquire) as usize;
                let mut others = (0..high.min(ring::PROCESSES_MAX)).filter(|&index| {
                    let other = self.session.process(index);
                    index != slot_index
                        && is_live(index)
                        && other.pid.load(Ordering::Relaxed) == pid
                });
                !self.processes.iter().any(|watched| watched.process.pid == pid)
                    && others.next().is_some()
            }
            _ => false,
        }
    }

    fn attach(&mut self) {
        for chunk in 0..self.session.head().chunks_high.load(Ordering::Acquire) as usize {
            let ring = self.session.ring(chunk);
            let state = ChunkState::from_bits(ring.state.load(Ordering::Acquire));
            if !matches!(state, Some(ChunkState::Attached | ChunkState::Closed)) {
                continue;
            }
            let slot = ring.process.load(Ordering::Relaxed) as usize;
            let generation = ring.generation.load(Ordering::Relaxed);
            let owner = self.processes.iter_mut().find(|watched| {
                watched.process.slot_index == slot && watched.process.generation == generation
            });
            let Some(owner) = owner else { continue };
            if owner.process.has(chunk) {
                continue;
            }
            match self.session.view(chunk) {
                Ok(view) => owner.process.attach(chunk, ring, view),
                Err(error) => {
                    self.failure.get_or_insert(Failure::Other(error));
                }
            }
        }
    }

    /// Adds a program: of a new process, or executed by a known one.
    fn welcome(&mut self, slot_index: usize) {
        let slot = self.session.process(slot_index);
        let pid = slot.pid.load(Ordering::Relaxed);
        let began_ns = slot.began_ns.load(Ordering::Relaxed);
        self.seen += 1;
        if slot.origin.load(Ordering::Relaxed) == Origin::Forked as u32 {
            let parent = slot.parent.load(Ordering::Relaxed) as usize;
            let generation = slot.parent_generation.load(Ordering::Relaxed);
            let count = slot.blocks_inherited.load(Ordering::Relaxed) as usize;
            let flags = u64::from(slot.fork_flags.load(Ordering::Relaxed));
            let (program, number, world) = self.heritage(parent, generation, count);
            let told = trace::Process {
                number: 0,
                pid,
                parent: number,
                parent_accesses: None,
                shares_space: flags & CLONE_VM != 0,
                began_ns,
                programs: vec![trace::Program { from: 0, ..program }],
                accesses: 0,
                instructions: 0,
            };
            return self.add(slot_index, told, world);
        }
        let same = |watched: &&mut Watched<O::Sink>| watched.process.pid == pid;
        if let Some(before) = self.processes.iter_mut().find(same) {
            // The process has executed this program. The remaining records of its previous program
            // are decoded first.
            before.dead = true;
            let generation = slot.generation.load(Ordering::Relaxed);
            self.waiting.push(Waiting { slot: slot_index, generation, pid, began_ns });
            return;
        }
        let program = match self.seen {
            1 => self.first.clone(),
            _ => trace::Program {
                arch: arch_of(&slot),
                command: vec![format!("process {pid}")],
                from: 0,
            },
        };
        let told = trace::Process {
            number: 0,
            pid,
            parent: None,
            parent_accesses: None,
            shares_space: false,
            began_ns,
            programs: vec![program],
            accesses: 0,
            instructions: 0,
        };
        let world = World { machine: self.machine.take(), ..self.world() };
        self.add(slot_index, told, world);
    }

    /// The state of a program that begins.
    fn world(&self) -> World {
        let mut world = World::default();
        world.facts.is_native = self.is_native;
        world
    }

    /// Supervises a new process.
    fn add(&mut self, slot: usize, mut told: trace::Process, world: World) {
        let life = open_life(told.pid);
        if world.machine.is_some() {
            // This process is the guest's kernel. It gets no process id and no time, so that two
            // recordings of one run are equal.
            (told.pid, told.began_ns) = (0, 0);
        }
        self.watch(slot, told, None, Output::Muted, world, life, 0);
    }

    /// Supervises a process that runs its last program in `slot`. Keeps its accesses, if wanted,
    /// after those that `output` already has.
    #[expect(clippy::too_many_arguments, reason = "all that a process consists of")]
    fn watch(
        &mut self,
        slot_index: usize,
        mut told: trace::Process,
        mut number: Option<u32>,
        mut output: Output<O::Sink>,
        world: World,
        life: Option<OwnedFd>,
        others: u32,
    ) {
        if self.is_over {
            output = Output::Dropped;
        } else if !self.wants(&told) {
            output = Output::Muted;
        } else if !matches!(output, Output::Kept(_)) {
            if number.is_none() {
                told.number = self.family.len() as u32;
                match self.outputs.open(&told) {
                    Ok(sink) => {
                        let window = Window::new(sink, self.skip, self.max);
                        let window = match self.sample {
                            Some([window_accesses, period]) => {
                                window.sampling(window_accesses, period)
                            }
                            None => window,
                        };
                        output = Output::Kept(Box::new(if self.watches {
                            window.watching(&self.signs, &world.facts.images, self.instructions)
                        } else {
                            window
                        }));
                        self.family.push(told.clone());
                        number = Some(told.number);
                    }
                    Err(error) => {
                        output = Output::Dropped;
                        self.fault(Failure::Trace(error));
                    }
                }
            } else {
                // The previous program of the process was recorded. Its recording ended when the
                // process executed a program that is not selected.
                output = Output::Muted;
            }
        }
        let slot = self.session.process(slot_index);
        if matches!(output, Output::Dropped) {
            slot.stop.store(1, Ordering::Release);
        }
        let decoder = Decoder::new(self.fetches, self.session.strays);
        let filters = self.filters.then(Filters::default);
        let process = Process::new(slot, slot_index, world, decoder, output, others, filters);
        self.processes.push(Watched { process, told, number, life, dead: false });
    }

    /// Whether the accesses of the process are to be kept.
    fn wants(&self, told: &trace::Process) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        let now = trace::Process {
            programs: told.programs.last().cloned().into_iter().collect(),
            ..*told
        };
        now.is_called(wanted)
    }

    /// The program, number and context that a child inherits from its parent.
    fn heritage(
        &mut self,
        parent: usize,
        generation: u32,
        count: usize,
    ) -> (trace::Program, Option<u32>, World) {
        let last = |told: &trace::Process, first: &trace::Program| {
            told.programs.last().unwrap_or(first).clone()
        };
        let alive = self.processes.iter_mut().find(|watched| {
            watched.process.slot_index == parent && watched.process.generation == generation
        });
        if let Some(watched) = alive {
            let process = &mut watched.process;
            process.update_blocks(&self.session);
            let blocks = Blocks::inherit(&process.world.blocks, count);
            let facts = process.world.facts.inherited();
            let world = World { facts, blocks, ..World::default() };
            return (last(&watched.told, &self.first), watched.number, world);
        }
        let ended =
            self.ended.iter().find(|ended| ended.slot == parent && ended.generation == generation);
        match ended {
            Some(ended) => {
                let blocks = Blocks::inherit(&ended.blocks, count);
                let world = World { facts: ended.facts.inherited(), blocks, ..World::default() };
                (last(&ended.told, &self.first), ended.number, world)
            }
            None => {
                let blocks = Blocks::inherit(&Blocks::default(), count);
                (self.first.clone(), None, World { blocks, ..self.world() })
            }
        }
    }

    /// Checks which processes have ended.
    fn look(&mut self) {
        for watched in &mut self.processes {
            watched.dead |= match &watched.life {
                Some(life) => is_readable(life),
                None => !exists(watched.process.pid),
            };
        }
    }

    /// Finishes processes that have ended. Returns whether one of them still has records to decode.
    fn bury(&mut self, enough: &mut dyn FnMut(&O::Sink) -> bool) -> bool {
        let mut any = false;
        let mut index = 0;
        while index < self.processes.len() {
            if !self.processes[index].dead {
                index += 1;
                continue;
            }
            // The process has ended, so all its rings, and the programs that it has executed, are
            // visible now.
            self.discover();
            self.attach();
            match self.processes[index].process.last_round(&self.session, enough) {
                Ok(true) => {
                    any = true;
                    index += 1;
                    continue;
                }
                Ok(false) => {}
                Err(fault) => self.fail(index, fault),
            }
            let watched = self.processes.remove(index);
            if let Err(error) = self.finish(watched) {
                self.fault(Failure::Trace(error));
            }
            any = true;
        }
        any
    }

    /// Finishes a program of a process. All records of the program must be decoded.
    fn finish(&mut self, watched: Watched<O::Sink>) -> Result<(), trace::Error> {
        let Watched { mut process, mut told, number, life, .. } = watched;
        let pid = process.pid;
        self.machine = process.world.machine.take();
        process.update_blocks(&self.session);
        let notes = process.world.facts.notes.iter();
        self.notes.extend(notes.map(|note| format!("process {pid}: {note}")));
        if process.has_uncounted() && !self.is_over {
            self.lost.push(format!("process {pid}: {UNCOUNTED}"));
        }
        if let Some(number) = number {
            let forks = process.forks.drain(..);
            self.forks.extend(forks.map(|(child, accesses)| (number, child, accesses)));
        }
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended {
            slot: process.slot_index,
            generation: process.generation,
            told: told.clone(),
            number,
            facts: process.world.facts.inherited(),
            blocks: process.world.blocks.clone(),
        });
        let next = self.waiting.iter().position(|waiting| waiting.pid == pid);
        let next = next.map(|at| self.waiting.remove(at));
        // If the process has executed another program, that program begins where this one ends.
        let ns = next.as_ref().map_or_else(now, |next| next.began_ns);
        let Remains { mut output, executed, others } = process.close(&self.session, ns)?;
        let Some(Waiting { slot: slot_index, .. }) = next else {
            return self.close(number, output);
        };
        let slot = self.session.process(slot_index);
        let command = executed.unwrap_or_else(|| vec![format!("process {pid}")]);
        let from = output.kept().map_or(0, |window| window.accesses());
        told.programs.push(trace::Program {
            arch: arch_of(&slot),
            command: crate::launch::told(command, self.arguments),
            from,
        });
        if let Some(window) = output.kept() {
            window.begin_program();
            if let Some(known) = number.and_then(|number| self.family.get_mut(number as usize)) {
                known.programs.clone_from(&told.programs);
                self.outputs.tell(known)?;
            }
        }
        if !self.wants(&told) {
            self.close(number, std::mem::replace(&mut output, Output::Muted))?;
        }
        let world = self.world();
        self.watch(slot_index, told, number, output, world, life, others);
        let goes_on = self.waiting.iter().any(|waiting| waiting.pid == pid);
        if let Some(last) = self.processes.last_mut() {
            last.dead = goes_on;
        }
        self.attach();
        Ok(())
    }

    /// Closes a process that has ended, or whose further records are not kept.
    fn close(&mut self, number: Option<u32>, output: Output<O::Sink>) -> Result<(), trace::Error> {
        let process = number.and_then(|number| self.family.get_mut(number as usize));
        match (process, output) {
            (Some(process), Output::Kept(window)) => {
                let sink = window.close()?;
                (process.accesses, process.instructions) = (sink.accesses(), sink.instructions());
                self.outputs.close(process, sink)
            }
            (_, Output::Kept(_) | Output::Muted | Output::Dropped) => Ok(()),
        }
    }
}

/// The architecture of the program in `slot`.
fn arch_of(slot: &ring::Process) -> Arch {
    match slot.machine.load(Ordering::Relaxed) {
        62 => Arch::X86_64,
        3 => Arch::I386,
        40 => Arch::Arm,
        183 => Arch::Aarch64,
        243 => Arch::Riscv64,
        _ => Arch::Unknown,
    }
}

/// A descriptor that becomes readable when the process ends.
fn open_life(pid: u32) -> Option<OwnedFd> {
    // SAFETY: the system call takes no pointers, and no other code has the new descriptor.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the call gets one entry and its number 1.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

/// Whether the process exists and is not a zombie.
pub(crate) fn exists(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}
