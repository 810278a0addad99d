//! A snapshot of a process's pages.

use trace::{Event, KnownSizes, Translation, When};

/// A snapshot, until it is in the trace.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// When it was begun.
    pub(crate) ns: u64,
    pub(crate) when: When,
    pub(crate) sizes: KnownSizes,
    pub(crate) found: Vec<Translation>,
}

impl Snapshot {
    /// Its events.
    pub(crate) fn events(self) -> impl Iterator<Item = Event> {
        let Snapshot { when, sizes, found, .. } = self;
        let found = found.into_iter().map(|found| Event::Translation(Box::new(found)));
        std::iter::once(Event::Snapshot { when, sizes }).chain(found)
    }
}
