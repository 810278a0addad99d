//! The clock of the vdso, which is read without a system call.
//!
//! The clock is read at the end of each segment of a ring, and for each call that is recorded. The
//! kernel's function for this is in the vdso, a small library that the kernel maps into each
//! program. Like all code of the kernel, it uses no vector registers. If it is not found, or the
//! program has unmapped it, the engine makes a system call instead.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::sys::CLOCK;

const AT_SYSINFO_EHDR: u64 = 33;
const SHT_DYNSYM: u32 = 11;
const NAME: &[u8] = b"__vdso_clock_gettime\0";
/// The maximum number of sections and symbols that are examined.
const MOST: u64 = 256;
/// The minimum size in bytes of the vdso, and of the data before it that it reads. The engine
/// assumes that a program which changes a mapping of these bytes changes all of them.
const BYTES: u64 = 8 << 10;

/// The address of the vdso; 0 if it is not used.
static VDSO: AtomicU64 = AtomicU64::new(0);

/// ELF's header of a file, of a section, and a symbol, as far as they are used.
#[derive(Clone, Copy)]
#[repr(C)]
struct File {
    ident: [u8; 16],
    kind: [u16; 2],
    version: u32,
    entry: u64,
    programs: u64,
    sections: u64,
    flags: u32,
    sizes: [u16; 4],
    section_count: u16,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    bytes: u64,
    link: u32,
    info: u32,
    more: [u64; 2],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Symbol {
    name: u32,
    info: [u8; 2],
    section: u16,
    value: u64,
    bytes: u64,
}

const _: () = assert!(offset_of!(File, section_count) == 60 && size_of::<Section>() == 64);

/// Finds the clock of a program whose initial stack pointer is `rsp`.
///
/// # Safety
///
/// The stack must still be as the kernel has created it.
pub(crate) unsafe fn find(rsp: u64) {
    // SAFETY: the caller guarantees that the stack is as the kernel has created it. The kernel has
    // mapped the vdso.
    unsafe {
        let Some(base) = vdso(rsp) else { return };
        if let Some(clock) = function(base) {
            VDSO.store(base, Ordering::Relaxed);
            CLOCK.store(clock, Ordering::Relaxed);
        }
    }
}

/// Called when the program changes the mapping of `bytes` bytes from `start` on. The clock may no
/// longer be mapped.
pub(crate) fn changed(start: u64, bytes: u64) {
    let base = VDSO.load(Ordering::Relaxed);
    let first = base.saturating_sub(BYTES);
    if base != 0 && start < base + BYTES && first < start.saturating_add(bytes) {
        leave();
    }
}

/// Makes the engine read the clock by a system call.
pub(crate) fn leave() {
    CLOCK.store(0, Ordering::Relaxed);
}

/// The address of the vdso, from the auxiliary vector behind arguments and environment.
unsafe fn vdso(rsp: u64) -> Option<u64> {
    // SAFETY: the caller's.
    unsafe {
        let mut at = rsp as *const u64;
        at = at.add(1 + at.read() as usize + 1);
        while at.read() != 0 {
            at = at.add(1);
        }
        at = at.add(1);
        while at.read() != 0 {
            if at.read() == AT_SYSINFO_EHDR {
                return Some(at.add(1).read()).filter(|&base| base != 0);
            }
            at = at.add(2);
        }
    }
    None
}

/// The address of the function in the vdso at `base`.
unsafe fn function(base: u64) -> Option<u64> {
    // SAFETY: the caller's: it is a file of the kernel's as it is in memory.
    unsafe {
        let read = |offset: u64| (base.wrapping_add(offset)) as *const u8;
        let file = read(0).cast::<File>().read_unaligned();
        let section = |at: u64| {
            read(file.sections + at * size_of::<Section>() as u64)
                .cast::<Section>()
                .read_unaligned()
        };
        let count = u64::from(file.section_count).min(MOST);
        let symbols = (0..count).map(section).find(|section| section.kind == SHT_DYNSYM)?;
        let names = section(u64::from(symbols.link));
        let each = size_of::<Symbol>() as u64;
        (0..(symbols.bytes / each).min(MOST)).find_map(|at| {
            let symbol = read(symbols.offset + at * each).cast::<Symbol>().read_unaligned();
            let name = read(names.offset + u64::from(symbol.name));
            let is_named = NAME.iter().enumerate().all(|(at, &byte)| name.add(at).read() == byte);
            is_named.then(|| base.wrapping_add(symbol.value))
        })
    }
}
