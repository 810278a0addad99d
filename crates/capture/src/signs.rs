//! `--from-symbol`, `--from-marker` and their ends: a window by what the program does.
//!
//! ```text
//!   mapped files --> Elf symbols --> addresses --> blocks that begin or hold them
//!                                                         | runs
//!   prctl(PAGEWALK, 1, n) --> Event::Marker ------------> the window begins, or ends
//! ```
//!
//! A window begins in all processes when it begins in one, and so it ends. In the one that it
//! begins in it does so exactly with the block that holds the symbol; in the others with what is
//! next of them by the clock. A child has its parent's files in its memory, and so their symbols.

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

/// What a window begins or ends with.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sign {
    /// The function of that name, of the program or of any library, is called.
    Symbol(String),
    /// The program comes to the marker of that number, or to any.
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

/// What all windows of a recording know.
#[derive(Debug, Default)]
pub(crate) struct Signs {
    from: Option<Sign>,
    to: Option<Sign>,
    begun: AtomicBool,
    over: AtomicBool,
    /// Whether a process has had all of its instructions.
    full: AtomicBool,
    /// Whether a file had the symbol that the window begins with.
    found: AtomicBool,
    /// By file: where in it the symbols are, of the beginning and of the end.
    files: Mutex<HashMap<String, [Option<u64>; 2]>>,
}

impl Signs {
    pub(crate) fn new(options: &Options) -> Signs {
        let (from, to) = (options.from.clone(), options.to.clone());
        Signs { begun: from.is_none().into(), from, to, ..Signs::default() }
    }

    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether it has ended by a sign.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The window begins, in all processes.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// It ends, in all processes.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether it ends with more than a number of accesses or instructions.
    pub(crate) fn has_end(&self) -> bool {
        self.to.is_some()
    }

    /// A process has had all of its instructions.
    pub(crate) fn fill(&self) {
        self.full.store(true, Ordering::Relaxed);
    }

    /// Whether it has ended in one process at least, in whichever of these ways.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_over() || self.full.load(Ordering::Relaxed)
    }

    /// Why nothing was recorded, if it has not begun.
    pub(crate) fn why_nothing(&self) -> Option<String> {
        let from = self.from.as_ref().filter(|_| !self.has_begun())?;
        Some(match from {
            Sign::Symbol(name) if !self.found.load(Ordering::Relaxed) => format!(
                "--from-symbol {name}: neither the program nor a library that it loaded has a \
                 symbol of that name, so nothing was recorded; `nm` and `nm -D` list a file's"
            ),
            Sign::Symbol(name) => {
                format!("--from-symbol {name}: it was never called, so nothing was recorded")
            }
            Sign::Marker(_) => format!(
                "--from-marker: the program never executed {from}, so nothing was recorded; \
                 pagewalk.h says how to set markers"
            ),
        })
    }

    /// What must be known of a window that did not end.
    pub(crate) fn why_no_end(&self) -> Option<String> {
        let to = self.to.as_ref().filter(|_| !self.is_over())?;
        Some(format!("the window lasts to the end of the program, which never reached {to}"))
    }

    /// Where in the file at `path` the symbols are.
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

/// What a window of one process looks for.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    /// Where the symbols are in its memory, of the beginning and of the end.
    places: [Vec<u64>; 2],
    /// The blocks that hold them.
    blocks: [FxHashSet<ShapeId>; 2],
}

impl Lookout {
    /// The lookout of a process in whose memory there are `images`.
    pub(crate) fn new(images: &[Image], signs: &Signs) -> Lookout {
        let mut lookout = Lookout::default();
        images.iter().for_each(|image| lookout.mapped(image, signs));
        lookout
    }

    /// The process runs another program.
    pub(crate) fn forget(&mut self) {
        *self = Lookout::default();
    }

    /// A block is made known.
    pub(crate) fn block(&mut self, id: ShapeId, shape: &Shape) {
        let own = shape.pc..shape.pc.saturating_add(u64::from(shape.bytes.max(1)));
        for (places, blocks) in self.places.iter().zip(&mut self.blocks) {
            if places.iter().any(|place| own.contains(place)) {
                blocks.insert(id);
            }
        }
    }

    /// Whether the window begins with this block.
    pub(crate) fn begins_with(&self, id: ShapeId) -> bool {
        self.blocks[0].contains(&id)
    }

    /// Whether it ends before this block.
    pub(crate) fn ends_with(&self, id: ShapeId) -> bool {
        self.blocks[1].contains(&id)
    }

    /// Takes note of what `event` maps. Says whether it is the beginning, or the end.
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
