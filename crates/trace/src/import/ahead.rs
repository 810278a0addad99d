//! Decoding in a second thread while the first one simulates.
//!
//! ```text
//!   thread:   inner.next(batch) --full batches-->  bounded queue  --> next(): swap --> caller
//!                        ^-------empty batches----  return queue  <------'
//! ```

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use crate::switches::Switches;
use crate::{Batch, Error, Header, Process, Source, Stored};

/// The number of waiting batches: enough to smooth differences in speed, and few enough to stay in
/// the processor's cache.
const QUEUE: usize = 3;

/// How long the caller waits before it checks for an interrupt.
const PATIENCE: Duration = Duration::from_millis(100);

/// A source that another thread reads ahead of the caller.
pub(crate) struct Ahead {
    header: Header,
    total: Option<u64>,
    stored: Option<Stored>,
    full: Receiver<Message>,
    empty: Sender<Batch>,
    end: End,
    go_on: Option<Box<dyn FnMut() -> bool + Send>>,
    done: bool,
}

/// A message from the thread.
enum Message {
    Batch(Batch),
    Failed(Error),
    /// The last batch, which has no access, and data that are known at the end.
    Ended(Batch, End),
}

/// Data about the source. Before the end of the source, these are the data that were known at its
/// start; at the end they are complete.
#[derive(Default)]
struct End {
    warnings: Vec<String>,
    digest: Option<String>,
    switches: Option<Switches>,
    processes: Vec<Process>,
}

impl Ahead {
    /// Runs `inner` in a thread of its own if there is a second processor, otherwise in the
    /// caller's thread.
    pub(crate) fn start(inner: Box<dyn Source + Send>) -> Result<Box<dyn Source + Send>, Error> {
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            return Ok(inner);
        }
        let (header, total) = (inner.header().clone(), inner.total());
        let (stored, processes) = (inner.stored(), inner.processes().to_vec());
        let (digest, switches) = (inner.digest(), inner.switches());
        let (to_caller, full) = sync_channel(QUEUE);
        let (empty, from_caller) = channel();
        thread::Builder::new()
            .name("trace decoder".to_owned())
            .spawn(move || run(inner, &to_caller, &from_caller))
            .map_err(|error| Error::Io { path: "a thread for decoding".into(), error })?;
        let end = End { digest, processes, switches, ..End::default() };
        let (go_on, done) = (None, false);
        Ok(Box::new(Ahead { header, total, stored, full, empty, end, go_on, done }))
    }
}

fn run(mut inner: Box<dyn Source + Send>, full: &SyncSender<Message>, empty: &Receiver<Batch>) {
    loop {
        let mut batch = empty.try_recv().unwrap_or_default();
        let message = match inner.next(&mut batch) {
            Ok(true) => Message::Batch(batch),
            Ok(false) => {
                let (digest, switches) = (inner.digest(), inner.switches());
                let processes = inner.processes().to_vec();
                let end = End { warnings: inner.warnings().to_vec(), digest, switches, processes };
                Message::Ended(batch, end)
            }
            Err(error) => Message::Failed(error),
        };
        let more = matches!(message, Message::Batch(_));
        // If the caller has dropped the source, the message cannot be sent.
        if full.send(message).is_err() || !more {
            return;
        }
    }
}

impl Ahead {
    /// The next message. The error is a timeout if the caller has been interrupted.
    fn receive(&mut self) -> Result<Message, RecvTimeoutError> {
        loop {
            let received = self.full.recv_timeout(PATIENCE);
            let nothing = matches!(received, Err(RecvTimeoutError::Timeout));
            if !nothing || self.go_on.as_mut().is_some_and(|go_on| !go_on()) {
                return received;
            }
        }
    }
}

impl Source for Ahead {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        if self.done {
            batch.clear();
            return Ok(false);
        }
        match self.receive() {
            Ok(Message::Batch(next)) => {
                // If the thread has ended, the batch is not needed any more.
                let _ = self.empty.send(std::mem::replace(batch, next));
                Ok(true)
            }
            Ok(Message::Ended(last, end)) => {
                (*batch, self.end, self.done) = (last, end, true);
                Ok(false)
            }
            Ok(Message::Failed(error)) => {
                self.done = true;
                Err(error)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.done = true;
                Err(Error::Interrupted)
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.done = true;
                Err(Error::Recorder(
                    "the decoder stopped in the middle of the trace; this is an error in \
                     Pagewalk; please report it together with the file"
                        .to_owned(),
                ))
            }
        }
    }

    fn while_waiting(&mut self, go_on: Box<dyn FnMut() -> bool + Send>) {
        self.go_on = Some(go_on);
    }

    fn total(&self) -> Option<u64> {
        self.total
    }

    fn stored(&self) -> Option<Stored> {
        self.stored
    }

    fn processes(&self) -> &[Process] {
        &self.end.processes
    }

    fn warnings(&self) -> &[String] {
        &self.end.warnings
    }

    fn switches(&self) -> Option<Switches> {
        self.end.switches.clone()
    }

    fn digest(&self) -> Option<String> {
        self.end.digest.clone()
    }
}
