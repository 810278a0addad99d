//! Compression, found out from the first bytes of a file.
//!
//! ```text
//!   file --Hashing--> gzip | xz | bzip2 | zstd | lz4 | snappy | zip | none --> bytes of the trace
//! ```
//!
//! Every decoder works in memory bounded by a constant whatever the file claims.

use std::io::{self, BufRead, BufReader, Read};

use lz4_flex::frame::FrameDecoder;

use super::zip::ZipReader;

/// A compression that trace files come in.
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

/// Bytes that tell every codec from the others.
pub(crate) const MAGIC_BYTES: usize = 10;

/// What an xz stream may ask for: its largest preset needs 65 MiB.
const XZ_MEMORY_MAX_BYTES: u64 = 256 << 20;
/// The largest window of a zstd stream, as log2: 128 MiB, what `zstd -d` takes without being told.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

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
            // An archive without a member.
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

    /// What `error`, which decoding gave, says about the file.
    #[cold]
    pub(crate) fn broken(self, error: &io::Error) -> String {
        let text = error.to_string();
        // The libraries' words for a file that asks for more memory than it may have.
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
                format!("the {name} data is cut; get the file again")
            }
            (Codec::Zip, _) => format!("{text}; get the file again"),
            _ => format!("the {name} data is damaged; get the file again"),
        }
    }

    /// What `file` holds; it is read `buffer_bytes` at a time.
    pub(crate) fn decode(
        self,
        file: Box<dyn Read + Send>,
        buffer_bytes: usize,
    ) -> io::Result<Box<dyn Read + Send>> {
        let file = BufReader::with_capacity(buffer_bytes, file);
        Ok(match self {
            Codec::Plain => Box::new(file),
            Codec::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
            Codec::Xz => {
                let stream = liblzma::stream::Stream::new_stream_decoder(
                    XZ_MEMORY_MAX_BYTES,
                    liblzma::stream::CONCATENATED,
                )?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(file, stream))
            }
            Codec::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(file)),
            Codec::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(file)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
            Codec::Lz4 => Box::new(Lz4Frames { frame: Some(FrameDecoder::new(file)) }),
            Codec::Snappy => Box::new(snap::read::FrameDecoder::new(file)),
            Codec::Zip => Box::new(ZipReader::new(file)),
        })
    }
}

/// The frames of an lz4 file, one after the other.
struct Lz4Frames<R: Read> {
    frame: Option<FrameDecoder<R>>,
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(frame) = &mut self.frame {
            let read = frame.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            let mut rest = self.frame.take().map(FrameDecoder::into_inner);
            if let Some(rest) = &mut rest
                && rest.fill_buf()?.is_empty()
            {
                break;
            }
            self.frame = rest.map(FrameDecoder::new);
        }
        Ok(0)
    }
}
