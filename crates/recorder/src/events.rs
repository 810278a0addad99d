//! Events with text, and events of threads.

use ring::EventCode;

use crate::span;

/// The most bytes of text in one event; longer texts are truncated.
const TEXT_BYTES_MAX: usize = 6 << 10;

/// Appends an event that consists of `words`, the number of bytes of `text`, and the text.
pub(crate) fn text(vcpu: u32, code: EventCode, words: &[u64], text: &[u8]) {
    let text = &text[..text.len().min(TEXT_BYTES_MAX)];
    let mut packed = [0u64; TEXT_BYTES_MAX / 8];
    for (word, bytes) in packed.iter_mut().zip(text.chunks(8)) {
        let mut padded = [0u8; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    let packed = &packed[..text.len().div_ceil(8)];
    span::event(vcpu, code, &[words, &[text.len() as u64], packed]);
}

/// Appends the event that the calling thread begins.
pub(crate) fn thread_start(vcpu: u32) {
    // SAFETY: takes nothing and cannot fail.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    span::event(vcpu, EventCode::ThreadStart, &[&[tid]]);
    span::mark(vcpu, true);
}

/// Appends a note for the reader of the trace.
pub(crate) fn note(vcpu: u32, what: &str) {
    text(vcpu, EventCode::Note, &[], what.as_bytes());
}
