//! The state of the whole process: the session, the process's slot in it, and the guest's
//! instruction set.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use ring::{Process, Slot};

use crate::isa::Guest;
use crate::shared::Shared;
use crate::{qemu, vcpu};

struct State {
    shared: Shared,
    slot: Slot,
    guest: Guest,
}

struct Cell(UnsafeCell<State>);

// SAFETY: written while the process has one thread (at the start and in a fork's child), read
// afterwards.
unsafe impl Sync for Cell {}

static STATE: Cell = Cell(UnsafeCell::new(State {
    shared: Shared::NONE,
    slot: Slot { index: 0, generation: 0, blocks_inherited: 0 },
    guest: Guest::X86_64,
}));
static STOPPED: AtomicBool = AtomicBool::new(true);
/// Whether QEMU may still have instrumented code, which it should drop.
static STALE: AtomicBool = AtomicBool::new(false);

fn state() -> &'static State {
    // SAFETY: see `Cell`.
    unsafe { &*STATE.0.get() }
}

/// Begins recording in `slot`. The process must have one thread.
pub(crate) fn start(shared: Shared, slot: Slot, guest: Guest) -> Result<(), &'static str> {
    vcpu::share(shared.nexts(slot.index))?;
    // SAFETY: no other thread runs.
    unsafe { STATE.0.get().write(State { shared, slot, guest }) };
    STOPPED.store(false, Ordering::Release);
    Ok(())
}

/// Begins recording the child of a fork in its own slot. Without a slot, the child is not recorded.
pub(crate) fn start_child(slot: Option<Slot>) {
    // Before this, the child's cursors were still those of its parent.
    let slot = slot.filter(|slot| vcpu::share(shared().nexts(slot.index)).is_ok());
    if slot.is_none() {
        vcpu::keep_apart();
    }
    vcpu::begin_all();
    match slot {
        // SAFETY: a child has one thread.
        Some(slot) => unsafe { (*STATE.0.get()).slot = slot },
        None => {
            STOPPED.store(true, Ordering::Release);
            STALE.store(true, Ordering::Release);
        }
    }
}

/// After the end of recording: makes QEMU drop instrumented code, if it still has any.
pub(crate) fn forget_code(vcpu: u32) {
    if STALE.load(Ordering::Relaxed) && STALE.swap(false, Ordering::AcqRel) {
        qemu::flush(vcpu);
    }
}

/// The session's mapping.
pub(crate) fn shared() -> &'static Shared {
    &state().shared
}

/// The slot of this process.
pub(crate) fn slot() -> &'static Slot {
    &state().slot
}

/// The data in the slot of this process.
pub(crate) fn process() -> &'static Process {
    shared().process(slot().index)
}

/// The guest's instruction set.
pub(crate) fn guest() -> Guest {
    state().guest
}

/// Whether recording has not begun or has ended.
pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// Stops recording until [`resume`] is called. May be called only before QEMU has translated
/// anything.
pub(crate) fn wait() {
    STOPPED.store(true, Ordering::Release);
}

/// Begins to record after [`wait`]. The caller must make QEMU translate all blocks again.
pub(crate) fn resume() {
    STOPPED.store(false, Ordering::Release);
}

/// Ends recording. From now on QEMU translates without callbacks.
pub(crate) fn stop(vcpu: u32) {
    if !STOPPED.swap(true, Ordering::AcqRel) {
        qemu::flush(vcpu);
    }
}
