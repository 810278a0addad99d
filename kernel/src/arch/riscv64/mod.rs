//! riscv64, for QEMU's board `virt`.
//!
//! ```text
//!   0                            user: one space's own, by the HAT layer (Sv39)
//!   ffffffc0'00000000            direct map: physical memory, and the registers of devices
//!   ffffffff'80000000            the kernel's image
//! ```
//!
//! There is no firmware: boot.s has the few instructions of machine mode. Sources: the RISC-V Instruction Set
//! Manual, Volume II; the device tree of `virt`.

mod tree;

use core::{
    arch::{asm, global_asm},
    sync::atomic::{AtomicU64, Ordering},
};

use addr::{Kind, PhysAddr};
use pagetable::{Space, Sv39};

use crate::{
    PROCESSORS_MAX,
    bytes::{self, Entries},
    trap::{Call, Fault, Trap},
};

global_asm!(
    include_str!("boot.s"),
    start = sym started_here,
    trap = sym kernel_trap,
    stack = const STACK,
    stack_shift = const STACK.trailing_zeros(),
    processors = const PROCESSORS_MAX,
);

const STACK: usize = 256 << 10;

/// A page table of user addresses; [`adopt`] enters the kernel's half into each root.
pub type Table = Sv39<true, 1>;

/// The entries of [`Table`].
pub const ENTRIES: Entries = bytes::SV39;

/// An empty page table, for processors without Svnapot and Svpbmt.
pub fn table() -> Table {
    Table::new().without_svnapot().without_svpbmt()
}

/// A page table of all addresses, for the kernel's half.
pub type WholeTable = Sv39;

/// An empty page table of all addresses.
pub fn whole_table() -> WholeTable {
    WholeTable::new().without_svnapot().without_svpbmt()
}

/// The address of the direct map of physical memory.
pub const DIRECT: u64 = 0xffff_ffc0_0000_0000;
/// The end of user addresses.
pub const USER_END: u64 = 1 << 38;
/// The name of the architecture.
pub const NAME: &str = "riscv64";
/// The instruction that calls the kernel.
pub const CALL_CODE: u32 = 0x73;

/// The accessed bit of an entry.
pub const ACCESSED: u64 = 1 << 6;

const RAM: u64 = 0x8000_0000;
/// How much memory the kernel uses at most.
const BOOT_MAPPED: u64 = 1 << 30;
const TEST: u64 = 0x10_0000;
const CLINT: u64 = 0x200_0000;
const SERIAL: u64 = 0x1000_0000;

const CAUSE_INTERRUPT: u64 = 1 << 63;
const CAUSE_SOFTWARE: u64 = CAUSE_INTERRUPT | 1;
const CAUSE_TIMER: u64 = CAUSE_INTERRUPT | 5;
const CAUSE_CALL: u64 = 8;
const CAUSE_FETCH: u64 = 12;
const CAUSE_LOAD: u64 = 13;
const CAUSE_STORE: u64 = 15;

/// The length of a thread's turn in ticks of 10 MHz.
const TURN: u64 = 40_000;

unsafe extern "C" {
    /// The address of the device tree, the end of the kernel, and the address at which harts keep what
    /// machine mode needs.
    static places: [u64; 3];
    fn enter_user(context: *mut Context);
}

/// The registers of user mode, and what the last trap reported. boot.s uses their offsets.
#[repr(C)]
#[derive(Clone)]
pub struct Context {
    /// x0 to x31; x0 is not used.
    registers: [u64; 32],
    pc: u64,
    cause: u64,
    at: u64,
    unused: u64,
    kernel_stack: u64,
    kernel_number: u64,
}

const STACK_POINTER: usize = 2;
const A0: usize = 10;
const A7: usize = 17;

impl Context {
    /// A context that begins at `pc` with this stack and these arguments.
    pub fn new(pc: u64, stack: u64, arguments: [u64; 2]) -> Context {
        let mut registers = [0; 32];
        registers[STACK_POINTER] = stack;
        registers[A0..A0 + 2].copy_from_slice(&arguments);
        Context { registers, pc, cause: 0, at: 0, unused: 0, kernel_stack: 0, kernel_number: 0 }
    }

    /// The number of the system call, and its arguments.
    pub fn call(&self) -> Call {
        let arguments = core::array::from_fn(|at| self.registers[A0 + at]);
        Call { number: self.registers[A7], arguments }
    }

    /// Sets the results of the system call, from the first on.
    pub fn set_results(&mut self, results: &[u64]) {
        self.registers[A0..A0 + results.len()].copy_from_slice(results);
    }

    /// The address of the next instruction.
    pub fn pc(&self) -> u64 {
        self.pc
    }

    /// Runs user mode in the space whose root is loaded, until the next trap.
    pub fn run(&mut self, _processor: usize) -> Trap {
        // SAFETY: the context is exclusively ours until a trap comes back, and the kernel's half of every root has the
        // code that returns.
        unsafe { enter_user(self) };
        let fault = |kind| Trap::Page(Fault { at: self.at, kind });
        match self.cause {
            CAUSE_CALL => {
                // The call itself is four bytes long.
                self.pc += 4;
                Trap::Call
            }
            CAUSE_FETCH => fault(Kind::Fetch),
            CAUSE_LOAD => fault(Kind::Load),
            CAUSE_STORE => fault(Kind::Store),
            CAUSE_TIMER => {
                set_timer();
                Trap::Timer
            }
            CAUSE_SOFTWARE => {
                software_taken();
                Trap::Poke
            }
            other => Trap::Wrong(other),
        }
    }
}

/// Handles a trap in the kernel: an interrupt while it waits; anything else is a bug of the kernel.
extern "C" fn kernel_trap(cause: u64, pc: u64, at: u64) {
    match cause {
        CAUSE_TIMER => set_timer(),
        CAUSE_SOFTWARE => {
            software_taken();
            crate::shootdown::poll();
        }
        _ => panic!("trap {cause:#x} in the kernel at {pc:#x}, address {at:#x}"),
    }
}

/// The first Rust function of every hart, with the hart's number.
extern "C" fn started_here(number: u64, _tree: u64) -> ! {
    if number == 0 { crate::begin(&Boot::read()) } else { crate::begin_other(number as usize) }
}

/// The data from the loader.
pub struct Boot {
    /// The command line.
    pub line: &'static str,
    /// The range of free memory.
    pub free: core::ops::Range<u64>,
}

impl Boot {
    fn read() -> Boot {
        // SAFETY: boot.s' and the linker's symbols; QEMU has left the device tree in memory that the direct map has and
        // nobody has written to.
        let (end, (line, memory)) = unsafe {
            let tree = ((places[0] + DIRECT) as *const u64).read_volatile();
            (places[1], tree::read((tree + DIRECT) as *const u8))
        };
        // QEMU puts the device tree near the end of memory, and it is read while no frame has an owner.
        Boot { line, free: end..memory.min(RAM + BOOT_MAPPED) }
    }
}

static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// Makes the kernel's half of the root at `root` the one for all spaces.
pub fn use_kernel_root(root: PhysAddr) {
    KERNEL_ROOT.store(root.get(), Ordering::Release);
    load_root(root);
}

/// The root that has only the kernel's half.
pub fn kernel_root() -> PhysAddr {
    PhysAddr::new(KERNEL_ROOT.load(Ordering::Acquire))
}

/// Enters the kernel's half into a new root.
pub fn adopt(space: Space) {
    let (from, to) = (kernel_root().get() + DIRECT + 2048, space.root().get() + DIRECT + 2048);
    // SAFETY: both are roots of 4096 bytes in the direct map; the new one is in no processor yet.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u64, to as *mut u64, 256) };
}

/// The ranges to map in the kernel's half: virtual address, physical address, bytes, and whether they
/// are device registers.
pub fn kernel_map(end: u64) -> [(u64, u64, u64, bool); 3] {
    [(DIRECT, 0, 1 << 30, true), (DIRECT + RAM, RAM, end - RAM, false), (0xffff_ffff_8000_0000, RAM, 64 << 20, false)]
}

/// Loads a root, and flushes everything that is not global.
pub fn load_root(root: PhysAddr) {
    let value = 8 << 60 | root.get() >> 12;
    // SAFETY: the root has the kernel's half, in which this code and this stack are. With one number for all spaces
    // (ASID 0) what is not global must be forgotten.
    unsafe { asm!("csrw satp, {}", "sfence.vma", in(reg) value, options(nostack)) };
}

/// Flushes one page from the TLB, of any space.
pub fn forget_page(at: u64) {
    // SAFETY: forgetting a translation changes no memory.
    unsafe { asm!("sfence.vma {}", in(reg) at, options(nostack)) };
}

/// Flushes the TLB, with global pages.
pub fn forget_all() {
    // SAFETY: the same.
    unsafe { asm!("sfence.vma", options(nostack)) };
}

/// Waits for an interrupt, with interrupts enabled.
pub fn wait() {
    // SAFETY: interrupts come to `kernel_trap`, which the kernel allows here; `wfi` ends for one that is pending though
    // interrupts are off, and then it is taken.
    unsafe { asm!("wfi", "csrsi sstatus, 2", "nop", "csrci sstatus, 2") };
}

/// Stops this hart for ever.
pub fn park() -> ! {
    loop {
        // SAFETY: nothing goes on here.
        unsafe { asm!("csrci sstatus, 2", "wfi", options(nomem, nostack)) };
    }
}

/// The number of this hart, which the kernel keeps in `tp`.
pub fn this() -> usize {
    let number;
    // SAFETY: boot.s and every trap load it.
    unsafe { asm!("mv {}, tp", out(reg) number, options(nomem, nostack, preserves_flags)) };
    number
}

/// Does nothing: a hart has its own number.
pub fn name(_number: usize) {}

/// Enables interrupts on this hart.
pub fn begin_interrupts() {
    set_timer();
    // SAFETY: interrupts of software and of the timer, which come while `sstatus` allows them.
    unsafe { asm!("csrs sie, {}", in(reg) 1 << 1 | 1 << 5) };
}

fn set_timer() {
    // SAFETY: stimecmp (Sstc) is this hart's own.
    unsafe { asm!("csrw 0x14d, {}", in(reg) ticks() + TURN) };
}

fn software_taken() {
    // SAFETY: the interrupt that was taken is no longer pending.
    unsafe { asm!("csrci sip, 2") };
}

fn device<T>(at: u64) -> *mut T {
    (DIRECT + at) as *mut T
}

/// Interrupts another hart.
pub fn interrupt(to: usize) {
    // SAFETY: a register of the CLINT, which the kernel's half maps.
    unsafe { device::<u32>(CLINT + 4 * to as u64).write_volatile(1) };
}

/// Stops another hart for good, whatever it does: machine mode handles this interrupt even with
/// interrupts disabled. Returns when it has stopped, or after a second.
pub fn stop(to: usize) {
    // SAFETY: the word of boot.s that says so, which only this changes.
    let word = unsafe { (places[2] + DIRECT + 64 * to as u64 + 32) as *mut u64 };
    // SAFETY: the same; the next word is boot.s' answer.
    unsafe { word.write_volatile(1) };
    interrupt(to);
    let begun = ticks();
    while unsafe { word.add(1).read_volatile() } == 0 && ticks() - begun < ticks_per_second() {
        core::hint::spin_loop();
    }
}

/// Does nothing: the other harts already wait in `crate::begin_other`.
pub fn start_others(_count: usize) {}

/// Writes a byte to the serial line.
pub fn put(byte: u8) {
    // SAFETY: registers of the 16550, which the kernel's half maps.
    unsafe {
        while device::<u8>(SERIAL + 5).read_volatile() & 0x20 == 0 {}
        device::<u8>(SERIAL).write_volatile(byte);
    }
}

/// Ends the machine.
pub fn exit(is_well: bool) -> ! {
    // SAFETY: the register of `sifive_test` ends QEMU: with 0, or with 1.
    unsafe { device::<u32>(TEST).write_volatile(if is_well { 0x5555 } else { 0x1_3333 }) };
    park()
}

/// The number of [`ticks`] in a second.
pub fn ticks_per_second() -> u64 {
    10_000_000
}

/// The time of a clock that never stops.
pub fn ticks() -> u64 {
    let now;
    // SAFETY: the same.
    unsafe { asm!("csrr {}, time", out(reg) now, options(nomem, nostack)) };
    now
}

/// The memory type for device registers: the attributes of the physical addresses apply.
pub const DEVICE: addr::MemoryType = addr::MemoryType::WriteBack;

/// Flushes a page at `at` that was mapped or got more rights, as the hart may have cached the old
/// entry.
pub fn renew(at: u64) {
    forget_page(at);
}

/// Does nothing: there is no Bochs.
pub fn mark() {}

/// `ld a7, 0(a0); ecall`: a load whose result is the number of a call.
pub const PROBE_LOAD: [u8; 8] = [0x83, 0x38, 0x05, 0x00, 0x73, 0, 0, 0];
/// `sd a1, 0(a0); ecall`.
pub const PROBE_STORE: [u8; 8] = [0x23, 0x30, 0xb5, 0x00, 0x73, 0, 0, 0];
