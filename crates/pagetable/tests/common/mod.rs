//! Every page table against an obvious one, an ordered map.

pub(crate) mod model;
pub(crate) mod physical;
pub(crate) mod stream;
pub(crate) mod world;

pub(crate) use stream::Stream;
pub(crate) use world::{Op, World};
