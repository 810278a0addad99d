//! A machine whose description has been read and checked, and the run of a trace through it.

use std::sync::Arc;

use description::{
    Clock, Description, Error, Refusal, builtin, digest,
    settings::{self, Applied, Written},
};
use hardware::{processor::Processor, walker};
use os::{host::Host, names::Names};
use ram::walk::HostTable;
use results::Results;
use run::{Nodes, Overheads, Parts, Promotion, Run, RunOptions, Runnable, Small, report::summary};
use trace::Source;

/// A machine that can run traces: its description has been read and checked.
#[derive(Clone, Debug)]
pub struct Machine {
    name: String,
    description: Description,
    /// The page sizes that the machine's page table supports, ascending.
    sizes: Vec<addr::PageSize>,
    /// The tree properties of the machine's page table, if walks descend from a root.
    tree: Option<pagetable::TreeShape>,
    /// The properties of the host's page table, if the machine is virtual.
    host_table: Option<HostTable>,
    settings: Vec<String>,
    added: Vec<String>,
    digest: String,
    written: Arc<Written>,
    /// The function that finds names of places in programs, for rules that name such places.
    names: Option<Names>,
}

impl Machine {
    /// The machine called `name_or_path`: a built-in machine ([`BUILTIN`](crate::BUILTIN)) or a TOML file,
    /// modified by `settings` such as `tlb.l1d.entries=128`.
    pub fn load(name_or_path: &str, settings: &[String]) -> Result<Machine, Error> {
        let (name, text, origin) = builtin::find(name_or_path)?;
        Machine::parse(&name, &text, &origin, settings)
    }

    /// The machine described by `text`; `origin` is the name of the text in errors.
    pub fn parse(
        name: &str,
        text: &str,
        origin: &str,
        settings: &[String],
    ) -> Result<Machine, Error> {
        let Applied { description, added } = settings::apply(text, origin, settings)?;
        let digest = digest::of(&description);
        // A machine that cannot be built is refused here, before any trace is opened.
        let written = Written {
            text: text.to_owned(),
            origin: origin.to_owned(),
            settings: settings.to_vec(),
        };
        let refused = |Refusal { key, what }| written.locate(&key, &what);
        Processor::new(&description).map_err(refused)?;
        Small::of(&description).map_err(refused)?;
        let mut stack = managers::host::stack(&description).map_err(refused)?;
        let (system, _) = managers::system(&description, &stack.guest).map_err(refused)?;
        Overheads::of(&description).map_err(refused)?;
        Promotion::of(&description, system.as_ref()).map_err(refused)?;
        Nodes::of(&description, system.as_ref()).map_err(refused)?;
        stack.guest.first_space().map_err(refused)?;
        let (tree, host_table) = (stack.guest.tree_shape(), stack.host().map(Host::table));
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

    /// This machine, with `names` as the function that finds names of places in programs.
    #[must_use]
    pub fn with_names(self, names: Names) -> Machine {
        Machine { names: Some(names), ..self }
    }

    /// The name of the machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The complete description of the machine, including the settings.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The settings that modified the machine.
    pub fn settings(&self) -> &[String] {
        &self.settings
    }

    /// The tables, such as `tlb.l1d`, that settings added to the tables of the machine's file.
    pub fn added(&self) -> &[String] {
        &self.added
    }

    /// The SHA-256 of the description including the settings, as 64 hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The arrays of the machine's MMU cache with the bits of their entries; empty if there is no
    /// MMU cache.
    pub fn mmu_cache_arrays(&self) -> Vec<results::MmuCacheArray> {
        let Ok(walkers) = self.walkers() else { return Vec::new() };
        let described = self.description.mmu_cache.as_ref();
        let counts = summary::mmu_cache(described, &walkers.here.dimension);
        counts.map_or_else(Vec::new, |counts| counts.arrays)
    }

    /// Which pages are guaranteed to hit in the machine's first-level TLBs, so that a recorder can
    /// count accesses to these pages instead of reporting each access. The error says why no page
    /// is guaranteed to hit.
    pub fn sure_pages(&self) -> Result<trace::SurePages, String> {
        hardware::sure::pages(&self.description)
    }

    /// Runs all of `source` through the machine.
    pub fn run(&self, source: &mut dyn Source, options: RunOptions<'_>) -> Result<Results, Error> {
        run::run(self, source, options)
    }
}

impl Runnable for Machine {
    fn description(&self) -> &Description {
        &self.description
    }

    fn summary(&self) -> results::MachineSummary {
        results::MachineSummary {
            name: self.name.clone(),
            title: self.description.title.clone(),
            source: self.description.source.clone(),
            digest: self.digest.clone(),
            settings: self.settings.clone(),
            description: serde_json::to_value(&self.description).unwrap_or_default(),
        }
    }

    fn start(&self, check: bool, clock: Clock) -> Result<Run, Error> {
        let refused = |Refusal { key, what }| self.written.locate(&key, &what);
        let stack = managers::host::stack(&self.description).map_err(refused)?;
        let (mut system, changes) =
            managers::system(&self.description, &stack.guest).map_err(refused)?;
        if let Some(names) = &self.names {
            system.find_by(names.clone());
        }
        let parts = Parts { written: self.written.clone(), stack, system, changes };
        Run::new(&self.description, parts, check, clock)
    }

    fn walkers(&self) -> Result<walker::Walkers, Error> {
        let (tree, host_table) = (self.tree.clone(), self.host_table.clone());
        walker::Walkers::build(&self.description, &self.sizes, tree, host_table)
            .map_err(|Refusal { key, what }| self.written.locate(&key, &what))
    }
}
