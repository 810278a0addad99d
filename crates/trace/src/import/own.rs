//! Traces of this program's own that are damaged: refused, or kept as far as they are whole.
//!
//! ```text
//!   | HEAD | CHNK | CHNK | CHNK | CHN         cut: refused, or with `keep_going` three chunks
//!   | HEAD | CHNK | CH!K | CHNK | INDX TAIL   damaged: an error there, or the first chunk
//! ```

use std::path::Path;

use crate::{Batch, Error, Header, Reader, Source, Stored};

/// Opens the trace at `path`. With `keep_going` damage ends it with a warning.
pub(crate) fn open(path: &Path, keep_going: bool) -> Result<Box<dyn Source + Send>, Error> {
    let reader = Reader::open(path)?;
    let cut = reader.cut_at().map(|offset| Error::Corrupt {
        path: path.to_owned(),
        offset,
        within: "",
        what: format!(
            "the trace was cut, by a recorder that was killed or a copy that is not complete; \
             --keep-going reads the {} accesses before that",
            reader.accesses()
        ),
    });
    match cut {
        Some(error) if !keep_going => Err(error),
        _ if !keep_going => Ok(Box::new(reader)),
        cut => {
            let warnings = cut.map(kept).into_iter().collect();
            Ok(Box::new(Whole { reader, warnings }))
        }
    }
}

/// The part of a trace that is whole.
struct Whole {
    reader: Reader,
    warnings: Vec<String>,
}

fn kept(error: Error) -> String {
    format!("{error}; kept what came before")
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

    fn digest(&self) -> Option<String> {
        self.reader.digest()
    }
}
