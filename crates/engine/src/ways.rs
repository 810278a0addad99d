//! Transitions between translated code, the engine, and the system, in assembly.

use core::arch::{asm, global_asm};

use crate::state::{
    ALIGNMENT, ENGINE_RSP, ENTER, EXIT, EXIT_AGAIN, EXIT_SIGNAL, FLAGS, PENDING, REGS, RING, TARGET,
};

global_asm!(
    ".globl pagewalk_leave, pagewalk_enter, pagewalk_enter_end, pagewalk_resume",
    // Called from translated code: stores the registers in their slots; r10 and r11 belong to the
    // engine there.
    "pagewalk_leave:",
    "mov gs:[{regs}], rax",
    "mov gs:[{regs} + 8], rcx",
    "mov gs:[{regs} + 16], rdx",
    "mov gs:[{regs} + 24], rbx",
    "mov gs:[{regs} + 32], rsp",
    "mov gs:[{regs} + 40], rbp",
    "mov gs:[{regs} + 48], rsi",
    "mov gs:[{regs} + 56], rdi",
    "mov gs:[{regs} + 64], r8",
    "mov gs:[{regs} + 72], r9",
    "mov gs:[{target}], r10",
    "mov gs:[{ring}], r11",
    "mov gs:[{regs} + 96], r12",
    "mov gs:[{regs} + 104], r13",
    "mov gs:[{regs} + 112], r14",
    "mov gs:[{regs} + 120], r15",
    "mov rsp, gs:[{engine_rsp}]",
    "pushfq",
    "pop qword ptr gs:[{flags}]",
    "test dword ptr gs:[{flags}], {alignment}",
    "jz 5f",
    "push 2",
    "popfq",
    "5:",
    "cld",
    "2:",
    "call {dispatch}",
    // Enters translated code, unless a signal has come.
    "pagewalk_enter:",
    "cmp dword ptr gs:[{pending}], 0",
    "jne 3f",
    "push qword ptr gs:[{flags}]",
    "popfq",
    "mov rax, gs:[{regs}]",
    "mov rcx, gs:[{regs} + 8]",
    "mov rdx, gs:[{regs} + 16]",
    "mov rbx, gs:[{regs} + 24]",
    "mov rbp, gs:[{regs} + 40]",
    "mov rsi, gs:[{regs} + 48]",
    "mov rdi, gs:[{regs} + 56]",
    "mov r8, gs:[{regs} + 64]",
    "mov r9, gs:[{regs} + 72]",
    "mov r11, gs:[{ring}]",
    "mov r12, gs:[{regs} + 96]",
    "mov r13, gs:[{regs} + 104]",
    "mov r14, gs:[{regs} + 112]",
    "mov r15, gs:[{regs} + 120]",
    "mov rsp, gs:[{regs} + 32]",
    "jmp qword ptr gs:[{enter}]",
    "pagewalk_enter_end:",
    "3:",
    "mov dword ptr gs:[{exit}], {again}",
    "jmp 2b",
    // Continues after a signal handler has stored all registers in their slots.
    "pagewalk_resume:",
    "mov rsp, gs:[{engine_rsp}]",
    "cld",
    "mov dword ptr gs:[{exit}], {signal}",
    "jmp 2b",
    // Makes a system call of the program: rdi is the number, and rsi the address of the six
    // arguments. No call is made once a signal is pending.
    ".globl pagewalk_call, pagewalk_call_begun, pagewalk_call_end, pagewalk_call_not",
    "pagewalk_call:",
    "push rbx",
    // From here up to the call, a handler may continue at the end, which restores rbx.
    "pagewalk_call_begun:",
    "mov rax, rdi",
    "mov rbx, rsi",
    "mov rdi, [rbx]",
    "mov rsi, [rbx + 8]",
    "mov rdx, [rbx + 16]",
    "mov r10, [rbx + 24]",
    "mov r8, [rbx + 32]",
    "mov r9, [rbx + 40]",
    "cmp dword ptr gs:[{pending}], 0",
    "jne pagewalk_call_not",
    "syscall",
    "pagewalk_call_end:",
    "pop rbx",
    "ret",
    "pagewalk_call_not:",
    "mov rax, {restart}",
    "pop rbx",
    "ret",
    // Copies rdx bytes from rsi to rdi, although either may not be mapped; returns 0 if both are
    // mapped.
    ".globl pagewalk_copy, pagewalk_copy_not",
    "pagewalk_copy:",
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    "pagewalk_copy_not:",
    "mov eax, 1",
    "ret",
    // Loads the processor's other registers from the address in rdi; returns 0 if the memory has a
    // valid state.
    ".globl pagewalk_load, pagewalk_load_old, pagewalk_load_not",
    "pagewalk_load:",
    "mov eax, -1",
    "mov edx, -1",
    "xrstor64 [rdi]",
    "xor eax, eax",
    "ret",
    "pagewalk_load_old:",
    "fxrstor64 [rdi]",
    "xor eax, eax",
    "ret",
    "pagewalk_load_not:",
    "mov eax, 1",
    "ret",
    ".globl pagewalk_save",
    "pagewalk_save:",
    "mov eax, -1",
    "mov edx, -1",
    "xsave64 [rdi]",
    "ret",
    ".globl pagewalk_return",
    "pagewalk_return:",
    "mov eax, 15",
    "syscall",
    // Continues with the registers in the frame at rdi.
    ".globl pagewalk_go",
    "pagewalk_go:",
    "lea rsp, [rdi + 8]",
    "mov eax, 15",
    "syscall",
    "ud2",
    // Starts a thread: rdi is the address of five arguments of `clone`, and rsi is the engine of
    // the new thread. No signal may arrive meanwhile.
    ".globl pagewalk_clone",
    "pagewalk_clone:",
    "push rbx",
    "mov rbx, rsi",
    "mov rax, rdi",
    "mov rdi, [rax]",
    "mov rsi, [rax + 8]",
    "mov rdx, [rax + 16]",
    "mov r10, [rax + 24]",
    "mov r8, [rax + 32]",
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jz 4f",
    "pop rbx",
    "ret",
    "4:",
    "xor ebp, ebp",
    "mov rdi, rbx",
    "call {begun}",
    "ud2",
    // Ends this thread with the status in rsi: clears the word at the address in rdi, and uses no
    // memory afterwards.
    ".globl pagewalk_exit",
    "pagewalk_exit:",
    "mov dword ptr [rdi], 0",
    "mov edi, esi",
    "mov eax, 60",
    "syscall",
    "ud2",
    // Where the host makes a thread execute system calls that it is to put back into the program. If the host is killed,
    // the thread sleeps here with all signals blocked: its call is `pause`.
    ".globl pagewalk_told, pagewalk_told_end",
    "pagewalk_told:",
    "syscall",
    "6:",
    "mov eax, 34",
    "syscall",
    "jmp 6b",
    "pagewalk_told_end:",
    // Stops at a breakpoint, for a tracer if there is one.
    ".globl pagewalk_break, pagewalk_broken",
    "pagewalk_break:",
    "int3",
    "pagewalk_broken:",
    "ret",
    regs = const REGS,
    flags = const FLAGS,
    alignment = const ALIGNMENT,
    target = const TARGET,
    ring = const RING,
    engine_rsp = const ENGINE_RSP,
    enter = const ENTER,
    exit = const EXIT,
    pending = const PENDING,
    again = const EXIT_AGAIN as i32,
    signal = const EXIT_SIGNAL as i32,
    restart = const crate::sys::RESTART,
    dispatch = sym crate::run::dispatch,
    begun = sym crate::run::begun,
);

unsafe extern "C" {
    pub(crate) fn pagewalk_leave();
    pub(crate) fn pagewalk_enter() -> !;
    fn pagewalk_enter_end();
    fn pagewalk_resume();
    pub(crate) fn pagewalk_call(number: u64, arguments: *const [u64; 6]) -> i64;
    fn pagewalk_call_begun();
    fn pagewalk_call_end();
    fn pagewalk_call_not();
    fn pagewalk_copy(to: *mut u8, from: *const u8, bytes: u64) -> u32;
    fn pagewalk_copy_not();
    fn pagewalk_load(from: *const u8) -> u32;
    fn pagewalk_load_old(from: *const u8) -> u32;
    fn pagewalk_load_not();
    fn pagewalk_save(to: *mut u8);
    fn pagewalk_return();
    pub(crate) fn pagewalk_go(frame: *const crate::signal::Frame) -> !;
    pub(crate) fn pagewalk_clone(arguments: *const [u64; 5], engine: u64) -> i64;
    pub(crate) fn pagewalk_exit(word: *const u32, status: u64) -> !;
    fn pagewalk_told();
    fn pagewalk_told_end();
    pub(crate) fn pagewalk_break();
    fn pagewalk_broken();
}

/// The address of a label.
macro_rules! address {
    ($name:ident) => {
        $name as *const () as u64
    };
}

/// The word at this offset from the base of gs: see [`crate::state`].
pub(crate) fn own(offset: i32) -> u64 {
    let word: u64;
    // SAFETY: while the engine runs, the base of gs points to the engine's data.
    unsafe {
        asm!("mov {0}, gs:[{1}]", out(reg) word, in(reg) i64::from(offset), options(nostack, preserves_flags));
    }
    word
}

/// Allows unaligned accesses in a signal handler. A handler begins with the flags of the interrupted
/// code, which may forbid them.
pub(crate) fn allow_unaligned() {
    // SAFETY: only flags are changed.
    unsafe { asm!("pushfq", "and dword ptr [rsp], {0}", "popfq", const !(ALIGNMENT as i32)) };
}

/// The address to which exits of translated code jump.
pub(crate) fn leave() -> u64 {
    address!(pagewalk_leave)
}

/// Whether `rip` is in the code that enters translated code.
pub(crate) fn is_entering(rip: u64) -> bool {
    (address!(pagewalk_enter)..address!(pagewalk_enter_end)).contains(&rip)
}

/// The address at which the engine continues after its signal handler.
pub(crate) fn resume() -> u64 {
    address!(pagewalk_resume)
}

/// The address at which a signal handler returns.
pub(crate) fn handler_end() -> u64 {
    address!(pagewalk_return)
}

/// Whether `rip` is the address behind [`pagewalk_break`]'s breakpoint.
pub(crate) fn is_behind_breakpoint(rip: u64) -> bool {
    rip == address!(pagewalk_broken)
}

/// The address after the instruction by which system calls of the program are made.
pub(crate) fn called() -> u64 {
    address!(pagewalk_call_end)
}

/// The length of a `syscall` instruction.
pub(crate) const SYSCALL_BYTES: u64 = 2;

/// The address range in which the host makes threads execute system calls.
pub(crate) fn told() -> [u64; 2] {
    [address!(pagewalk_told), address!(pagewalk_told_end)]
}

/// The address at which [`pagewalk_call`] says that the call is to be made again.
pub(crate) fn again() -> u64 {
    address!(pagewalk_call_not)
}

/// The address to continue at after a signal just before a system call, if `rip` is there.
pub(crate) fn not_called(rip: u64) -> Option<u64> {
    let window = address!(pagewalk_call_begun)..address!(pagewalk_call_end);
    window.contains(&rip).then_some(address!(pagewalk_call_not))
}

/// The address to continue at after a fault in an access to the program's memory, if `rip` is
/// there.
pub(crate) fn failed(rip: u64) -> Option<u64> {
    if (address!(pagewalk_copy)..address!(pagewalk_copy_not)).contains(&rip) {
        Some(address!(pagewalk_copy_not))
    } else if (address!(pagewalk_load)..address!(pagewalk_load_not)).contains(&rip) {
        Some(address!(pagewalk_load_not))
    } else {
        None
    }
}

/// Reads `to` from the program's memory; false if it is not mapped.
pub(crate) fn read<T: Copy>(from: u64, to: &mut T) -> bool {
    let bytes = size_of::<T>() as u64;
    // SAFETY: `to` has room for this number of bytes, and a fault during the copy is detected.
    unsafe { pagewalk_copy((to as *mut T).cast(), from as *const u8, bytes) == 0 }
}

/// Writes to the program's memory; false if it is not mapped.
pub(crate) fn write<T: Copy>(to: u64, from: &T) -> bool {
    write_bytes(to, (from as *const T).cast(), size_of::<T>() as u64)
}

/// As [`write`], for `bytes` bytes.
pub(crate) fn write_bytes(to: u64, from: *const u8, bytes: u64) -> bool {
    // SAFETY: as above.
    unsafe { pagewalk_copy(to as *mut u8, from, bytes) == 0 }
}

/// Copies `bytes` bytes of the program's memory to `to`. Returns whether all of them could be read.
pub(crate) fn read_bytes(from: u64, to: *mut u8, bytes: u64) -> bool {
    // SAFETY: as above.
    unsafe { pagewalk_copy(to, from as *const u8, bytes) == 0 }
}

/// Saves the processor's vector and floating-point registers, which the engine does not use, to an aligned
/// area whose header is zero.
pub(crate) fn save(to: *mut u8) {
    // SAFETY: the caller provides the number of bytes that the processor reports.
    unsafe { pagewalk_save(to) };
}

/// Restores these registers; `is_whole` if the area has more than what `fxsave` saves. Returns
/// false if the area is invalid.
pub(crate) fn load(from: *const u8, is_whole: bool) -> bool {
    // SAFETY: an invalid state is detected.
    unsafe { if is_whole { pagewalk_load(from) == 0 } else { pagewalk_load_old(from) == 0 } }
}
