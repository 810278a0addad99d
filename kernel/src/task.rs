//! The kernel's threads and spaces, and the choice of the next thread. One lock guards all of it.
//!
//! ```text
//!   Ready --> Running --> Sending, Receiving, Waiting --> Ready ...       a thread
//!                `------> Dead, till somebody has waited for it
//! ```

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::cell::UnsafeCell;

use addr::PhysAddr;
use hat::HatSpace;

use crate::{
    PROCESSORS_MAX,
    abi::{ANYBODY, NOBODY},
    arch::{self, Context},
    flexpage::Flexpage,
    shootdown,
};

/// The most threads.
const TASKS_MAX: usize = 64;

/// The number of a thread, which is used only once.
pub type TaskId = u64;

/// The state of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Ready to run.
    Ready,
    /// Running on this processor.
    Running(usize),
    /// Waiting until its message is received.
    Sending,
    /// Waiting for a message of this thread, or of any.
    Receiving(TaskId),
    /// Waiting for this thread to end.
    Waiting(TaskId),
    /// Ended with this code.
    Dead(u64),
}

/// The registers of a thread, which its processor uses while the thread runs.
pub struct Registers(Box<UnsafeCell<Context>>);

impl Registers {
    /// The address of the registers, which stays the same when the thread moves.
    pub fn place(&self) -> *mut Context {
        self.0.get()
    }
}

// SAFETY: whoever has the lock of all threads reaches the registers of those that do not run; a thread that runs is its
// processor's.
unsafe impl Send for Registers {}

/// A thread.
pub struct Task {
    /// The registers of the thread.
    pub registers: Registers,
    /// The state of the thread.
    pub state: State,
    /// The address space of the thread.
    pub space: HatSpace,
    /// The message that the thread sends.
    pub message: [u64; 4],
    /// The thread from which it wants an answer, or [`crate::abi::ANYBODY`].
    pub from: TaskId,
    /// The threads that wait to send this thread a message.
    pub senders: VecDeque<TaskId>,
    /// The range in which pages that it is sent may be mapped.
    pub window: Flexpage,
    /// Whether its message is a fault, which is answered by a page and not by a message.
    pub is_faulting: bool,
    /// Whether it is to end at its next trap.
    pub is_killed: bool,
    /// The only processor on which it may run, if any.
    pub processor: Option<usize>,
}

impl Task {
    /// The only processor on which it may run, if any: a processor that is lost restricts no thread.
    pub fn place(&self) -> Option<usize> {
        self.processor.filter(|&processor| !shootdown::is_lost(processor))
    }

    /// Sets the results of the system call of a thread that is not running.
    pub fn answer(&mut self, results: &[u64]) {
        // SAFETY: the caller has the lock of all threads, and this one does not run, or runs on the caller's processor.
        unsafe { (*self.registers.place()).set_results(results) };
    }
}

/// The kernel's data on a space.
pub struct Place {
    /// The root of the space's page table.
    pub root: PhysAddr,
    /// Whether the kernel pages it.
    pub is_paged: bool,
    /// The pager of the thread, if it has one.
    pub pager: Option<TaskId>,
    /// The number of threads in the space.
    pub threads: u32,
}

/// All threads and spaces.
pub struct Tasks {
    slots: Vec<Option<Task>>,
    /// By slot: the number of the thread, or of the last thread that was there.
    numbers: Vec<TaskId>,
    ready: VecDeque<TaskId>,
    idle: u64,
    /// The spaces, by the HAT layer's number.
    pub spaces: BTreeMap<u32, Place>,
}

impl Tasks {
    /// No threads and spaces.
    pub fn new() -> Tasks {
        Tasks {
            slots: (0..TASKS_MAX).map(|_| None).collect(),
            numbers: (0..TASKS_MAX as u64).collect(),
            ready: VecDeque::with_capacity(TASKS_MAX),
            idle: 0,
            spaces: BTreeMap::new(),
        }
    }

    /// The thread of this number, whether it has ended or not.
    pub fn get(&mut self, id: TaskId) -> Option<&mut Task> {
        let slot = id as usize % TASKS_MAX;
        if self.numbers[slot] == id { self.slots[slot].as_mut() } else { None }
    }

    /// The thread of this number, if it has not ended.
    pub fn alive(&mut self, id: TaskId) -> Option<&mut Task> {
        self.get(id).filter(|task| !matches!(task.state, State::Dead(_)))
    }

    /// The thread that is running on the caller's processor.
    pub fn running(&mut self, id: TaskId) -> &mut Task {
        self.get(id).expect("who runs is there")
    }

    /// The root of the page table of the thread that is running on the caller's processor.
    pub fn root(&mut self, id: TaskId) -> PhysAddr {
        let space = self.running(id).space;
        self.spaces[&space.0].root
    }

    /// Adds a thread, which is not ready yet; `None` if there is no slot. Counts one more thread for `space`.
    pub fn add(&mut self, context: Context, space: HatSpace) -> Option<TaskId> {
        let is_over = |slot: &Option<Task>| slot.as_ref().is_none_or(|task| matches!(task.state, State::Dead(_)));
        let empty = self.slots.iter().position(Option::is_none);
        let slot = empty.or_else(|| self.slots.iter().position(is_over))?;
        self.numbers[slot] += TASKS_MAX as u64;
        self.spaces.get_mut(&space.0)?.threads += 1;
        self.slots[slot] = Some(Task {
            registers: Registers(Box::new(UnsafeCell::new(context))),
            state: State::Waiting(NOBODY),
            space,
            message: [0; 4],
            from: NOBODY,
            senders: VecDeque::new(),
            window: Flexpage::all(),
            is_faulting: false,
            is_killed: false,
            processor: None,
        });
        Some(self.numbers[slot])
    }

    /// Removes a thread that has ended.
    pub fn forget(&mut self, id: TaskId) {
        self.slots[id as usize % TASKS_MAX] = None;
    }

    /// The numbers of all threads.
    pub fn each(&self) -> Vec<TaskId> {
        let slots = self.numbers.iter().zip(&self.slots);
        slots.filter(|(_, slot)| slot.is_some()).map(|(id, _)| *id).collect()
    }

    /// Makes the thread ready, and interrupts a processor that is idle.
    pub fn make_ready(&mut self, id: TaskId) {
        let Some(task) = self.get(id) else { return };
        task.state = State::Ready;
        let bound = task.place();
        if self.ready.len() == self.ready.capacity() {
            // Of threads that were stopped while they were ready.
            let mut ready = core::mem::take(&mut self.ready);
            ready.retain(|&id| self.get(id).is_some_and(|task| task.state == State::Ready));
            self.ready = ready;
        }
        self.ready.push_back(id);
        let fits = |processor: &usize| {
            let is_idle = self.idle >> processor & 1 != 0 && shootdown::is_online(*processor);
            is_idle && bound.is_none_or(|bound| bound == *processor)
        };
        if let Some(idle) = (0..PROCESSORS_MAX).find(fits) {
            self.idle &= !(1 << idle);
            if idle != arch::this() {
                arch::interrupt(idle);
            }
        }
    }

    /// Whether a thread is ready that may run on this processor.
    pub fn has_ready(&mut self, processor: usize) -> bool {
        self.first_ready(processor).is_some()
    }

    fn first_ready(&mut self, processor: usize) -> Option<usize> {
        while let Some(&first) = self.ready.front()
            && self.get(first).is_none_or(|task| task.state != State::Ready)
        {
            self.ready.pop_front();
        }
        (0..self.ready.len()).find(|&at| {
            let id = self.ready[at];
            // A thread that was stopped meanwhile is in the queue still.
            let fits =
                |task: &&mut Task| task.state == State::Ready && task.place().is_none_or(|bound| bound == processor);
            self.get(id).as_ref().is_some_and(fits)
        })
    }

    /// The next thread for this processor, with its registers and root; `None` if there is none, and then
    /// the processor is idle.
    pub fn next(&mut self, processor: usize) -> Option<(TaskId, *mut Context, PhysAddr)> {
        let Some(at) = self.first_ready(processor) else {
            self.idle |= 1 << processor;
            return None;
        };
        let id = self.ready.remove(at)?;
        self.start(id, processor)
    }

    /// Runs a given thread here, if it is ready.
    pub fn start(&mut self, id: TaskId, processor: usize) -> Option<(TaskId, *mut Context, PhysAddr)> {
        self.idle &= !(1 << processor);
        let task = self.get(id).filter(|task| task.state == State::Ready)?;
        task.state = State::Running(processor);
        let (place, space) = (task.registers.place(), task.space);
        Some((id, place, self.spaces[&space.0].root))
    }

    /// Whether a thread runs on another processor.
    pub fn others_run(&self, processor: usize) -> bool {
        let elsewhere = |task: &Task| matches!(task.state, State::Running(other) if other != processor);
        self.slots.iter().flatten().any(elsewhere)
    }

    /// The threads that ran on processors that are lost.
    pub fn lost(&mut self) -> Vec<TaskId> {
        let is_lost = |state| matches!(state, State::Running(processor) if shootdown::is_lost(processor));
        self.each().into_iter().filter(|&id| self.get(id).is_some_and(|task| is_lost(task.state))).collect()
    }

    /// Whether a thread that receives from `from` accepts a message of `sender`.
    pub fn takes(from: TaskId, sender: TaskId) -> bool {
        from == sender || from == ANYBODY
    }
}
