//! Tests traces that are written, read, cut, mixed and generated. Models are vectors of rows.

mod blocking;
mod common;
mod copy;
mod damage;
mod data_only;
mod export;
mod foretold;
mod generators;
mod info;
mod kernel;
mod mix;
mod older;
mod recording;
mod replay;
mod round_trip;
mod spread;
mod system;
mod window;
