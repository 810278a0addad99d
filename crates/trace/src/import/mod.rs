//! Opens traces of other tools as sources. No converted copy of a trace is made, and no data in a
//! file are trusted.
//!
//! ```text
//!   path or spec --file()--> sniff --+--> own::open         a stored trace of ours
//!                                    +--> DrMemTrace        a folder or a file of DynamoRIO's
//!                                    +--> Stream<ChampSim>  \
//!                                    +--> Stream<Lackey>    |
//!                                    +--> Stream<Pinatrace>  > Input: decompressed bytes
//!                                    +--> ... Dinero, Ramulator, Usimm, PerfScript
//!                                    +--> Stream<Csv>       /
//!                                    +--> Error::Table       Parquet, read on the Python side
//! ```
//!
//! Each format has a file here that begins with a description of the format. A decoder converts
//! bytes to rows and does no IO, so that it can be fuzzed. Files are read from front to end in
//! constant memory, on a second processor if there is one.

mod ahead;
mod champsim;
mod codec;
mod columns;
mod csv;
mod digits;
mod dinero;
pub(crate) mod drmemtrace;
pub(crate) mod fit;
mod foreign;
mod input;
mod kinds;
mod lackey;
mod lines;
pub(crate) mod own;
mod perf;
mod pinatrace;
mod ramulator;
mod rows;
mod sniff;
mod stream;
mod tags;
mod threads;
mod usimm;
mod zip;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::halves::Halves;
use crate::kernel::{Kernel, KernelPath};
use crate::located::Located;
use crate::{Arch, Bounds, DataOnly, Error, Header, Source, Spread, Window};
pub(crate) use ahead::Ahead;
use champsim::{CHAMPSIM, CLOUDSUITE, ChampSim};
use codec::Codec;
use csv::Csv;
use dinero::Dinero;
use drmemtrace::{DrMemTrace, Settings};
use input::Input;
pub(crate) use input::is_pipe;
use lackey::Lackey;
use perf::PerfScript;
use pinatrace::Pinatrace;
use ramulator::Ramulator;
use rows::Rows;
use sniff::sniff;
use stream::{Decode, Stream};
use usimm::Usimm;

pub use columns::{COLUMNS, ColumnSource, Columns};
pub use drmemtrace::Interleave;
pub use own::Opening;
pub use rows::Fetches;

/// A format of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Pagewalk's own format.
    Pagewalk,
    /// DynamoRIO's final traces: a folder, or one of its files.
    DrMemTrace,
    /// ChampSim's records of 64 bytes.
    ChampSim,
    /// ChampSim's records of 96 bytes. They cannot be distinguished from those of 64 bytes.
    CloudSuite,
    /// Valgrind's `--tool=lackey --trace-mem=yes`.
    Lackey,
    /// The text of Pin's example tool `pinatrace` and of similar tools.
    Pinatrace,
    /// A trace for Dinero: a label and an address per line.
    Dinero,
    /// A trace for Ramulator, or a trace of addresses for Ramulator 2.
    Ramulator,
    /// A trace for USIMM.
    Usimm,
    /// The output of `perf script` as text, with the addresses of data.
    Perf,
    /// A text table, with or without column names.
    Csv,
    /// A Parquet file, which [`open`] recognises and returns as [`Error::Table`].
    Parquet,
}

impl Format {
    /// All formats with the names that commands use.
    pub const ALL: [(Format, &'static str); 12] = [
        (Format::Pagewalk, "pagewalk"),
        (Format::DrMemTrace, "drmemtrace"),
        (Format::ChampSim, "champsim"),
        (Format::CloudSuite, "cloudsuite"),
        (Format::Lackey, "lackey"),
        (Format::Pinatrace, "pinatrace"),
        (Format::Dinero, "dinero"),
        (Format::Ramulator, "ramulator"),
        (Format::Usimm, "usimm"),
        (Format::Perf, "perf"),
        (Format::Csv, "csv"),
        (Format::Parquet, "parquet"),
    ];

    /// The name of the format.
    pub fn name(self) -> &'static str {
        Format::ALL.iter().find(|(format, _)| *format == self).map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Format, Error> {
        let found = Format::ALL.iter().find(|(_, name)| *name == text);
        found.map(|&(format, _)| format).ok_or_else(|| {
            let names: Vec<&str> = Format::ALL.iter().map(|&(_, name)| name).collect();
            Error::Parameters(format!(
                "`{text}` is not a format; the formats are {}",
                names.join(", ")
            ))
        })
    }
}

/// Deserializes an optional value from its name.
fn named<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    let name = Option::<String>::deserialize(from)?;
    name.map(|name| name.parse()).transpose().map_err(D::Error::custom)
}

fn fetches<'de, D: Deserializer<'de>>(from: D) -> Result<Fetches, D::Error> {
    Fetches::deserialize(from).map_err(|error| D::Error::custom(format!("fetches: {error}")))
}

fn interleave<'de, D: Deserializer<'de>>(from: D) -> Result<Interleave, D::Error> {
    Interleave::deserialize(from).map_err(|error| D::Error::custom(format!("interleave: {error}")))
}

fn path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::<OsString>::deserialize(from)?.map(PathBuf::from))
}

/// Options for reading a trace of another tool.
///
/// The options are read from a JSON document that has a key for every field. The key is the field's
/// name, or the name that users know, if a `rename` attribute gives one. A path is read as an
/// [`OsString`], since a path need not be valid UTF-8.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The format; if absent, it is recognised by the file's first bytes.
    #[serde(deserialize_with = "named")]
    pub format: Option<Format>,
    /// Whether damage ends the trace with a warning instead of an error, so that the complete data
    /// before it are used.
    pub keep_going: bool,
    /// How instructions are represented.
    #[serde(deserialize_with = "fetches")]
    pub fetches: Fetches,
    /// The instruction set of the program, if the format does not have it. Its rules apply to the
    /// addresses: the tags of [`Arch::Aarch64`] are removed.
    #[serde(deserialize_with = "named")]
    pub arch: Option<Arch>,
    /// The names of a table's columns: pairs of our name and the table's name, as in `("addr",
    /// "vaddr")`. In a table without a line of names, columns are named by their numbers, from 1.
    pub columns: Vec<(String, String)>,
    /// How the files of several threads are ordered.
    #[serde(deserialize_with = "interleave")]
    pub interleave: Interleave,
    /// The file with the physical addresses of pages: DynamoRIO's `v2p.textproto`. If the trace's
    /// folder has such a file, it is used without this option.
    #[serde(deserialize_with = "path")]
    pub v2p: Option<PathBuf>,
    /// The only process to be read from a recording of several processes: its process id, or a
    /// program that it ran.
    pub process: Option<String>,
    /// Whether fetches are omitted, in any format.
    #[serde(rename = "no_fetch")]
    pub data_only: bool,
    /// The number of bytes by which mappings are spaced apart, in any format.
    pub spread: Option<u64>,
    /// The part of the trace to be read, after all other options have been applied, in any format.
    pub bounds: Bounds,
    /// Whether accesses get the physical addresses that the page walks of a recording give.
    pub physical: bool,
    /// The kernel whose accesses are added wherever programs call the kernel, in any format.
    #[serde(deserialize_with = "named")]
    pub kernel: Option<Kernel>,
}

/// Applies to `source` the options that are independent of the format.
pub fn part(
    mut source: Box<dyn Source + Send>,
    options: &Options,
) -> Result<Box<dyn Source + Send>, Error> {
    if options.data_only {
        source = Box::new(DataOnly::new(source));
    }
    if let Some(block) = options.spread {
        source = Box::new(Spread::new(source, block)?);
    }
    if !options.bounds.is_whole() {
        source = Box::new(Window::new(source, options.bounds));
    }
    if let Some(kernel) = options.kernel {
        source = Box::new(KernelPath::new(source, kernel));
    }
    Ok(match options.physical {
        true => Box::new(Located::new(source)?),
        false => source,
    })
}

/// Opens all of the file or folder that `path_or_spec` names, or the generator that it describes.
/// `recording` opens a recording of several processes in our format.
pub(crate) fn file(
    path_or_spec: &str,
    options: &Options,
    recording: impl FnOnce(&Path) -> Result<Option<Box<dyn Source + Send>>, Error>,
) -> Result<Box<dyn Source + Send>, Error> {
    let (mut format, path) = split(path_or_spec, options)?;
    if path.is_dir() && format != Some(Format::Pagewalk) {
        return folder(path, format, options);
    }
    let is_pipe = is_pipe(path);
    let mut input = None;
    if format != Some(Format::Pagewalk) || is_pipe {
        let (of, opened) = begin(Input::open(path, Input::WINDOW_BYTES)?, format, options)?;
        (format, input) = (Some(of), Some(opened));
    }
    fit::check(path.display(), format, options)?;
    match (format, input) {
        (Some(Format::Parquet), _) if !is_pipe => {
            check_unwrapped(path)?;
            Err(Error::Table(path.to_owned()))
        }
        (Some(format), Some(input)) if format != Format::Pagewalk || is_pipe => {
            Ahead::start(decoder(format, input, options)?)
        }
        _ => {
            check_unwrapped(path)?;
            match recording(path)? {
                Some(all) => Ahead::start(all),
                None => own::open(path, options.keep_going, options.process.as_deref()),
            }
        }
    }
}

/// Checks the file at `path`, whose format needs random access: it must not be compressed, and must
/// not be something else in place of a trace. Other errors are left to the reader of the format.
fn check_unwrapped(path: &Path) -> Result<(), Error> {
    let mut begin = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(foreign::BYTES).read_to_end(&mut begin);
    }
    let refused = |what: &str| Err(Error::Parameters(format!("{}: {what}", path.display())));
    match (foreign::certain(&begin), Codec::sniff(&begin)) {
        (Some(what), _) => refused(what),
        (None, Codec::Plain) => Ok(()),
        (None, codec) => refused(&format!(
            "this file is compressed by {}, but traces of this format are read only from an \
             uncompressed file: unpack the file first",
            codec.name()
        )),
    }
}

/// Decodes `reader`, which messages call `name`, in the caller's thread. The format must be in
/// `options` or recognisable by the first bytes.
pub fn from_reader(
    name: &str,
    reader: Box<dyn Read + Send>,
    options: &Options,
) -> Result<Box<dyn Source + Send>, Error> {
    check_columns(options)?;
    let input = Input::from_reader(Path::new(name), reader, Input::WINDOW_BYTES)?;
    let (format, input) = begin(input, options.format, options)?;
    fit::check(name, Some(format), options)?;
    decoder(format, input, options)
}

/// Fills the window and determines the format; `named` is the format if the user named it.
fn begin(
    mut input: Input,
    named: Option<Format>,
    options: &Options,
) -> Result<(Format, Input), Error> {
    if !input.fill()
        && let Some(error) = input.failure()
    {
        return Err(error);
    }
    Ok((sniff(&input, named, options)?, input))
}

/// Splits `FORMAT:PATH` into format and path, unless a file with that whole name exists.
fn split<'a>(spec: &'a str, options: &Options) -> Result<(Option<Format>, &'a Path), Error> {
    let whole = Path::new(spec);
    if let Some((name, path)) = spec.split_once(':')
        && let Ok(format) = name.parse::<Format>()
        && !whole.exists()
    {
        if options.format.is_some_and(|other| other != format) {
            return Err(Error::Parameters(format!(
                "{spec}: the format is given twice, in this name and with --format; leave one of \
                 the two out"
            )));
        }
        return Ok((Some(format), Path::new(path)));
    }
    // A file with this name counts as a trace of Pagewalk, so that a damaged one is recognised.
    let own = whole.extension().is_some_and(|extension| extension == "pwt")
        && whole.exists()
        && !is_pipe(whole);
    Ok((options.format.or(own.then_some(Format::Pagewalk)), whole))
}

/// Checks that the options rename only columns that our format has.
pub(crate) fn check_columns(options: &Options) -> Result<(), Error> {
    match options.columns.iter().find(|(ours, _)| !COLUMNS.contains(&ours.as_str())) {
        None => Ok(()),
        Some((ours, _)) => Err(Error::Parameters(format!(
            "--column {ours}=...: the columns of a trace are {}",
            COLUMNS.join(", ")
        ))),
    }
}

fn folder(
    path: &Path,
    format: Option<Format>,
    options: &Options,
) -> Result<Box<dyn Source + Send>, Error> {
    match format {
        None | Some(Format::DrMemTrace) => {
            fit::check(path.display(), Some(Format::DrMemTrace), options)?;
            Ahead::start(in_halves(DrMemTrace::folder(path, &settings(options))?))
        }
        Some(other) => Err(Error::Parameters(format!(
            "{}: a folder, where a file of format {other} is needed",
            path.display()
        ))),
    }
}

/// `trace`, with the kernel's accesses in a space of their own if it is a trace of a whole system.
fn in_halves(trace: DrMemTrace) -> Box<dyn Source + Send> {
    match trace.kernel_from() {
        Some(kernel_from) => Box::new(Halves::new(Box::new(trace), kernel_from)),
        None => Box::new(trace),
    }
}

fn settings(options: &Options) -> Settings<'_> {
    Settings {
        fetches: options.fetches,
        interleave: options.interleave,
        arch: options.arch,
        v2p: options.v2p.as_deref(),
        process: options.process.as_deref(),
        keep_going: options.keep_going,
    }
}

/// The source for a file of `format`.
fn decoder(
    format: Format,
    mut input: Input,
    options: &Options,
) -> Result<Box<dyn Source + Send>, Error> {
    let rows = Rows::new(options.fetches);
    let fetches = rows.fetches();
    Ok(match format {
        Format::Pagewalk | Format::Parquet => {
            return Err(Error::Parameters(format!(
                "{}: format {format} is read from a file, not from a pipe",
                input.path().display()
            )));
        }
        Format::DrMemTrace if options.interleave == Interleave::Schedule => {
            return Err(Error::Parameters(format!(
                "{}: --interleave orders the files of a folder, but this is one file; give the \
                 folder, or leave --interleave out",
                input.path().display()
            )));
        }
        Format::DrMemTrace => in_halves(DrMemTrace::file(input, &settings(options))?),
        Format::ChampSim | Format::CloudSuite => {
            let layout = if format == Format::ChampSim { CHAMPSIM } else { CLOUDSUITE };
            let header = ChampSim::header(layout, input.window(), fetches);
            stream(input, ChampSim::new(layout), rows, header, options)
        }
        Format::Lackey => {
            let header = Lackey::header(fetches);
            stream(input, Lackey::new(options.keep_going), rows, header, options)
        }
        Format::Pinatrace => {
            let decode = Pinatrace::new(input.window());
            stream(input, decode, rows, noted(format, false, pinatrace::NOTE), options)
        }
        Format::Dinero => {
            let header = noted(format, fetches, dinero::NOTE);
            stream(input, Dinero::default(), rows, header, options)
        }
        Format::Ramulator => {
            let header = noted(format, false, ramulator::NOTE);
            stream(input, Ramulator::default(), rows, header, options)
        }
        Format::Usimm => {
            let header = noted(format, false, ramulator::NOTE);
            stream(input, Usimm::default(), rows, header, options)
        }
        Format::Perf => {
            let header = noted(format, false, perf::NOTE);
            stream(input, PerfScript::default(), rows, header, options)
        }
        Format::Csv => {
            let (csv, used) = Csv::new(input.window(), &options.columns)
                .map_err(|fault| input.corrupt(fault.at, fault.what))?;
            input.consume(used);
            let header = columns::header("csv", csv.has_kinds());
            stream(input, csv, rows, header, options)
        }
    })
}

/// The header for a file of `format`, with `note` for readers of results.
fn noted(format: Format, fetches: bool, note: &str) -> Header {
    Header { notes: vec![note.to_owned()], ..columns::header(format.name(), fetches) }
}

fn stream(
    input: Input,
    decode: impl Decode + 'static,
    rows: Rows,
    header: Header,
    options: &Options,
) -> Box<dyn Source + Send> {
    let header = Header { arch: options.arch.unwrap_or(header.arch), ..header };
    Box::new(Stream::new(input, decode, rows, header, options.keep_going))
}
