//! Events that contain text, and the event that begins a thread.

use ring::EventCode;

use crate::span;

/// The maximum length of the text of an event in bytes. Longer texts are truncated.
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

/// Appends an event: the calling thread begins.
pub(crate) fn thread_start(vcpu: u32) {
    // SAFETY: the call has no arguments and cannot fail.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    span::event(vcpu, EventCode::ThreadStart, &[&[tid]]);
    span::mark(vcpu, true);
}

/// Appends a note that is shown to people who use the trace.
pub(crate) fn note(vcpu: u32, what: &str) {
    text(vcpu, EventCode::Note, &[], what.as_bytes());
}
