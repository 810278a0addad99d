//! Creates a page table from the names and numbers of a machine file.

use addr::{Memory, PageSize, VirtRange};
use description::{self, Description, Refusal, WalkerKind, units::Bytes};
use hat::Hat;
use pagetable::{
    Aarch64, Arm, CacheShape, Cached, Geometry, Hashed, HashedShape, Mount, Mounted, PageTable,
    Radix, Riscv, Tree, X86_32, X86_64,
};

use super::{flat::Flat, formats::Format, page_table_formats, small};

/// A page table in its memory, managed by a HAT layer with mapping lists, or why it cannot be
/// built.
pub(super) type Mounting = Result<Hat, Refusal>;

/// Creates the page table that `description` names, in `memory`, which no other table uses. If the
/// machine has no page table, a set of pages is created instead.
pub fn new(description: &Description, memory: impl Memory + Send + Sync + 'static) -> Mounting {
    let Some(table) = &description.page_table else { return mounted(Flat::new()) };
    let format = Format::named(&table.format).ok_or_else(|| {
        let names: Vec<&str> = page_table_formats().collect();
        let what =
            format!("there is no page table `{}`: choose {}", table.format, names.join(", "));
        Refusal::new("page_table.format", what)
    })?;
    check_keys(table, format.keys)?;
    let marks = description.walker.kind == WalkerKind::Hardware;
    let memory_bytes = description.memory.size.0;
    let base = description.os.base();
    // Errors are ignored here: a table without an area for small spaces is refused where the small
    // spaces are checked.
    let area = small::layout(description).ok().flatten().map(|layout| layout.area());
    (format.build)(Build { table, memory, memory_bytes, base, marks, area })
}

/// Checks that the format supports all given keys.
fn check_keys(table: &description::PageTable, own: &[&str]) -> Result<(), Refusal> {
    let given = [
        ("levels", table.levels.is_some()),
        ("address_bits", table.address_bits.is_some()),
        ("nodes", table.nodes.is_some()),
        ("table", table.table.is_some()),
        ("entry_pages", table.entry_pages.is_some()),
        ("partial_subblocks", table.partial_subblocks.is_some()),
        ("replicated", table.replicated.is_some()),
        ("packed", table.packed.is_some()),
        ("software_tlb", table.software_tlb.is_some()),
        ("remembers_leaf", table.remembers_leaf.is_some()),
    ];
    match given.into_iter().find(|(key, given)| *given && !own.contains(key)) {
        Some((key, _)) => {
            let what = format!("a page table of format {} has no {key}", table.format);
            Err(Refusal::new(format!("page_table.{key}"), what))
        }
        None => Ok(()),
    }
}

/// `table` as a trait object.
pub(super) fn mounted(table: impl Mounted + 'static) -> Mounting {
    Ok(Hat::new(Box::new(table)))
}

pub(super) fn refused(key: &'static str) -> impl Fn(Geometry) -> Refusal {
    move |error| Refusal::new(format!("page_table.{key}"), error.to_string())
}

/// The parameters of a table besides its organisation.
pub(super) struct Build<'a, M> {
    pub(super) table: &'a description::PageTable,
    pub(super) memory: M,
    pub(super) memory_bytes: u64,
    /// The size of the smallest pages.
    pub(super) base: PageSize,
    /// Whether walks set usage bits.
    pub(super) marks: bool,
    /// The area of addresses in which small spaces are visible in other spaces.
    pub(super) area: Option<VirtRange>,
}

impl<M: Memory + Send + Sync + 'static> Build<'_, M> {
    /// Places `table` in its memory, behind the software TLB if there is one.
    pub(super) fn any(self, table: impl PageTable + Send + Sync + 'static) -> Mounting {
        match self.table.software_tlb {
            None => mounted(Mount::new(table, self.memory)),
            Some(Bytes(table_bytes)) => {
                let shape = self.cache(CacheShape { table_bytes, ..CacheShape::S8K });
                let table = Cached::new(shape, table).map_err(refused("software_tlb"))?;
                mounted(Mount::new(table, self.memory))
            }
        }
    }

    /// Places the tree `table` in its memory, behind the software TLB if there is one. Without a
    /// software TLB, walks can start below the root.
    pub(super) fn tree(self, table: impl Tree + Send + Sync + 'static) -> Mounting {
        if self.table.software_tlb.is_some() {
            return self.any(table);
        }
        mounted(Mount::tree(table, self.memory))
    }

    /// Places the radix tree `table` in its memory. It remembers the lowest-level table of the last
    /// operation, unless the key `remembers_leaf` is false.
    pub(super) fn radix<F: pagetable::Format + Send + Sync + 'static>(
        self,
        table: Radix<F>,
    ) -> Mounting {
        let remembers = self.table.remembers_leaf.unwrap_or(true);
        self.tree(if remembers { table } else { table.forgetful() })
    }

    pub(super) fn x86_64<const LEVELS: u8>(self) -> Mounting {
        if self.marks {
            self.radix(X86_64::<LEVELS, true>::new())
        } else {
            self.radix(X86_64::<LEVELS, false>::new())
        }
    }

    pub(super) fn riscv<const LEVELS: u8>(self) -> Mounting {
        if self.marks {
            self.radix(Riscv::<LEVELS, true>::new())
        } else {
            self.radix(Riscv::<LEVELS, false>::new())
        }
    }

    pub(super) fn aarch64<const GRANULE: u8, const BITS: u8>(self) -> Mounting {
        if self.marks {
            self.radix(Aarch64::<GRANULE, BITS, true>::new())
        } else {
            self.radix(Aarch64::<GRANULE, BITS, false>::new())
        }
    }

    pub(super) fn x86_32<const PAE: bool>(self) -> Mounting {
        let wrong = |error: pagetable::Error| Refusal::new("os.small.area", error.to_string());
        match (self.area, self.marks) {
            (None, true) => self.radix(X86_32::<PAE, true>::new()),
            (None, false) => self.radix(X86_32::<PAE, false>::new()),
            (Some(area), true) => self.radix(X86_32::<PAE, true>::with_area(area).map_err(wrong)?),
            (Some(area), false) => {
                self.radix(X86_32::<PAE, false>::with_area(area).map_err(wrong)?)
            }
        }
    }

    pub(super) fn arm(self) -> Mounting {
        let wrong = |error: pagetable::Error| Refusal::new("os.small.area", error.to_string());
        match self.area {
            None => self.radix(Arm::new()),
            Some(area) => self.radix(Arm::with_area(area).map_err(wrong)?),
        }
    }

    /// A hashed table of `shape`, modified by the description.
    pub(super) fn hashed(self, shape: HashedShape) -> Mounting {
        let key = if self.table.entry_pages.is_some() { "entry_pages" } else { "table" };
        let shape = HashedShape {
            table_bytes: self.table.table.map_or(shape.table_bytes, |bytes| bytes.0),
            entry_pages: self.table.entry_pages.unwrap_or(shape.entry_pages),
            partial_subblocks: self.table.partial_subblocks.unwrap_or(false),
            replicated: self.table.replicated.unwrap_or(false),
            packed: self.table.packed.unwrap_or(false),
            walk_sets_usage: self.marks,
            ..shape.with_large_pages()
        };
        let table = Hashed::new(shape).map_err(refused(key))?;
        self.any(table)
    }

    /// A TSB in front of clustered hash chains, from which Solaris fills it.
    pub(super) fn tsb(self) -> Mounting {
        let table_bytes = self.table.table.map_or(CacheShape::TSB_1M.table_bytes, |bytes| bytes.0);
        let shape = self.cache(CacheShape { table_bytes, ..CacheShape::TSB_1M });
        let behind = HashedShape::behind_tsb(self.memory_bytes);
        let behind = HashedShape { walk_sets_usage: self.marks, ..behind };
        let behind = Hashed::new(behind.with_large_pages()).map_err(refused("format"))?;
        let table = Cached::new(shape, behind).map_err(refused("table"))?;
        mounted(Mount::new(table, self.memory))
    }

    /// The PowerPC's hashed table in front of a tree, from which Linux fills it.
    pub(super) fn powerpc(self) -> Mounting {
        let shape = self.cache(CacheShape::powerpc(self.memory_bytes));
        if self.marks {
            self.cached(shape, X86_64::<4, true>::new())
        } else {
            self.cached(shape, X86_64::<4, false>::new())
        }
    }

    /// Places `table` behind a software TLB of this shape.
    fn cached(self, shape: CacheShape, table: impl PageTable + Send + Sync + 'static) -> Mounting {
        let table = Cached::new(shape, table).map_err(refused("format"))?;
        mounted(Mount::new(table, self.memory))
    }

    fn cache(&self, shape: CacheShape) -> CacheShape {
        if self.marks { shape.keeping_usage() } else { shape }
    }
}
