//! x86-64, for a PC.
//!
//! ```text
//!   0                            user: one space's own, by the HAT layer
//!   ffff8000'00000000            direct map: physical memory, and the registers of devices
//!   ffffffff'80000000            the kernel's image
//! ```
//!
//! Sources: Intel SDM volume 3A (chapters 2, 6, 7, 11), the PVH boot protocol of Xen, the Multiboot2 specification.

mod apic;
mod tables;

use core::{
    arch::{asm, global_asm},
    sync::atomic::{AtomicU64, Ordering},
};

use addr::{Kind, PhysAddr};
use pagetable::{Space, X86_64};

use crate::{
    PROCESSORS_MAX,
    bytes::{self, Entries},
    trap::{Call, Fault, Trap},
};
pub use apic::{interrupt, name, start_others, stop};

global_asm!(
    include_str!("boot.s"),
    start = sym started_here,
    trap = sym kernel_trap,
    stack = const STACK,
    processors = const PROCESSORS_MAX,
);

const STACK: usize = 256 << 10;

/// A page table of user addresses; [`adopt`] enters the kernel's half into each root.
pub type Table = X86_64<4, true, 1>;

/// The entries of [`Table`].
pub const ENTRIES: Entries = bytes::X86_64;

/// An empty page table of user addresses.
pub fn table() -> Table {
    Table::new()
}

/// A page table of all addresses, for the kernel's half.
pub type WholeTable = X86_64<4>;

/// An empty page table of all addresses.
pub fn whole_table() -> WholeTable {
    WholeTable::new()
}

/// The address of the direct map of physical memory.
pub const DIRECT: u64 = 0xffff_8000_0000_0000;
/// The end of user addresses.
pub const USER_END: u64 = 1 << 47;
/// The name of the architecture.
pub const NAME: &str = "x86-64";
/// The instruction that calls the kernel, followed by any bytes.
pub const CALL_CODE: u32 = 0x80cd;

/// Where the kernel's image begins in physical memory, and how much of that boot.s maps.
const KERNEL: u64 = 1 << 20;
const BOOT_MAPPED: u64 = 1 << 30;

/// The accessed bit of an entry.
pub const ACCESSED: u64 = 1 << 5;

const SELECTOR_CODE: u64 = 8;
const SELECTOR_USER_DATA: u64 = 0x18 | 3;
const SELECTOR_USER_CODE: u64 = 0x20 | 3;
const SELECTOR_TSS: u16 = 0x28;
const FLAG_INTERRUPTS: u64 = 1 << 9;

const VECTOR_NMI: u64 = 2;
const VECTOR_PROTECTION: u64 = 13;
const VECTOR_PAGE_FAULT: u64 = 14;
/// The vectors of the local APIC's timer and of other processors' interrupts.
const VECTOR_TIMER: u64 = 32;
const VECTOR_POKE: u64 = 33;
const VECTOR_CALL: u64 = 128;

unsafe extern "C" {
    static boot_magic: u32;
    static boot_info: u32;
    static kernel_end: u8;
    static trap_stubs: u8;
    static call_stub: u8;
    static spurious_stub: u8;
    fn enter_user(context: *mut Context);
}

/// The registers of user mode, and what the last trap reported.
///
/// The processor pushes the last six words itself, and `trap_entry` in boot.s the others.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Context {
    /// r15 to r8, rbp, rdi, rsi, rdx, rcx, rbx, rax.
    registers: [u64; 15],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
    kernel_stack: u64,
    at: u64,
}

const RAX: usize = 14;
/// The indices of rdi, rsi, rdx, r10, r8 and r9.
const ARGUMENTS: [usize; 6] = [9, 10, 11, 5, 7, 6];
/// The indices of rax, rdi, rsi, rdx, r10 and r8.
const RESULTS: [usize; 6] = [RAX, 9, 10, 11, 5, 7];

impl Context {
    /// A context that begins at `pc` with this stack and these arguments.
    pub fn new(pc: u64, stack: u64, arguments: [u64; 2]) -> Context {
        let mut registers = [0; 15];
        registers[ARGUMENTS[0]] = arguments[0];
        registers[ARGUMENTS[1]] = arguments[1];
        Context {
            registers,
            vector: 0,
            error: 0,
            rip: pc,
            cs: SELECTOR_USER_CODE,
            flags: FLAG_INTERRUPTS | 2,
            // As at the beginning of a function of the C interface, which has been called.
            rsp: stack.wrapping_sub(8),
            ss: SELECTOR_USER_DATA,
            kernel_stack: 0,
            at: 0,
        }
    }

    /// The number of the system call, and its arguments.
    pub fn call(&self) -> Call {
        Call { number: self.registers[RAX], arguments: ARGUMENTS.map(|at| self.registers[at]) }
    }

    /// Sets the results of the system call, from the first on.
    pub fn set_results(&mut self, results: &[u64]) {
        RESULTS.iter().zip(results).for_each(|(&at, &result)| self.registers[at] = result);
    }

    /// The address of the next instruction.
    pub fn pc(&self) -> u64 {
        self.rip
    }

    /// Runs user mode on `processor` in the space whose root is loaded, until the next trap.
    pub fn run(&mut self, processor: usize) -> Trap {
        tables::set_trap_stack(processor, &raw mut *self as u64 + 176);
        // SAFETY: the context is exclusively ours until a trap comes back; its selectors are those of user mode, as
        // nothing but `new` writes them, and the kernel's half of every root has the code that returns.
        unsafe { enter_user(self) };
        if self.vector == VECTOR_PAGE_FAULT {
            self.at = read_cr2();
        }
        self.trap()
    }

    fn trap(&self) -> Trap {
        match self.came() {
            // Behind the last user address, at which an instruction has ended: `iretq` would fault in the kernel.
            Trap::Call | Trap::Timer | Trap::Poke if self.rip >= USER_END => Trap::Wrong(VECTOR_PROTECTION),
            trap => trap,
        }
    }

    fn came(&self) -> Trap {
        match self.vector {
            VECTOR_CALL => Trap::Call,
            VECTOR_TIMER => {
                apic::end();
                Trap::Timer
            }
            VECTOR_POKE => {
                apic::end();
                Trap::Poke
            }
            VECTOR_NMI => park(),
            VECTOR_PAGE_FAULT => {
                let kind = match self.error {
                    error if error & 0x10 != 0 => Kind::Fetch,
                    error if error & 2 != 0 => Kind::Store,
                    _ => Kind::Load,
                };
                // Reserved bits that are set: no table of ours has any.
                assert!(self.error & 8 == 0, "an entry with reserved bits at {:#x}", self.at);
                Trap::Page(Fault { at: self.at, kind })
            }
            other => Trap::Wrong(other),
        }
    }
}

fn read_cr2() -> u64 {
    let value;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack)) };
    value
}

/// Handles a trap in the kernel: an interrupt while it waits; anything else is a bug of the kernel.
extern "C" fn kernel_trap(context: &mut Context) {
    match context.vector {
        VECTOR_TIMER => apic::end(),
        VECTOR_POKE => {
            apic::end();
            crate::shootdown::poll();
        }
        VECTOR_NMI => park(),
        vector => panic!(
            "trap {vector} in the kernel, error {:#x}, at {:#x}, address {:#x}",
            context.error,
            context.rip,
            read_cr2()
        ),
    }
}

/// The first Rust function of every processor, with the processor's number.
extern "C" fn started_here(number: u64) -> ! {
    let number = number as usize;
    if number == 0 {
        serial_begin();
        measure_ticks();
        tables::begin(0);
        crate::begin(&Boot::read())
    }
    tables::begin(number);
    crate::begin_other(number)
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
        // SAFETY: the linker's and boot.s' symbols; the lowest GiB, in which the loader has left its words, is mapped at
        // the direct map and written by nobody yet.
        unsafe {
            let info = u64::from(boot_info) + DIRECT;
            let word = |at: u64| ((info + at) as *const u32).read_unaligned();
            let (line, (map, bytes)) = if boot_magic == 0x36d7_6289 {
                let line = multiboot_tag(info, 1).map_or("", |(tag, _)| text(tag + 8));
                // Behind 16 bytes that say how the entries look.
                (line, multiboot_tag(info, 6).map_or((DIRECT, 0), |(tag, bytes)| (tag + 16, bytes - 16)))
            } else {
                let line = if word(24) == 0 { "" } else { text(u64::from(word(24)) + DIRECT) };
                (line, (u64::from(word(40)) + DIRECT, word(48) * 24))
            };
            // Both kinds of loader have entries of 24 bytes: start, length, and 1 for memory. The kernel's lies at 1 MiB.
            let entries = core::slice::from_raw_parts(map as *const [u64; 3], bytes as usize / 24);
            let is_ours =
                |&&[start, length, kind]: &&[u64; 3]| kind as u32 == 1 && start <= KERNEL && KERNEL - start < length;
            let end = entries.iter().find(is_ours).map_or(0, |[start, length, _]| start + length);
            Boot { line, free: &raw const kernel_end as u64..end.min(BOOT_MAPPED) }
        }
    }
}

/// The address of the first tag of this kind, and its length.
///
/// # Safety
/// `info` is where a multiboot2 loader has left its tags.
unsafe fn multiboot_tag(info: u64, wanted: u32) -> Option<(u64, u32)> {
    let mut at = info + 8;
    loop {
        // SAFETY: the caller's; tags follow one another, aligned to 8 bytes, up to one of type 0.
        let [kind, bytes] = unsafe { (at as *const [u32; 2]).read() };
        match kind {
            _ if kind == wanted => return Some((at, bytes)),
            0 => return None,
            _ => at += u64::from(bytes).next_multiple_of(8),
        }
    }
}

/// # Safety
/// A text that ends with a zero, which nobody changes, is at `at`.
unsafe fn text(at: u64) -> &'static str {
    // SAFETY: the caller's.
    unsafe { core::ffi::CStr::from_ptr(at as *const core::ffi::c_char) }.to_str().unwrap_or("")
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
pub fn kernel_map(memory: u64) -> [(u64, u64, u64, bool); 3] {
    [
        (DIRECT, 0, memory, false),
        (DIRECT + apic::REGISTERS, apic::REGISTERS, 2 << 20, true),
        (0xffff_ffff_8000_0000, 0, 64 << 20, false),
    ]
}

/// Loads a root, and flushes everything that is not global.
pub fn load_root(root: PhysAddr) {
    // SAFETY: the root has the kernel's half, in which this code and this stack are.
    unsafe { asm!("mov cr3, {}", in(reg) root.get(), options(nostack)) };
}

/// Flushes one page from the TLB, of any space.
pub fn forget_page(at: u64) {
    // SAFETY: forgetting a translation changes no memory.
    unsafe { asm!("invlpg [{}]", in(reg) at, options(nostack)) };
}

/// Flushes the TLB, with global pages.
pub fn forget_all() {
    // SAFETY: the page-global bit goes off and on again, which empties the TLB (SDM 4.10.4.1).
    unsafe {
        let mut bits: u64;
        asm!("mov {}, cr4", out(reg) bits, options(nomem, nostack));
        bits &= !0x80;
        asm!("mov cr4, {}", in(reg) bits, options(nostack));
        bits |= 0x80;
        asm!("mov cr4, {}", in(reg) bits, options(nostack));
    }
}

/// Waits for an interrupt, with interrupts enabled: an interrupt that came before `sti` ends the
/// wait at once.
pub fn wait() {
    // SAFETY: interrupts come to `kernel_trap`, which the kernel allows here.
    unsafe { asm!("sti; hlt; cli") };
}

/// Stops this processor for ever, as another processor has taken it out of use or the machine ends.
pub fn park() -> ! {
    apic::parked();
    loop {
        // SAFETY: nothing goes on here.
        unsafe { asm!("cli; hlt", options(nomem, nostack)) };
    }
}

/// The number of this processor.
pub fn this() -> usize {
    apic::this()
}

/// Enables interrupts on this processor, after the kernel's tables are set up.
pub fn begin_interrupts() {
    // Firmware has left the two old interrupt controllers on, whose vectors are those of exceptions.
    out8(PIC_MASKS[0], 0xff);
    out8(PIC_MASKS[1], 0xff);
    apic::begin();
}

fn out8(port: u16, value: u8) {
    // SAFETY: the ports of COM1 and of the ends of QEMU and Bochs are nobody else's.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) };
}

fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: the same.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

const COM1: u16 = 0x3f8;
/// The ports of the masks of the two 8259 interrupt controllers.
const PIC_MASKS: [u16; 2] = [0x21, 0xa1];

/// Sets the serial line to 8 bits, no parity, 115,200 baud.
fn serial_begin() {
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3)] {
        out8(COM1 + register, value);
    }
}

/// Writes a byte to the serial line.
pub fn put(byte: u8) {
    while in8(COM1 + 5) & 0x20 == 0 {}
    out8(COM1, byte);
}

/// Ends the machine.
pub fn exit(is_well: bool) -> ! {
    while in8(COM1 + 5) & 0x40 == 0 {}
    // QEMU ends with twice that and one: 33, or 35.
    out8(0xf4, if is_well { 16 } else { 17 });
    // Bochs ends with no number, so that the last line says it.
    crate::console::last_line(format_args!("the machine ends {}", if is_well { "well" } else { "badly" }));
    while in8(COM1 + 5) & 0x40 == 0 {}
    b"Shutdown".iter().for_each(|&byte| out8(0x8900, byte));
    park()
}

static TICKS_PER_SECOND: AtomicU64 = AtomicU64::new(2_000_000_000);

/// The approximate number of [`ticks`] in a second.
pub fn ticks_per_second() -> u64 {
    TICKS_PER_SECOND.load(Ordering::Relaxed)
}

/// Measures [`ticks_per_second`] by channel 2 of the 8254, which counts 1,193,182 times per second in every PC.
fn measure_ticks() {
    const COUNT: u64 = 2400;
    // Its gate is on and the loudspeaker off; mode 0 sets its output, bit 5 of port 0x61, when the count ends.
    out8(0x61, in8(0x61) & !2 | 1);
    for (port, value) in [(0x43, 0xb0), (0x42, COUNT as u8), (0x42, (COUNT >> 8) as u8)] {
        out8(port, value);
    }
    let begun = ticks();
    if (0..1_000_000).any(|_| in8(0x61) & 0x20 != 0) {
        TICKS_PER_SECOND.store((ticks() - begun) * 1_193_182 / COUNT, Ordering::Relaxed);
    }
}

/// The time of a clock that never stops.
pub fn ticks() -> u64 {
    // SAFETY: reading the time-stamp counter has no effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The memory type for device registers.
pub const DEVICE: addr::MemoryType = addr::MemoryType::Device;

/// Does nothing for a page that was mapped or got more rights: a page fault drops a cached entry of its
/// address.
pub fn renew(_at: u64) {}

/// Stops in the debugger of Bochs, if there is one.
pub fn mark() {
    // SAFETY: the instruction does nothing else.
    unsafe { asm!("xchg bx, bx", options(nomem, nostack)) };
}

/// `mov rax, [rdi]; int 0x80`: a load whose result is the number of a call.
pub const PROBE_LOAD: [u8; 8] = [0x48, 0x8b, 0x07, 0xcd, 0x80, 0, 0, 0];
/// `mov [rdi], rsi; int 0x80`.
pub const PROBE_STORE: [u8; 8] = [0x48, 0x89, 0x37, 0xcd, 0x80, 0, 0, 0];
