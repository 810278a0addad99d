//! How threads change between bare code and recorded code ([`crate::bare`]).

use core::sync::atomic::Ordering;

use ring::{BeginsWith, Call, EventCode, PLACES_MAX};

use crate::bare::{ENDLESS, INSTRUCTIONS_SHIFT, LAST, PLACE, Phase, SHARE_MIN, rows};
use crate::run::Engine;
use crate::signal::Context;
use crate::state::{FLAGS, HELD, PENDING, RECORD, RING, SCRATCH};
use crate::table;
use crate::translate::Found;
use crate::ways;

impl Engine {
    /// Begins the windows of a process: of a new program, or a child.
    pub(crate) fn begin_windows(&mut self) {
        let session = self.recorder.session();
        let windows = &self.shared.windows;
        let samples = session.leaves_out != 0 && session.sample[1] != 0;
        windows.asking.reset();
        windows.samples.store(samples.into(), Ordering::Relaxed);
        self.shared.bare.lock().fetches = u32::from(session.fetches != 0);
        let mut phase = windows.phase.lock();
        let is_waiting = session.sign != BeginsWith::None as u32 && !self.has_begun();
        let to = match (session.leaves_out != 0, is_waiting) {
            (false, _) => (Phase::Records, 0),
            (true, true) => (Phase::Waits, ENDLESS),
            (true, false) => self.phase_now(),
        };
        windows.set(to, &mut phase);
        if samples {
            let left = windows.left.load(Ordering::Relaxed);
            self.recorder.begin_walk(left.max(0) as u64);
        }
    }

    fn has_begun(&self) -> bool {
        self.recorder.session().begun.load(Ordering::SeqCst) != 0
    }

    /// What the process does after as many accesses as it has made, and how many it may leave out.
    fn phase_now(&self) -> (Phase, u64) {
        let (session, process) = (self.recorder.session(), self.recorder.process());
        let position = process.position.load(Ordering::Relaxed);
        let (skip, [window, period]) = (session.leave_out, session.sample);
        if position < skip {
            return (Phase::LeavesOut, skip - position);
        }
        if period == 0 {
            process.position.store(u64::MAX, Ordering::Relaxed);
            return (Phase::Records, 0);
        }
        let at = (position - skip) % period;
        if at < window {
            self.shared.windows.left.store((window - at) as i64, Ordering::Relaxed);
            (Phase::Records, 0)
        } else {
            (Phase::LeavesOut, period - at)
        }
    }

    /// Whether the process waits for the call of a function.
    pub(crate) fn waits_for_symbol(&self) -> bool {
        self.recorder.session().sign == BeginsWith::Symbol as u32 && self.waits()
    }

    fn waits(&self) -> bool {
        self.shared.windows.is_waiting.load(Ordering::SeqCst) != 0
    }

    /// Whether this call is the marker for which the process waits.
    pub(crate) fn is_awaited(&self, call: Call, arguments: [u64; 6]) -> bool {
        let session = self.recorder.session();
        let is_it = session.sign == BeginsWith::AnyMarker as u32
            || session.sign == BeginsWith::Marker as u32 && arguments[2] == session.sign_number;
        const PAGE_SIZE: u64 = 2;
        call == Call::Marker && arguments[1] != PAGE_SIZE && is_it && self.waits()
    }

    /// Begins the window, because this thread has reached the sign of the window. If `tells` is
    /// true, the host cannot observe the sign and is notified.
    pub(crate) fn sign_came(&mut self, tells: bool) {
        self.report_left_out();
        if tells {
            self.recorder.event(EventCode::Begins, &[]);
            self.recorder.mark();
        }
        self.recorder.session().begun.store(1, Ordering::SeqCst);
        self.see_sign();
    }

    /// Ends the time of waiting, as the sign has come.
    fn see_sign(&mut self) {
        let windows = &self.shared.windows;
        let mut phase = windows.phase.lock();
        if phase.0 != Phase::Waits {
            return;
        }
        let to = self.phase_now();
        windows.set(to, &mut phase);
        drop(phase);
        self.shared.bare.lock().set_places(&[]);
        self.kick_others();
    }

    /// Asks the host for the addresses of the symbol that begins the window, if the process waits for one.
    pub(crate) fn ask_for_places(&mut self) {
        if !self.waits_for_symbol() || self.recorder.is_off {
            return;
        }
        let shared = self.shared;
        shared.windows.asking.take();
        let process = self.recorder.process();
        let mine = process.places_asked.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.recorder.event(EventCode::Places, &[]);
        self.recorder.mark();
        let is_answered = || process.places_answered.load(Ordering::Acquire) == mine;
        let has_begun = || self.has_begun();
        while !is_answered() && !has_begun() && !self.recorder.is_unwanted() {
            if !self.recorder.wait_until(is_answered) {
                break;
            }
        }
        let count = process.places_count.load(Ordering::Relaxed) as usize;
        let mut places = [0; PLACES_MAX];
        for (to, place) in places.iter_mut().zip(&process.places) {
            *to = place.load(Ordering::Relaxed);
        }
        if is_answered() && count <= PLACES_MAX {
            shared.bare.lock().set_places(&places[..count]);
        } else if is_answered() {
            // There are too many addresses, so the process is recorded and the host finds the sign.
            let mut phase = shared.windows.phase.lock();
            shared.windows.set((Phase::Records, 0), &mut phase);
        }
        shared.windows.asking.give_back();
    }

    /// Reports what this thread has left out since the last report.
    pub(crate) fn report_left_out(&mut self) {
        self.take_stock();
        let (accesses, instructions) = (self.bare.accesses, self.bare.instructions);
        (self.bare.accesses, self.bare.instructions) = (0, 0);
        if (accesses, instructions) != (0, 0) && !self.recorder.is_off {
            self.recorder.event(EventCode::LeftOut, &[&[accesses, instructions]]);
            self.recorder.mark();
        }
    }

    /// Adds what this thread has counted to what its process has made.
    fn take_stock(&mut self) {
        let accesses = self.bare.settle();
        if self.bare.is_limited {
            self.advance(accesses);
        }
    }

    /// Adds `accesses` to the number of accesses that the process has made.
    fn advance(&self, accesses: u64) {
        let position = &self.recorder.process().position;
        let more = |position: u64| Some(position.saturating_add(accesses));
        // It cannot fail.
        let _ = position.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Gives back the rest of this thread's share, and takes another one that has room for the accesses that it wants.
    /// Returns whether there was one.
    fn take_share(&mut self) -> bool {
        self.take_stock();
        let windows = &self.shared.windows;
        let mut phase = windows.phase.lock();
        let turn = windows.turn.load(Ordering::Relaxed);
        if self.bare.is_limited && turn == self.bare.turn && phase.1 != ENDLESS {
            phase.1 += self.bare.room();
        }
        self.bare.turn = turn;
        let is_endless = self.recorder.is_off || phase.0 == Phase::Waits;
        self.bare.is_limited = !is_endless;
        let share = if is_endless {
            LAST
        } else {
            let threads = u64::from(self.shared.threads.load(Ordering::Relaxed));
            let most = if threads > 1 { (phase.1 / (2 * threads)).max(SHARE_MIN) } else { LAST };
            let share = phase.1.min(most).min(LAST);
            if phase.0 != Phase::LeavesOut || share < self.bare.wanted.max(1) {
                self.bare.is_limited = false;
                (self.bare.begin, self.bare.count) = (LAST, LAST);
                return false;
            }
            phase.1 -= share;
            share
        };
        let place = LAST - share;
        (self.bare.begin, self.bare.count, self.bare.wanted) = (place, place, 0);
        true
    }

    /// Whether the engine may execute `accesses` now in bare code. If not, the thread has to
    /// continue in the engine's loop, which changes to recording code.
    pub(crate) fn may_leave_out(&mut self, accesses: u64) -> bool {
        self.bare.wanted = accesses;
        let may = self.bare.room() >= accesses || self.take_share();
        if may {
            self.bare.wanted = 0;
        }
        may
    }

    /// Before translated code is entered: changes between bare and recorded code if necessary.
    pub(crate) fn choose_code(&mut self) {
        if self.counter.is_on() {
            return;
        }
        let windows = &self.shared.windows;
        if self.waits() && self.has_begun() {
            self.see_sign();
        }
        if self.bare.is_on && self.recorder.is_unwanted() {
            self.recorder.off();
        }
        if !self.bare.is_on && windows.samples.load(Ordering::Relaxed) != 0 {
            self.count_recorded();
            if windows.is_full() {
                self.end_window();
            }
        }
        loop {
            let is_bare = self.recorder.is_off || windows.is_bare.load(Ordering::SeqCst) != 0;
            if !is_bare {
                return self.record_code();
            }
            if !self.bare.is_on && !self.bare_code() {
                return;
            }
            let is_old = self.bare.turn != windows.turn.load(Ordering::SeqCst)
                || self.recorder.is_off && self.bare.is_limited;
            if !is_old && self.bare.room() > 0 && self.bare.room() >= self.bare.wanted {
                return;
            }
            if self.take_share() {
                return;
            }
            // No further accesses may be left out.
            let mut phase = windows.phase.lock();
            if phase.0 == Phase::LeavesOut && windows.turn.load(Ordering::Relaxed) == self.bare.turn
            {
                let rest = core::mem::take(&mut phase.1);
                match self.recorder.session().sample {
                    [_, 0] => self.recorder.process().position.store(u64::MAX, Ordering::Relaxed),
                    [window, _] => windows.begin_window(window, rest),
                }
                windows.set((Phase::Records, 0), &mut phase);
                drop(phase);
                self.kick_others();
            }
        }
    }

    /// Changes to bare code. Returns whether that is possible.
    fn bare_code(&mut self) -> bool {
        self.bare.has_window |= table::map_window(self.state).is_some();
        if !self.bare.has_window {
            return false;
        }
        self.bare.is_on = true;
        self.recorder.counts = true;
        self.recorder.mark();
        self.bare.turn = self.shared.windows.turn.load(Ordering::SeqCst).wrapping_sub(1);
        self.bare.is_limited = false;
        (self.bare.begin, self.bare.count, self.bare.wanted) = (LAST, LAST, 0);
        true
    }

    /// Changes to recorded code, if this thread does not run it.
    fn record_code(&mut self) {
        if !self.bare.is_on {
            return;
        }
        self.report_left_out();
        self.bare.is_on = false;
        self.recorder.counts = false;
        if self.shared.windows.samples.load(Ordering::Relaxed) != 0 {
            let left = self.shared.windows.left.load(Ordering::Relaxed);
            self.recorder.begin_walk(left.max(0) as u64);
        }
    }

    /// In a sample: adds the accesses that this thread has recorded since the last call to the
    /// accesses of its process.
    pub(crate) fn count_recorded(&mut self) {
        if self.recorder.is_off {
            return;
        }
        let accesses = self.recorder.walk();
        self.advance(accesses);
        let left = &self.shared.windows.left;
        let left = left.fetch_sub(accesses as i64, Ordering::Relaxed) - accesses as i64;
        self.recorder.shorten(left.max(0) as u64);
    }

    /// Ends the window of a sample.
    fn end_window(&mut self) {
        let windows = &self.shared.windows;
        let mut phase = windows.phase.lock();
        if phase.0 == Phase::Records && windows.is_full() {
            let to = self.phase_now();
            windows.set(to, &mut phase);
            drop(phase);
            self.kick_others();
        }
    }

    /// Called in a signal handler after a span of recorded code: whether this thread is to change to bare code.
    pub(crate) fn leaves_recorded(&mut self) -> bool {
        if self.bare.is_on || self.counter.is_on() {
            return false;
        }
        if self.shared.windows.samples.load(Ordering::Relaxed) != 0 {
            self.count_recorded();
        }
        if self.is_leaving() {
            self.recorder.shorten(0);
        }
        self.recorder.is_off || self.is_leaving() || self.shared.windows.is_full()
    }

    /// Handles a fault at `at` in bare code for `address` if it is not the program's. Returns whether it was one.
    pub(crate) fn resolve_bare(&mut self, context: &mut Context, at: u64, address: u64) -> bool {
        if !self.bare.is_on || !self.bare.is_poll(address) {
            return false;
        }
        if self.recorder.is_hidden {
            self.recorder.show();
            if self.state.get(PENDING) == 0 {
                return true;
            }
        }
        let Some(found) = self.code().find(at) else { return false };
        self.bare.wanted = found.block.counts & PLACE;
        settle(self, context, &found, Some(address));
        true
    }

    /// Stores the program's registers in their slots, as they are at the instruction that `found` says, and takes back what
    /// was counted and not done. The engine continues after the handler.
    pub(crate) fn settle_bare(
        &mut self,
        context: &mut Context,
        found: &Found,
        address: Option<u64>,
    ) {
        settle(self, context, found, address);
    }
}

fn settle(engine: &mut Engine, context: &mut Context, found: &Found, address: Option<u64>) {
    let (state, block) = (engine.state, found.block);
    let is_assisted = block.is_assisted();
    let is_own = !is_assisted && (found.after || found.before_record);
    let slotted = if is_own { 1 << RECORD | 1 << SCRATCH } else { block.slotted };
    for number in 0..16u8 {
        if slotted >> number & 1 == 0 {
            state.set_register(number, context.register(number));
        }
    }
    state.set(FLAGS, context.registers.flags);
    context.registers.flags &= !crate::state::ALIGNMENT;
    let mut count = match (is_assisted, is_own) {
        (true, _) => state.get(HELD),
        (false, true) => context.register(RECORD),
        (false, false) => context.register(block.record),
    };
    if found.before_record {
        // If the fault is in the comparison of the block's code, the block has not been counted
        // yet.
        if address.is_some_and(|address| engine.bare.is_poll(address)) {
            count = count.wrapping_sub(block.counts);
        }
    } else if !is_assisted && !found.after && block.counts != 0 {
        let code = engine.code();
        let is_left = |tag: u16| u32::from(ring::Tag(tag).instruction()) >= found.instruction;
        let told = code.accesses(&block).iter().map(|told| told.tag);
        let left: u64 = told.clone().filter(|&tag| is_left(tag)).map(rows).sum();
        // The host counts an interrupted block up to the last access that was made, so the engine
        // does the same.
        let last = told.rev().find(|&tag| !is_left(tag));
        let all = code.instructions(&block);
        let done = last.map_or(all, |tag| u32::from(ring::Tag(tag).instruction()) + 1);
        let instructions = u64::from(all - done.min(all));
        count = count.wrapping_sub(left).wrapping_sub(instructions << INSTRUCTIONS_SHIFT);
    }
    state.set(RING, count);
    engine.pc = found.pc;
    context.registers.rip = ways::resume();
}
