//! Many processors: schedules explored at random, and virtual time.

mod explore;
mod virtual_time;
