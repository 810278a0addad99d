//! The kernel's own instructions in an operation on a page table: computed from the work that the
//! operation really did, as for the refill handler.
//!
//! ```text
//!   system call or IPC --> per reference: place, load or store, test --> per page: TLB --> return
//! ```
//!
//! E99 §4.2 measures whole operations of the L4 kernel on the R4700 and does not print instruction
//! counts. It prints only the cost of entering and leaving the kernel (§3.1); all other numbers
//! here were counted for straightforward MIPS III code, one instruction per cycle. A load or store
//! itself is not included: its cycles are those of its reference. Nodes of mapping trees count as
//! in L4's mapping database: one cache line for each node, and the instructions to follow a pointer
//! to it.

/// Cycles to enter and leave the kernel for an operation on a task or a region: E99 §3.1, "<60
/// cycles" for a null system call.
pub(crate) const SYSTEM_CALL: u64 = 60;
/// Cycles of an IPC, which sends a mapping to another space: E99 §3.1, "<100 cycles" for a null
/// IPC.
pub(crate) const IPC: u64 = 100;
/// Instructions per reference that reads an entry: shift the address or the hash to an offset (1),
/// mask it (1), add it (1), test the loaded value (1), branch (1).
pub(crate) const READ: u64 = 5;
/// Instructions per reference that writes: mask the old value (1), insert the new one (1).
pub(crate) const WRITE: u64 = 2;
/// Instructions for initialising 32 bytes by four stores, besides the stores: the next address (1),
/// branch (1).
const CLEAR: u64 = 2;
const CLEAR_BYTES: u64 = 32;
/// Instructions per page that must be flushed from the TLB: move the page's number and the ASID to
/// the register that a probe compares (2), probe (1), wait two slots and read the result (3),
/// branch if the TLB does not have the page (1). In most cases the TLB does not have the page,
/// since it holds at most 48 pairs (MIPS R4000 User's Manual, ch. 4).
pub(crate) const FORGET_PAGE: u64 = 7;
/// Instructions per node of a mapping tree: test whether the node belongs to the page (2), compare
/// its depth with that of the previous node (2), next node (1), branch (1).
pub(crate) const NODE: u64 = 6;
/// Instructions per range: compute its end (1), and test that it consists of whole pages (2).
pub(crate) const RANGE: u64 = 3;

/// Instructions of a loop that initialises this many bytes.
pub(crate) fn initialise(bytes: u64) -> u64 {
    bytes.div_ceil(CLEAR_BYTES) * CLEAR
}
