//! Starts the program: the child is traced before it installs the filter, and installs the filter before it
//! executes the program.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Options, filter};

const PR_SET_THP_DISABLE: i32 = 41;
/// `PR_THP_DISABLE_EXCEPT_ADVISED`, Linux 6.18.
const EXCEPT_ADVISED: u64 = 2;
const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x0040000;

/// The step at which a child failed before it executed the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Step {
    Only = 1,
    Filter,
    Execute,
}

/// A child that waits until it is traced.
pub(super) struct Started {
    pub(super) pid: i32,
    go: i32,
    failed: i32,
}

/// Forks the child. The child may make only system calls, since this process has other threads.
pub(super) fn start(path: &Path, argv0: &OsStr, options: &Options) -> io::Result<Started> {
    let text =
        |bytes: &[u8]| CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let file = text(path.as_os_str().as_bytes())?;
    let words = [argv0].into_iter().chain(options.command.iter().skip(1).map(OsString::as_os_str));
    let arguments = words.map(|word| text(word.as_bytes())).collect::<io::Result<Vec<_>>>()?;
    let is_set = |name: &OsStr| options.environment.iter().any(|own| own.name == name);
    let kept = std::env::vars_os().filter(|(name, _)| !is_set(name));
    let own = options.environment.iter().map(|own| (own.name.clone(), own.value.clone()));
    let variables = kept
        .chain(own)
        .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
    let variables = variables.collect::<io::Result<Vec<_>>>()?;
    let pointers = |all: &[CString]| {
        let ends = [std::ptr::null()];
        all.iter().map(|one| one.as_ptr()).chain(ends).collect::<Vec<_>>()
    };
    let (argv, envp) = (pointers(&arguments), pointers(&variables));
    let program = filter::program();
    let (go, failed) = (pipe()?, pipe()?);
    // SAFETY: the child makes only system calls.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: the strings to which the pointers point exist in this copy of the process
            // too.
            unsafe {
                libc::close(go[1]);
                let (step, error) = become_program(go[0], &program, &file, (&argv, &envp), options);
                let told = [step as u8, error as u8];
                libc::write(failed[1], told.as_ptr().cast(), 2);
                libc::_exit(127)
            }
        }
        pid => {
            // SAFETY: these ends of pipes belong to this process.
            unsafe {
                libc::close(go[0]);
                libc::close(failed[1]);
            }
            Ok(Started { pid, go: go[1], failed: failed[0] })
        }
    }
}

impl Started {
    /// Lets the child continue, now that it is traced.
    pub(super) fn go(&self) {
        // SAFETY: writes one byte to a pipe of this process. If the child has ended, waiting for it
        // will report that.
        unsafe { libc::write(self.go, [1_u8].as_ptr().cast(), 1) };
    }

    /// If the child ended before it executed the program: the step at which it failed, and the
    /// system's error number.
    pub(super) fn failed(&self) -> Option<(Step, i32)> {
        let mut told = [0_u8; 2];
        // SAFETY: the bytes are variables of this function. The other end of the pipe is closed,
        // since the child has ended or executed the program.
        let many = unsafe { libc::read(self.failed, told.as_mut_ptr().cast(), 2) };
        let step = match (many, told[0]) {
            (2, 1) => Step::Only,
            (2, 2) => Step::Filter,
            (2, 3) => Step::Execute,
            _ => return None,
        };
        Some((step, told[1].into()))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // SAFETY: these ends of pipes belong to this process.
        unsafe {
            libc::close(self.go);
            libc::close(self.failed);
        }
    }
}

/// Called in the child. Waits, prepares the process, and executes the program. If this is not
/// possible, reports the step that failed.
unsafe fn become_program(
    go: i32,
    program: &[libc::sock_filter],
    file: &CString,
    (argv, envp): (&[*const libc::c_char], &[*const libc::c_char]),
    options: &Options,
) -> (Step, i32) {
    let last = || io::Error::last_os_error().raw_os_error().unwrap_or(0);
    // SAFETY: system calls with memory of this process.
    unsafe {
        let mut told = 0_u8;
        if libc::read(go, (&raw mut told).cast(), 1) != 1 {
            // The launcher has ended.
            libc::_exit(127);
        }
        // Python ignores these signals, and a program inherits ignored signals.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        if options.fixed {
            let now = libc::personality(0xffff_ffff);
            if now >= 0 {
                libc::personality(now as libc::c_ulong | ADDR_NO_RANDOMIZE);
            }
        }
        if options.only && libc::prctl(PR_SET_THP_DISABLE, 1_u64, EXCEPT_ADVISED, 0_u64, 0_u64) != 0
        {
            return (Step::Only, last());
        }
        if let Err(error) = filter::install(program) {
            return (Step::Filter, error.raw_os_error().unwrap_or(0));
        }
        libc::execve(file.as_ptr(), argv.as_ptr(), envp.as_ptr());
        (Step::Execute, last())
    }
}

fn pipe() -> io::Result<[i32; 2]> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } {
        0 => Ok(ends),
        _ => Err(io::Error::last_os_error()),
    }
}
