//! Pages in the table: insertion, lookup and removal.

use alloc::vec::Vec;

use addr::{Frames, Kind, Memory, Page, PageSize, PhysAddr, VirtAddr, VirtRange};

use super::Hashed;
use super::chain::{NEXT, link_to, linked, move_to_front};
use super::layout::{Form, HEADER_BYTES, is_valid};
use super::store::Store;
use crate::pages::{Found, Pages, Run, conclude, exchange, read_of, write_note};
use crate::pte::{Pte, Width};
use crate::spaces::Spaces;
use crate::{Error, Fault, Flush, Footprint, Reference, Space, Translation, Unfit};

impl Hashed {
    /// Inserts a page, or the copy of a replicated page for `addr`.
    pub(super) fn enter(
        &mut self,
        space: Space,
        (translation, note): (Translation, u32),
        addr: VirtAddr,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), Error> {
        let Translation { page, frame, rights, global, .. } = translation;
        let pte = (self.layout.width().pte(frame, rights, global), note);
        let (code, node) = self.room(space, page.size(), addr, frame, memory);
        if let Some(node) = node {
            self.layout.set_page(node, code, addr, pte, memory);
            return Ok(());
        }
        let held = self.layout.held(code);
        let bucket = self.bucket(space, addr, held.probe);
        let is_inline = !is_valid(memory.read_u64(bucket));
        let (node, bytes) = if is_inline {
            (bucket, self.layout.bytes(Form::Full))
        } else {
            let pool = self.store(space).pool(held.form);
            (pool.take(frames)?, pool.node_bytes())
        };
        memory.zero(node.wrapping_add(HEADER_BYTES), bytes - HEADER_BYTES);
        if let (Form::Partial, Some(block)) = (held.form, self.layout.block_of(addr, frame)) {
            self.layout.set_block(node, block, memory);
        }
        self.layout.set_page(node, code, addr, pte, memory);
        memory.write_u64(node, self.layout.tag(addr, code, self.id(space)));
        if !is_inline {
            let first = memory.read_u64(bucket.wrapping_add(NEXT));
            memory.write_u64(node.wrapping_add(NEXT), first);
            memory.write_u64(bucket.wrapping_add(NEXT), link_to(node));
        }
        self.store(space).count_in(held.probe);
        Ok(())
    }

    /// Inserts a page, with all copies if it is replicated. If that fails, nothing is inserted.
    fn insert_page(
        &mut self,
        space: Space,
        page: (Translation, u32),
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), Error> {
        let whole = page.0.page;
        if self.layout.is_replicated(whole.size()) {
            return self.enter_copies(space, page, memory, frames);
        }
        self.enter(space, page, whole.start(), memory, frames)
    }

    /// Removes the page of `size` that holds `addr`, if it is mapped. If the page is replicated,
    /// only its copy for `addr` is removed. Returns the old page entry.
    pub(super) fn take_out(
        &mut self,
        space: Space,
        (addr, size): (VirtAddr, PageSize),
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) -> Option<Pte> {
        let (link, found) = self.locate_sized(space, addr, size, memory)?;
        let last = exchange(self.layout.width(), found, memory, |_| Some(Pte::EMPTY));
        if self.layout.pages_in(link, VirtRange::ALL, memory).next().is_none() {
            self.release(space, link, memory, flush);
        }
        Some(last.unwrap_or(found.pte))
    }
}

impl Hashed {
    /// Removes all entries of `space` without memory for a list of them: searches for the last
    /// entry and removes it until no entry is left.
    #[cold]
    fn release_all(&mut self, space: Space, memory: &mut impl Memory, flush: &mut Flush) {
        loop {
            let mut last = None;
            self.links(space, VirtRange::ALL, memory, &mut |link| last = Some(link));
            let Some(link) = last else { return };
            self.release(space, link, memory, flush);
        }
    }
}

impl Pages for Hashed {
    /// The space's buckets and entries, unless all spaces share one table.
    type Own = Option<Store>;

    fn sizes(&self) -> &[PageSize] {
        &self.sizes
    }

    fn width(&self) -> Width {
        self.layout.width()
    }

    fn keeps_notes(&self) -> bool {
        self.layout.has_notes()
    }

    fn note_at(&self, found: &Found) -> Option<PhysAddr> {
        let code = self.layout.code_of(found.page.size());
        if found.flags_only { None } else { self.layout.note_at(found.at, code) }
    }

    fn write_note(&self, space: Space, found: &Found, note: u32, memory: &mut impl Memory) {
        if !self.layout.is_replicated(found.page.size()) {
            return write_note(self, found, note, memory);
        }
        self.write_notes(space, found.page, note, memory);
    }

    fn spaces(&self) -> &Spaces<Option<Store>> {
        &self.spaces
    }

    fn spaces_mut(&mut self) -> &mut Spaces<Option<Store>> {
        &mut self.spaces
    }

    fn open(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(PhysAddr, Option<Store>), Error> {
        let max = self.layout.spaces_max();
        if self.shape.shared && self.spaces.count() >= max {
            return Err(Unfit::Spaces(max).into());
        }
        if let Some(store) = &self.shared {
            return Ok((store.base, None));
        }
        let base = frames.allocate(self.frame_size())?;
        memory.zero(base, self.layout.table.bytes());
        let store = Some(Store::new(base, &self.layout));
        if !self.shape.shared {
            return Ok((base, store));
        }
        self.shared = store;
        Ok((base, None))
    }

    fn close(
        &mut self,
        space: Space,
        own: Option<Store>,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) {
        if self.shape.shared && self.spaces.count() > 0 {
            let (mut of_space, mut is_short) = (Vec::new(), false);
            self.links(space, VirtRange::ALL, memory, &mut |link| {
                is_short = is_short || of_space.try_reserve(1).is_err();
                if !is_short {
                    of_space.push(link);
                }
            });
            if is_short {
                return self.release_all(space, memory, flush);
            }
            // The last entries are removed first, so that the predecessor of each entry in its
            // chain still exists.
            for link in of_space.into_iter().rev() {
                self.release(space, link, memory, flush);
            }
        } else if let Some(store) = own.or_else(|| self.shared.take()) {
            flush.add_table(store.base, self.frame_size());
            store.put_all(flush);
        }
    }

    fn find(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Found> {
        self.locate(space, addr, memory).map(|(_, found)| self.with_usage(space, found, memory))
    }

    fn gather(
        &self,
        space: Space,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Found),
    ) {
        self.links(space, range, memory, &mut |link| {
            self.layout.pages_in(link, range, memory).for_each(&mut *each);
        });
    }

    fn repeats(&self) -> bool {
        self.shape.replicated
    }

    fn with_all_usage(&self, space: Space, found: Found, memory: &impl Memory) -> Found {
        self.with_usage(space, found, memory)
    }

    fn frees_max(&self, space: Space, pages: usize) -> usize {
        let frames = self.store_of(space).map_or(0, Store::frames);
        // Without replication, a page has one entry, so its removal frees at most one frame.
        if self.shape.replicated { frames } else { frames.min(pages) }
    }

    fn frames_of(&self, space: Space, memory: &impl Memory) -> usize {
        let frames = self.store_of(space).map_or(0, Store::frames);
        if self.shape.shared && self.spaces.count() > 1 {
            let mut entries = 0;
            self.links(space, VirtRange::ALL, memory, &mut |_| entries += 1);
            return frames.min(entries);
        }
        frames + 1
    }

    fn insert(
        &mut self,
        space: Space,
        run: &Run<'_>,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        _flush: &mut Flush,
    ) -> Result<(), Error> {
        for (n, page) in run.noted_pages().enumerate() {
            if let Err(error) = self.insert_page(space, page, memory, frames) {
                for page in run.pages().take(n) {
                    let mut undone = Flush::nothing(space);
                    self.remove(space, page.page, memory, &mut undone);
                    undone.done(frames);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn remove(
        &mut self,
        space: Space,
        page: Page,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) -> Pte {
        let last = if self.layout.is_replicated(page.size()) {
            self.take_out_copies(space, page, memory, flush)
        } else {
            self.take_out(space, (page.start(), page.size()), memory, flush)
        };
        last.expect("the page has an entry")
    }

    fn exchange(
        &self,
        space: Space,
        found: Found,
        memory: &mut impl Memory,
        new: impl Fn(Pte) -> Option<Pte>,
    ) -> Option<Pte> {
        if !self.layout.is_replicated(found.page.size()) {
            return exchange(self.layout.width(), found, memory, new);
        }
        self.exchange_copies(space, found, memory, new)
    }

    #[inline]
    fn look_up(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        let (id, width) = (self.id(space), self.layout.width());
        let (header_bytes, with_pte) = self.layout.header_read();
        for probe in self.probes(space) {
            let bucket = self.bucket(space, addr, probe);
            // As in [`chain`](super::chain), no instruction is needed between the load of a link
            // and the loads that follow it.
            let (mut link, mut before) = (link_to(bucket), bucket);
            while let Some(node) = linked(link) {
                let tag = memory.read_u64(node);
                each(read_of(node, header_bytes));
                if self.layout.covers(tag, addr, id) {
                    let code = self.layout.code(tag);
                    let found = self.layout.page_in(node, code, addr, memory);
                    if found.flags_only {
                        each(read_of(node.wrapping_add(HEADER_BYTES), width.bytes()));
                        each(read_of(found.at, 1));
                    } else if !with_pte {
                        each(read_of(found.at, width.bytes()));
                    }
                    if found.pte.is_mapped() {
                        if self.shape.move_to_front && before != bucket {
                            move_to_front(&self.layout, bucket, before, node, memory, each);
                        }
                        let sets_usage = self.shape.walk_sets_usage;
                        return conclude(width, found, kind, sets_usage, memory, each);
                    }
                }
                let next = node.wrapping_add(NEXT);
                link = memory.read_u64(next);
                if header_bytes <= 8 {
                    each(read_of(next, 8));
                }
                before = node;
            }
        }
        Err(Fault::NotMapped { level: 1 })
    }

    fn taken_by(&self, own: &Option<Store>) -> Footprint {
        own.as_ref().map(|store| self.store_footprint(store)).unwrap_or_default()
    }

    fn taken_by_all(&self) -> Footprint {
        self.taken_by(&self.shared)
    }
}
