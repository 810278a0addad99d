//! A recorded program, as it appears to the code that records it from within its process.

/// The table by which a program's system calls are numbered. It depends on the instruction set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbers {
    /// The numbers of x86-64.
    X86_64 = 0,
    /// The numbers of i386.
    I386 = 1,
    /// Linux's generic numbers.
    Generic64 = 2,
    /// The numbers of 32-bit Arm.
    Arm = 3,
}

/// A program that is recorded.
pub trait Within {
    /// The table by which the program's system calls are numbered.
    fn numbers(&self) -> Numbers;
    /// Fills `to` from the memory at `address`. Returns false if a part of this memory cannot be
    /// read.
    fn read(&self, address: u64, to: &mut [u8]) -> bool;
}

/// The size of the program's addresses in bytes.
pub(crate) fn pointer_bytes(within: &impl Within) -> u64 {
    match within.numbers() {
        Numbers::I386 | Numbers::Arm => 4,
        Numbers::X86_64 | Numbers::Generic64 => 8,
    }
}

/// The program's word at `address`; 0 if it cannot be read.
pub(crate) fn word(within: &impl Within, address: u64) -> u64 {
    let mut word = [0; 8];
    let bytes = pointer_bytes(within) as usize;
    let is_read = within.read(address, &mut word[..bytes]);
    if is_read { u64::from_le_bytes(word) } else { 0 }
}
