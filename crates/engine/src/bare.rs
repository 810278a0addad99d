//! Windows: what is outside of them runs in translated code that records nothing.
//!
//! ```text
//!   begin    the window's sign, or a number of accesses, is ahead: *bare* code, which only counts
//!   bare     block -> block -> ... -> the next block would exceed the number, or begins with the sign
//!            -> reports what was left out ([`EventCode::LeftOut`]) -> recorded code, at the same block
//!   recorded a window of a sample is full, or the host needs no more -> bare code
//! ```
//!
//! Each kind of code has its own translator, and links between blocks stay in it. A thread changes between them in the
//! engine's loop, before it goes on. The count of bare code is in r11: above 32 bits the instructions, below them a place
//! in the window of pages behind the thread's data ([`table::POLL`]), which advances by one for each access. The place is
//! chosen so that the block which exceeds the thread's share of the number ends its count behind the window, and so
//! faults before it does anything. Threads take shares of what their process may still leave out.
//!
//! The host drops what is left of the number, as blocks are recorded whole, and accesses of several threads are
//! counted in shares.

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::lock::{Lock, Locked};
use crate::state::{RING, State};
use crate::table::{GUARD_BYTES, POLL, POLL_BYTES};
pub(crate) use crate::translate::bare::{INSTRUCTIONS_SHIFT, rows};

/// The last place in the window that can be read.
pub(crate) const LAST: u64 = POLL_BYTES - 1;
/// The smallest number of accesses that a thread takes at a time from those that are to be left
/// out, if there are several threads and as many are left.
pub(crate) const SHARE_MIN: u64 = 1 << 12;
pub(crate) const PLACE: u64 = (1 << INSTRUCTIONS_SHIFT) - 1;
/// Stands for a number of accesses if only a sign can end bare code.
pub(crate) const ENDLESS: u64 = u64::MAX;

/// What the threads of a process do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The threads wait for the sign that begins a window.
    Waits,
    /// The threads count accesses and leave them out of the recording.
    LeavesOut,
    /// The threads record accesses.
    Records,
}

/// The state of the windows that the threads of a process share.
pub(crate) struct Windows {
    pub(crate) phase: Locked<(Phase, u64)>,
    /// 1 while threads run bare code. The next field is 1 until the sign has been reached.
    pub(crate) is_bare: AtomicU32,
    pub(crate) is_waiting: AtomicU32,
    /// The number of changes of the phase.
    pub(crate) turn: AtomicU32,
    /// The number of accesses that are still to be recorded in the current window of a sample.
    pub(crate) left: AtomicI64,
    /// 1 if the windows are those of a sample.
    pub(crate) samples: AtomicU32,
    /// Taken while a thread waits for the addresses of the sign.
    pub(crate) asking: Lock,
}

impl Windows {
    pub(crate) const fn new() -> Windows {
        Windows {
            phase: Locked::new((Phase::Records, 0)),
            is_bare: AtomicU32::new(0),
            is_waiting: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            left: AtomicI64::new(0),
            samples: AtomicU32::new(0),
            asking: Lock::new(),
        }
    }

    /// Whether a window of a sample has all of its accesses.
    pub(crate) fn is_full(&self) -> bool {
        self.samples.load(Ordering::Relaxed) != 0 && self.left.load(Ordering::Relaxed) <= 0
    }

    /// Takes the lock of the phase while the process forks.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.phase.lock()
    }

    pub(crate) fn set(&self, to: (Phase, u64), phase: &mut (Phase, u64)) {
        *phase = to;
        self.is_waiting.store((to.0 == Phase::Waits).into(), Ordering::SeqCst);
        self.is_bare.store((to.0 != Phase::Records).into(), Ordering::SeqCst);
        self.turn.fetch_add(1, Ordering::SeqCst);
    }
}

/// What a thread counts in bare code.
pub(crate) struct Bare {
    pub(crate) state: State,
    /// Whether the thread runs bare code.
    pub(crate) is_on: bool,
    pub(crate) is_inside: bool,
    pub(crate) has_window: bool,
    /// While the engine runs: the count. While translated code runs: the address of the next record.
    pub(crate) count: u64,
    pub(crate) cursor: u64,
    /// The place in the window at which counting began, and the turn for which the share was taken.
    pub(crate) begin: u64,
    pub(crate) turn: u32,
    /// Whether the share is of a number.
    pub(crate) is_limited: bool,
    /// The accesses of the block that exceeded the share.
    pub(crate) wanted: u64,
    /// Accesses and instructions that were left out and not reported.
    pub(crate) accesses: u64,
    pub(crate) instructions: u64,
    /// The address of a repeated instruction that has begun in bare code and continues in recording
    /// code.
    pub(crate) repeated: Option<u64>,
}

impl Bare {
    pub(crate) fn off(state: State, has_window: bool) -> Bare {
        Bare {
            state,
            is_on: false,
            is_inside: false,
            has_window,
            count: 0,
            cursor: 0,
            begin: 0,
            turn: 0,
            is_limited: false,
            wanted: 0,
            accesses: 0,
            instructions: 0,
            repeated: None,
        }
    }

    /// That of a new thread in the memory of this one, which has ended.
    pub(crate) fn renewed(&self) -> Bare {
        Bare::off(self.state, self.has_window)
    }

    /// Called when the engine is entered by way of its exits: r11 was the count.
    pub(crate) fn leave(&mut self) {
        if self.is_on && core::mem::take(&mut self.is_inside) {
            self.count = self.state.get(RING);
            self.state.set(RING, self.cursor);
        }
    }

    /// Called before translated code is entered: r11 will be the count.
    pub(crate) fn enter(&mut self) {
        if self.is_on {
            self.is_inside = true;
            self.cursor = self.state.get(RING);
            self.state.set(RING, self.count);
        }
    }

    /// The accesses that the thread may still leave out.
    pub(crate) fn room(&self) -> u64 {
        LAST.saturating_sub(self.count & PLACE)
    }

    /// Counts accesses and instructions that the engine itself has executed. The number of accesses
    /// that may still be left out must be large enough.
    pub(crate) fn add(&mut self, accesses: u64, instructions: u64) {
        self.count =
            self.count.wrapping_add(accesses).wrapping_add(instructions << INSTRUCTIONS_SHIFT);
    }

    /// Moves what was counted out of the count.
    pub(crate) fn settle(&mut self) -> u64 {
        let place = self.count & PLACE;
        let accesses = place.wrapping_sub(self.begin);
        self.accesses = self.accesses.wrapping_add(accesses);
        self.instructions = self.instructions.wrapping_add(self.count >> INSTRUCTIONS_SHIFT);
        (self.begin, self.count) = (place, place);
        accesses
    }

    /// Whether the address is in the window that blocks read, or behind it.
    pub(crate) fn is_poll(&self, address: u64) -> bool {
        let poll = self.state.0 + POLL as u64;
        address.wrapping_sub(poll) < POLL_BYTES + GUARD_BYTES
    }
}

impl Windows {
    /// Begins a window of a sample of this length, `rest` accesses before its first one.
    pub(crate) fn begin_window(&self, window: u64, rest: u64) {
        self.left.store(window.saturating_add(rest) as i64, Ordering::Relaxed);
    }
}
