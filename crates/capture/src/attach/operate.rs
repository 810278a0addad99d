//! The process that puts the engine into the threads of a running program, and puts them back.
//!
//! ```text
//!   pagewalk --- pipe: "leave", or its end ---> operator --- ptrace ---> all threads
//!            <-- "in", "out", or an error -----
//! ```
//!
//! It is a process of its own, in a session of its own, because a program must be left whole if `pagewalk` is killed: the
//! pipe then ends, and the operator puts all threads back. A thread is changed only while it is stopped. If the operator
//! is killed too, another one finds all that it needs in the program ([`AttachTold`]), and puts the threads back.
//!
//! A system call that a stop has interrupted is left as the kernel has left it: its number, and an internal result that
//! says whether a signal ends it. When the thread goes on, the kernel decides.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use ring::{
    Attach, AttachThread, AttachTold, ENGINE_AT, OWN_RANGES_MAX, Outside, PARKS, Start, VERSION,
    own_holds,
};

use crate::inject::Engine;
use crate::maps::Line;
use crate::tracee::{Registers, SYSCALL, Tracee};

/// The code segment of 64-bit programs.
const CODE_64: u64 = 0x33;
const SEIZE_OPTIONS: u64 = libc::PTRACE_O_TRACESYSGOOD as u64;
const GET_RSEQ: u32 = 0x420f;
const GET_MASK: u32 = 0x420a;
const SET_MASK: u32 = 0x420b;
const PEEK_SIGNALS: u32 = 0x4209;
/// Linux's internal results of interrupted calls: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND. The last one means that the
/// call is made again unless a handler is called.
const RESTARTS: [i64; 3] = [-512, -513, RESTART_NO_HANDLER];
const RESTART_NO_HANDLER: i64 = -514;
/// ERESTART_RESTARTBLOCK: the kernel goes on with the call by `restart_syscall`, unless a handler is called.
const RESTART_BLOCK: i64 = -516;
/// How long threads may take to come to the end of a block.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the threads of a program may take to stop before the engine is put in.
const STOPS: Duration = Duration::from_secs(3);
/// How long a thread may take to stop at one attempt to take it out.
const STOPS_NOW: Duration = Duration::from_millis(20);
/// The longest pause between two attempts to stop a thread: on a busy machine it needs time to come further.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// The signals that a fault of a thread raises.
const FAULTS: [i32; 5] = [libc::SIGILL, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV];
/// The bit of SIGTRAP in a set of signals, and the code of one that a process has queued.
const TRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);
const SI_QUEUE: i32 = -1;
/// The most bytes of the engine's code and initial stack, and of what describes the threads.
const ENGINE_BYTES_MAX: u64 = 64 << 20;
/// The mask of a thread that has all signals blocked that can be blocked.
const ALL_BLOCKED: u64 = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

type Threads = BTreeMap<i32, Tracee>;

/// Puts the threads of the process `pid` into the engine, and back when `pagewalk` orders it. The session is at the path
/// `session`.
pub(super) fn operate(pid: i32, session: &str, engine: &Engine) -> io::Result<()> {
    // It must be there after `pagewalk` has ended.
    let session = File::options().read(true).write(true).open(session)?;
    let entered = Holder::of(pid, &session).and_then(|holder| enter(pid, &holder.path(), engine));
    let at = match entered {
        Ok(at) => at,
        Err(why) => return answer(&format!("error {why}")),
    };
    // Without a reader, the pipe for orders has ended too.
    let _ = answer("in");
    wait_for_order(pid);
    let _ = answer(&said(leave(pid, at)));
    Ok(())
}

/// Puts the threads of the process `pid` back, if another operator was killed before it has done so, and unmaps what it has
/// left.
pub(super) fn repair(pid: i32) -> io::Result<()> {
    let Some((at, _)) = find(pid) else { return answer("out") };
    let since = Instant::now();
    let ready = at + std::mem::offset_of!(Attach, is_ready) as u64;
    // If its first thread has begun in the engine, it gets ready.
    while read::<u32>(pid, ready).unwrap_or(1) == 0 && since.elapsed() < STOPS {
        std::thread::sleep(Duration::from_millis(1));
    }
    let goes = at + std::mem::offset_of!(Attach, goes) as u64;
    let _ = memory(pid).and_then(|memory| memory.write_at(&1u32.to_le_bytes(), goes));
    answer(&said(leave(pid, at)))
}

fn said(done: Result<(), String>) -> String {
    match done {
        Ok(()) => "out".to_owned(),
        Err(why) => format!("error {why}"),
    }
}

fn answer(text: &str) -> io::Result<()> {
    let mut answers = io::stdout();
    writeln!(answers, "{text}")?;
    answers.flush()
}

/// What an operator has left in a program.
pub(super) enum Left {
    /// The engine, whose operator lives.
    Operated,
    /// The engine of another version of Pagewalk.
    Foreign,
    /// The engine, or memory of it, which nobody operates: [`repair`] takes it out.
    Behind,
}

/// What an operator has left in the process `pid`, if it has left anything.
pub(super) fn left_in(pid: i32) -> Option<Left> {
    let (_, told) = find(pid)?;
    let is_operated = told.pid == pid as u64 && began(told.operator) == Some(told.operator_began);
    Some(match (told.version == u64::from(VERSION), is_operated) {
        (_, true) => Left::Operated,
        (false, false) => Left::Foreign,
        (true, false) => Left::Behind,
    })
}

/// The time at which a process began, as `/proc/PID/stat` has it. `None` if it has ended.
fn began(pid: u64) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which may have any characters, is the second field, in parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The address of the operator's data in a program, and these data.
fn find(pid: i32) -> Option<(u64, AttachTold)> {
    let mut end = ENGINE_AT;
    for (start, to) in ranges(pid, |line| line.start >= ENGINE_AT) {
        end = if start == end { to } else { end };
    }
    let told = |at: u64| read::<AttachTold>(pid, at).ok().map(|told| (at, told));
    let pages = (ENGINE_AT..end.min(ENGINE_AT + ENGINE_BYTES_MAX)).step_by(4096);
    pages.filter_map(told).find(|(_, told)| told.magic == AttachTold::MAGIC)
}

/// A process of the program's user that has the session open while the program opens it: a program cannot open files of
/// another user's process.
struct Holder {
    pid: libc::pid_t,
    is_other: bool,
    fd: i32,
}

impl Holder {
    fn of(pid: i32, session: &File) -> Result<Holder, String> {
        let failed = |error: io::Error| format!("its user cannot be given the recording: {error}");
        let last = |name| status_word(pid, name, 3).and_then(|word| word.parse().ok());
        let (user, group) = (last("Uid:").unwrap_or(0), last("Gid:").unwrap_or(0));
        let fd = session.as_raw_fd();
        // SAFETY: it cannot fail.
        if user == unsafe { libc::geteuid() } {
            return Ok(Holder { pid: std::process::id() as i32, is_other: false, fd });
        }
        let mut ends = [0; 2];
        // SAFETY: plain system calls; this process has one thread, and the child makes system calls alone.
        unsafe {
            if libc::fchown(fd, user, group) != 0 || libc::pipe(ends.as_mut_ptr()) != 0 {
                return Err(failed(io::Error::last_os_error()));
            }
            let child = libc::fork();
            if child < 0 {
                return Err(failed(io::Error::last_os_error()));
            }
            if child == 0 {
                let is_done = libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setresgid(group, group, group) == 0
                    && libc::setresuid(user, user, user) == 0
                    && libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
                    && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) == 0;
                let word = u8::from(is_done);
                libc::write(ends[1], (&raw const word).cast(), 1);
                loop {
                    libc::pause();
                }
            }
            let mut word = 0u8;
            let is_told = libc::read(ends[0], (&raw mut word).cast(), 1) == 1 && word == 1;
            libc::close(ends[0]);
            libc::close(ends[1]);
            let holder = Holder { pid: child, is_other: true, fd };
            if is_told {
                Ok(holder)
            } else {
                Err(failed(io::Error::from_raw_os_error(libc::EPERM)))
            }
        }
    }

    /// The path by which the program opens the session.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", self.pid, self.fd)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if self.is_other {
            // SAFETY: it is a child of this process.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Waits until `pagewalk` orders to leave or is gone, or the process ends.
fn wait_for_order(pid: i32) {
    let mut orders = io::stdin();
    let mut poll = libc::pollfd { fd: orders.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one entry.
        let found = unsafe { libc::poll(&mut poll, 1, 100) };
        if found > 0 {
            let mut byte = [0];
            let _ = orders.read(&mut byte);
            return;
        }
        if !is_there(pid) {
            return;
        }
    }
}

/// The threads of the process, without those that have ended.
fn threads_of(pid: i32) -> Vec<i32> {
    let Ok(found) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let tids = found.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.filter(|&tid| tid != pid || lives(pid)).collect()
}

/// Whether a thread has not ended. The first thread of a process stays visible when it has.
fn lives(tid: i32) -> bool {
    began(tid as u64).is_some()
}

/// Whether the process has a thread.
fn is_there(pid: i32) -> bool {
    lives(pid) || !threads_of(pid).is_empty()
}

/// A thread by which the process can be looked at: if its first thread has ended, another one.
fn visible(pid: i32) -> i32 {
    if lives(pid) { pid } else { threads_of(pid).first().copied().unwrap_or(pid) }
}

/// A word of a line of `/proc/PID/status`.
fn status_word(tid: i32, name: &str, at: usize) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(at).map(str::to_owned)
}

fn ask(request: u32, tid: i32, address: u64, data: u64) -> io::Result<()> {
    // SAFETY: the caller gives what the request needs.
    match unsafe { libc::ptrace(request, tid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// What became of a thread that is to stop.
enum Stop {
    /// It has stopped for this process.
    Here(Tracee),
    /// It is stopped by a signal, as a job.
    AsJob(Tracee),
    /// It has ended.
    Ended,
    /// It has not stopped yet.
    Late,
}

/// Stops a thread that this process traces. Signals that come meanwhile are passed on.
fn stop(tid: i32, patience: Duration) -> Stop {
    let since = Instant::now();
    let mut is_asked = false;
    loop {
        let mut status = 0;
        // SAFETY: the status is ours.
        match unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) } {
            // A thread that is asked while it is stopped would stop once more, before it has done anything.
            0 if !is_asked => {
                is_asked = true;
                if ask(libc::PTRACE_INTERRUPT, tid, 0, 0).is_err() {
                    return Stop::Ended;
                }
            }
            0 if since.elapsed() > patience => return Stop::Late,
            0 => std::thread::sleep(Duration::from_micros(20)),
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            found if found != tid || !libc::WIFSTOPPED(status) => return Stop::Ended,
            _ => {
                let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
                if event == libc::PTRACE_EVENT_STOP {
                    return match Tracee::of(tid) {
                        Ok(tracee) if signal == libc::SIGTRAP => Stop::Here(tracee),
                        Ok(tracee) => Stop::AsJob(tracee),
                        Err(_) => Stop::Ended,
                    };
                }
                let signal = if event == 0 { signal as u64 } else { 0 };
                if ask(libc::PTRACE_CONT, tid, 0, signal).is_err() {
                    return Stop::Ended;
                }
            }
        }
    }
}

/// Stops a thread that this process traces, at a place where no fault of its own waits to be handled. All threads have been
/// asked to stop `since` then.
fn stop_between(tid: i32, since: Instant) -> Stop {
    let mut pause = Duration::from_micros(200);
    loop {
        let tracee = match stop(tid, STOPS_NOW) {
            Stop::Here(tracee) => tracee,
            // It may wait for a processor.
            Stop::Late if since.elapsed() < if is_asleep(tid) { STOPS } else { PATIENCE } => {
                continue;
            }
            other @ (Stop::AsJob(_) | Stop::Ended | Stop::Late) => return other,
        };
        let is_fault = |info: &Queued| FAULTS.contains(&info.signal()) && info.code() > 0;
        if !queued(tid).iter().any(is_fault) {
            return Stop::Here(tracee);
        }
        if tracee.ask(libc::PTRACE_CONT, 0, 0).is_err() {
            return Stop::Ended;
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Whether a thread sleeps and cannot be woken.
fn is_asleep(tid: i32) -> bool {
    status_word(tid, "State:", 0).is_some_and(|state| state == "D")
}

/// A signal that waits, as a `siginfo_t`.
#[derive(Clone, Copy)]
struct Queued([u64; 16]);

impl Queued {
    fn signal(&self) -> i32 {
        self.0[0] as i32
    }

    fn code(&self) -> i32 {
        self.0[1] as i32
    }

    fn value(&self) -> u64 {
        self.0[3]
    }
}

/// The signals that wait for a stopped thread, and not for its process.
fn queued(tid: i32) -> Vec<Queued> {
    /// `struct ptrace_peeksiginfo_args`: the first index, flags and count.
    #[repr(C)]
    struct Peek(u64, u32, i32);
    const COUNT: usize = 64;
    let peek = Peek(0, 0, COUNT as i32);
    let mut found = vec![Queued([0; 16]); COUNT];
    // SAFETY: room for as many signals.
    let count = unsafe { libc::ptrace(PEEK_SIGNALS, tid, &raw const peek, found.as_mut_ptr()) };
    found.truncate(count.max(0) as usize);
    found
}

/// The internal result of the system call that was interrupted when the thread was stopped, if it was in one.
fn interrupted(registers: &Registers) -> Option<i64> {
    let result = registers.rax as i64;
    let is_it = RESTARTS.contains(&result) || result == RESTART_BLOCK;
    ((registers.orig_rax as i64) >= 0 && is_it).then_some(result)
}

/// These registers, where a call that the stop alone has ended with EINTR is made again unless a handler is called. Calls
/// that have done a part of their work by then are not made again.
fn made_again(mut registers: Registers) -> Registers {
    let number = registers.orig_rax as i64;
    let is_done = number == libc::SYS_connect || number == libc::SYS_close;
    if number >= 0 && registers.rax as i64 == -i64::from(libc::EINTR) && !is_done {
        registers.rax = RESTART_NO_HANDLER as u64;
    }
    registers
}

/// Lets threads go on by themselves, with the registers that they have here.
fn let_go(threads: &mut Threads) {
    for tracee in threads.values_mut() {
        // If that is refused, the thread is gone.
        let _ = tracee.go();
    }
    threads.clear();
}

/// Stops all threads of the process.
fn stop_all(pid: i32) -> Result<Threads, String> {
    let mut threads = Threads::new();
    let since = Instant::now();
    loop {
        let fresh: Vec<i32> =
            threads_of(pid).into_iter().filter(|tid| !threads.contains_key(tid)).collect();
        let mut is_new = false;
        for tid in fresh {
            let why = match ask(libc::PTRACE_SEIZE, tid, 0, SEIZE_OPTIONS) {
                Ok(()) => match stop_between(tid, since) {
                    Stop::Here(mut tracee) => {
                        tracee.registers = made_again(tracee.registers);
                        threads.insert(tid, tracee);
                        is_new = true;
                        continue;
                    }
                    Stop::Ended => continue,
                    Stop::AsJob(_) => {
                        let _ = ask(libc::PTRACE_DETACH, tid, 0, 0);
                        "it is stopped by a signal: continue it first (kill -CONT)".to_owned()
                    }
                    // The kernel lets go of it when this process ends.
                    Stop::Late => format!(
                        "thread {tid} does not stop, as it waits for a child that it has started by vfork, or for a \
                         device: try again"
                    ),
                },
                // It has ended, or is about to.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) || !lives(tid) => continue,
                Err(error) => {
                    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
                    why_not_traced(pid, &error, yama.unwrap_or_default().trim())
                }
            };
            let_go(&mut threads);
            return Err(why);
        }
        if !is_new {
            break;
        }
    }
    if threads.is_empty() { Err("it has ended".to_owned()) } else { Ok(threads) }
}

/// Why a process cannot be traced, and what to do. `yama` is the text of `kernel.yama.ptrace_scope`, if the kernel has it.
fn why_not_traced(pid: i32, error: &io::Error, yama: &str) -> String {
    let is_refused = error.raw_os_error() == Some(libc::EPERM);
    let of_yama =
        format!("the kernel does not let it be traced (kernel.yama.ptrace_scope is {yama})");
    match yama {
        "1" | "2" if is_refused => format!(
            "{of_yama}: run pagewalk as root, or write 0 to /proc/sys/kernel/yama/ptrace_scope"
        ),
        "3" if is_refused => format!(
            "{of_yama}, and nobody can change that before the computer is started again: start the \
             program anew by `pagewalk record`"
        ),
        _ if is_refused => {
            "the kernel does not let it be traced: run pagewalk as its user or as root, in a \
                            container with --cap-add SYS_PTRACE"
                .to_owned()
        }
        _ => format!("process {pid} cannot be traced: {error}"),
    }
}

/// The address ranges of a process, in order, of those lines of its `maps` that are wanted.
fn ranges(pid: i32, is_wanted: impl Fn(&Line<'_>) -> bool) -> Vec<(u64, u64)> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", visible(pid))).unwrap_or_default();
    let lines = maps.lines().filter_map(Line::parse);
    lines.filter(|line| is_wanted(line)).map(|line| (line.start, line.end)).collect()
}

/// The address of a system call instruction in the vdso.
fn site(pid: i32) -> Option<u64> {
    let (start, end) = ranges(pid, |line| line.path == "[vdso]").pop()?;
    let mut code = vec![0; (end - start) as usize];
    memory(pid).ok()?.read_at(&mut code, start).ok()?;
    let at = code.windows(2).position(|bytes| bytes == SYSCALL)?;
    Some(start + at as u64)
}

fn memory(pid: i32) -> io::Result<crate::tracee::Memory> {
    crate::tracee::Memory::of(visible(pid))
}

fn read<T: Copy>(pid: i32, at: u64) -> io::Result<T> {
    let mut bytes = vec![0; size_of::<T>()];
    memory(pid)?.read_at(&mut bytes, at)?;
    // SAFETY: it is made of numbers, and as many bytes were read.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: it is made of numbers, without padding.
    unsafe { std::slice::from_raw_parts((value as *const T).cast(), size_of::<T>()) }
}

/// The registers by the processor's numbers.
fn numbered(r: &Registers) -> [u64; 16] {
    [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ]
}

fn set_numbered(r: &mut Registers, values: [u64; 16]) {
    [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ] = values;
}

fn mask_of(tracee: &Tracee) -> io::Result<u64> {
    let mut mask = 0u64;
    tracee.ask(GET_MASK, 8, &raw mut mask as u64)?;
    Ok(mask)
}

fn set_mask(tracee: &Tracee, mask: u64) -> io::Result<()> {
    tracee.ask(SET_MASK, 8, &raw const mask as u64)
}

/// The thread's registration for restartable sequences; zeros without one. If the thread is in such a sequence, its registers
/// are set to where the kernel would end it.
fn rseq_of(pid: i32, tracee: &mut Tracee) -> [u64; 3] {
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Configuration {
        address: u64,
        bytes: u32,
        signature: u32,
        flags: u32,
        pad: u32,
    }
    let mut found = Configuration::default();
    let to = &raw mut found as u64;
    if tracee.ask(GET_RSEQ, size_of::<Configuration>() as u64, to).is_err() || found.address == 0 {
        return [0; 3];
    }
    // `struct rseq` has the address of the sequence at 8, which has its start, length and end at 8, 16 and 24.
    let sequence: u64 = read(pid, found.address + 8).unwrap_or(0);
    if sequence != 0
        && let Ok([start, length, end]) = read::<[u64; 3]>(pid, sequence + 8)
        && tracee.registers.rip.wrapping_sub(start) < length
    {
        tracee.registers.rip = end;
    }
    [found.address, found.bytes.into(), found.signature.into()]
}

/// Puts all threads into the engine. Returns the address of the data that are needed to put them back.
fn enter(pid: i32, session: &str, engine: &Engine) -> Result<u64, String> {
    let mut threads = stop_all(pid)?;
    let done = enter_stopped(pid, session, engine, &mut threads);
    if done.is_err() {
        let_go(&mut threads);
    }
    done
}

/// What the engine needs to go on with a thread that is stopped.
fn described(pid: i32, tid: i32, tracee: &mut Tracee) -> io::Result<AttachThread> {
    let (rseq, mask) = (rseq_of(pid, tracee), mask_of(tracee)?);
    let mut r = tracee.registers;
    let interrupted = interrupted(&r);
    let mut restarts = 0;
    if let Some(result) = interrupted {
        r.rip -= SYSCALL.len() as u64;
        r.rax = r.orig_rax;
        if result == RESTART_BLOCK {
            (restarts, r.rax) = (r.orig_rax, libc::SYS_restart_syscall as u64);
        }
    }
    Ok(AttachThread {
        tid: tid as u64,
        registers: numbered(&r),
        pc: r.rip,
        flags: r.eflags,
        fs: r.fs_base,
        gs: r.gs_base,
        mask,
        rseq,
        restarts,
        interrupted: interrupted.unwrap_or(0),
        engine: 0,
        stack: 0,
    })
}

fn enter_stopped(
    pid: i32,
    session: &str,
    engine: &Engine,
    threads: &mut Threads,
) -> Result<u64, String> {
    let failed = |error: io::Error| {
        let has_ended =
            error.raw_os_error() == Some(libc::ESRCH) || !crate::supervise::exists(pid as u32);
        if has_ended {
            return "it has ended".to_owned();
        }
        format!("the engine cannot be put into it: {error}")
    };
    if threads.values().any(|tracee| tracee.registers.cs != CODE_64) {
        return Err("it is a 32-bit program, which pagewalk does not attach to".to_owned());
    }
    let is_in_the_way =
        |line: &Line<'_>| line.start < ENGINE_AT + ENGINE_BYTES_MAX && ENGINE_AT < line.end;
    if let Some((address, _)) = ranges(pid, is_in_the_way).first() {
        return Err(format!(
            "it has memory at {address:#x}, where pagewalk needs addresses of its own: start it \
             again, which gives it other addresses, then attach"
        ));
    }
    let site = site(pid).ok_or("it has no vdso, which pagewalk needs to attach")?;
    let (rooms, first) = (threads.len() as u64, *threads.keys().next().ok_or("it has ended")?);
    let first = if threads.contains_key(&pid) { pid } else { first };
    let extra = size_of::<Attach>() as u64 + rooms * size_of::<AttachThread>() as u64;
    let infos = threads.iter_mut().map(|(&tid, tracee)| described(pid, tid, tracee));
    let mut infos = infos.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    infos.sort_by_key(|info| info.tid != first as u64);
    let start = Start {
        session: [0; 64],
        pc: infos[0].pc,
        rsp: infos[0].registers[4],
        flags: infos[0].flags,
        engine: [0; 2],
        attach: 0,
    };
    let tracee = threads.get_mut(&first).ok_or("it has ended")?;
    let begun = engine.put_at(tracee, site, session, start, extra).map_err(failed)?;
    let at = begun.attach;
    let operator = u64::from(std::process::id());
    let head = Attach {
        told: AttachTold {
            magic: AttachTold::MAGIC,
            version: VERSION.into(),
            pid: pid as u64,
            operator,
            operator_began: began(operator).unwrap_or(0),
            threads: rooms,
            engine: begun.engine,
            ..AttachTold::default()
        },
        is_ready: 0.into(),
        goes: 0.into(),
    };
    let list = at + size_of::<Attach>() as u64;
    let mut put = memory(pid).and_then(|memory| {
        memory.write_at(bytes_of(&head), at)?;
        for (index, info) in infos.iter().enumerate() {
            memory.write_at(bytes_of(info), list + (index * size_of::<AttachThread>()) as u64)?;
        }
        Ok(())
    });
    put = put.and_then(|()| threads.values().try_for_each(|tracee| set_mask(tracee, u64::MAX)));
    if let Err(error) = put {
        restore_masks(threads, &infos);
        if let Some(tracee) = threads.get_mut(&first) {
            unmap(pid, site, &head.told, tracee);
        }
        return Err(failed(error));
    }
    // The first thread prepares everything while the others are stopped.
    let Some(tracee) = threads.get(&first) else { return Err("it has ended".to_owned()) };
    let before = tracee.registers;
    let entering = Registers { orig_rax: u64::MAX, ..begun.registers };
    let ran = Tracee { registers: entering, ..Tracee::at(first, before) };
    ran.set().and_then(|()| ran.ask(libc::PTRACE_CONT, 0, 0)).map_err(failed)?;
    let since = Instant::now();
    let ready = at + std::mem::offset_of!(Attach, is_ready) as u64;
    loop {
        let is_ready = read::<u32>(pid, ready).unwrap_or(0);
        if is_ready == AttachTold::READY {
            break;
        }
        if is_ready != 0 || since.elapsed() > PATIENCE || !is_there(pid) {
            let why =
                read::<AttachTold>(pid, at).ok().and_then(|told| why_not_begun(pid, told.why));
            undo_begun(pid, site, at, threads, first, &infos);
            return Err(why.unwrap_or_else(|| "the engine did not begin in it".to_owned()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let told = read::<AttachTold>(pid, at).map_err(failed)?;
    for (index, info) in infos.iter().enumerate().skip(1) {
        let at = list + (index * size_of::<AttachThread>()) as u64;
        let given: AttachThread = read(pid, at).map_err(failed)?;
        let Some(tracee) = threads.get_mut(&(info.tid as i32)) else { continue };
        tracee.registers.rip = told.entry;
        tracee.registers.rdi = given.engine;
        tracee.registers.rsp = given.stack;
        tracee.registers.eflags &= !(1 << 10 | 1 << 8 | 1 << 18);
        tracee.registers.orig_rax = u64::MAX;
    }
    threads.remove(&first);
    let_go(threads);
    // Until it may go on, the first thread waits in the engine, where nothing keeps it from stopping.
    if let Stop::Here(tracee) | Stop::AsJob(tracee) = stop(first, PATIENCE) {
        let _ = tracee.ask(libc::PTRACE_DETACH, 0, 0);
    }
    let goes = at + std::mem::offset_of!(Attach, goes) as u64;
    memory(pid).and_then(|memory| memory.write_at(&1u32.to_le_bytes(), goes)).map_err(failed)?;
    Ok(at)
}

/// The text in the engine by which it says why it cannot begin.
fn why_not_begun(pid: i32, [at, bytes]: [u64; 2]) -> Option<String> {
    const BYTES_MAX: u64 = 256;
    let mut text = vec![0; bytes.min(BYTES_MAX) as usize];
    memory(pid).ok()?.read_at(&mut text, at).ok()?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
}

/// After the first thread has begun in the engine and did not get ready: takes it out, as it was.
fn undo_begun(
    pid: i32,
    site: u64,
    at: u64,
    threads: &mut Threads,
    first: i32,
    infos: &[AttachThread],
) {
    let (Stop::Here(mut now) | Stop::AsJob(mut now)) = stop(first, PATIENCE) else { return };
    let Some(before) = threads.get_mut(&first) else { return };
    now.registers.orig_rax = u64::MAX;
    let told = read::<AttachTold>(pid, at).unwrap_or_default();
    let mut out = Taken { pid, site, stops: false };
    if told.actions != 0 {
        let base = now.registers.gs_base;
        let outside = read::<Outside>(pid, base + Outside::AT as u64).unwrap_or_default();
        out.give_back(&mut now, outside);
        out.give_back_actions(told.actions, &mut now);
    }
    // It is left at its own instruction if this process is killed.
    now.registers = before.registers;
    unmap(pid, site, &told, &mut now);
    restore_masks(threads, infos);
}

fn restore_masks(threads: &Threads, infos: &[AttachThread]) {
    for info in infos {
        if let Some(tracee) = threads.get(&(info.tid as i32)) {
            let _ = set_mask(tracee, info.mask);
        }
    }
}

/// What a stopped thread does.
enum Place {
    /// It may be put back, with these registers and this mask.
    Known(Box<Registers>, Outside),
    /// It is on its way.
    Inside,
    /// It is not in the engine.
    Native,
}

/// System calls during which a thread of the engine holds what other threads wait for. They are not long.
const HOLDING: [i64; 5] =
    [libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork, libc::SYS_execve, libc::SYS_execveat];

/// The address ranges of the engine's memory in the process.
fn own(pid: i32, told: &AttachTold) -> [[u64; 2]; OWN_RANGES_MAX] {
    let [at, bytes] = told.engine;
    let mut ranges = read(pid, told.own).unwrap_or([[0; 2]; OWN_RANGES_MAX]);
    // Until the engine has noted this itself.
    ring::own_add(&mut ranges, [at, at + bytes]);
    ranges
}

fn place(pid: i32, told: &AttachTold, tracee: &Tracee) -> Place {
    let now = made_again(tracee.registers);
    let (base, own) = (now.gs_base, own(pid, told));
    if !own_holds(&own, base) {
        return match own_holds(&own, now.rip) {
            true => Place::Inside,
            false => Place::Native,
        };
    }
    let (Ok(outside), Ok(values), Ok([gs, tid])) = (
        read::<Outside>(pid, base + Outside::AT as u64),
        read::<[u64; 17]>(pid, base),
        read::<u64>(pid, base + Outside::GS_AT as u64)
            .and_then(|gs| Ok([gs, read::<u64>(pid, base + Outside::TID_AT as u64)?])),
    ) else {
        return Place::Inside;
    };
    // A thread that has just begun has the base of the thread that has started it.
    if tid != tracee.pid as u64 {
        return Place::Inside;
    }
    let mut registers = now;
    let mut general = [0; 16];
    general.copy_from_slice(&values[..16]);
    set_numbered(&mut registers, general);
    registers.eflags = values[16];
    registers.gs_base = gs;
    registers.rip = outside.pc;
    registers.orig_rax = u64::MAX;
    if outside.is_parked & 1 == 1 {
        return Place::Known(Box::new(registers), outside);
    }
    let is_told = (told.site..told.site_end).contains(&now.rip);
    if is_told {
        // An operator was killed while this thread executed a call for it: it was in a call of the program.
        registers.rip -= SYSCALL.len() as u64;
        return Place::Known(Box::new(registers), outside);
    }
    let is_call = now.rip == told.called && !HOLDING.contains(&(now.orig_rax as i64));
    if is_call && interrupted(&now).is_some() {
        (registers.rax, registers.orig_rax) = (now.rax, now.orig_rax);
        return Place::Known(Box::new(registers), outside);
    }
    Place::Inside
}

/// Puts all threads back into the program, and unmaps what was mapped. The data about them are at `at`.
fn leave(pid: i32, at: u64) -> Result<(), String> {
    // They are gone if the process has executed another program.
    let told = read::<AttachTold>(pid, at).ok().filter(|told| told.magic == AttachTold::MAGIC);
    let Some(told) = told.filter(|_| is_there(pid)) else { return Ok(()) };
    let site = site(pid).ok_or("it has no vdso")?;
    let order = |word: u32| {
        // A child has no session any more.
        let _ = memory(pid).and_then(|memory| memory.write_at(&word.to_le_bytes(), told.leaves));
    };
    order(1);
    let mut threads: BTreeMap<i32, (Tracee, Registers, Outside)> = BTreeMap::new();
    let mut native = Threads::new();
    let (since, mut pause) = (Instant::now(), Duration::from_millis(1));
    loop {
        let known = |tid: &i32| threads.contains_key(tid) || native.contains_key(tid);
        let fresh: Vec<i32> = threads_of(pid).into_iter().filter(|tid| !known(tid)).collect();
        if fresh.is_empty() {
            break;
        }
        for tid in fresh {
            match ask(libc::PTRACE_SEIZE, tid, 0, SEIZE_OPTIONS) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && is_ours(tid) => {}
                Err(_) => continue,
            }
            let (Stop::Here(mut tracee) | Stop::AsJob(mut tracee)) = stop(tid, STOPS_NOW) else {
                continue;
            };
            match place(pid, &told, &tracee) {
                Place::Known(registers, outside) => {
                    threads.insert(tid, (tracee, *registers, outside));
                }
                Place::Native => {
                    tracee.registers = made_again(tracee.registers);
                    native.insert(tid, tracee);
                }
                Place::Inside => {
                    tracee.registers = made_again(tracee.registers);
                    let _ = tracee.set();
                    let _ = tracee.ask(libc::PTRACE_CONT, 0, 0);
                }
            }
        }
        if !is_there(pid) {
            return Ok(());
        }
        if since.elapsed() > PATIENCE {
            // They run on in the engine, which records nothing any more.
            order(0);
            for (tracee, ..) in threads.values_mut() {
                let place = Outside::AT + std::mem::offset_of!(Outside, is_parked);
                let at = tracee.registers.gs_base + place as u64;
                let _ = memory(pid).and_then(|memory| memory.write_at(&0u32.to_le_bytes(), at));
                tracee.registers = made_again(tracee.registers);
                let _ = tracee.go();
            }
            let_go(&mut native);
            return Err(format!(
                "a thread does not come to the end of its system call; the program runs on in the engine, \
                 unrecorded: `pagewalk attach {pid}` takes the engine out later"
            ));
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
    let mut out = Taken { pid, site: told.site, stops: false };
    for (tracee, _, outside) in threads.values_mut() {
        out.give_back(tracee, *outside);
        out.take_parking(tracee, at);
    }
    if let Some((tracee, ..)) = threads.values_mut().next() {
        out.give_back_actions(told.actions, tracee);
    }
    for (tid, (mut tracee, registers, outside)) in threads {
        tracee.registers = registers;
        let _ = tracee.set();
        let _ = set_mask(&tracee, outside.mask);
        native.insert(tid, tracee);
    }
    // Those that have not entered have all signals blocked if an operator was killed.
    let list = at + size_of::<Attach>() as u64;
    for index in 0..told.threads {
        let info = read::<AttachThread>(pid, list + index * size_of::<AttachThread>() as u64);
        let Ok(info) = info else { break };
        if let Some(tracee) = native.get(&(info.tid as i32))
            && mask_of(tracee).is_ok_and(|mask| mask | !ALL_BLOCKED == u64::MAX)
        {
            let _ = set_mask(tracee, info.mask);
        }
    }
    if let Some(tracee) = native.values_mut().next() {
        unmap(pid, site, &told, tracee);
    }
    let_go(&mut native);
    Ok(())
}

/// Whether this process traces the thread.
fn is_ours(tid: i32) -> bool {
    status_word(tid, "TracerPid:", 0) == Some(std::process::id().to_string())
}

/// A process whose threads are stopped in the engine, and are about to leave.
struct Taken {
    pid: i32,
    /// Where threads execute system calls.
    site: u64,
    /// Whether SIGSTOP came meanwhile, which is then sent again.
    stops: bool,
}

impl Taken {
    /// Makes a thread execute a system call. What the kernel refuses stays as it is.
    fn call(&mut self, tracee: &mut Tracee, number: i64, arguments: [u64; 6]) {
        loop {
            tracee.left = None;
            if tracee.call_at(self.site, number as u64, arguments).is_ok() {
                return;
            }
            // The only signal that can come stops the process, and has come before the call.
            let is_stop = |status: i32| libc::WIFSTOPPED(status);
            match tracee.left.filter(|&status| is_stop(status)) {
                Some(status) => self.stops |= status >> 16 == 0,
                None => return,
            }
        }
    }

    /// Gives the alternate stack and the restartable sequences of a thread back to the kernel.
    fn give_back(&mut self, tracee: &mut Tracee, outside: Outside) {
        let base = tracee.registers.gs_base;
        let alternate = base + (Outside::AT + std::mem::offset_of!(Outside, alternate)) as u64;
        // The memory is there as long as the thread is in the engine.
        if read::<u64>(self.pid, alternate).is_ok() {
            self.call(tracee, libc::SYS_sigaltstack, [alternate, 0, 0, 0, 0, 0]);
        }
        let [address, bytes, signature] = outside.rseq;
        if address != 0 {
            self.call(tracee, libc::SYS_rseq, [address, bytes, 0, signature, 0, 0]);
        }
    }

    /// Takes away the signal by which another thread makes this one leave translated code, if it waits. The kernel would end
    /// the program by it.
    fn take_parking(&mut self, tracee: &mut Tracee, at: u64) {
        let is_ours = |info: &Queued| {
            (info.signal(), info.code(), info.value()) == (libc::SIGTRAP, SI_QUEUE, PARKS)
        };
        if queued(tracee.pid).iter().any(is_ours) {
            let scratch = at + std::mem::offset_of!(AttachTold, scratch) as u64;
            // A set of signals, and no time.
            let words = [TRAP_BIT, 0, 0];
            let put =
                memory(self.pid).and_then(|memory| memory.write_at(bytes_of(&words), scratch));
            if put.is_ok() {
                let arguments = [scratch, 0, scratch + 8, 8, 0, 0];
                self.call(tracee, libc::SYS_rt_sigtimedwait, arguments);
            }
        }
    }

    /// Gives the program's signals back to the kernel.
    fn give_back_actions(&mut self, actions: u64, tracee: &mut Tracee) {
        const ACTION_BYTES: u64 = 32;
        for signal in (1..=64u64).filter(|&signal| signal != 9 && signal != 19) {
            let action = actions + signal * ACTION_BYTES;
            self.call(tracee, libc::SYS_rt_sigaction, [signal, action, 0, 8, 0, 0]);
        }
    }
}

/// Unmaps the engine's memory.
fn unmap(pid: i32, site: u64, told: &AttachTold, tracee: &mut Tracee) {
    let own = own(pid, told);
    let is_engines =
        |line: &Line<'_>| own_holds(&own, line.start) || line.path.starts_with("/memfd:pagewalk");
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges(pid, is_engines) {
        match joined.last_mut().filter(|last| last.1 == start) {
            Some(last) => last.1 = end,
            None => joined.push((start, end)),
        }
    }
    let mut out = Taken { pid, site, stops: false };
    for (start, end) in joined {
        out.call(tracee, libc::SYS_munmap, [start, end - start, 0, 0, 0, 0]);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.stops {
            // SAFETY: a plain system call.
            unsafe { libc::kill(self.pid, libc::SIGSTOP) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_of_yama_has_a_line_that_says_what_to_do() {
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        let said = |yama: &str| why_not_traced(7, &refused, yama);
        for yama in ["1", "2"] {
            assert!(said(yama).contains(&format!("ptrace_scope is {yama}")), "{}", said(yama));
            assert!(said(yama).contains("run pagewalk as root, or write 0"), "{}", said(yama));
        }
        assert!(said("3").contains("started again"), "{}", said("3"));
        for yama in ["", "0"] {
            assert!(said(yama).contains("as its user or as root"), "{}", said(yama));
            assert!(!said(yama).contains("yama"), "{}", said(yama));
        }
        for yama in ["", "0", "1", "2", "3"] {
            assert!(!said(yama).contains(['\n', '.'].map(|c| if c == '.' { '\n' } else { c })));
        }
        let other = io::Error::from_raw_os_error(libc::EIO);
        assert!(why_not_traced(7, &other, "1").contains("process 7 cannot be traced"));
    }

    fn call(number: i64, result: i64) -> Registers {
        // SAFETY: zeros are valid.
        let none: Registers = unsafe { std::mem::zeroed() };
        Registers { orig_rax: number as u64, rax: result as u64, ..none }
    }

    #[test]
    fn a_call_is_made_again_as_the_kernel_does_it() {
        let eintr = -i64::from(libc::EINTR);
        let result = |number: i64, result: i64| made_again(call(number, result)).rax as i64;
        // Ended by the stop alone.
        assert_eq!(result(libc::SYS_epoll_wait, eintr), RESTART_NO_HANDLER);
        // Not made twice.
        assert_eq!(result(libc::SYS_close, eintr), eintr);
        assert_eq!(result(libc::SYS_connect, eintr), eintr);
        // No call.
        assert_eq!(result(-1, eintr), eintr);
        for kept in [0, 5, -11, -512, -513, -514, -516] {
            assert_eq!(result(libc::SYS_read, kept), kept);
        }
        assert_eq!(interrupted(&call(libc::SYS_read, -512)), Some(-512));
        assert_eq!(interrupted(&call(libc::SYS_read, eintr)), None);
        assert_eq!(interrupted(&call(-1, -512)), None);
    }
}
