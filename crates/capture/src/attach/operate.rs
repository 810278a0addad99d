//! The process that puts the engine into the threads of a running program, and puts them back.
//!
//! ```text
//!   pagewalk --- pipe: "leave", or its end ---> operator --- ptrace ---> all threads
//!            <-- "in", "out", or an error -----
//! ```
//!
//! It is a process of its own, in a session of its own, because a program must be left whole if `pagewalk` is killed: the
//! pipe then ends, and the operator puts all threads back. A thread is changed only while it is stopped.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use ring::{Attach, AttachThread, ENGINE_MEMORY, Outside, Start};

use crate::inject::Engine;
use crate::maps::Line;
use crate::session::Leaving;
use crate::tracee::{Registers, SYSCALL, Tracee};

/// The code segment of 64-bit programs.
const CODE_64: u64 = 0x33;
const SEIZE_OPTIONS: u64 = libc::PTRACE_O_TRACESYSGOOD as u64;
const GET_RSEQ: u32 = 0x420f;
const GET_MASK: u32 = 0x420a;
const SET_MASK: u32 = 0x420b;
/// Linux's internal results of calls that are to be made again.
const RESTARTS: [i64; 3] = [-512, -513, -514];
const RESTART_BLOCK: i64 = -516;
/// How long threads may take to come to the end of a block.
const PATIENCE: Duration = Duration::from_secs(20);

type Threads = BTreeMap<i32, Tracee>;
/// By thread: the number of the system call that it goes on with by `restart_syscall`.
type Calls = BTreeMap<i32, u64>;

/// Does the operator's work for the process `pid`. The session is at the path `session`.
pub(super) fn operate(pid: i32, session: &str, engine: &Engine) -> io::Result<()> {
    let mut answers = io::stdout();
    // It must be there after `pagewalk` has ended.
    let leaving = Leaving::open(session)?;
    let attach_at = match enter(pid, &leaving.path(), engine) {
        Ok(attach_at) => attach_at,
        Err(why) => {
            writeln!(answers, "error {why}")?;
            return answers.flush();
        }
    };
    // Without a reader, the pipe for orders has ended too.
    let _ = writeln!(answers, "in").and_then(|()| answers.flush());
    wait_for_order(pid);
    leaving.begin();
    let said = match leave(pid, attach_at, &leaving) {
        Ok(()) => "out".to_owned(),
        Err(why) => format!("error {why}"),
    };
    let _ = writeln!(answers, "{said}").and_then(|()| answers.flush());
    Ok(())
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
        if !crate::supervise::exists(pid as u32) {
            return;
        }
    }
}

/// The threads of the process.
fn threads_of(pid: i32) -> Vec<i32> {
    let Ok(found) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    found.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A line of `/proc/PID/task/TID/status` as a number.
fn status_of(pid: i32, tid: i32, name: &str, radix: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(line.split_whitespace().next()?, radix).ok()
}

fn ask(request: u32, tid: i32, address: u64, data: u64) -> io::Result<()> {
    // SAFETY: the caller gives what the request needs.
    match unsafe { libc::ptrace(request, tid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits for a stop of the thread. `None` if it has ended.
fn wait(tid: i32) -> Option<i32> {
    loop {
        let mut status = 0;
        // SAFETY: the status is ours.
        let found = unsafe { libc::waitpid(tid, &mut status, libc::__WALL) };
        if found == tid {
            return libc::WIFSTOPPED(status).then_some(status);
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// Stops a thread that runs. `None` if it has ended; the error says why the thread must not be changed.
fn stop(pid: i32, tid: i32) -> Result<Option<Tracee>, String> {
    for _ in 0..1000 {
        if ask(libc::PTRACE_INTERRUPT, tid, 0, 0).is_err() {
            return Ok(None);
        }
        loop {
            let Some(status) = wait(tid) else { return Ok(None) };
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            if event == libc::PTRACE_EVENT_STOP && signal == libc::SIGTRAP {
                break;
            }
            if event == libc::PTRACE_EVENT_STOP {
                return Err("it is stopped by a signal: continue it first (kill -CONT)".to_owned());
            }
            let signal = if event == 0 { signal as u64 } else { 0 };
            if ask(libc::PTRACE_CONT, tid, 0, signal).is_err() {
                return Ok(None);
            }
        }
        // A signal that is there already ends a system call before the thread goes on.
        let pending = ["SigPnd:", "ShdPnd:"].map(|name| status_of(pid, tid, name, 16).unwrap_or(0));
        let blocked = status_of(pid, tid, "SigBlk:", 16).unwrap_or(0);
        if (pending[0] | pending[1]) & !blocked == 0 {
            return Ok(Tracee::of(tid).ok());
        }
        if ask(libc::PTRACE_CONT, tid, 0, 0).is_err() {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Err("signals come to it all the time".to_owned())
}

/// The registers of the thread as if the thread had not been stopped. If a system call was
/// interrupted, the thread makes it again.
fn restarted(registers: Registers) -> Registers {
    restarted_call(registers).0
}

/// These registers, and the number of the call that `restart_syscall` goes on with; 0 if it is not used.
fn restarted_call(mut registers: Registers) -> (Registers, u64) {
    let mut number = 0;
    let result = registers.rax as i64;
    if (registers.orig_rax as i64) >= 0 {
        let is_connect = registers.orig_rax == libc::SYS_connect as u64;
        let is_again =
            RESTARTS.contains(&result) || result == -i64::from(libc::EINTR) && !is_connect;
        if is_again {
            registers.rax = registers.orig_rax;
            registers.rip -= SYSCALL.len() as u64;
        } else if result == RESTART_BLOCK {
            number = registers.orig_rax;
            registers.rax = libc::SYS_restart_syscall as u64;
            registers.rip -= SYSCALL.len() as u64;
        }
    }
    registers.orig_rax = u64::MAX;
    (registers, number)
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
fn stop_all(pid: i32) -> Result<(Threads, Calls), String> {
    let (mut threads, mut calls) = (Threads::new(), Calls::new());
    loop {
        let fresh: Vec<i32> =
            threads_of(pid).into_iter().filter(|tid| !threads.contains_key(tid)).collect();
        let mut is_new = false;
        for tid in fresh {
            match ask(libc::PTRACE_SEIZE, tid, 0, SEIZE_OPTIONS) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(error) => {
                    let_go(&mut threads);
                    return Err(why_not_traced(pid, &error));
                }
            }
            match stop(pid, tid) {
                Ok(Some(mut tracee)) => {
                    let (registers, number) = restarted_call(tracee.registers);
                    tracee.registers = registers;
                    calls.insert(tid, number);
                    threads.insert(tid, tracee);
                    is_new = true;
                }
                Ok(None) => {}
                Err(why) => {
                    let _ = ask(libc::PTRACE_DETACH, tid, 0, 0);
                    let_go(&mut threads);
                    return Err(why);
                }
            }
        }
        if !is_new {
            break;
        }
    }
    if threads.is_empty() { Err("it has ended".to_owned()) } else { Ok((threads, calls)) }
}

fn why_not_traced(pid: i32, error: &io::Error) -> String {
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match (error.raw_os_error(), yama.trim()) {
        (Some(libc::EPERM), "1" | "2" | "3") => format!(
            "the kernel does not let it be traced (kernel.yama.ptrace_scope is {}): write 0 there, \
             or run pagewalk as root",
            yama.trim()
        ),
        (Some(libc::EPERM), _) => {
            "the kernel does not let it be traced: run pagewalk as its user or \
                                   as root, in a container with --cap-add SYS_PTRACE"
                .to_owned()
        }
        _ => format!("process {pid} cannot be traced: {error}"),
    }
}

/// The address of a system call instruction in the vdso.
fn site(pid: i32) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut code = vec![0; (end - start) as usize];
    memory(pid).ok()?.read_at(&mut code, start).ok()?;
    let at = code.windows(2).position(|bytes| bytes == SYSCALL)?;
    Some(start + at as u64)
}

fn memory(pid: i32) -> io::Result<crate::tracee::Memory> {
    crate::tracee::Memory::of(pid)
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

/// The first address of the program's own memory where the engine's memory would be.
fn memory_in_the_way(pid: i32) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut lines = maps.lines().filter_map(Line::parse);
    let found = lines.find(|l| l.start < ENGINE_MEMORY.end && ENGINE_MEMORY.start < l.end)?;
    Some(found.start)
}

/// Puts all threads into the engine.
fn enter(pid: i32, session: &str, engine: &Engine) -> Result<u64, String> {
    let (mut threads, calls) = stop_all(pid)?;
    let done = enter_stopped(pid, session, engine, &mut threads, &calls);
    if done.is_err() {
        let_go(&mut threads);
    }
    done
}

fn enter_stopped(
    pid: i32,
    session: &str,
    engine: &Engine,
    threads: &mut Threads,
    calls: &Calls,
) -> Result<u64, String> {
    let failed = |error: io::Error| format!("the engine cannot be put into it: {error}");
    if threads.values().any(|tracee| tracee.registers.cs != CODE_64) {
        return Err("it is a 32-bit program, which pagewalk does not attach to".to_owned());
    }
    if let Some(address) = memory_in_the_way(pid) {
        return Err(format!(
            "it has memory at {address:#x}, where pagewalk needs addresses of its own: start it \
             again, which gives it other addresses, then attach"
        ));
    }
    let site = site(pid).ok_or("it has no vdso, which pagewalk needs to attach")?;
    let (rooms, first) = (threads.len() as u64, *threads.keys().next().ok_or("it has ended")?);
    let first = if threads.contains_key(&pid) { pid } else { first };
    let extra = size_of::<Attach>() as u64 + rooms * size_of::<AttachThread>() as u64;
    let mut infos = Vec::new();
    for (&tid, tracee) in threads.iter_mut() {
        let rseq = rseq_of(pid, tracee);
        let r = tracee.registers;
        let mask = mask_of(tracee).map_err(failed)?;
        infos.push(AttachThread {
            tid: tid as u64,
            registers: numbered(&r),
            pc: r.rip,
            flags: r.eflags,
            fs: r.fs_base,
            gs: r.gs_base,
            mask,
            rseq,
            restarts: calls.get(&tid).copied().unwrap_or(0),
            engine: 0,
            stack: 0,
        });
    }
    infos.sort_by_key(|info| info.tid != first as u64);
    let tracee = threads.get_mut(&first).ok_or("it has ended")?;
    let start = Start {
        session: [0; 64],
        pc: tracee.registers.rip,
        rsp: tracee.registers.rsp,
        flags: tracee.registers.eflags,
        engine: [0; 2],
        attach: 0,
    };
    let begun = engine.put_at(tracee, site, session, start, extra).map_err(failed)?;
    let undo = |threads: &mut Threads, why: String| {
        let_out(pid, site, threads, first);
        Err(why)
    };
    let attach_at = begun.attach;
    let head = Attach {
        threads: rooms,
        entry: 0,
        called: 0,
        actions: 0,
        is_ready: 0.into(),
        goes: 0.into(),
    };
    let list = attach_at + size_of::<Attach>() as u64;
    let mut put = memory(pid).and_then(|memory| {
        memory.write_at(bytes_of(&head), attach_at)?;
        for (index, info) in infos.iter().enumerate() {
            memory.write_at(bytes_of(info), list + (index * size_of::<AttachThread>()) as u64)?;
        }
        Ok(())
    });
    put = put.and_then(|()| threads.values().try_for_each(|tracee| set_mask(tracee, u64::MAX)));
    if let Err(error) = put {
        restore_masks(threads, &infos);
        return undo(threads, failed(error));
    }
    // The first thread prepares everything while the others are stopped.
    let Some(tracee) = threads.get(&first) else { return Err("it has ended".to_owned()) };
    let before = tracee.registers;
    let entering = Registers { orig_rax: u64::MAX, ..begun.registers };
    let ran = Tracee { registers: entering, ..Tracee::at(first, before) };
    ran.set().and_then(|()| ran.ask(libc::PTRACE_CONT, 0, 0)).map_err(failed)?;
    let since = Instant::now();
    let ready = attach_at + std::mem::offset_of!(Attach, is_ready) as u64;
    while read::<u32>(pid, ready).unwrap_or(0) == 0 {
        if since.elapsed() > PATIENCE || !crate::supervise::exists(pid as u32) {
            return undo_begun(pid, site, attach_at, threads, first, &infos);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let entry = read::<[u64; 2]>(pid, attach_at).map_err(failed)?[1];
    for (index, info) in infos.iter().enumerate().skip(1) {
        let at = list + (index * size_of::<AttachThread>()) as u64;
        let told: AttachThread = read(pid, at).map_err(failed)?;
        let Some(tracee) = threads.get_mut(&(info.tid as i32)) else { continue };
        tracee.registers.rip = entry;
        tracee.registers.rdi = told.engine;
        tracee.registers.rsp = told.stack;
        tracee.registers.eflags &= !(1 << 10 | 1 << 8 | 1 << 18);
        tracee.registers.orig_rax = u64::MAX;
    }
    threads.remove(&first);
    let_go(threads);
    let goes = attach_at + std::mem::offset_of!(Attach, goes) as u64;
    memory(pid).and_then(|memory| memory.write_at(&1u32.to_le_bytes(), goes)).map_err(failed)?;
    // It runs: stopped once more, it is let go.
    if let Ok(Some(tracee)) = stop(pid, first) {
        let _ = tracee.ask(libc::PTRACE_DETACH, 0, 0);
    }
    Ok(attach_at)
}

/// After the first thread has begun in the engine and did not get ready: takes it out, as it was.
fn undo_begun(
    pid: i32,
    site: u64,
    attach_at: u64,
    threads: &mut Threads,
    first: i32,
    infos: &[AttachThread],
) -> Result<u64, String> {
    let failed = Err("the engine did not begin in it".to_owned());
    let (Some(now), Some(before)) = (stop_in_engine(first), threads.get_mut(&first)) else {
        return failed;
    };
    let registers = before.registers;
    let mut now = Tracee { registers: now.registers, ..Tracee::at(first, now.registers) };
    let words = read::<[u64; 4]>(pid, attach_at).unwrap_or_default();
    if words[3] != 0 {
        let base = now.registers.gs_base;
        let outside = read::<Outside>(pid, base + Outside::AT as u64).unwrap_or_default();
        give_back(pid, site, &mut now, outside);
        give_back_actions(site, words[3], &mut now);
    }
    unmap(pid, site, &mut now);
    before.registers = registers;
    restore_masks(threads, infos);
    failed
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

fn place(pid: i32, called: u64, tracee: &Tracee) -> Place {
    let now = tracee.registers;
    let base = now.gs_base;
    if !ENGINE_MEMORY.contains(&base) {
        return match ENGINE_MEMORY.contains(&now.rip) {
            true => Place::Inside,
            false => Place::Native,
        };
    }
    let Ok(outside) = read::<Outside>(pid, base + Outside::AT as u64) else { return Place::Inside };
    let (Ok(values), Ok(gs)) =
        (read::<[u64; 17]>(pid, base), read::<u64>(pid, base + Outside::GS_AT as u64))
    else {
        return Place::Inside;
    };
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
    let again = restarted(now);
    if now.rip == called && again.rip != now.rip {
        registers.rax = again.rax;
        registers.rip = outside.pc - SYSCALL.len() as u64;
        return Place::Known(Box::new(registers), outside);
    }
    Place::Inside
}

/// Puts all threads back into the program, and unmaps what was mapped.
fn leave(pid: i32, attach_at: u64, leaving: &Leaving) -> Result<(), String> {
    if !crate::supervise::exists(pid as u32) {
        return Ok(());
    }
    // It is gone if the process has executed another program.
    let Ok(words) = read::<[u64; 4]>(pid, attach_at) else { return Ok(()) };
    let [_, _, called, actions] = words;
    let site = site(pid).ok_or("it has no vdso")?;
    let mut threads: BTreeMap<i32, (Tracee, Registers, Outside)> = BTreeMap::new();
    let mut native: Threads = Threads::new();
    let since = Instant::now();
    loop {
        let known = |tid: &i32| threads.contains_key(tid) || native.contains_key(tid);
        let fresh: Vec<i32> = threads_of(pid).into_iter().filter(|tid| !known(tid)).collect();
        if fresh.is_empty() {
            break;
        }
        let mut is_any = false;
        for tid in fresh {
            match ask(libc::PTRACE_SEIZE, tid, 0, SEIZE_OPTIONS) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && is_ours(tid) => {}
                Err(_) => continue,
            }
            let tracee = match stop_in_engine(tid) {
                Some(tracee) => tracee,
                None => continue,
            };
            is_any = true;
            match place(pid, called, &tracee) {
                Place::Known(registers, outside) => {
                    threads.insert(tid, (tracee, *registers, outside));
                }
                Place::Native => {
                    let mut tracee = tracee;
                    tracee.registers = restarted(tracee.registers);
                    native.insert(tid, tracee);
                }
                Place::Inside => {
                    // The kernel makes an interrupted call again, and the engine waits in loops.
                    let mut tracee = tracee;
                    tracee.registers = restarted(tracee.registers);
                    let _ = tracee.set();
                    let _ = tracee.ask(libc::PTRACE_CONT, 0, 0);
                }
            }
        }
        if !is_any && !crate::supervise::exists(pid as u32) {
            return Ok(());
        }
        if since.elapsed() > PATIENCE {
            // They run on in the engine, which records nothing any more.
            leaving.end();
            for (tracee, ..) in threads.values_mut() {
                let place = Outside::AT + std::mem::offset_of!(Outside, is_parked);
                let at = tracee.registers.gs_base + place as u64;
                let _ = memory(pid).and_then(|memory| memory.write_at(&0u32.to_le_bytes(), at));
                tracee.registers = restarted(tracee.registers);
                let _ = tracee.go();
            }
            let_go(&mut native);
            return Err(
                "a thread does not come to the end of its system call; the program runs on \
                        in the engine, unrecorded"
                    .to_owned(),
            );
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    restore_process(pid, site, actions, &mut threads);
    for (tracee, registers, outside) in threads.values_mut() {
        let _ = set_mask(tracee, outside.mask);
        tracee.registers = *registers;
        let _ = tracee.go();
    }
    let_go(&mut native);
    Ok(())
}

/// Whether this process traces the thread.
fn is_ours(tid: i32) -> bool {
    status_of(tid, tid, "TracerPid:", 10) == Some(u64::from(std::process::id()))
}

/// Stops a thread without looking at signals: in the engine they wait.
fn stop_in_engine(tid: i32) -> Option<Tracee> {
    ask(libc::PTRACE_INTERRUPT, tid, 0, 0).ok()?;
    loop {
        let status = wait(tid)?;
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if event == libc::PTRACE_EVENT_STOP && signal == libc::SIGTRAP {
            return Tracee::of(tid).ok();
        }
        if event == libc::PTRACE_EVENT_STOP {
            // It is stopped as a job, with the registers that it has.
            return Tracee::of(tid).ok();
        }
        let signal = if event == 0 { signal as u64 } else { 0 };
        ask(libc::PTRACE_CONT, tid, 0, signal).ok()?;
    }
}

/// Gives the program's signals, alternate stacks and restartable sequences back to the kernel, and unmaps the engine. All threads
/// are stopped.
fn restore_process(
    pid: i32,
    site: u64,
    actions: u64,
    threads: &mut BTreeMap<i32, (Tracee, Registers, Outside)>,
) {
    for (tracee, _, outside) in threads.values_mut() {
        give_back(pid, site, tracee, *outside);
    }
    let Some((tracee, ..)) = threads.values_mut().next() else { return };
    give_back_actions(site, actions, tracee);
    unmap(pid, site, tracee);
}

/// Gives the alternate stack and the restartable sequences of a thread back to the kernel.
fn give_back(pid: i32, site: u64, tracee: &mut Tracee, outside: Outside) {
    let base = tracee.registers.gs_base;
    let alternate = base + (Outside::AT + std::mem::offset_of!(Outside, alternate)) as u64;
    // What the kernel refuses stays as it is; the memory is there as long as the thread is in the engine.
    if read::<u64>(pid, alternate).is_ok() {
        let set = libc::SYS_sigaltstack as u64;
        let _ = tracee.call_at(site, set, [alternate, 0, 0, 0, 0, 0]);
    }
    let [address, bytes, signature] = outside.rseq;
    if address != 0 {
        let rseq = libc::SYS_rseq as u64;
        let _ = tracee.call_at(site, rseq, [address, bytes, 0, signature, 0, 0]);
    }
}

/// Gives the program's signals back to the kernel.
fn give_back_actions(site: u64, actions: u64, tracee: &mut Tracee) {
    const ACTION_BYTES: u64 = 32;
    for signal in (1..=64u64).filter(|&signal| signal != 9 && signal != 19) {
        let action = actions + signal * ACTION_BYTES;
        let set = libc::SYS_rt_sigaction as u64;
        let _ = tracee.call_at(site, set, [signal, action, 0, 8, 0, 0]);
    }
}

/// Unmaps the engine's memory.
fn unmap(pid: i32, site: u64, tracee: &mut Tracee) {
    let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return };
    for line in maps.lines().filter_map(Line::parse) {
        if ENGINE_MEMORY.contains(&line.start) || line.path.starts_with("/memfd:pagewalk") {
            let unmap = libc::SYS_munmap as u64;
            let _ = tracee.call_at(site, unmap, [line.start, line.end - line.start, 0, 0, 0, 0]);
        }
    }
}

/// After the engine was put in and did not begin: unmaps it.
fn let_out(pid: i32, site: u64, threads: &mut Threads, first: i32) {
    if let Some(tracee) = threads.get_mut(&first) {
        unmap(pid, site, tracee);
    }
}
