//! Signals: what the engine's handler does at once, and the frames for the program's handlers.
//!
//! ```text
//!   a fault of the program     state, from the block's table -> the record is cut -> its handler's frame
//!   another signal             is kept; the ring is hidden, so that the next store of a record faults
//!   that fault                 state, as above -> frame
//!   a fault in the guard page  the ring moves on
//! ```
//!
//! The engine's handler is installed for all signals that the program handles, and for those that faults
//! raise. A signal during the engine's own code is kept until translated code would be entered. Frames are
//! those of Linux: `rt_sigframe` of arch/x86/kernel/signal_64.c, with the processor's registers as saved by
//! `xsave`.

use crate::detour;
use crate::lock::Locked;
use crate::run::Engine;
use crate::state::{ALIGNMENT, FLAGS, HELD, PENDING, RECORD, SCRATCH};
use crate::sys::{self, nr};
use crate::vectors::Vectors;
use crate::{own, translate, ways};

/// The code of a SIGTRAP that makes a thread leave translated code ([`crate::evict`]); its value is [`ring::PARKS`].
pub(crate) const SI_QUEUE: i32 = -1;
/// The highest signal number.
pub(crate) const SIGNALS: usize = 64;
pub(crate) const SIGILL: u32 = 4;
pub(crate) const SIGTRAP: u32 = 5;
pub(crate) const SIGBUS: u32 = 7;
pub(crate) const SIGFPE: u32 = 8;
pub(crate) const SIGKILL: u32 = 9;
pub(crate) const SIGSEGV: u32 = 11;
const SIGCHLD: u32 = 17;
const SIGCONT: u32 = 18;
const SIGURG: u32 = 23;
const SIGWINCH: u32 = 28;
/// The signals that faults raise, one bit each: they are never blocked.
pub(crate) const FAULTS: u64 =
    bit(SIGILL) | bit(SIGTRAP) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGSEGV);

/// The signals that end a process by default, but for those that faults raise and SIGKILL. SIGSTOP, SIGTSTP,
/// SIGTTIN and SIGTTOU stop it.
const ENDING: u64 = !(FAULTS
    | bit(SIGKILL)
    | bit(SIGCHLD)
    | bit(SIGCONT)
    | bit(SIGURG)
    | bit(SIGWINCH)
    | bit(19)
    | bit(20)
    | bit(21)
    | bit(22));

const SA_SIGINFO: u64 = 4;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTORER: u64 = 0x0400_0000;
/// The flag of an action by which the kernel makes interrupted calls again.
pub(crate) const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
/// The flags that the kernel itself evaluates: SA_NOCLDSTOP, SA_NOCLDWAIT, SA_RESTART.
const SA_KERNEL: u64 = 1 | 2 | SA_RESTART;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;

const SS_ONSTACK: u64 = 1;
const SS_DISABLE: u64 = 2;
const SS_AUTODISARM: u64 = 1 << 31;
const MINSIGSTKSZ: u64 = 2048;

/// The size in bytes of the stack for the engine's handler.
const STACK_BYTES: u64 = 256 << 10;
/// The size in bytes of the red zone: memory below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// The offset in the `xsave` area of Linux's description of the area, and its magic words.
const SW_RESERVED: usize = 464;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// The number of bytes that `fxsave` saves.
const FXSAVE_BYTES: u64 = 512;

/// The bit of a signal in a mask.
pub(crate) const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// `struct sigaction` of the kernel.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Action {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: u64,
}

/// `siginfo_t`.
pub(crate) type Info = [u64; 16];

/// The registers of `struct sigcontext` in this order, then its other fields.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Registers {
    general: [u64; 16],
    pub(crate) rip: u64,
    pub(crate) flags: u64,
    segments: u64,
    error: u64,
    trap: u64,
    old_mask: u64,
    address: u64,
    pub(crate) floating: u64,
    reserved: [u64; 8],
}

/// The index in [`Registers::general`] of the register of that number.
const ORDER: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];

/// `ucontext`.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Context {
    flags: u64,
    link: u64,
    /// The alternate stack: address, flags, bytes.
    stack: [u64; 3],
    pub(crate) registers: Registers,
    mask: u64,
}

impl Context {
    /// The value of a general register.
    pub(crate) fn register(&self, number: u8) -> u64 {
        self.registers.general[ORDER[usize::from(number)]]
    }

    /// Sets a general register.
    pub(crate) fn set_register(&mut self, number: u8, value: u64) {
        self.registers.general[ORDER[usize::from(number)]] = value;
    }
}

/// `rt_sigframe`, without the return address before it.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Frame {
    end: u64,
    pub(crate) context: Context,
    info: Info,
}

/// A signal for the program that has come.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Came {
    pub(crate) signal: u32,
    pub(crate) info: Info,
    error: u64,
    trap: u64,
    address: u64,
    /// Whether the signal is a fault of the program's current instruction.
    pub(crate) is_fault: bool,
}

impl Came {
    /// A fault at `pc`, as reported by the kernel.
    pub(crate) fn fault(signal: u32, code: u64, address: u64, trap: u64, error: u64) -> Came {
        let mut info = [0; 16];
        info[0] = signal.into();
        info[1] = code;
        info[2] = address;
        Came { signal, info, error, trap, address, is_fault: true }
    }
}

/// The program's actions, by the number of the signal.
pub(crate) struct Actions([Action; SIGNALS + 1], bool);

impl Default for Actions {
    fn default() -> Actions {
        Actions([Action::default(); SIGNALS + 1], false)
    }
}

/// A thread's settings for signals, and the signals that were delivered to it and are not handled
/// yet.
pub(crate) struct Signals {
    actions: &'static Locked<Actions>,
    pub(crate) mask: u64,
    /// The program's alternate stack for handlers: address, flags, bytes.
    stack: [u64; 3],
    /// The number of bytes that `xsave` writes, and the features that it saves.
    floating_bytes: u64,
    features: u64,
    /// The address of an aligned area for `xsave`.
    area: u64,
    /// The address of the stack for the engine's handler.
    handler_stack: u64,
    /// The signal that waits.
    pending: Option<Came>,
    /// The fault whose handler is called next.
    fault: Option<Came>,
}

impl Signals {
    /// Those of a program's first thread. Installs the engine's handler for all signals that faults raise.
    /// If it ran before, `given` is its mask, and its alternate stack and handlers are taken over.
    pub(crate) fn new(actions: &'static Locked<Actions>, given: Option<u64>) -> Option<Signals> {
        let level = core::arch::x86_64::__cpuid_count(0xd, 0);
        let mut signals = Signals {
            actions,
            mask: 0,
            stack: [0, SS_DISABLE, 0],
            floating_bytes: level.ebx.into(),
            features: u64::from(level.eax) | u64::from(level.edx) << 32,
            area: own::private(u64::from(level.ebx) + 64 + 4)?,
            handler_stack: own::private(STACK_BYTES)?,
            pending: None,
            fault: None,
        };
        if given.is_some() {
            signals.take_alternate();
        }
        signals.stack_for_handlers();
        let mut actions = actions.lock();
        // SAFETY: the structures belong to the engine.
        unsafe {
            let mask = &raw mut signals.mask as u64;
            sys::call(nr::RT_SIGPROCMASK, [0, 0, mask, 8, 0, 0]);
            for signal in 1..=SIGNALS {
                let old = &raw mut actions.0[signal] as u64;
                sys::call(nr::RT_SIGACTION, [signal as u64, 0, old, 8, 0, 0]);
            }
        }
        if given.is_some() {
            for signal in 1..=SIGNALS as u32 {
                let action = actions.0[signal as usize];
                if action.handler > SIG_IGN {
                    take_over(signal, &action, false);
                }
            }
        }
        drop(actions);
        for signal in (1..=SIGNALS as u32).filter(|&signal| FAULTS & bit(signal) != 0) {
            set_action(signal, &own(0));
        }
        match given {
            // The mask is set when all threads have entered the engine.
            Some(mask) => signals.mask = mask,
            None => signals.set_mask(signals.mask),
        }
        Some(signals)
    }

    /// The signal state of a new thread that this thread starts.
    pub(crate) fn of_thread(&self) -> Option<Signals> {
        Some(Signals {
            actions: self.actions,
            mask: self.mask,
            stack: [0, SS_DISABLE, 0],
            floating_bytes: self.floating_bytes,
            features: self.features,
            area: own::private(self.floating_bytes + 64 + 4)?,
            handler_stack: own::private(STACK_BYTES)?,
            pending: None,
            fault: None,
        })
    }

    /// Resets the settings of a thread that has ended, for a new thread with this mask.
    pub(crate) fn renew(&mut self, mask: u64) {
        self.mask = mask;
        self.stack = [0, SS_DISABLE, 0];
        (self.pending, self.fault) = (None, None);
    }

    /// Makes this thread handle signals.
    pub(crate) fn begin(&mut self) {
        self.stack_for_handlers();
        self.set_mask(self.mask);
    }

    /// Makes this thread of a process that ran before handle signals.
    pub(crate) fn begin_attached(&mut self) {
        self.take_alternate();
        self.begin();
    }

    /// Takes over the program's alternate stack from the kernel.
    fn take_alternate(&mut self) {
        let to = self.stack.as_mut_ptr() as u64;
        // SAFETY: writes `stack_t`.
        unsafe { sys::call(nr::SIGALTSTACK, [0, to, 0, 0, 0, 0]) };
        self.stack[1] &= 0xffff_ffff & !SS_ONSTACK;
    }

    /// The program's alternate stack.
    pub(crate) fn alternate(&self) -> [u64; 3] {
        self.stack
    }

    /// The address of the program's actions, by the number of the signal.
    pub(crate) fn actions_at(&self) -> u64 {
        self.actions.lock().0.as_ptr() as u64
    }

    /// Sets the stack of the engine's handler for this thread.
    fn stack_for_handlers(&self) {
        let stack = [self.handler_stack, 0, STACK_BYTES];
        // SAFETY: the memory of the stack is never unmapped.
        unsafe { sys::call(nr::SIGALTSTACK, [stack.as_ptr() as u64, 0, 0, 0, 0, 0]) };
    }

    /// Sets the program's mask of blocked signals.
    pub(crate) fn set_mask(&mut self, mask: u64) {
        self.mask = mask & !(bit(SIGKILL) | bit(19));
        self.set_real_mask(self.mask & !FAULTS);
    }

    /// Handles `rt_sigprocmask` of the program.
    pub(crate) fn procmask(&mut self, arguments: [u64; 6]) -> i64 {
        let [how, set, old, bytes, ..] = arguments;
        if bytes != 8 {
            return sys::EINVAL;
        }
        let (before, mut given) = (self.mask, 0u64);
        if set != 0 {
            if !ways::read(set, &mut given) {
                return sys::EFAULT;
            }
            let mask = match how {
                0 => before | given,
                1 => before & !given,
                2 => given,
                _ => return sys::EINVAL,
            };
            self.set_mask(mask);
        }
        if old != 0 && !ways::write(old, &before) { sys::EFAULT } else { 0 }
    }

    /// Handles `rt_sigaction` of the program.
    pub(crate) fn action(&mut self, arguments: [u64; 6]) -> i64 {
        let [signal, new, old, bytes, ..] = arguments;
        let is_fixed = new != 0 && (signal == 9 || signal == 19);
        if bytes != 8 || !(1..=SIGNALS as u64).contains(&signal) || is_fixed {
            return sys::EINVAL;
        }
        let mut actions = self.actions.lock();
        let before = actions.0[signal as usize];
        let mut action = Action::default();
        if new != 0 {
            if !ways::read(new, &mut action) {
                return sys::EFAULT;
            }
            actions.0[signal as usize] = action;
            take_over(signal as u32, &action, actions.1);
        }
        drop(actions);
        if old != 0 && !ways::write(old, &before) { sys::EFAULT } else { 0 }
    }

    /// Handles `sigaltstack` of the program, whose stack pointer is `rsp`.
    pub(crate) fn altstack(&mut self, arguments: [u64; 6], rsp: u64) -> i64 {
        const ENOMEM: i64 = -12;
        let [new, old, ..] = arguments;
        let mut before = self.stack;
        if self.is_on_stack(rsp) {
            before[1] |= SS_ONSTACK;
        }
        let mut given = [0u64; 3];
        if new != 0 {
            if !ways::read(new, &mut given) {
                return sys::EFAULT;
            }
            given[1] &= 0xffff_ffff;
            let mode = given[1] & !SS_AUTODISARM;
            if self.is_on_stack(rsp) {
                return sys::EPERM;
            }
            if mode & !(SS_ONSTACK | SS_DISABLE) != 0 {
                return sys::EINVAL;
            }
            if mode & SS_DISABLE != 0 {
                given = [0, SS_DISABLE, 0];
            } else if given[2] < MINSIGSTKSZ {
                return ENOMEM;
            }
            given[1] &= !SS_ONSTACK;
            self.stack = given;
        }
        if old != 0 && !ways::write(old, &before) { sys::EFAULT } else { 0 }
    }

    fn is_on_stack(&self, rsp: u64) -> bool {
        self.stack[1] & (SS_DISABLE | SS_AUTODISARM) == 0
            && rsp.wrapping_sub(self.stack[0]).wrapping_sub(1) < self.stack[2]
    }

    /// The program's current vector registers.
    pub(crate) fn vectors(&self) -> Vectors {
        let area = self.area.next_multiple_of(64) as *mut u8;
        // SAFETY: the area has room for all that the processor saves.
        unsafe { area.add(FXSAVE_BYTES as usize).write_bytes(0, 64) };
        ways::save(area);
        Vectors::new(area)
    }

    /// Saves the processor's vector and floating-point registers, in the form that a frame has them. Returns
    /// the address.
    pub(crate) fn save(&self) -> *mut u8 {
        let (area, bytes) = (self.area.next_multiple_of(64) as *mut u8, self.floating_bytes);
        // SAFETY: the area has room for all that the processor saves and a word, and the words are inside.
        unsafe {
            area.add(FXSAVE_BYTES as usize).write_bytes(0, 64);
            ways::save(area);
            let words = area.add(SW_RESERVED);
            words.write_bytes(0, 48);
            words.cast::<u32>().write(MAGIC1);
            words.add(4).cast::<u32>().write(bytes as u32 + 4);
            words.add(8).cast::<u64>().write_unaligned(self.features);
            words.add(16).cast::<u32>().write(bytes as u32);
            area.add(bytes as usize).cast::<u32>().write_unaligned(MAGIC2);
        }
        area
    }

    /// Restores in the kernel the program's setting for signals that the program ignores, because
    /// the next program inherits this setting. If `is_all` is true, restores the program's settings
    /// for all signals. Until [`Signals::take_back`], the program must not fault.
    pub(crate) fn give_back(&self, is_all: bool) {
        for signal in 1..=SIGNALS as u32 {
            let action = &self.action_for(signal);
            let is_inherited = FAULTS & bit(signal) != 0 && action.handler == SIG_IGN;
            if is_all || is_inherited {
                set_action(signal, action);
            }
        }
    }

    /// Takes the signals that faults raise over from the kernel again, after [`Signals::give_back`].
    pub(crate) fn take_back(&self) {
        for signal in (1..=SIGNALS as u32).filter(|&signal| FAULTS & bit(signal) != 0) {
            set_action(signal, &own(0));
        }
        self.set_real_mask(self.mask & !FAULTS);
    }

    /// Sets the kernel's mask of blocked signals.
    pub(crate) fn set_real_mask(&self, mask: u64) {
        const SIG_SETMASK: u64 = 2;
        // SAFETY: the mask is a variable of this function.
        unsafe { sys::call(nr::RT_SIGPROCMASK, [SIG_SETMASK, &raw const mask as u64, 0, 8, 0, 0]) };
    }

    /// Sets the fault that is to be delivered next.
    pub(crate) fn set_fault(&mut self, came: Came) {
        self.fault = Some(came);
    }

    /// The signal that is to be delivered now.
    pub(crate) fn take(&mut self) -> Option<Came> {
        self.fault.take().or_else(|| self.pending.take())
    }

    /// Whether a signal waits.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// With `takes`, the engine itself ends the process at a signal that ends it, so that counted accesses are
    /// reported before. Otherwise the kernel ends the process.
    pub(crate) fn take_ends(&self, takes: bool) {
        let mut actions = self.actions.lock();
        actions.1 = takes;
        for signal in (1..=SIGNALS as u32).filter(|&signal| ENDING & bit(signal) != 0) {
            if actions.0[signal as usize].handler == SIG_DFL {
                take_over(signal, &actions.0[signal as usize], takes);
            }
        }
    }

    fn action_for(&self, signal: u32) -> Action {
        self.actions.lock().0[signal as usize]
    }

    fn handles(&self, signal: u32) -> bool {
        self.action_for(signal).handler > SIG_IGN
    }
}

/// Tells the kernel how to handle a signal that the program handles by `action`.
fn take_over(signal: u32, action: &Action, takes_ends: bool) {
    if FAULTS & bit(signal) != 0 {
        return;
    }
    match action.handler {
        SIG_DFL if takes_ends && ENDING & bit(signal) != 0 => set_action(signal, &own(0)),
        SIG_DFL | SIG_IGN => {
            let flags = action.flags & SA_KERNEL;
            set_action(signal, &Action { flags, mask: 0, restorer: 0, ..*action });
        }
        _ => set_action(signal, &own(action.flags & SA_KERNEL)),
    }
}

/// An action with the engine's handler.
fn own(flags: u64) -> Action {
    Action {
        handler: on_signal as *const () as u64,
        flags: flags | SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
        restorer: ways::handler_end(),
        mask: u64::MAX,
    }
}

fn set_action(signal: u32, action: &Action) {
    let action = action as *const Action as u64;
    // SAFETY: the handler is the engine's, or the kernel's default.
    unsafe { sys::call(nr::RT_SIGACTION, [signal.into(), action, 0, 8, 0, 0]) };
}

/// The engine's handler, for signals in translated code and in the engine.
extern "C" fn on_signal(signal: u32, info: *mut Info, context: *mut Context) {
    ways::allow_unaligned();
    // SAFETY: the kernel passes valid pointers. The engine is interrupted, so nothing else uses it
    // meanwhile.
    let (engine, info, context) = unsafe { (Engine::get(), &mut *info, &mut *context) };
    let rip = context.registers.rip;
    if signal == SIGTRAP && ways::is_behind_breakpoint(rip) {
        return;
    }
    let code = info[1] as i32;
    let is_fault = FAULTS & bit(signal) != 0 && code > 0;
    if signal == SIGTRAP && code == SI_QUEUE && info[3] == ring::PARKS {
        interrupt(engine, context);
        // The program does not see that this signal has ended its system call.
        const EINTR: i64 = -4;
        let is_ended = rip == ways::called() && context.register(0) as i64 == EINTR;
        if is_ended && !engine.signals.has_pending() {
            context.registers.rip = ways::again();
        }
        return;
    }
    if !is_fault {
        return keep(engine, signal, info, context);
    }
    let address = info[2];
    let came = Came {
        signal,
        info: *info,
        error: context.registers.error,
        trap: context.registers.trap,
        address: context.registers.address,
        is_fault: true,
    };
    // After a breakpoint, rip is the address behind the instruction.
    let is_behind = signal == SIGTRAP && rip.wrapping_sub(1) != 0;
    let at = rip.wrapping_sub(is_behind.into());
    if translate::holds(at) {
        if engine.resolve_counted(context, at, address) || engine.resolve_bare(context, at, address)
        {
            return;
        }
        let is_store = signal == SIGSEGV && engine.recorder.holds(address);
        if is_store && engine.recorder.is_hidden {
            engine.recorder.show();
            if engine.state.get(PENDING) != 0 {
                settle(engine, context, at, None);
            }
            return;
        }
        let is_full = is_store && engine.recorder.is_guard(address);
        let found = if is_full { engine.code().find(at) } else { None };
        if let Some(found) = found {
            let record = &mut context.registers.general[ORDER[usize::from(found.block.record)]];
            *record = engine.recorder.next_span(*record);
            // The change is made only at the beginning of a block; inside a block, the rest would
            // become a different block.
            if engine.leaves_recorded() && found.before_record {
                interrupt(engine, context);
            }
            return;
        }
        if !is_store && settle(engine, context, at, Some(address)) {
            let mut came = came;
            if signal != SIGSEGV && signal != SIGBUS {
                came.info[2] = engine.pc;
            }
            engine.pc += u64::from(is_behind);
            engine.signals.fault = Some(came);
            return;
        }
    } else if let Some(to) = ways::failed(rip).or_else(|| detour::failed(rip)) {
        context.registers.rip = to;
        return;
    } else if engine.repeat.is_some() {
        let general = &context.registers.general;
        let [rcx, rsi, rdi] = [1, 6, 7].map(|number: usize| general[ORDER[number]]);
        engine.repeat_ends(rcx, rsi, rdi, Some(address));
        engine.signals.fault = Some(came);
        context.registers.rip = ways::resume();
        return;
    }
    let mut digits = [0; 18];
    let mut more = [0; 18];
    let offset = sys::hex(rip.wrapping_sub(engine.start.engine[0]), &mut digits);
    let address = sys::hex(address, &mut more);
    sys::say(&["pagewalk: the engine failed at ", offset, " for ", address, "\n"]);
    sys::exit(125);
}

/// Keeps a signal until translated code can be left.
fn keep(engine: &mut Engine, signal: u32, info: &Info, context: &mut Context) {
    let came = Came { signal, info: *info, ..Came::default() };
    engine.signals.pending = Some(came);
    context.mask |= !FAULTS;
    interrupt(engine, context);
}

/// Makes the engine be entered soon.
fn interrupt(engine: &mut Engine, context: &mut Context) {
    engine.state.set(PENDING, 1);
    let rip = context.registers.rip;
    let is_on_its_way = ways::is_entering(rip) || detour::is_returning(rip);
    if translate::holds(rip) || is_on_its_way {
        engine.recorder.hide();
    } else if let Some(to) = ways::not_called(rip) {
        context.registers.rip = to;
    }
}

/// Stores the program's registers in their slots, as they are at the instruction that the translated code at
/// `at` belongs to, and truncates the record there. The engine continues after the handler.
fn settle(engine: &mut Engine, context: &mut Context, at: u64, address: Option<u64>) -> bool {
    let code = engine.code();
    let Some(found) = code.find(at) else { return false };
    if engine.counter.is_on() {
        drop(code);
        engine.settle_counted(context, &found, address);
        return true;
    }
    if engine.bare.is_on {
        drop(code);
        engine.settle_bare(context, &found, address);
        return true;
    }
    let registers = &mut context.registers;
    let (state, block) = (engine.state, found.block);
    let slotted = if found.after { 1 << RECORD | 1 << SCRATCH } else { block.slotted };
    for number in 0..16u8 {
        if slotted >> number & 1 == 0 {
            state.set_register(number, registers.general[ORDER[usize::from(number)]]);
        }
    }
    state.set(FLAGS, registers.flags);
    // The engine itself continues without alignment checks.
    registers.flags &= !ALIGNMENT;
    let of = |number: u8| registers.general[ORDER[usize::from(number)]];
    let bytes = 8 * u64::from(block.words);
    if block.is_assisted() {
        let end = state.get(HELD);
        engine.recorder.cut_assisted(engine.assisted_at, end, address);
    } else if found.before_record || block.is_silent() {
        engine.recorder.moved(of(if found.after { RECORD } else { block.record }));
    } else {
        let record = if found.after { of(RECORD) - bytes } else { of(block.record) };
        let accesses = code.accesses(&block);
        let (mut told, mut made) = (0, 0);
        // If the fault has no address, or one that no access of the instruction has, the
        // instruction has made no access.
        let (mut told_before, mut made_before, mut is_found) = (0, 0, false);
        for access in accesses {
            let tag = ring::Tag(access.tag);
            let instruction = u32::from(tag.instruction());
            if instruction > found.instruction {
                break;
            }
            let start = match access.derived {
                None => word(record, 1 + told),
                Some(ring::Derived { from: 0, distance }) => block.pc.wrapping_add(distance),
                Some(ring::Derived { from, distance }) => {
                    word(record, from.into()).wrapping_add(distance)
                }
            };
            if instruction == found.instruction {
                let within = |address: u64| address.wrapping_sub(start) < tag.size().into();
                is_found = address.is_some_and(within);
                if is_found || address.is_none() {
                    break;
                }
            } else {
                (told_before, made_before) = (told + u32::from(access.derived.is_none()), made + 1);
            }
            told += u32::from(access.derived.is_none());
            made += 1;
        }
        if !is_found {
            (told, made) = (told_before, made_before);
        }
        engine.recorder.cut(record, block.words, told, made);
    }
    engine.pc = found.pc;
    registers.rip = ways::resume();
    true
}

fn word(record: u64, index: u32) -> u64 {
    // SAFETY: the record has as many words, in the view.
    unsafe { (record as *const u64).add(index as usize).read() }
}

impl Engine {
    /// Calls the program's handler for a signal that waits, if any; the process may end.
    pub(crate) fn deliver(&mut self) {
        while let Some(came) = self.signals.take() {
            self.bare.repeated = None;
            if self.signals.pending.is_none() {
                self.state.set(PENDING, 0);
            }
            self.deliver_one(came);
        }
        self.state.set(PENDING, 0);
    }

    fn deliver_one(&mut self, came: Came) {
        let Came { signal, .. } = came;
        let mask = self.signals.mask;
        let is_blocked = came.is_fault && mask & bit(signal) != 0;
        if !self.signals.handles(signal) || is_blocked {
            let is_ignored = self.signals.action_for(signal).handler == SIG_IGN
                || matches!(signal, SIGCHLD | SIGCONT | SIGURG | SIGWINCH);
            if came.is_fault || !is_ignored {
                self.die(signal);
            }
            return self.signals.set_mask(mask);
        }
        let action = self.signals.action_for(signal);
        self.end_interrupted(action.flags);
        if !self.frame(&came, &action) {
            self.die(SIGSEGV);
        }
        let own = if action.flags & SA_NODEFER != 0 { 0 } else { bit(signal) };
        self.signals.set_mask(mask | action.mask | own);
        if action.flags & SA_RESETHAND != 0 {
            let mut actions = self.signals.actions.lock();
            actions.0[signal as usize] = Action::default();
            take_over(signal, &Action::default(), actions.1);
        }
    }

    /// Builds the frame of a handler, and continues the program in the handler.
    fn frame(&mut self, came: &Came, action: &Action) -> bool {
        let state = self.state;
        let rsp = state.register(4);
        let stack = self.signals.stack;
        let is_on_stack = self.signals.is_on_stack(rsp);
        let mut top = rsp.wrapping_sub(RED_ZONE);
        if action.flags & SA_ONSTACK != 0 && stack[1] & SS_DISABLE == 0 && !is_on_stack {
            top = stack[0].wrapping_add(stack[2]);
        }
        let bytes = self.signals.floating_bytes;
        let floating = top.wrapping_sub(bytes + 4) & !63;
        let frame_at = (floating.wrapping_sub(size_of::<Frame>() as u64) & !15).wrapping_sub(8);
        let area = self.signals.save();
        if !ways::write_bytes(floating, area, bytes)
            || !ways::write(floating.wrapping_add(bytes), &MAGIC2)
        {
            return false;
        }
        let mut frame = self.context();
        (frame.end, frame.info) = (action.restorer, came.info);
        let registers = &mut frame.context.registers;
        registers.error = came.error;
        registers.trap = came.trap;
        registers.address = came.address;
        registers.floating = floating;
        if !ways::write(frame_at, &frame) {
            return false;
        }
        if stack[1] & SS_AUTODISARM != 0 {
            self.signals.stack = [0, SS_DISABLE, 0];
        }
        let info = frame_at + core::mem::offset_of!(Frame, info) as u64;
        let context = frame_at + core::mem::offset_of!(Frame, context) as u64;
        state.set_register(7, came.signal.into());
        state.set_register(6, info);
        state.set_register(2, context);
        state.set_register(0, 0);
        state.set_register(4, frame_at);
        // A handler begins with the direction, trap and resume flags cleared.
        state.set(FLAGS, state.get(FLAGS) & !(1 << 10 | 1 << 8 | 1 << 16));
        self.pc = action.handler;
        true
    }

    /// A frame with the program's registers, mask and alternate stack.
    pub(crate) fn context(&self) -> Frame {
        let mut frame = Frame::default();
        let registers = &mut frame.context.registers;
        for number in 0..16u8 {
            registers.general[ORDER[usize::from(number)]] = self.state.register(number);
        }
        registers.rip = self.pc;
        registers.flags = self.state.get(FLAGS);
        // All programs have 0x33 in cs and 0x2b in ss.
        registers.segments = 0x33 | 0x2b << 48;
        registers.old_mask = self.signals.mask;
        // UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS.
        frame.context.flags = 7;
        frame.context.stack = self.signals.stack;
        frame.context.mask = self.signals.mask;
        frame
    }

    /// Handles `rt_sigreturn` of the program: restores its registers from the frame.
    pub(crate) fn sigreturn(&mut self) {
        let rsp = self.state.register(4);
        let mut context = Context::default();
        if !ways::read(rsp, &mut context) {
            self.die(SIGSEGV);
        }
        let registers = &context.registers;
        for number in 0..16u8 {
            self.state.set_register(number, registers.general[ORDER[usize::from(number)]]);
        }
        // A handler can change the status, direction and alignment flags. The other flags keep
        // their values.
        const SETTABLE: u64 = 0xcd5 | 1 << 18 | 1 << 21;
        self.state.set(FLAGS, registers.flags & SETTABLE | 0x202);
        self.pc = registers.rip;
        let floating = registers.floating;
        if floating != 0 {
            let area = self.signals.area.next_multiple_of(64) as *mut u8;
            let mut is_there = ways::read_bytes(floating, area, FXSAVE_BYTES);
            // SAFETY: the words are inside the area.
            let (magic, bytes) = unsafe {
                let words = area.add(SW_RESERVED);
                (words.cast::<u32>().read(), words.add(16).cast::<u32>().read())
            };
            let is_whole = magic == MAGIC1 && u64::from(bytes) <= self.signals.floating_bytes;
            if is_whole {
                is_there &= ways::read_bytes(floating, area, bytes.into());
            }
            if !is_there || !ways::load(area, is_whole) {
                self.die(SIGSEGV);
            }
        }
        self.signals.set_mask(context.mask);
        let stack = context.stack;
        if !self.signals.is_on_stack(self.state.register(4)) {
            self.signals.stack = [stack[0], stack[1] & !SS_ONSTACK, stack[2]];
        }
    }

    /// Ends the process by the signal, as without the engine.
    pub(crate) fn die(&mut self, signal: u32) -> ! {
        self.settle_counts();
        self.report_left_out();
        self.recorder.end();
        set_action(signal, &Action::default());
        let none = 0u64;
        // SAFETY: the process ends here, so nothing is used after the call.
        unsafe {
            let set = &raw const none as u64;
            sys::call(nr::RT_SIGPROCMASK, [2, set, 0, 8, 0, 0]);
            let pid = sys::call(nr::GETPID, [0; 6]) as u64;
            sys::call(nr::KILL, [pid, signal.into(), 0, 0, 0, 0]);
        }
        sys::exit(128 + u64::from(signal))
    }
}
