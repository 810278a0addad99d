//! Which format a file is of, from the first bytes of what it unpacks to.
//!
//! Formats with a magic number come first, then text, then the formats that can only be judged
//! by whether their records make sense. What is known and not read is named.

use super::champsim::{CHAMPSIM, CLOUDSUITE, ChampSim};
use super::csv::Csv;
use super::drmemtrace::Sniffed;
use super::input::Input;
use super::lackey::Lackey;
use super::{Format, Options};
use crate::Error;
use crate::format::MAGIC;

/// Finds the format in the first bytes.
pub(crate) fn sniff(input: &Input, options: &Options) -> Result<Format, Error> {
    let bytes = input.window();
    let no = |what: &str| Err(Error::Parameters(format!("{}: {what}", input.path().display())));
    if bytes.is_empty() {
        return no("the file is empty");
    }
    if bytes.starts_with(&MAGIC) {
        return Ok(Format::Pagewalk);
    }
    if bytes.starts_with(b"PAR1") {
        return no("a Parquet file, which is not read here; `pagewalk import parquet` does");
    }
    match Sniffed::new(bytes) {
        Sniffed::Final => return Ok(Format::DrMemTrace),
        Sniffed::Final32 => {
            return no("a trace of a 32-bit DynamoRIO; only those of 64-bit ones are read");
        }
        Sniffed::BigEndian => return no("a trace in big-endian byte order, which is not read"),
        Sniffed::Raw => {
            return no("a raw trace of DynamoRIO; its raw2trace makes the final one that is read");
        }
        Sniffed::Other => {}
    }
    if Lackey::is(bytes) {
        return Ok(Format::Lackey);
    }
    if is_text(bytes) {
        return match Csv::new(bytes, &options.columns) {
            Ok(_) => Ok(Format::Csv),
            Err(fault) => Err(input.corrupt(fault.at, fault.what)),
        };
    }
    if ChampSim::is(CHAMPSIM, bytes) {
        return Ok(Format::ChampSim);
    }
    if ChampSim::is(CLOUDSUITE, bytes) {
        return no("this looks like a CloudSuite trace; say so with --cloudsuite");
    }
    no("no known format; name it with --format if it is one of drmemtrace, champsim, cloudsuite, \
        lackey, csv")
}

/// Whether `bytes` are text rather than records.
fn is_text(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(512)];
    head.iter().all(|&byte| byte >= b' ' || matches!(byte, b'\n' | b'\r' | b'\t'))
}
