//! What the program's translated code and the engine share, at the base of `gs`.
//!
//! ```text
//!   gs:0       registers of the program while the engine runs, and those whose place is taken
//!   gs:0x1000  the page of the session with the thread's cursor (`ring::Next`)
//!   gs:0x2000  65,536 addresses: where to look for the target of an indirect branch
//! ```
//!
//! A register's slot is its place while the engine runs. In translated code each register is itself, but for
//! r11, which points to where the block writes its record, and r10, which is scratch: the program's own
//! are in their slots. A block that uses r10 or r11 gives these two tasks to registers that it does not use.

/// Slots of the sixteen registers, as the processor numbers them.
pub(crate) const REGS: i32 = 0;
/// The flags.
pub(crate) const FLAGS: i32 = 0x80;
/// Where the engine's stack begins.
pub(crate) const ENGINE_RSP: i32 = 0x88;
/// Which exit was taken.
pub(crate) const EXIT: i32 = 0x90;
/// r10 at the exit: the target of an indirect branch.
pub(crate) const TARGET: i32 = 0x98;
/// The address in translated code at which to go on.
pub(crate) const ENTER: i32 = 0xa0;
/// Where the next record is written.
pub(crate) const RING: i32 = 0xa8;
/// rcx, while a target is looked up.
pub(crate) const RCX: i32 = 0xb0;
/// The program's base of `fs`.
pub(crate) const FS_BASE: i32 = 0xb8;
/// Not 0 if a signal waits to be delivered.
pub(crate) const PENDING: i32 = 0xc0;
/// An indirect branch's target, while registers are put back.
pub(crate) const HELD: i32 = 0xc8;
/// The program's base of `gs`; the processor's own is the engine's.
pub(crate) const GS_BASE: i32 = 0xd0;
/// The cursor of the thread.
pub(crate) const NEXT: i32 = 0x1000;
/// Where targets of indirect branches are looked up, by their lowest 16 bits.
pub(crate) const TABLE: i32 = 0x2000;
/// How many there are.
pub(crate) const TABLE_ENTRIES: usize = 1 << 16;
/// Bytes of all of it.
pub(crate) const BYTES: u64 = TABLE as u64 + 8 * TABLE_ENTRIES as u64;

/// The register that points to the record.
pub(crate) const RECORD: u8 = 11;
/// The register that is scratch.
pub(crate) const SCRATCH: u8 = 10;
/// The exit for an indirect branch whose target is not in the table.
pub(crate) const EXIT_INDIRECT: u32 = u32::MAX;

/// The exit because a signal came before translated code was entered.
pub(crate) const EXIT_AGAIN: u32 = u32::MAX - 1;
/// The exit from a signal's handler.
pub(crate) const EXIT_SIGNAL: u32 = u32::MAX - 2;

/// The state at an address, as `gs` has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State(pub(crate) u64);

impl State {
    /// The word at that offset.
    pub(crate) fn get(self, offset: i32) -> u64 {
        // SAFETY: the state is mapped for as long as the process lives, and offsets are those above.
        unsafe { ((self.0 + offset as u64) as *const u64).read_volatile() }
    }

    /// Makes it that.
    pub(crate) fn set(self, offset: i32, value: u64) {
        // SAFETY: as above.
        unsafe { ((self.0 + offset as u64) as *mut u64).write_volatile(value) };
    }

    /// A register of the program.
    pub(crate) fn register(self, number: u8) -> u64 {
        self.get(REGS + 8 * i32::from(number))
    }

    /// Makes it that.
    pub(crate) fn set_register(self, number: u8, value: u64) {
        self.set(REGS + 8 * i32::from(number), value);
    }
}
