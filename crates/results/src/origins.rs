//! Where misses come from, as results tell it.

use serde::Serialize;

/// Misses of every level by where they come from. Which code, of which thread, missed on which data,
/// and how large the page was, is counted together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MissOrigins {
    /// The code that missed: an element per line of source or, where that is not known, per
    /// function or file.
    pub code: Vec<CodePlace>,
    /// The allocation sites of a recording with `--allocations` that missed, had 64 KiB at one time
    /// or have a mapping of their own; most misses first.
    pub sites: Vec<SiteCounts>,
    /// `(index in code, index in regions, index in sites, thread, bytes of the page, misses, cold
    /// misses)`, most misses first; `None` where it is not known or does not apply.
    #[expect(clippy::type_complexity, reason = "a row of a table")]
    pub misses: Vec<(Option<u32>, u32, Option<u32>, Option<u32>, u64, u64, u64)>,
    /// Why code of some files has no names, a sentence each.
    pub notes: Vec<String>,
}

/// A place in code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct CodePlace {
    /// The path of the program or library; `None` for code that is of no file.
    pub object: Option<String>,
    /// Which build of it ran, as in `build-id 5fa3` or `crc32 1a2b3c4d`.
    pub identity: Option<String>,
    /// Where in that file its block begins, or a call returns to; the address, where there is no
    /// file. The lowest, where several were joined.
    pub offset: u64,
    /// Instructions of the block before it.
    pub instruction: u32,
    /// The function, by the table of symbols.
    pub function: Option<String>,
    /// The functions that the compiler has put into that one there, outermost first.
    pub inlined: Vec<String>,
    /// The file of its source.
    pub file: Option<String>,
    /// The line there, from 1.
    pub line: Option<u32>,
}

/// What one allocation site saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteCounts {
    /// What it is called: function, file and line of the innermost call that is in the program's own
    /// sources, as in `grow (table.c:12)`.
    pub name: String,
    /// The calls that led to it, innermost first, as far as they are known; what a compiler has
    /// inlined is a call too.
    pub stack: Vec<CodePlace>,
    /// The index in `stack` of the innermost call that is in the program's own sources; `None` where
    /// no line of these is known.
    pub own: Option<u32>,
    /// Blocks that it allocated.
    pub allocations: u64,
    /// Bytes that it allocated, in all.
    pub bytes: u64,
    /// Bytes of it that were allocated at one time, at most.
    pub peak_bytes: u64,
    /// Misses of every level on its blocks.
    pub misses: u64,
    /// Of these, first touches.
    pub cold_misses: u64,
}
