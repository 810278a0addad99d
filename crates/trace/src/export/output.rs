//! A text or binary output file, compressed in the format that the end of its name selects.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::part::PartFile;

/// The name of standard output in messages.
const STDOUT: &str = "<stdout>";
const BUFFER_BYTES: usize = 1 << 18;

/// An output file. It gets its final name when it is finished.
pub(crate) struct Output {
    path: PathBuf,
    encoder: Encoder,
    bytes: u64,
}

enum Encoder {
    Stdout(BufWriter<io::Stdout>),
    Plain(BufWriter<Part>),
    Gzip(Box<flate2::write::GzEncoder<Part>>),
    Xz(liblzma::write::XzEncoder<Part>),
    Bzip2(Box<bzip2::write::BzEncoder<Part>>),
    Zstd(zstd::stream::write::Encoder<'static, Part>),
}

impl Output {
    /// Creates `path`, or standard output for `-`. If the name ends in .gz, .xz, .bz2 or .zst, the
    /// file is compressed in that format.
    pub(crate) fn create(path: &Path, overwrite: bool) -> Result<Output, Error> {
        if path == Path::new("-") {
            let encoder = Encoder::Stdout(BufWriter::with_capacity(BUFFER_BYTES, io::stdout()));
            return Ok(Output { path: STDOUT.into(), encoder, bytes: 0 });
        }
        let part = Part(PartFile::create(path, overwrite)?);
        let encoder = match path.extension().and_then(|ending| ending.to_str()) {
            Some("gz") => {
                let level = flate2::Compression::fast();
                Encoder::Gzip(Box::new(flate2::write::GzEncoder::new(part, level)))
            }
            Some("xz") => Encoder::Xz(liblzma::write::XzEncoder::new(part, 1)),
            Some("bz2") => {
                let level = bzip2::Compression::fast();
                Encoder::Bzip2(Box::new(bzip2::write::BzEncoder::new(part, level)))
            }
            Some("zst") => {
                let encoder = zstd::stream::write::Encoder::new(part, 1);
                let io = |error| Error::Io { path: path.to_owned(), error };
                Encoder::Zstd(encoder.map_err(io)?)
            }
            _ => Encoder::Plain(BufWriter::with_capacity(BUFFER_BYTES, part)),
        };
        Ok(Output { path: path.to_owned(), encoder, bytes: 0 })
    }

    /// Appends `bytes`.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes += bytes.len() as u64;
        let writer: &mut dyn Write = match &mut self.encoder {
            Encoder::Stdout(writer) => writer,
            Encoder::Plain(writer) => writer,
            Encoder::Gzip(writer) => writer,
            Encoder::Xz(writer) => writer,
            Encoder::Bzip2(writer) => writer,
            Encoder::Zstd(writer) => writer,
        };
        writer.write_all(bytes).map_err(|error| Error::Io { path: self.path.clone(), error })
    }

    /// Writes the buffered bytes, and renames the file to its final name. Returns the number of
    /// bytes before compression.
    pub(crate) fn finish(self) -> Result<u64, Error> {
        let io = |error| Error::Io { path: self.path.clone(), error };
        let mut part = match self.encoder {
            Encoder::Stdout(mut writer) => {
                writer.flush().map_err(io)?;
                return Ok(self.bytes);
            }
            Encoder::Plain(writer) => {
                writer.into_inner().map_err(|error| io(error.into_error()))?
            }
            Encoder::Gzip(writer) => writer.finish().map_err(io)?,
            Encoder::Xz(writer) => writer.finish().map_err(io)?,
            Encoder::Bzip2(writer) => writer.finish().map_err(io)?,
            Encoder::Zstd(writer) => writer.finish().map_err(io)?,
        };
        part.0.finish()?;
        Ok(self.bytes)
    }
}

/// The unfinished file as a writer.
struct Part(PartFile);

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map(|()| bytes.len()).map_err(|error| match error {
            Error::Io { error, .. } => error,
            other => io::Error::other(other),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
