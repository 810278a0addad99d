//! Messages of four words between threads, without buffers, and pages that come with them (Liedtke 1993 and
//! 1995).
//!
//! ```text
//!   client   send to server, receive from server --.            .--> goes on with the answer
//!   server                                          `-> receives | sends, receives from anybody
//! ```
//!
//! A message is transferred when its receiver receives; until then the sender waits in the receiver's queue.
//! If the receiver was already waiting, it runs at once in place of the sender. A fault of a thread whose
//! space has a pager is such a message, which the kernel sends for the thread; the page that the answer maps
//! resolves the fault.

use addr::{Kind, Rights, VirtAddr};
use hat::{Hat, HatSpace, LoadError, locking::Scheme};

use crate::{
    abi::{BAD, MEMORY, NO_THREAD, NOBODY, OK, OVERLAP, STOPPED, TAG_GRANT, TAG_MAP},
    flexpage::Flexpage,
    machine::{After, Machine, Table},
    say,
    task::{State, TaskId, Tasks},
};

/// The most pages that come with one message.
const PAGES_MAX: u64 = 64;

impl<S: Scheme<Table = Table> + Sync> Machine<S>
where
    Hat<Table, S>: Sync,
{
    /// Sends and receives as in [`crate::abi::Number::Ipc`], for the running thread `id`.
    pub fn ipc(&self, tasks: &mut Tasks, id: TaskId, arguments: [u64; 6]) -> After {
        let [to, from, message @ ..] = arguments;
        let task = tasks.running(id);
        (task.message, task.from) = (message, from);
        let mut next = None;
        if to != NOBODY {
            let state = tasks.alive(to).map(|task| task.state);
            match state {
                None => {
                    tasks.running(id).answer(&[NO_THREAD]);
                    return After::Same;
                }
                Some(_) if to == id => {
                    tasks.running(id).answer(&[BAD]);
                    return After::Same;
                }
                Some(State::Receiving(of)) if Tasks::takes(of, id) => {
                    next = self.deliver(tasks, id, to).then_some(to);
                }
                Some(_) => {
                    tasks.running(id).state = State::Sending;
                    if let Some(task) = tasks.get(to) {
                        task.senders.push_back(id);
                    }
                    return After::Other;
                }
            }
        }
        self.receive(tasks, id);
        let task = tasks.running(id);
        let goes_on = task.state == State::Ready;
        let processor = crate::arch::this();
        match next {
            // Who has received runs here, unless it may not.
            Some(to) if !goes_on && tasks.running(to).place().is_none_or(|bound| bound == processor) => {
                After::Switch(to)
            }
            next => {
                if let Some(to) = next {
                    tasks.make_ready(to);
                }
                if goes_on {
                    tasks.running(id).state = State::Running(processor);
                    return After::Same;
                }
                After::Other
            }
        }
    }

    /// Makes a thread receive, after its message was taken or if it sent none: it becomes ready, or
    /// waits.
    fn receive(&self, tasks: &mut Tasks, id: TaskId) {
        let task = tasks.running(id);
        let from = task.from;
        if from == NOBODY {
            task.answer(&[OK]);
            task.state = State::Ready;
            return;
        }
        let mut senders = core::mem::take(&mut task.senders);
        // Those that have been stopped meanwhile send nothing.
        senders.retain(|&sender| tasks.get(sender).is_some_and(|task| task.state == State::Sending));
        let found = senders.iter().position(|&sender| Tasks::takes(from, sender));
        let sender = found.and_then(|at| senders.remove(at));
        let task = tasks.running(id);
        (task.senders, task.state) = (senders, State::Receiving(from));
        let Some(sender) = sender else {
            if from != crate::abi::ANYBODY && tasks.alive(from).is_none() {
                let task = tasks.running(id);
                task.answer(&[NO_THREAD]);
                task.state = State::Ready;
            }
            return;
        };
        self.deliver(tasks, sender, id);
        // The sender receives in its turn, which takes at most one message more for each thread there is.
        self.receive(tasks, sender);
        if tasks.running(sender).state == State::Ready {
            tasks.make_ready(sender);
        }
    }

    /// Transfers the message of `sender` to `to`, which becomes ready. Returns whether `sender`
    /// continues.
    fn deliver(&self, tasks: &mut Tasks, sender: TaskId, to: TaskId) -> bool {
        let from = tasks.running(sender);
        let (message, giver) = (from.message, from.space);
        let [tag, one, two, three] = message;
        let task = tasks.running(to);
        let (taker, is_faulting) = (task.space, task.is_faulting);
        let window = if is_faulting { Flexpage::all() } else { task.window };
        let mut status = OK;
        if tag & (TAG_MAP | TAG_GRANT) != 0 && !tasks.running(sender).is_faulting {
            status = self.hand_on(tasks, (giver, two), (taker, window), three, tag & TAG_GRANT != 0);
        }
        let task = tasks.running(to);
        if is_faulting {
            task.is_faulting = false;
            if status != OK {
                say!("thread {to} is stopped: its pager, thread {sender}, has answered a fault with error {status}");
                self.finish(tasks, to, STOPPED);
                return false;
            }
            task.state = State::Ready;
            return true;
        }
        task.answer(&[status, sender, tag, one, two, three]);
        task.state = State::Ready;
        true
    }

    /// Maps or grants the part of a flexpage that fits.
    fn hand_on(
        &self,
        tasks: &Tasks,
        (giver, page): (HatSpace, u64),
        (taker, window): (HatSpace, Flexpage),
        hot_spot: u64,
        is_granted: bool,
    ) -> u64 {
        let Some(page) = Flexpage::of(page) else { return BAD };
        let (part, at) = page.into_window(window, hot_spot);
        let range = part.range();
        let pages = range.last().get().wrapping_sub(range.start().get()) / 4096 + 1;
        // A space that the kernel pages takes pages from no other space, because the kernel's
        // record of the page would become wrong.
        let is_refused = giver == taker || tasks.spaces[&taker.0].is_paged || pages > PAGES_MAX;
        // And such a space cannot grant its pages, because its regions contain them.
        let is_paged = tasks.spaces[&giver.0].is_paged;
        if is_refused || is_granted && is_paged {
            return BAD;
        }
        if is_paged && !self.bring(giver, range.start(), pages) {
            return MEMORY;
        }
        for is_last in [false, true] {
            let below = &mut self.below();
            let done = match is_granted {
                true => self.hat.grant(giver, range, taker, at, below),
                false => self.hat.map_from(giver, range, taker, at, part.rights, below),
            };
            match done {
                Ok(()) => return OK,
                Err(LoadError::NoTableMemory) if !is_last => {
                    self.kernel(|kernel| kernel.tick());
                }
                Err(LoadError::NoTableMemory | LoadError::NoMemory) => return MEMORY,
                Err(LoadError::Table(_)) => return OVERLAP,
                Err(LoadError::NoSpace(_)) => return NO_THREAD,
            }
        }
        MEMORY
    }

    /// Loads pages of a space that the kernel pages into memory, with private copies where the space may
    /// store: otherwise its later stores would not be seen where the pages are mapped to.
    fn bring(&self, space: HatSpace, start: VirtAddr, pages: u64) -> bool {
        (0..pages).all(|page| {
            let addr = start.wrapping_add(page * 4096);
            let allowed = self.vm.rights(space, addr).unwrap_or(Rights::NONE);
            let kind = if allowed.allows(Kind::Store) { Kind::Store } else { Kind::Load };
            let has = self.hat.query(space, addr).map_or(Rights::NONE, |found| found.translation.rights);
            has.allows(kind) || self.kernel(|kernel| kernel.fault(space, addr, kind)).is_ok()
        })
    }
}
