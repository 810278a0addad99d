//! From the names and numbers of a machine file to a table.

use addr::Memory;
use pagetable::{
    CacheShape, Cached, ElasticCuckoo, Format, Geometry, Guarded, Hashed, HashedShape, Mount,
    Mounted, Mpt, PageTable, Radix, Split, Tree, X86_64,
};

use super::flat::Flat;
use crate::{
    Description,
    description::{self, WalkerKind},
    units::Bytes,
};

/// The names of the organisations, each with the keys that it takes.
const FORMATS: [(&str, &[&str]); 12] = [
    ("x86-64", &["software_tlb", "levels", "remembers_leaf"]),
    ("flattened", &["software_tlb", "remembers_leaf"]),
    ("mpt", &["software_tlb", "remembers_leaf"]),
    ("linear", &[]),
    ("guarded", &["software_tlb", "nodes"]),
    ("guarded-adaptive", &["software_tlb"]),
    ("hashed", &["software_tlb", "table", "entry_pages", "replicated"]),
    ("clustered", &["software_tlb", "table", "entry_pages", "partial_subblocks", "replicated"]),
    ("inverted", &["software_tlb", "entry_pages", "replicated"]),
    ("tsb", &["table"]),
    ("powerpc", &[]),
    ("elastic-cuckoo", &["software_tlb"]),
];

/// A key of the machine file, and what is wrong with it.
type Refusal = (String, String);

/// The table that `description` names, in `memory`, which is its own; without one, a set of
/// pages.
pub(crate) fn new(
    description: &Description,
    memory: impl Memory + Send + 'static,
) -> Result<Box<dyn Mounted>, Refusal> {
    let Some(table) = &description.page_table else { return Ok(Box::new(Flat::new())) };
    check_keys(table)?;
    let marks = description.walker.kind == WalkerKind::Hardware;
    let memory_bytes = description.memory.size.0;
    let build = Build { table, memory, marks };
    match table.format.as_str() {
        "flattened" => {
            let split = Split::flattened().map_err(refused("format"))?;
            build.radix(if marks { split.with_usage() } else { split })
        }
        "mpt" => build.radix(if marks { Mpt::with_usage() } else { Mpt::new() }),
        "linear" => {
            let table = Split::linear().map_err(refused("format"))?;
            Ok(Box::new(Mount::tree(table, build.memory)))
        }
        "guarded" => {
            let nodes = table.nodes.unwrap_or(16);
            let guarded = Guarded::new(nodes).map_err(refused("nodes"))?;
            build.tree(if marks { guarded.with_usage() } else { guarded })
        }
        "guarded-adaptive" => {
            let guarded = Guarded::adaptive();
            build.tree(if marks { guarded.with_usage() } else { guarded })
        }
        "hashed" => build.hashed(HashedShape::H128K),
        "clustered" => build.hashed(HashedShape::C128K),
        "inverted" => {
            build.hashed(HashedShape::inverted(memory_bytes, table.entry_pages.unwrap_or(1)))
        }
        "tsb" => build.tsb(memory_bytes),
        "powerpc" => build.powerpc(memory_bytes),
        "elastic-cuckoo" => {
            let cuckoo = ElasticCuckoo::new(3, 16 << 10).map_err(refused("format"))?;
            build.any(if marks { cuckoo.with_usage() } else { cuckoo })
        }
        _ => match table.levels.unwrap_or(4) {
            4 => build.x86_64::<4>(),
            5 => build.x86_64::<5>(),
            levels => {
                let what = format!("x86-64 has 4 or 5 levels, not {levels}");
                Err(("page_table.levels".to_owned(), what))
            }
        },
    }
}

/// That the format exists and has the keys that are given.
fn check_keys(table: &description::PageTable) -> Result<(), Refusal> {
    let Some((_, own)) = FORMATS.iter().find(|(name, _)| *name == table.format) else {
        let names: Vec<&str> = FORMATS.iter().map(|(name, _)| *name).collect();
        let what =
            format!("there is no page table `{}`: choose {}", table.format, names.join(", "));
        return Err(("page_table.format".to_owned(), what));
    };
    let given = [
        ("levels", table.levels.is_some()),
        ("nodes", table.nodes.is_some()),
        ("table", table.table.is_some()),
        ("entry_pages", table.entry_pages.is_some()),
        ("partial_subblocks", table.partial_subblocks.is_some()),
        ("replicated", table.replicated.is_some()),
        ("software_tlb", table.software_tlb.is_some()),
        ("remembers_leaf", table.remembers_leaf.is_some()),
    ];
    match given.into_iter().find(|(key, given)| *given && !own.contains(key)) {
        Some((key, _)) => {
            let what = format!("a page table of format {} has no {key}", table.format);
            Err((format!("page_table.{key}"), what))
        }
        None => Ok(()),
    }
}

fn refused(key: &'static str) -> impl Fn(Geometry) -> Refusal {
    move |error| (format!("page_table.{key}"), error.to_string())
}

/// What a table needs besides its organisation.
struct Build<'a, M> {
    table: &'a description::PageTable,
    memory: M,
    /// Whether walks set usage bits.
    marks: bool,
}

impl<M: Memory + Send + 'static> Build<'_, M> {
    /// `table` in its memory, behind the software TLB if there is one.
    fn any(self, table: impl PageTable + Send + 'static) -> Result<Box<dyn Mounted>, Refusal> {
        match self.table.software_tlb {
            None => Ok(Box::new(Mount::new(table, self.memory))),
            Some(Bytes(table_bytes)) => {
                let shape = self.cache(CacheShape { table_bytes, ..CacheShape::S8K });
                let table = Cached::new(shape, table).map_err(refused("software_tlb"))?;
                Ok(Box::new(Mount::new(table, self.memory)))
            }
        }
    }

    /// The same for a tree, whose walks can start below the root unless a software TLB comes
    /// first.
    fn tree(self, table: impl Tree + Send + 'static) -> Result<Box<dyn Mounted>, Refusal> {
        if self.table.software_tlb.is_some() {
            return self.any(table);
        }
        Ok(Box::new(Mount::tree(table, self.memory)))
    }

    /// The same for a radix tree, which remembers its lowest table unless that is off.
    fn radix<F: Format + Send + 'static>(
        self,
        table: Radix<F>,
    ) -> Result<Box<dyn Mounted>, Refusal> {
        let remembers = self.table.remembers_leaf.unwrap_or(true);
        self.tree(if remembers { table } else { table.forgetful() })
    }

    fn x86_64<const LEVELS: u8>(self) -> Result<Box<dyn Mounted>, Refusal> {
        if self.marks {
            self.radix(X86_64::<LEVELS, true>::new())
        } else {
            self.radix(X86_64::<LEVELS, false>::new())
        }
    }

    /// A hashed table of `shape`, as far as the description does not say otherwise.
    fn hashed(self, shape: HashedShape) -> Result<Box<dyn Mounted>, Refusal> {
        let key = if self.table.entry_pages.is_some() { "entry_pages" } else { "table" };
        let shape = HashedShape {
            table_bytes: self.table.table.map_or(shape.table_bytes, |bytes| bytes.0),
            entry_pages: self.table.entry_pages.unwrap_or(shape.entry_pages),
            partial_subblocks: self.table.partial_subblocks.unwrap_or(false),
            replicated: self.table.replicated.unwrap_or(false),
            walk_sets_usage: self.marks,
            ..shape.with_large_pages()
        };
        let table = Hashed::new(shape).map_err(refused(key))?;
        self.any(table)
    }

    /// A TSB in front of clustered hash chains, from which Solaris fills it.
    fn tsb(self, memory_bytes: u64) -> Result<Box<dyn Mounted>, Refusal> {
        let table_bytes = self.table.table.map_or(CacheShape::TSB_1M.table_bytes, |bytes| bytes.0);
        let shape = self.cache(CacheShape { table_bytes, ..CacheShape::TSB_1M });
        let behind = HashedShape::behind_tsb(memory_bytes);
        let behind = HashedShape { walk_sets_usage: self.marks, ..behind };
        let behind = Hashed::new(behind.with_large_pages()).map_err(refused("format"))?;
        let table = Cached::new(shape, behind).map_err(refused("table"))?;
        Ok(Box::new(Mount::new(table, self.memory)))
    }

    /// The PowerPC's hashed table in front of a tree, from which Linux fills it.
    fn powerpc(self, memory_bytes: u64) -> Result<Box<dyn Mounted>, Refusal> {
        let shape = self.cache(CacheShape::powerpc(memory_bytes));
        if self.marks {
            self.cached(shape, X86_64::<4, true>::new())
        } else {
            self.cached(shape, X86_64::<4, false>::new())
        }
    }

    /// `table` behind a cache of this shape.
    fn cached(
        self,
        shape: CacheShape,
        table: impl PageTable + Send + 'static,
    ) -> Result<Box<dyn Mounted>, Refusal> {
        let table = Cached::new(shape, table).map_err(refused("format"))?;
        Ok(Box::new(Mount::new(table, self.memory)))
    }

    fn cache(&self, shape: CacheShape) -> CacheShape {
        if self.marks { shape.keeping_usage() } else { shape }
    }
}
