//! Names of places in programs, found while a trace runs.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use results::{CodePlace, FrameName};

/// Finds the functions of a place, as [`Results::name_origins`](results::Results::name_origins) does.
type Find = dyn FnMut(&CodePlace, bool) -> Vec<FrameName> + Send;

/// A function that finds names, shared by all runs of a machine.
#[derive(Clone)]
pub struct Names(Arc<Mutex<Box<Find>>>);

impl Names {
    /// Creates a function that finds names by calling `find`.
    pub fn new(find: impl FnMut(&CodePlace, bool) -> Vec<FrameName> + Send + 'static) -> Names {
        Names(Arc::new(Mutex::new(Box::new(find))))
    }

    /// The functions of the call that returns to `place`.
    pub fn of_call(&self, place: &CodePlace) -> Vec<FrameName> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)(place, true)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}
