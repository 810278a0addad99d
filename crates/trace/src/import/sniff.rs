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

/// Finds the format in the first bytes, which must not contradict the one that is `named`.
pub(crate) fn sniff(
    input: &Input,
    named: Option<Format>,
    options: &Options,
) -> Result<Format, Error> {
    let bytes = input.window();
    let no = |what: &str| Err(Error::Parameters(format!("{}: {what}", input.path().display())));
    if bytes.is_empty() {
        return no("the file is empty");
    }
    if let Some(what) = Sniffed::new(bytes).refusal() {
        return no(what);
    }
    match (named, marked(bytes)) {
        (Some(named), Some(format)) if named != format => {
            no(&format!("this is a file of format {format}, not {named}"))
        }
        (_, Some(format)) => Ok(format),
        (Some(named), None) => match mistaken(named, bytes) {
            Some(what) => no(what),
            None => Ok(named),
        },
        (None, None) if is_text(bytes) => match Csv::new(bytes, &options.columns) {
            Ok(_) => Ok(Format::Csv),
            Err(fault) => Err(input.corrupt(fault.at, fault.what)),
        },
        (None, None) if ChampSim::is(CHAMPSIM, bytes) => Ok(Format::ChampSim),
        (None, None) if ChampSim::is(CLOUDSUITE, bytes) => {
            no("this looks like a CloudSuite trace; say so with --cloudsuite")
        }
        (None, None) => {
            no("no known format; name it with --format if it is one of drmemtrace, champsim, \
             cloudsuite, lackey, csv")
        }
    }
}

/// The format of a file whose first bytes leave no doubt.
fn marked(bytes: &[u8]) -> Option<Format> {
    if bytes.starts_with(&MAGIC) {
        return Some(Format::Pagewalk);
    }
    if bytes.starts_with(b"PAR1") {
        return Some(Format::Parquet);
    }
    if Sniffed::new(bytes) == Sniffed::Final {
        return Some(Format::DrMemTrace);
    }
    Lackey::is(bytes).then_some(Format::Lackey)
}

/// What speaks against `bytes` being of the format that was named for them.
fn mistaken(named: Format, bytes: &[u8]) -> Option<&'static str> {
    match named {
        Format::ChampSim => ChampSim::mistaken(CHAMPSIM, bytes),
        Format::CloudSuite => ChampSim::mistaken(CLOUDSUITE, bytes),
        // The program's own output may be among lackey's lines, but no text has a zero in it.
        Format::Lackey | Format::Csv if bytes.contains(&0) => Some("this is no text"),
        Format::Parquet => Some("this is no Parquet file"),
        _ => None,
    }
}

/// Whether `bytes` are text rather than records.
fn is_text(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(512)];
    head.iter().all(|&byte| byte >= b' ' || matches!(byte, b'\n' | b'\r' | b'\t'))
}
