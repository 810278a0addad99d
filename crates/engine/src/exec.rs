//! `execve`: the engine is put into the new program, too.
//!
//! ```text
//!   process   Asked -> waits ........ execve ----> stops before the first instruction ...... begins
//!   host                    traces it, Ready                             puts the engine in, lets it go
//! ```
//!
//! If the host cannot trace the process, or the program cannot be recorded, the program runs without the engine,
//! and a note says so.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ring::{Call, EventCode, Tracing};

use crate::record::{FUTEX_WAIT, FUTEX_WAKE, PATIENCE_NS};
use crate::run::Engine;
use crate::sys::{self, nr};
use crate::{tell, ways};

const PATH_BYTES: usize = 4096;
/// The maximum length in bytes of the path and arguments that are reported to the host.
const TOLD_BYTES: usize = 2048;
/// The maximum number of arguments that are read.
const ARGUMENTS_MAX: u64 = 1 << 18;
const AT_FDCWD: u64 = -100i64 as u64;
const AT_EMPTY_PATH: u64 = 0x1000;
/// Yama: the option of `prctl` that names a process that may trace this one.
const PR_SET_PTRACER: u64 = 0x5961_6d61;

type Path = [u8; PATH_BYTES];
/// `struct stat`.
type Stat = [u64; 18];

/// A request of the program to execute a file.
struct Request {
    /// The descriptor of the directory to which the path is relative.
    directory: u64,
    path: u64,
    arguments: u64,
    environment: u64,
    /// The index of the environment among the arguments of the call.
    environment_at: usize,
    flags: u64,
}

/// An environment with another list of libraries to load first.
struct Environment {
    pointers: Vec<u64>,
    /// The string to which one of the pointers points.
    _variable: Vec<u8>,
}

impl Engine {
    /// Handles `execve` and `execveat`. Returns only if they fail.
    pub(crate) fn execute(&mut self, number: u64, arguments: [u64; 6]) -> i64 {
        let [a, b, c, d, e, _] = arguments;
        let request = match number {
            nr::EXECVE => Request {
                directory: AT_FDCWD,
                path: a,
                arguments: b,
                environment: c,
                environment_at: 2,
                flags: 0,
            },
            _ => Request {
                directory: a,
                path: b,
                arguments: c,
                environment: d,
                environment_at: 3,
                flags: e,
            },
        };
        self.announce_program(&request);
        let changed = if self.is_followed() { self.preloading(&request) } else { None };
        let mut given = arguments;
        if let Some(changed) = &changed {
            given[request.environment_at] = changed.pointers.as_ptr() as u64;
        }
        let file = stat_of(&request);
        let is_traced = self.is_followed() && self.may_follow(file) && self.ask();
        if is_traced && file.is_some() {
            self.recorder.wait_for_pages();
            // The snapshot comes before the end of this segment.
            self.recorder.mark();
        }
        let process = self.recorder.process();
        process.executing.store(is_traced.into(), Ordering::Release);
        process.leaving.store((!is_traced).into(), Ordering::Release);
        // The new program inherits the program's own signal state, not the engine's.
        self.signals.give_back(false);
        self.signals.set_real_mask(self.signals.mask);
        let result = self.call(number, given);
        self.signals.take_back();
        process.executing.store(0, Ordering::Release);
        process.leaving.store(0, Ordering::Release);
        if is_traced {
            process.tracing.store(Tracing::Failed as u32, Ordering::Release);
            // SAFETY: the host detaches from the process at this breakpoint. If no host traces the
            // process, the engine's handler ignores the signal.
            unsafe { ways::pagewalk_break() };
            process.tracing.store(Tracing::Not as u32, Ordering::Release);
        }
        self.recorder.go_on_with_pages();
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

    /// Whether the file can be recorded, if it exists. If not, adds a note that says why.
    fn may_follow(&mut self, file: Option<Stat>) -> bool {
        const MODE: usize = 3;
        const SET_BITS: u64 = 0o6000;
        // SAFETY: `geteuid` takes no arguments and cannot fail.
        let user = unsafe { sys::call(nr::GETEUID, [0; 6]) };
        if file.is_some_and(|stat| stat[MODE] & SET_BITS != 0) && user != 0 {
            self.note("a program ran unrecorded: it gets other rights (setuid or setgid)");
            return false;
        }
        true
    }

    /// If allocations are recorded: the environment for the program. In it, the library that
    /// reports allocations comes before the libraries that the environment already names. A program
    /// that is not recorded gets only the latter.
    fn preloading(&self, request: &Request) -> Option<Environment> {
        const VARIABLE: &[u8; 11] = b"LD_PRELOAD=";
        let stem = Some(self.recorder.libraries()).filter(|stem| !stem.is_empty())?;
        let (mut pointers, mut wanted) = (Vec::new(), [0; PATH_BYTES]);
        let mut at = request.environment;
        while at != 0 {
            let (mut string, mut name) = (0u64, [0; VARIABLE.len()]);
            if !ways::read(at, &mut string) {
                return None;
            }
            if string == 0 {
                break;
            }
            if ways::read(string, &mut name) && name == *VARIABLE {
                read_string(string + VARIABLE.len() as u64, &mut wanted);
            } else {
                pointers.push(string);
            }
            at = at.wrapping_add(8);
        }
        let mut wanted = until_zero(&wanted);
        if wanted.starts_with(stem) {
            // The engine added this library for the program that calls `execve`.
            let end = wanted.iter().position(|&byte| byte == b':');
            wanted = end.map_or(&b""[..], |end| &wanted[end + 1..]);
        }
        let is_ours = is_for_this_processor(request.directory, request.path, true);
        let own: [&[u8]; 2] = if is_ours { [stem, b"x86_64.so"] } else { [b"", b""] };
        let between: &[u8] = if is_ours && !wanted.is_empty() { b":" } else { b"" };
        let mut variable = Vec::new();
        if is_ours || !wanted.is_empty() {
            for part in [&VARIABLE[..], own[0], own[1], between, wanted, b"\0"] {
                variable.extend_from_slice(part);
            }
            pointers.push(variable.as_ptr() as u64);
        }
        pointers.push(0);
        Some(Environment { pointers, _variable: variable })
    }

    fn note(&mut self, why: &str) {
        self.recorder.text(EventCode::Note, &[], why.as_bytes());
        self.recorder.mark();
    }

    /// Asks the host to trace this process. Returns whether the host does so.
    fn ask(&mut self) -> bool {
        let (session, process) = (self.recorder.session(), self.recorder.process());
        // SAFETY: the call takes no pointers. A kernel without Yama refuses it.
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
            // SAFETY: the name ends with a zero byte, and the buffer is one byte longer than the
            // given length.
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

/// The result of `stat` for the file to execute, if it exists.
fn stat_of(request: &Request) -> Option<Stat> {
    let mut stat = [0u64; 18];
    let to = stat.as_mut_ptr() as u64;
    let flags = request.flags & AT_EMPTY_PATH;
    let arguments = [request.directory, request.path, to, flags, 0, 0];
    // SAFETY: `struct stat` has 144 bytes; the kernel checks the path.
    let found = unsafe { sys::call(nr::NEWFSTATAT, arguments) };
    (found == 0).then_some(stat)
}

/// Whether the file, or the interpreter of the script, is for this processor, as far as is known.
fn is_for_this_processor(directory: u64, path: u64, may_be_script: bool) -> bool {
    const O_CLOEXEC: u64 = 0o2000000;
    // The class (64 bits) and the machine (AMD64) in the header of an ELF file.
    const CLASS_64: u8 = 2;
    const AMD64: u16 = 62;
    let mut head = [0u8; 256];
    // SAFETY: the kernel checks the path; the buffer has the length that is given.
    let length = unsafe {
        let fd = sys::call(nr::OPENAT, [directory, path, O_CLOEXEC, 0, 0, 0]);
        if fd < 0 {
            return true;
        }
        let to = head.as_mut_ptr() as u64;
        let length = sys::call(nr::READ, [fd as u64, to, head.len() as u64 - 1, 0, 0, 0]);
        sys::call(nr::CLOSE, [fd as u64, 0, 0, 0, 0, 0]);
        length.max(0) as usize
    };
    if head.starts_with(b"#!") && may_be_script {
        let is_space = |byte: &u8| byte.is_ascii_whitespace();
        let from = head.iter().skip(2).position(|byte| !is_space(byte)).map_or(length, |at| 2 + at);
        let end = head.iter().skip(from).position(|byte| is_space(byte) || *byte == 0);
        head[end.map_or(length, |end| from + end)] = 0;
        let interpreter = head.as_ptr() as u64 + from as u64;
        return is_for_this_processor(AT_FDCWD, interpreter, false);
    }
    let is_elf = length >= 20 && head.starts_with(b"\x7fELF");
    !is_elf || head[4] == CLASS_64 && u16::from_le_bytes([head[18], head[19]]) == AMD64
}

/// Reads a zero-terminated string of the program.
fn read_string(address: u64, to: &mut Path) -> bool {
    // The string may end right before unmapped memory, so read up to the end of a page at a time.
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
