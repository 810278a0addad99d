use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::Feed;
use crate::{Batch, Error};

/// The number of batches that wait to be taken. In addition, one batch is being filled and one is
/// in use.
const WAITING_MAX: usize = 2;

/// A thread that decodes batches before they are requested.
#[derive(Debug)]
pub(super) struct Ahead {
    /// `None` only while the struct is being dropped; dropping the receiver makes the thread end.
    filled: Option<Receiver<Filled>>,
    used: Sender<Batch>,
    thread: Option<JoinHandle<()>>,
}

/// A batch and whether it has accesses, or an error.
type Filled = Result<(Batch, bool), Error>;

impl Ahead {
    /// Begins to decode `feed`, which reads the file at `path`.
    pub(super) fn start(feed: Feed, path: &Path) -> Result<Ahead, Error> {
        let (give, filled) = sync_channel(WAITING_MAX);
        let (used, take) = channel();
        let thread = Builder::new()
            .name("trace reader".to_owned())
            .spawn(move || decode(feed, &give, &take))
            .map_err(|error| Error::Io { path: path.to_owned(), error })?;
        Ok(Ahead { filled: Some(filled), used, thread: Some(thread) })
    }

    /// Replaces the contents of `batch` by the next accesses; false after the last.
    pub(super) fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let Some(Ok(filled)) = self.filled.as_ref().map(Receiver::recv) else {
            let error = io::Error::other(
                "the thread that reads the trace has failed, which is an error in Pagewalk",
            );
            return Err(Error::Io { path: "the trace".into(), error });
        };
        let (filled, any) = filled?;
        // If the thread has ended, the batch is not needed any more.
        let _ = self.used.send(std::mem::replace(batch, filled));
        Ok(any)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.filled = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn decode(mut feed: Feed, give: &SyncSender<Filled>, take: &Receiver<Batch>) {
    loop {
        let mut batch = take.try_recv().unwrap_or_default();
        let filled = feed.next(&mut batch).map(|any| (batch, any));
        let last = !matches!(filled, Ok((_, true)));
        if give.send(filled).is_err() || last {
            return;
        }
    }
}
