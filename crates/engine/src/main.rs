//! The engine as a freestanding program: the host copies it into another program's memory and enters it at
//! its first instruction, with the address of a [`ring::Start`] in rdi.
#![no_std]
#![no_main]

use core::panic::PanicInfo;

#[global_allocator]
static HEAP: engine::Heap = engine::Heap::new();

/// The first instruction of the engine.
///
/// # Safety
///
/// The host enters here, on a stack of the engine's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _start(start: *const ring::Start) -> ! {
    // SAFETY: the host calls this function with a pointer that fulfils the contract of `begin`.
    unsafe { engine::begin(start) }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let place = info.location().map_or(("?", 0), |place| (place.file(), place.line()));
    engine::fail(place.0, place.1)
}
