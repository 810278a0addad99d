//! Watching over all recorded processes of a session.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ring::{ChunkState, Origin, ProcessState};
use trace::{Arch, Sink};

use crate::decode::{Decoder, Fault};
use crate::facts::Facts;
use crate::process::{Blocks, Ended, Process};
use crate::session::Session;
use crate::window::Window;
use crate::{Error, Options};

/// How many ended processes are remembered for children that are found later.
const ENDED_MAX: usize = 64;
/// Time between two looks whether processes have ended, while there is work.
const LOOK: Duration = Duration::from_millis(20);
/// Milliseconds to sleep at most when nothing comes.
const SLEEP_MS: i64 = 5;
/// Time to wait for more before a program has to wake this process for it: a busy one does not
/// fill its ring meanwhile, and to be woken for each span costs both more than the span does.
const NAP: Duration = Duration::from_micros(50);

/// A process that begins to be recorded.
pub(crate) struct Arrival {
    pub(crate) pid: u32,
    pub(crate) command: Vec<String>,
    pub(crate) arch: Arch,
    /// How many came before it in the session.
    pub(crate) number: u32,
}

/// Where accesses go, process by process.
pub(crate) trait Outputs {
    /// What takes the accesses of one process.
    type Sink: Sink;
    /// A process begins; `None` drops its accesses.
    fn open(&mut self, arrival: &Arrival) -> Result<Option<Self::Sink>, trace::Error>;
    /// It has ended; all of it is in the sink.
    fn close(&mut self, arrival: &Arrival, sink: Self::Sink) -> Result<(), trace::Error>;
}

/// All processes of a session.
pub(crate) struct Supervisor<O: Outputs> {
    pub(crate) session: Session,
    pub(crate) outputs: O,
    pub(crate) processes: Vec<Watched<O::Sink>>,
    /// Processes seen so far.
    pub(crate) seen: u32,
    /// The first thing that went wrong.
    pub(crate) failure: Option<Failure>,
    pub(crate) notes: Vec<String>,
    ended: VecDeque<Ended>,
    arrivals: u32,
    /// Whether nothing has come since the last nap.
    idle: bool,
    looked: Instant,
    first: Vec<String>,
    skip: u64,
    max: Option<u64>,
    fetches: bool,
}

/// What went wrong while recording.
pub(crate) enum Failure {
    Trace(trace::Error),
    Other(Error),
}

/// A process and how it is seen to end.
pub(crate) struct Watched<S> {
    pub(crate) process: Process<S>,
    pub(crate) arrival: Arrival,
    life: Option<OwnedFd>,
    dead: bool,
}

impl<O: Outputs> Supervisor<O> {
    /// Watches over `session`, whose first process runs `first`.
    pub(crate) fn new(
        session: Session,
        outputs: O,
        options: &Options,
        first: Vec<String>,
    ) -> Supervisor<O> {
        Supervisor {
            session,
            outputs,
            processes: Vec::new(),
            seen: 0,
            failure: None,
            notes: Vec::new(),
            ended: VecDeque::new(),
            arrivals: 0,
            idle: false,
            looked: Instant::now(),
            first,
            skip: options.skip_accesses,
            max: options.accesses_max,
            fetches: options.fetches,
        }
    }

    /// Decodes what is there; whether there was anything. `enough` ends the step early.
    pub(crate) fn step(&mut self, enough: &mut dyn FnMut(&O::Sink) -> bool) -> bool {
        self.discover();
        let mut any = false;
        for index in 0..self.processes.len() {
            let watched = &mut self.processes[index];
            match watched.process.round(&self.session, enough) {
                Ok(more) => any |= more,
                Err(fault) => self.fail(index, fault),
            }
        }
        if !any || self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.look();
            any |= self.bury(enough);
        }
        self.idle &= !any;
        any
    }

    /// Sleeps until there may be something to do: call it after a step without anything.
    pub(crate) fn sleep(&mut self) {
        if std::mem::replace(&mut self.idle, true) {
            self.session.sleep(SLEEP_MS, self.arrivals);
        } else {
            std::thread::sleep(NAP);
        }
    }

    /// Ends all traces with what has come so far.
    pub(crate) fn abandon(&mut self) {
        for watched in &mut self.processes {
            watched.process.slot.stop.store(1, Ordering::Release);
            watched.dead = true;
        }
        while self.bury(&mut |_| false) {}
    }

    /// Stops recording, all processes run on.
    pub(crate) fn stop(&mut self) {
        for watched in &mut self.processes {
            watched.process.slot.stop.store(1, Ordering::Release);
            watched.process.output = None;
        }
    }

    /// What found no room in the session, if anything.
    pub(crate) fn lost(&self) -> Option<String> {
        let lost = self.session.head().lost.load(Ordering::Relaxed);
        (lost != 0).then(|| {
            format!("{lost} threads, processes or blocks found no room and are not recorded")
        })
    }

    fn fail(&mut self, index: usize, fault: Fault) {
        let failure = match fault {
            Fault::Sink(error) => Failure::Trace(error),
            Fault::Garbled(what) => {
                Failure::Other(Error::Garbled { pid: self.processes[index].process.pid, what })
            }
        };
        self.failure.get_or_insert(failure);
        self.stop();
    }

    /// Finds processes and threads that have come.
    fn discover(&mut self) {
        let arrivals = self.session.head().arrivals.load(Ordering::SeqCst);
        if arrivals == self.arrivals {
            return;
        }
        self.arrivals = arrivals;
        let mut fresh = Vec::new();
        for slot in 0..self.session.head().processes_high.load(Ordering::Acquire) as usize {
            let process = self.session.process(slot);
            let generation = process.generation.load(Ordering::Relaxed);
            let is_live = process.state.load(Ordering::Acquire) == ProcessState::Live as u32;
            let is_known = self.processes.iter().any(|watched| {
                watched.process.slot_index == slot && watched.process.generation == generation
            });
            if is_live && !is_known {
                fresh.push(slot);
            }
        }
        // Parents before their children.
        let generation =
            |slot: &usize| self.session.process(*slot).generation.load(Ordering::Relaxed);
        fresh.sort_by_key(generation);
        for slot in fresh {
            // It may be what a process has executed, as that one's ring tells.
            self.attach();
            self.welcome(slot);
        }
        self.attach();
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

    fn welcome(&mut self, slot_index: usize) {
        let slot = self.session.process(slot_index);
        let pid = slot.pid.load(Ordering::Relaxed);
        let is_fork = slot.origin.load(Ordering::Relaxed) == Origin::Forked as u32;
        let (command, facts, blocks) = if is_fork {
            let parent = slot.parent.load(Ordering::Relaxed) as usize;
            let generation = slot.parent_generation.load(Ordering::Relaxed);
            let count = slot.blocks_inherited.load(Ordering::Relaxed) as usize;
            self.heritage(parent, generation, count)
        } else {
            // The same process before: it has executed this program.
            let mut command = None;
            for watched in &mut self.processes {
                if watched.process.pid == pid && !watched.dead {
                    watched.dead = true;
                    let session = &self.session;
                    // The path may be in a segment that has not been decoded.
                    if let Err(fault) = watched.process.round_until_empty(session) {
                        self.failure.get_or_insert(match fault {
                            Fault::Sink(error) => Failure::Trace(error),
                            Fault::Garbled(what) => Failure::Other(Error::Garbled { pid, what }),
                        });
                    }
                    command = watched.process.world.facts.executing.as_ref().map(|executing| {
                        let mut command = vec![executing.path.clone()];
                        command.extend(executing.arguments.iter().skip(1).cloned());
                        command
                    });
                }
            }
            let is_first = self.seen == 0;
            let command = command.unwrap_or_else(|| {
                if is_first { self.first.clone() } else { vec![format!("process {pid}")] }
            });
            (command, Facts::default(), Blocks::default())
        };
        let arch = match slot.machine.load(Ordering::Relaxed) {
            62 => Arch::X86_64,
            3 => Arch::I386,
            183 => Arch::Aarch64,
            243 => Arch::Riscv64,
            _ => Arch::Unknown,
        };
        let arrival = Arrival { pid, command, arch, number: self.seen };
        self.seen += 1;
        let mut output = None;
        if self.failure.is_none() {
            match self.outputs.open(&arrival) {
                Ok(sink) => output = sink.map(|sink| Window::new(sink, self.skip, self.max)),
                Err(error) => {
                    self.failure = Some(Failure::Trace(error));
                    self.stop();
                }
            }
        }
        if output.is_none() {
            slot.stop.store(1, Ordering::Release);
        }
        let command = arrival.command.clone();
        let decoder = Decoder::new(self.fetches, self.session.strays);
        let process = Process::new(slot, slot_index, command, facts, blocks, decoder, output);
        self.processes.push(Watched { process, arrival, life: open_life(pid), dead: false });
    }

    /// Command, facts and blocks that a child has from its parent.
    fn heritage(
        &mut self,
        parent: usize,
        generation: u32,
        count: usize,
    ) -> (Vec<String>, Facts, Blocks) {
        let alive = self.processes.iter_mut().find(|watched| {
            watched.process.slot_index == parent && watched.process.generation == generation
        });
        if let Some(watched) = alive {
            let process = &mut watched.process;
            process.update_blocks(&self.session);
            let blocks = Blocks::inherit(&process.world.blocks, count);
            return (process.command.clone(), process.world.facts.inherited(), blocks);
        }
        let ended =
            self.ended.iter().find(|ended| ended.slot == parent && ended.generation == generation);
        match ended {
            Some(ended) => (
                ended.command.clone(),
                ended.facts.inherited(),
                Blocks::inherit(&ended.blocks, count),
            ),
            None => {
                let blocks = Blocks::inherit(&Blocks::default(), count);
                (self.first.clone(), Facts::default(), blocks)
            }
        }
    }

    /// Looks which processes have ended.
    fn look(&mut self) {
        for watched in &mut self.processes {
            watched.dead |= match &watched.life {
                Some(life) => is_readable(life),
                None => !exists(watched.process.pid),
            };
        }
    }

    /// Finishes with processes that have ended; whether there is more to do for one of them.
    fn bury(&mut self, enough: &mut dyn FnMut(&O::Sink) -> bool) -> bool {
        let mut any = false;
        let mut index = 0;
        while index < self.processes.len() {
            if !self.processes[index].dead {
                index += 1;
                continue;
            }
            // Whatever came before the end is there now.
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
            let Watched { mut process, arrival, .. } = self.processes.remove(index);
            if self.ended.len() == ENDED_MAX {
                self.ended.pop_front();
            }
            process.update_blocks(&self.session);
            for note in &process.world.facts.notes {
                let note = format!("process {}: {note}", process.pid);
                self.notes.push(note);
            }
            self.ended.push_back(Ended {
                slot: process.slot_index,
                generation: process.generation,
                command: process.command.clone(),
                facts: process.world.facts.inherited(),
                blocks: process.world.blocks.clone(),
            });
            let closed = match process.close(&self.session) {
                Ok(Some(sink)) => self.outputs.close(&arrival, sink),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = closed {
                self.failure.get_or_insert(Failure::Trace(error));
            }
            any = true;
        }
        any
    }
}

/// A descriptor that becomes readable when the process ends.
fn open_life(pid: u32) -> Option<OwnedFd> {
    // SAFETY: a system call without pointers; the descriptor is new.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry is given and said.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

/// Whether the process exists and is no zombie.
fn exists(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}
