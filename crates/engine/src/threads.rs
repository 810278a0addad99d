//! Threads: each has registers, a ring and stacks of its own; all threads share the translated code.
//!
//! ```text
//!   parent   takes memory for the thread, fills it, clone -------------> goes on
//!   thread                                      | gs, its ring, its mask -> translated code -> exit
//! ```
//!
//! The kernel begins the thread on a stack of the engine's. No signal comes before its base of gs is set, as its
//! handler would find another thread's data there. The kernel still does the work for a thread that uses addresses of
//! the program, such as that of `CLONE_CHILD_CLEARTID` or of a list of robust futexes. The memory of a thread
//! that has ended is used for another one.

use core::sync::atomic::{AtomicU32, Ordering};

use ring::{CHUNK_BYTES, Call, EventCode};

use crate::run::{Ended, Engine, STACK_BYTES};
use crate::state::{BYTES, ENGINE_RSP, FLAGS, FS_BASE, GS_BASE, IS_THERE, PENDING, State, TID};
use crate::sys::{self, nr};
use crate::{own, table, ways};

const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_THREAD: u64 = 0x1_0000;

/// Memory of a thread.
struct Room {
    state: State,
    view: u64,
}

impl Engine {
    /// Handles a `clone` of a thread. Returns its result.
    pub(crate) fn begin_thread(&mut self, pc: u64, arguments: [u64; 6]) -> i64 {
        const EAGAIN: i64 = -11;
        let [flags, stack, parent_tid, child_tid, base, _] = arguments;
        if flags & CLONE_THREAD == 0 {
            self.refuse(pc, "it starts a process in its own memory (CLONE_VM)");
        }
        for code in self.shared.codes() {
            if !code.lock().share() {
                return EAGAIN;
            }
        }
        if !self.shared.is_shared.swap(true, Ordering::Relaxed) {
            // SAFETY: `gettid` takes no arguments and cannot fail.
            self.state.set(TID, unsafe { sys::call(nr::GETTID, [0; 6]) } as u64);
        }
        let Some(thread) = self.new_thread() else { return EAGAIN };
        let state = thread.state;
        for number in 0..16u8 {
            state.set_register(number, self.state.register(number));
        }
        state.set_register(0, 0);
        if stack != 0 {
            state.set_register(4, stack);
        }
        for slot in [FLAGS, FS_BASE, GS_BASE] {
            state.set(slot, self.state.get(slot));
        }
        if flags & CLONE_SETTLS != 0 {
            state.set(FS_BASE, base);
        }
        state.set(PENDING, 0);
        (thread.pc, thread.repeat) = (self.pc, None);
        self.shared.threads.fetch_add(1, Ordering::AcqRel);
        self.register(state);
        let at = thread as *mut Engine;
        let real = [flags, state.get(ENGINE_RSP), parent_tid, child_tid, base];
        self.signals.set_real_mask(u64::MAX);
        // SAFETY: the thread's memory is complete, and no other code uses it from here on.
        let result = unsafe { ways::pagewalk_clone(&real, at as u64) };
        self.signals.set_mask(self.signals.mask);
        if result < 0 {
            self.shared.threads.fetch_sub(1, Ordering::AcqRel);
            self.unregister(state);
            self.keep_room(at, &GONE);
        }
        self.tell(Call::Clone, arguments, result);
        self.recorder.mark();
        result
    }

    /// An engine for a new thread, with memory of its own.
    pub(crate) fn new_thread(&self) -> Option<&'static mut Engine> {
        let signals = |engine: &Engine| engine.signals.of_thread();
        let mut ended = self.shared.ended.lock();
        let gone = ended.iter().position(|one| one.is_there.load(Ordering::Acquire) == 0);
        if let Some(at) = gone {
            let Ended { engine, .. } = ended.swap_remove(at);
            drop(ended);
            // SAFETY: the thread has ended, and the memory of its engine is still mapped.
            let thread = unsafe { &mut *(engine as *mut Engine) };
            thread.signals.renew(self.signals.mask);
            thread.bare = thread.bare.renewed();
            thread.recorder = self.recorder.of_thread(thread.state, thread.recorder.view);
            return Some(thread);
        }
        drop(ended);
        let room = Room::new()?;
        let stack = own::private(STACK_BYTES)?;
        room.state.set(ENGINE_RSP, stack + STACK_BYTES - 64);
        for code in self.shared.codes() {
            if !code.lock().share_with(room.state) {
                return None;
            }
        }
        let recorder = self.recorder.of_thread(room.state, room.view);
        let signals = signals(self)?;
        Some(Engine::place(self.start, room.state, self.shared, recorder, signals))
    }

    fn keep_room(&self, engine: *mut Engine, is_there: &'static AtomicU32) {
        let ended = Ended { engine: engine as usize, is_there };
        self.shared.ended.lock().push(ended);
    }

    /// Ends this thread by `exit`, while other threads continue.
    pub(crate) fn end_thread(&mut self, arguments: [u64; 6]) -> ! {
        self.report_left_out();
        self.tell(Call::Exit, arguments, 0);
        self.recorder.event(EventCode::ThreadEnd, &[]);
        self.recorder.mark();
        self.signals.set_real_mask(u64::MAX);
        self.unregister(self.state);
        self.recorder.close();
        // The word is in memory that stays mapped, and is cleared at the very end.
        // SAFETY: it is an aligned word of the thread's shared data.
        let word = unsafe { &*((self.state.0 + IS_THERE as u64) as *const AtomicU32) };
        word.store(1, Ordering::Release);
        let own = self as *mut Engine;
        self.keep_room(own, word);
        // SAFETY: nothing of this thread is used from here on.
        unsafe { ways::pagewalk_exit(word.as_ptr(), arguments[0]) }
    }
}

/// The word ([`Ended::is_there`]) of a thread that could not be started.
static GONE: AtomicU32 = AtomicU32::new(0);

impl Room {
    fn new() -> Option<Room> {
        let state = State(own::private_and(BYTES, table::WINDOW_ROOM_BYTES)?);
        let room = own::private(3 * CHUNK_BYTES as u64)?;
        Some(Room { state, view: room.next_multiple_of(CHUNK_BYTES as u64) })
    }
}
