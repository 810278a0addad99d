//! What an MMU cache is built from.

use core::{fmt, str::FromStr};

use pagetable::TreeShape;

use super::Design;
use crate::{GeometryError, Policy};

/// A text that names no design; its message lists those that there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseDesignError {
    text: String,
}

impl fmt::Display for ParseDesignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not an MMU cache: write none", self.text)?;
        Design::ALL.iter().try_for_each(|design| write!(f, ", {}", design.name()))
    }
}

impl core::error::Error for ParseDesignError {}

impl FromStr for Design {
    type Err = ParseDesignError;

    fn from_str(text: &str) -> Result<Design, ParseDesignError> {
        let found = Design::ALL.into_iter().find(|design| design.name() == text);
        found.ok_or_else(|| ParseDesignError { text: text.to_owned() })
    }
}

/// One array of an MMU cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkArray {
    /// In a split cache the level whose entries it holds, from 2 on; otherwise 0.
    pub level: u8,
    /// Entries; of a path cache, paths.
    pub entries: u32,
    /// Ways of a set.
    pub ways: u32,
}

/// The shape of an MMU cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalkCacheParams {
    /// How it is tagged and divided.
    pub design: Design,
    /// One array, or one per level; a level without an array is not cached.
    pub arrays: Vec<WalkArray>,
    /// Which entry of a full set goes.
    pub replacement: Policy,
    /// Start of the sequence of [`Policy::Random`].
    pub seed: u64,
    /// Whether pages come in too, as entries for tables of level 0: what a TLB holds. Only of
    /// [`Design::Utc`].
    pub pages: bool,
    /// The tree that is walked.
    pub tree: TreeShape,
}

impl WalkCacheParams {
    /// The only array of a design that is not split.
    pub(super) fn unified(&self) -> Result<WalkArray, (WalkArray, GeometryError)> {
        let none = WalkArray { level: 0, entries: 0, ways: 0 };
        self.arrays.first().copied().ok_or((none, GeometryError::Empty))
    }

    /// By level: what `build` makes of the level's array.
    pub(super) fn split<T>(
        &self,
        build: impl Fn(WalkArray) -> Result<T, (WalkArray, GeometryError)>,
    ) -> Result<Box<[Option<T>]>, (WalkArray, GeometryError)> {
        let mut levels: Vec<Option<T>> = (0..=self.tree.levels).map(|_| None).collect();
        for array in &self.arrays {
            if let Some(level) = levels.get_mut(usize::from(array.level)) {
                *level = Some(build(*array)?);
            }
        }
        Ok(levels.into_boxed_slice())
    }
}
