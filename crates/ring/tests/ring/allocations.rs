//! Tests the events of an allocation: the calls that the frames of the stack contain, and the words
//! of the stack.

use ring::{EventCode, Numbers, Said, Within};

/// The address of the memory that is allocated.
const BLOCK: u64 = 0x9000;
const SMALL: u64 = 64;
const LARGE: u64 = 64 << 10;

/// A stack that begins at the address `start`. No other memory is mapped.
struct Stack {
    numbers: Numbers,
    start: u64,
    bytes: Vec<u8>,
}

impl Within for Stack {
    fn numbers(&self) -> Numbers {
        self.numbers
    }

    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let Some(from) = address.checked_sub(self.start) else { return false };
        let part = self.bytes.get(from as usize..).and_then(|rest| rest.get(..to.len()));
        part.inspect(|part| to.copy_from_slice(part)).is_some()
    }
}

fn wide(start: u64, words: &[u64]) -> Stack {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Stack { numbers: Numbers::X86_64, start, bytes }
}

/// The events of an allocation of `bytes` bytes in a function whose frame is `offset` bytes below `frame`.
fn events(stack: &Stack, bytes: u64, frame: u64, offset: u64) -> Vec<(EventCode, Vec<u64>)> {
    let mut found = Vec::new();
    let arguments = [0, offset << 8 | Said::Allocated as u64, BLOCK, bytes, frame, 0];
    Said::Allocated.report(stack, arguments, |code, parts| found.push((code, parts.concat())));
    found
}

#[test]
fn calls_are_followed_outwards_as_far_as_frames_ascend() {
    // Two frames. The outer frame refers to itself, which ends the search.
    let stack = wide(0x1ff0, &[0x1ff0 + 32, 0x401, 7, 7, 0x1ff0 + 32, 0x402]);
    let allocate = (EventCode::Allocate, vec![BLOCK, SMALL, 0x401, 0x402]);
    assert_eq!(events(&stack, SMALL, 0x1ff0, 0), [allocate]);
}

#[test]
fn a_program_of_32_bits_has_small_frames_and_its_stack_is_not_reported() {
    let words: [u32; 6] = [0x1ff0 + 16, 0x401, 7, 7, 0, 0x402];
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let stack = Stack { numbers: Numbers::Arm, start: 0x1ff0, bytes };
    let allocate = (EventCode::Allocate, vec![BLOCK, LARGE, 0x401, 0x402]);
    assert_eq!(events(&stack, LARGE, 0x1ff0, 0), [allocate]);
}

#[test]
fn frames_may_lie_below_their_pointers() {
    let stack = wide(0x1ff0, &[0, 0x401]);
    let allocate = (EventCode::Allocate, vec![BLOCK, SMALL, 0x401]);
    assert_eq!(events(&stack, SMALL, 0x2000, 16), [allocate]);
}

#[test]
fn the_stack_of_a_large_block_is_read_to_the_end_of_what_is_mapped() {
    let allocate = (EventCode::Allocate, vec![BLOCK, LARGE]);
    // Two words before the end of a page.
    let start = 0x3000 - 16;
    let found = events(&wide(start, &[1000, 0]), LARGE, start, 0);
    assert_eq!(found, [(EventCode::Stack, vec![start, 1000, 0]), allocate.clone()]);
    let found = events(&wide(start, &[]), LARGE, start, 0);
    assert_eq!(found, [(EventCode::Stack, vec![start]), allocate]);
}
