//! The way from a check that fails in translated code to the engine and back, and probes of the program's
//! memory, in assembly.

use core::arch::global_asm;

use crate::state::{ENGINE_RSP, PENDING};
use crate::table::{MISS_BACK, MISS_RSP};

global_asm!(
    // Called from translated code, which has stored the arguments in slots. Preserves all registers but
    // not the flags.
    ".globl pagewalk_missed, pagewalk_missed_return, pagewalk_missed_end",
    "pagewalk_missed:",
    "mov gs:[{rsp}], rsp",
    "mov rsp, gs:[{engine_rsp}]",
    // These 64 bytes may hold saved flags.
    "lea rsp, [rsp - 64]",
    "push rax",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "pushfq",
    "cld",
    "call pagewalk_count_missed",
    "mov gs:[{back}], rax",
    // From here on a signal makes the next block stop.
    "pagewalk_missed_return:",
    "cmp dword ptr gs:[{pending}], 0",
    "je 2f",
    "call pagewalk_count_waits",
    "2:",
    "test byte ptr [rsp + 1], 4",
    "je 3f",
    "std",
    "3:",
    "lea rsp, [rsp + 8]",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "mov rsp, gs:[{rsp}]",
    "jmp qword ptr gs:[{back}]",
    "pagewalk_missed_end:",
    // Tests whether memory at the address in rdi can be accessed; returns 0 if it can.
    ".globl pagewalk_probe, pagewalk_probe_store, pagewalk_probe_not",
    "pagewalk_probe:",
    "movzx eax, byte ptr [rdi]",
    "xor eax, eax",
    "ret",
    "pagewalk_probe_store:",
    "lock or byte ptr [rdi], 0",
    "xor eax, eax",
    "ret",
    "pagewalk_probe_not:",
    "mov eax, 1",
    "ret",
    rsp = const MISS_RSP,
    engine_rsp = const ENGINE_RSP,
    back = const MISS_BACK,
    pending = const PENDING,
);

unsafe extern "C" {
    fn pagewalk_missed();
    fn pagewalk_missed_return();
    fn pagewalk_missed_end();
    fn pagewalk_probe(at: u64) -> u32;
    fn pagewalk_probe_store(at: u64) -> u32;
    fn pagewalk_probe_not();
}

/// The address that translated code jumps to if a check fails.
pub(crate) fn missed() -> u64 {
    pagewalk_missed as *const () as u64
}

/// Whether `rip` is on the way back to translated code.
pub(crate) fn is_returning(rip: u64) -> bool {
    let (from, to) = (pagewalk_missed_return as *const (), pagewalk_missed_end as *const ());
    (from as u64..to as u64).contains(&rip)
}

/// The address to continue at after a fault in a probe, if `rip` is there.
pub(crate) fn failed(rip: u64) -> Option<u64> {
    let (from, to) = (pagewalk_probe as *const (), pagewalk_probe_not as *const ());
    (from as u64..to as u64).contains(&rip).then_some(to as u64)
}

/// Whether the byte at `address` can be read, or also written. Writing changes nothing.
pub(crate) fn can_access(address: u64, stores: bool) -> bool {
    // SAFETY: the program is about to access it, and a fault is seen.
    unsafe {
        match stores {
            true => pagewalk_probe_store(address) == 0,
            false => pagewalk_probe(address) == 0,
        }
    }
}
