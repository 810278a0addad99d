//! Leaves the program for good: the program continues in its own code, as without the engine.
//!
//! A child that is not recorded continues in this way. The kernel restores all registers at once, from a signal
//! frame in the engine's memory; the engine's code and its private memory stay.

use ring::{CHUNK_BYTES, SESSION_BYTES};

use crate::run::{ARCH_SET_GS, Engine};
use crate::state::{GS_BASE, RING_PAGE};
use crate::sys::{self, nr};
use crate::ways;

impl Engine {
    /// Lets the program continue without the engine, at [`Engine::pc`]. The process must have one
    /// thread.
    pub(crate) fn let_go(&mut self) -> ! {
        self.signals.set_real_mask(u64::MAX);
        self.signals.give_back(true);
        let mut frame = self.context();
        frame.context.registers.floating = self.signals.save() as u64;
        // Unmaps memory of the engine that the program could overwrite by accident.
        for (at, bytes) in [
            (self.recorder.base, SESSION_BYTES as u64),
            (self.recorder.view, 2 * CHUNK_BYTES as u64),
            (self.state.0 + RING_PAGE as u64, 4096),
        ] {
            // SAFETY: the mapping belongs to the engine, which does not use it any more.
            unsafe { sys::call(nr::MUNMAP, [at, bytes, 0, 0, 0, 0]) };
        }
        for code in self.shared.codes() {
            code.lock().unmap();
        }
        let base = self.state.get(GS_BASE);
        // SAFETY: from here on only the program uses gs, and the frame is complete.
        unsafe {
            sys::call(nr::ARCH_PRCTL, [ARCH_SET_GS, base, 0, 0, 0, 0]);
            ways::pagewalk_go(&raw const frame)
        }
    }
}
