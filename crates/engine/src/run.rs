//! The engine's loop, which handles each exit from translated code.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic};
use ring::{
    Block, Call, Control, Derived, EventCode, Origin, REFUSED_BYTES_MAX, Record, SPAN_ROOM, Said,
    Start, Tag,
};

use crate::bare::{Bare, Windows, rows};
use crate::count::{Counter, Piece, Pointer};
use crate::insn::BYTES_MAX;
use crate::lock::{Guard, Locked};
use crate::record::Recorder;
use crate::repeat::Kind;
use crate::signal::{Actions, Came, SIGSEGV, Signals};
use crate::state::{
    BYTES, ENGINE_RSP, ENTER, EXIT, EXIT_AGAIN, EXIT_INDIRECT, EXIT_SIGNAL, FLAGS, FS_BASE,
    GS_BASE, PENDING, SELF, State, TARGET, TID,
};
use crate::sys::{self, nr};
use crate::translate::{Exit, Log, Translator, is_shared};
use crate::{assist, clock, library, own, ran_before, table, tell, ways};

/// The beginning of the message about a process whose recording ends before the process; the reason
/// follows.
const RAN_ON: &str = "it ran on unrecorded, as ";
/// The beginning of the message about a process that got an error for a call that the engine does
/// not support; the reason follows.
const DOES_WITHOUT: &str = "a system call was answered with EINVAL, as in QEMU: ";
/// The maximum number of bytes in a note about a refused call.
const NOTE_BYTES_MAX: usize = DOES_WITHOUT.len() + REFUSED_BYTES_MAX;
/// The size of the engine's stack in bytes.
pub(crate) const STACK_BYTES: u64 = 1 << 20;
/// The maximum number of accesses of a repeated instruction that are made together. At a larger
/// number, the host would assume that the block continues.
const PIECE: u64 = 14 * STRIP;
/// The accesses of a repeated instruction that are recorded as a fixed block: all addresses follow from those of the
/// first element. It is even, as some instructions make two accesses to each element, and the host takes no block
/// with more than [`SPAN_ROOM`] accesses.
const STRIP: u64 = SPAN_ROOM as u64 - 2;
/// The address of the page that Linux provides for system calls of old programs.
const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;
/// The option of `prctl` that installs a filter of system calls.
const PR_SET_SECCOMP: u64 = 22;
/// The option of `prctl` that forbids to read the processor's clock.
const PR_SET_TSC: u64 = 26;
/// The option of `prctl` that turns system calls into signals.
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
/// The bit of `personality` that makes all readable memory executable.
const READ_IMPLIES_EXEC: u64 = 0x0040_0000;
/// What is no address of any memory: the highest bits are not all equal.
const NO_ADDRESSES: core::ops::Range<u64> = 0x8000_0000_0000..0xffff_8000_0000_0000;
/// The end of the address range for programs.
const ADDRESSES_END: u64 = 0x7fff_ffff_f000;
pub(crate) const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;
/// The operations of `arch_prctl` for shadow stacks: `ARCH_SHSTK_*`.
const ARCH_SHADOW: core::ops::RangeInclusive<u64> = 0x5001..=0x5005;

/// The flag of `shmat` for executable memory.
const SHM_EXEC: u64 = 0o100000;

/// A thread that is ending, or has ended.
pub(crate) struct Ended {
    pub(crate) engine: usize,
    /// 1 as long as the thread uses its memory, then 0.
    pub(crate) is_there: &'static AtomicU32,
}

/// The state that the threads of a process share.
pub(crate) struct Shared {
    /// Translated code that records; `bare` has translated code that does not record.
    pub(crate) translator: Locked<Translator>,
    pub(crate) bare: Locked<Translator>,
    pub(crate) windows: Windows,
    pub(crate) actions: Locked<Actions>,
    pub(crate) known: Locked<Known>,
    /// The number of threads.
    pub(crate) threads: AtomicU32,
    /// The memory of threads that have ended.
    pub(crate) ended: Locked<Vec<Ended>>,
    /// The shared data of all threads.
    pub(crate) all: Locked<Vec<State>>,
    /// Whether the process has ever had a second thread.
    pub(crate) is_shared: AtomicBool,
    /// 1 while a thread drops all translated code.
    pub(crate) stop: AtomicU32,
}

impl Shared {
    /// All translated code.
    pub(crate) fn codes(&self) -> [&Locked<Translator>; 2] {
        [&self.translator, &self.bare]
    }

    /// Whether the process has several threads.
    pub(crate) fn has_others(&self) -> bool {
        self.threads.load(Ordering::Acquire) > 1
    }
}

/// Instructions that the engine executes or whose accesses it records.
pub(crate) struct Known {
    /// The repeated instructions by their addresses. The values are the instruction, its kind, and
    /// the numbers of two blocks: the first records the first piece of the instruction, and the
    /// second records further pieces and counts no instruction.
    repeats: BTreeMap<u64, (Whole, Kind, [u32; 2])>,
    /// Fixed blocks of [`STRIP`] accesses, which are made when they are needed. The keys are the
    /// number of a repeated instruction's block and the distance between elements; the values are
    /// the numbers of the fixed block that counts the instruction and of the one that does not.
    strips: BTreeMap<(u32, u64), [Option<u32>; 2]>,
    /// The assisted instructions by their addresses. The values are the instruction and the number
    /// of its block.
    assists: BTreeMap<u64, (Whole, u32)>,
    /// The repeated and assisted instructions that bare code has reached, by their addresses.
    /// Repeated ones have their kind.
    bare: BTreeMap<u64, (Whole, Option<Kind>)>,
}

/// The engine's state in one thread.
pub(crate) struct Engine {
    pub(crate) start: Start,
    pub(crate) state: State,
    pub(crate) shared: &'static Shared,
    pub(crate) recorder: Recorder,
    pub(crate) counter: Counter,
    pub(crate) bare: Bare,
    pub(crate) signals: Signals,
    /// The address of the program's next instruction.
    pub(crate) pc: u64,
    /// The repeated instruction that is being executed, if any.
    pub(crate) repeat: Option<Repeat>,
    factory: InstructionInfoFactory,
    /// The address of the record of the last assisted instruction.
    pub(crate) assisted_at: u64,
    /// The number of the system call in which the thread was when the host attached to it, if the
    /// kernel can continue this call.
    pub(crate) restarts: u64,
    /// The address of the system call that the thread was in when the host attached to it, and Linux's internal result of
    /// it, until it is made again.
    pub(crate) interrupted: Option<(u64, i64)>,
}

/// A repeated instruction that is being executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeat {
    kind: Kind,
    /// The numbers of the block that counts the instruction, and of the block that does not.
    numbers: [u32; 2],
    /// The length of the instruction in bytes.
    bytes: u64,
    is_first: bool,
    /// The value of rcx before the elements that are executed now; `more` is the number of elements
    /// after these.
    count: u64,
    more: u64,
    rsi: u64,
    rdi: u64,
}

/// The elements that a repeated instruction accesses.
struct Elements<'a> {
    /// The addresses in the next element, in the order of the accesses, with their tags: one or two.
    places: &'a mut [(u64, u16)],
    /// The distance from an element to the next element, in bytes.
    step: u64,
}

impl Elements<'_> {
    /// Advances by `count` elements.
    fn advance(&mut self, count: u64) {
        let by = self.step.wrapping_mul(count);
        self.places.iter_mut().for_each(|(at, _)| *at = at.wrapping_add(by));
    }
}

/// An instruction and its bytes.
#[derive(Clone, Copy)]
struct Whole {
    instruction: Instruction,
    bytes: [u8; BYTES_MAX],
}

impl Whole {
    /// Whether the program's memory still has the bytes of the instruction.
    fn is_there(&self) -> bool {
        let (mut now, length) = ([0; BYTES_MAX], self.instruction.len());
        ways::read_bytes(self.instruction.ip(), now.as_mut_ptr(), length as u64)
            && now[..length] == self.bytes[..length]
    }
}

/// Ends the process with a message, as the data in `start` is invalid.
fn stop(why: &'static str) -> ! {
    ran_before::give_up(why);
    sys::say(&["pagewalk: the engine cannot start: ", why, "\n"]);
    sys::exit(125)
}

/// Called by the engine's first instruction, in a program that has just been executed.
///
/// # Safety
///
/// Called once in a process, with data that the host has written.
pub unsafe fn begin(start: *const Start) -> ! {
    // SAFETY: the caller's.
    let start = unsafe { *start };
    ran_before::AT.store(start.attach, Ordering::Relaxed);
    own::note(start.engine[0], start.engine[1]);
    let Some(at) = own::private_before(BYTES, table::ROOM_BYTES) else {
        stop("the system gives it no memory")
    };
    let state = State(at);
    if start.attach == 0 {
        // SAFETY: the program has not run, so that its stack is the kernel's.
        unsafe { clock::find(start.rsp) };
    }
    // SAFETY: a new program has nothing at gs.
    unsafe { sys::call(nr::ARCH_PRCTL, [ARCH_SET_GS, at, 0, 0, 0, 0]) };
    let Some(stack) = own::private(STACK_BYTES) else { stop("the system gives it no memory") };
    state.set(ENGINE_RSP, stack + STACK_BYTES - 64);
    state.set_register(4, start.rsp);
    state.set(FLAGS, start.flags);
    let recorder = match Recorder::enter(start.session.as_ptr(), state) {
        Ok(recorder) => recorder,
        Err(why) => stop(why),
    };
    let known = Known {
        repeats: BTreeMap::new(),
        strips: BTreeMap::new(),
        assists: BTreeMap::new(),
        bare: BTreeMap::new(),
    };
    let shared = Shared {
        translator: Locked::new(Translator::new(state, ways::leave(), false)),
        bare: Locked::new(Translator::new(state, ways::leave(), true)),
        windows: Windows::new(),
        actions: Locked::new(Actions::default()),
        known: Locked::new(known),
        threads: AtomicU32::new(1),
        ended: Locked::new(Vec::new()),
        all: Locked::new(Vec::new()),
        is_shared: AtomicBool::new(false),
        stop: AtomicU32::new(0),
    };
    let shared = Box::leak(Box::new(shared));
    let Some(signals) = Signals::new(&shared.actions, ran_before::first_mask(&start)) else {
        stop("the system gives it no memory")
    };
    let engine = Engine::place(start, state, shared, recorder, signals);
    engine.register_alone();
    engine.begin_attached();
    engine.begin_counting();
    engine.begin_windows();
    engine.tell_mappings(true);
    if let Err(why) = engine.bring_others() {
        stop(why);
    }
    if engine.is_attached() {
        engine.signals.begin();
    }
    // The host reads the rings from here on.
    engine.ask_for_places();
    engine.go_on();
    // SAFETY: the engine's data is complete.
    unsafe { ways::pagewalk_enter() }
}

/// Begins a new thread, on its stack of the engine.
pub(crate) extern "C" fn begun(engine: *mut Engine) -> ! {
    // SAFETY: the parent has filled it for this thread.
    let engine = unsafe { &mut *engine };
    // SAFETY: the base of gs has the parent's value, which this thread has not used.
    unsafe { sys::call(nr::ARCH_PRCTL, [ARCH_SET_GS, engine.state.0, 0, 0, 0, 0]) };
    engine.recorder.begin_thread();
    // SAFETY: `gettid` takes no arguments and cannot fail.
    let tid = unsafe { sys::call(nr::GETTID, [0; 6]) } as u64;
    engine.recorder.event(EventCode::ThreadStart, &[&[tid]]);
    engine.recorder.mark();
    engine.state.set(TID, tid);
    engine.signals.begin();
    engine.be_unsafe();
    engine.go_on();
    // SAFETY: the engine's data is complete.
    unsafe { ways::pagewalk_enter() }
}

/// Handles an exit from translated code.
pub(crate) extern "C" fn dispatch() {
    // SAFETY: the function runs in the engine, and only once at a time per thread.
    let engine = unsafe { Engine::get() };
    engine.counter.leave();
    engine.bare.leave();
    // A signal came during a block that then ended before its next store.
    if engine.recorder.is_hidden {
        engine.recorder.show();
    }
    engine.came_back();
    engine.go_on();
}

impl Engine {
    /// The engine of the thread whose shared data is `state`, in memory that stays.
    pub(crate) fn place(
        start: Start,
        state: State,
        shared: &'static Shared,
        recorder: Recorder,
        signals: Signals,
    ) -> &'static mut Engine {
        let engine = Box::leak(Box::new(Engine {
            start,
            state,
            shared,
            recorder,
            counter: Counter::off(state),
            bare: Bare::off(state, false),
            signals,
            pc: start.pc,
            repeat: None,
            factory: InstructionInfoFactory::new(),
            assisted_at: 0,
            restarts: 0,
            interrupted: None,
        }));
        state.set(SELF, engine as *mut Engine as u64);
        engine
    }

    /// The engine of this thread.
    ///
    /// # Safety
    ///
    /// The thread's engine has been placed, and no other reference to it is used.
    pub(crate) unsafe fn get() -> &'static mut Engine {
        // SAFETY: the base of gs is the thread's shared data; else the caller's.
        unsafe { &mut *(ways::own(SELF) as *mut Engine) }
    }

    /// Translated code of the kind that this thread runs, which no other thread changes meanwhile.
    pub(crate) fn code(&self) -> Guard<'static, Translator> {
        self.shared.codes()[usize::from(self.bare.is_on)].lock()
    }

    /// Prepares to enter translated code at the program's next instruction.
    pub(crate) fn go_on(&mut self) {
        if self.state.get(PENDING) != 0 {
            self.deliver();
        }
        while self.is_leaving() {
            self.park();
        }
        self.choose_code();
        let is_shared = self.shared.is_shared.load(Ordering::Relaxed);
        let found = loop {
            if is_shared {
                self.wait_for_code();
            }
            let mut code = self.code();
            if !(is_shared && code.is_too_large()) {
                break code.lookup(self.pc, &mut self.recorder);
            }
            drop(code);
            self.drop_code();
        };
        match found {
            Ok(host) => self.state.set(ENTER, host),
            Err(why) => self.refuse(self.pc, why),
        }
        self.counter.enter();
        self.bare.enter();
    }

    /// Whether the process may continue without the engine if the engine cannot continue: the
    /// process must have one thread, and must be a child or have executed a program.
    fn may_run_on(&self) -> bool {
        let origin = self.recorder.process().origin.load(Ordering::Relaxed);
        origin != Origin::Started as u32 && !self.shared.has_others()
    }

    /// Handles a system call that the engine does not support: a process that may run on by itself does so, and others
    /// get the error of a kernel without this call, as in QEMU.
    fn do_without(&mut self, pc: u64, why: &str) -> i64 {
        if self.may_run_on() {
            self.refuse(pc, why);
        }
        self.note_of(DOES_WITHOUT, why);
        sys::EINVAL
    }

    /// Adds a note that consists of the texts `first` and `second`.
    fn note_of(&mut self, first: &str, second: &str) {
        let mut note = [0; NOTE_BYTES_MAX];
        let text = first.bytes().chain(second.bytes());
        let length = note.iter_mut().zip(text).map(|(to, byte)| *to = byte).count();
        self.recorder.text(EventCode::Note, &[], &note[..length]);
    }

    /// Ends the recording at `pc`, because the engine cannot continue. A process that may continue
    /// without the engine does so; any other process ends.
    pub(crate) fn refuse(&mut self, pc: u64, why: &str) -> ! {
        self.settle_counts();
        if self.is_attached() && self.may_park() {
            self.recorder.refuse(pc, why);
            self.pc = pc;
            loop {
                self.park();
            }
        }
        if self.may_run_on() {
            self.note_of(RAN_ON, why);
            self.recorder.end();
            self.pc = pc;
            self.let_go();
        }
        self.recorder.refuse(pc, why);
        sys::exit(125)
    }

    fn came_back(&mut self) {
        let number = self.state.get(EXIT) as u32;
        match number {
            EXIT_INDIRECT => {
                self.pc = self.state.get(TARGET);
                let found = self.code().target(self.pc, &mut self.recorder);
                return found.map_or_else(|why| self.refuse(self.pc, why), |_| ());
            }
            EXIT_AGAIN | EXIT_SIGNAL => return self.deliver(),
            _ => {}
        }
        let exit = self.code().exits.get(number as usize).copied();
        let Some(exit) = exit else {
            self.refuse(
                self.pc,
                "its translated code has an unknown exit, which is a fault in Pagewalk",
            )
        };
        match exit {
            Exit::Link { at, region, target, inner } => {
                self.pc = target;
                let mut code = self.code();
                let forgotten = code.forgotten;
                let found = code.lookup(target, &mut self.recorder);
                // If all translated code was dropped to make room, the exit to be linked no longer
                // exists.
                if let Ok(host) = found
                    && code.forgotten == forgotten
                {
                    let host = code.entry(target, inner).unwrap_or(host);
                    code.link(at, region, host);
                }
                drop(code);
                found.map_or_else(|why| self.refuse(target, why), |_| ());
            }
            Exit::Syscall { pc, next } => self.syscall(pc, next),
            Exit::Repeat { pc } if self.bare.is_on => self.repeat_bare(pc),
            Exit::Repeat { pc } => self.repeat(pc),
            Exit::Begins { pc } => {
                self.pc = pc;
                self.sign_came(true);
            }
            Exit::Assist { pc, body } => {
                self.pc = pc;
                if self.state.get(PENDING) != 0 {
                    return self.deliver();
                }
                if self.bare.is_on {
                    if !self.assist_bare(pc) {
                        return;
                    }
                } else {
                    let known = self.shared.known.lock().assists.get(&pc).copied();
                    if known.is_some_and(|(whole, _)| !whole.is_there()) {
                        self.shared.known.lock().assists.remove(&pc);
                        return self.begin_anew(pc);
                    }
                    self.assist(pc);
                }
                self.state.set(ENTER, body);
                self.counter.enter();
                self.bare.enter();
                // SAFETY: the body is translated code, which continues in the next block.
                unsafe { ways::pagewalk_enter() }
            }
            Exit::Unmapped { pc } => {
                self.pc = pc;
                if pc >= VSYSCALL {
                    self.refuse(pc, "it makes system calls through the vsyscall page");
                }
                if self.learn(pc) {
                    return;
                }
                const SEGV_MAPERR: u64 = 1;
                const PAGE_FAULT: u64 = 14;
                const USER_FETCH: u64 = 0x14;
                const SI_KERNEL: u64 = 0x80;
                const GENERAL_PROTECTION: u64 = 13;
                let came = match NO_ADDRESSES.contains(&pc) {
                    true => Came::fault(SIGSEGV, SI_KERNEL, 0, GENERAL_PROTECTION, 0),
                    false => Came::fault(SIGSEGV, SEGV_MAPERR, pc, PAGE_FAULT, USER_FETCH),
                };
                self.signals.set_fault(came);
                self.deliver();
            }
            Exit::Refused { pc, .. } if self.code().is_another(pc) => self.begin_anew(pc),
            Exit::Uncounted { pc } => {
                self.pc = pc;
                self.stop_counting();
            }
            Exit::Refused { pc, why } => self.refuse(pc, why),
            Exit::Changed { pc, host, region } => {
                self.code().retire_at(pc);
                self.came_to_gone(pc, host, region);
            }
            Exit::Gone { pc, host, region } => self.came_to_gone(pc, host, region),
        }
    }

    /// Continues at `pc`, whose instruction is another one than before.
    fn begin_anew(&mut self, pc: u64) {
        self.pc = pc;
        self.code().retire_at(pc);
    }

    /// Continues at `pc`, whose block was at `host` before it was retired.
    fn came_to_gone(&mut self, pc: u64, host: u64, region: usize) {
        self.pc = pc;
        let mut code = self.code();
        let forgotten = code.forgotten;
        let found = code.lookup(pc, &mut self.recorder);
        if let Ok(by) = found
            && code.forgotten == forgotten
        {
            code.replace(host, region, by);
        }
        drop(code);
        found.map_or_else(|why| self.refuse(pc, why), |_| ());
    }

    /// Handles a system call of the program.
    fn syscall(&mut self, pc: u64, next: u64) {
        let state = self.state;
        let number = state.register(0);
        let arguments = [7, 6, 2, 10, 8, 9].map(|register| state.register(register));
        let first = arguments[0];
        self.pc = next;
        // As after `syscall`, rcx holds the next address and r11 the flags.
        state.set_register(1, next);
        state.set_register(11, state.get(FLAGS));
        self.note_outside();
        let call = tell::call_of(number, arguments);
        self.count_before_call(number, call.is_some());
        if !self.bare.is_on {
            self.recorder.mark();
        } else if matches!(
            number,
            nr::EXIT
                | nr::EXIT_GROUP
                | nr::EXECVE
                | nr::EXECVEAT
                | nr::FORK
                | nr::VFORK
                | nr::CLONE
        ) {
            self.report_left_out();
        }
        let file_call = if call.is_none() { self.begin_file_call(number, arguments) } else { None };
        let result = match number {
            nr::CLONE if Call::makes_thread(first) => self.begin_thread(pc, arguments),
            nr::CLONE | nr::FORK | nr::VFORK => self.fork(number, arguments),
            // The answer is that of an older kernel, on which programs use `clone`.
            nr::CLONE3 => sys::ENOSYS,
            nr::EXECVE | nr::EXECVEAT => self.execute(number, arguments),
            nr::EXIT if self.shared.threads.fetch_sub(1, Ordering::AcqRel) > 1 => {
                self.end_thread(arguments)
            }
            nr::EXIT | nr::EXIT_GROUP => {
                self.recorder.wait_for_pages();
                self.tell(
                    if number == nr::EXIT { Call::Exit } else { Call::ExitGroup },
                    arguments,
                    0,
                );
                self.recorder.end();
                sys::exit(first)
            }
            nr::RT_SIGACTION => self.signals.action(arguments),
            nr::RT_SIGPROCMASK => self.signals.procmask(arguments),
            nr::RT_SIGRETURN => return self.sigreturn(),
            nr::SIGALTSTACK => self.signals.altstack(arguments, state.register(4)),
            nr::SHMAT if arguments[2] & SHM_EXEC != 0 => {
                self.refuse(pc, "it runs code in shared memory")
            }
            nr::SECCOMP => self.do_without(pc, "it filters its own system calls (seccomp)"),
            nr::PRCTL if first == PR_SET_SECCOMP => {
                self.do_without(pc, "it filters its own system calls (seccomp)")
            }
            nr::PRCTL if first == PR_SET_TSC => {
                // After this call, the clock function in the vdso could fault.
                clock::leave();
                self.call(number, arguments)
            }
            nr::PRCTL if first == PR_SET_SYSCALL_USER_DISPATCH => self
                .do_without(pc, "it catches its own system calls (PR_SET_SYSCALL_USER_DISPATCH)"),
            nr::PERSONALITY
                if first & 0xffff_ffff != 0xffff_ffff && first & READ_IMPLIES_EXEC != 0 =>
            {
                self.refuse(pc, "it makes all of its memory executable (READ_IMPLIES_EXEC)")
            }
            nr::MLOCKALL => self.lock_all(arguments),
            nr::RSEQ if self.is_attached() => self.rseq(arguments),
            nr::RSEQ => sys::ENOSYS,
            nr::ARCH_PRCTL => self.arch_prctl(arguments),
            // The answer is the kernel's, which has no such option.
            _ if call == Some(Call::Marker) => sys::EINVAL,
            nr::RESTART_SYSCALL => self.call_again(arguments),
            _ => self.call_safely(number, arguments),
        };
        if result == sys::RESTART {
            // The pending signal is handled before the call.
            self.pc = pc;
            return;
        }
        self.interrupted = None;
        if !sys::is_error(result) {
            self.note_rights(number, arguments, result as u64);
        }
        state.set_register(0, result as u64);
        if let Some(begun) = file_call {
            self.end_file_call(begun, result);
        }
        let Some(call) = call else { return };
        let is_sign = self.is_awaited(call, arguments);
        if is_sign {
            self.report_left_out();
        }
        match Said::from_argument(arguments[1]).filter(|_| call == Call::Marker) {
            Some(said) => self.report(said, arguments),
            None => self.tell(call, arguments, result),
        }
        self.recorder.mark();
        if is_sign {
            self.sign_came(false);
        }
        if call == Call::Mmap && arguments[2] & sys::PROT_EXEC != 0 && arguments[4] as i32 >= 0 {
            self.ask_for_places();
        }
    }

    /// Handles `arch_prctl`: the program's base of `gs` is stored, as the processor's base is the
    /// engine's.
    fn arch_prctl(&mut self, arguments: [u64; 6]) -> i64 {
        let ([what, base, ..], state) = (arguments, self.state);
        match what {
            ARCH_SET_FS => {
                let result = self.call(nr::ARCH_PRCTL, arguments);
                if result == 0 {
                    state.set(FS_BASE, base);
                }
                result
            }
            ARCH_GET_FS => self.call(nr::ARCH_PRCTL, arguments),
            ARCH_SET_GS if base >= ADDRESSES_END => sys::EPERM,
            ARCH_SET_GS => {
                state.set(GS_BASE, base);
                0
            }
            ARCH_GET_GS if ways::write(base, &state.get(GS_BASE)) => 0,
            ARCH_GET_GS => sys::EFAULT,
            what if ARCH_SHADOW.contains(&what) => sys::EINVAL,
            _ => self.call(nr::ARCH_PRCTL, arguments),
        }
    }

    /// Updates which memory is executable after a system call that has changed mappings and
    /// returned `result`.
    fn note_rights(&mut self, number: u64, arguments: [u64; 6], result: u64) {
        const MREMAP_DONTUNMAP: u64 = 4;
        const MADV_DONTNEED: u64 = 4;
        const MADV_FREE: u64 = 8;
        const MADV_REMOVE: u64 = 9;
        let [first, second, third, fourth, ..] = arguments;
        match number {
            nr::MUNMAP | nr::MPROTECT | nr::PKEY_MPROTECT | nr::MREMAP => {
                clock::changed(first, second);
            }
            nr::MMAP => clock::changed(result, second),
            _ => {}
        }
        for code in self.shared.codes() {
            let mut code = code.lock();
            match number {
                nr::MMAP => code.mapped(result, second, third, is_shared(fourth)),
                nr::MUNMAP => code.mapped(first, second, 0, false),
                nr::MPROTECT | nr::PKEY_MPROTECT => code.set_rights(first, second, third),
                nr::MREMAP => {
                    let stays = fourth & MREMAP_DONTUNMAP != 0 || second == 0;
                    code.moved(first, second, result, third, stays);
                }
                nr::MADVISE if matches!(third, MADV_DONTNEED | MADV_FREE | MADV_REMOVE) => {
                    code.retire(first, first.saturating_add(second));
                }
                _ => {}
            }
        }
    }

    pub(crate) fn call(&mut self, number: u64, arguments: [u64; 6]) -> i64 {
        // SAFETY: the program requests the call. Calls that could harm the engine were handled
        // before.
        unsafe { ways::pagewalk_call(number, &arguments) }
    }

    fn decode(&self, pc: u64) -> Option<Whole> {
        // SAFETY: the code has been translated, so the bytes of its instruction can be read. The
        // decoder reads no others.
        let code = unsafe { core::slice::from_raw_parts(pc as *const u8, BYTES_MAX) };
        let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let mut bytes = [0; BYTES_MAX];
        let length = instruction.len();
        bytes[..length].copy_from_slice(&code[..length]);
        (!instruction.is_invalid()).then_some(Whole { instruction, bytes })
    }

    /// The number of a block at one instruction, of this number of instructions, whose accesses are recorded with
    /// tags.
    fn block_of(&mut self, pc: u64, bytes: u64, instructions: u32) -> u32 {
        let block = Block {
            pc,
            bytes: bytes as u32,
            instructions,
            accesses: 0,
            recorded: 0,
            tags: 0,
            pad: 0,
        };
        let code = self.shared.translator.lock();
        let number = self.recorder.append(block, &[], &[]);
        drop(code);
        match number {
            Some(number) => number,
            None => self.refuse(pc, "it has too many code blocks to record"),
        }
    }

    /// Executes a repeated instruction.
    fn repeat(&mut self, pc: u64) {
        let known = self.shared.known.lock().repeats.get(&pc).copied();
        if known.is_some_and(|(whole, ..)| !whole.is_there()) {
            self.shared.known.lock().repeats.remove(&pc);
            return self.begin_anew(pc);
        }
        let (whole, kind, numbers) = match known {
            Some(known) => known,
            None => {
                let found = self.decode(pc);
                let found = found.and_then(|whole| Some((whole, Kind::of(&whole.instruction)?)));
                let Some((whole, kind)) = found else {
                    self.refuse(pc, "it runs a rep instruction with a segment or 32-bit registers")
                };
                let bytes = whole.instruction.len() as u64;
                let numbers = [1, 0].map(|instructions| self.block_of(pc, bytes, instructions));
                self.shared.known.lock().repeats.insert(pc, (whole, kind, numbers));
                (whole, kind, numbers)
            }
        };
        let next = whole.instruction.next_ip();
        let state = self.state;
        self.pc = pc;
        if state.register(1) == 0 && self.counter.is_on() {
            let piece = Piece { elements: 0, ..Piece::first(pc, next - pc) };
            self.count_piece(piece, [None; 3]);
            self.pc = next;
            return;
        }
        if state.register(1) == 0 {
            if !library::holds(pc) {
                self.recorder.put(&[Record::control(Control::Block, numbers[0].into()).0]);
            }
            self.pc = next;
            return;
        }
        let mut is_first = self.bare.repeated.take() != Some(pc);
        loop {
            let all = state.register(1);
            if state.get(PENDING) != 0 {
                return;
            }
            let count = all.min(PIECE / kind.count());
            let (rsi, rdi) = (state.register(6), state.register(7));
            let more = all - count;
            let bytes = next - pc;
            self.repeat = Some(Repeat { kind, numbers, bytes, is_first, count, more, rsi, rdi });
            is_first = false;
            // SAFETY: the program makes these accesses, and a fault is detected.
            let left = unsafe { kind.execute(state, count) };
            let (rsi, rdi) = (state.register(6), state.register(7));
            self.repeat_ends(left, rsi, rdi, None);
            const ZERO: u64 = 1 << 6;
            let is_equal = state.get(FLAGS) & ZERO != 0;
            let goes_on = !kind.compares() || left == 0 && is_equal != kind.until_equal();
            if more == 0 || !goes_on {
                self.pc = next;
                return;
            }
        }
    }

    /// The instruction at `pc`, to which bare code has come, and its kind if it is repeated. `None` if it is another one
    /// than before, or none that the engine supports.
    fn known_bare(&mut self, pc: u64) -> Option<(Whole, Option<Kind>)> {
        let known = self.shared.known.lock().bare.get(&pc).copied();
        if let Some(known) = known {
            if known.0.is_there() {
                return Some(known);
            }
            self.shared.known.lock().bare.remove(&pc);
            return None;
        }
        let Some(whole) = self.decode(pc) else {
            self.refuse(pc, "it runs an unknown instruction")
        };
        let known = (whole, Kind::of(&whole.instruction));
        self.shared.known.lock().bare.insert(pc, known);
        Some(known)
    }

    /// Executes a repeated instruction in bare code.
    fn repeat_bare(&mut self, pc: u64) {
        let Some((whole, kind)) = self.known_bare(pc) else { return self.begin_anew(pc) };
        let Some(kind) = kind else {
            self.refuse(pc, "it runs a rep instruction with a segment or 32-bit registers")
        };
        let (next, state) = (whole.instruction.next_ip(), self.state);
        let is_counted = !library::holds(pc);
        let fetch = u64::from(self.recorder.session().fetches != 0);
        self.pc = pc;
        let mut is_first = true;
        loop {
            let all = state.register(1);
            if state.get(PENDING) != 0 {
                return;
            }
            let count = all.min(PIECE / kind.count());
            let accesses = count * kind.count() + if is_first { fetch } else { 0 };
            if is_counted && !self.may_leave_out(accesses.max(1)) {
                self.bare.repeated = (!is_first).then_some(pc);
                return;
            }
            if all == 0 {
                if is_counted {
                    self.bare.add(fetch, 1);
                }
                self.pc = next;
                return;
            }
            let (rsi, rdi, more) = (state.register(6), state.register(7), all - count);
            let (bytes, numbers) = (next - pc, [0; 2]);
            self.repeat = Some(Repeat { kind, numbers, bytes, is_first, count, more, rsi, rdi });
            is_first = false;
            // SAFETY: the program makes these accesses, and a fault is detected.
            let left = unsafe { kind.execute(state, count) };
            let (rsi, rdi) = (state.register(6), state.register(7));
            self.repeat_ends(left, rsi, rdi, None);
            const ZERO: u64 = 1 << 6;
            let is_equal = state.get(FLAGS) & ZERO != 0;
            let goes_on = !kind.compares() || left == 0 && is_equal != kind.until_equal();
            if more == 0 || !goes_on {
                self.pc = next;
                return;
            }
        }
    }

    /// Counts the accesses of an instruction that is about to be executed in bare code. Returns
    /// false if the instruction must not be executed now.
    fn assist_bare(&mut self, pc: u64) -> bool {
        let Some((Whole { instruction, .. }, _)) = self.known_bare(pc) else {
            self.begin_anew(pc);
            return false;
        };
        let accesses = match self.assisted_accesses(&instruction) {
            Ok(accesses) => accesses,
            Err(why) => self.refuse(pc, why),
        };
        if !library::holds(pc) {
            let fetch = u64::from(self.recorder.session().fetches != 0);
            let all = fetch + accesses.iter().map(|&(_, tag)| rows(tag)).sum::<u64>();
            if !self.may_leave_out(all.max(1)) {
                return false;
            }
            self.bare.add(all, 1);
        }
        if instruction.mnemonic() == Mnemonic::Wrfsbase {
            self.state.set(FS_BASE, assist::value(self.state, instruction.op0_register()));
        }
        true
    }

    /// The addresses and tags of the accesses of an instruction that is about to be executed.
    fn assisted_accesses(
        &mut self,
        instruction: &Instruction,
    ) -> Result<Vec<(u64, u16)>, &'static str> {
        let used = self.factory.info(instruction).used_memory();
        let vectors = || self.signals.vectors();
        let word = |address: u64| {
            let mut word = 0;
            if ways::read(address, &mut word) { word } else { 0 }
        };
        assist::accesses(instruction, used, self.state, vectors, word)
    }

    /// Records a piece of a repeated instruction, which has ended with these rcx, rsi and rdi,
    /// maybe by a fault.
    pub(crate) fn repeat_ends(&mut self, rcx: u64, rsi: u64, rdi: u64, fault: Option<u64>) {
        let Some(repeat) = self.repeat.take() else { return };
        let state = self.state;
        state.set_register(1, rcx + repeat.more);
        state.set_register(6, rsi);
        state.set_register(7, rdi);
        const DOWN: u64 = 1 << 10;
        let is_down = state.get(FLAGS) & DOWN != 0;
        let step = if is_down { repeat.kind.size.wrapping_neg() } else { repeat.kind.size };
        let (from, of, to) = repeat.kind.accesses();
        let size = (repeat.kind.size.trailing_zeros() as u16) << Tag::SIZE_SHIFT;
        let (rsi, rdi) = (repeat.rsi, repeat.rdi);
        let count = repeat.count - rcx;
        if count == 0 && !repeat.is_first && fault.is_none() || library::holds(self.pc) {
            return;
        }
        if self.bare.is_on {
            let first = u64::from(repeat.is_first);
            let fetch = first * u64::from(self.recorder.session().fetches != 0);
            return self.bare.add(fetch + count * repeat.kind.count(), first);
        }
        if self.counter.is_on() {
            let kinds = [
                (of, repeat.rdi, Tag::LOAD),
                (from, repeat.rsi, Tag::LOAD),
                (to, repeat.rdi, Tag::STORE),
            ];
            let pointers = kinds.map(|(is_made, address, bits)| {
                is_made.then_some(Pointer { address, tag: Tag(size | bits) })
            });
            let (is_first, elements) = (repeat.is_first, count);
            let first = Piece::first(self.pc, repeat.bytes);
            let piece = Piece { is_first, is_down, elements, fault, ..first };
            return self.count_piece(piece, pointers);
        }
        // Both compared operands are read in the order in which QEMU reads them.
        let kinds = [(of, rdi, Tag::LOAD), (from, rsi, Tag::LOAD), (to, rdi, Tag::STORE)];
        let mut made = [(0, 0); 2];
        let used = kinds.into_iter().filter(|(is_made, ..)| *is_made);
        let places = made.iter_mut().zip(used).map(|(place, (_, address, bits))| {
            *place = (address, size | bits);
        });
        let places = places.count();
        let elements = Elements { places: &mut made[..places], step };
        self.record_elements(repeat, elements, count, fault);
    }

    /// Records `count` elements of a repeated instruction, and the accesses of one more before a fault.
    fn record_elements(
        &mut self,
        repeat: Repeat,
        mut elements: Elements<'_>,
        count: u64,
        fault: Option<u64>,
    ) {
        let (mut left, mut is_first) = (count, repeat.is_first);
        // A fault may have interrupted the allocator, so nothing is allocated here.
        let per_strip = STRIP / elements.places.len() as u64;
        while fault.is_none() && left >= per_strip {
            let Some(number) = self.strip(repeat, &elements, is_first) else { break };
            let mut words = [Record::fixed(number, elements.places.len() as u8).0, 0, 0];
            words[1..].iter_mut().zip(&*elements.places).for_each(|(word, place)| *word = place.0);
            self.recorder.put(&words[..1 + elements.places.len()]);
            elements.advance(per_strip);
            (left, is_first) = (left - per_strip, false);
        }
        if left == 0 && fault.is_none() && !is_first {
            return;
        }
        // If a `rep` instruction is recorded in several pieces, only the first piece has the fetch.
        let control = if is_first { Control::Block } else { Control::Context };
        let number = repeat.numbers[usize::from(!is_first)];
        self.recorder.reserve(2 + 2 * (1 + left) as usize);
        self.recorder.put(&[Record::control(control, number.into()).0]);
        for _ in 0..left {
            elements.places.iter().for_each(|&(at, tag)| self.recorder.access(at, tag));
            elements.advance(1);
        }
        // Of the faulting element, only the accesses before the fault are recorded. A fault without
        // an address does not show which these are.
        let Some(fault) = fault.filter(|&fault| fault != 0) else { return };
        let is_before = |&&(at, _): &&(u64, u16)| fault.wrapping_sub(at) >= repeat.kind.size;
        for &(at, tag) in elements.places.iter().take_while(is_before) {
            self.recorder.access(at, tag);
        }
    }

    /// The number of the fixed block of a repeated instruction's next [`STRIP`] accesses, with the instruction itself if
    /// they are the first. `None` if no number is free.
    fn strip(&mut self, repeat: Repeat, elements: &Elements<'_>, is_first: bool) -> Option<u32> {
        let key = (repeat.numbers[0], elements.step);
        let index = usize::from(!is_first);
        let known = self.shared.known.lock().strips.get(&key).copied().unwrap_or_default();
        if known[index].is_some() {
            return known[index];
        }
        let places = elements.places.len();
        let of = |at: u64| (at / places as u64, at as usize % places);
        let tags: Vec<u16> = (0..STRIP).map(|at| elements.places[of(at).1].1).collect();
        let derived = (0..STRIP).map(of).map(|(element, place)| {
            let distance = elements.step.wrapping_mul(element);
            (element > 0).then(|| Derived::new(place as u16, distance))
        });
        let derived: Vec<Option<Derived>> = derived.collect();
        let block = Block {
            pc: self.pc,
            bytes: repeat.bytes as u32,
            instructions: u32::from(is_first),
            accesses: STRIP as u32,
            recorded: places as u32,
            tags: 0,
            pad: 0,
        };
        let code = self.shared.translator.lock();
        let number = self.recorder.append(block, &tags, &derived);
        drop(code);
        let mut known = self.shared.known.lock();
        known.strips.entry(key).or_default()[index] = number;
        number
    }

    /// Records the accesses of an instruction that is about to be executed and whose addresses only
    /// the engine can compute.
    fn assist(&mut self, pc: u64) {
        let known = self.shared.known.lock().assists.get(&pc).copied();
        let (Whole { instruction, .. }, number) = match known {
            Some(known) => known,
            None => {
                let Some(whole) = self.decode(pc) else {
                    self.refuse(pc, "it runs an unknown instruction")
                };
                let number = self.block_of(pc, whole.instruction.len() as u64, 1);
                self.shared.known.lock().assists.insert(pc, (whole, number));
                (whole, number)
            }
        };
        let state = self.state;
        if instruction.mnemonic() == Mnemonic::Wrfsbase {
            state.set(FS_BASE, assist::value(state, instruction.op0_register()));
        }
        if library::holds(pc) {
            self.assisted_at = self.recorder.at();
            return;
        }
        match self.assisted_accesses(&instruction) {
            Ok(accesses) if self.counter.is_on() => {
                self.count_assisted(pc, instruction.len() as u64, &accesses);
            }
            Ok(accesses) => self.assisted_at = self.recorder.block(number, &accesses),
            Err(why) => self.refuse(pc, why),
        }
    }
}
