//! The host's services for a kernel without std that boots as a process: memory, printing a number,
//! and stopping. The kernel uses no other service of the host.

use core::{
    alloc::{GlobalAlloc, Layout},
    ffi::{c_int, c_void},
    panic::PanicInfo,
};

#[link(name = "c")]
unsafe extern "C" {
    fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
    fn write(file: c_int, text: *const u8, bytes: usize) -> isize;
    fn abort() -> !;
}

struct Host;

#[global_allocator]
static HOST: Host = Host;

// SAFETY: memory of the C library is aligned and long enough, and is freed once.
unsafe impl GlobalAlloc for Host {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let alignment = layout.align().max(size_of::<usize>());
        let bytes = layout.size().next_multiple_of(alignment);
        // SAFETY: the alignment is a power of two and divides the length.
        unsafe { aligned_alloc(alignment, bytes) }.cast()
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: the memory came from `alloc`.
        unsafe { free(memory.cast()) }
    }
}

#[panic_handler]
fn stop(_: &PanicInfo<'_>) -> ! {
    // SAFETY: the function takes no arguments.
    unsafe { abort() }
}

/// A symbol that the toolchain's own `alloc` needs, as it is built for unwinding; nothing unwinds
/// here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// The second symbol that the toolchain's own `alloc` needs, as it is built for unwinding.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    // SAFETY: the function takes no arguments.
    unsafe { abort() }
}

/// Prints a number on standard output.
pub(crate) fn say(number: u64) {
    let (mut digits, mut rest) = ([b'\n'; 21], number);
    let mut at = digits.len() - 1;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    // SAFETY: the passed length is the length of the slice.
    let written = unsafe { write(1, digits[at..].as_ptr(), digits.len() - at) };
    assert_eq!(written, (digits.len() - at) as isize);
}
