//! Tests of many processors: random schedules, and virtual time.

mod board;
mod clients;
mod explore;
mod skeletons;
mod times;
mod turns;
mod virtual_time;
