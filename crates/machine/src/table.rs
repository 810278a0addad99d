//! The page tables that a machine can have, behind one face.
//!
//! `pagetable`'s contract is generic over memory and callbacks, as a kernel wants it. A machine
//! chooses its table when it is built, so here each table sits with the memory it lives in
//! behind a trait object; only misses, faults and events come this way.

use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    CacheShape, Cached, ElasticCuckoo, Error, Fault, Flush, Footprint, Geometry, Guarded, Hashed,
    HashedShape, Mapping, Memory, Mpt, Node, PageTable, Reference, Space, Split, Translation, Tree,
    TreeShape, Usage, X86_64,
};
use physmem::Buddy;
use rustc_hash::FxHashSet;

use crate::{describe, units::Bytes};

/// A page table and the memory it lives in.
pub(crate) trait Table: Send {
    /// The page sizes it holds; `None` if any.
    fn page_sizes(&self) -> Option<&[PageSize]>;
    /// A new, empty space.
    fn create(&mut self, frames: &mut Buddy) -> Result<Space, Error>;
    /// Ends a space.
    fn destroy(&mut self, space: Space) -> Result<Flush, Error>;
    /// Maps one page.
    fn map(&mut self, space: Space, page: Translation, frames: &mut Buddy) -> Result<(), Error>;
    /// Removes the pages in `range`; `each` gets them.
    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error>;
    /// Gives the pages in `range` these rights.
    fn protect(&mut self, space: Space, range: VirtRange, rights: Rights) -> Result<Flush, Error>;
    /// Walks for `addr` and appends the references to `references`.
    fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault>;
    /// What the format looks like if walks descend from a root.
    fn tree_shape(&self) -> Option<TreeShape>;
    /// Where a walk in `space` starts if nothing is remembered.
    fn root(&self, space: Space) -> Node;
    /// The walk of a tree from a node that an earlier walk has passed; nothing leads on in
    /// other tables, so that theirs always start at the root.
    fn walk_from(
        &mut self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault>;
    /// The page that holds `addr`, read without a walk.
    fn query(&self, space: Space, addr: VirtAddr) -> Option<Translation>;
    /// What the table takes, all spaces together.
    fn footprint(&self) -> Footprint;
}

/// The names of the organisations, each with the keys that it takes.
const FORMATS: [(&str, &[&str]); 11] = [
    ("x86-64", &["software_tlb", "levels"]),
    ("flattened", &["software_tlb"]),
    ("mpt", &["software_tlb"]),
    ("guarded", &["software_tlb", "nodes"]),
    ("guarded-adaptive", &["software_tlb"]),
    ("hashed", &["software_tlb", "table", "entry_pages"]),
    ("clustered", &["software_tlb", "table", "entry_pages", "partial_subblocks"]),
    ("inverted", &["software_tlb", "entry_pages"]),
    ("tsb", &["table"]),
    ("powerpc", &[]),
    ("elastic-cuckoo", &["software_tlb"]),
];

/// A key of the machine file, and what is wrong with it.
type Refusal = (String, String);

/// The table that `description` names, in `memory` of `memory_bytes` bytes that is its own;
/// without one, a set of pages.
pub(crate) fn new(
    description: Option<&describe::PageTable>,
    memory_bytes: u64,
    memory: impl Memory + Send + 'static,
) -> Result<Box<dyn Table>, Refusal> {
    let Some(description) = description else { return Ok(Box::new(Flat::default())) };
    let Some((_, own)) = FORMATS.iter().find(|(name, _)| *name == description.format) else {
        let names: Vec<&str> = FORMATS.iter().map(|(name, _)| *name).collect();
        let what =
            format!("there is no page table `{}`: choose {}", description.format, names.join(", "));
        return Err(("page_table.format".to_owned(), what));
    };
    let given = [
        ("levels", description.levels.is_some()),
        ("nodes", description.nodes.is_some()),
        ("table", description.table.is_some()),
        ("entry_pages", description.entry_pages.is_some()),
        ("partial_subblocks", description.partial_subblocks.is_some()),
        ("software_tlb", description.software_tlb.is_some()),
    ];
    if let Some((key, _)) = given.into_iter().find(|(key, given)| *given && !own.contains(key)) {
        let what = format!("a page table of format {} has no {key}", description.format);
        return Err((format!("page_table.{key}"), what));
    }
    let build = Build { description, memory };
    match description.format.as_str() {
        "flattened" => build.host_tree(Split::flattened().map_err(refused("format"))?.with_usage()),
        "mpt" => build.host_tree(Mpt::with_usage()),
        "guarded" => {
            let nodes = description.nodes.unwrap_or(16);
            build.host_tree(Guarded::new(nodes).map_err(refused("nodes"))?.with_usage())
        }
        "guarded-adaptive" => build.host_tree(Guarded::adaptive().with_usage()),
        "hashed" => build.host(hashed(description, HashedShape::H128K)?),
        "clustered" => build.host(hashed(description, HashedShape::C128K)?),
        "inverted" => {
            let entry_pages = description.entry_pages.unwrap_or(1);
            build.host(hashed(description, HashedShape::inverted(memory_bytes, entry_pages))?)
        }
        "tsb" => build.tsb(),
        "powerpc" => build.powerpc(memory_bytes),
        "elastic-cuckoo" => {
            let cuckoo = ElasticCuckoo::new(3, 16 << 10).map_err(refused("format"))?;
            build.host(cuckoo.with_usage())
        }
        _ => {
            let levels = description.levels.unwrap_or(4);
            let what = || format!("x86-64 has 4 or 5 levels, not {levels}");
            let table =
                X86_64::new(levels).ok_or_else(|| ("page_table.levels".to_owned(), what()))?;
            build.host_tree(table)
        }
    }
}

/// A hashed table of `shape`, as far as `description` does not say otherwise.
fn hashed(description: &describe::PageTable, shape: HashedShape) -> Result<Hashed, Refusal> {
    let wrong = |error: Geometry| {
        let key = if description.entry_pages.is_some() { "entry_pages" } else { "table" };
        (format!("page_table.{key}"), error.to_string())
    };
    let shape = HashedShape {
        table_bytes: description.table.map_or(shape.table_bytes, |bytes| bytes.0),
        entry_pages: description.entry_pages.unwrap_or(shape.entry_pages),
        partial_subblocks: description.partial_subblocks.unwrap_or(false),
        walk_sets_usage: true,
        ..shape
    };
    Hashed::new(shape.with_large_pages()).map_err(wrong)
}

fn refused(key: &'static str) -> impl Fn(Geometry) -> Refusal {
    move |error| (format!("page_table.{key}"), error.to_string())
}

/// What a table needs besides its organisation.
struct Build<'a, M> {
    description: &'a describe::PageTable,
    memory: M,
}

impl<M: Memory + Send + 'static> Build<'_, M> {
    /// `table` in its memory, behind the software TLB if there is one.
    fn host(self, table: impl PageTable + Send + 'static) -> Result<Box<dyn Table>, Refusal> {
        let memory = self.memory;
        match self.description.software_tlb {
            None => Ok(Box::new(Hosted { table, memory, tree: None })),
            Some(Bytes(table_bytes)) => {
                let shape = CacheShape { table_bytes, ..CacheShape::S8K }.keeping_usage();
                let table = Cached::new(shape, table).map_err(refused("software_tlb"))?;
                Ok(Box::new(Hosted { table, memory, tree: None }))
            }
        }
    }

    /// The same for a tree, whose walks can start below the root unless a software TLB comes
    /// first.
    fn host_tree(self, table: impl Tree + Send + 'static) -> Result<Box<dyn Table>, Refusal> {
        if self.description.software_tlb.is_some() {
            return self.host(table);
        }
        let tree = Some(TreeCalls::new());
        Ok(Box::new(Hosted { table, memory: self.memory, tree }))
    }

    /// A TSB in front of clustered hash chains, from which Solaris fills it.
    fn tsb(self) -> Result<Box<dyn Table>, Refusal> {
        let table_bytes =
            self.description.table.map_or(CacheShape::TSB_1M.table_bytes, |bytes| bytes.0);
        let shape = CacheShape { table_bytes, ..CacheShape::TSB_1M }.keeping_usage();
        let behind = HashedShape { walk_sets_usage: true, ..HashedShape::C128K };
        let behind = Hashed::new(behind.with_large_pages()).map_err(refused("format"))?;
        let table = Cached::new(shape, behind).map_err(refused("table"))?;
        Ok(Box::new(Hosted { table, memory: self.memory, tree: None }))
    }

    /// The PowerPC's hashed table in front of a tree, from which Linux fills it.
    fn powerpc(self, memory_bytes: u64) -> Result<Box<dyn Table>, Refusal> {
        let shape = CacheShape::powerpc(memory_bytes).keeping_usage();
        let wrong = || ("page_table.format".to_owned(), "x86-64 has no 4 levels".to_owned());
        let behind = X86_64::new(4).ok_or_else(wrong)?;
        let table = Cached::new(shape, behind).map_err(refused("format"))?;
        Ok(Box::new(Hosted { table, memory: self.memory, tree: None }))
    }
}

/// A table of `pagetable` in a memory.
struct Hosted<T, M> {
    table: T,
    memory: M,
    tree: Option<TreeCalls<T, M>>,
}

type WalkFrom<T, M> =
    fn(&T, Node, VirtAddr, Kind, &mut M, &mut Vec<Reference>) -> Result<Translation, Fault>;

/// What a table can do besides if it is a tree.
struct TreeCalls<T, M> {
    shape: fn(&T) -> TreeShape,
    root: fn(&T, Space) -> Node,
    walk_from: WalkFrom<T, M>,
}

impl<T: Tree, M: Memory> TreeCalls<T, M> {
    fn new() -> TreeCalls<T, M> {
        TreeCalls {
            shape: |table| table.shape(),
            root: |table, space| table.root(space),
            walk_from: |table, start, addr, kind, memory, references| {
                table.walk_from(start, addr, kind, memory, &mut |read| references.push(read))
            },
        }
    }
}

impl<T: PageTable + Send, M: Memory + Send> Table for Hosted<T, M> {
    fn page_sizes(&self) -> Option<&[PageSize]> {
        Some(self.table.page_sizes())
    }

    fn create(&mut self, frames: &mut Buddy) -> Result<Space, Error> {
        self.table.create(&mut self.memory, frames)
    }

    fn destroy(&mut self, space: Space) -> Result<Flush, Error> {
        self.table.destroy(space, &mut self.memory)
    }

    fn map(&mut self, space: Space, page: Translation, frames: &mut Buddy) -> Result<(), Error> {
        self.table.map(space, page, 1, &mut self.memory, frames)
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        mut each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.table.unmap(space, range, &mut self.memory, &mut each)
    }

    fn protect(&mut self, space: Space, range: VirtRange, rights: Rights) -> Result<Flush, Error> {
        self.table.protect(space, range, rights, &mut self.memory, &mut |_| {})
    }

    fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        self.table.walk(space, addr, kind, &mut self.memory, &mut |reference| {
            references.push(reference);
        })
    }

    fn tree_shape(&self) -> Option<TreeShape> {
        self.tree.as_ref().map(|tree| (tree.shape)(&self.table))
    }

    fn root(&self, space: Space) -> Node {
        match &self.tree {
            Some(tree) => (tree.root)(&self.table, space),
            None => only_root(space),
        }
    }

    fn walk_from(
        &mut self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        match &self.tree {
            Some(tree) => {
                (tree.walk_from)(&self.table, start, addr, kind, &mut self.memory, references)
            }
            None => Err(Fault::NotMapped { level: start.level }),
        }
    }

    fn query(&self, space: Space, addr: VirtAddr) -> Option<Translation> {
        self.table.query(space, addr, &self.memory).map(|mapping| mapping.translation)
    }

    fn footprint(&self) -> Footprint {
        self.table.footprint()
    }
}

/// The start of every walk in a table that is no tree.
fn only_root(space: Space) -> Node {
    Node { table: space.root(), level: 1, shift: 64, rights: Rights::ALL }
}

/// What a machine of TLBs alone has in place of a page table: the set of its mapped pages. A
/// walk of it has no references, and the frame of a page is the page itself.
#[derive(Default)]
struct Flat {
    pages: FxHashSet<(u32, Page)>,
    sizes: Vec<PageSize>,
    spaces: u32,
}

impl Flat {
    fn find(&self, space: Space, addr: VirtAddr) -> Option<Page> {
        let pages = self.sizes.iter().map(|&size| addr.page(size));
        pages.into_iter().find(|&page| self.pages.contains(&(space.id(), page)))
    }

    fn translation(page: Page) -> Translation {
        let frame = PhysAddr::new(page.start().get());
        Translation { page, frame, rights: Rights::ALL, global: false }
    }
}

impl Table for Flat {
    fn page_sizes(&self) -> Option<&[PageSize]> {
        None
    }

    fn create(&mut self, _frames: &mut Buddy) -> Result<Space, Error> {
        self.spaces += 1;
        Ok(Space::new(self.spaces - 1, PhysAddr::new(0)))
    }

    fn destroy(&mut self, space: Space) -> Result<Flush, Error> {
        self.pages.retain(|(id, _)| *id != space.id());
        Ok(Flush::nothing(space))
    }

    fn map(&mut self, space: Space, page: Translation, _frames: &mut Buddy) -> Result<(), Error> {
        if !self.sizes.contains(&page.page.size()) {
            self.sizes.push(page.page.size());
        }
        self.pages.insert((space.id(), page.page));
        Ok(())
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        let mut flush = Flush::nothing(space);
        let covered = |page: &Page| range.covers(VirtRange::of_page(*page));
        // Whatever is less: the pages that the range could hold, or those that there are.
        let possible: u64 = self.sizes.iter().map(|size| range.bytes() / size.bytes() + 2).sum();
        let gone: Vec<Page> = if possible <= self.pages.len() as u64 {
            let pages = self.sizes.iter().flat_map(|&size| range.pages(size));
            pages
                .filter(|page| covered(page) && self.pages.contains(&(space.id(), *page)))
                .collect()
        } else {
            let pages = self.pages.iter().filter(|(id, _)| *id == space.id());
            let mut pages: Vec<Page> = pages.map(|(_, page)| *page).filter(covered).collect();
            pages.sort_unstable();
            pages
        };
        for page in gone {
            self.pages.remove(&(space.id(), page));
            flush.add(page, false);
            each(Mapping { translation: Flat::translation(page), usage: Usage::default() });
        }
        Ok(flush)
    }

    fn protect(
        &mut self,
        space: Space,
        _range: VirtRange,
        _rights: Rights,
    ) -> Result<Flush, Error> {
        Ok(Flush::nothing(space))
    }

    fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        _kind: Kind,
        _references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        let page = self.find(space, addr).ok_or(Fault::NotMapped { level: 1 })?;
        Ok(Flat::translation(page))
    }

    fn tree_shape(&self) -> Option<TreeShape> {
        None
    }

    fn root(&self, space: Space) -> Node {
        only_root(space)
    }

    fn walk_from(
        &mut self,
        start: Node,
        _addr: VirtAddr,
        _kind: Kind,
        _references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        Err(Fault::NotMapped { level: start.level })
    }

    fn query(&self, space: Space, addr: VirtAddr) -> Option<Translation> {
        self.find(space, addr).map(Flat::translation)
    }

    fn footprint(&self) -> Footprint {
        Footprint::default()
    }
}
