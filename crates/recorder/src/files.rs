//! File calls and blocking calls of a program that runs in QEMU, for `--calls`
//! ([`ring::FileCall`]).
//!
//! Descriptors are examined in the recorded process itself, with the host's own system calls: in
//! QEMU, a guest's descriptors have the same numbers as the host's.

use ring::{Caller, EventCode, FileCall, Numbers, Told, Within};

use crate::isa::Guest;
use crate::{events, global, guest, wait};

impl Within for Guest {
    fn numbers(&self) -> Numbers {
        match self {
            Guest::X86_64 => Numbers::X86_64,
            Guest::I386 => Numbers::I386,
            Guest::Generic64 => Numbers::Generic64,
            Guest::Arm => Numbers::Arm,
        }
    }

    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        guest::read_bytes(address, to.as_mut_ptr(), to.len()) == to.len()
    }
}

impl Caller for Guest {
    fn tell(&self, fd: i32) -> Option<Told> {
        let stat = guest::stat_of(fd)?;
        // SAFETY: the call takes no pointers: it returns the flags of an open descriptor.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) } as u32;
        let mode = u64::from(stat.st_mode) << 32 | u64::from(flags);
        Some([fd as u64, mode, stat.st_dev, stat.st_ino, stat.st_size as u64])
    }

    fn offset(&self, fd: i32) -> u64 {
        // SAFETY: this only asks for the descriptor's current offset.
        unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) as u64 }
    }

    fn now(&self) -> u64 {
        wait::now()
    }
}

/// Called when a system call begins. `None` if this call is not to be recorded.
pub(crate) fn begin(guest: Guest, number: i64, raw: [u64; 6]) -> Option<FileCall> {
    if global::shared().session().calls == 0 {
        return None;
    }
    FileCall::begin(&guest, number, raw.map(|argument| argument & guest.address_mask()))
}

/// Called when the system call has returned. Records the call.
pub(crate) fn end(vcpu: u32, guest: Guest, begun: FileCall, result: i64) {
    let (words, name) = begun.end(&guest, result);
    events::text(vcpu, EventCode::FileCall, words.as_slice(), name.as_bytes());
}
