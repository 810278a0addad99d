//! Compares pages that one space maps to another with a model: a map from each page to the page
//! that it was mapped from. Also tests spaces with several MMUs.

use std::collections::BTreeMap;

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace, LoadError, MmuPlace};
use pagetable::{Guarded, Mount, Mpt, SparseMemory, Translation, Usage};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{FORMATS, MEMORY, model::Processor, page, x86_64};

const K4: PageSize = PageSize::SIZE_4K;
const PAGES: u64 = 4;
const READ: Rights = Rights::from_bits(1 | 4 | 8);

type Place = (HatSpace, u64);

/// The frame and the rights of a page, and the page from which it was mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    frame: PhysAddr,
    rights: Rights,
    parent: Option<Place>,
}

/// The reference model of the mapping tree.
#[derive(Default)]
struct Model(BTreeMap<Place, Known>);

impl Model {
    fn below(&self, place: Place) -> Vec<Place> {
        let children = self.0.iter().filter(|(_, known)| known.parent == Some(place));
        let children: Vec<Place> = children.map(|(child, _)| *child).collect();
        children.iter().flat_map(|&child| [vec![child], self.below(child)].concat()).collect()
    }

    /// Removes a page. Its children become children of its parent.
    fn remove(&mut self, place: Place) {
        let Some(gone) = self.0.remove(&place) else { return };
        for known in self.0.values_mut().filter(|known| known.parent == Some(place)) {
            known.parent = gone.parent;
        }
    }
}

fn range(number: u64) -> VirtRange {
    VirtRange::of_page(VirtAddr::new(number << 12).page(K4))
}

#[test]
fn pages_are_handed_on_and_taken_back() {
    for (name, make) in FORMATS {
        for seed in 0..4 {
            println!("{name}, seed {seed}");
            stream(&make(), seed);
        }
    }
}

fn stream(hat: &Hat, seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut processor = Processor::default();
    let spaces: Vec<HatSpace> = (0..5).map(|_| hat.create(&mut processor).unwrap()).collect();
    let mut model = Model::default();
    let has_notes = hat.table().has_notes();
    for _ in 0..400 {
        let mut any = || {
            let space = spaces[random.random_range(0..spaces.len())];
            (space, 1 + random.random_range(0..PAGES))
        };
        let (one, other) = (any(), any());
        let known = model.0.get(&one).copied();
        let is_free = !model.0.contains_key(&other);
        match random.random_range(0..10) {
            0 | 1 if known.is_none() => {
                let frame = PhysAddr::new(random.random_range(1..4u64) << 12);
                let first = page(one.1 << 12, K4, frame.get(), Rights::ALL);
                hat.load(one.0, first, 1, &mut processor).unwrap();
                model.0.insert(one, Known { frame, rights: Rights::ALL, parent: None });
            }
            // Maps the page to the same place again, which adds the rights that it lacks.
            2 if model.0.get(&other).is_some_and(|of| of.parent == Some(one)) => {
                let at = VirtAddr::new(other.1 << 12);
                hat.map_from(one.0, range(one.1), other.0, at, Rights::ALL, &mut processor)
                    .unwrap();
                let given = known.map_or(0, |known| known.rights.bits());
                let child = model.0.get_mut(&other).unwrap();
                child.rights = Rights::from_bits(child.rights.bits() | given);
            }
            3 if known.is_some() => {
                let with_own = random.random_bool(0.5);
                hat.restrict(one.0, range(one.1), READ, with_own, &mut processor).unwrap();
                let own = [one].into_iter().filter(|_| with_own);
                for place in model.below(one).into_iter().chain(own) {
                    let known = model.0.get_mut(&place).unwrap();
                    known.rights = Rights::from_bits(known.rights.bits() & READ.bits());
                }
            }
            2..=5 if is_free => {
                let rights = if random.random_bool(0.3) { READ } else { Rights::ALL };
                let at = VirtAddr::new(other.1 << 12);
                hat.map_from(one.0, range(one.1), other.0, at, rights, &mut processor).unwrap();
                if let Some(known) = known {
                    let rights = Rights::from_bits(known.rights.bits() & rights.bits());
                    model.0.insert(other, Known { rights, parent: Some(one), ..known });
                }
            }
            6 if is_free => {
                let at = VirtAddr::new(other.1 << 12);
                hat.grant(one.0, range(one.1), other.0, at, &mut processor).unwrap();
                if let Some(known) = model.0.remove(&one) {
                    model.0.insert(other, known);
                    let children = model.0.values_mut();
                    children
                        .filter(|known| known.parent == Some(one))
                        .for_each(|known| known.parent = Some(other));
                }
            }
            7 | 8 => {
                let with_own = random.random_bool(0.5);
                let mut told = Vec::new();
                let each = &mut |space, mapping: pagetable::Mapping| {
                    told.push((space, mapping.translation.page.number()));
                };
                hat.revoke(one.0, range(one.1), with_own, each, &mut processor).unwrap();
                let mut gone = if known.is_some() { model.below(one) } else { Vec::new() };
                gone.extend(known.filter(|_| with_own).map(|_| one));
                model.0.retain(|place, _| !gone.contains(place));
                gone.sort_unstable();
                told.sort_unstable();
                assert_eq!(told, gone);
            }
            9 => {
                hat.unload(one.0, range(one.1), &mut |_| (), &mut processor).unwrap();
                model.remove(one);
            }
            _ => {}
        }
        hat.check().unwrap();
        for &space in &spaces {
            let mut found = BTreeMap::new();
            hat.visit(space, VirtRange::ALL, &mut |mapping| {
                let Translation { page, frame, rights, .. } = mapping.translation;
                assert_eq!(mapping.note != 0, has_notes, "{page:?}");
                found.insert((space, page.number()), (frame, rights));
            });
            let expected = model.0.iter().filter(|((of, _), _)| *of == space);
            let expected: BTreeMap<_, _> =
                expected.map(|(place, known)| (*place, (known.frame, known.rights))).collect();
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_page_that_is_not_there_cannot_be_handed_on() {
    let hat = x86_64();
    let mut processor = Processor::default();
    let [one, two] = [0; 2].map(|_| hat.create(&mut processor).unwrap());
    let at = VirtAddr::new(0x5000);
    hat.map_from(one, range(1), two, at, Rights::ALL, &mut processor).unwrap();
    assert_eq!(hat.mappings(), 0);
    hat.destroy(one, &mut processor);
    let gone = hat.map_from(one, range(1), two, at, Rights::ALL, &mut processor);
    assert_eq!(gone, Err(LoadError::NoSpace(one)));
}

/// A grant transfers the usage bits of a page from the giver to the taker.
#[test]
fn a_grant_hands_on_what_was_done_to_the_page() {
    let hat = x86_64();
    let mut processor = Processor::default();
    let [giver, taker] = [0; 2].map(|_| hat.create(&mut processor).unwrap());
    hat.load(giver, page(0x1000, K4, 0x5000, Rights::ALL), 2, &mut processor).unwrap();
    let used = Usage { referenced: true, dirty: true, marked: false };
    hat.set_usage(giver, VirtAddr::new(0x2000), used).unwrap();
    let both = VirtRange::new(VirtAddr::new(0x1000), 0x2000).unwrap();
    hat.grant(giver, both, taker, VirtAddr::new(0x9000), &mut processor).unwrap();
    let usage = |addr| hat.query(taker, VirtAddr::new(addr)).unwrap().usage;
    assert_eq!((usage(0x9000), usage(0xa000)), (Usage::default(), used));
    assert_eq!(hat.query(giver, VirtAddr::new(0x1000)), None);
}

/// A grant that fails is undone: pages that were mapped from the giver are still children of the
/// giver.
#[test]
fn a_grant_that_fails_leaves_the_tree_as_it_was() {
    let hat = x86_64();
    let mut processor = Processor::default();
    let [giver, taker, other] = [0; 3].map(|_| hat.create(&mut processor).unwrap());
    let at = VirtAddr::new(0x1000);
    hat.load(giver, page(0x1000, K4, 0x5000, Rights::ALL), 1, &mut processor).unwrap();
    hat.load(taker, page(0x1000, K4, 0x6000, Rights::ALL), 1, &mut processor).unwrap();
    hat.map_from(giver, range(1), other, at, Rights::ALL, &mut processor).unwrap();
    let refused = hat.grant(giver, range(1), taker, at, &mut processor);
    assert!(matches!(refused, Err(LoadError::Table(_))), "{refused:?}");
    hat.check().unwrap();
    let mut told = Vec::new();
    let each = &mut |space, _| told.push(space);
    hat.revoke(giver, range(1), false, each, &mut processor).unwrap();
    assert_eq!(told, [other]);
    assert!(hat.query(giver, at).is_some());
}

/// A page is mapped by the MMUs of a device and of the processors. Unloading its frame once removes
/// both mappings.
#[test]
fn a_space_is_seen_through_several_mmus() {
    let hat = x86_64();
    let mut processor = Processor::default();
    let space = hat.create(&mut processor).unwrap();
    let kernel = VirtRange::new(VirtAddr::new(0x8000_0000), 1 << 20).unwrap();
    let table = || Box::new(Mount::tree(Mpt::new(), SparseMemory::new(MEMORY)));
    let other_sizes = Box::new(Mount::tree(Guarded::new(16).unwrap(), SparseMemory::new(MEMORY)));
    let refused = hat.attach(space, other_sizes, None, &mut processor);
    assert!(matches!(refused, Err(LoadError::Table(_))), "{refused:?}");
    let device = hat.attach(space, table(), Some(kernel), &mut processor).unwrap().unwrap();
    assert_ne!(device, MmuPlace::PROCESSOR);

    let buffer = page(0x8000_0000, K4, 0x9000, Rights::ALL);
    hat.load(space, buffer, 1, &mut processor).unwrap();
    hat.load_in(space, device, buffer, 1, &mut processor).unwrap();
    let outside = page(0x1000, K4, 0x9000, Rights::ALL);
    let refused = hat.load_in(space, device, outside, 1, &mut processor);
    assert!(matches!(refused, Err(LoadError::Table(_))), "{refused:?}");
    hat.check().unwrap();
    assert_eq!(hat.mappings(), 2);

    let range = VirtRange::of_page(buffer.page);
    hat.protect(space, range, READ, &mut processor).unwrap();
    let seen = hat.query_in(space, device, buffer.page.start()).unwrap();
    assert_eq!(seen.translation.rights, READ, "both lose the right to write");
    assert_eq!(hat.usage(buffer.frame, K4, Usage::default(), &mut processor), Usage::default());

    let mut gone = 0;
    hat.unload_frames(&[(buffer.frame, K4)], &mut |_, _| gone += 1, &mut processor);
    assert_eq!(gone, 2);
    assert_eq!(hat.query_in(space, device, buffer.page.start()), None);

    hat.load(space, buffer, 1, &mut processor).unwrap();
    hat.load_in(space, device, buffer, 1, &mut processor).unwrap();
    hat.unload(space, range, &mut |_| (), &mut processor).unwrap();
    hat.check().unwrap();

    hat.load_in(space, device, buffer, 1, &mut processor).unwrap();
    hat.detach(space, device, &mut processor);
    hat.detach(space, MmuPlace::PROCESSOR, &mut processor);
    assert_eq!(hat.mappings(), 0);
    assert!(hat.space(space).is_some(), "the processors' MMU stays");
    let gone = hat.load_in(space, device, buffer, 1, &mut processor);
    assert_eq!(gone, Err(LoadError::NoSpace(space)));

    let places: Vec<_> = (0..hat::MMUS_MAX)
        .map(|_| hat.attach(space, table(), None, &mut processor).unwrap())
        .collect();
    assert!(places[..hat::MMUS_MAX - 1].iter().all(Option::is_some));
    assert_eq!(places[hat::MMUS_MAX - 1], None, "the list is full");
    hat.load(space, buffer, 1, &mut processor).unwrap();
    for place in places.into_iter().flatten() {
        hat.load_in(space, place, buffer, 1, &mut processor).unwrap();
    }
    hat.destroy(space, &mut processor);
    hat.check().unwrap();
    assert_eq!(processor.frames_out(), 0, "all tables are free again");
}
