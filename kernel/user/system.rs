//! System calls, and printing.

use core::fmt::{self, Write};

use crate::abi::{Fact, Failure, Number, OK, STOPPED};

/// Calls the kernel. Returns the first six results.
pub fn call(number: Number, arguments: [u64; 6]) -> [u64; 6] {
    any_call(number as u64, arguments)
}

/// Calls the kernel with any number, which need not be a system call's. Returns the first six results.
#[cfg(target_arch = "x86_64")]
pub fn any_call(number: u64, arguments: [u64; 6]) -> [u64; 6] {
    let [a, b, c, d, e, f] = arguments;
    let mut results = [0; 6];
    // SAFETY: the kernel changes these registers, and what memory the call says.
    unsafe {
        core::arch::asm!(
            "int 0x80",
            inlateout("rax") number => results[0],
            inlateout("rdi") a => results[1],
            inlateout("rsi") b => results[2],
            inlateout("rdx") c => results[3],
            inlateout("r10") d => results[4],
            inlateout("r8") e => results[5],
            in("r9") f,
            options(nostack),
        );
    }
    results
}

/// Calls the kernel with any number, which need not be a system call's. Returns the first six results.
#[cfg(target_arch = "riscv64")]
pub fn any_call(number: u64, arguments: [u64; 6]) -> [u64; 6] {
    let [a, b, c, d, e, f] = arguments;
    let mut results = [0; 6];
    // SAFETY: the kernel changes these registers, and what memory the call says.
    unsafe {
        core::arch::asm!(
            "ecall",
            inlateout("a0") a => results[0],
            inlateout("a1") b => results[1],
            inlateout("a2") c => results[2],
            inlateout("a3") d => results[3],
            inlateout("a4") e => results[4],
            inlateout("a5") f => results[5],
            in("a7") number,
            options(nostack),
        );
    }
    results
}

/// Makes a system call with these arguments, and zeros for the others. Returns the first two results.
pub fn simple(number: Number, arguments: &[u64]) -> (u64, u64) {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let [status, value, ..] = call(number, all);
    (status, value)
}

/// Makes a system call that must succeed. Returns its value; panics if its status is not [`OK`].
pub fn must(number: Number, arguments: &[u64]) -> u64 {
    let (status, value) = simple(number, arguments);
    assert_eq!(status, OK, "{number:?} of {arguments:x?}");
    value
}

/// Ends the machine.
pub fn shutdown(code: u64) -> ! {
    simple(Number::Shutdown, &[code]);
    unreachable!("the machine has ended")
}

/// Ends the thread.
pub fn exit(code: u64) -> ! {
    simple(Number::Exit, &[code]);
    unreachable!("the thread has ended")
}

/// Reads a number of the kernel.
pub fn fact(fact: Fact) -> u64 {
    must(Number::Fact, &[fact as u64])
}

/// Checks that the kernel's data are consistent, when nothing else runs.
pub fn books(when: core::fmt::Arguments<'_>) {
    let mut found = u64::MAX;
    while found == u64::MAX {
        must(Number::Yield, &[]);
        found = fact(Fact::Check);
    }
    assert_eq!(found, 0, "the kernel's books {when}");
}

/// Injects a fault.
pub fn fail(what: Failure, number: u64) {
    must(Number::Fail, &[what as u64, number]);
}

/// Runs `f` in a copy of this space, and waits for it. Returns its exit code; `None` if there is no memory
/// for the copy.
pub fn in_a_child(f: impl FnOnce() -> u64) -> Option<u64> {
    match simple(Number::Fork, &[]) {
        (OK, 0) => exit(f()),
        (OK, child) => Some(must(Number::Wait, &[child])),
        _ => None,
    }
}

/// Checks that the kernel stops a thread that does `f`.
pub fn is_stopped(what: &str, f: impl FnOnce()) {
    let code = in_a_child(|| {
        f();
        1
    });
    assert_eq!(code, Some(STOPPED), "{what}");
}

/// Starts a thread in this space, on a stack of its own.
pub fn thread(f: extern "C" fn(u64, u64) -> !, stack_end: u64, arguments: [u64; 2], space: u64) -> u64 {
    must(Number::Spawn, &[f as usize as u64, stack_end, arguments[0], arguments[1], space])
}

struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for chunk in text.as_bytes().chunks(40) {
            let mut words = [0; 6];
            words[0] = chunk.len() as u64;
            for (word, bytes) in words[1..].iter_mut().zip(chunk.chunks(8)) {
                let mut whole = [0; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_le_bytes(whole);
            }
            call(Number::Print, words);
        }
        Ok(())
    }
}

/// Writes text to the serial line.
pub fn print(text: fmt::Arguments<'_>) {
    // The serial line takes everything.
    let _ = Serial.write_fmt(text);
}

/// Writes a line.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => { $crate::system::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Reads a word of memory.
pub fn load(at: u64) -> u64 {
    // SAFETY: an address of this space; what is not mapped there, the kernel says.
    unsafe { (at as *const u64).read_volatile() }
}

/// Writes a word of memory.
pub fn store(at: u64, value: u64) {
    // SAFETY: the same; nothing of Rust's lies in the regions that tests store to.
    unsafe { (at as *mut u64).write_volatile(value) };
}

/// Runs what is at an address.
pub fn jump(at: u64) {
    // SAFETY: whatever happens there happens to this thread.
    unsafe { core::mem::transmute::<*const (), extern "C" fn()>(at as *const ())() };
}

/// Instructions so far, where the emulator counts time by them.
#[cfg(target_arch = "x86_64")]
pub fn instructions() -> u64 {
    // SAFETY: reading the time-stamp counter has no effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Instructions so far.
#[cfg(target_arch = "riscv64")]
pub fn instructions() -> u64 {
    let count;
    // SAFETY: reading the counter has no effect.
    unsafe { core::arch::asm!("csrr {}, instret", out(reg) count, options(nomem, nostack)) };
    count
}
