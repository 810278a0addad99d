//! Counts of a running simulation, and the regions to which they are attributed.

pub mod census;
pub mod history;
pub mod labels;
pub mod origins;
