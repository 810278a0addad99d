//! Going from block to block without a look-up.
//!
//! ```text
//!   the end of QEMU's list for a block      what is put there
//!   +-------------------------------+
//!   | pc = 0x401000                 |
//!   |                               |       goto_tb 0; exit_tb
//!   | lookup_tb_ptr; goto_ptr       |
//!   +-------------------------------+
//!   | pc = rax                      |
//!   |                               |       if [SLOT 0] = pc: goto_tb 0; exit_tb
//!   |                               |       if [SLOT 1] = pc: goto_tb 1; exit_tb
//!   |                               |       if [SLOT i] is free: [SLOT i] = pc; exit_tb
//!   | lookup_tb_ptr; goto_ptr       |
//!   +-------------------------------+
//! ```
//!
//! A block of QEMU's jumps straight to the next (`goto_tb`) only where both are in one page.
//! Everything else, a call into another page or a return, asks a function that finds the block
//! by the program counter, the flags of the CPU, and a table: 8 ns, and for a program of many
//! small functions most of what QEMU costs. But each block has two direct exits, and those that
//! it does not use can serve. The first time, such an exit leads to QEMU's main loop, which
//! finds the block and links the two; and whenever it throws the second away, since its page
//! was written or unmapped, it takes the link back.
//!
//! The exit of an indirect jump belongs to the first target it meets, whose address is kept in
//! a slot. Nearly nine of ten jumps of sqlite3 go to the first two targets. Two threads could
//! fill a slot at once, and the one's address would stand beside the other's link: so there are
//! slots only in code for a process with one thread ([`vcpu::is_alone`]).
//!
//! A link leaves out that the flags are compared, and so it must be a jump that cannot change
//! them. This is known of x86, where an instruction that does ends the block in another way,
//! but for far jumps: they have a helper.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::inline::Kept;
use crate::tcg::{Op, Tcg, Temp, Writer};
use crate::vcpu;

/// What `exit_tb` says in the lowest bits of the block's address: which exit, or that the block
/// was not begun (`TB_EXIT_REQUESTED`).
const EXIT_MASK: usize = 3;
/// The name of the function that looks blocks up.
const LOOK_UP: &CStr = c"lookup_tb_ptr";
/// Temporaries and constants that the exits of a block need.
const TEMPS: usize = 16;

/// Where slots are. What is not used of it takes no memory.
struct Slots(UnsafeCell<[u64; SLOTS_MAX]>);

const SLOTS_MAX: usize = 1 << 20;
/// No instruction is at this address, nor at that of 32 bits.
const FREE: u64 = u64::MAX;

// SAFETY: a slot is given to one block by the one thread that translates, and read and written
// by its code while there is one thread.
unsafe impl Sync for Slots {}

static SLOTS: Slots = Slots(UnsafeCell::new([0; SLOTS_MAX]));
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);

/// The address of a slot that is free.
fn new_slot() -> Option<u64> {
    let used = SLOTS_USED.load(Ordering::Relaxed);
    if used == SLOTS_MAX {
        return None;
    }
    SLOTS_USED.store(used + 1, Ordering::Relaxed);
    // SAFETY: inside the table; see `Slots`.
    unsafe {
        let slot = SLOTS.0.get().cast::<u64>().add(used);
        slot.write(FREE);
        Some(slot as u64)
    }
}

/// QEMU throws its translations away, and nothing uses the slots any more.
pub(crate) fn forget() {
    SLOTS_USED.store(0, Ordering::Relaxed);
}

/// Lets the block that is being translated go straight to those that follow, where that can be.
/// `kept` tells which of its instructions call helpers.
///
/// # Safety
///
/// In QEMU's callback for a translated block.
pub(crate) unsafe fn link(tcg: &Tcg, kept: &Kept) {
    // SAFETY: the operations are those of the block that is being translated.
    unsafe {
        let Some(mut exits) = Exits::survey(tcg) else { return };
        let mut indirect = None;
        let (mut instructions, mut is_constant) = (0usize, false);
        for op in tcg.ops() {
            if (*op).opcode() == tcg.opcodes.insn_start {
                instructions += 1;
            } else if !tcg.is_call(op, LOOK_UP) {
                is_constant = exits.is_constant_after(tcg, op, is_constant);
            } else if is_constant {
                exits.jump(tcg, op);
            } else if !kept.has(instructions.saturating_sub(1)) {
                indirect = Some(op);
            }
        }
        if let Some(op) = indirect.filter(|_| vcpu::is_alone()) {
            exits.jump_to_known(tcg, op);
        }
    }
}

/// The direct exits of a block.
struct Exits {
    /// QEMU's own address of the block.
    block: usize,
    /// Which of them the block leaves unused.
    free: [bool; 2],
    counter: Counter,
}

impl Exits {
    /// Of the block that is being translated; `None` if nothing is to be done with it.
    unsafe fn survey(tcg: &Tcg) -> Option<Exits> {
        let (mut block, mut free, mut counter) = (None, [true; 2], None);
        // SAFETY: as for `link`; the arguments are where these operations have them.
        unsafe {
            for op in tcg.ops() {
                let (code, argument) = ((*op).opcode(), (*op).args[0]);
                if code == tcg.opcodes.goto_tb {
                    *free.get_mut(argument)? = false;
                } else if code == tcg.opcodes.exit_tb && argument & EXIT_MASK == EXIT_MASK {
                    block = Some(argument - EXIT_MASK);
                } else if tcg.is_call(op, LOOK_UP) {
                    // Its result comes before its argument.
                    let environment = (*op).args[1];
                    counter = Some(Counter::find(environment)?);
                    if !tcg.has_temps(environment, TEMPS) {
                        return None;
                    }
                }
            }
        }
        Some(Exits { block: block?, free, counter: counter? })
    }

    /// Takes an exit that is free.
    fn take(&mut self) -> Option<usize> {
        let exit = self.free.iter().position(|&free| free)?;
        self.free[exit] = false;
        Some(exit)
    }

    /// Whether the program counter is a constant behind `op`, if it `was` before.
    unsafe fn is_constant_after(&self, tcg: &Tcg, op: *const Op, was: bool) -> bool {
        let codes = &tcg.opcodes;
        // SAFETY: as for `link`.
        unsafe {
            let code = (*op).opcode();
            if code == codes.call {
                was && !Tcg::may_access(op)
            } else if tcg.writes(op, self.counter.temp) {
                [codes.mov_i32, codes.mov_i64].contains(&code) && Temp::is_constant((*op).args[1])
            } else {
                was && !tcg.ends_basic_block(op)
            }
        }
    }

    /// A jump to the same block each time, before the look-up `op`.
    unsafe fn jump(&mut self, tcg: &Tcg, op: *mut Op) {
        if let Some(exit) = self.take() {
            let write = tcg.before(op);
            // SAFETY: as for `link`.
            unsafe {
                write.go_to_block(exit);
                write.leave(self.block + exit);
            }
        }
    }

    /// Jumps to the first targets that are met, before the look-up `op`.
    unsafe fn jump_to_known(&mut self, tcg: &Tcg, op: *mut Op) {
        let write = tcg.before(op);
        // SAFETY: as for `link`; a slot lives as long as the plugin.
        unsafe {
            let (seen, scratch) = (tcg.fresh_temp(), tcg.fresh_temp());
            let mut known = [None; 2];
            for known in &mut known {
                let Some(exit) = self.take() else { break };
                let Some(slot) = new_slot() else { break };
                *known = Some((exit, tcg.constant(slot)));
            }
            for (exit, slot) in known.into_iter().flatten() {
                let other = tcg.new_label();
                write.load(seen, slot);
                write.branch_unless_equal(seen, self.counter.read(&write, scratch), other);
                write.go_to_block(exit);
                write.leave(self.block + exit);
                write.label(other);
            }
            for (exit, slot) in known.into_iter().flatten() {
                let taken = tcg.new_label();
                write.load(seen, slot);
                write.branch_unless_equal(seen, tcg.constant(FREE), taken);
                write.store(self.counter.read(&write, scratch), slot, 0);
                write.leave(self.block + exit);
                write.label(taken);
            }
        }
    }
}

/// The temporary that is the guest's program counter.
struct Counter {
    temp: usize,
    is_narrow: bool,
}

impl Counter {
    /// By the names that QEMU has for it; `environment` is the first of all temporaries.
    unsafe fn find(environment: usize) -> Option<Counter> {
        // SAFETY: as for `link`.
        let named = |name| unsafe { Temp::named(environment, name) };
        let (wide, narrow) = (named(c"rip"), named(c"eip"));
        Some(Counter { temp: wide.or(narrow)?, is_narrow: wide.is_none() })
    }

    /// Its value as 64 bits, in `scratch` if need be.
    unsafe fn read(&self, write: &Writer, scratch: usize) -> usize {
        if !self.is_narrow {
            return self.temp;
        }
        // SAFETY: as for `link`.
        unsafe { write.extend(scratch, self.temp) };
        scratch
    }
}
