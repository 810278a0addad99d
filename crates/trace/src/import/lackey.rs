//! Valgrind's `--tool=lackey --trace-mem=yes`: one line of text per instruction or access.
//!
//! ```text
//!   I  0401ab70,3        an instruction: address in hexadecimal, bytes in decimal
//!    L 1fff000748,8      its load
//!    S 1fff000748,8      its store
//!    M 1fff000748,8      its load and store of one place
//!   SB 0401ab70          a superblock is entered, with --trace-superblocks=yes
//!   ==9902== ...         Valgrind's own messages, which are left out
//! ```
//!
//! A superblock is entered by a jump from anywhere, so that it begins a block of instructions.
//!
//! Source: `lackey/lk_main.c` of Valgrind 3.19, its head comment and `flushEvents`, `trace_superblock`.

use addr::Kind;

use super::digits::{decimal, hexadecimal};
use super::lines::{LINE_BYTES_MAX, Lines, shown};
use super::rows::{ACCESS_BYTES_MAX, Rows};
use super::stream::{Decode, Fault};
use crate::count::counted;
use crate::{Arch, Batch, Filter, Header};

/// Decodes the lines.
#[derive(Debug, Default)]
pub(crate) struct Lackey {
    keep_going: bool,
    foreign: u64,
    lines: Lines,
}

impl Lackey {
    /// With `keep_going`, lines that lackey does not write are skipped and counted.
    pub(crate) fn new(keep_going: bool) -> Lackey {
        Lackey { keep_going, ..Lackey::default() }
    }

    /// The header of a trace from lackey.
    pub(crate) fn header(fetches: bool) -> Header {
        Header {
            producer: format!("pagewalk import lackey {}", env!("CARGO_PKG_VERSION")),
            command: Vec::new(),
            arch: Arch::Unknown,
            fetches,
            filter: Filter::None,
            page_bytes: 4096,
            notes: vec![
                "recorded by Valgrind's lackey: all threads are one, Valgrind laid out the memory, \
                 and system calls are not in the trace"
                    .to_owned(),
            ],
            kernel_from: None,
        }
    }

    /// Whether `bytes` start like lackey's output.
    pub(crate) fn is(bytes: &[u8]) -> bool {
        first_other(bytes).is_some_and(|line| line.ends_with(b"\n") && parse(line).is_some())
    }

    /// Whether `bytes` contain only messages of Valgrind: a log without accesses.
    pub(crate) fn is_log_without_accesses(bytes: &[u8]) -> bool {
        bytes.starts_with(b"==") && first_other(bytes).is_none()
    }
}

impl Decode for Lackey {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        rows: &mut Rows,
        batch: &mut Batch,
    ) -> Result<usize, Fault> {
        let Lackey { keep_going, foreign: left_out, lines } = self;
        let bytes = if last { whole(bytes) } else { bytes };
        lines.decode(bytes, last, batch, |line, batch| {
            match parse(line) {
                Some((b'I', pc, size)) => rows.instruction(batch, pc, size, false),
                Some((b'L', addr, size)) => rows.access(batch, Kind::Load, addr, size),
                Some((b'S', addr, size)) => rows.access(batch, Kind::Store, addr, size),
                Some((_, addr, size)) => {
                    rows.access(batch, Kind::Load, addr, size);
                    rows.access(batch, Kind::Store, addr, size);
                }
                None if is_superblock(line) => rows.cut(),
                None if is_message(line) => {}
                None if *keep_going => *left_out += 1,
                None => return Err(foreign(line)),
            }
            Ok(())
        })
    }

    fn record_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }

    fn warnings(&self) -> Vec<String> {
        match self.foreign {
            0 => Vec::new(),
            lines => vec![counted(lines, "line is", "lines are", "not lackey's: left out")],
        }
    }
}

/// The letter, address and bytes of a line (without its line end).
#[inline]
fn parse(line: &[u8]) -> Option<(u8, u64, u32)> {
    let (letter, number) = match line {
        [b'I', b' ', b' ', number @ ..] => (b'I', number),
        [b' ', letter @ (b'L' | b'S' | b'M'), b' ', number @ ..] => (*letter, number),
        _ => return None,
    };
    let (addr, rest) = hexadecimal(number)?;
    let [b',', size @ ..] = rest else { return None };
    let size = decimal(size).or_else(|| decimal(size.trim_ascii_end()))?;
    (1..=u64::from(ACCESS_BYTES_MAX)).contains(&size).then_some((letter, addr, size as u32))
}

/// The first line that is neither a message of Valgrind nor the entry of a superblock.
fn first_other(bytes: &[u8]) -> Option<&[u8]> {
    let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
    lines.find(|line| !is_message(line) && !is_superblock(line))
}

/// Whether the line says that a superblock is entered.
fn is_superblock(line: &[u8]) -> bool {
    let pc = line.strip_prefix(b"SB ").map(|pc| hexadecimal(pc.trim_ascii()));
    matches!(pc, Some(Some((_, []))))
}

/// Whether the line is a message of Valgrind.
fn is_message(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty() || line.starts_with(b"==") || line.starts_with(b"--") || line.starts_with(b"**")
}

/// `bytes`, the end of a file, without its last line if lackey would not write such a line: the
/// file was truncated there.
fn whole(bytes: &[u8]) -> &[u8] {
    let start = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
    let rest = &bytes[start..];
    match parse(rest).is_some() || is_superblock(rest) || is_message(rest) {
        true => bytes,
        false => &bytes[..start],
    }
}

#[cold]
fn foreign(line: &[u8]) -> Fault {
    Fault::new(
        0,
        format!(
            "`{}` is not a line of lackey; write Valgrind's output to a file of its own with \
             --log-file, or skip such lines with --keep-going",
            shown(line)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_or_refused() {
        for (line, expected) in [
            ("I  0401ab70,3", Some((b'I', 0x401ab70, 3))),
            (" S 1fff000748,8", Some((b'S', 0x1f_ff00_0748, 8))),
            (" L 1fff000748,16", Some((b'L', 0x1f_ff00_0748, 16))),
            (" M 0,1", Some((b'M', 0, 1))),
            (" M ffffffffffffffff,16383", Some((b'M', u64::MAX, 16383))),
            (" L 1fff000748,8\r", Some((b'L', 0x1f_ff00_0748, 8))),
            (" L 1ffffffffffffffff,8", None),
            (" L ,8", None),
            (" L 12,", None),
            (" L 12", None),
            (" L 12,0", None),
            (" L 12,16384", Some((b'L', 0x12, 16384))),
            (" L 12,1048577", None),
            (" L 12,8 ", Some((b'L', 0x12, 8))),
            (" L 12,8 x", None),
            ("L 12,8", None),
            ("I 0401ab70,3", None),
            ("", None),
        ] {
            assert_eq!(parse(line.as_bytes()), expected, "{line:?}");
        }
    }

    #[test]
    fn lackey_is_told_from_other_text() {
        for (text, expected) in [
            ("==1== Lackey\n==1== \nI  0401ab70,3\n S 12,8\n", true),
            ("I  0401ab70,3\n", true),
            ("==1== Memcheck\n==1==\n", false),
            ("SB 0401ab70\nI  0401ab70,3\n", true),
            ("SB main\nI  0401ab70,3\n", false),
            ("addr,size\n12,8\n", false),
            ("I  0401ab70", false),
            ("", false),
        ] {
            assert_eq!(Lackey::is(text.as_bytes()), expected, "{text:?}");
        }
    }
}
