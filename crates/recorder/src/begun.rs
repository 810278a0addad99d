//! A call on files, or one that blocks, from its beginning to its end ([`crate::files`]).

/// A call in progress.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) number: i64,
    /// The index of the system call in the table of calls.
    pub(crate) known: usize,
    pub(crate) arguments: [u64; 6],
    pub(crate) began_ns: u64,
    pub(crate) offset: u64,
    /// The state of the call's first descriptor before the call.
    pub(crate) first: Option<Told>,
}

/// The recorded data of a descriptor: number, mode and flags, device, inode, bytes.
pub(crate) type Told = [u64; 5];
