use trace::{Batch, Error, Header, Source};

/// A source whose batches were generated in advance and are replayed repeatedly.
///
/// A batch is lent to the caller by swapping, and is taken back at the caller's next call, so that
/// no copying is timed.
pub(crate) struct Replay {
    header: Header,
    batches: Vec<Batch>,
    next: usize,
    lent: bool,
}

impl Replay {
    /// Reads all of `source`.
    pub(crate) fn new(source: &mut dyn Source) -> Result<Replay, Error> {
        let mut batches = Vec::new();
        loop {
            let mut batch = Batch::default();
            if !source.next(&mut batch)? {
                break;
            }
            batches.push(batch);
        }
        Ok(Replay { header: source.header().clone(), batches, next: 0, lent: false })
    }

    /// The addresses, batch by batch; no batch may be lent at the time.
    pub(crate) fn addrs(&self) -> impl Iterator<Item = &[u64]> {
        self.batches.iter().map(|batch| batch.addr.as_slice())
    }

    /// Starts again with the first batch; the last one must have been read to its end.
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }
}

impl Source for Replay {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        if std::mem::take(&mut self.lent) {
            std::mem::swap(batch, &mut self.batches[self.next - 1]);
        }
        match self.batches.get_mut(self.next) {
            Some(stored) => {
                std::mem::swap(batch, stored);
                self.next += 1;
                self.lent = true;
            }
            None => batch.clear(),
        }
        Ok(self.lent)
    }
}
