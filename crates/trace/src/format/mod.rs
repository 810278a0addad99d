//! The trace format, versions 1 to 3, in enough detail to write another reader.
//!
//! ```text
//!   file   = magic  version  HEAD  CHNK*  INDX  TAIL
//!
//!   magic     8 bytes   89 50 57 54 0d 0a 1a 0a
//!   version   u32       1
//!   frame     4 bytes   its type, in ASCII
//!             u32       bytes of the body
//!             u32       CRC-32 (IEEE) of type, length and body
//!             body
//! ```
//!
//! Numbers are little-endian. A *varint* has 7 bits per byte, low ones first, and bit 7 says that
//! another byte follows; it has at most 10 bytes. *Zigzag* maps 0, -1, 1, -2 to 0, 1, 2, 3.
//!
//! * **HEAD**: a [`crate::Header`] as JSON.
//! * **PROC**: a [`crate::Process`] as JSON, in recordings only.
//! * **CHNK**: some accesses with all that is needed to read them, see below.
//! * **INDX**: 24 bytes per chunk, in their order: u32 bytes of the frame, u32 its CRC, u32
//!   accesses, u32 events, u64 instructions. The chunks follow the HEAD without gaps.
//! * **TAIL**: u64 offset of the INDX frame. It ends the file. A file without a complete TAIL is
//!   truncated: its chunks are valid up to the first incomplete frame.
//!
//! The *digest* of a trace is the SHA-256 of everything before the first chunk, followed by
//! length and CRC (as in the frame) of every chunk.
//!
//! # A recording of processes
//!
//! ```text
//!   file   = magic  version 3  HEAD  (PROC | CHNK)*  INDX  TAIL
//! ```
//!
//! Version 2 differs only in that no chunk has links.
//!
//! A PROC frame comes before the first chunk of its process. A process may have further PROC
//! frames, with more information; the last of them is valid. Processes are numbered from 0 without
//! gaps, parents before their children. Each chunk belongs to one process, and the index of its
//! first access counts the accesses of that process only. The flags of the chunk have bit 1 set.
//! Its seven u32 are followed by u32 number of the process, u32 stamps, u64 nanoseconds of the last
//! stamp before the chunk. Its seven streams are followed by an eighth stream:
//!
//! 8. **stamps**. Each: varint accesses since the stamp before (or the chunk's first), varint
//!    nanoseconds since the stamp before. All accesses of the process before a stamp were made by
//!    the time of the stamp. All processes use one clock. The file has no other information on the
//!    order of accesses of different processes.
//!
//! An INDX has 48 bytes a PROC or CHNK frame: the 24 above (a PROC frame has no accesses, events and instructions),
//! u32 1 for a PROC frame and 0 for a chunk, u32 number of the process, u32 CRC of a chunk's stored streams without
//! events, stamps and translations, u32 CRC of its events, u64 nanoseconds of the last stamp before it. For the CRC
//! of the events, everything that differs from one recording of a program to the next is left out of the events
//! ([`crate::Event`]): numbers of processes and threads, identities of files, all of a call, all translations.
//!
//! The digest is the SHA-256 of everything before the first PROC frame, followed by four u32 for
//! every chunk: its process, its accesses, and the two CRCs. For the digest,
//! chunks are sorted by the numbers of their processes; in the file they are in the order in which
//! they became full. So two recordings of equal accesses have equal digests.
//!
//! # A chunk
//!
//! The rows of a chunk come from *executions* of *local shapes*. A shape says which rows an
//! execution gives: kinds, sizes, instruction counts and the address of the fetch. Executions
//! add the addresses of loads and stores.
//!
//! ```text
//!   sequence    0  1  1  2  1          one local shape per execution
//!   dictionary  [0: fetch load]  [1: fetch load store]  [2: fetch]
//!   codes         1   0 0   0 2   3 0                  one per load or store, if coded
//!   residual      a       b b c c c                    as many bytes as the codes say
//! ```
//!
//! The body begins with u64 index of the first access, u64 instructions, then seven u32: accesses,
//! executions, operations (loads and stores whose addresses are coded), local shapes, segments,
//! events, flags (bit 0: the chunk has physical addresses; bit 2: its dictionary has links; bit 3:
//! it has translations; bit 4: pages of page tables and their entries are among them). If bit 3 is set, u32 number of translations follows (after the numbers
//! that bit 1 adds), and there is one more stream at the end. Then, for each of seven streams, u32
//! its bytes and u32 the bytes that are stored; then the stored bytes of the streams in the same
//! order. A stream whose two lengths are equal is stored uncompressed; any other stream is stored
//! as a zstd frame. A reader refuses a chunk with a flag that it does not know.
//!
//! 1. **dictionary**. Local shapes are numbered from 0 in the order in which the sequence first
//!    uses them. Each: varint `pc` as the zigzag difference to the pc before (0 at first); varint
//!    `2 * operations + f`, where `f` is 1 if there is a fetch row; varint `trailing`; then for
//!    each row, the fetch first, varint `4 * size + kind` (fetch 0, load 1, store 2) and varint
//!    instructions. Equal shapes may be listed several times. If flagged, the second varint is `2 *
//!    (2 * operations + f) + l`, and where `l` is 1, *links* follow the rows: for each operation
//!    varint 0 if its address is coded, otherwise 1 if it follows from `pc`, `2 + n` if it follows
//!    from the shape's coded address `n`, which comes before it, and then the zigzag distance from
//!    there. Without links all addresses are coded.
//! 2. **segments**. Each: varint thread, varint executions, varint `carry`.
//! 3. **sequence**. The local shape of each execution, as u8 if there are at most 256, else u16.
//! 4. **codes**. Four bits per coded address, the low half of a byte first; the last half may be
//!    unused and is 0 then.
//! 5. **residual**.
//! 6. **events**. A JSON array of `{"at", "thread", "event": {...}}`, ascending by `at`, the
//!    number of accesses of the chunk that come before the event.
//! 7. **physical**. If flagged, one physical address per row, else empty; see `physical.rs`.
//!
//! Then the stamps of a recording of processes, and if flagged:
//!
//! 9. **translations**. How pages are translated, which memory page tables are in, and the values of their
//!    entries, as events among those of stream 6; see `translations.rs`.
//!
//! **Addresses.** Each coded operation of each local shape has a *slot*: its last address, and the
//! distance of the last address from the address before it. Code 0 says that the new address has
//! this distance from the last address. Code `1 + n` says that the next `n` bytes of the residual,
//! 0 to 8, low ones first, are the zigzag distance from the last address. When a local shape is
//! executed for the first time, each of its slots starts with the address that was coded before (0
//! at first) and distance 0, and keeps distance 0 afterwards.
//!
//! **Instructions.** The instructions of a chunk are those of its rows and of its gaps of 0
//! accesses. The first row of an execution counts its own instructions, and the instructions that
//! earlier executions in the segment left over. An execution leaves over the `trailing`
//! instructions of its shape; if the shape has no row, they are added to the instructions left over
//! before. A segment begins with `carry` left. Instructions left over at the end of a segment are
//! in the `carry` of the thread's next segment, or became a [`crate::Event::Gap`] of 0 accesses.
//!
//! **Threads.** Segments are in the order of the merged trace. If two threads run the same code, it
//! is written as two local shapes, so that the addresses of each thread are predicted from the
//! thread's own earlier addresses.
//!
//! The constants below are limits on sizes. A reader may rely on them, and checks them before it
//! allocates memory.

use std::ops::RangeInclusive;

mod chunk;
mod codes;
mod compression;
mod decode;
mod dictionary;
mod encode;
mod frame;
mod index;
mod physical;
mod segments;
mod stamps;
mod translations;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use chunk::{Head, Owner};
pub(crate) use compression::{Compressor, Decompressor};
pub(crate) use decode::Decoder;
pub(crate) use encode::{Closed, Encoder};
pub(crate) use frame::{FRAME_BYTES, FrameHead, FrameKind, frame};
pub(crate) use index::{IndexEntry, Recorded, digest, index_body, index_entries};
pub(crate) use wire::Damage;

/// The first bytes of every trace. The line ends and the byte above 127 in it show whether a
/// transfer has changed the file as if it were text.
pub(crate) const MAGIC: [u8; 8] = *b"\x89PWT\r\n\x1a\n";
/// The version of a trace that is not a recording of several processes.
pub(crate) const VERSION: u32 = 1;
/// The versions of a recording of several processes; new files get the last one.
pub(crate) const VERSIONS_RECORDING: RangeInclusive<u32> = 2..=3;
/// Bytes of magic and version.
pub(crate) const PREAMBLE_BYTES: usize = 12;

/// The most bytes of a HEAD's body.
pub(crate) const HEAD_BYTES_MAX: usize = 1 << 20;
/// The most bytes of any other body.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 28;
/// The number of accesses, or of executions, after which a chunk is closed; the last execution may
/// exceed it.
pub(crate) const CHUNK_ACCESSES_MAX: u32 = 1 << 21;
/// The most local shapes of a chunk.
pub(crate) const LOCAL_SHAPES_MAX: usize = 1 << 16;
/// The bytes of events, as JSON, after which a chunk is closed; the last event may exceed it.
pub(crate) const EVENT_BYTES_FULL: usize = 1 << 20;
/// Stamps after which a chunk is closed.
pub(crate) const STAMPS_MAX: u32 = 1 << 20;
/// The most bytes of one event as JSON.
pub(crate) const EVENT_BYTES_MAX: usize = 1 << 20;
