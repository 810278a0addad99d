//! The records of regions that grow downwards ([`super::stack`]).

use alloc::vec::Vec;
use core::ops::Range;

use addr::VirtAddr;

/// How far a stack may grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    /// The lowest address that the stack may have.
    pub lowest: VirtAddr,
    /// The size of the gap below the stack, in bytes, in which no other region may allow accesses.
    pub gap_bytes: u64,
}

/// A stack of a space, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stack {
    /// The first page of its present region, and the page after the last one.
    pub(crate) pages: [u64; 2],
    pub(crate) lowest: u64,
    pub(crate) gap: u64,
}

/// Records that `pages` no longer belong to any of these stacks.
pub(crate) fn cut(stacks: &mut Vec<Stack>, pages: &Range<u64>) {
    for stack in stacks.iter_mut() {
        let [bottom, top] = stack.pages;
        if pages.start <= bottom && bottom < pages.end {
            // The upper part remains, and can still grow.
            stack.pages[0] = pages.end;
        } else if bottom < pages.start && pages.start < top {
            stack.pages[1] = pages.start;
        }
    }
    stacks.retain(|stack| stack.pages[0] < stack.pages[1]);
}
