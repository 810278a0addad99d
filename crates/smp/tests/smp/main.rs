//! Many processors: schedules explored at random, and virtual time.

mod board;
mod clients;
mod explore;
mod skeletons;
mod times;
mod turns;
mod virtual_time;
