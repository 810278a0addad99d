//! File and blocking calls, for `--calls` ([`ring::FileCall`]), and allocations ([`ring::Said`]), as the
//! program makes them.

use ring::{Caller, EventCode, FileCall, Numbers, Said, Told, Within};

use crate::run::Engine;
use crate::sys::{self, nr};
use crate::ways;

/// This process.
struct Own;

impl Within for Own {
    fn numbers(&self) -> Numbers {
        Numbers::X86_64
    }

    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        ways::read_bytes(address, to.as_mut_ptr(), to.len() as u64)
    }
}

impl Caller for Own {
    fn tell(&self, fd: i32) -> Option<Told> {
        const F_GETFL: u64 = 3;
        let mut stat = [0u64; 18];
        let fd = fd as u64;
        // SAFETY: `struct stat` has 144 bytes.
        let (found, flags) = unsafe {
            let found = sys::call(nr::FSTAT, [fd, stat.as_mut_ptr() as u64, 0, 0, 0, 0]);
            (found, sys::call(nr::FCNTL, [fd, F_GETFL, 0, 0, 0, 0]))
        };
        let [device, inode, _, mode, _, _, bytes, ..] = stat;
        let told = [fd, mode << 32 | u64::from(flags as u32), device, inode, bytes];
        (found == 0).then_some(told)
    }

    fn offset(&self, fd: i32) -> u64 {
        const SEEK_CUR: u64 = 1;
        // SAFETY: the call takes no pointers: it only returns the file's position.
        unsafe { sys::call(nr::LSEEK, [fd as u64, 0, SEEK_CUR, 0, 0, 0]) as u64 }
    }

    fn now(&self) -> u64 {
        sys::now()
    }
}

impl Engine {
    /// The call of a file, or the one that may block, that begins now; `None` if it is not to be recorded.
    pub(crate) fn begin_file_call(&self, number: u64, arguments: [u64; 6]) -> Option<FileCall> {
        let is_recorded = self.recorder.session().calls != 0 && !self.recorder.is_off;
        is_recorded.then(|| FileCall::begin(&Own, number as i64, arguments)).flatten()
    }

    /// Reports an allocation that the library has announced by a system call with these arguments.
    pub(crate) fn report(&mut self, said: Said, arguments: [u64; 6]) {
        said.report(&Own, arguments, |code, parts| self.recorder.event(code, parts));
    }

    /// Reports a file call that has returned.
    pub(crate) fn end_file_call(&mut self, begun: FileCall, result: i64) {
        let (words, name) = begun.end(&Own, result);
        self.recorder.text(EventCode::FileCall, words.as_slice(), name.as_bytes());
        self.recorder.mark();
    }
}
