//! The engine's loop: what it does at each exit from translated code.

use core::ptr;

use alloc::collections::BTreeMap;
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic};
use ring::{Block, Call, Control, Record, Start, Tag};

use crate::insn::BYTES_MAX;
use crate::record::Recorder;
use crate::repeat::Kind;
use crate::signal::{Came, SIGSEGV, Signals};
use crate::state::{
    BYTES, ENGINE_RSP, ENTER, EXIT, EXIT_AGAIN, EXIT_INDIRECT, EXIT_SIGNAL, FLAGS, FS_BASE,
    GS_BASE, PENDING, State, TARGET,
};
use crate::sys::{self, nr};
use crate::translate::{Exit, Log, Translator};
use crate::{assist, tell, ways};

/// The size of the engine's stack in bytes.
const STACK_BYTES: u64 = 1 << 20;
/// The most accesses of a repeated instruction that are made together and recorded as one block: the host's
/// limit for a block.
const PIECE: u64 = 2000;
/// The address of the page that Linux provides for system calls of old programs.
const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;
/// The option of `prctl` that installs a filter of system calls.
const PR_SET_SECCOMP: u64 = 22;
/// The option of `prctl` that turns system calls into signals.
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
/// The bit of `personality` that makes all readable memory executable.
const READ_IMPLIES_EXEC: u64 = 0x0040_0000;
/// The end of the address range for programs.
const ADDRESSES_END: u64 = 0x7fff_ffff_f000;
const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;
/// The operations of `arch_prctl` for shadow stacks: `ARCH_SHSTK_*`.
const ARCH_SHADOW: core::ops::RangeInclusive<u64> = 0x5001..=0x5005;

/// The flag of `shmat` for executable memory.
const SHM_EXEC: u64 = 0o100000;

/// The state of the engine.
pub(crate) struct Engine {
    pub(crate) start: Start,
    pub(crate) state: State,
    pub(crate) translator: Translator,
    pub(crate) recorder: Recorder,
    pub(crate) signals: Signals,
    /// The address of the program's next instruction.
    pub(crate) pc: u64,
    /// The repeated instruction that is being executed, if any.
    pub(crate) repeat: Option<Repeat>,
    /// By address of a repeated instruction: its kind, the address of the next instruction, and the
    /// number of its block.
    repeats: BTreeMap<u64, (Kind, u64, u32)>,
    /// By address of an assisted instruction: the instruction, and the number of its block.
    assists: BTreeMap<u64, (Instruction, u32)>,
    factory: InstructionInfoFactory,
    /// The address of the record of the last assisted instruction.
    pub(crate) assisted_at: u64,
}

/// A repeated instruction that is being executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeat {
    kind: Kind,
    number: u32,
    is_first: bool,
    /// rcx before the elements that are executed now, and the number of elements after them.
    count: u64,
    more: u64,
    rsi: u64,
    rdi: u64,
}

static mut ENGINE: *mut Engine = ptr::null_mut();

/// Ends the process with a message, as the data in `start` is invalid.
fn stop(why: &str) -> ! {
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
    let Some(at) = sys::private(BYTES) else { stop("the system gives it no memory") };
    let state = State(at);
    // SAFETY: a new program has nothing at gs.
    unsafe { sys::call(nr::ARCH_PRCTL, [ARCH_SET_GS, at, 0, 0, 0, 0]) };
    let Some(stack) = sys::private(STACK_BYTES) else { stop("the system gives it no memory") };
    state.set(ENGINE_RSP, stack + STACK_BYTES - 64);
    state.set_register(4, start.rsp);
    state.set(FLAGS, start.flags);
    let recorder = match Recorder::enter(start.session.as_ptr(), state) {
        Ok(recorder) => recorder,
        Err(why) => stop(why),
    };
    let Some(signals) = Signals::new() else { stop("the system gives it no memory") };
    let engine = Engine {
        start,
        state,
        translator: Translator::new(state, ways::leave()),
        recorder,
        signals,
        pc: start.pc,
        repeat: None,
        repeats: BTreeMap::new(),
        assists: BTreeMap::new(),
        factory: InstructionInfoFactory::new(),
        assisted_at: 0,
    };
    let engine = alloc::boxed::Box::leak(alloc::boxed::Box::new(engine));
    // SAFETY: nobody else runs.
    unsafe { ENGINE = engine };
    engine.tell_mappings();
    engine.go_on();
    // SAFETY: everything is there.
    unsafe { ways::pagewalk_enter() }
}

/// Handles an exit from translated code.
pub(crate) extern "C" fn dispatch() {
    // SAFETY: it runs in the engine, once at a time.
    let engine = unsafe { Engine::get() };
    // A signal came to a block that left before its next store.
    if engine.recorder.is_hidden {
        engine.recorder.show();
    }
    engine.came_back();
    engine.go_on();
}

impl Engine {
    /// The engine.
    ///
    /// # Safety
    ///
    /// The engine has been initialised, and no other reference to it is used.
    pub(crate) unsafe fn get() -> &'static mut Engine {
        // SAFETY: the caller's.
        unsafe { &mut *ENGINE }
    }

    /// Prepares to enter translated code at the program's next instruction.
    fn go_on(&mut self) {
        if self.state.get(PENDING) != 0 {
            self.deliver();
        }
        match self.translator.lookup(self.pc, &mut self.recorder) {
            Ok(host) => self.state.set(ENTER, host),
            Err(why) => self.refuse(self.pc, why),
        }
    }

    fn refuse(&mut self, pc: u64, why: &str) -> ! {
        self.recorder.refuse(pc, why);
        sys::exit(125)
    }

    fn came_back(&mut self) {
        let number = self.state.get(EXIT) as u32;
        match number {
            EXIT_INDIRECT => {
                self.pc = self.state.get(TARGET);
                match self.translator.target(self.pc, &mut self.recorder) {
                    Ok(_) => {}
                    Err(why) => self.refuse(self.pc, why),
                }
                return;
            }
            EXIT_AGAIN | EXIT_SIGNAL => return self.deliver(),
            _ => {}
        }
        let Some(&exit) = self.translator.exits.get(number as usize) else {
            self.refuse(self.pc, "it came to an exit that is not there")
        };
        match exit {
            Exit::Link { at, stub, region, target } => {
                self.pc = target;
                let forgotten = self.translator.forgotten;
                match self.translator.lookup(target, &mut self.recorder) {
                    // Unless all was forgotten to make room.
                    Ok(host) if self.translator.forgotten == forgotten => {
                        self.translator.link(at, stub, region, host);
                    }
                    Ok(_) => {}
                    Err(why) => self.refuse(target, why),
                }
            }
            Exit::Syscall { pc, next } => self.syscall(pc, next),
            Exit::Repeat { pc } => self.repeat(pc),
            Exit::Assist { pc, body } => {
                self.pc = pc;
                if self.state.get(PENDING) != 0 {
                    return self.deliver();
                }
                self.assist(pc);
                self.state.set(ENTER, body);
                // SAFETY: the body is translated code; it goes on in the next block.
                unsafe { ways::pagewalk_enter() }
            }
            Exit::Unmapped { pc } => {
                self.pc = pc;
                if pc >= VSYSCALL {
                    self.refuse(pc, "it makes system calls through the vsyscall page");
                }
                const SEGV_MAPERR: u64 = 1;
                const PAGE_FAULT: u64 = 14;
                const USER_FETCH: u64 = 0x14;
                let came = Came::fault(SIGSEGV, SEGV_MAPERR, pc, PAGE_FAULT, USER_FETCH);
                self.signals.set_fault(came);
                self.deliver();
            }
            Exit::Refused { pc, why } => self.refuse(pc, why),
        }
    }

    /// Handles a system call of the program.
    fn syscall(&mut self, pc: u64, next: u64) {
        let state = self.state;
        let number = state.register(0);
        let arguments = [7, 6, 2, 10, 8, 9].map(|register| state.register(register));
        let first = arguments[0];
        self.pc = next;
        // What the kernel does to them.
        state.set_register(1, next);
        state.set_register(11, state.get(FLAGS));
        self.recorder.mark();
        let call = tell::call_of(number, arguments);
        let result = match number {
            nr::CLONE | nr::CLONE3 | nr::FORK | nr::VFORK => {
                self.refuse(pc, what_starts(number, first))
            }
            nr::EXECVE | nr::EXECVEAT => self.refuse(pc, "it executes another program"),
            nr::EXIT | nr::EXIT_GROUP => {
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
            nr::SECCOMP => self.refuse(pc, "it filters its own system calls (seccomp)"),
            nr::PRCTL if first == PR_SET_SECCOMP => {
                self.refuse(pc, "it filters its own system calls (seccomp)")
            }
            nr::PRCTL if first == PR_SET_SYSCALL_USER_DISPATCH => {
                self.refuse(pc, "it catches its own system calls (PR_SET_SYSCALL_USER_DISPATCH)")
            }
            nr::PERSONALITY
                if first & 0xffff_ffff != 0xffff_ffff && first & READ_IMPLIES_EXEC != 0 =>
            {
                self.refuse(pc, "it makes all of its memory executable (READ_IMPLIES_EXEC)")
            }
            nr::RSEQ => sys::ENOSYS,
            nr::ARCH_PRCTL => self.arch_prctl(arguments),
            _ => self.call(number, arguments),
        };
        if result == sys::RESTART {
            // A signal comes first.
            self.pc = pc;
            return;
        }
        if !sys::is_error(result) {
            self.note_rights(pc, number, arguments, result as u64);
        }
        state.set_register(0, result as u64);
        if let Some(call) = call {
            self.tell(call, arguments, result);
            self.recorder.mark();
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
    fn note_rights(&mut self, pc: u64, number: u64, arguments: [u64; 6], result: u64) {
        let [first, second, third, ..] = arguments;
        match number {
            nr::MMAP => {
                self.translator.set_rights(result, second, third);
            }
            nr::MUNMAP => {
                self.translator.set_rights(first, second, 0);
            }
            nr::MPROTECT | nr::PKEY_MPROTECT => {
                self.translator.set_rights(first, second, third);
            }
            nr::MREMAP if self.translator.set_rights(first, second, 0) => {
                self.refuse(pc, "it moves code that has run");
            }
            nr::SHMAT if third & SHM_EXEC != 0 => {
                self.refuse(pc, "it runs code in shared memory");
            }
            _ => {}
        }
    }

    fn call(&mut self, number: u64, arguments: [u64; 6]) -> i64 {
        // SAFETY: the program asks for it; what would harm the engine was seen before.
        unsafe { ways::pagewalk_call(number, &arguments) }
    }

    fn decode(&self, pc: u64) -> Option<Instruction> {
        // SAFETY: it was translated, so it can be read as far as it goes.
        let code = unsafe { core::slice::from_raw_parts(pc as *const u8, BYTES_MAX) };
        let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The number of a block of one instruction whose accesses are recorded with tags.
    fn block_of(&mut self, pc: u64, bytes: u64) -> u32 {
        let block = Block {
            pc,
            bytes: bytes as u32,
            instructions: 1,
            accesses: 0,
            recorded: 0,
            tags: 0,
            pad: 0,
        };
        match self.recorder.append(block, &[], &[]) {
            Some(number) => number,
            None => self.refuse(pc, "it has too many code blocks to record"),
        }
    }

    /// Executes a repeated instruction.
    fn repeat(&mut self, pc: u64) {
        let known = self.repeats.get(&pc).copied();
        let (kind, next, number) = match known {
            Some(known) => known,
            None => {
                let found = self.decode(pc);
                let Some((kind, next)) =
                    found.and_then(|insn| Some((Kind::of(&insn)?, insn.next_ip())))
                else {
                    self.refuse(pc, "it runs a rep instruction with a segment or 32-bit registers")
                };
                let number = self.block_of(pc, next - pc);
                self.repeats.insert(pc, (kind, next, number));
                (kind, next, number)
            }
        };
        let state = self.state;
        self.pc = pc;
        if state.register(1) == 0 {
            self.recorder.put(&[Record::control(Control::Block, number.into()).0]);
            self.pc = next;
            return;
        }
        let mut is_first = true;
        loop {
            let all = state.register(1);
            if state.get(PENDING) != 0 {
                return;
            }
            let count = all.min(PIECE / kind.count());
            let (rsi, rdi) = (state.register(6), state.register(7));
            let more = all - count;
            self.repeat = Some(Repeat { kind, number, is_first, count, more, rsi, rdi });
            is_first = false;
            // SAFETY: the program does so; a fault is seen.
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
        let (mut rsi, mut rdi) = (repeat.rsi, repeat.rdi);
        let count = repeat.count - rcx;
        if count == 0 && !repeat.is_first && fault.is_none() {
            return;
        }
        // Where a `rep` instruction is told in several pieces, only the first has its fetch.
        let control = if repeat.is_first { Control::Block } else { Control::Context };
        self.recorder.reserve(2 + 2 * (1 + count) as usize);
        self.recorder.put(&[Record::control(control, repeat.number.into()).0]);
        // What is compared is read in QEMU's order.
        let kinds = [(of, false, Tag::LOAD), (from, true, Tag::LOAD), (to, false, Tag::STORE)];
        for element in 0..count + u64::from(fault.is_some()) {
            for (_, is_source, bits) in kinds.into_iter().filter(|(is_made, ..)| *is_made) {
                let address = if is_source { rsi } else { rdi };
                let faults = |fault: u64| fault.wrapping_sub(address) < repeat.kind.size;
                // Of the element that faults, what was accessed before. A fault without an address tells nothing.
                if element == count && fault.is_none_or(|fault| faults(fault) || fault == 0) {
                    break;
                }
                self.recorder.access(address, size | bits);
            }
            (rsi, rdi) = (rsi.wrapping_add(step), rdi.wrapping_add(step));
        }
    }

    /// Records the accesses of an instruction that is about to be executed and whose addresses only
    /// the engine can compute.
    fn assist(&mut self, pc: u64) {
        let known = self.assists.get(&pc).copied();
        let (instruction, number) = match known {
            Some(known) => known,
            None => {
                let Some(instruction) = self.decode(pc) else {
                    self.refuse(pc, "it runs an unknown instruction")
                };
                let number = self.block_of(pc, instruction.len() as u64);
                self.assists.insert(pc, (instruction, number));
                (instruction, number)
            }
        };
        let state = self.state;
        if instruction.mnemonic() == Mnemonic::Wrfsbase {
            state.set(FS_BASE, assist::value(state, instruction.op0_register()));
        }
        let used = self.factory.info(&instruction).used_memory();
        let (vectors, saved_bytes) = (|| self.signals.vectors(), self.signals.saved_bytes());
        match assist::accesses(&instruction, used, state, vectors, saved_bytes) {
            Ok(accesses) => self.assisted_at = self.recorder.block(number, &accesses),
            Err(why) => self.refuse(pc, why),
        }
    }
}

/// The reason why the system call of that number, with the first argument `first`, is refused: what
/// it would start.
fn what_starts(number: u64, first: u64) -> &'static str {
    let flags = match number {
        nr::CLONE => Some(first),
        nr::CLONE3 => {
            let mut flags = 0u64;
            ways::read(first, &mut flags);
            Some(flags)
        }
        _ => None,
    };
    if flags.is_some_and(Call::makes_thread) {
        "it starts a second thread"
    } else {
        "it starts another process"
    }
}
