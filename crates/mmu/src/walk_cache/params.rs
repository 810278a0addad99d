//! The parameters of an MMU cache.

use core::{fmt, str::FromStr};

use pagetable::TreeShape;

use super::Design;
use crate::{GeometryError, Policy};

/// The error for text that is not the name of a design. Its message lists the names.
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

/// The parameters of one array of an MMU cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkArray {
    /// In a split cache the level whose entries the array holds, from 2 up; otherwise 0.
    pub level: u8,
    /// The number of entries; in a path cache, the number of paths.
    pub entries: u32,
    /// The number of ways per set.
    pub ways: u32,
}

/// The parameters of an MMU cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalkCacheParams {
    /// The design: how the cache is tagged and divided.
    pub design: Design,
    /// One array, or one per level; a level without an array is not cached.
    pub arrays: Vec<WalkArray>,
    /// The policy that chooses the entry to replace in a full set.
    pub replacement: Policy,
    /// The seed of [`Policy::Random`].
    pub seed: u64,
    /// Whether the cache also holds pages, as entries for tables of level 0, like a TLB. Only with
    /// [`Design::Utc`].
    pub pages: bool,
    /// The properties of the tree that is walked.
    pub tree: TreeShape,
}

impl WalkCacheParams {
    /// The only array of a design that is not split.
    pub(super) fn unified(&self) -> Result<WalkArray, (WalkArray, GeometryError)> {
        let none = WalkArray { level: 0, entries: 0, ways: 0 };
        self.arrays.first().copied().ok_or((none, GeometryError::Empty))
    }

    /// For each level, the result of `build` for the level's array.
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
