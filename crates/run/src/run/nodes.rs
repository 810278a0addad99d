//! References to memory nodes, counted at TLB misses, and the migration of pages to the node that refers
//! to them most (G98 section 6.5).
//!
//! ```text
//!   walk --> frame of node h     processor of node n
//!              n == h: local       else remote
//!              the page's counters:  [ h: 3 | n: 68 | ... ]
//!              counter of n - counter of h >= migrate_after  --> the page moves to n, counters begin anew
//! ```
//!
//! A reference is a TLB miss in this model, for two reasons: data caches must not change decisions
//! of the operating system, and the miss handler is the place where software can count. The
//! Origin's hardware counts cache misses per page instead.

use std::collections::BTreeMap;

use addr::VirtAddr;
use description::{self, Description, Error, Refusal};
use hardware::behind::Behind;
use os::{System, events::Gone};
use pagetable::Translation;
use ram::topology::Topology;
use results::MigrationCounts;

use super::{
    Run,
    access::Lookup,
    hooks::{Hook, Hooks},
};

/// Cycles of counting one reference: an assumption, as for promotion.
const COUNT_CYCLES: u32 = 30;

/// The memory nodes, and their counts.
pub struct Nodes {
    pub topology: Topology,
    /// Misses by the node of the processor and by the node of the page.
    pub misses: Vec<Vec<u64>>,
    /// By space and first address of a page: the references of each node since the last migration
    /// of the page.
    pages: BTreeMap<(u32, u64), Vec<u32>>,
    counted: u64,
    count_cycles: u64,
    page_cycles: u64,
    /// Whether the operating system has its own price for moving pages.
    is_priced: bool,
    moved_pages: u64,
    moved_base_pages: u64,
    refused: BTreeMap<String, u64>,
    /// Whether pages migrate.
    migrates: bool,
}

impl Nodes {
    /// The nodes that `description` has; `None` if there is only one. The error has the key that is
    /// wrong.
    pub fn of(description: &Description, system: &dyn System) -> Result<Option<Nodes>, Refusal> {
        let Some(topology) = Topology::of(description)? else { return Ok(None) };
        let policy = description.os.numa.clone().unwrap_or_default();
        if let description::Placement::Node(node) = policy.placement
            && usize::from(node) >= topology.count()
        {
            let what =
                format!("there is no node {node}: the highest node is {}", topology.count() - 1);
            return Err(Refusal::new("os.numa.placement", what));
        }
        let migrates = system.moves_to_nodes();
        if policy.migrate_after.is_some() && !migrates {
            let what = format!(
                "pages of the manager `{}` stay on their nodes: use os.manager = \"irix\" or \"base\"",
                description.os.manager
            );
            return Err(Refusal::new("os.numa.migrate_after", what));
        }
        let count = topology.count();
        Ok(Some(Nodes {
            misses: vec![vec![0; count]; count],
            topology,
            pages: BTreeMap::new(),
            counted: 0,
            count_cycles: policy.count_cycles.unwrap_or(COUNT_CYCLES).into(),
            page_cycles: policy.moving_cycles(description::units::PageSize(description.os.base())),
            is_priced: system.prices_its_work(),
            moved_pages: 0,
            moved_base_pages: 0,
            refused: BTreeMap::new(),
            migrates,
        }))
    }

    /// Cycles of counting references, and of moving pages if the operating system has no price for
    /// moves.
    pub fn cycles(&self) -> (u64, u64) {
        let moving = if self.is_priced { 0 } else { self.moved_base_pages * self.page_cycles };
        (self.counted * self.count_cycles, moving)
    }

    /// The migration counts for the results; `None` if migration was not requested.
    pub fn migration(&self) -> Option<MigrationCounts> {
        (self.counted > 0).then(|| MigrationCounts {
            references: self.counted,
            counting_cycles: self.cycles().0,
            pages: self.moved_pages,
            base_pages: self.moved_base_pages,
            refused: self.refused.clone(),
        })
    }
}

impl Hook for Nodes {
    /// Resets the counts to zero, but keeps the references of pages.
    fn forget_counts(&mut self) {
        let Nodes {
            topology: _,
            misses,
            pages: _,
            counted,
            count_cycles: _,
            page_cycles: _,
            is_priced: _,
            moved_pages,
            moved_base_pages,
            refused,
            migrates: _,
        } = self;
        misses.iter_mut().for_each(|row| row.fill(0));
        (*counted, *moved_pages, *moved_base_pages) = (0, 0, 0);
        refused.clear();
    }

    fn on_gone(&mut self, space: u32, gone: &Gone) {
        match *gone {
            Gone::Bytes(start, bytes) => {
                let keys = (space, start)..(space, start.saturating_add(bytes));
                let gone: Vec<_> = self.pages.range(keys).map(|(key, _)| *key).collect();
                for key in gone {
                    self.pages.remove(&key);
                }
            }
            Gone::All => self.pages.retain(|(of, _), _| *of != space),
        }
    }
}

impl Run {
    /// Counts a miss whose page was found, and requests the page's migration if enough remote
    /// references were counted.
    #[cold]
    pub(super) fn refer(
        &mut self,
        place: Lookup<'_>,
        found: Translation,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        let Run { hooks: Hooks { nodes: Some(nodes), .. }, processors, system, stack, who, .. } =
            self
        else {
            return Ok(());
        };
        let from = nodes.topology.of_processor(processors.on());
        let at = nodes.topology.of_address(found.frame);
        nodes.misses[from][at] += 1;
        if !nodes.migrates {
            return Ok(());
        }
        let who = *who;
        let Some(most) = system.migrates_after(who, place.addr, &stack.guest) else {
            return Ok(());
        };
        nodes.counted += 1;
        processors.here.counts.work_cycles += nodes.count_cycles;
        let key = (who.number, found.page.start().get());
        let count = nodes.topology.count();
        let references = nodes.pages.entry(key).or_insert_with(|| vec![0; count]);
        references[from] = references[from].saturating_add(1);
        if from == at || references[from].saturating_sub(references[at]) < most.max(1) {
            return Ok(());
        }
        references.fill(0);
        let moved = self.ask(place.access, behind, |system, platform| {
            system.move_to_node(who, VirtAddr::new(key.1), from as u8, platform)
        })?;
        let Some(nodes) = &mut self.hooks.nodes else { return Ok(()) };
        match moved {
            Ok(0) => {}
            Ok(base_pages) => {
                nodes.moved_pages += 1;
                nodes.moved_base_pages += base_pages;
                if !nodes.is_priced {
                    self.processors.here.counts.work_cycles += base_pages * nodes.page_cycles;
                }
            }
            Err(why) => *nodes.refused.entry(why.to_owned()).or_insert(0) += 1,
        }
        self.timing.has_new_deadline = self.system.deadline().is_some();
        Ok(())
    }
}
