//! The engine's work while translated code counts: at a miss, before system calls, and in repeated and
//! assisted instructions; [`fault`] has faults and signals.

mod fault;

use ring::Tag;

use crate::count::{Access, Counter, Piece, Pointer, Uncounted};
use crate::run::Engine;
use crate::state::{EXIT, RING};
use crate::sys::nr;
use crate::table::{MISS_AT, MISS_CLOCK, POLL_BYTES};
use crate::translate::counted::{Site, Whole, rows};

/// Linux: the system calls that may end the process at once: kill, rt_sigqueueinfo, tkill, tgkill,
/// rt_tgsigqueueinfo, pidfd_send_signal.
const SIGNALLING: [u64; 6] = [62, 129, 200, 234, 297, 424];
/// Called by translated code when a check fails ([`crate::detour`]). Returns the address to continue at.
#[unsafe(no_mangle)]
extern "C" fn pagewalk_count_missed() -> u64 {
    // SAFETY: as for the engine's loop: translated code waits.
    unsafe { Engine::get() }.miss()
}

/// Called on the way back to translated code if a signal waits. Makes the next block stop.
#[unsafe(no_mangle)]
extern "C" fn pagewalk_count_waits() {
    // SAFETY: as above.
    unsafe { Engine::get() }.recorder.hide();
}

impl Engine {
    /// Handles a failed check.
    fn miss(&mut self) -> u64 {
        let code = self.code();
        let (state, counter) = (self.state, &mut self.counter);
        let (address, clock) = (state.get(MISS_AT), state.get(MISS_CLOCK));
        state.set(RING, counter.cursor);
        let Site { block, group } = code.sites[state.get(EXIT) as u32 as usize];
        let block = &code.counted[block as usize];
        let whole = block.whole();
        let tail = match group {
            None => {
                counter.fetch(&mut self.recorder, whole, clock);
                block.fetch.tail
            }
            Some(group) => {
                let group = &block.groups[group as usize];
                let all = &block.accesses[group.first..group.first + group.count];
                let begun = counter.accesses_at(clock);
                let (mut now, mut told, mut stopped) = (clock, 0u128, None);
                for (index, access) in all.iter().enumerate() {
                    let address = address.wrapping_add(access.distance as u64);
                    let made = Access { address, tag: access.tag, before: access.before };
                    let pc = whole.pc + u64::from(access.offset);
                    // If a store to the same address faults, the load of the same instruction is
                    // not made either.
                    let stores = access.tag.stores()
                        || all[index + 1..].iter().any(|other| {
                            other.tag.stores()
                                && other.offset == access.offset
                                && other.distance == access.distance
                        });
                    let can_access = || fault::can_access(pc, made, stores);
                    match counter.access(&mut self.recorder, whole, made, now, can_access) {
                        Some(is_counted) => told |= u128::from(!is_counted) << index,
                        None => {
                            stopped = Some(index);
                            break;
                        }
                    }
                    now += 2 * u64::from(rows(access.tag));
                }
                counter.uncounted = Uncounted { begun, told, stopped };
                group.check.tail
            }
        };
        counter.cursor = state.get(RING);
        tail
    }

    /// Begins to count, if the session requests this and it is supported here. Must be called
    /// before anything is translated.
    pub(crate) fn begin_counting(&mut self) {
        self.counter = Counter::new(self.recorder.session(), self.state);
        self.recorder.counts = self.counter.is_on();
        if self.counter.is_on() {
            self.code().count(self.counter.counting());
            self.signals.take_ends(true);
        }
    }

    /// Reports all counted accesses. Called before events that cannot be counted.
    pub(crate) fn settle_counts(&mut self) {
        self.counter.settle(&mut self.recorder);
    }

    /// Called before a system call of the program. `is_told` says whether the call is reported.
    pub(crate) fn count_before_call(&mut self, number: u64, is_told: bool) {
        match number {
            // Other processes or threads may run from now on.
            nr::CLONE | nr::CLONE3 | nr::FORK | nr::VFORK | nr::EXECVE | nr::EXECVEAT => {
                self.stop_counting();
            }
            _ if is_told || SIGNALLING.contains(&number) => self.settle_counts(),
            _ => {}
        }
    }

    /// From now on, all accesses are recorded.
    pub(crate) fn stop_counting(&mut self) {
        if !self.counter.is_on {
            return;
        }
        self.settle_counts();
        self.counter.is_on = false;
        if self.recorder.is_hidden {
            self.recorder.show();
        }
        self.recorder.counts = false;
        self.signals.take_ends(false);
        let mut code = self.code();
        code.count(None);
        code.forget();
    }

    /// Counts or records a piece of a repeated instruction that has run.
    pub(crate) fn count_piece(&mut self, piece: Piece, mut pointers: [Option<Pointer>; 3]) {
        let (counter, recorder) = (&mut self.counter, &mut self.recorder);
        let whole = whole(piece.pc, piece.bytes);
        if piece.is_first {
            counter.string_begun = counter.accesses_at(counter.clock());
            counter.run_fetch(recorder, whole);
        }
        let mut left = piece.elements;
        while left > 0 {
            let many = counter.many(&pointers, left, piece.is_down);
            if many == 0 {
                counter.element(recorder, whole, &pointers, None);
            }
            let many = many.max(1);
            for pointer in pointers.iter_mut().flatten() {
                let bytes = many.wrapping_mul(pointer.tag.size().into());
                let bytes = if piece.is_down { bytes.wrapping_neg() } else { bytes };
                pointer.address = pointer.address.wrapping_add(bytes);
            }
            left -= many;
        }
        if let Some(fault) = piece.fault {
            counter.element(recorder, whole, &pointers, Some(fault));
        }
        if counter.clock() & 0xffff_ffff > POLL_BYTES / 2 {
            counter.renew(recorder);
        }
    }

    /// Counts or records the accesses of an assisted instruction that is about to run.
    pub(crate) fn count_assisted(&mut self, pc: u64, bytes: u64, accesses: &[(u64, u16)]) {
        let (counter, recorder) = (&mut self.counter, &mut self.recorder);
        let whole = whole(pc, bytes);
        counter.run_fetch(recorder, whole);
        counter.assisted.clear();
        let mut before = 1;
        let mut is_stopped = false;
        for &(address, tag) in accesses {
            let tag = Tag(tag);
            let access = Access { address, tag, before };
            let clock = counter.clock();
            let can_access = || fault::can_access(pc, access, access.tag.stores());
            let made = match is_stopped {
                true => None,
                false => counter.access(recorder, whole, access, clock, can_access),
            };
            is_stopped = made.is_none();
            counter.assisted.push((address, tag, made == Some(true)));
            counter.advance(rows(tag).into(), 0);
            before += rows(tag);
        }
    }
}

/// A block of one instruction, which the engine executes.
fn whole(pc: u64, bytes: u64) -> Whole {
    Whole { pc, bytes: bytes as u32, instructions: 1 }
}
