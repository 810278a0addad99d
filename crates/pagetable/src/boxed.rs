use alloc::{boxed::Box, vec::Vec};

use addr::{Kind, PageSize, Rights, VirtAddr, VirtRange};

use crate::{
    Error, Fault, Flush, Footprint, Frames, Mapping, Mounted, Node, Reference, Resized, Space,
    Translation, TreeShape, Usage,
};

/// A table that was chosen when the program ran, where one is asked for that is known: for a HAT
/// layer that is part of something larger.
impl Mounted for Box<dyn Mounted> {
    fn page_sizes(&self) -> &[PageSize] {
        (**self).page_sizes()
    }

    fn create(&mut self, frames: &mut dyn Frames) -> Result<Space, Error> {
        (**self).create(frames)
    }

    fn destroy(&mut self, space: Space) -> Result<Flush, Error> {
        (**self).destroy(space)
    }

    fn map(
        &mut self,
        space: Space,
        first: Translation,
        count: u64,
        frames: &mut dyn Frames,
    ) -> Result<Flush, Error> {
        (**self).map(space, first, count, frames)
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        (**self).unmap(space, range, each)
    }

    fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        (**self).protect(space, range, rights, each)
    }

    fn clear_usage(
        &mut self,
        space: Space,
        range: VirtRange,
        bits: Usage,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        (**self).clear_usage(space, range, bits, each)
    }

    fn set_usage(&mut self, space: Space, addr: VirtAddr, bits: Usage) -> Result<(), Error> {
        (**self).set_usage(space, addr, bits)
    }

    fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        (**self).walk(space, addr, kind, references)
    }

    fn query(&self, space: Space, addr: VirtAddr) -> Option<Mapping> {
        (**self).query(space, addr)
    }

    fn visit(&self, space: Space, range: VirtRange, each: &mut dyn FnMut(Mapping)) {
        (**self).visit(space, range, each);
    }

    fn resize(
        &mut self,
        space: Space,
        range: VirtRange,
        to: PageSize,
        frames: &mut dyn Frames,
    ) -> Result<Resized, Error> {
        (**self).resize(space, range, to, frames)
    }

    fn footprint(&self) -> Footprint {
        (**self).footprint()
    }

    fn footprint_of(&self, space: Space) -> Footprint {
        (**self).footprint_of(space)
    }

    fn tree_shape(&self) -> Option<TreeShape> {
        (**self).tree_shape()
    }

    fn root(&self, space: Space) -> Node {
        (**self).root(space)
    }

    fn walk_from(
        &mut self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        (**self).walk_from(start, addr, kind, references)
    }
}
