//! Checks whether the options for reading apply to the format that is read.
//!
//! ```text
//!                  drmemtrace  champsim    lackey  dinero  pinatrace  csv      pagewalk  generator
//!                              cloudsuite                  ramulator  parquet
//!                                                          usimm perf
//!   --fetches          x          x          x       x
//!   --interleave     folder
//!   --v2p              x
//!   --column                                                             x
//!   --arch             x          x          x       x         x         x
//!   --process          x                                                          x
//!   --keep-going       x          x          x       x         x         x        x
//! ```
//!
//! An option that would have no effect is refused, since the user is probably mistaken about the
//! format of the file.

use std::fmt::Display;

use super::{Fetches, Format, Interleave, Options};
use crate::Error;

/// An option: its name, whether it was given, and the formats to which it applies.
type Rule = (&'static str, fn(&Options) -> bool, &'static [Format]);

const RULES: [Rule; 7] = {
    use Format::{
        ChampSim, CloudSuite, Csv, Dinero, DrMemTrace, Lackey, Pagewalk, Parquet, Perf, Pinatrace,
        Ramulator, Usimm,
    };
    [
        (
            "--fetches",
            |options| options.fetches != Fetches::Blocks,
            &[DrMemTrace, ChampSim, CloudSuite, Lackey, Dinero],
        ),
        ("--interleave", |options| options.interleave != Interleave::Timestamps, &[DrMemTrace]),
        ("--v2p", |options| options.v2p.is_some(), &[DrMemTrace]),
        ("--column", |options| !options.columns.is_empty(), &[Csv, Parquet]),
        (
            "--arch",
            |options| options.arch.is_some(),
            &[
                DrMemTrace, ChampSim, CloudSuite, Lackey, Pinatrace, Dinero, Ramulator, Usimm,
                Perf, Csv, Parquet,
            ],
        ),
        ("--process", |options| options.process.is_some(), &[DrMemTrace, Pagewalk]),
        (
            "--keep-going",
            |options| options.keep_going,
            &[
                DrMemTrace, ChampSim, CloudSuite, Lackey, Pinatrace, Dinero, Ramulator, Usimm,
                Perf, Csv, Parquet, Pagewalk,
            ],
        ),
    ]
};

/// Refuses options that do not apply to the file `name` of the format `format`. Without a format,
/// `name` is the specification of a generator.
pub(crate) fn check(
    name: impl Display,
    format: Option<Format>,
    options: &Options,
) -> Result<(), Error> {
    let unfit = RULES.iter().find(|(_, given, takers)| {
        given(options) && !format.is_some_and(|format| takers.contains(&format))
    });
    let Some((option, _, takers)) = unfit else { return Ok(()) };
    let takers: Vec<&str> = takers.iter().map(|taker| taker.name()).collect();
    let is = match format {
        None => "a generator".to_owned(),
        Some(Format::Pagewalk) => "a trace of Pagewalk's own".to_owned(),
        Some(format) => format!("a file of format {format}"),
    };
    Err(Error::Parameters(format!(
        "{name}: {option} is for {}, and this is {is}: leave it out",
        takers.join(", ")
    )))
}
