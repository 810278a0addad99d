//! `execve`: the engine is put into the new program, too.
//!
//! ```text
//!   process   Asked -> waits ........ execve ----> stops before the first instruction ...... begins
//!   host                    traces it, Ready                             puts the engine in, lets it go
//! ```
//!
//! If the host cannot trace the process, or the program cannot be recorded, the program runs without the engine,
//! and a note says so.

use core::sync::atomic::Ordering;

use ring::{Call, EventCode, Tracing};

use crate::record::{FUTEX_WAIT, FUTEX_WAKE, PATIENCE_NS};
use crate::run::Engine;
use crate::sys::{self, nr};
use crate::{tell, ways};

const PATH_BYTES: usize = 4096;
/// The most bytes of path and arguments that are reported to the host.
const TOLD_BYTES: usize = 2048;
/// The most arguments that are looked at.
const ARGUMENTS_MAX: u64 = 1 << 18;
const AT_FDCWD: u64 = -100i64 as u64;
const AT_EMPTY_PATH: u64 = 0x1000;
/// Yama: the option of `prctl` that names a process that may trace this one.
const PR_SET_PTRACER: u64 = 0x5961_6d61;

type Path = [u8; PATH_BYTES];

/// A request of the program to execute a file.
struct Request {
    /// The descriptor of the directory that the path is relative to.
    directory: u64,
    path: u64,
    arguments: u64,
    flags: u64,
}

impl Engine {
    /// Handles `execve` and `execveat`. Returns only if they fail.
    pub(crate) fn execute(&mut self, number: u64, arguments: [u64; 6]) -> i64 {
        let [a, b, c, _, e, _] = arguments;
        let request = match number {
            nr::EXECVE => Request { directory: AT_FDCWD, path: a, arguments: b, flags: 0 },
            _ => Request { directory: a, path: b, arguments: c, flags: e },
        };
        self.announce_program(&request);
        let is_traced = self.is_followed() && self.may_follow(&request) && self.ask();
        let process = self.recorder.process();
        process.executing.store(is_traced.into(), Ordering::Release);
        process.leaving.store((!is_traced).into(), Ordering::Release);
        // The new program inherits the program's own signal state, not the engine's.
        self.signals.give_back(false);
        self.signals.set_real_mask(self.signals.mask);
        let result = self.call(number, arguments);
        self.signals.take_back();
        process.executing.store(0, Ordering::Release);
        process.leaving.store(0, Ordering::Release);
        if is_traced {
            process.tracing.store(Tracing::Failed as u32, Ordering::Release);
            // SAFETY: the host lets go of the process there; without it the engine's handler ignores the signal.
            unsafe { ways::pagewalk_break() };
            process.tracing.store(Tracing::Not as u32, Ordering::Release);
        }
        if result != sys::RESTART {
            self.tell(Call::Execve, arguments, result);
            self.recorder.mark();
        }
        result
    }

    /// Whether programs that this process starts are recorded.
    fn is_followed(&self) -> bool {
        let session = self.recorder.session();
        session.follow != 0 && session.over.load(Ordering::Relaxed) == 0 && !self.recorder.is_off
    }

    /// Whether the file can be recorded; if not, and it is not for the kernel to refuse it, a note says why.
    fn may_follow(&mut self, request: &Request) -> bool {
        const MODE: usize = 3;
        const SET_BITS: u64 = 0o6000;
        let mut stat = [0u64; 18];
        let to = stat.as_mut_ptr() as u64;
        let flags = request.flags & AT_EMPTY_PATH;
        // SAFETY: `struct stat` has 144 bytes; the kernel checks the path.
        let (found, user) = unsafe {
            let found =
                sys::call(nr::NEWFSTATAT, [request.directory, request.path, to, flags, 0, 0]);
            (found, sys::call(nr::GETEUID, [0; 6]))
        };
        if found == 0 && stat[MODE] & SET_BITS != 0 && user != 0 {
            self.note("a program with other rights (setuid) ran unrecorded");
            return false;
        }
        true
    }

    fn note(&mut self, why: &str) {
        self.recorder.text(EventCode::Note, &[], why.as_bytes());
        self.recorder.mark();
    }

    /// Asks the host to trace this process; whether it does.
    fn ask(&mut self) -> bool {
        let (session, process) = (self.recorder.session(), self.recorder.process());
        // SAFETY: no pointers; a kernel without Yama refuses it.
        unsafe {
            sys::call(nr::PRCTL, [PR_SET_PTRACER, session.host_pid.into(), 0, 0, 0, 0]);
            process.executes.store(sys::call(nr::GETTID, [0; 6]) as u32, Ordering::Relaxed);
        }
        process.tracing.store(Tracing::Asked as u32, Ordering::Release);
        session.asks.fetch_add(1, Ordering::Release);
        sys::futex(session.asks.as_ptr(), FUTEX_WAKE, 1, core::ptr::null());
        loop {
            let now = process.tracing.load(Ordering::Acquire);
            match Tracing::from_bits(now) {
                Some(Tracing::Asked | Tracing::Taken) => {}
                Some(Tracing::Ready) => return true,
                Some(Tracing::Not | Tracing::Refused | Tracing::Failed) | None => return false,
            }
            if session.over.load(Ordering::Relaxed) != 0 || !self.recorder.host_lives() {
                return false;
            }
            sys::futex(process.tracing.as_ptr(), FUTEX_WAIT, now, &[0, PATIENCE_NS]);
        }
    }

    /// Reports path and arguments of the program.
    fn announce_program(&mut self, request: &Request) {
        let mut told = [0u8; TOLD_BYTES];
        let mut length = 0;
        let mut append = |text: &[u8]| {
            if text.len() < TOLD_BYTES - length {
                told[length..length + text.len()].copy_from_slice(text);
                length += text.len() + 1;
            }
        };
        let mut path = [0; PATH_BYTES];
        if !read_string(request.path, &mut path) {
            return;
        }
        if path[0] == 0 {
            tell::path_of(request.directory, &mut path[..PATH_BYTES - 1]);
        }
        let own = c"/proc/self/exe";
        if until_zero(&path) == own.to_bytes() {
            let (from, to) = (own.as_ptr() as u64, path.as_mut_ptr() as u64);
            // SAFETY: a terminated name, and a buffer one byte longer than said.
            let length =
                unsafe { sys::call(nr::READLINK, [from, to, PATH_BYTES as u64 - 1, 0, 0, 0]) };
            if let Some(end) = path.get_mut(length.max(0) as usize) {
                *end = 0;
            }
        }
        append(until_zero(&path));
        let mut at = request.arguments;
        for _ in 0..ARGUMENTS_MAX {
            let mut string = 0u64;
            if !ways::read(at, &mut string) || string == 0 {
                break;
            }
            if read_string(string, &mut path) {
                append(until_zero(&path));
            }
            at = at.wrapping_add(8);
        }
        self.recorder.text(EventCode::Execve, &[], &told[..length]);
        self.recorder.mark();
    }
}

/// Reads a zero-terminated string of the program.
fn read_string(address: u64, to: &mut Path) -> bool {
    // The string may end right before memory that is not there: up to page ends.
    let mut length = 0;
    while length < PATH_BYTES {
        let from = address.wrapping_add(length as u64);
        let step = (PATH_BYTES - (from as usize) % PATH_BYTES).min(PATH_BYTES - length);
        let part = &mut to[length..length + step];
        if !ways::read_bytes(from, part.as_mut_ptr(), step as u64) {
            return false;
        }
        if part.contains(&0) {
            return true;
        }
        length += step;
    }
    false
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}
