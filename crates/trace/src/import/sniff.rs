//! Recognises the format of a file from the first bytes of its decompressed contents.
//!
//! Formats with a magic number are tried first, then text, then formats that can only be recognised
//! by plausible records. Known formats that are not supported are named in the error.

use super::champsim::{CHAMPSIM, CLOUDSUITE, ChampSim};
use super::csv::Csv;
use super::dinero::Dinero;
use super::drmemtrace::Sniffed;
use super::foreign;
use super::input::Input;
use super::lackey::Lackey;
use super::lines::shown;
use super::perf::{self, PerfScript};
use super::pinatrace::Pinatrace;
use super::ramulator::Ramulator;
use super::usimm::Usimm;
use super::{Format, Options};
use crate::Error;
use crate::format::MAGIC;

/// Determines the format from the first bytes. They must not contradict the format that the user
/// has `named`.
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
    let refusal = foreign::certain(bytes).or_else(|| Sniffed::new(bytes).refusal());
    if let Some(what) = refusal.or_else(|| without_accesses(bytes)) {
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
        (None, None) if input.ended() && has_no_record(bytes) => no(Pinatrace::empty(bytes)
            .unwrap_or("the file has only empty lines and comments, and no access")),
        (None, None) if is_text(bytes) => match text(bytes) {
            Ok(Some(format)) => Ok(format),
            Ok(None) => match Csv::new(bytes, &options.columns) {
                Ok(_) => Ok(Format::Csv),
                Err(fault) => Err(input.corrupt(fault.at, fault.what)),
            },
            Err(what) => no(&what),
        },
        (None, None) if ChampSim::is(CHAMPSIM, bytes) => Ok(Format::ChampSim),
        (None, None) if ChampSim::is(CLOUDSUITE, bytes) => {
            no("this looks like a CloudSuite trace; give --cloudsuite")
        }
        (None, None) => no(foreign::likely(bytes).unwrap_or(
            "not a known format; name it with --format if it is one of drmemtrace, champsim, \
             cloudsuite, lackey, pinatrace, dinero, ramulator, usimm, perf, csv",
        )),
    }
}

/// The format of text without a line of names, if it has one access per line; all other text is a
/// table.
fn text(bytes: &[u8]) -> Result<Option<Format>, String> {
    if Pinatrace::is(bytes) {
        return Ok(Some(Format::Pinatrace));
    }
    if Usimm::is(bytes) {
        return Ok(Some(Format::Usimm));
    }
    if PerfScript::is(bytes) {
        return Ok(Some(Format::Perf));
    }
    if Dinero::is(bytes) {
        return Ok(Some(Format::Dinero));
    }
    if Ramulator::is(bytes) {
        if Dinero::could_be(bytes) {
            return Err(
                "two numbers per line, as in traces for Dinero and for Ramulator: choose with \
                 --format dinero or --format ramulator"
                    .to_owned(),
            );
        }
        return Ok(Some(Format::Ramulator));
    }
    let first = bytes.split(|&byte| byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let first = first.unwrap_or_default().trim_ascii();
    let one_word = !first.iter().any(u8::is_ascii_whitespace);
    if one_word || first.iter().any(|byte| b",;\t".contains(byte)) {
        return Ok(None);
    }
    Err(format!(
        "text of no known format, which begins with `{}`; the known formats are those of lackey, \
         pinatrace, Dinero, Ramulator, USIMM and perf script, and tables with a header line such \
         as `addr,kind` and an access per line, as in `0x7f12a0079d40,load`",
        shown(first)
    ))
}

/// Advice for the output of a tool that ran without the option to write accesses.
fn without_accesses(bytes: &[u8]) -> Option<&'static str> {
    if Lackey::is_log_without_accesses(bytes) {
        return Some(if memchr::memmem::find(bytes, b"Lackey").is_some() {
            "a log of Valgrind's lackey without accesses: --trace-mem=yes was not given"
        } else {
            "a log of Valgrind without accesses: run valgrind with --tool=lackey --trace-mem=yes"
        });
    }
    if Ramulator::has_places(bytes) {
        return Some(
            "a trace for Ramulator 2's ReadWriteTrace, which is not read: it has places in DRAM \
             (channel, rank, ..., row, column) and no addresses. Give the trace that it was made \
             of, or write the addresses as a csv with the columns `addr,kind`",
        );
    }
    PerfScript::is_without_addresses(bytes).then_some(perf::WITHOUT_ADDRESS)
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

/// Why `bytes` are not of the format `named`, if that is clear.
fn mistaken(named: Format, bytes: &[u8]) -> Option<&'static str> {
    match named {
        Format::ChampSim => ChampSim::mistaken(CHAMPSIM, bytes),
        Format::CloudSuite => ChampSim::mistaken(CLOUDSUITE, bytes),
        // The program's own output may be mixed with lackey's lines, but no text contains a zero
        // byte.
        Format::Lackey
        | Format::Pinatrace
        | Format::Dinero
        | Format::Ramulator
        | Format::Usimm
        | Format::Perf
        | Format::Csv => bytes.contains(&0).then_some("this is not text"),
        Format::Parquet => Some("this is not a Parquet file"),
        Format::Pagewalk | Format::DrMemTrace => None,
    }
}

/// Whether all lines of `bytes` are empty or comments.
fn has_no_record(bytes: &[u8]) -> bool {
    let is_nothing = |line: &[u8]| line.is_empty() || line.starts_with(b"#");
    bytes.split(|&byte| byte == b'\n').all(|line| is_nothing(line.trim_ascii())) && is_text(bytes)
}

/// Whether `bytes` are text and not binary records.
fn is_text(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(512)];
    head.iter().all(|&byte| byte >= b' ' || matches!(byte, b'\n' | b'\r' | b'\t'))
}
