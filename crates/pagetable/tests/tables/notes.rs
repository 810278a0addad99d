//! Tests the positions of the 32 bits that E99 reserves beside each page's entry for the mapping
//! tree.

use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Guarded, Hashed, HashedShape, Mpt, X86_64};

use crate::common::{Op, Table, World, page};

const K4: PageSize = PageSize::SIZE_4K;
/// A pair, and the first page of the next one.
const PAGES: u64 = 3;

/// For each of three pages, the distance from its entry to its note; `None` if the table has no
/// notes.
fn places(table: impl Table + 'static) -> Option<Vec<u64>> {
    let mut world = World::new(table);
    world.apply(Op::Create);
    let space = world.spaces[0].0;
    let start = 0x1234_0000;
    let first = page(start, K4, 0x10_0000, Rights::ALL);
    let notes = [0xdead_0001, 0xdead_0002, 0xdead_0003];
    let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
    world.table.map_noted(space, (first, PAGES), &notes, memory, frames).unwrap().done(frames);
    let mut places = Vec::new();
    for n in 0..PAGES {
        let addr = VirtAddr::new(start + n * K4.bytes());
        let mut entry = PhysAddr::new(0);
        let each = &mut |reference: pagetable::Reference| entry = reference.addr;
        world.table.walk(space, addr, Kind::Load, memory, each).unwrap();
        let note = notes[n as usize];
        let place = (0..64).find(|n| memory.read_u32(entry.wrapping_add(n * 4)) == note);
        let known = world.table.query(space, addr, memory).unwrap().note;
        assert_eq!(known, if place.is_some() { note } else { 0 });
        places.extend(place.map(|words| words * 4));
    }
    assert_eq!(world.table.has_notes(), !places.is_empty());
    // A page that is mapped without a note must not get the note of the page that was there before.
    world.table.unmap(space, VirtRange::ALL, memory, &mut |_| {}).unwrap().done(frames);
    world.table.map(space, first, PAGES, memory, frames).unwrap().done(frames);
    let addr = VirtAddr::new(start);
    assert_eq!(world.table.query(space, addr, memory).unwrap().note, 0);
    world.table.set_note(space, addr, 7, memory).unwrap();
    let noted = world.table.query(space, addr, memory).unwrap().note;
    assert_eq!(noted, if places.is_empty() { 0 } else { 7 });
    world.table.destroy(space, memory).unwrap().done(frames);
    (!places.is_empty()).then_some(places)
}

#[test]
fn notes_lie_where_the_paper_reserves_them() {
    let pair = Some(vec![8; 3]);
    assert_eq!(places(Mpt::new()), pair);
    assert_eq!(places(Guarded::new(16).unwrap()), pair);
    assert_eq!(places(Guarded::adaptive()), pair);
    assert_eq!(places(Hashed::new(HashedShape::H8K).unwrap()), pair);
    assert_eq!(places(Hashed::new(HashedShape::C128K).unwrap()), Some(vec![32; 3]));
    // Entries whose layout hardware defines have no room for notes.
    assert_eq!(places(Hashed::new(HashedShape::inverted(1 << 20, 2)).unwrap()), None);
    assert_eq!(places(X86_64::<4>::new()), None);
}
