//! The system calls that change an address space, as each guest numbers them.

use ring::{Call, EventCode};

use crate::vcpu::{Phase, cursor};
use crate::{events, exec, filter, guest, span, vcpu};

/// QEMU's "will be issued again": no result yet.
const RESTART: i64 = -512;
/// Results from here to -1 are errors.
const ERRNO_LAST: i64 = -4095;
/// Bytes of the unit in which `mmap2` counts its offset.
const MMAP2_UNIT_BYTES: u64 = 4096;

/// The guest's instruction set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guest {
    /// AMD64.
    X86_64,
    /// 32-bit x86.
    I386,
    /// 64-bit Arm or RISC-V: both have Linux's generic numbers.
    Generic64,
}

impl Guest {
    /// The guest of that QEMU target, and its number in ELF.
    pub(crate) fn from_target(name: &[u8]) -> Option<(Guest, u32)> {
        match name {
            b"x86_64" => Some((Guest::X86_64, 62)),
            b"i386" => Some((Guest::I386, 3)),
            b"aarch64" => Some((Guest::Generic64, 183)),
            b"riscv64" => Some((Guest::Generic64, 243)),
            _ => None,
        }
    }

    /// The bits of its addresses.
    pub(crate) fn address_mask(self) -> u64 {
        if self == Guest::I386 { u32::MAX.into() } else { u64::MAX }
    }

    /// Bytes of its pointers.
    pub(crate) fn pointer_bytes(self) -> usize {
        if self == Guest::I386 { 4 } else { 8 }
    }

    /// What `number` means; `Form` where the arguments are not those of Linux on AMD64.
    fn call(self, number: i64) -> Option<(Call, Form)> {
        use Call::*;
        let plain = |call| Some((call, Form::Plain));
        match self {
            Guest::X86_64 => match number {
                9 => plain(Mmap),
                10 => plain(Mprotect),
                11 => plain(Munmap),
                12 => plain(Brk),
                25 => plain(Mremap),
                28 => plain(Madvise),
                56 => plain(Clone),
                57 | 58 => plain(Fork),
                59 => plain(Execve),
                60 => plain(Exit),
                231 => plain(ExitGroup),
                322 => Some((Execve, Form::At)),
                _ => None,
            },
            Guest::I386 => match number {
                1 => plain(Exit),
                2 | 190 => plain(Fork),
                11 => plain(Execve),
                45 => plain(Brk),
                90 => Some((Mmap, Form::InMemory)),
                91 => plain(Munmap),
                120 => plain(Clone),
                125 => plain(Mprotect),
                163 => plain(Mremap),
                192 => Some((Mmap, Form::Pages)),
                219 => plain(Madvise),
                252 => plain(ExitGroup),
                358 => Some((Execve, Form::At)),
                _ => None,
            },
            Guest::Generic64 => match number {
                93 => plain(Exit),
                94 => plain(ExitGroup),
                214 => plain(Brk),
                215 => plain(Munmap),
                216 => plain(Mremap),
                220 => plain(Clone),
                221 => plain(Execve),
                222 => plain(Mmap),
                226 => plain(Mprotect),
                233 => plain(Madvise),
                281 => Some((Execve, Form::At)),
                _ => None,
            },
        }
    }
}

/// How a call gives its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As Linux on AMD64 does.
    Plain,
    /// The first argument points to all of them (`old_mmap`).
    InMemory,
    /// The offset counts units of 4096 bytes (`mmap2`).
    Pages,
    /// A directory comes before the path, flags come last (`execveat`).
    At,
}

/// A system call begins.
pub(crate) fn enter(vcpu: u32, guest: Guest, number: i64, raw: [u64; 6]) {
    let cursor = cursor(vcpu);
    filter::settle(vcpu);
    let Some((call, form)) = guest.call(number) else {
        // SAFETY: only this thread uses the cursor.
        unsafe { (*cursor).call = None };
        span::mark(vcpu, true);
        return;
    };
    let arguments = arguments(guest, form, raw);
    // SAFETY: as above.
    unsafe {
        (*cursor).call = Some(call);
        (*cursor).arguments = arguments;
    }
    match call {
        Call::Clone if Call::makes_thread(arguments[0]) => {
            vcpu::expect_threads(vcpu);
            span::mark(vcpu, true);
        }
        Call::Exit | Call::ExitGroup => {
            tell(vcpu, call, &arguments, 0);
            span::mark(vcpu, true);
            if call == Call::Exit {
                span::event(vcpu, EventCode::ThreadEnd, &[]);
                span::close(vcpu);
            }
        }
        Call::Execve => {
            let directory = if form == Form::At { Some(raw[0] as i32) } else { None };
            let at = usize::from(form == Form::At);
            let flags = if form == Form::At { raw[4] as i32 } else { 0 };
            exec::follow(
                vcpu,
                guest,
                &exec::Request {
                    directory,
                    path: raw[at],
                    arguments: raw[at + 1],
                    environment: raw[at + 2],
                    flags,
                },
            );
        }
        _ => span::mark(vcpu, true),
    }
}

/// A system call has returned.
pub(crate) fn leave(vcpu: u32, guest: Guest, result: i64) {
    let cursor = cursor(vcpu);
    // SAFETY: only this thread uses the cursor.
    let (call, arguments, phase) =
        unsafe { ((*cursor).call.take(), (*cursor).arguments, (*cursor).phase) };
    let Some(call) = call else { return };
    if result == RESTART || phase == Phase::Off {
        return;
    }
    if call == Call::Execve {
        exec::failed();
    }
    // A 32-bit guest's addresses arrive with their sign.
    let result = match result {
        ERRNO_LAST..0 => result,
        _ => (result as u64 & guest.address_mask()) as i64,
    };
    tell(vcpu, call, &arguments, result);
    span::mark(vcpu, true);
}

fn arguments(guest: Guest, form: Form, raw: [u64; 6]) -> [u64; 6] {
    let mask = guest.address_mask();
    let mut arguments = raw.map(|argument| argument & mask);
    match form {
        Form::InMemory => {
            let mut words = [0u32; 6];
            if guest::read(arguments[0], &mut words) {
                arguments = words.map(u64::from);
            }
        }
        Form::Pages => arguments[5] *= MMAP2_UNIT_BYTES,
        Form::Plain | Form::At => {}
    }
    arguments
}

fn tell(vcpu: u32, call: Call, arguments: &[u64; 6], result: i64) {
    let mut path = [0u8; 4096];
    let mut length = 0;
    if call == Call::Mmap && arguments[4] as i32 >= 0 && result >= 0 {
        length = guest::path_of(arguments[4] as u32, &mut path);
    }
    let [a, b, c, d, e, f] = *arguments;
    let words = [call as u64, a, b, c, d, e, f, result as u64];
    events::text(vcpu, EventCode::Call, &words, &path[..length]);
}
