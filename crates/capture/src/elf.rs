//! The machine that an ELF file is for.
//!
//! Offsets are those of the System V ABI, chapter 4: identification, file header, program headers.
//! Nothing in the file is trusted: every offset is checked before it is used.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use trace::Arch;

use crate::Error;

const HEADER_BYTES: usize = 64;
/// Program headers with more bytes than this in all are not read.
const SEGMENTS_BYTES_MAX: u64 = 1 << 20;
const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;

/// The properties of an ELF file that recording needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Elf {
    /// The architecture.
    pub(crate) arch: Arch,
    /// The path of the dynamic loader that the program requests.
    pub(crate) interpreter: Option<PathBuf>,
    /// The segments that are loaded into memory.
    pub(crate) segments: Vec<Segment>,
}

/// A part of a file that is loaded into memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// The address of the segment's first byte and the address after its last byte, if the file is
    /// loaded at the address that it requests.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The rights read, write and execute, from the lowest bit upwards.
    pub(crate) rights: u8,
}

impl Elf {
    /// QEMU's name for the architecture.
    pub(crate) fn qemu_name(&self) -> &'static str {
        match self.arch {
            Arch::I386 => "i386",
            Arch::Arm => "arm",
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
        return Err(not("is a truncated ELF file"));
    }
    let (class, order) = (head[4], head[5]);
    let half = |at: usize| {
        let bytes = [head[at], head[at + 1]];
        if order == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    };
    let arch = match (class, order, half(18)) {
        (2, 1, 62) => Arch::X86_64,
        (1, 1, 3) => Arch::I386,
        (1, 1, 40) => Arch::Arm,
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
    let damaged = |_| not("is an ELF file whose program headers are damaged");
    let headers = headers(&mut file, class, offset, entry_bytes, count).map_err(damaged)?;
    let interpreter = interpreter(&mut file, &headers).map_err(damaged)?;
    let loaded = headers.iter().filter(|header| header.kind == LOAD);
    let segments = loaded.map(|header| Segment {
        start: header.address,
        end: header.address.saturating_add(header.memory_bytes),
        rights: (header.flags >> 2 & 1 | header.flags & 2 | (header.flags & 1) << 2) as u8,
    });
    Ok(Elf { arch, interpreter, segments: segments.collect() })
}

/// A program header.
struct Header {
    kind: u32,
    /// The rights execute, write and read, from the lowest bit upwards.
    flags: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

fn headers(
    file: &mut File,
    class: u8,
    offset: u64,
    entry_bytes: u16,
    count: u16,
) -> io::Result<Vec<Header>> {
    let bytes = u64::from(entry_bytes) * u64::from(count);
    let least = if class == 2 { 56 } else { 32 };
    if count == 0 || entry_bytes < least || bytes > SEGMENTS_BYTES_MAX {
        return Ok(Vec::new());
    }
    let mut table = vec![0; bytes as usize];
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut table)?;
    // The positions of flags, offset, address and lengths in the header, and the size of an
    // address.
    let (flags, [offset, address, file_bytes, memory_bytes], width) =
        if class == 2 { (4, [8, 16, 32, 40], 8) } else { (24, [4, 8, 16, 20], 4) };
    let header = |entry: &[u8]| Header {
        kind: word(entry, 0, 4) as u32,
        flags: word(entry, flags, 4) as u32,
        offset: word(entry, offset, width),
        address: word(entry, address, width),
        file_bytes: word(entry, file_bytes, width),
        memory_bytes: word(entry, memory_bytes, width),
    };
    Ok(table.chunks_exact(entry_bytes.into()).map(header).collect())
}

fn interpreter(file: &mut File, headers: &[Header]) -> io::Result<Option<PathBuf>> {
    let Some(header) = headers.iter().find(|header| header.kind == INTERPRETER) else {
        return Ok(None);
    };
    if header.file_bytes > 4096 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut path = vec![0; header.file_bytes as usize];
    file.seek(SeekFrom::Start(header.offset))?;
    file.read_exact(&mut path)?;
    path.truncate(path.iter().position(|&byte| byte == 0).unwrap_or(path.len()));
    Ok(Some(PathBuf::from(String::from_utf8_lossy(&path).into_owned())))
}

/// A little-endian number of `length` bytes. The caller has checked that the bytes exist.
fn word(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The name of an architecture that is not supported.
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

const SYMBOLS: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
/// Tables with more bytes than this are not read.
const TABLE_BYTES_MAX: u64 = 1 << 28;
/// The types of symbols that can be called: without a type, a function, and an indirect function.
const CALLABLE: [u8; 3] = [0, 2, 10];

/// The offset of the function `name` in the file at `path`; `None` if there is no such function or
/// the file cannot be read.
pub(crate) fn symbol(path: &Path, name: &str) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let mut head = vec![0; HEADER_BYTES];
    file.read_exact(&mut head).ok()?;
    if !head.starts_with(b"\x7fELF") || head[5] != 1 {
        return None;
    }
    let class = head[4];
    let half = |at: usize| word(&head, at, 2) as u16;
    let (segments, sections) = if class == 2 {
        let segments = headers(&mut file, class, word(&head, 32, 8), half(54), half(56)).ok()?;
        (segments, (word(&head, 40, 8), half(58), half(60)))
    } else {
        let segments = headers(&mut file, class, word(&head, 28, 4), half(42), half(44)).ok()?;
        (segments, (word(&head, 32, 4), half(46), half(48)))
    };
    let address = symbol_address(&mut file, class, sections, name)?;
    let holds = |segment: &&Header| {
        let inside = address.checked_sub(segment.address);
        segment.kind == LOAD && inside.is_some_and(|inside| inside < segment.file_bytes)
    };
    let segment = segments.iter().find(holds)?;
    (address - segment.address).checked_add(segment.offset)
}

/// The address of the symbol `name`, from the symbol tables.
fn symbol_address(
    file: &mut File,
    class: u8,
    (offset, entry_bytes, count): (u64, u16, u16),
    name: &str,
) -> Option<u64> {
    let wide = class == 2;
    let least = if wide { 64 } else { 40 };
    if entry_bytes < least {
        return None;
    }
    let table = part(file, offset, u64::from(entry_bytes) * u64::from(count))?;
    let sections: Vec<&[u8]> = table.chunks_exact(entry_bytes.into()).collect();
    // A section's place in the file, its size in bytes, and the number of the section linked to it.
    let place = |section: &[u8]| match wide {
        true => (word(section, 24, 8), word(section, 32, 8), word(section, 40, 4)),
        false => (word(section, 16, 4), word(section, 20, 4), word(section, 24, 4)),
    };
    for section in &sections {
        if !matches!(word(section, 4, 4) as u32, SYMBOLS | DYNAMIC_SYMBOLS) {
            continue;
        }
        let (offset, bytes, names) = place(section);
        let (Some(symbols), Some(names)) =
            (part(file, offset, bytes), sections.get(names as usize))
        else {
            continue;
        };
        let (offset, bytes, _) = place(names);
        let Some(names) = part(file, offset, bytes) else { continue };
        let found = symbols.chunks_exact(if wide { 24 } else { 16 }).find_map(|symbol| {
            let (kind, section, value) = match wide {
                true => (symbol[4] & 15, word(symbol, 6, 2), word(symbol, 8, 8)),
                false => (symbol[12] & 15, word(symbol, 14, 2), word(symbol, 4, 4)),
            };
            let own = names.get(word(symbol, 0, 4) as usize..)?;
            let own = &own[..own.iter().position(|&byte| byte == 0)?];
            let called = CALLABLE.contains(&kind) && section != 0 && value != 0;
            (called && own == name.as_bytes()).then_some(value)
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

/// A part of a file; `None` if it does not exist or is too long.
fn part(file: &mut File, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    let length = file.metadata().ok()?.len();
    if bytes > TABLE_BYTES_MAX || offset.checked_add(bytes)? > length {
        return None;
    }
    let mut part = vec![0; bytes as usize];
    file.seek(SeekFrom::Start(offset)).ok()?;
    file.read_exact(&mut part).ok()?;
    Some(part)
}
