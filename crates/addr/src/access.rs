/// The kind of an access: fetch, load or store, as TLBs and caches distinguish them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The instructions of one basic block.
    Fetch = 0,
    /// A data read.
    Load = 1,
    /// A data write.
    Store = 2,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 3] = [Kind::Fetch, Kind::Load, Kind::Store];
    /// The number of kinds: the length of an array that is indexed by `kind as usize`.
    pub const COUNT: usize = 3;

    /// The field's name for this kind of access, lower case: `fetch`, `load` or `store`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Fetch => "fetch",
            Kind::Load => "load",
            Kind::Store => "store",
        }
    }
}
