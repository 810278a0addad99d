//! What a run counts, and what becomes of the counts.

pub(crate) mod census;
pub(crate) mod history;
pub(crate) mod identities;
pub(crate) mod labels;
pub(crate) mod origins;
pub(crate) mod summary;
pub(crate) mod time;
