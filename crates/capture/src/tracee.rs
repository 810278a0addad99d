//! A traced process that is stopped: its registers, its memory, and system calls that it is made to
//! execute.
//!
//! ```text
//!   call       at its present instruction: `syscall` is written over it, one step, the instruction put back
//!   call_at    at a `syscall` that is there already: nothing is written, so that other threads may run meanwhile
//! ```
//!
//! Programs are traced only on x86-64. On other processors this module is compiled too, and
//! [`check_host`] reports an error before a program starts.

use std::io;

#[cfg(target_arch = "x86_64")]
pub(crate) use libc::user_regs_struct as Registers;

use crate::Error;

/// The registers of a program on x86-64. This definition is for hosts whose C library does not have
/// it.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "some are set and never read")]
pub(crate) struct Registers {
    pub(crate) rax: u64,
    pub(crate) rdi: u64,
    pub(crate) rsi: u64,
    pub(crate) rdx: u64,
    pub(crate) r10: u64,
    pub(crate) r8: u64,
    pub(crate) r9: u64,
    pub(crate) rip: u64,
    pub(crate) rsp: u64,
    pub(crate) eflags: u64,
    pub(crate) cs: u64,
    pub(crate) orig_rax: u64,
}

/// Refuses a host whose processor is not x86-64.
pub(crate) fn check_host() -> Result<(), Error> {
    if cfg!(target_arch = "x86_64") { Ok(()) } else { Err(Error::Host(std::env::consts::ARCH)) }
}

/// The `syscall` instruction.
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// A traced process that is stopped.
pub(crate) struct Tracee {
    pub(crate) pid: i32,
    pub(crate) registers: Registers,
    /// If the thread stopped for another reason than the end of a requested call: this stop, as
    /// reported by `waitpid`.
    pub(crate) left: Option<i32>,
}

/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK` (Linux 3.11).
const GET_MASK: u32 = 0x420a;
const SET_MASK: u32 = 0x420b;
/// `PTRACE_GETREGS` and `PTRACE_SETREGS`, which only some processors have.
const GET_REGISTERS: u32 = 12;
const SET_REGISTERS: u32 = 13;
/// The stop signal at a system call with `PTRACE_O_TRACESYSGOOD`: a bit distinguishes it from other
/// traps.
pub(crate) const CALL_STOP: i32 = libc::SIGTRAP | 0x80;

impl Tracee {
    /// Waits until the child stops after its `execve`.
    pub(crate) fn stopped(pid: i32) -> io::Result<Tracee> {
        // SAFETY: all zeros are a valid value of the registers.
        let mut tracee = Tracee { pid, registers: unsafe { std::mem::zeroed() }, left: None };
        tracee.wait()?;
        tracee.get()?;
        Ok(tracee)
    }

    /// A traced thread that has stopped.
    pub(crate) fn of(pid: i32) -> io::Result<Tracee> {
        // SAFETY: all zeros are a valid value of the registers.
        let mut tracee = Tracee { pid, registers: unsafe { std::mem::zeroed() }, left: None };
        tracee.get()?;
        Ok(tracee)
    }

    /// A traced thread that has stopped, with these registers.
    pub(crate) fn at(pid: i32, registers: Registers) -> Tracee {
        Tracee { pid, registers, left: None }
    }

    /// Reads the thread's current registers.
    pub(crate) fn get(&mut self) -> io::Result<()> {
        let to = &raw mut self.registers as u64;
        self.ask(GET_REGISTERS, 0, to)
    }

    /// Writes the registers of this value to the thread.
    pub(crate) fn set(&self) -> io::Result<()> {
        self.ask(SET_REGISTERS, 0, &raw const self.registers as u64)
    }

    /// Continues the thread up to the next beginning or end of a system call. If it stops for another reason,
    /// sets `left`.
    pub(crate) fn until_call(&mut self) -> io::Result<()> {
        loop {
            self.ask(libc::PTRACE_SYSCALL, 0, 0)?;
            let mut status = 0;
            // SAFETY: the status is a variable of this function.
            while unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) } < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            if libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == CALL_STOP {
                return Ok(());
            }
            // The filter of `pagewalk place` also stops system calls that the launcher makes the
            // thread execute.
            if !libc::WIFSTOPPED(status) || status >> 16 != libc::PTRACE_EVENT_SECCOMP {
                self.left = Some(status);
                return Err(io::Error::other("its thread stopped before the system call ended"));
            }
        }
    }

    /// Makes the thread execute a system call with the `syscall` instruction at `site`, and restores its
    /// registers. Signals wait until the call is done.
    pub(crate) fn call_at(
        &mut self,
        site: u64,
        number: u64,
        arguments: [u64; 6],
    ) -> io::Result<u64> {
        let (before, mut mask) = (self.registers, 0_u64);
        let bytes = size_of::<u64>() as u64;
        self.ask(GET_MASK, bytes, &raw mut mask as u64)?;
        let all = u64::MAX;
        self.ask(SET_MASK, bytes, &raw const all as u64)?;
        self.registers = Registers { rip: site, ..calling(before, number, arguments) };
        let mut done = self.set();
        for _ in 0..2 {
            done = done.and_then(|()| self.until_call());
        }
        let done = done.and_then(|()| self.get());
        let result = self.registers.rax;
        self.registers = before;
        // The thread may have ended; `done` then contains the error.
        let back = self.set().and(self.ask(SET_MASK, bytes, &raw const mask as u64));
        done.and(back)?;
        match result as i64 {
            error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
            result => Ok(result as u64),
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut status = 0;
        loop {
            // SAFETY: the status is a variable of this function.
            let waited = unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) };
            match waited {
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                -1 => return Err(io::Error::last_os_error()),
                _ if libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP => {
                    return Ok(());
                }
                _ if libc::WIFSTOPPED(status) => {
                    // The signal is for the program, which gets it when it continues.
                    self.ask(libc::PTRACE_SINGLESTEP, 0, libc::WSTOPSIG(status) as u64)?;
                }
                _ => return Err(io::Error::other("it ended before its first instruction")),
            }
        }
    }

    pub(crate) fn ask(&self, request: u32, address: u64, data: u64) -> io::Result<()> {
        check_host().map_err(io::Error::other)?;
        // SAFETY: the child is stopped, waits for us, and has the registers that are asked for.
        match unsafe { libc::ptrace(request, self.pid, address, data) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Makes the thread execute a system call at its current instruction.
    pub(crate) fn call(&mut self, number: u64, arguments: [u64; 6]) -> io::Result<u64> {
        let before = self.registers;
        let mut code = [0; 2];
        self.memory()?.read_at(&mut code, before.rip)?;
        self.memory()?.write_at(&SYSCALL, before.rip)?;
        let mut during = calling(before, number, arguments);
        self.ask(SET_REGISTERS, 0, &raw const during as u64)?;
        self.ask(libc::PTRACE_SINGLESTEP, 0, 0)?;
        self.wait()?;
        self.ask(GET_REGISTERS, 0, &raw mut during as u64)?;
        self.memory()?.write_at(&code, before.rip)?;
        self.ask(SET_REGISTERS, 0, &raw const before as u64)?;
        match during.rax as i64 {
            error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
            result => Ok(result as u64),
        }
    }

    /// The process's memory. It can be written even where the program itself has no right to write.
    pub(crate) fn memory(&self) -> io::Result<Memory> {
        Memory::of(self.pid)
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory()?.write_at(bytes, at)
    }

    /// Detaches from the process, with these registers.
    pub(crate) fn go(&mut self) -> io::Result<()> {
        self.set()?;
        self.ask(libc::PTRACE_DETACH, 0, 0)
    }
}

/// The registers with which a program's `syscall` instruction makes this call. `orig_rax` is set to
/// an invalid call number. Otherwise, the kernel would restart the call with the old number after a
/// signal.
fn calling(before: Registers, number: u64, [rdi, rsi, rdx, r10, r8, r9]: [u64; 6]) -> Registers {
    let orig_rax = u64::MAX;
    Registers { rax: number, rdi, rsi, rdx, r10, r8, r9, orig_rax, ..before }
}

pub(crate) struct Memory(std::fs::File);

impl Memory {
    /// The memory of a process or of a thread's.
    pub(crate) fn of(pid: i32) -> io::Result<Memory> {
        let path = format!("/proc/{pid}/mem");
        Ok(Memory(std::fs::OpenOptions::new().read(true).write(true).open(path)?))
    }

    pub(crate) fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, to, at)
    }

    pub(crate) fn write_at(&self, from: &[u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.0, from, at)
    }
}
