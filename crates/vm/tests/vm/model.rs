//! The reference model of the memory manager: a map from (space, page) to identity, rights and
//! contents.

use alloc::collections::{BTreeMap, BTreeSet};

use addr::{Kind, Rights};
use vm::FileKey;

use crate::board::original;

/// The object to which a page belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Identity {
    /// Anonymous memory: zeros, or the space's own page.
    Anonymous,
    File(FileKey, u64),
    /// A page of the shared memory with this number.
    Memory(u64, u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) identity: Identity,
    pub(crate) rights: Rights,
    pub(crate) shared: bool,
    pub(crate) wired: bool,
    /// The contents that the space has stored, if the page is its own.
    pub(crate) own: Option<u64>,
    /// Whether a neighbouring page was stored to. If both were in a large page, this page may have
    /// been copied together with it.
    pub(crate) beside: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Space {
    pub(crate) pages: BTreeMap<u64, Known>,
    pub(crate) users: u32,
}

#[derive(Default)]
pub(crate) struct Model {
    /// The contents of shared pages that a space has stored to.
    shared: BTreeMap<Identity, u64>,
    /// The earlier contents of these pages.
    before: BTreeSet<(Identity, u64)>,
}

impl Model {
    /// The contents that a load must find.
    pub(crate) fn contents(&self, known: &Known) -> u64 {
        known.own.unwrap_or_else(|| self.shared(known.identity))
    }

    /// Whether a load may find `found`. If a private page of a file may have been copied together
    /// with another page, `mmap` does not define whether it has the file's earlier or later
    /// contents.
    pub(crate) fn may_be(&self, known: &Known, found: u64) -> bool {
        let copied = known.beside && !known.shared && known.own.is_none();
        found == self.contents(known) || copied && self.before.contains(&(known.identity, found))
    }

    /// The contents of a shared page.
    pub(crate) fn shared(&self, identity: Identity) -> u64 {
        let stored = self.shared.get(&identity).copied();
        stored.unwrap_or_else(|| match identity {
            Identity::Anonymous | Identity::Memory(..) => 0,
            Identity::File(file, index) => original(file, index),
        })
    }

    /// Changes the contents of a shared page.
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

/// Whether the manager allows an access: any right implies the right to read and, if the page table
/// cannot forbid execution, the right to execute.
pub(crate) fn allows(rights: Rights, kind: Kind, no_execute: bool) -> bool {
    let implied = match kind {
        Kind::Fetch => !no_execute,
        Kind::Load => true,
        Kind::Store => false,
    };
    rights.allows(kind) || implied && rights.bits() & 7 != 0
}
