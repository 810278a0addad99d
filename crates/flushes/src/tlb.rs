//! A TLB that keeps everything: it has no limit, and drops an entry only at an instruction that must drop it.

use rustc_hash::FxHashMap;

use super::tables::{Page, Path};

/// log2 of the bytes of the pages of x86-64.
const SIZES: [u8; 3] = [12, 21, 30];

/// A translation in the TLB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) page: Page,
    pub(super) path: Path,
    /// The number of changes of page tables before this translation was loaded.
    pub(super) loaded: u64,
    /// Whether a use of this translation has been reported.
    pub(super) reported: bool,
}

/// The translations of one context, by size and number of the page.
#[derive(Default)]
struct Context {
    pages: FxHashMap<(u8, u64), Held>,
    /// For each size: whether the context has ever had a translation of that size.
    sizes: [bool; 3],
}

impl Context {
    fn find(&self, addr: u64) -> impl Iterator<Item = (u8, u64)> {
        let sizes = SIZES.iter().zip(self.sizes).filter(|(_, has)| *has);
        let keys = sizes.map(move |(&size, _)| (size, addr >> size));
        keys.filter(|key| self.pages.contains_key(key))
    }

    fn load(&mut self, held: Held) {
        let size = held.page.size_log;
        if let Some(at) = SIZES.iter().position(|&each| each == size) {
            self.sizes[at] = true;
            self.pages.insert((size, held.page.addr >> size), held);
        }
    }

    fn drop_page(&mut self, addr: u64) {
        for size in SIZES {
            self.pages.remove(&(size, addr >> size));
        }
    }
}

/// Where a translation is: whether among the global ones, and its key.
pub(super) type Place = (bool, (u8, u64));

/// The TLB of one processor. Translations have the number of their context (PCID), except global ones.
#[derive(Default)]
pub(super) struct Tlb {
    global: Context,
    contexts: FxHashMap<u16, Context>,
}

impl Tlb {
    /// The places of all translations of `addr`: a page may have a global one, and others of other sizes.
    pub(super) fn find(&self, context: u16, addr: u64) -> Vec<Place> {
        let global = self.global.find(addr).map(|key| (true, key));
        let own = self.contexts.get(&context).into_iter();
        global.chain(own.flat_map(|own| own.find(addr)).map(|key| (false, key))).collect()
    }

    pub(super) fn get(&mut self, context: u16, (is_global, key): Place) -> Option<&mut Held> {
        match is_global {
            true => self.global.pages.get_mut(&key),
            false => self.contexts.get_mut(&context)?.pages.get_mut(&key),
        }
    }

    pub(super) fn load(&mut self, context: u16, held: Held) {
        match held.page.global {
            true => self.global.load(held),
            false => self.contexts.entry(context).or_default().load(held),
        }
    }

    pub(super) fn remove(&mut self, context: u16, (is_global, key): Place) {
        if is_global {
            self.global.pages.remove(&key);
        } else if let Some(own) = self.contexts.get_mut(&context) {
            own.pages.remove(&key);
        }
    }

    /// Drops the translations of a page in a context, and the global ones.
    pub(super) fn drop_page(&mut self, context: u16, addr: u64) {
        self.global.drop_page(addr);
        self.drop_own_page(context, addr);
    }

    /// Drops the translations of a page in a context, without global ones.
    pub(super) fn drop_own_page(&mut self, context: u16, addr: u64) {
        if let Some(own) = self.contexts.get_mut(&context) {
            own.drop_page(addr);
        }
    }

    /// Drops all of a context, without global ones.
    pub(super) fn drop_context(&mut self, context: u16) {
        self.contexts.remove(&context);
    }

    /// Drops all, without global ones.
    pub(super) fn drop_own(&mut self) {
        self.contexts.clear();
    }

    pub(super) fn drop_all(&mut self) {
        self.contexts.clear();
        self.global = Context::default();
    }
}
