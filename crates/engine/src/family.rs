//! Processes that the program starts.
//!
//! ```text
//!   parent   fork ........ goes on                     child   has copies of memory, engine and code
//!            |                                                 |
//!            marks, copies translated code                     enters the session, with its own ring
//! ```
//!
//! All memory of the engine is private to the process, except translated code and the session,
//! which are shared mappings. Code is copied before the fork, while no thread changes it. `vfork`
//! becomes a `fork`. As in a `vfork`, the parent waits in the kernel until its child has executed a
//! program or has ended. But the parent does not see the child's stores. If the parent has other
//! threads, which continue, it waits in the engine instead: for a pipe that the child closes when
//! it executes a program or ends.

use core::sync::atomic::Ordering;

use ring::{CLONE_VFORK, CLONE_VM, Call};

use crate::record::SIZES;
use crate::run::Engine;
use crate::state::FS_BASE;
use crate::sys::{self, nr};
use crate::{heap, own};

const SIGCHLD: u64 = 17;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_SETTLS: u64 = 0x8_0000;

impl Engine {
    /// Handles `fork`, `vfork`, and `clone` of a process: starts it, and reports it. Returns the result of the
    /// call, in the child as well.
    pub(crate) fn fork(&mut self, number: u64, arguments: [u64; 6]) -> i64 {
        let (call, told) = match number {
            nr::FORK => (Call::Fork, [SIGCHLD, 0, 0, 0, 0, 0]),
            nr::VFORK => (Call::Fork, [CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0, 0]),
            _ => (Call::Clone, arguments),
        };
        let [flags, stack, parent_tid, child_tid, base, _] = told;
        // Without CLONE_VM, handlers cannot be shared.
        let real = flags & !(CLONE_VM | CLONE_SIGHAND);
        let session = self.recorder.session();
        // The child has no other thread that could release these locks.
        let shared = self.shared;
        let mut translator = shared.translator.lock();
        let mut bare = shared.bare.lock();
        let sizes = SIZES.lock();
        let parent = self.recorder.parent(flags);
        let Ok(code) = translator.copy() else { return sys::ENOMEM };
        let Ok(bare_code) = bare.copy() else {
            code.close();
            return sys::ENOMEM;
        };
        let (actions, ended) = (shared.actions.lock(), shared.ended.lock());
        let (known, all) = (shared.known.lock(), shared.all.lock());
        let windows = shared.windows.hold();
        let ends = Awaited::begin(real & CLONE_VFORK != 0 && shared.has_others());
        let real = if ends.is_some() { real & !CLONE_VFORK } else { real };
        session.running.fetch_add(1, Ordering::Relaxed);
        heap::LOCK.take();
        own::LOCK.take();
        let result = self.call(nr::CLONE, [real, 0, parent_tid, child_tid, base, 0]);
        own::LOCK.give_back();
        heap::LOCK.give_back();
        drop((actions, known, all, sizes, windows));
        if result != 0 {
            drop((translator, bare, ended));
            code.close();
            bare_code.close();
            if let Some(ends) = ends {
                ends.wait(result > 0);
            }
            if result < 0 {
                session.running.fetch_sub(1, Ordering::Release);
            }
            if result != sys::RESTART {
                self.tell(call, told, result);
                self.recorder.mark();
            }
            return result;
        }
        drop(ended);
        shared.threads.store(1, Ordering::Relaxed);
        shared.is_shared.store(false, Ordering::Relaxed);
        if let Some(ends) = ends {
            ends.begin_child();
        }
        let state = self.state;
        if stack != 0 {
            state.set_register(4, stack);
        }
        if flags & CLONE_SETTLS != 0 {
            state.set(FS_BASE, base);
        }
        state.set_register(0, 0);
        let is_followed = session.follow != 0 && session.over.load(Ordering::Relaxed) == 0;
        if !is_followed || self.recorder.is_off || !self.recorder.enter_child(parent) {
            code.close();
            bare_code.close();
            drop((translator, bare));
            session.running.fetch_sub(1, Ordering::Release);
            own::hide();
            self.let_go();
        }
        let taken = translator.take(code, state).and(bare.take(bare_code, state));
        drop((translator, bare));
        self.register_alone();
        self.bare = self.bare.renewed();
        self.begin_windows();
        if let Err(why) = taken {
            self.refuse(self.pc, why);
        }
        self.tell_mappings(false);
        self.tell(call, told, 0);
        self.recorder.mark();
        0
    }
}

/// The pipe by which a parent with several threads learns that its child by `vfork` has left.
struct Awaited([u32; 2]);

impl Awaited {
    /// The pipe, if it `is_needed`. If no descriptors are free, the parent continues at once.
    fn begin(is_needed: bool) -> Option<Awaited> {
        const O_CLOEXEC: u64 = 0o2000000;
        let mut ends = [0u32; 2];
        let to = ends.as_mut_ptr() as u64;
        // SAFETY: the call writes two descriptors, for which `ends` has room.
        let made = is_needed && unsafe { sys::call(nr::PIPE2, [to, O_CLOEXEC, 0, 0, 0, 0]) } == 0;
        made.then_some(Awaited(ends))
    }

    fn close(&self, end: usize) {
        // SAFETY: the engine owns the descriptor.
        unsafe { sys::call(nr::CLOSE, [self.0[end].into(), 0, 0, 0, 0, 0]) };
    }

    /// Keeps the end that is to be closed.
    fn begin_child(self) {
        self.close(0);
    }

    /// Waits until the child has left, if it has begun.
    fn wait(self, has_begun: bool) {
        const EINTR: i64 = -4;
        self.close(1);
        let mut byte = 0u8;
        let to = &raw mut byte as u64;
        let arguments = [self.0[0].into(), to, 1, 0, 0, 0];
        // SAFETY: reads at most one byte.
        let read = || unsafe { sys::call(nr::READ, arguments) };
        while has_begun && read() == EINTR {}
        self.close(0);
    }
}
