//! Threads and spaces as the kernel keeps them, and who runs next. One lock guards all of it.
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

/// Threads that there can be.
const TASKS_MAX: usize = 64;

/// A thread's number, which is used once.
pub type TaskId = u64;

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It waits for a processor.
    Ready,
    /// It runs on this one.
    Running(usize),
    /// Its message waits for its receiver.
    Sending,
    /// It waits for a message of this thread, or anybody's.
    Receiving(TaskId),
    /// It waits for this thread to end.
    Waiting(TaskId),
    /// It has ended with this code.
    Dead(u64),
}

/// Registers of a thread, which its processor uses while it runs.
pub struct Registers(Box<UnsafeCell<Context>>);

impl Registers {
    /// The registers, wherever the thread goes.
    pub fn place(&self) -> *mut Context {
        self.0.get()
    }
}

// SAFETY: whoever has the lock of all threads reaches the registers of those that do not run; a thread that runs is its
// processor's.
unsafe impl Send for Registers {}

/// A thread.
pub struct Task {
    /// Its registers.
    pub registers: Registers,
    /// What it does.
    pub state: State,
    /// Its space.
    pub space: HatSpace,
    /// What it sends, and from whom it wants an answer.
    pub message: [u64; 4],
    /// See [`Task::message`].
    pub from: TaskId,
    /// Threads that wait to send to it.
    pub senders: VecDeque<TaskId>,
    /// Where pages may go that it is sent.
    pub window: Flexpage,
    /// Whether its message is a fault, whose answer is no message but a page.
    pub is_faulting: bool,
    /// Whether it is to end at its next trap.
    pub is_killed: bool,
    /// The only processor that it may run on.
    pub processor: Option<usize>,
}

impl Task {
    /// Gives results to a thread that does not run.
    pub fn answer(&mut self, results: &[u64]) {
        // SAFETY: the caller has the lock of all threads, and this one does not run, or runs on the caller's processor.
        unsafe { (*self.registers.place()).set_results(results) };
    }
}

/// A space of threads.
pub struct Place {
    /// The root of its page table.
    pub root: PhysAddr,
    /// Whether the kernel pages it.
    pub is_paged: bool,
    /// Who does, if the kernel does not.
    pub pager: Option<TaskId>,
    /// Threads in it.
    pub threads: u32,
}

/// All threads and spaces.
pub struct Tasks {
    slots: Vec<Option<Task>>,
    /// The number of the thread in each slot, or of the last that was there.
    numbers: Vec<TaskId>,
    ready: VecDeque<TaskId>,
    idle: u64,
    /// Spaces by the HAT layer's number.
    pub spaces: BTreeMap<u32, Place>,
}

impl Tasks {
    /// Nobody yet.
    pub fn new() -> Tasks {
        Tasks {
            slots: (0..TASKS_MAX).map(|_| None).collect(),
            numbers: (0..TASKS_MAX as u64).collect(),
            ready: VecDeque::with_capacity(TASKS_MAX),
            idle: 0,
            spaces: BTreeMap::new(),
        }
    }

    /// The thread of this number, dead or alive.
    pub fn get(&mut self, id: TaskId) -> Option<&mut Task> {
        let slot = id as usize % TASKS_MAX;
        if self.numbers[slot] == id { self.slots[slot].as_mut() } else { None }
    }

    /// The thread of this number, if it is alive.
    pub fn alive(&mut self, id: TaskId) -> Option<&mut Task> {
        self.get(id).filter(|task| !matches!(task.state, State::Dead(_)))
    }

    /// The thread that runs on the caller's processor.
    pub fn running(&mut self, id: TaskId) -> &mut Task {
        self.get(id).expect("who runs is there")
    }

    /// A new thread, which is not ready yet; nothing where there is no slot. `space` is counted as having one more.
    pub fn add(&mut self, context: Context, space: HatSpace) -> Option<TaskId> {
        let is_over = |slot: &Option<Task>| {
            slot.as_ref().is_none_or(|task| matches!(task.state, State::Dead(_)))
        };
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

    /// Forgets a thread that has ended.
    pub fn forget(&mut self, id: TaskId) {
        self.slots[id as usize % TASKS_MAX] = None;
    }

    /// All that are there, by their numbers.
    pub fn each(&self) -> Vec<TaskId> {
        let slots = self.numbers.iter().zip(&self.slots);
        slots.filter(|(_, slot)| slot.is_some()).map(|(id, _)| *id).collect()
    }

    /// The thread waits for a processor, and one that has nothing to do is told.
    pub fn make_ready(&mut self, id: TaskId) {
        let Some(task) = self.get(id) else { return };
        task.state = State::Ready;
        let bound = task.processor;
        self.ready.push_back(id);
        let fits = |processor: &usize| {
            self.idle >> processor & 1 != 0 && bound.is_none_or(|bound| bound == *processor)
        };
        if let Some(idle) = (0..PROCESSORS_MAX).find(fits) {
            self.idle &= !(1 << idle);
            if idle != arch::this() {
                arch::interrupt(idle);
            }
        }
    }

    /// Whether somebody waits for this processor.
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
            let fits = |task: &&mut Task| {
                task.state == State::Ready && task.processor.is_none_or(|bound| bound == processor)
            };
            self.get(id).as_ref().is_some_and(fits)
        })
    }

    /// Who runs next on this processor, with its registers and its root; nobody, and the processor is idle.
    pub fn next(&mut self, processor: usize) -> Option<(TaskId, *mut Context, PhysAddr)> {
        let Some(at) = self.first_ready(processor) else {
            self.idle |= 1 << processor;
            return None;
        };
        let id = self.ready.remove(at)?;
        Some(self.start(id, processor))
    }

    /// Has a thread run here that waits for nobody.
    pub fn start(&mut self, id: TaskId, processor: usize) -> (TaskId, *mut Context, PhysAddr) {
        self.idle &= !(1 << processor);
        let task = self.running(id);
        task.state = State::Running(processor);
        let (place, space) = (task.registers.place(), task.space);
        (id, place, self.spaces[&space.0].root)
    }

    /// Threads that run on processors which are lost.
    pub fn lost(&mut self) -> Vec<TaskId> {
        let is_lost =
            |state| matches!(state, State::Running(processor) if shootdown::is_lost(processor));
        self.each()
            .into_iter()
            .filter(|&id| self.get(id).is_some_and(|task| is_lost(task.state)))
            .collect()
    }

    /// Whether a thread that receives from `from` takes a message of `sender`.
    pub fn takes(from: TaskId, sender: TaskId) -> bool {
        from == sender || from == ANYBODY
    }
}
