//! Page-frame descriptors: all mappings of a frame (K94 section 4.2), G98's reverse map.
//!
//! ```text
//!   frame 16: --> [ space 1, 0x7000, 4K ] --> [ space 2, 0x9000, 4K ] --> end
//!   frame 32: --> [ space 1, 0x20000, 64K ] --> [ space 3, 0x5000, 4K ] --> end
//!   frame 33: --> [ space 3, 0x6000, 4K ] --> end
//! ```
//!
//! A node is in the list of the first base frame of *its own* page. Two spaces can therefore map
//! the same frames with two page sizes (G98 section 6.2) without a node per base page. To find all
//! mappings of a base frame, one list per page size is read: the list of the frame itself, and the
//! list of the first frame of each larger page that could contain the frame (`Hat::lists_of`).
//!
//! The list is a tree written in preorder. A node's *depth* is the number of its ancestors. The
//! parent of a page is the page of another space from which it was mapped (E99 section 3.2, L4's
//! mapping tree). Pages that the memory manager loads have depth 0. If no space maps pages to
//! another space, the tree is K94's flat list.
//!
//! ```text
//!   space 1, depth 0          the pager has the page
//!     space 2, depth 1        and mapped it to space 2,
//!       space 5, depth 2      which mapped it on
//!     space 3, depth 1
//! ```
//!
//! The first node is stored in the descriptor itself. Most frames are mapped once, and a fault on
//! such a frame allocates no node and reads one cache line. If a frame is mapped several times, all
//! its nodes are in an array that belongs to the frame, linked in both directions by their indices:
//!
//! ```text
//!   leaf of a page table                          frame 16's array
//!   | PTE: frame 16 | note: 3 |  -------------->  1 [ space 1, before -, next 3 ]
//!                                                 2 [ free ]
//!                                                 3 [ space 5, before 1, next - ]
//! ```
//!
//! The index of a node, from 1 on, is its *name* while it is in the list. Together with the number of the
//! frame it is the 32-bit pointer that E99 reserves in each leaf for the mapping tree. A page table with
//! notes ([`pagetable::PageTable::has_notes`]) stores the name beside the page's entry, so that the node of
//! a page is found and removed without a search. For a table without notes the list is searched.

use alloc::{boxed::Box, vec::Vec};
use core::iter;

use addr::{Page, PageSize, VirtAddr};
use smallvec::SmallVec;

use crate::room::NoMemory;

/// A page that maps a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mapped {
    /// The number of the page's space.
    pub space: u32,
    /// The index of the page's MMU in the space's list.
    pub mmu: u8,
    /// The page.
    pub page: Page,
}

/// A page and the note beside its page-table entry, which is the name of the page's node, or 0. A
/// note may be out of date. If the node with that name is for another page, the list is searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    pub(crate) page: Mapped,
    pub(crate) note: u32,
}

/// A page in 16 bytes: log2 of its size is stored in address bits that are zero in a page's address. An
/// all-zero node stands for no page.
#[derive(Clone, Copy, Default)]
struct Node {
    start_and_shift: u64,
    space: u32,
    mmu: u8,
    depth: u8,
}

/// A node in the array, with the names of its neighbours in the list.
#[derive(Clone, Copy, Default)]
struct Linked {
    node: Node,
    before: u32,
    next: u32,
}

/// All nodes of a frame that has, or had, several mappings.
#[derive(Default)]
struct List {
    nodes: SmallVec<[Linked; 3]>,
    head: u32,
    /// The index of the first free element; each free element leads to the next.
    free: u32,
    /// The number of nodes in use.
    count: u32,
}

/// The value that is no node's name.
const NONE: u32 = 0;
/// The name of the node in the descriptor, and of the first one in the array.
const FIRST: u32 = 1;

/// A page-frame descriptor: all mappings of one base frame.
#[derive(Default)]
pub struct Frame {
    /// The only node, if there is one and there is no list.
    only: Node,
    /// The list of nodes, once the frame has had several. It is an array of one element, because an
    /// array can be created without a panic if no memory is left; `Box::new` panics.
    list: Option<Box<[List; 1]>>,
    /// The number of operations that are unloading the frame. While it is not 0, loads of the frame
    /// wait.
    unloading: u32,
}

impl Frame {
    /// Whether loads of the frame must wait.
    pub(crate) const fn is_unloading(&self) -> bool {
        self.unloading > 0
    }

    pub(crate) fn begin_unloading(&mut self) {
        self.unloading += 1;
    }

    pub(crate) fn end_unloading(&mut self) {
        self.unloading -= 1;
    }

    /// Inserts a page and returns the name of its node.
    #[inline]
    pub(crate) fn insert(&mut self, mapped: Mapped) -> Result<u32, NoMemory> {
        if self.list.is_none() && !self.only.is_page() {
            self.only = Node::of(mapped, 0);
            return Ok(FIRST);
        }
        self.insert_beside_others(mapped)
    }

    /// [`Frame::insert`] for a frame that has other mappings. It is not inlined, so that the usual
    /// load, of a frame without other mappings, keeps its registers.
    #[inline(never)]
    fn insert_beside_others(&mut self, mapped: Mapped) -> Result<u32, NoMemory> {
        let list = self.list()?;
        Ok(list.link(Node::of(mapped, 0), NONE, list.head))
    }

    /// Inserts a page that is a copy of `other`, as its sibling. `None` if `other` is not in the
    /// list.
    pub(crate) fn insert_beside(
        &mut self,
        other: Noted,
        mapped: Mapped,
    ) -> Result<Option<u32>, NoMemory> {
        self.find(other).map(|_| self.insert(mapped)).transpose()
    }

    /// Inserts `mapped`, which was mapped from `parent`, as a child of `parent`. Returns the name
    /// of its node, or `None` if `parent` is not in the list or the tree is too deep.
    pub(crate) fn insert_below(
        &mut self,
        parent: Noted,
        mapped: Mapped,
    ) -> Result<Option<u32>, NoMemory> {
        let Some(parent) = self.find(parent) else { return Ok(None) };
        let list = self.list()?;
        let Linked { node, next, .. } = *list.at(parent);
        let Some(depth) = node.depth.checked_add(1) else { return Ok(None) };
        Ok(Some(list.link(Node::of(mapped, depth), parent, next)))
    }

    /// Inserts `mapped` at the place of `giver`, which becomes its child. Returns the name of its
    /// node, or `None` if `giver` is not in the list or the tree is too deep.
    pub(crate) fn insert_above(
        &mut self,
        giver: Noted,
        mapped: Mapped,
    ) -> Result<Option<u32>, NoMemory> {
        let Some(giver) = self.find(giver) else { return Ok(None) };
        let list = self.list()?;
        let Linked { node, before, .. } = *list.at(giver);
        // The giver's children stay behind the giver at their depth, which is now its own depth:
        // they become its siblings.
        let Some(depth) = node.depth.checked_add(1) else { return Ok(None) };
        list.at(giver).node.depth = depth;
        Ok(Some(list.link(Node::of(mapped, node.depth), before, giver)))
    }

    /// Undoes [`Frame::insert_above`]: puts `giver` back in its place, if it is still in the list.
    pub(crate) fn remove_above(&mut self, giver: Mapped, mapped: Noted) {
        let Some(above) = self.find(mapped) else { return };
        let next = self.node(above).map_or(NONE, |(_, next)| next);
        if !self.node(next).is_some_and(|(node, _)| node.is(giver)) {
            return self.strike_out(above);
        }
        let Some([list]) = self.list.as_deref_mut() else { return };
        let Linked { node, next: behind, .. } = *list.at(next);
        list.at(next).node.depth -= 1;
        list.rise(behind, node.depth);
        list.unlink(above);
        self.settle();
    }

    /// Whether `child` is a child of `parent`, that is, was mapped directly from it.
    pub(crate) fn is_child(&self, parent: Noted, child: Mapped) -> bool {
        let Some((parent, mut next)) = self.find(parent).and_then(|name| self.node(name)) else {
            return false;
        };
        while let Some((node, after)) =
            self.node(next).filter(|(node, _)| node.depth > parent.depth)
        {
            if node.depth == parent.depth + 1 && node.is(child) {
                return true;
            }
            next = after;
        }
        false
    }

    /// The descendants of `parent`: the pages mapped from it, directly or through other pages.
    pub(crate) fn below(&self, parent: Noted) -> impl Iterator<Item = Mapped> {
        let parent = self.find(parent).and_then(|name| self.node(name));
        let (depth, next) = parent.map_or((0, NONE), |(node, next)| (node.depth, next));
        let below = self.names(next).map_while(|name| self.node(name));
        below.map_while(move |(node, _)| if node.depth > depth { node.mapped() } else { None })
    }

    /// Removes a page. Its children become children of its parent.
    #[inline]
    pub(crate) fn remove(&mut self, mapped: Noted) {
        if self.list.is_none() && self.only.is(mapped.page) {
            self.only = Node::default();
        } else {
            self.remove_from_others(mapped);
        }
    }

    #[inline(never)]
    fn remove_from_others(&mut self, mapped: Noted) {
        if let Some(name) = self.find(mapped) {
            self.strike_out(name);
        }
    }

    fn strike_out(&mut self, name: u32) {
        let Some([list]) = self.list.as_deref_mut() else {
            // Without a list, the node to remove is the single node in the descriptor.
            self.only = Node::default();
            return;
        };
        let Linked { node, next, .. } = *list.at(name);
        list.unlink(name);
        list.rise(next, node.depth);
        self.settle();
    }

    /// All pages in the list.
    pub(crate) fn pages(&self) -> impl Iterator<Item = Mapped> + Clone {
        self.noted().map(|noted| noted.page)
    }

    /// All pages in the list, with the names of their nodes.
    pub(crate) fn noted(&self) -> impl Iterator<Item = Noted> + Clone {
        let head = match &self.list {
            Some(list) => list[0].head,
            None => FIRST,
        };
        self.names(head).filter_map(|note| Some(Noted { page: self.node(note)?.0.mapped()?, note }))
    }

    /// The name of the node of a page, if the page is in the list.
    fn find(&self, Noted { page, note }: Noted) -> Option<u32> {
        let is_there = |name: &u32| self.node(*name).is_some_and(|(node, _)| node.is(page));
        if is_there(&note) {
            return Some(note);
        }
        let head = self.list.as_ref().map_or(FIRST, |list| list[0].head);
        self.names(head).find(is_there)
    }

    /// The node with the name `name`, and the name of the next node.
    fn node(&self, name: u32) -> Option<(Node, u32)> {
        let linked = match &self.list {
            Some(list) => *list[0].nodes.get(name.checked_sub(1)? as usize)?,
            None if name == FIRST => Linked { node: self.only, ..Linked::default() },
            None => return None,
        };
        linked.node.is_page().then_some((linked.node, linked.next))
    }

    /// The names in the list, starting with `from`.
    fn names(&self, from: u32) -> impl Iterator<Item = u32> + Clone {
        let is_name = |name: &u32| *name != NONE;
        let next = move |name: &u32| self.node(*name).map(|(_, next)| next).filter(is_name);
        iter::successors(Some(from).filter(is_name), next)
    }

    /// Returns the list with capacity for one more node. If the list does not exist yet, it is
    /// created, and the single node of the descriptor is moved into it.
    fn list(&mut self) -> Result<&mut List, NoMemory> {
        if self.list.is_none() {
            let mut made: Vec<List> = Vec::new();
            made.try_reserve_exact(1)?;
            made.push(List::default());
            let made: Result<Box<[List; 1]>, _> = made.into_boxed_slice().try_into();
            let mut made = made.unwrap_or_else(|_| unreachable!("one list was made"));
            if self.only.is_page() {
                // This needs no memory: the list stores its first nodes in itself.
                made[0].link(core::mem::take(&mut self.only), NONE, NONE);
            }
            self.list = Some(made);
        }
        let Some([list]) = self.list.as_deref_mut() else { return Err(NoMemory) };
        if list.free == NONE && list.nodes.try_reserve(1).is_err() {
            return Err(NoMemory);
        }
        Ok(list)
    }

    /// If a single node is left and its name allows it, moves it into the descriptor and frees the
    /// array.
    fn settle(&mut self) {
        let Some([list]) = self.list.as_deref_mut() else { return };
        match (list.count, list.head) {
            (0, _) => self.list = None,
            (1, FIRST) => {
                self.only = list.at(FIRST).node;
                self.list = None;
            }
            _ => {}
        }
    }
}

impl List {
    /// The node named `name`, which is in use.
    fn at(&mut self, name: u32) -> &mut Linked {
        &mut self.nodes[name as usize - 1]
    }

    /// Inserts a node between the neighbours `before` and `next`, either of which may be [`NONE`].
    /// Returns its name.
    fn link(&mut self, node: Node, before: u32, next: u32) -> u32 {
        let linked = Linked { node, before, next };
        let name = if self.free == NONE {
            self.nodes.push(linked);
            self.nodes.len() as u32
        } else {
            let name = self.free;
            self.free = core::mem::replace(self.at(name), linked).next;
            name
        };
        self.join(before, name);
        self.join(name, next);
        self.count += 1;
        name
    }

    fn unlink(&mut self, name: u32) {
        let free = Linked { next: self.free, ..Linked::default() };
        let Linked { before, next, .. } = core::mem::replace(self.at(name), free);
        self.join(before, next);
        self.free = name;
        self.count -= 1;
    }

    /// Links `one` and `next` as neighbours; either may be [`NONE`].
    fn join(&mut self, one: u32, next: u32) {
        match one {
            NONE => self.head = next,
            one => self.at(one).next = next,
        }
        if next != NONE {
            self.at(next).before = one;
        }
    }

    /// Reduces the depth by one for the descendants of a removed node, which are the nodes from
    /// `next` on that are deeper than `depth`.
    fn rise(&mut self, mut next: u32, depth: u8) {
        // The first node that is not deeper than `depth` is no descendant.
        while next != NONE && self.at(next).node.depth > depth {
            self.at(next).node.depth -= 1;
            next = self.at(next).next;
        }
    }
}

impl Node {
    const fn of(Mapped { space, mmu, page }: Mapped, depth: u8) -> Node {
        let start_and_shift = page.start().get() | page.size().shift() as u64;
        Node { start_and_shift, space, mmu, depth }
    }

    const fn is_page(&self) -> bool {
        self.start_and_shift != 0
    }

    const fn is(&self, mapped: Mapped) -> bool {
        let of = Node::of(mapped, 0);
        self.start_and_shift == of.start_and_shift && self.space == of.space && self.mmu == of.mmu
    }

    /// Page sizes are 4 bytes to 2^62, so that a shift fits in 6 bits. An address has at least as
    /// many zero bits as the page's shift; the shifts of pages of 64 bytes and more therefore fit.
    fn mapped(&self) -> Option<Mapped> {
        let size = PageSize::from_shift((self.start_and_shift & 63) as u8)?;
        let page = VirtAddr::new(self.start_and_shift).page(size);
        Some(Mapped { space: self.space, mmu: self.mmu, page })
    }
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeMap, vec::Vec};

    use addr::PageSize;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// The reference model: pages with their depths, in preorder.
    #[derive(Default)]
    struct Model(Vec<(Mapped, u8)>);

    impl Model {
        fn place(&self, of: Mapped) -> Option<usize> {
            self.0.iter().position(|(page, _)| *page == of)
        }

        /// The position after the last descendant of the page at `place`.
        fn end(&self, place: usize) -> usize {
            let depth = self.0[place].1;
            let below = self.0[place + 1..].iter().take_while(|(_, of)| *of > depth);
            place + 1 + below.count()
        }

        fn remove(&mut self, of: Mapped) {
            let Some(place) = self.place(of) else { return };
            let end = self.end(place);
            self.0[place + 1..end].iter_mut().for_each(|(_, depth)| *depth -= 1);
            self.0.remove(place);
        }
    }

    fn page(number: u64) -> Mapped {
        let size = if number.is_multiple_of(3) { PageSize::SIZE_2M } else { PageSize::SIZE_4K };
        let start = VirtAddr::new(number << 21);
        Mapped { space: number as u32 % 5, mmu: number as u8 % 2, page: start.page(size) }
    }

    /// Operations have the same result whether a note is correct, missing, or names another node.
    #[test]
    fn a_list_under_names_is_the_obvious_list() {
        for seed in 0..200 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut frame, mut model) = (Frame::default(), Model::default());
            let mut names: BTreeMap<Mapped, u32> = BTreeMap::new();
            for step in 0..200 {
                // In the second half more pages are removed than inserted, so that arrays become
                // single nodes again.
                let kinds = if step < 100 { 8 } else { 14 };
                let (one, new) =
                    (page(random.random_range(1..12)), page(random.random_range(1..12)));
                let note = match random.random_range(0..4) {
                    0 => 0,
                    1 => random.random_range(0..12),
                    _ => names.get(&one).copied().unwrap_or(0),
                };
                let noted = Noted { page: one, note };
                let place = model.place(one);
                let is_new = model.place(new).is_none();
                let entered = match random.random_range(0..kinds) {
                    0 | 1 if is_new => {
                        model.0.insert(0, (new, 0));
                        Some(frame.insert(new).unwrap())
                    }
                    2 if is_new => {
                        if place.is_some() {
                            model.0.insert(0, (new, 0));
                        }
                        frame.insert_beside(noted, new).unwrap()
                    }
                    3 | 4 if is_new => {
                        if let Some(place) = place {
                            model.0.insert(place + 1, (new, model.0[place].1 + 1));
                        }
                        frame.insert_below(noted, new).unwrap()
                    }
                    5 if is_new => {
                        if let Some(place) = place {
                            let depth = model.0[place].1;
                            model.0[place].1 += 1;
                            model.0.insert(place, (new, depth));
                        }
                        let name = frame.insert_above(noted, new).unwrap();
                        if random.random_bool(0.3)
                            && let Some((note, place)) = name.zip(place)
                        {
                            frame.remove_above(one, Noted { page: new, note });
                            model.0.remove(place);
                            model.0[place].1 -= 1;
                            None
                        } else {
                            name
                        }
                    }
                    _ => {
                        frame.remove(noted);
                        model.remove(one);
                        names.remove(&one);
                        None
                    }
                };
                names.extend(entered.map(|name| (new, name)));
                let context = (seed, step);
                let found: Vec<Noted> = frame.noted().collect();
                assert!(
                    found.iter().map(|of| of.page).eq(model.0.iter().map(|of| of.0)),
                    "{context:?}"
                );
                assert!(
                    found.iter().all(|of| names.get(&of.page) == Some(&of.note)),
                    "{context:?}"
                );
                let below = frame.below(noted);
                let expected = model.place(one).map_or(0..0, |at| at + 1..model.end(at));
                assert!(below.eq(model.0[expected.clone()].iter().map(|of| of.0)), "{context:?}");
                let depth = model.place(one).map_or(0, |at| model.0[at].1 + 1);
                let child = model.0[expected].contains(&(new, depth));
                assert_eq!(frame.is_child(noted, new), child, "{context:?}");
            }
            for of in model.0 {
                frame.remove(Noted { page: of.0, note: names[&of.0] });
            }
            assert!(frame.list.is_none() && !frame.only.is_page(), "seed {seed}");
        }
    }
}
