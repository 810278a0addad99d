//! What hears of misses and flushes beside the run: optional features of a machine, one file each.
//!
//! ```text
//!   every TLB missed --> on_miss --> walk --> on_walk --> TLBs filled --> on_fill
//!                        ranges               ranges                      nodes
//!                        overheads
//!                        promotion
//!
//!   shootdown --> on_flush: ranges       event --> on_event: promotion, nodes
//! ```
//!
//! The path of a miss asks one thing, whether there is any ([`Hooks::is_any`]); all else is here and cold. A new
//! feature is a file, a field of [`Hooks`], and a line in each function that concerns it: the functions name all
//! fields, so that none is forgotten.

use addr::{PageSize, PhysAddr};
use description::{Description, Error, Refusal};
use hardware::{behind::Behind, range_unit::RangesFrom};
use os::{System, events::Gone, ranges::RangeTable};
use pagetable::{Flush, Scope, Translation};
use trace::Event;

use super::{Run, access::Place, nodes::Nodes, overheads::Overheads, promotion::Promotion};

/// The features that a machine has.
pub struct Hooks {
    /// What misses are charged to, where pages are promoted for them.
    pub promotion: Option<Promotion>,
    /// What is referred to by node, if memory has nodes.
    pub nodes: Option<Nodes>,
    /// What translation costs each space, if the system wants to know it.
    pub(super) overheads: Option<Overheads>,
    /// Where ranges that a TLB translates come from, if one does.
    ranges: Option<RangesFrom>,
    /// Which pages make ranges, where an operating system's table says so.
    pub range_table: Option<RangeTable>,
    is_any: bool,
}

impl Hooks {
    /// Those that `description` asks for; an error comes with the key that is wrong.
    pub(super) fn of(
        description: &Description,
        system: &dyn System,
        ranges: Option<RangesFrom>,
    ) -> Result<Hooks, Refusal> {
        let mut hooks = Hooks {
            promotion: Promotion::of(description, system)?,
            nodes: Nodes::of(description, system)?,
            overheads: Overheads::of(description)?,
            ranges,
            range_table: ranges
                .filter(|from| *from == RangesFrom::Table)
                .map(|_| RangeTable::default()),
            is_any: false,
        };
        hooks.is_any = !hooks.allows_dense();
        Ok(hooks)
    }

    /// Whether anything hears of misses.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.is_any
    }

    /// Whether misses may be run side by side: nothing has to hear of each one in its turn.
    pub(super) fn allows_dense(&self) -> bool {
        let Hooks { promotion, nodes, overheads, ranges, range_table: _, is_any: _ } = self;
        promotion.is_none() && nodes.is_none() && overheads.is_none() && ranges.is_none()
    }

    /// Whether no feature adds a price of its own to a miss.
    pub(super) fn leaves_prices(&self) -> bool {
        let Hooks { promotion, nodes, overheads: _, ranges: _, range_table: _, is_any: _ } = self;
        promotion.is_none() && nodes.is_none()
    }

    /// So many instructions of a space ran.
    pub(super) fn ran(&mut self, space: u32, instructions: u64) {
        if let Some(overheads) = &mut self.overheads {
            overheads.ran(space, instructions);
        }
    }

    /// Hardware forgets what `flush` names in `space`.
    pub(super) fn on_flush(&mut self, space: u32, flush: &Flush) {
        let Some(table) = &mut self.range_table else { return };
        match flush.scope() {
            Scope::Nothing => {}
            Scope::Pages { range, .. } => table.forget(space, range),
            Scope::Space => table.forget_space(space),
        }
    }

    /// Begins to count anew; what pages were charged with stays.
    pub(super) fn forget_counts(&mut self) {
        let Hooks { promotion, nodes, overheads: _, ranges: _, range_table: _, is_any: _ } = self;
        if let Some(promotion) = promotion {
            promotion.forget_counts();
        }
        if let Some(nodes) = nodes {
            nodes.forget_counts();
        }
    }
}

impl Run {
    /// No level of TLBs answered. Gives where the access goes, if something else translates it.
    #[cold]
    pub(super) fn on_miss(
        &mut self,
        place: Place<'_>,
        second: usize,
        behind: &mut impl Behind,
    ) -> Result<Option<(PhysAddr, PageSize)>, Error> {
        if self.hooks.ranges.is_some()
            && let Some(found) = self.in_range(place, second)
        {
            return Ok(Some(found));
        }
        if let Some(overheads) = &mut self.hooks.overheads {
            overheads.missed(self.who.number);
        }
        if self.hooks.promotion.is_some() {
            self.charge(place, behind)?;
        }
        Ok(None)
    }

    /// A walk has found `page`.
    #[cold]
    pub(super) fn on_walk(&mut self, page: Translation) {
        match self.hooks.ranges {
            Some(RangesFrom::Table) => self.note_range(page),
            Some(RangesFrom::Line) => self.note_line(page),
            None => {}
        }
    }

    /// The TLBs have been filled with the page that a walk `found`.
    #[cold]
    pub(super) fn on_fill(
        &mut self,
        place: Place<'_>,
        found: Translation,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        if self.hooks.nodes.is_some() {
            self.refer(place, found, behind)?;
        }
        Ok(())
    }

    /// Forgets what was counted of the pages that `event` takes away.
    pub(super) fn on_event(&mut self, event: &Event) {
        let Run { hooks, layout, who, .. } = self;
        let Hooks { promotion, nodes, overheads: _, ranges: _, range_table: _, is_any: _ } = hooks;
        if promotion.is_none() && nodes.is_none() {
            return;
        }
        let regions = layout.regions(who.number);
        let before = regions.and_then(|regions| regions.program_break());
        let Some(gone) = Gone::by(event, before) else { return };
        if let Some(promotion) = promotion {
            match gone {
                Gone::Bytes(start, bytes) => promotion.forget(who.number, (start, bytes)),
                Gone::All => promotion.forget_space(who.number),
            }
        }
        if let Some(nodes) = nodes {
            match gone {
                Gone::Bytes(start, bytes) => nodes.forget(who.number, (start, bytes)),
                Gone::All => nodes.forget_space(who.number),
            }
        }
    }
}
