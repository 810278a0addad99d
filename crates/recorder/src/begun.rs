//! A call on files, or one that blocks, from its begin to its end ([`crate::files`]).

/// A call that a thread is in.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) number: i64,
    /// Index in the table of calls.
    pub(crate) known: usize,
    pub(crate) arguments: [u64; 6],
    pub(crate) began_ns: u64,
    pub(crate) offset: u64,
    /// What its first descriptor was before it.
    pub(crate) first: Option<Told>,
}

/// What is recorded of a descriptor: number, mode and flags, device, inode, bytes.
pub(crate) type Told = [u64; 5];
