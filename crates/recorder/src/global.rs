//! What the whole process knows: the session, its place in it, the guest.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use ring::Process;

use crate::calls::Guest;
use crate::shared::{Place, Shared};
use crate::{qemu, vcpu};

struct State {
    shared: Shared,
    place: Place,
    guest: Guest,
}

struct Cell(UnsafeCell<State>);

// SAFETY: written while the process has one thread (at the start and in a fork's child), read
// afterwards.
unsafe impl Sync for Cell {}

static STATE: Cell = Cell(UnsafeCell::new(State {
    shared: Shared::NONE,
    place: Place { slot: 0, generation: 0, blocks_inherited: 0 },
    guest: Guest::X86_64,
}));
static STOPPED: AtomicBool = AtomicBool::new(true);
/// Whether there is instrumented code that QEMU has still to forget.
static STALE: AtomicBool = AtomicBool::new(false);

fn state() -> &'static State {
    // SAFETY: see `Cell`.
    unsafe { &*STATE.0.get() }
}

/// Begins to record in `place`. The process must have one thread.
pub(crate) fn start(shared: Shared, place: Place, guest: Guest) -> Result<(), &'static str> {
    vcpu::share(shared.nexts(place.slot))?;
    // SAFETY: nobody else runs.
    unsafe { STATE.0.get().write(State { shared, place, guest }) };
    STOPPED.store(false, Ordering::Release);
    Ok(())
}

/// A fork's child begins to record in its own place, or not at all.
pub(crate) fn start_child(place: Option<Place>) {
    // Until here the cursors are the parent's.
    let place = place.filter(|place| vcpu::share(shared().nexts(place.slot)).is_ok());
    if place.is_none() {
        vcpu::keep_apart();
    }
    vcpu::begin_all();
    match place {
        // SAFETY: a child has one thread.
        Some(place) => unsafe { (*STATE.0.get()).place = place },
        None => {
            STOPPED.store(true, Ordering::Release);
            STALE.store(true, Ordering::Release);
        }
    }
}

/// Nothing is recorded any more: lets QEMU forget instrumented code, if that is still to do.
pub(crate) fn forget_code(vcpu: u32) {
    if STALE.load(Ordering::Relaxed) && STALE.swap(false, Ordering::AcqRel) {
        qemu::flush(vcpu);
    }
}

/// The session's mapping.
pub(crate) fn shared() -> &'static Shared {
    &state().shared
}

/// This process's slot and generation.
pub(crate) fn place() -> &'static Place {
    &state().place
}

/// This process's slot.
pub(crate) fn process() -> &'static Process {
    shared().process(place().slot)
}

/// The guest's instruction set.
pub(crate) fn guest() -> Guest {
    state().guest
}

/// Whether nothing is recorded, or nothing more.
pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// Records nothing more, and lets QEMU translate without callbacks from here on.
pub(crate) fn stop(vcpu: u32) {
    if !STOPPED.swap(true, Ordering::AcqRel) {
        qemu::flush(vcpu);
    }
}
