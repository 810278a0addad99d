//! The obvious memory manager: a map from (space, page) to identity, rights and contents.

use alloc::collections::{BTreeMap, BTreeSet};

use addr::{Kind, Rights};
use vm::FileKey;

use crate::board::original;

/// What a page is a page of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Identity {
    /// Zeros, or the space's own.
    Anonymous,
    File(FileKey, u64),
    /// Of shared memory with this number.
    Memory(u64, u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) identity: Identity,
    pub(crate) rights: Rights,
    pub(crate) shared: bool,
    pub(crate) wired: bool,
    /// What the space has stored, where that is its own.
    pub(crate) own: Option<u64>,
    /// Whether a page beside it was stored to with which, in a large page, it may have been copied.
    pub(crate) beside: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Space {
    pub(crate) pages: BTreeMap<u64, Known>,
    pub(crate) users: u32,
}

#[derive(Default)]
pub(crate) struct Model {
    /// Contents of shared pages that someone has stored to.
    shared: BTreeMap<Identity, u64>,
    /// And what else they had before.
    before: BTreeSet<(Identity, u64)>,
}

impl Model {
    /// What a load finds.
    pub(crate) fn contents(&self, known: &Known) -> u64 {
        known.own.unwrap_or_else(|| self.shared(known.identity))
    }

    /// Whether a load may find `found`. Once a private page of a file may have been copied with another,
    /// mmap leaves open which of the file's contents it has.
    pub(crate) fn may_be(&self, known: &Known, found: u64) -> bool {
        let copied = known.beside && !known.shared && known.own.is_none();
        found == self.contents(known) || copied && self.before.contains(&(known.identity, found))
    }

    /// What all have that share a page.
    pub(crate) fn shared(&self, identity: Identity) -> u64 {
        let stored = self.shared.get(&identity).copied();
        stored.unwrap_or_else(|| match identity {
            Identity::Anonymous | Identity::Memory(..) => 0,
            Identity::File(file, index) => original(file, index),
        })
    }

    /// A page that is shared has other contents.
    pub(crate) fn overwrite(&mut self, identity: Identity, stamp: u64) {
        self.before.insert((identity, self.shared(identity)));
        self.shared.insert(identity, stamp);
    }

    pub(crate) fn store(&mut self, known: &mut Known, stamp: u64) {
        if known.shared {
            self.overwrite(known.identity, stamp);
        } else {
            known.own = Some(stamp);
        }
    }
}

/// What the manager makes of rights: whoever may do anything may read, and where the page table does not tell
/// the two apart, execute.
pub(crate) fn allows(rights: Rights, kind: Kind, no_execute: bool) -> bool {
    let implied = match kind {
        Kind::Fetch => !no_execute,
        Kind::Load => true,
        Kind::Store => false,
    };
    rights.allows(kind) || implied && rights.bits() & 7 != 0
}
