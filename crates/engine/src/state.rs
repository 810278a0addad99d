//! The data that translated code and the engine share, at the base of `gs`.
//!
//! ```text
//!   gs:0       registers of the program while the engine runs, and those whose place is taken
//!   gs:0x1000  the page of the session with the header of the thread's ring and its cursor (`ring::Next`)
//!   gs:0x2000  65,536 addresses: where to look for the target of an indirect branch
//!   gs:0x82000 the same for code that records nothing ([`crate::bare`])
//! ```
//!
//! While the engine runs, each register of the program is in its slot. In translated code each register
//! holds its own value, except two: r11 points to the block's record, and r10 is scratch; the program's r11
//! and r10 are in their slots. A block that uses r10 or r11 gives these two tasks to registers that it does
//! not use.

/// The slots of the sixteen registers, by the processor's numbers.
pub(crate) const REGS: i32 = 0;
/// The slot of the flags.
pub(crate) const FLAGS: i32 = 0x80;
/// The flag by which unaligned accesses fault. Programs set it; the engine makes unaligned accesses.
pub(crate) const ALIGNMENT: u64 = 1 << 18;
/// The slot of the engine's initial stack pointer.
pub(crate) const ENGINE_RSP: i32 = 0x88;
/// The slot of the number of the exit that was taken.
pub(crate) const EXIT: i32 = 0x90;
/// The slot of r10 at the exit: the target of an indirect branch.
pub(crate) const TARGET: i32 = 0x98;
/// The slot of the address at which translated code is entered.
pub(crate) const ENTER: i32 = 0xa0;
/// The slot of the address of the next record.
pub(crate) const RING: i32 = 0xa8;
/// The slot of rcx while a target is looked up.
pub(crate) const RCX: i32 = 0xb0;
/// The slot of the program's base of `fs`.
pub(crate) const FS_BASE: i32 = 0xb8;
/// Not 0 if a signal waits to be delivered.
pub(crate) const PENDING: i32 = 0xc0;
/// The slot of an indirect branch's target while registers are restored.
pub(crate) const HELD: i32 = 0xc8;
/// The slot of the program's base of `gs`: the processor's own base register holds the engine's base.
pub(crate) const GS_BASE: i32 = 0xd0;
/// The slot of the address of the thread's engine.
pub(crate) const SELF: i32 = 0xd8;
/// 1 from a thread's end on, until it uses its memory no more.
pub(crate) const IS_THERE: i32 = 0xe0;
/// 1 while the thread holds no address of translated code: see [`crate::evict`].
pub(crate) const IS_SAFE: i32 = 0xe8;
/// The thread's identifier.
pub(crate) const TID: i32 = 0xf0;
/// What is needed to put the thread back into a program to which the host has attached.
pub(crate) const OUTSIDE: i32 = ring::Outside::AT as i32;
const _: () = assert!(GS_BASE as usize == ring::Outside::GS_AT);
const _: () = assert!(TID as usize == ring::Outside::TID_AT);
/// The page of the session with the header of the thread's ring.
pub(crate) const RING_PAGE: i32 = 0x1000;
/// The thread's cursor.
pub(crate) const NEXT: i32 = RING_PAGE + core::mem::offset_of!(ring::Ring, next) as i32;
/// The table of targets of indirect branches, indexed by their lowest 16 bits.
pub(crate) const TABLE: i32 = 0x2000;
/// The number of entries of that table.
pub(crate) const TABLE_ENTRIES: usize = 1 << 16;
/// The table of targets of indirect branches for code that records nothing.
pub(crate) const BARE_TABLE: i32 = TABLE + 8 * TABLE_ENTRIES as i32;
/// The size of the shared data in bytes.
pub(crate) const BYTES: u64 = BARE_TABLE as u64 + 8 * TABLE_ENTRIES as u64;

/// The register that points to the record.
pub(crate) const RECORD: u8 = 11;
/// The scratch register.
pub(crate) const SCRATCH: u8 = 10;
/// The exit for an indirect branch whose target is not in the table.
pub(crate) const EXIT_INDIRECT: u32 = u32::MAX;

/// The exit for a signal that was delivered just before translated code was entered.
pub(crate) const EXIT_AGAIN: u32 = u32::MAX - 1;
/// The exit from the engine's signal handler.
pub(crate) const EXIT_SIGNAL: u32 = u32::MAX - 2;

/// The address of the data that the engine shares with translated code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State(pub(crate) u64);

impl State {
    /// The word at this offset.
    pub(crate) fn get(self, offset: i32) -> u64 {
        // SAFETY: the state is mapped until the process ends, and `offset` is one of the offsets
        // above.
        unsafe { ((self.0 + offset as u64) as *const u64).read_volatile() }
    }

    /// Sets the word at this offset.
    pub(crate) fn set(self, offset: i32, value: u64) {
        // SAFETY: as above.
        unsafe { ((self.0 + offset as u64) as *mut u64).write_volatile(value) };
    }

    /// The value of a register of the program.
    pub(crate) fn register(self, number: u8) -> u64 {
        self.get(REGS + 8 * i32::from(number))
    }

    /// Sets a register of the program.
    pub(crate) fn set_register(self, number: u8, value: u64) {
        self.set(REGS + 8 * i32::from(number), value);
    }
}
