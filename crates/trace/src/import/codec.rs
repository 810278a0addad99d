//! Decompression; the format is recognised by the first bytes of a file.
//!
//! ```text
//!   file --Hashing--> gzip | xz | bzip2 | zstd | lz4 | snappy | zip | none --> bytes of the trace
//! ```
//!
//! Every decoder works in memory bounded by a constant, whatever the file claims. Bytes after the
//! last stream are treated as by the codec's own tool: `gzip` skips zeros, with which tapes and
//! disks are padded, and warns of other bytes; `bzip2` warns of any bytes; `xz` accepts zeros in
//! multiples of four. The tools of the other codecs refuse a file with further bytes.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use lz4_flex::frame::FrameDecoder;

use super::zip::ZipReader;
use crate::count::counted;

/// A compression format of trace files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    Plain,
    Gzip,
    Xz,
    Bzip2,
    Zstd,
    Lz4,
    Snappy,
    Zip,
}

/// The number of bytes that distinguish all codecs.
pub(crate) const MAGIC_BYTES: usize = 10;

/// The most memory that an xz stream may need: its largest preset needs 65 MiB.
const XZ_MEMORY_MAX_BYTES: u64 = 256 << 20;
/// log2 of the largest window of a zstd stream: 128 MiB, the default limit of `zstd -d`.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// A warning about a file that can be decompressed nevertheless.
#[derive(Clone, Default)]
pub(crate) struct Remark(Arc<Mutex<Option<String>>>);

impl Remark {
    fn set(&self, remark: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(remark);
    }

    /// The warning so far, if there is one.
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Codec {
    /// The codec of a file that starts with `bytes`.
    pub(crate) fn sniff(bytes: &[u8]) -> Codec {
        const MAGICS: [(&[u8], Codec); 8] = [
            (&[0x1f, 0x8b], Codec::Gzip),
            (&[0xfd, b'7', b'z', b'X', b'Z', 0], Codec::Xz),
            (b"BZh", Codec::Bzip2),
            (&[0x28, 0xb5, 0x2f, 0xfd], Codec::Zstd),
            (&[0x04, 0x22, 0x4d, 0x18], Codec::Lz4),
            (&[0xff, 6, 0, 0, b's', b'N', b'a', b'P', b'p', b'Y'], Codec::Snappy),
            (b"PK\x03\x04", Codec::Zip),
            // This is a zip archive without a member.
            (b"PK\x05\x06", Codec::Zip),
        ];
        MAGICS
            .iter()
            .find(|(magic, _)| bytes.starts_with(magic))
            .map_or(Codec::Plain, |&(_, codec)| codec)
    }

    /// The name that messages use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Codec::Plain => "uncompressed",
            Codec::Gzip => "gzip",
            Codec::Xz => "xz",
            Codec::Bzip2 => "bzip2",
            Codec::Zstd => "zstd",
            Codec::Lz4 => "lz4",
            Codec::Snappy => "snappy",
            Codec::Zip => "zip",
        }
    }

    /// The error message for `error`, which decoding the file returned.
    #[cold]
    pub(crate) fn broken(self, error: &io::Error) -> String {
        let text = error.to_string();
        // These are the messages of the libraries if a file needs more memory than the limit.
        if text.contains("memory limit") || text.contains("too much memory") {
            return format!(
                "unpacking it needs more memory than the {} MiB that are allowed; pack it again \
                 with a smaller window",
                match self {
                    Codec::Xz => XZ_MEMORY_MAX_BYTES >> 20,
                    _ => 1 << (ZSTD_WINDOW_LOG_MAX - 20),
                }
            );
        }
        let name = self.name();
        match (self, error.kind()) {
            (_, io::ErrorKind::UnexpectedEof) => {
                format!("the {name} data is truncated; get the file again")
            }
            (Codec::Zip, _) => format!("{text}; get the file again"),
            _ => format!("the {name} data is damaged; get the file again"),
        }
    }

    /// The contents of `file`, which is read in pieces of `buffer_bytes`. Warnings are stored in
    /// `remark`.
    pub(crate) fn decode(
        self,
        file: Box<dyn Read + Send>,
        buffer_bytes: usize,
        remark: Remark,
    ) -> io::Result<Box<dyn Read + Send>> {
        let file = BufReader::with_capacity(buffer_bytes, file);
        Ok(match self {
            Codec::Plain => Box::new(file),
            Codec::Gzip => Box::new(Members::<flate2::bufread::GzDecoder<_>>::new(file, remark)),
            Codec::Xz => {
                let stream = liblzma::stream::Stream::new_stream_decoder(
                    XZ_MEMORY_MAX_BYTES,
                    liblzma::stream::CONCATENATED,
                )?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(file, stream))
            }
            Codec::Bzip2 => Box::new(Members::<bzip2::bufread::BzDecoder<_>>::new(file, remark)),
            Codec::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(file)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
            Codec::Lz4 => Box::new(Members::<FrameDecoder<_>>::new(file, remark)),
            Codec::Snappy => Box::new(snap::read::FrameDecoder::new(file)),
            Codec::Zip => Box::new(ZipReader::new(file)),
        })
    }
}

/// A decoder of one compressed stream. A file may have several streams.
trait Member: Read {
    /// The input type.
    type Input: BufRead;
    const CODEC: Codec;
    /// The first bytes of each stream.
    const MAGIC: &[u8];
    /// The smallest number of bytes of a stream. A shorter stream is truncated, whatever the
    /// decoder reports.
    const BYTES_MIN: usize;
    /// The bytes that may follow the last stream.
    const BEHIND: Behind;

    fn begin(input: Peeked<Self::Input>) -> Self;
    fn into_input(self) -> Peeked<Self::Input>;
}

/// How bytes after the last stream are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behind {
    /// Zeros are skipped, and other bytes ignored with a warning.
    Zeros,
    /// All further bytes are ignored with a warning.
    Anything,
    /// Further bytes are an error: the file is damaged.
    Nothing,
}

impl<R: BufRead> Member for flate2::bufread::GzDecoder<Peeked<R>> {
    type Input = R;
    const CODEC: Codec = Codec::Gzip;
    const MAGIC: &[u8] = &[0x1f, 0x8b];
    const BYTES_MIN: usize = 2;
    const BEHIND: Behind = Behind::Zeros;

    fn begin(input: Peeked<R>) -> Self {
        flate2::bufread::GzDecoder::new(input)
    }

    fn into_input(self) -> Peeked<R> {
        self.into_inner()
    }
}

impl<R: BufRead> Member for bzip2::bufread::BzDecoder<Peeked<R>> {
    type Input = R;
    const CODEC: Codec = Codec::Bzip2;
    const MAGIC: &[u8] = b"BZh";
    const BYTES_MIN: usize = 3;
    const BEHIND: Behind = Behind::Anything;

    fn begin(input: Peeked<R>) -> Self {
        bzip2::bufread::BzDecoder::new(input)
    }

    fn into_input(self) -> Peeked<R> {
        self.into_inner()
    }
}

impl<R: BufRead> Member for FrameDecoder<Peeked<R>> {
    type Input = R;
    const CODEC: Codec = Codec::Lz4;
    const MAGIC: &[u8] = &[0x04, 0x22, 0x4d, 0x18];
    // The decoder treats a shorter header as the end of the file.
    const BYTES_MIN: usize = 7;
    const BEHIND: Behind = Behind::Nothing;

    fn begin(input: Peeked<R>) -> Self {
        FrameDecoder::new(input)
    }

    fn into_input(self) -> Peeked<R> {
        self.into_inner()
    }
}

/// The streams of a file, one after the other, up to bytes that are not a stream.
struct Members<M> {
    member: Option<M>,
    remark: Remark,
}

impl<M: Member> Members<M> {
    fn new(file: M::Input, remark: Remark) -> Members<M> {
        Members { member: Some(M::begin(Peeked::new(file))), remark }
    }

    /// The next stream in `input`; `None` if there are no more bytes, or only bytes that are
    /// skipped.
    fn next(&self, mut input: Peeked<M::Input>) -> io::Result<Option<M>> {
        let begin = input.peek(M::BYTES_MIN)?;
        if begin.len() == M::BYTES_MIN && begin.starts_with(M::MAGIC) {
            return Ok(Some(M::begin(input)));
        }
        let part = begin.len().min(M::MAGIC.len());
        if part > 0 && begin[..part] == M::MAGIC[..part] {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if part > 0 && M::BEHIND == Behind::Nothing {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // All remaining bytes are read, since the digest covers the whole file.
        let (mut bytes, mut zeros) = (0, M::BEHIND == Behind::Zeros);
        loop {
            let rest = input.fill_buf()?;
            if rest.is_empty() {
                break;
            }
            zeros &= rest.iter().all(|&byte| byte == 0);
            let used = rest.len();
            input.consume(used);
            bytes += used as u64;
        }
        if bytes > 0 && !zeros {
            let rest = format!("behind the {} data: left out", M::CODEC.name());
            self.remark.set(counted(
                bytes,
                "byte of something else is",
                "bytes of something else are",
                &rest,
            ));
        }
        Ok(None)
    }
}

impl<M: Member> Read for Members<M> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            let input = self.member.take().map(M::into_input);
            self.member = input.map(|input| self.next(input)).transpose()?.flatten();
        }
        Ok(0)
    }
}

/// Input whose next bytes can be examined without being consumed, across the end of its buffer.
struct Peeked<R> {
    front: [u8; PEEKED_BYTES_MAX],
    start: usize,
    end: usize,
    inner: R,
}

/// The largest number of bytes that can be examined.
const PEEKED_BYTES_MAX: usize = 8;

impl<R: BufRead> Peeked<R> {
    fn new(inner: R) -> Peeked<R> {
        Peeked { front: [0; PEEKED_BYTES_MAX], start: 0, end: 0, inner }
    }

    /// The next `bytes` bytes, at most [`PEEKED_BYTES_MAX`], or fewer if the input ends earlier.
    fn peek(&mut self, bytes: usize) -> io::Result<&[u8]> {
        self.front.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < bytes.min(PEEKED_BYTES_MAX) {
            match self.inner.read(&mut self.front[self.end..bytes.min(PEEKED_BYTES_MAX)]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&self.front[..self.end])
    }
}

impl<R: BufRead> Read for Peeked<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            return self.inner.read(out);
        }
        let read = (&self.front[self.start..self.end]).read(out)?;
        self.start += read;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Peeked<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            return self.inner.fill_buf();
        }
        Ok(&self.front[self.start..self.end])
    }

    fn consume(&mut self, bytes: usize) {
        if self.start == self.end {
            self.inner.consume(bytes);
        } else {
            self.start = (self.start + bytes).min(self.end);
        }
    }
}
