//! `--from-symbol`, `--from-marker` and the options for their ends: windows that begin and end at
//! events in the program.
//!
//! ```text
//!   mapped files --> Elf symbols --> addresses --> blocks that begin or hold them
//!                                                         | runs
//!   prctl(PAGEWALK, 1, n) --> Event::Marker ------------> the window begins, or ends
//! ```
//!
//! When a window begins in one process, it begins in all processes. When it ends in one process, it
//! ends in all. In the process with the event, it begins exactly with the block that contains the
//! symbol; in the others, with their next access by the clock. A child has its parent's files in
//! its memory, and so their symbols.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHashSet;
use serde::Deserialize;
use trace::{Event, Shape, ShapeId};

use crate::facts::Image;
use crate::{Options, elf};

/// The event that begins or ends a window.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sign {
    /// A call of the function of that name, in the program or in any library.
    Symbol(String),
    /// The program's marker of that number, or any marker.
    Marker(Option<u64>),
}

impl Sign {
    fn is_marker(&self, number: u64) -> bool {
        matches!(self, Sign::Marker(wanted) if wanted.is_none_or(|wanted| wanted == number))
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sign::Symbol(name) => write!(f, "symbol {name}"),
            Sign::Marker(Some(number)) => write!(f, "marker {number}"),
            Sign::Marker(None) => f.write_str("a marker"),
        }
    }
}

/// The state that all windows of a recording share.
#[derive(Debug, Default)]
pub(crate) struct Signs {
    from: Option<Sign>,
    to: Option<Sign>,
    begun: AtomicBool,
    over: AtomicBool,
    /// Whether a process has reached its number of instructions.
    full: AtomicBool,
    /// Whether a file had the symbol that begins the window.
    found: AtomicBool,
    /// For each file, by its path: the offsets of the symbols that begin and end the window.
    files: Mutex<HashMap<String, [Option<u64>; 2]>>,
}

impl Signs {
    pub(crate) fn new(options: &Options) -> Signs {
        let (from, to) = (options.from.clone(), options.to.clone());
        Signs { begun: from.is_none().into(), from, to, ..Signs::default() }
    }

    /// Whether the window has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether the window was ended by an event.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Begins the window in all processes.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Ends the window in all processes.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether the window has an end other than a number of accesses or instructions.
    pub(crate) fn has_end(&self) -> bool {
        self.to.is_some()
    }

    /// Called when a process has reached its number of instructions.
    pub(crate) fn fill(&self) {
        self.full.store(true, Ordering::Relaxed);
    }

    /// Whether the window has ended in at least one process, by an event or by its number of
    /// instructions.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_over() || self.full.load(Ordering::Relaxed)
    }

    /// Why nothing was recorded, if the window has not begun.
    pub(crate) fn why_nothing(&self) -> Option<String> {
        let from = self.from.as_ref().filter(|_| !self.has_begun())?;
        Some(match from {
            Sign::Symbol(name) if !self.found.load(Ordering::Relaxed) => format!(
                "--from-symbol {name}: neither the program nor a library that it loaded has a \
                 symbol of that name, so nothing was recorded; `nm` and `nm -D` list the symbols of \
                 a file"
            ),
            Sign::Symbol(name) => {
                format!(
                    "--from-symbol {name}: the function was never called, so nothing was recorded"
                )
            }
            Sign::Marker(_) => format!(
                "--from-marker: the program never executed {from}, so nothing was recorded; \
                 pagewalk.h says how to set markers"
            ),
        })
    }

    /// A note on a window that did not end.
    pub(crate) fn why_no_end(&self) -> Option<String> {
        let to = self.to.as_ref().filter(|_| !self.is_over())?;
        Some(format!("the window lasts to the end of the program, which never reached {to}"))
    }

    /// The offsets of the symbols in the file at `path`.
    fn places(&self, path: &str) -> [Option<u64>; 2] {
        let mut files = self.files.lock().unwrap_or_else(|poison| poison.into_inner());
        if let Some(places) = files.get(path) {
            return *places;
        }
        let places = [&self.from, &self.to].map(|sign| match sign {
            Some(Sign::Symbol(name)) => elf::symbol(Path::new(path), name),
            _ => None,
        });
        if places[0].is_some() {
            self.found.store(true, Ordering::Relaxed);
        }
        files.insert(path.to_owned(), places);
        places
    }
}

/// The places in one process that begin and end the window.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    /// The addresses of the symbols that begin and end the window.
    places: [Vec<u64>; 2],
    /// The blocks that contain the addresses of the signs.
    blocks: [FxHashSet<ShapeId>; 2],
}

impl Lookout {
    /// A lookout for the signs in a process that has mapped the files in `images`.
    pub(crate) fn new(images: &[Image], signs: &Signs) -> Lookout {
        let mut lookout = Lookout::default();
        images.iter().for_each(|image| lookout.mapped(image, signs));
        lookout
    }

    /// Called when the process executes another program.
    pub(crate) fn forget(&mut self) {
        *self = Lookout::default();
    }

    /// Adds a block.
    pub(crate) fn block(&mut self, id: ShapeId, shape: &Shape) {
        let own = shape.pc..shape.pc.saturating_add(u64::from(shape.bytes.max(1)));
        for (places, blocks) in self.places.iter().zip(&mut self.blocks) {
            if places.iter().any(|place| own.contains(place)) {
                blocks.insert(id);
            }
        }
    }

    /// The addresses of the symbol that begins the window.
    pub(crate) fn beginnings(&self) -> &[u64] {
        &self.places[0]
    }

    /// Whether the window begins with this block.
    pub(crate) fn begins_with(&self, id: ShapeId) -> bool {
        self.blocks[0].contains(&id)
    }

    /// Whether the window ends before this block.
    pub(crate) fn ends_with(&self, id: ShapeId) -> bool {
        self.blocks[1].contains(&id)
    }

    /// Adds the places in mappings that `event` makes. Returns whether the event begins the window,
    /// and whether the event ends the window.
    pub(crate) fn event(&mut self, event: &Event, signs: &Signs) -> (bool, bool) {
        if let Event::Marker { number } = event {
            let is = |sign: &Option<Sign>| sign.as_ref().is_some_and(|it| it.is_marker(*number));
            return (is(&signs.from), is(&signs.to));
        }
        if let Some(image) = Image::of(event) {
            self.mapped(&image, signs);
        }
        (false, false)
    }

    fn mapped(&mut self, image: &Image, signs: &Signs) {
        for (place, own) in signs.places(&image.path).into_iter().zip(&mut self.places) {
            let inside = place.and_then(|place| place.checked_sub(image.offset));
            let place = inside.filter(|inside| *inside < image.bytes);
            let place = place.and_then(|inside| image.start.checked_add(inside));
            own.extend(place.filter(|place| !own.contains(place)));
        }
    }
}
