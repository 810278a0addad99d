//! The flattened device tree, of which the kernel reads the command line and the size of memory (Devicetree
//! Specification 0.4, chapter 5).

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;

/// The value of `bootargs`, and the end of memory; empty and 0 if there is none.
///
/// # Safety
/// A device tree is at `tree`, and nobody changes it.
pub(super) unsafe fn read(tree: *const u8) -> (&'static str, u64) {
    // SAFETY: the caller's; the header says how long the tree is, and offsets lie in it.
    let whole = unsafe {
        let length = u32::from_be(tree.add(4).cast::<u32>().read());
        core::slice::from_raw_parts(tree, length as usize)
    };
    let line = find(whole, b"chosen", b"bootargs\0").and_then(|value| core::str::from_utf8(value).ok());
    // A start and a length, of two words each.
    let memory = find(whole, b"memory@", b"reg\0").and_then(|value| value.first_chunk::<16>());
    let end = memory.map_or(0, |value| {
        let both = u128::from_be_bytes(*value);
        (both >> 64) as u64 + both as u64
    });
    (line.unwrap_or("").trim_end_matches('\0'), end)
}

fn word(tree: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(tree.get(at..at + 4)?.try_into().ok()?))
}

/// The value of a property of the first node whose name begins like this.
fn find<'a>(tree: &'a [u8], node: &[u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut is_there = false;
    let mut at = word(tree, 8)? as usize;
    let names = word(tree, 12)? as usize;
    loop {
        let token = word(tree, at)?;
        at += 4;
        match token {
            BEGIN_NODE => {
                let length = tree.get(at..)?.iter().position(|&byte| byte == 0)?;
                is_there = tree[at..].starts_with(node);
                at += (length + 1).next_multiple_of(4);
            }
            PROPERTY => {
                let (length, offset) = (word(tree, at)? as usize, word(tree, at + 4)? as usize);
                let value = tree.get(at + 8..at + 8 + length)?;
                if is_there && tree.get(names + offset..)?.starts_with(name) {
                    return Some(value);
                }
                at += 8 + length.next_multiple_of(4);
            }
            END_NODE | NOP => {}
            _ => return None,
        }
    }
}
