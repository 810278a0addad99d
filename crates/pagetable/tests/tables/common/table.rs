//! An object-safe interface to page tables, so that the long tests are compiled only once, and each
//! format only once.
//!
//! ```text
//!   World<X86_64>, World<Hashed>, ...  --unsized-->  World<dyn Table>      the tests
//!   X86_64: Table, Hashed: Table, ...  --calls---->  PageTable over Ram    one instance a format
//! ```
//!
//! [`PageTable`] is generic over memory, frames and callbacks, and each combination that a test calls is
//! compiled by itself. [`Table`] has the same operations, over trait objects.

use addr::{Frames, Kind, Memory, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Error, Fault, Flush, Footprint, Lent, Loan, Mapping, Node, PageTable, Reference, Space,
    Translation, Tree, Usage,
};

/// Any memory, as one type. It is borrowed either mutably or only for reading.
enum Ram<'a> {
    Changed(&'a mut dyn Memory),
    Seen(&'a dyn Memory),
}

impl Ram<'_> {
    fn seen(&self) -> &dyn Memory {
        match self {
            Ram::Changed(memory) => *memory,
            Ram::Seen(memory) => *memory,
        }
    }

    fn changed(&mut self) -> &mut dyn Memory {
        match self {
            Ram::Changed(memory) => *memory,
            Ram::Seen(_) => unreachable!("who only looks writes nothing"),
        }
    }
}

impl Memory for Ram<'_> {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        self.seen().read_u64(addr)
    }
    fn read_u32(&self, addr: PhysAddr) -> u32 {
        self.seen().read_u32(addr)
    }
    fn read_u8(&self, addr: PhysAddr) -> u8 {
        self.seen().read_u8(addr)
    }
    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        self.changed().write_u64(addr, value);
    }
    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.changed().write_u32(addr, value);
    }
    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        self.changed().write_u8(addr, value);
    }
    fn swap_u64(&mut self, addr: PhysAddr, new: u64) -> u64 {
        self.changed().swap_u64(addr, new)
    }
    fn swap_u32(&mut self, addr: PhysAddr, new: u32) -> u32 {
        self.changed().swap_u32(addr, new)
    }
    fn invert_u64(&mut self, addr: PhysAddr, bits: u64) -> u64 {
        self.changed().invert_u64(addr, bits)
    }
    fn invert_u32(&mut self, addr: PhysAddr, bits: u32) -> u32 {
        self.changed().invert_u32(addr, bits)
    }
    fn compare_exchange_u64(&mut self, addr: PhysAddr, current: u64, new: u64) -> Result<(), u64> {
        self.changed().compare_exchange_u64(addr, current, new)
    }
    fn compare_exchange_u32(&mut self, addr: PhysAddr, current: u32, new: u32) -> Result<(), u32> {
        self.changed().compare_exchange_u32(addr, current, new)
    }
    fn write_upper_u64(&mut self, addr: PhysAddr, value: u64) {
        self.changed().write_upper_u64(addr, value);
    }
    fn read_halves_u64(&self, addr: PhysAddr) -> u64 {
        self.seen().read_halves_u64(addr)
    }
    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        self.changed().zero(start, bytes);
    }
}

type Changes<'a> = &'a mut dyn FnMut(Mapping);
type References<'a> = &'a mut dyn FnMut(Reference);

/// A page table of any organisation. Each operation is that of [`PageTable`] with the same name.
pub(crate) trait Table {
    fn page_sizes(&self) -> &[PageSize];
    fn granted(&self, rights: Rights) -> Rights;
    fn walks_beside_changes(&self) -> bool;
    fn create(&mut self, memory: &mut dyn Memory, frames: &mut dyn Frames) -> Result<Space, Error>;
    fn destroy(&mut self, space: Space, memory: &mut dyn Memory) -> Result<Flush, Error>;
    fn map(
        &mut self,
        space: Space,
        first: Translation,
        count: u64,
        memory: &mut dyn Memory,
        frames: &mut dyn Frames,
    ) -> Result<Flush, Error>;
    fn map_noted(
        &mut self,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        memory: &mut dyn Memory,
        frames: &mut dyn Frames,
    ) -> Result<Flush, Error>;
    fn has_notes(&self) -> bool;
    fn set_note(
        &mut self,
        space: Space,
        addr: VirtAddr,
        note: u32,
        memory: &mut dyn Memory,
    ) -> Result<(), Error>;
    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut dyn Memory,
        each: Changes<'_>,
    ) -> Result<Flush, Error>;
    fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
        memory: &mut dyn Memory,
        each: Changes<'_>,
    ) -> Result<Flush, Error>;
    fn protect_page(
        &mut self,
        space: Space,
        page: Page,
        rights: &mut dyn FnMut(&Mapping) -> Option<Rights>,
        memory: &mut dyn Memory,
    ) -> Result<Flush, Error>;
    fn clear_usage(
        &mut self,
        space: Space,
        range: VirtRange,
        bits: Usage,
        memory: &mut dyn Memory,
        each: Changes<'_>,
    ) -> Result<Flush, Error>;
    fn resize(
        &mut self,
        space: Space,
        range: VirtRange,
        to: PageSize,
        memory: &mut dyn Memory,
        frames: &mut dyn Frames,
        forget: &mut dyn FnMut(&Flush),
    ) -> Result<Vec<Mapping>, Error>;
    fn set_usage(
        &mut self,
        space: Space,
        addr: VirtAddr,
        bits: Usage,
        memory: &mut dyn Memory,
    ) -> Result<(), Error>;
    fn lend(&mut self, loan: Loan, memory: &mut dyn Memory) -> Result<Lent, Error>;
    fn take_back(
        &mut self,
        of: Space,
        range: VirtRange,
        memory: &mut dyn Memory,
        each: &mut dyn FnMut(VirtAddr, Option<Usage>),
    ) -> Result<(), Error>;
    fn walk(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut dyn Memory,
        each: References<'_>,
    ) -> Result<Translation, Fault>;
    fn last_entry(&self, space: Space, addr: VirtAddr, memory: &dyn Memory) -> Option<PhysAddr>;
    fn query(&self, space: Space, addr: VirtAddr, memory: &dyn Memory) -> Option<Mapping>;
    fn visit(&self, space: Space, range: VirtRange, memory: &dyn Memory, each: Changes<'_>);
    fn footprint(&self) -> Footprint;
    fn footprint_of(&self, space: Space) -> Footprint;
}

impl<T: PageTable> Table for T {
    fn page_sizes(&self) -> &[PageSize] {
        PageTable::page_sizes(self)
    }

    fn granted(&self, rights: Rights) -> Rights {
        PageTable::granted(self, rights)
    }

    fn walks_beside_changes(&self) -> bool {
        PageTable::walks_beside_changes(self)
    }

    fn create(
        &mut self,
        memory: &mut dyn Memory,
        mut frames: &mut dyn Frames,
    ) -> Result<Space, Error> {
        PageTable::create(self, &mut Ram::Changed(memory), &mut frames)
    }

    fn destroy(&mut self, space: Space, memory: &mut dyn Memory) -> Result<Flush, Error> {
        PageTable::destroy(self, space, &mut Ram::Changed(memory))
    }

    fn map(
        &mut self,
        space: Space,
        first: Translation,
        count: u64,
        memory: &mut dyn Memory,
        mut frames: &mut dyn Frames,
    ) -> Result<Flush, Error> {
        PageTable::map(self, space, first, count, &mut Ram::Changed(memory), &mut frames)
    }

    fn map_noted(
        &mut self,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        memory: &mut dyn Memory,
        mut frames: &mut dyn Frames,
    ) -> Result<Flush, Error> {
        PageTable::map_noted(self, space, pages, notes, &mut Ram::Changed(memory), &mut frames)
    }

    fn has_notes(&self) -> bool {
        PageTable::has_notes(self)
    }

    fn set_note(
        &mut self,
        space: Space,
        addr: VirtAddr,
        note: u32,
        memory: &mut dyn Memory,
    ) -> Result<(), Error> {
        PageTable::set_note(self, space, addr, note, &mut Ram::Changed(memory))
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut dyn Memory,
        mut each: Changes<'_>,
    ) -> Result<Flush, Error> {
        PageTable::unmap(self, space, range, &mut Ram::Changed(memory), &mut each)
    }

    fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
        memory: &mut dyn Memory,
        mut each: Changes<'_>,
    ) -> Result<Flush, Error> {
        PageTable::protect(self, space, range, rights, &mut Ram::Changed(memory), &mut each)
    }

    fn protect_page(
        &mut self,
        space: Space,
        page: Page,
        mut rights: &mut dyn FnMut(&Mapping) -> Option<Rights>,
        memory: &mut dyn Memory,
    ) -> Result<Flush, Error> {
        PageTable::protect_page(self, space, page, &mut rights, &mut Ram::Changed(memory))
    }

    fn clear_usage(
        &mut self,
        space: Space,
        range: VirtRange,
        bits: Usage,
        memory: &mut dyn Memory,
        mut each: Changes<'_>,
    ) -> Result<Flush, Error> {
        PageTable::clear_usage(self, space, range, bits, &mut Ram::Changed(memory), &mut each)
    }

    fn resize(
        &mut self,
        space: Space,
        range: VirtRange,
        to: PageSize,
        memory: &mut dyn Memory,
        mut frames: &mut dyn Frames,
        forget: &mut dyn FnMut(&Flush),
    ) -> Result<Vec<Mapping>, Error> {
        let forget = &mut |flush: &Flush, _: &mut Ram<'_>| forget(flush);
        let memory = &mut Ram::Changed(memory);
        PageTable::resize(self, space, range, to, memory, &mut frames, forget)
    }

    fn set_usage(
        &mut self,
        space: Space,
        addr: VirtAddr,
        bits: Usage,
        memory: &mut dyn Memory,
    ) -> Result<(), Error> {
        PageTable::set_usage(self, space, addr, bits, &mut Ram::Changed(memory))
    }

    fn lend(&mut self, loan: Loan, memory: &mut dyn Memory) -> Result<Lent, Error> {
        PageTable::lend(self, loan, &mut Ram::Changed(memory))
    }

    fn take_back(
        &mut self,
        of: Space,
        range: VirtRange,
        memory: &mut dyn Memory,
        mut each: &mut dyn FnMut(VirtAddr, Option<Usage>),
    ) -> Result<(), Error> {
        PageTable::take_back(self, of, range, &mut Ram::Changed(memory), &mut each)
    }

    fn walk(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut dyn Memory,
        mut each: References<'_>,
    ) -> Result<Translation, Fault> {
        PageTable::walk(self, space, addr, kind, &mut Ram::Changed(memory), &mut each)
    }

    fn last_entry(&self, space: Space, addr: VirtAddr, memory: &dyn Memory) -> Option<PhysAddr> {
        PageTable::last_entry(self, space, addr, &Ram::Seen(memory))
    }

    fn query(&self, space: Space, addr: VirtAddr, memory: &dyn Memory) -> Option<Mapping> {
        PageTable::query(self, space, addr, &Ram::Seen(memory))
    }

    fn visit(&self, space: Space, range: VirtRange, memory: &dyn Memory, mut each: Changes<'_>) {
        PageTable::visit(self, space, range, &Ram::Seen(memory), &mut each);
    }

    fn footprint(&self) -> Footprint {
        PageTable::footprint(self)
    }

    fn footprint_of(&self, space: Space) -> Footprint {
        PageTable::footprint_of(self, space)
    }
}

/// A tree. Each operation is that of [`Tree`] with the same name.
pub(crate) trait TreeTable: Table {
    fn levels(&self) -> u8;
    fn root(&self, space: Space) -> Node;
    fn walk_from(
        &self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut dyn Memory,
        each: References<'_>,
    ) -> Result<Translation, Fault>;
}

impl<T: Tree> TreeTable for T {
    fn levels(&self) -> u8 {
        Tree::levels(self)
    }

    fn root(&self, space: Space) -> Node {
        Tree::root(self, space)
    }

    fn walk_from(
        &self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut dyn Memory,
        mut each: References<'_>,
    ) -> Result<Translation, Fault> {
        Tree::walk_from(self, start, addr, kind, &mut Ram::Changed(memory), &mut each)
    }
}
