//! Misses by the code, thread and data that caused them.

use serde::Serialize;

/// Lookups that missed every TLB, by their origin. A row combines the code and thread that missed,
/// the data that it accessed, and the page size.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MissOrigins {
    /// Code that missed: an element for each source line or, if lines are not known, for each
    /// function or file.
    pub code: Vec<CodePlace>,
    /// Allocation sites of a recording with `--allocations`, most misses first. A site is listed if
    /// it has misses, had 64 KiB allocated at one time, or has a mapping of its own.
    pub sites: Vec<SiteCounts>,
    /// `(index in code, index in regions, index in sites, thread, bytes of the page, misses, cold
    /// misses)`, most misses first; `None` for an index that is not known or does not apply.
    #[expect(clippy::type_complexity, reason = "a row of a table")]
    pub misses: Vec<(Option<u32>, u32, Option<u32>, Option<u32>, u64, u64, u64)>,
    /// The reasons why the code of some files has no names: one sentence for each file.
    pub notes: Vec<String>,
}

/// A place in code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct CodePlace {
    /// Path of the program or library; `None` for code that belongs to no file.
    pub object: Option<String>,
    /// Build of the file `object`, such as `build-id 5fa3` or `crc32 1a2b3c4d`.
    pub identity: Option<String>,
    /// Offset in the file `object` at which the block begins or to which a call returns; without a
    /// file, the address. If several places were merged, the lowest of their offsets.
    pub offset: u64,
    /// Number of instructions in the basic block before this place.
    pub instruction: u32,
    /// Function, by the symbol table.
    pub function: Option<String>,
    /// Functions that are inlined into `function` at this place, outermost first.
    pub inlined: Vec<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line in the source file, from 1.
    pub line: Option<u32>,
}

/// Counts of one allocation site.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteCounts {
    /// Name: function, file and line of the innermost call in the program's own sources, such as
    /// `grow (table.c:12)`.
    pub name: String,
    /// Calls that led to the allocation, innermost first, as far as they are known. Inlined
    /// functions count as calls.
    pub stack: Vec<CodePlace>,
    /// Index in `stack` of the innermost call in the program's own sources; `None` if no line of
    /// them is known.
    pub own: Option<u32>,
    /// Blocks allocated.
    pub allocations: u64,
    /// Bytes allocated in total.
    pub bytes: u64,
    /// Maximum of bytes allocated at one time.
    pub peak_bytes: u64,
    /// Lookups of the site's blocks that missed every TLB.
    pub misses: u64,
    /// Misses in `misses` that were first touches.
    pub cold_misses: u64,
}
