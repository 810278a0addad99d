//! Puts the engine into a program that has just been executed.
//!
//! ```text
//!   child    fork, PTRACE_TRACEME, execve -> stops before its first instruction
//!   parent   mmap in it, by a system call at that instruction -> writes the engine's segments -> its rights
//!            -> registers: the engine's first instruction and stack -> lets it go
//! ```
//!
//! In the end the program's own memory is as the kernel has created it: one instruction is
//! overwritten for a short time and then restored.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use ring::Start;
use trace::Arch;

use crate::command::Program;
use crate::tracee::{Registers, Tracee};
use crate::{Error, Options};

/// The address of the engine, which is the beginning of its address range. Programs have their
/// memory below this range, and above it from 0x7f... on.
const BASE: u64 = ring::ENGINE_AT;
/// The size in bytes of the engine's initial stack.
const STACK_BYTES: u64 = 256 << 10;
const PAGE: u64 = 4096;
/// The error number that a child reports if it may not be traced. It stands in place of an error of
/// `execve`.
const UNTRACED: i32 = libc::ENOTRECOVERABLE;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const R_X86_64_RELATIVE: u64 = 8;

/// The engine as it will be in memory.
#[derive(Debug)]
pub(crate) struct Engine {
    image: Vec<u8>,
    entry: u64,
    /// For each segment of the engine: its first address, its end and its rights.
    segments: Vec<(u64, u64, u64)>,
}

impl Engine {
    /// Loads the engine from the file in `options`, for `program`.
    pub(crate) fn find(options: &Options, program: &Program) -> Result<Engine, Error> {
        if program.elf.arch != Arch::X86_64 {
            return Err(Error::NotNative {
                program: program.path.clone(),
                why: format!("is a program for {}", program.elf.qemu_name()),
            });
        }
        if let Some(why) = other_rights(&program.path) {
            return Err(Error::NotNative { program: program.path.clone(), why });
        }
        let cannot = [
            (options.callbacks, "--callbacks"),
            (options.qemu.is_some(), "--qemu"),
            (options.sysroot, "--sysroot"),
        ];
        if let Some((_, option)) = cannot.iter().find(|(is_set, _)| *is_set) {
            return Err(Error::NativeOption(option));
        }
        let path = options.engine_path.clone().unwrap_or_else(|| PathBuf::from("pagewalk-engine"));
        let bytes = std::fs::read(&path).map_err(|_| Error::NoEngine(path.clone()))?;
        Engine::load(&bytes).ok_or(Error::NoEngine(path))
    }

    /// Lays out a position-independent ELF file at [`BASE`]. `None` if `file` is not a
    /// position-independent ELF file.
    pub(crate) fn load(file: &[u8]) -> Option<Engine> {
        let word = |at: u64, bytes: usize| {
            let part = file.get(usize::try_from(at).ok()?..)?.get(..bytes)?;
            let mut whole = [0; 8];
            whole[..bytes].copy_from_slice(part);
            Some(u64::from_le_bytes(whole))
        };
        if file.get(..4)? != b"\x7fELF" {
            return None;
        }
        let (entry, headers) = (word(24, 8)?, word(32, 8)?);
        let (bytes, count) = (word(54, 2)?, word(56, 2)?);
        let (mut image, mut segments, mut dynamic) = (Vec::new(), Vec::new(), None);
        const IMAGE_BYTES_MAX: u64 = 64 << 20;
        for index in 0..count {
            let header = headers.checked_add(index * bytes)?;
            let kind = word(header, 4)? as u32;
            let flags = word(header + 4, 4)?;
            let (offset, at) = (word(header + 8, 8)?, word(header + 16, 8)?);
            let (in_file, in_memory) = (word(header + 32, 8)?, word(header + 40, 8)?);
            if kind == PT_DYNAMIC {
                dynamic = Some((offset, in_file));
            }
            if kind != PT_LOAD {
                continue;
            }
            let end =
                at.checked_add(in_memory.max(in_file)).filter(|&end| end <= IMAGE_BYTES_MAX)?;
            if image.len() < end as usize {
                image.resize(end as usize, 0);
            }
            let from = file.get(offset as usize..)?.get(..in_file as usize)?;
            image[at as usize..][..in_file as usize].copy_from_slice(from);
            // The bits are execute, write, read in ELF, and read, write, execute in `mprotect`.
            let rights = (flags >> 2 & 1) | flags & 2 | (flags & 1) << 2;
            segments.push((at & !(PAGE - 1), end.next_multiple_of(PAGE), rights));
        }
        let (mut relocations, mut size) = (0, 0);
        let (at, length) = dynamic?;
        for entry in (at..at.checked_add(length)?).step_by(16) {
            match word(entry, 8)? {
                DT_RELA => relocations = word(entry + 8, 8)?,
                DT_RELASZ => size = word(entry + 8, 8)?,
                _ => {}
            }
        }
        for relocation in (relocations..relocations.checked_add(size)?).step_by(24) {
            let of = |at: u64| {
                let part = image.get(at as usize..)?.first_chunk::<8>()?;
                Some(u64::from_le_bytes(*part))
            };
            let (to, kind, value) = (of(relocation)?, of(relocation + 8)?, of(relocation + 16)?);
            if kind != R_X86_64_RELATIVE {
                return None;
            }
            let to = image.get_mut(to as usize..)?.first_chunk_mut::<8>()?;
            *to = BASE.wrapping_add(value).to_le_bytes();
        }
        Some(Engine { image, entry, segments })
    }

    /// Starts the command with the engine in it, for the session at the path `session`.
    pub(crate) fn start(
        &self,
        command: &mut Command,
        program: &Path,
        session: &str,
        aslr: bool,
    ) -> Result<Child, Error> {
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(UNTRACED) => Error::Untraced(program.to_owned()),
            _ => Error::System { what: format!("cannot start {}", program.display()), error },
        };
        // SAFETY: between fork and exec only system calls are made.
        unsafe { command.pre_exec(move || ask_to_be_traced(aslr)) };
        let mut child = command.spawn().map_err(failed)?;
        match self.put(child.id() as i32, session) {
            Ok(()) => Ok(child),
            Err(error) => {
                // The child may have ended already.
                let _ = child.kill();
                let _ = child.wait();
                Err(Error::Injection { program: program.to_owned(), error })
            }
        }
    }

    fn put(&self, pid: i32, session: &str) -> io::Result<()> {
        self.put_into(&mut Tracee::stopped(pid)?, session)
    }

    /// Puts the engine into a running program, all of whose threads are stopped. The thread `tracee`
    /// makes the system calls for this with the instruction at `site`. The engine's memory has room
    /// for `extra` bytes that describe the threads of the program.
    pub(crate) fn put_at(
        &self,
        tracee: &mut Tracee,
        site: u64,
        session: &str,
        start: Start,
        extra: u64,
    ) -> io::Result<Put> {
        let call: Call = &|tracee, number, arguments| tracee.call_at(site, number, arguments);
        let (all, top) = self.map(tracee, extra, call)?;
        let start = Start { engine: [BASE, all], attach: top, ..start };
        let filled = self.fill(tracee, (session, start, top), call);
        let mut registers = filled.inspect_err(|_| {
            // The error that the caller gets says more.
            let _ = call(tracee, libc::SYS_munmap as u64, [BASE, all, 0, 0, 0, 0]);
        })?;
        // Compiled code expects the direction, trap and alignment-check flags to be clear.
        registers.eflags &= !(1 << 10 | 1 << 8 | 1 << 18);
        Ok(Put { registers, attach: top, engine: [BASE, all] })
    }

    /// Puts the engine into a program that has stopped before its first instruction, and continues
    /// the program.
    pub(crate) fn put_into(&self, tracee: &mut Tracee, session: &str) -> io::Result<()> {
        let first = tracee.registers;
        let call: Call = &|tracee, number, arguments| tracee.call(number, arguments);
        let (all, top) = self.map(tracee, 0, call)?;
        let start = Start {
            session: [0; 64],
            pc: first.rip,
            rsp: first.rsp,
            flags: first.eflags,
            engine: [BASE, all],
            attach: 0,
        };
        tracee.registers = self.fill(tracee, (session, start, top), call)?;
        tracee.go()
    }

    /// Maps memory for the engine, for its initial stack, and for `extra` bytes. Returns the size in
    /// bytes, and the end of the stack.
    fn map(&self, tracee: &mut Tracee, extra: u64, call: Call) -> io::Result<(u64, u64)> {
        let top = (self.image.len() as u64).next_multiple_of(PAGE) + STACK_BYTES;
        let all = top + extra.next_multiple_of(PAGE);
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let number = libc::SYS_mmap as u64;
        let at = call(tracee, number, [BASE, all, rights, flags as u64, u64::MAX, 0])?;
        if at != BASE {
            call(tracee, libc::SYS_munmap as u64, [at, all, 0, 0, 0, 0])?;
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        Ok((all, BASE + top))
    }

    /// Writes the engine into its memory, and `start` below `top`. Returns the registers of a thread
    /// that begins to execute the engine.
    fn fill(
        &self,
        tracee: &mut Tracee,
        (session, mut start, top): (&str, Start, u64),
        call: Call,
    ) -> io::Result<Registers> {
        let name = start.session.get_mut(..session.len());
        let name = name.ok_or_else(|| io::Error::from_raw_os_error(libc::ENAMETOOLONG))?;
        name.copy_from_slice(session.as_bytes());
        let bytes = size_of::<Start>();
        let start_at = (top - bytes as u64) & !63;
        // SAFETY: the structure consists of numbers and bytes, without padding between them.
        let told = unsafe { std::slice::from_raw_parts((&raw const start).cast::<u8>(), bytes) };
        tracee.write(BASE, &self.image)?;
        tracee.write(start_at, told)?;
        for &(from, end, rights) in &self.segments {
            let number = libc::SYS_mprotect as u64;
            call(tracee, number, [BASE + from, end - from, rights, 0, 0, 0])?;
        }
        let mut registers = tracee.registers;
        registers.rip = BASE + self.entry;
        registers.rdi = start_at;
        // The stack pointer is aligned as after a call instruction.
        registers.rsp = start_at - 8;
        registers.orig_rax = u64::MAX;
        Ok(registers)
    }
}

/// Makes a system call in a stopped program: its number and its arguments.
type Call<'a> = &'a dyn Fn(&mut Tracee, u64, [u64; 6]) -> io::Result<u64>;

/// Where the engine was put into a running program.
pub(crate) struct Put {
    /// The registers of a thread that begins to execute the engine.
    pub(crate) registers: Registers,
    /// The address of the room for an [`ring::Attach`] and its threads.
    pub(crate) attach: u64,
    /// The address and the size of the engine's code, its initial stack, and that room.
    pub(crate) engine: [u64; 2],
}

/// Allows the parent to trace this process, and disables address randomisation unless `aslr`.
fn ask_to_be_traced(aslr: bool) -> io::Result<()> {
    const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x0040000;
    // SAFETY: plain system calls. If `personality` fails, the kernel chooses the layout.
    unsafe {
        if !aslr {
            let now = libc::personality(0xffff_ffff);
            if now >= 0 {
                libc::personality(now as libc::c_ulong | ADDR_NO_RANDOMIZE);
            }
        }
        if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
            return Err(io::Error::from_raw_os_error(UNTRACED));
        }
    }
    Ok(())
}

/// Whether this process may trace its children. Tested with a child that ends at once.
pub fn may_trace() -> bool {
    // SAFETY: the child makes two system calls; a filter may kill it at the first one.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let refused = libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0;
            libc::_exit(refused.into());
        }
        let mut status = 0;
        while child > 0 && libc::waitpid(child, &mut status, libc::__WALL) < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
        // If no child can be created, the program cannot start either, and that error says more.
        child < 0 || status == 0
    }
}

/// If the program gets privileges that a traced program cannot have: a description of them.
pub(crate) fn other_rights(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    if mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
        return Some("runs with another user's rights (setuid)".to_owned());
    }
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    let attribute = c"security.capability".as_ptr();
    // SAFETY: the names end with a zero byte, and no buffer is passed.
    let bytes = unsafe { libc::getxattr(name.as_ptr(), attribute, std::ptr::null_mut(), 0) };
    (bytes > 0).then(|| "runs with rights of its own (file capabilities)".to_owned())
}
