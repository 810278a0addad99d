//! What user mode comes back with.

use addr::Kind;

/// Why user mode has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trap {
    /// It calls the kernel.
    Call,
    /// A page is missing, or its rights.
    Page(Fault),
    /// Its turn is over.
    Timer,
    /// Another processor wants something.
    Poke,
    /// What no program may do: the processor's number for it.
    Wrong(u64),
}

/// An access that could not be translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Its address.
    pub at: u64,
    /// What was tried.
    pub kind: Kind,
}

/// A call as the registers have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Which.
    pub number: u64,
    /// Its arguments; those that it has not are any.
    pub arguments: [u64; 6],
}
