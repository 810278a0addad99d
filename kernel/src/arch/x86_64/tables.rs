//! Descriptor tables: flat segments, and the gates of traps.

use core::{arch::asm, cell::UnsafeCell};

use super::{FLAG_INTERRUPTS, SELECTOR_CODE, SELECTOR_TSS, STACK, VECTOR_CALL, call_stub, spurious_stub, trap_stubs};
use crate::PROCESSORS_MAX;

const _: () = assert!(STACK.is_multiple_of(16) && FLAG_INTERRUPTS == 512);

/// A task-state segment, which in long mode has only stack pointers (SDM 7.7).
#[repr(C, packed(4))]
struct Tss {
    reserved: u32,
    stacks: [u64; 3],
    more: [u64; 8],
    end: [u32; 2],
    map: u32,
}

/// The I/O permission map would begin after the last byte, so that there is none: user mode may not
/// use ports.
const _: () = assert!(size_of::<Tss>() == 104);

struct Tables {
    gdt: [u64; 7],
    tss: Tss,
    idt: [[u64; 2]; 256],
}

/// The tables of a processor; only that processor writes them.
struct Own(UnsafeCell<Tables>);

// SAFETY: a processor reaches its own alone.
unsafe impl Sync for Own {}

const EMPTY: Own = Own(UnsafeCell::new(Tables {
    // Code and data of the kernel, data and code of user mode: flat, of 64 bits.
    gdt: [0, 0x00af_9a00_0000_ffff, 0x00cf_9200_0000_ffff, 0x00cf_f200_0000_ffff, 0x00af_fa00_0000_ffff, 0, 0],
    tss: Tss { reserved: 0, stacks: [0; 3], more: [0; 8], end: [0; 2], map: 104 << 16 },
    idt: [[0; 2]; 256],
}));

static TABLES: [Own; PROCESSORS_MAX] = [EMPTY; PROCESSORS_MAX];

fn gate(handler: u64, from_user: bool) -> [u64; 2] {
    let kind = if from_user { 0xee00 } else { 0x8e00 };
    let low = handler & 0xffff | SELECTOR_CODE << 16 | kind << 32 | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}

/// Loads the tables of this processor.
pub(super) fn begin(number: usize) {
    let own = TABLES[number].0.get();
    // SAFETY: this processor's own, and the symbols of boot.s; the selectors are those of `EMPTY`.
    unsafe {
        let tss = &raw const (*own).tss as u64;
        (*own).gdt[5] = 103 | (tss & 0xff_ffff) << 16 | 0x89 << 40 | (tss >> 24 & 0xff) << 56;
        (*own).gdt[6] = tss >> 32;
        (*own).idt = [gate(&raw const spurious_stub as u64, false); 256];
        for vector in 0..36 {
            (*own).idt[vector as usize] = gate(&raw const trap_stubs as u64 + 16 * vector, false);
        }
        (*own).idt[VECTOR_CALL as usize] = gate(&raw const call_stub as u64, true);
        let pointer = |limit: u16, at: u64| [limit, at as u16, (at >> 16) as u16, (at >> 32) as u16, (at >> 48) as u16];
        let gdt = pointer(55, &raw const (*own).gdt as u64);
        let idt = pointer(4095, &raw const (*own).idt as u64);
        asm!("lgdt [{}]", "lidt [{}]", in(reg) gdt.as_ptr(), in(reg) idt.as_ptr());
        asm!("ltr {:x}", in(reg) SELECTOR_TSS);
    }
}

/// Sets the stack of traps from user mode, which is pushed downwards from `end`.
pub(super) fn set_trap_stack(number: usize, end: u64) {
    let own = TABLES[number].0.get();
    // SAFETY: this processor's own.
    unsafe { (*own).tss.stacks[0] = end };
}
