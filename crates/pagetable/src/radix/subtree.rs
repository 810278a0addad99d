//! Operations that change only entries below one table, so that several operations can run at the
//! same time on disjoint subtrees.
//!
//! ```text
//!   root  [ . . a . . . b . ]          an operation below a      changes a's population here,
//!               |       |                                        and a's subtree, nothing else
//!             [ . . ] [ . . ]          one below b, at the same time: b's
//! ```
//!
//! The entry that leads to a table belongs to that table's subtree, since the table's population,
//! which is in the entry, changes with it. An operation that stays below a table never empties this
//! table, since the table above would then change too. An operation that could empty the table uses
//! a higher table instead ([`Radix::covering`]).

use addr::{Frames, Memory, PhysAddr, VirtAddr, VirtRange};

use super::{
    Radix, Table,
    change::{Change, Clear, Protect, Remove},
    edit::Edit,
};
use crate::{Error, Flush, Format, Intent, Mapping, Space, SubtreeEdit, SubtreeTable, Translation};

/// The table below which an operation stays, with the address and value of the entry that leads to
/// it.
struct Top {
    table: Table,
    at: PhysAddr,
    entry: u64,
}

impl<F: Format> Radix<F> {
    /// The table of `level` for `addr`, which exists and is not the root.
    fn top(
        &self,
        space: Space,
        level: u8,
        addr: VirtAddr,
        memory: &impl Memory,
    ) -> Result<Top, Error> {
        self.spaces.check(space)?;
        let mut table = self.root_table(space);
        loop {
            let at = self.entry_at(table.level, table.start, addr);
            let entry = self.format.read(table.level, at, memory);
            let start = self.format.next_table(entry, table.level);
            let start = start.ok_or(Error::NotMapped { addr })?;
            table = Table { level: table.level - 1, start, entries: self.used(entry) };
            if table.level == level {
                return Ok(Top { table, at, entry });
            }
        }
    }

    /// Whether `table` is guaranteed to have an entry in use outside of `range`.
    fn outlasts(&self, table: Table, range: VirtRange, memory: &impl Memory) -> bool {
        let shift = self.format.entry_shift(table.level);
        let slots = (range.last().get() >> shift) - (range.start().get() >> shift) + 1;
        if let Some(entries) = table.entries {
            return entries > slots;
        }
        self.has_other(table.level, table.start, self.offsets(table.level, range.into()), memory)
    }

    fn edit_subtree<C: Change<F>>(
        &self,
        level: u8,
        (space, range): (Space, VirtRange),
        change: C,
        memory: &mut impl Memory,
        mut each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.check_end(space, range, range.start(), range.start(), memory)?;
        let end = range.last().wrapping_add(1);
        self.check_end(space, range, range.last(), end, memory)?;
        let top = self.top(space, level, range.start(), memory)?;
        let mut edit = Edit::new(space, change, &mut each);
        if C::REMOVES {
            self.reserve_tables(space, range, &mut edit.flush)?;
        }
        let gone = self.edit_table(top.table, range.into(), memory, &mut edit);
        if gone > 0
            && let Some(entry) = self.less(top.table, top.entry, gone, range.into(), memory)
        {
            self.write_population(level + 1, top.at, entry, memory);
        }
        if edit.flush.tables().is_some() {
            self.gives_back(space, edit.freed);
        }
        Ok(edit.flush)
    }
}

impl<F: Format> SubtreeTable for Radix<F> {
    fn levels(&self) -> u8 {
        self.format.levels()
    }

    fn entry_shift(&self, level: u8) -> u32 {
        self.format.entry_shift(level)
    }

    fn index(&self, level: u8, addr: VirtAddr) -> u64 {
        self.format.entry_offset(level, addr) / u64::from(self.format.entry_bytes(level))
    }

    fn covering(&self, space: Space, range: VirtRange, intent: Intent, memory: &impl Memory) -> u8 {
        let mut table = self.root_table(space);
        let is_held = self.format.spans().iter().any(|span| span.covers(range));
        // Another operation could free the remembered table.
        if self.remembers || !is_held || self.spaces.check(space).is_err() {
            return table.level;
        }
        let lowest = match intent {
            Intent::Add { global: true, .. } => return table.level,
            Intent::Add { size, global: false } => self.format.level_of(size).unwrap_or(1),
            Intent::Remove | Intent::Change => 1,
        };
        while table.level > lowest {
            let shift = self.format.entry_shift(table.level);
            if range.start().get() >> shift != range.last().get() >> shift {
                break;
            }
            let at = self.entry_at(table.level, table.start, range.start());
            let entry = self.format.read(table.level, at, memory);
            let Some(start) = self.format.next_table(entry, table.level) else { break };
            let next = Table { level: table.level - 1, start, entries: self.used(entry) };
            if intent == Intent::Remove && !self.outlasts(next, range, memory) {
                break;
            }
            table = next;
        }
        table.level
    }

    fn map_below(
        &self,
        level: u8,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        memory: &mut impl Memory,
        mut frames: &mut dyn Frames,
    ) -> Result<Flush, Error> {
        let run = self.check_run(pages, notes)?;
        let top = self.top(space, level, pages.0.page.start(), memory)?;
        let added = self.build_below(top.table, space, &run, memory, &mut frames)?;
        if let Some(entry) = self.recounted(top.entry, added as i64) {
            self.write_population(level + 1, top.at, entry, memory);
        }
        Ok(Flush::nothing(space))
    }

    fn edit_below(
        &self,
        level: u8,
        of: (Space, VirtRange),
        edit: SubtreeEdit,
        memory: &mut impl Memory,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        match edit {
            SubtreeEdit::Unmap => self.edit_subtree(level, of, Remove, memory, each),
            SubtreeEdit::Protect(rights) => {
                self.format.check_rights(rights)?;
                self.edit_subtree(level, of, Protect(rights), memory, each)
            }
            SubtreeEdit::ClearUsage(bits) => {
                self.edit_subtree(level, of, Clear(bits), memory, each)
            }
        }
    }
}
