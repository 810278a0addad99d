//! A source for a single file: a decoder reads its window.
//!
//! ```text
//!   Input --window--> Decode --rows--> Batch
//! ```

use super::input::{Input, hex};
use super::rows::{BATCH_ROWS, Rows, split_warning};
use super::tags::Tags;
use crate::{Batch, Error, Header, Source};

/// The decoder of one format.
pub(crate) trait Decode: Send {
    /// Decodes complete records from the front of `bytes`, until there are no more or `batch` has
    /// [`BATCH_ROWS`] rows or slightly more. Returns the number of bytes of these records. `last`
    /// says that the file ends after `bytes`.
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        rows: &mut Rows,
        batch: &mut Batch,
    ) -> Result<usize, Fault>;

    /// The size of the longest record in bytes. If a window of this size has no complete record,
    /// the file is invalid.
    fn record_bytes_max(&self) -> usize;

    /// The warnings about the file at its end.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// An error in the bytes given to a decoder, and the index of the wrong byte.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) what: String,
}

impl Fault {
    /// An error at byte `at`.
    #[cold]
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Fault {
        Fault { at, what: what.into() }
    }
}

/// A source that decodes one file.
pub(crate) struct Stream<D> {
    input: Input,
    decode: D,
    rows: Rows,
    header: Header,
    keep_going: bool,
    given: u64,
    done: bool,
    warnings: Vec<String>,
}

impl<D: Decode> Stream<D> {
    /// A source that decodes `input`. With `keep_going`, damage ends the stream with a warning.
    pub(crate) fn new(
        input: Input,
        decode: D,
        rows: Rows,
        header: Header,
        keep_going: bool,
    ) -> Stream<D> {
        Stream {
            input,
            decode,
            rows,
            header,
            keep_going,
            given: 0,
            done: false,
            warnings: Vec::new(),
        }
    }

    fn decode_batch(&mut self, batch: &mut Batch) -> Result<(), Error> {
        while batch.len() < BATCH_ROWS {
            let window = self.input.window();
            let last = self.input.ended();
            let full = window.len() >= self.decode.record_bytes_max();
            let used = self
                .decode
                .decode(window, last, &mut self.rows, batch)
                .map_err(|fault| self.input.corrupt(fault.at, fault.what))?;
            self.input.consume(used);
            if used > 0 {
                continue;
            }
            if let Some(error) = self.input.failure() {
                return Err(error);
            }
            if last {
                self.done = true;
                return match self.input.window().len() {
                    0 => Ok(()),
                    rest => Err(self.input.corrupt(
                        0,
                        format!(
                            "the file ends within a record ({rest} bytes of it are there): it \
                             is truncated"
                        ),
                    )),
                };
            }
            if full {
                return Err(self.input.corrupt(0, "a record that is too long"));
            }
            self.input.fill();
        }
        Ok(())
    }
}

impl<D: Decode> Source for Stream<D> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        batch.first = self.given;
        if self.done {
            return Ok(false);
        }
        let result = self.decode_batch(batch);
        Tags::of(self.header.arch).strip_all(&mut batch.addr);
        self.rows.cut();
        if let Err(error) = result {
            self.done = true;
            if !self.keep_going {
                return Err(error);
            }
            self.warnings.push(format!("{error}; the part before it is kept"));
        }
        if self.done {
            self.rows.finish(batch);
            self.warnings.extend(self.input.remark());
            self.warnings.extend(split_warning(self.rows.split_accesses()));
            self.warnings.extend(self.decode.warnings());
        }
        self.given += batch.len() as u64;
        Ok(!batch.is_empty())
    }

    fn digest(&self) -> Option<String> {
        self.done.then(|| hex(&self.input.digest()))
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
