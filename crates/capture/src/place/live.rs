//! Collapses memory of a running process into large pages. The launcher does this with its own
//! privileges, or makes the process itself call the kernel.

use std::io;

use crate::maps::Line;
use crate::tracee::{SYSCALL, Tracee};

const MADV_COLLAPSE: i32 = 25;
const PR_GET_THP_DISABLE: u64 = 42;

/// Collapses ranges of a process. Returns the system's error number for each range, or 0.
///
/// With CAP_SYS_NICE, this process calls `process_madvise`. (It uses a pidfd, so that a reused
/// process identifier does no harm.) Otherwise the process is stopped for a moment and is made to
/// execute the calls itself.
pub fn collapse(pid: i32, ranges: &[(u64, u64)]) -> io::Result<Vec<i32>> {
    let mut results = Vec::with_capacity(ranges.len());
    for &(start, end) in ranges {
        let error = remotely(pid, start, end)?;
        if error == libc::EPERM {
            break;
        }
        results.push(error);
    }
    if results.len() == ranges.len() {
        return Ok(results);
    }
    let mut attached = Attached::to(pid)?;
    let calls = ranges.iter().map(|&(start, end)| {
        let arguments = [start, end - start, MADV_COLLAPSE as u64, 0, 0, 0];
        match attached.call(libc::SYS_madvise as u64, arguments) {
            Ok(_) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::ESRCH),
        }
    });
    Ok(calls.collect())
}

/// Asks the kernel to collapse a range of another process. Returns the system's error number, or 0.
pub(super) fn remotely(pid: i32, start: u64, end: u64) -> io::Result<i32> {
    // SAFETY: plain system calls with a descriptor of this function.
    let file = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    let range = libc::iovec { iov_base: start as *mut _, iov_len: (end - start) as usize };
    // SAFETY: the address is in the other process, and this process reads nothing there.
    let asked = unsafe {
        libc::syscall(libc::SYS_process_madvise, file, &raw const range, 1, MADV_COLLAPSE, 0)
    };
    let error = if asked < 0 { io::Error::last_os_error().raw_os_error() } else { None };
    // SAFETY: this function has opened the descriptor.
    unsafe { libc::close(file) };
    Ok(error.unwrap_or(0))
}

/// The result of `prctl(PR_GET_THP_DISABLE)` in the process: 0 if large pages are not disabled, 1
/// if they are disabled, 3 if they are disabled except where advised.
pub fn thp_disabled(pid: i32) -> io::Result<u64> {
    Attached::to(pid)?.call(libc::SYS_prctl as u64, [PR_GET_THP_DISABLE, 0, 0, 0, 0, 0])
}

/// A process that is stopped for a moment.
struct Attached {
    tracee: Tracee,
    site: u64,
}

impl Attached {
    fn to(pid: i32) -> io::Result<Attached> {
        let last = io::Error::last_os_error;
        let site = {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
            let vdso = maps.lines().filter_map(Line::parse).find(|line| line.path == "[vdso]");
            vdso.map(|line| (line.start, line.end))
        };
        if has_filter(pid) {
            // The process has a filter of its own, which might end it because of a call that the
            // filter does not expect.
            return Err(io::Error::from_raw_os_error(libc::EACCES));
        }
        let options = libc::PTRACE_O_TRACESYSGOOD;
        // SAFETY: the system calls get a pointer only to the status, a variable of this function.
        unsafe {
            if libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) < 0 {
                return Err(last());
            }
        }
        let mut attached = Detach(pid);
        // SAFETY: as above.
        unsafe {
            if libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) < 0 {
                return Err(last());
            }
            let mut status = 0;
            loop {
                if libc::waitpid(pid, &mut status, libc::__WALL) < 0 {
                    return Err(last());
                }
                if !libc::WIFSTOPPED(status) {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                if status >> 16 == libc::PTRACE_EVENT_STOP {
                    break;
                }
                // This is a signal for the process. It is passed on.
                libc::ptrace(libc::PTRACE_CONT, pid, 0, libc::WSTOPSIG(status));
            }
        }
        let tracee = Tracee::of(pid)?;
        let (start, end) = site.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOEXEC))?;
        let mut code = vec![0; (end - start).min(1 << 20) as usize];
        tracee.memory()?.read_at(&mut code, start)?;
        let at = code.windows(2).position(|bytes| bytes == SYSCALL);
        let at = at.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOEXEC))?;
        attached.0 = 0;
        Ok(Attached { tracee, site: start + at as u64 })
    }

    fn call(&mut self, number: u64, arguments: [u64; 6]) -> io::Result<u64> {
        self.tracee.call_at(self.site, number, arguments)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        Detach(self.tracee.pid);
    }
}

/// Detaches from a process when it is dropped, unless the process identifier is 0.
struct Detach(i32);

impl Drop for Detach {
    fn drop(&mut self) {
        if self.0 != 0 {
            // SAFETY: this process traces the other process, unless that has ended.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
        }
    }
}

fn has_filter(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}
