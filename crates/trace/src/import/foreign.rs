//! Files that are not traces, or traces in unsupported formats, recognised by their first bytes.
//!
//! ```text
//!   version https://git-lfs...   <!DOCTYPE html>   ...ustar...      what came in place of the trace,
//!                                                                   or the trace in a wrapping
//!   PERFILE2   SIFT   \x7fELF                                       what another tool reads
//! ```
//!
//! Sources of the marks: Git LFS `docs/spec.md`; git-annex, "pointer file"; POSIX `ustar` (the checksum
//! of a header, which older archives have too); xz `doc/lzma-file-format.txt`; the others' manuals.

use super::codec::Codec;

/// The number of bytes that are needed to recognise all of these.
pub(crate) const BYTES: u64 = 512;

/// A description of a format that cannot be read, with advice, if `bytes` certainly have this
/// format.
pub(crate) fn certain(bytes: &[u8]) -> Option<&'static str> {
    const MARKS: [(&[u8], &str); 14] = [
        (
            b"version https://git-lfs.github.com/spec/",
            "a pointer of Git LFS, not the file: `git lfs pull` in its repository gets the file",
        ),
        (b"/annex/objects/", "a pointer of git-annex, not the file: `git annex get` gets the file"),
        (
            b"PERFILE2",
            "a recording of perf, which is not read: write its samples as text with `perf script -F \
             comm,tid,time,event,addr,data_src`, and give the text",
        ),
        (b"SIFT", "a trace in Sniper's format SIFT, which is not read: it needs Sniper's decoder"),
        (
            b"gem5",
            "a trace of gem5's packets, which is not read: `util/decode_packet_trace.py` of gem5 \
             writes it as text, from which a table with a column `addr` can be made",
        ),
        (b"\x7fELF", "a program, not a trace of one: `pagewalk record` makes a trace of it"),
        (
            b"ARROW1",
            "an Arrow (Feather) file, which is not read: write it as Parquet, which is read",
        ),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file, which is not read: write it as Parquet or csv"),
        (b"\x93NUMPY", "a NumPy array, which is not read: write it as Parquet or csv"),
        (
            b"SQLite format 3\0",
            "a database of SQLite, which is not read: write a table of it as csv",
        ),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive, which is not read: unpack it first with `7z x`"),
        (b"Rar!\x1a\x07", "a rar archive, which is not read: unpack it first with `unrar x`"),
        (
            b"\x89LZO\0\r\n\x1a\n",
            "packed by lzop, which is not read: unpack it first with `lzop -d`",
        ),
        (b"%PDF-", "a PDF document, not a trace"),
    ];
    if let Some((_, what)) = MARKS.iter().find(|(mark, _)| bytes.starts_with(mark)) {
        return Some(what);
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let begins =
        |mark: &[u8]| text.get(..mark.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(mark));
    if begins(b"<!doctype html") || begins(b"<html") || begins(b"<?xml") {
        return Some(
            "a web page, which a server may send in place of a file that does not exist or needs a \
             login: download the file again and look at it",
        );
    }
    if is_tar(bytes) {
        return Some("a tar archive: unpack it first with `tar -xf`, and give the file in it");
    }
    is_lzma(bytes, true).then_some(LZMA)
}

/// Called if `bytes` are not a trace in a supported format. Returns what they probably are, with
/// advice.
pub(crate) fn likely(bytes: &[u8]) -> Option<&'static str> {
    const MARKS: [(&[u8], &str); 4] = [
        (b"\x1f\x9d", "packed by compress, which is not read: unpack it first with `gzip -d`"),
        (b"LZIP", "packed by lzip, which is not read: unpack it first with `lzip -d`"),
        (b"\xff\xfe", UTF_16),
        (b"\xfe\xff", UTF_16),
    ];
    if let Some((_, what)) = MARKS.iter().find(|(mark, _)| bytes.starts_with(mark)) {
        return Some(what);
    }
    if Codec::sniff(bytes) != Codec::Plain {
        return Some("packed twice, which is not read: unpack it once first");
    }
    is_lzma(bytes, false).then_some(LZMA)
}

const LZMA: &str = "compressed in the old LZMA format, which is not read: unpack it first with \
                    `xz --format=lzma -d`";
const UTF_16: &str =
    "text in UTF-16, which is not read: convert it first with `iconv -f UTF-16 -t UTF-8`";

/// Whether `bytes` begin with a tar header. The checksum of a tar header is the sum of its bytes,
/// with blanks in place of the checksum itself.
fn is_tar(bytes: &[u8]) -> bool {
    const CHECKSUM: std::ops::Range<usize> = 148..156;
    let Some(header) = bytes.first_chunk::<512>() else { return false };
    let digits = header[CHECKSUM].trim_ascii_start();
    let end = digits.iter().position(|digit| !(b'0'..=b'7').contains(digit));
    let digits = &digits[..end.unwrap_or(digits.len())];
    let told = digits.iter().fold(0, |sum, digit| sum * 8 + u64::from(digit - b'0'));
    let counted = header
        .iter()
        .enumerate()
        .map(|(at, &byte)| u64::from(if CHECKSUM.contains(&at) { b' ' } else { byte }));
    !digits.is_empty() && counted.sum::<u64>() == told
}

/// Whether `bytes` begin with the header of an LZMA-alone file: properties, the size of the
/// dictionary, and the length of the data. If `endless`, the header must say that the length is
/// unknown.
fn is_lzma(bytes: &[u8], endless: bool) -> bool {
    let Some([properties, size @ .., l0, l1, l2, l3, l4, l5, l6, l7]) = bytes.first_chunk::<13>()
    else {
        return false;
    };
    let size: [u8; 4] = *size;
    let size = u32::from_le_bytes(size);
    let length = u64::from_le_bytes([*l0, *l1, *l2, *l3, *l4, *l5, *l6, *l7]);
    // Encoders write dictionary sizes of 2^n or 2^n + 2^(n-1).
    let usual = size >= 1 << 12 && (size.is_power_of_two() || (size / 3 * 2).is_power_of_two());
    *properties < 9 * 5 * 5 && usual && if endless { length == u64::MAX } else { length < 1 << 40 }
}
