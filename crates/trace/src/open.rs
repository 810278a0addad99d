//! Opens everything that provides accesses.
//!
//! ```text
//!   open --+--> "generate:uniform,..."      a generator
//!          +--> "mix:..."                   several traces, each opened in this way
//!          +--> a file or a folder          an importer, or a stored trace; of several processes, their mix
//! ```

use std::path::Path;

use crate::import::{self, Ahead, Options, check_columns, fit, own, part};
use crate::mix::{MIX, Mix, Order, Part, Spec};
use crate::{Error, Source, generate};

/// The prefix of a generator's parameters.
const GENERATE: &str = "generate:";

/// Opens everything that provides accesses.
///
/// `path_or_spec` is a file or folder of any [`Format`](crate::import::Format), `-` for standard
/// input, `FORMAT:PATH` to name the format, `generate:` and a generator's parameters, or `mix:` and
/// several such names ([`crate::mix`]).
pub fn open(path_or_spec: &str, options: &Options) -> Result<Box<dyn Source + Send>, Error> {
    part(whole(path_or_spec, options)?, options)
}

/// The whole trace that `path_or_spec` names.
fn whole(path_or_spec: &str, options: &Options) -> Result<Box<dyn Source + Send>, Error> {
    check_columns(options)?;
    if let Some(spec) = path_or_spec.strip_prefix(MIX) {
        return Ahead::start(Box::new(Mix::open(spec, options)?));
    }
    if let Some(spec) = path_or_spec.strip_prefix(GENERATE) {
        fit::check(path_or_spec, None, options)?;
        return generate::parse(spec);
    }
    import::file(path_or_spec, options, |path| {
        let mix = Mix::of_recording(path, options)?;
        Ok(mix.map(|mix| Box::new(mix) as Box<dyn Source + Send>))
    })
}

impl Part {
    /// Opens the trace `name` as a part of a mix. If `order` schedules processes, a recording of
    /// several processes is split into its processes; otherwise it is one trace.
    fn open(name: &str, order: Order, options: &Options) -> Result<Part, Error> {
        let path = Path::new(name);
        let Some(reader) = own::recording(path, options)? else {
            return Ok(Part::whole(name.to_owned(), whole(name, options)?));
        };
        match order {
            Order::Blocking | Order::Turns => Ok(Part::recording(name, reader, options)),
            Order::Stamps => {
                let merged = own::whole(reader, path, options.keep_going)?;
                Ok(Part::whole(name.to_owned(), merged))
            }
        }
    }
}

impl Mix {
    /// Opens all traces that `spec` names and mixes them; `spec` is a description without the
    /// prefix `mix:`. `options` apply to each trace.
    pub fn open(spec: &str, options: &Options) -> Result<Mix, Error> {
        let spec: Spec = spec.parse()?;
        let mut parts = Vec::new();
        for (name, times) in &spec.traces {
            for _ in 0..*times {
                parts.push(Part::open(name, spec.order, options)?);
            }
        }
        Mix::new(spec, parts)
    }
}
