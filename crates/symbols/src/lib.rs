//! From an instruction of a recorded program to its function and its line in the sources.
//!
//! ```text
//!   file, build, offset, instruction
//!      |  the build is compared: identity()
//!      |  offset -> address: the file's segments
//!      |  instruction -> its address: the lengths of those before it (instructions)
//!      v
//!   symbol table -> function           both from the file itself, or from the separate file
//!   DWARF        -> line, inlined calls    that its build id or its debug link names (image)
//! ```
//!
//! Traces hold addresses and which build of each file they are of, not names. A file that is gone,
//! or has been built anew, gives no names rather than wrong ones; [`Symbols::troubles`] says so.

mod image;
mod instructions;
mod names;
mod unwind;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use image::Image;
pub use unwind::{Registers, Unwinder};

/// The build of the file at `path`: `build-id 5fa3...` by the note that linkers write, or
/// `crc32 1a2b3c4d` of the contents of a file without one. `None` if it cannot be read.
pub fn identity(path: &Path) -> Option<String> {
    Some(image::identity(&std::fs::read(path).ok()?))
}

/// An instruction of a file.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'a> {
    /// The file's path when it ran.
    pub path: &'a str,
    /// Its build then, as [`identity`] says it.
    pub identity: Option<&'a str>,
    /// Where in the file the block begins that the instruction is of; or a return address.
    pub offset: u64,
    /// How many instructions of the block come before it.
    pub instruction: u32,
    /// Whether `offset` is a return address: the call before it is meant.
    pub is_return: bool,
}

/// A function at an instruction, and the line there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// The function: demangled, without parameters.
    pub function: Option<String>,
    /// The file of its source.
    pub file: Option<String>,
    /// The line there, from 1.
    pub line: Option<u32>,
}

/// Names of code, from files that are opened once.
#[derive(Default)]
pub struct Symbols {
    images: HashMap<(String, Option<String>), Option<Image>>,
    debug_directories: Vec<PathBuf>,
    troubles: Vec<String>,
}

impl Symbols {
    /// Looks for separate debug files in the folder that `PAGEWALK_DEBUG` names, if it does, and
    /// in `/usr/lib/debug`.
    pub fn new() -> Symbols {
        let own = std::env::var_os("PAGEWALK_DEBUG").map(PathBuf::from);
        Symbols::with_debug_directories(own.into_iter().chain(["/usr/lib/debug".into()]))
    }

    /// Looks for separate debug files in these folders.
    pub fn with_debug_directories(directories: impl IntoIterator<Item = PathBuf>) -> Symbols {
        Symbols { debug_directories: directories.into_iter().collect(), ..Symbols::default() }
    }

    /// The function of the instruction at `spot`: last; before it those that the compiler has put into
    /// it at this place, innermost first. Empty, if its file cannot be relied on.
    pub fn frames(&mut self, spot: Spot<'_>) -> Vec<Frame> {
        let Symbols { images, debug_directories, troubles } = self;
        let key = (spot.path.to_owned(), spot.identity.map(str::to_owned));
        let image = images.entry(key).or_insert_with(|| {
            let opened = Image::open(spot.path, spot.identity, debug_directories);
            opened.map_err(|trouble| troubles.push(trouble)).ok()
        });
        image.as_ref().and_then(|image| image.frames(spot)).unwrap_or_default()
    }

    /// Why some files gave no names, a sentence each, in the order in which they were asked for.
    pub fn troubles(&self) -> &[String] {
        &self.troubles
    }
}
