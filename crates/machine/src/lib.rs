//! A machine: hardware and operating system put together from a description, and the run of a
//! trace through it.
//!
//! ```text
//!  machines/*.toml --> Description --> Machine --run(Source)--> Results --> JSON
//!                                        |
//!          +-----------------------------+------------------------------+
//!          |  Source -> TLBs -> page table -> walker -> data caches     |   run, hardware, ram
//!          |               \-> fault -> System: mappings, flushes       |   os/
//!          +------------------------------------------------------------+
//! ```
//!
//! Only this crate knows both halves: `mmu` does not know that there is an operating system,
//! and the operating system does not know that its memory is simulated. Counts come first and
//! are exact; time is a second step over them ([`Results::time`]).
#![forbid(unsafe_code)]

mod count;
pub mod curve;
pub mod description;
mod hardware;
mod kernel_path;
mod managers;
mod os;
mod page_table_bench;
mod ram;
pub mod results;
mod run;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod worlds;

pub use self::os::names::Names;
pub use self::ram::table::page_table_formats;
pub use self::results::Results;
pub use description::{
    Description, Error,
    builtin::{BUILTIN, Builtin},
    units,
};
pub use page_table_bench::{PageTableBench, Work};
pub use run::{Progress, RunOptions};

use std::sync::Arc;

use count::summary;
use description::{
    builtin, digest,
    settings::{self, Applied, Written},
};
use hardware::{processor::Processor, walker};

/// A machine that can run traces: a description that has been read and checked.
#[derive(Clone, Debug)]
pub struct Machine {
    name: String,
    description: Description,
    /// The page sizes that its page table can hold, ascending.
    sizes: Vec<addr::PageSize>,
    /// What its page table looks like, if walks descend from a root.
    tree: Option<pagetable::TreeShape>,
    /// The same of the host's, in a virtual machine.
    host_table: Option<ram::walk::HostTable>,
    settings: Vec<String>,
    added: Vec<String>,
    digest: String,
    written: Arc<Written>,
    /// How names of places in programs are found, for rules that name such.
    names: Option<Names>,
}

impl Machine {
    /// The machine called `name_or_path`: a built-in one ([`BUILTIN`]) or a TOML file, changed
    /// by `settings` such as `tlb.l1d.entries=128`.
    pub fn load(name_or_path: &str, settings: &[String]) -> Result<Machine, Error> {
        let (name, text, origin) = builtin::find(name_or_path)?;
        Machine::parse(&name, &text, &origin, settings)
    }

    /// The machine described by `text`; `origin` is what errors call the text.
    pub fn parse(
        name: &str,
        text: &str,
        origin: &str,
        settings: &[String],
    ) -> Result<Machine, Error> {
        let Applied { description, added } = settings::apply(text, origin, settings)?;
        let digest = digest::of(&description);
        // What cannot be built is refused here, not when a trace is waiting.
        let written = Written {
            text: text.to_owned(),
            origin: origin.to_owned(),
            settings: settings.to_vec(),
        };
        let refused = |(key, what): (String, String)| written.locate(&key, &what);
        Processor::new(&description).map_err(refused)?;
        run::small::Small::of(&description).map_err(refused)?;
        let mut stack = managers::host::stack(&description).map_err(refused)?;
        let (system, _) = managers::system(&description, &stack.guest).map_err(refused)?;
        run::overheads::Overheads::of(&description).map_err(refused)?;
        run::promotion::Promotion::of(&description, system.as_ref()).map_err(refused)?;
        run::nodes::Nodes::of(&description, system.as_ref()).map_err(refused)?;
        stack.guest.first_space().map_err(refused)?;
        let (tree, host_table) =
            (stack.guest.tree_shape(), stack.host().map(os::host::Host::table));
        let sizes = stack.guest.page_sizes().to_vec();
        walker::Walker::new(&description, 0, &sizes, tree.clone(), host_table.clone())
            .map_err(refused)?;
        let (name, settings) = (name.to_owned(), settings.to_vec());
        let (names, written) = (None, Arc::new(written));
        Ok(Machine {
            name,
            description,
            sizes,
            tree,
            host_table,
            settings,
            added,
            digest,
            written,
            names,
        })
    }

    /// The same, whose runs find names of places in programs by `names`.
    #[must_use]
    pub fn with_names(self, names: Names) -> Machine {
        Machine { names: Some(names), ..self }
    }

    pub(crate) fn names(&self) -> Option<&Names> {
        self.names.as_ref()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All that it consists of, after the settings.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The settings that changed it.
    pub fn settings(&self) -> &[String] {
        &self.settings
    }

    /// The tables, as in `tlb.l1d`, that its file does not have and that the settings added.
    pub fn added(&self) -> &[String] {
        &self.added
    }

    /// SHA-256 of the description after the settings, as 64 hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The arrays of its MMU cache with the bits that their entries take; none if it has none.
    pub fn mmu_cache_arrays(&self) -> Vec<results::MmuCacheArray> {
        let Ok(walkers) = self.walkers() else { return Vec::new() };
        let described = self.description.mmu_cache.as_ref();
        let counts = summary::mmu_cache(described, &walkers.here.dimension);
        counts.map_or_else(Vec::new, |counts| counts.arrays)
    }

    /// Its processors' walkers, with their caches, before any access.
    pub(crate) fn walkers(&self) -> Result<walker::Walkers, Error> {
        let (tree, host_table) = (self.tree.clone(), self.host_table.clone());
        walker::Walkers::build(&self.description, &self.sizes, tree, host_table)
            .map_err(|wrong| run::built(self, wrong))
    }

    /// Which pages are sure to be in its first TLBs, so that accesses to them may be counted and not told,
    /// or why none is.
    pub fn sure_pages(&self) -> Result<trace::SurePages, String> {
        description::sure::pages(&self.description)
    }

    /// Runs all of `source` through the machine.
    pub fn run(
        &self,
        source: &mut dyn trace::Source,
        options: RunOptions<'_>,
    ) -> Result<Results, Error> {
        run::run(self, source, options)
    }
}
