//! What an ELF file says about the machine that it needs.
//!
//! Offsets are those of the System V ABI, chapter 4: identification, file header, program
//! headers. Nothing in the file is believed: every offset is looked at before it is used.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use trace::Arch;

use crate::Error;

const HEADER_BYTES: usize = 64;
/// Program headers of more bytes than this are not looked through.
const SEGMENTS_BYTES_MAX: u64 = 1 << 20;
const INTERPRETER: u32 = 3;

/// What matters of an ELF file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Elf {
    /// The processor, which QEMU records.
    pub(crate) arch: Arch,
    /// The dynamic loader that it asks for.
    pub(crate) interpreter: Option<PathBuf>,
}

impl Elf {
    /// QEMU's name for the processor.
    pub(crate) fn qemu_name(&self) -> &'static str {
        match self.arch {
            Arch::I386 => "i386",
            Arch::Aarch64 => "aarch64",
            Arch::Riscv64 => "riscv64",
            Arch::X86_64 | Arch::Unknown => "x86_64",
        }
    }
}

/// Reads the headers of the file at `path`.
pub(crate) fn read(path: &Path) -> Result<Elf, Error> {
    let unreadable = |error| Error::Unreadable { path: path.to_owned(), error };
    let mut file = File::open(path).map_err(unreadable)?;
    let mut head = Vec::new();
    file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut head).map_err(unreadable)?;
    let not = |what: &str| Error::NotAProgram { path: path.to_owned(), what: what.to_owned() };
    if head.is_empty() {
        return Err(not("is empty, not a program"));
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(not(
            "is neither an ELF program nor a script that begins with `#!`; if it is a script, \
             name its interpreter: `-- sh FILE`",
        ));
    }
    if head.len() < HEADER_BYTES {
        return Err(not("is an ELF file that is cut short"));
    }
    let (class, order) = (head[4], head[5]);
    let half = |at: usize| {
        let bytes = [head[at], head[at + 1]];
        if order == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    };
    let arch = match (class, order, half(18)) {
        (2, 1, 62) => Arch::X86_64,
        (1, 1, 3) => Arch::I386,
        (2, 1, 183) => Arch::Aarch64,
        (2, 1, 243) => Arch::Riscv64,
        (_, _, machine) => {
            return Err(Error::Processor {
                path: path.to_owned(),
                processor: processor(class, machine),
            });
        }
    };
    // ET_EXEC and ET_DYN.
    if !matches!(half(16), 2 | 3) {
        return Err(not("is an object or core file, not a program"));
    }
    let (offset, entry_bytes, count) = if class == 2 {
        (word(&head, 32, 8), half(54), half(56))
    } else {
        (word(&head, 28, 4), half(42), half(44))
    };
    let interpreter = interpreter(&mut file, class, offset, entry_bytes, count)
        .map_err(|_| not("is an ELF file whose program headers are damaged"))?;
    Ok(Elf { arch, interpreter })
}

fn interpreter(
    file: &mut File,
    class: u8,
    offset: u64,
    entry_bytes: u16,
    count: u16,
) -> io::Result<Option<PathBuf>> {
    let bytes = u64::from(entry_bytes) * u64::from(count);
    let least = if class == 2 { 56 } else { 32 };
    if count == 0 || entry_bytes < least || bytes > SEGMENTS_BYTES_MAX {
        return Ok(None);
    }
    let mut headers = vec![0; bytes as usize];
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut headers)?;
    for header in headers.chunks_exact(entry_bytes.into()) {
        if word(header, 0, 4) != u64::from(INTERPRETER) {
            continue;
        }
        let (at, length) = if class == 2 {
            (word(header, 8, 8), word(header, 32, 8))
        } else {
            (word(header, 4, 4), word(header, 16, 4))
        };
        if length > 4096 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut path = vec![0; length as usize];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut path)?;
        path.truncate(path.iter().position(|&byte| byte == 0).unwrap_or(path.len()));
        return Ok(Some(PathBuf::from(String::from_utf8_lossy(&path).into_owned())));
    }
    Ok(None)
}

/// A little-endian number of `length` bytes; the caller has looked that it is there.
fn word(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The name of a processor that is not recorded.
fn processor(class: u8, machine: u16) -> String {
    let name = match machine {
        2 | 18 | 43 => "SPARC",
        8 => "MIPS",
        20 => "PowerPC (32 bit)",
        21 => "PowerPC (64 bit)",
        22 => "s390x",
        40 => "Arm (32 bit)",
        62 => "x86-64 with 32-bit pointers (x32)",
        243 => "RISC-V (32 bit)",
        258 => "LoongArch",
        _ => return format!("machine {machine} of ELF ({} bit)", u32::from(class) * 32),
    };
    name.to_owned()
}
