//! The reasons for a return from user mode.

use addr::Kind;

/// Why user mode was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trap {
    /// A system call.
    Call,
    /// A page fault.
    Page(Fault),
    /// The end of the thread's turn.
    Timer,
    /// A request of another processor.
    Poke,
    /// An illegal operation: the processor's number of the exception.
    Wrong(u64),
}

/// An access that could not be translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The address.
    pub at: u64,
    /// The kind of access.
    pub kind: Kind,
}

/// A system call, from the registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The number of the call.
    pub number: u64,
    /// The arguments; those that the call does not have are arbitrary.
    pub arguments: [u64; 6],
}
