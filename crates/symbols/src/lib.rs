//! Finds the function and the source line of an instruction in a recorded program.
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
//! Traces have addresses and the build of each file, but no names. If a file is missing or was
//! rebuilt, its functions get no names, because the names could be wrong; [`Symbols::troubles`]
//! reports such files.

mod image;
mod instructions;
mod names;
mod unwind;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use image::Image;
pub use unwind::{Registers, Unwinder};

/// The build of the file at `path`: `build-id 5fa3...` from the note that linkers write, or `crc32
/// 1a2b3c4d` of the contents if there is no such note. `None` if the file cannot be read.
pub fn identity(path: &Path) -> Option<String> {
    Some(image::identity(&std::fs::read(path).ok()?))
}

/// An instruction of a file.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'a> {
    /// The file's path when it ran.
    pub path: &'a str,
    /// The file's build when it ran, as [`identity`] returns it.
    pub identity: Option<&'a str>,
    /// The offset, in the file, of the block with the instruction, or of a return address.
    pub offset: u64,
    /// The number of instructions in the block before this one.
    pub instruction: u32,
    /// Whether `offset` is a return address: if so, the instruction is the call before this
    /// address.
    pub is_return: bool,
}

/// A function and the source line of an instruction in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// The name of the function, demangled, without parameters.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line in the source file, from 1.
    pub line: Option<u32>,
}

/// Finds names of code. Each file is opened once.
#[derive(Default)]
pub struct Symbols {
    images: HashMap<(String, Option<String>), Option<Image>>,
    debug_directories: Vec<PathBuf>,
    troubles: Vec<String>,
}

impl Symbols {
    /// Looks for separate debug files in the folder that the environment variable `PAGEWALK_DEBUG`
    /// names, if it is set, and in `/usr/lib/debug`.
    pub fn new() -> Symbols {
        let own = std::env::var_os("PAGEWALK_DEBUG").map(PathBuf::from);
        Symbols::with_debug_directories(own.into_iter().chain(["/usr/lib/debug".into()]))
    }

    /// Looks for separate debug files in these folders.
    pub fn with_debug_directories(directories: impl IntoIterator<Item = PathBuf>) -> Symbols {
        Symbols { debug_directories: directories.into_iter().collect(), ..Symbols::default() }
    }

    /// The functions of the instruction at `spot`: first the functions that the compiler inlined
    /// at this place, innermost first, then the function that contains them. Empty if the file is
    /// missing or was rebuilt.
    pub fn frames(&mut self, spot: Spot<'_>) -> Vec<Frame> {
        let Symbols { images, debug_directories, troubles } = self;
        let key = (spot.path.to_owned(), spot.identity.map(str::to_owned));
        let image = images.entry(key).or_insert_with(|| {
            let opened = Image::open(spot.path, spot.identity, debug_directories);
            opened.map_err(|trouble| troubles.push(trouble)).ok()
        });
        image.as_ref().and_then(|image| image.frames(spot)).unwrap_or_default()
    }

    /// Why some files gave no names: a sentence for each, in the order in which the files were
    /// first needed.
    pub fn troubles(&self) -> &[String] {
        &self.troubles
    }
}
