//! Opens traces in our own format. A damaged trace is refused or, with `keep_going`, used as far as
//! it is complete.
//!
//! ```text
//!   | HEAD | CHNK | CHNK | CHNK | CHN         cut: refused, or with `keep_going` three chunks
//!   | HEAD | CHNK | CH!K | CHNK | INDX TAIL   damaged: an error there, or the first chunk
//! ```

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Format, Options};
use crate::halves::Halves;
use crate::{Batch, Error, Header, Process, Reader, Source, Stored};

/// Opens the trace at `path`, or one `process` of it. With `keep_going`, damage ends it with a
/// warning.
pub(crate) fn open(
    path: &Path,
    keep_going: bool,
    process: Option<&str>,
) -> Result<Box<dyn Source + Send>, Error> {
    let mut reader = Reader::open(path)?;
    if let Some(process) = process.filter(|_| reader.header().kernel_from.is_some()) {
        return Err(Error::Parameters(format!(
            "{}: it is a trace of a whole system, whose processes cannot be read one by one: leave --process \
             {process} out",
            path.display()
        )));
    }
    if let Some(process) = process {
        reader = reader.process(reader.called(process)?)?;
    }
    whole(reader, path, keep_going)
}

/// The recording at `path`, if it has several processes and none was chosen.
pub(crate) fn recording(path: &Path, options: &Options) -> Result<Option<Reader>, Error> {
    let own = path.extension().is_some_and(|extension| extension == "pwt");
    if options.process.is_some()
        || !path.is_file()
        || !(own || options.format == Some(Format::Pagewalk))
    {
        return Ok(None);
    }
    // In a trace of a whole system, the order of processes is already given.
    let is_mix =
        |reader: &Reader| reader.processes().len() > 1 && reader.header().kernel_from.is_none();
    let reader = Some(Reader::open(path)?).filter(is_mix);
    match reader.as_ref().and_then(|reader| cut(reader, path)) {
        Some(error) if !options.keep_going => Err(error),
        _ => Ok(reader),
    }
}

/// The warnings about a recording that is used although it is truncated.
pub(crate) fn warnings(reader: &Reader, path: &Path) -> Vec<String> {
    cut(reader, path).map(kept).into_iter().collect()
}

/// The processes of the recording `reader`, each with a function that opens it.
pub(crate) fn processes(reader: Reader, keep_going: bool) -> Vec<(Option<Process>, Opening)> {
    let processes = reader.processes().to_vec();
    let reader = Arc::new(Mutex::new(reader));
    let open = |process: Process| {
        let (reader, number) = (Arc::clone(&reader), process.number);
        let open: Opening = Box::new(move || {
            let one = reader.lock().unwrap_or_else(PoisonError::into_inner).process(number)?;
            Ok(kept_going(one.in_place(), Vec::new(), keep_going))
        });
        (Some(process), open)
    };
    processes.into_iter().map(open).collect()
}

/// Opens a source when it is needed.
pub type Opening = Box<dyn FnOnce() -> Result<Box<dyn Source + Send>, Error> + Send>;

/// The whole trace of `reader`. A truncated trace is an error; with `keep_going`, its complete part
/// is used. Several processes are merged in the order of their stamps.
pub(crate) fn whole(
    reader: Reader,
    path: &Path,
    keep_going: bool,
) -> Result<Box<dyn Source + Send>, Error> {
    match cut(&reader, path) {
        Some(error) if !keep_going => Err(error),
        cut => {
            let kernel_from = reader.header().kernel_from;
            let whole = kept_going(reader, cut.map(kept).into_iter().collect(), keep_going);
            Ok(match kernel_from {
                Some(kernel_from) => Box::new(Halves::new(whole, kernel_from)),
                None => whole,
            })
        }
    }
}

/// `reader` as a source; with `keep_going`, damage becomes a warning instead of an error.
fn kept_going(reader: Reader, warnings: Vec<String>, keep_going: bool) -> Box<dyn Source + Send> {
    if keep_going { Box::new(Whole { reader, warnings }) } else { Box::new(reader) }
}

/// The position at which the trace at `path` is truncated, if it is.
fn cut(reader: &Reader, path: &Path) -> Option<Error> {
    reader.cut_at().map(|offset| Error::Corrupt {
        path: path.to_owned(),
        offset,
        within: "",
        what: format!(
            "the trace is truncated, because the recorder was killed or a copy is incomplete; \
             --keep-going reads the {} accesses before that",
            reader.accesses()
        ),
    })
}

/// The complete part of a trace.
struct Whole {
    reader: Reader,
    warnings: Vec<String>,
}

fn kept(error: Error) -> String {
    format!("{error}; the part before it is kept")
}

impl Source for Whole {
    fn header(&self) -> &Header {
        self.reader.header()
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        self.reader.next(batch).or_else(|error| {
            batch.clear();
            self.warnings.push(kept(error));
            Ok(false)
        })
    }

    fn total(&self) -> Option<u64> {
        self.reader.total()
    }

    fn stored(&self) -> Option<Stored> {
        self.reader.stored()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn processes(&self) -> &[Process] {
        self.reader.processes()
    }

    fn digest(&self) -> Option<String> {
        self.reader.digest()
    }

    fn foretold(&self) -> Option<Box<dyn Source + Send>> {
        self.reader.foretold()
    }
}
