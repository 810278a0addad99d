//! The kernel's own instructions on the way of an operation on a page table: counted from what
//! the operation really did, as those of the refill handler are.
//!
//! ```text
//!   system call or IPC --> per reference: place, load or store, test --> per page: TLB --> return
//! ```
//!
//! E99 §4.2 measures whole operations of the L4 kernel on the R4700 and prints no count of
//! instructions. What it does print is the price of the way in and out (§3.1); all else here is
//! counted for straightforward MIPS III code, one instruction per cycle. A load or store itself is
//! not among them: its cycles are those of its reference. Nodes of mapping trees count as L4's mapping
//! database does: a line each, and the instructions that follow a pointer to it.

/// In and out of the kernel for an operation on a task or on a region: E99 §3.1, "<60 cycles" for a
/// null system call.
pub(crate) const SYSTEM_CALL: u64 = 60;
/// A mapping is sent by IPC: E99 §3.1, "<100 cycles" for a null IPC.
pub(crate) const IPC: u64 = 100;
/// A reference that reads an entry: shift the address or the hash to an offset (1), mask it (1),
/// add it (1), test what was loaded (1), branch (1).
pub(crate) const READ: u64 = 5;
/// A reference that writes: mask what was there (1), put in what is new (1).
pub(crate) const WRITE: u64 = 2;
/// Initialising 32 bytes by four stores: the next address (1), branch (1).
const CLEAR: u64 = 2;
const CLEAR_BYTES: u64 = 32;
/// A page that the TLB must forget: its number and the ASID into the register that is compared
/// (2), probe (1), two slots until the result can be read and reading it (3), branch if the page is
/// not there (1), as it mostly is not: at most 48 pairs are (MIPS R4000 User's Manual, ch. 4).
pub(crate) const FORGET_PAGE: u64 = 7;
/// A node of a mapping tree: is it the page's (2), is it deeper than the one before (2), the next
/// one (1), branch (1).
pub(crate) const NODE: u64 = 6;
/// A range: its end (1), and whether it is whole pages (2).
pub(crate) const RANGE: u64 = 3;

/// Instructions of a loop that initialises so many bytes.
pub(crate) fn initialise(bytes: u64) -> u64 {
    bytes.div_ceil(CLEAR_BYTES) * CLEAR
}
