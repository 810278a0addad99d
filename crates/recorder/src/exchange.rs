//! The call of `kill` in QEMU 7.2 that ends a program.
//!
//! ```text
//!   QEMU: the program has no handler     kill(getpid(), signal)
//!                                                 |
//!   global offset table of QEMU  | ... | kill | ... | --> on_kill --> the C library's kill
//! ```
//!
//! QEMU calls `kill` through its global offset table (System V ABI for AMD64, section 5.2). [`on_kill`] takes the
//! function's place there.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::{ptr, slice};

use crate::ending;

/// The function whose place is taken.
const KILL: &CStr = c"kill";

/// Entries of the dynamic section, by their tags (`DT_*`).
const STRINGS: u64 = 5;
const SYMBOLS: u64 = 6;
const RELOCATIONS: u64 = 7;
const RELOCATIONS_BYTES: u64 = 8;
const CALLS: u64 = 23;
const CALLS_BYTES: u64 = 2;
/// `R_X86_64_GLOB_DAT` and `R_X86_64_JUMP_SLOT`: the entry is the function's address.
const IS_ADDRESS: [u32; 2] = [6, 7];

const PAGE_BYTES: usize = 4096;

const DONE: c_int = 1;
const FAILED: c_int = 2;

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    offset: u64,
    kind: u32,
    symbol: u32,
    addend: i64,
}

/// Puts [`on_kill`] in the place of `kill`; false if this QEMU has no such import. Then accesses must not be counted.
pub(crate) fn watch() -> bool {
    // SAFETY: the function has the type that the C library asks for.
    unsafe { libc::dl_iterate_phdr(Some(exchange), ptr::null_mut()) == DONE }
}

/// QEMU ends itself, if `pid` is its own and it does not merely stop.
unsafe extern "C" fn on_kill(pid: libc::pid_t, signal: c_int) -> c_int {
    // SAFETY: the calls of QEMU, which has made the second.
    unsafe {
        if pid == libc::getpid() && signal != libc::SIGSTOP {
            ending::tell();
        }
        libc::kill(pid, signal)
    }
}

/// Exchanges the entry in the first object, which is the executable, and ends the search: [`DONE`] or [`FAILED`].
unsafe extern "C" fn exchange(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the loader's description of an object that is loaded.
    unsafe {
        let base = (*info).dlpi_addr as usize;
        let segments = slice::from_raw_parts((*info).dlpi_phdr, (*info).dlpi_phnum.into());
        let segment = |kind| segments.iter().find(|segment| segment.p_type == kind);
        let dynamic = segment(libc::PT_DYNAMIC).map(|it| base + it.p_vaddr as usize);
        let Some(entry) = dynamic.and_then(|dynamic| entry(base, dynamic as *const [u64; 2]))
        else {
            return FAILED;
        };
        let at = entry as usize;
        let is_sealed = segment(libc::PT_GNU_RELRO)
            .is_some_and(|it| at.wrapping_sub(base + it.p_vaddr as usize) < it.p_memsz as usize);
        let page = (at & !(PAGE_BYTES - 1)) as *mut c_void;
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        if is_sealed && libc::mprotect(page, PAGE_BYTES, writable) != 0 {
            return FAILED;
        }
        entry.write(on_kill as *const () as usize);
        if is_sealed {
            libc::mprotect(page, PAGE_BYTES, libc::PROT_READ);
        }
    }
    DONE
}

/// Where the address of [`KILL`] is, in the object at `base` with that `dynamic` section.
unsafe fn entry(base: usize, dynamic: *const [u64; 2]) -> Option<*mut usize> {
    // SAFETY: the section ends with a tag of 0; the tables are as long as it says.
    unsafe {
        let value = |wanted: u64| {
            let tags = (0..).map(|index| *dynamic.add(index)).take_while(|&[tag, _]| tag != 0);
            tags.filter(|&[tag, _]| tag == wanted).map(|[_, value]| value as usize).next()
        };
        // The loader may have added the base already.
        let address = |tag| value(tag).map(|at| if at < base { base + at } else { at });
        let (strings, symbols) = (address(STRINGS)?, address(SYMBOLS)?);
        let table = |start, bytes| -> &[Relocation] {
            match (address(start), value(bytes)) {
                (Some(start), Some(bytes)) => {
                    slice::from_raw_parts(start as *const _, bytes / size_of::<Relocation>())
                }
                _ => &[],
            }
        };
        let mut all = table(CALLS, CALLS_BYTES).iter().chain(table(RELOCATIONS, RELOCATIONS_BYTES));
        let found = all.find(|relocation| {
            let symbol = (symbols as *const libc::Elf64_Sym).add(relocation.symbol as usize);
            let name = (strings + (*symbol).st_name as usize) as *const c_char;
            IS_ADDRESS.contains(&relocation.kind) && CStr::from_ptr(name) == KILL
        })?;
        Some((base + found.offset as usize) as *mut usize)
    }
}
