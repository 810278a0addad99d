//! Contexts: the tag (ASID, PCID or TLB PID) that each address space has in the TLBs.
//!
//! ```text
//!   enter(space) --> has a number?  yes ---------------------------> that one
//!                       | no: one is free ------------------------> flush it, where it is reused
//!                       | no: none is free
//!                       +-- modulo: the space's own number, by remainder; flush that one
//!                       +-- lru: the number that was entered longest ago; flush that one
//!                       +-- generation: all begin anew; flush everything
//! ```
//!
//! Hardware compares these numbers and does not know spaces. If a number were given to another
//! space without a flush, that space would use entries of the number's previous space. The entries
//! of a number are therefore flushed before the number is given to another space. Linux has
//! generations on Arm (arch/arm64/mm/context.c) and a few numbers per processor on x86
//! (arch/x86/mm/tlb.c); IRIX and Solaris keep one list or one counter for all processors (K94
//! §4.2).
//!
//! This module does not depend on the simulator, so that a kernel could use it to assign contexts.

use addr::Asid;
use description::{BITS_MAX, ContextPolicy};

/// The largest number of processors: a word has one bit for each.
pub const PROCESSORS_MAX: u32 = u64::BITS;

/// The tag that distinguishes the lines of a context in virtually addressed caches. The tag is in
/// bits above all bits of an address. Lines of memory that all contexts share have no tag.
pub fn tag_of_context(asid: Asid) -> u64 {
    (u64::from(asid.0) + 1) << VIRTUAL_CACHE_BITS
}

/// The number of address bits by which virtually addressed caches identify lines.
pub const VIRTUAL_CACHE_BITS: u32 = 32;

/// The entries that must be flushed before a space runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stale {
    /// Nothing: all entries with the space's context are its own.
    Nothing,
    /// All entries with the context `asid`, on the processors whose bits are set in `held_by`.
    Context { asid: Asid, held_by: u64 },
    /// All entries that are not global, because the hardware has no contexts.
    NonGlobal,
    /// All entries that are not global, on every processor, because a new generation of contexts
    /// begins.
    Everywhere,
}

/// The contexts of one processor, or of all processors that share them.
#[derive(Clone, Debug)]
struct Numbers {
    /// The owner of each context.
    owners: Vec<Option<Owner>>,
    /// The number of contexts assigned in this generation.
    given: usize,
    now: u64,
}

/// The space that has a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owner {
    space: u32,
    /// The time when the space was last entered.
    last: u64,
    /// A bit mask of the processors on which the space has run with this context.
    held_by: u64,
}

/// All contexts and their owners.
#[derive(Clone, Debug)]
pub struct Contexts {
    policy: ContextPolicy,
    /// One set for all processors, or one per processor.
    numbers: Vec<Numbers>,
    /// The space that each processor runs; `None` before its first space.
    running: Vec<Option<u32>>,
}

impl Contexts {
    /// Contexts of `bits` bits (none if 0), for processors that have not run anything yet. If
    /// processors share contexts, there must be at least as many contexts as processors.
    pub fn new(policy: ContextPolicy, bits: u8, processors: usize) -> Contexts {
        let count = if bits == 0 { 0 } else { 1 << bits.min(BITS_MAX) };
        let numbers = Numbers { owners: vec![None; count], given: 0, now: 0 };
        let sets = match policy {
            ContextPolicy::Modulo | ContextPolicy::PerProcessor => processors,
            ContextPolicy::Lru | ContextPolicy::Generation => 1,
        };
        Contexts { policy, numbers: vec![numbers; sets], running: vec![None; processors] }
    }

    /// The context that `space` has on `processor`; `None` if that processor cannot hold TLB
    /// entries of the space.
    pub fn of(&self, processor: usize, space: u32) -> Option<Asid> {
        let owners = &self.numbers(processor).owners;
        if owners.is_empty() {
            return (self.running[processor] == Some(space)).then_some(Asid(0));
        }
        let (index, owner) = find(owners, space)?;
        (owner.held_by >> processor & 1 == 1).then_some(Asid(index as u16))
    }

    /// Runs `space` on `processor`. Returns its context, and what must be flushed first.
    pub fn enter(&mut self, processor: usize, space: u32) -> (Asid, Stale) {
        self.running[processor] = Some(space);
        let set = processor % self.numbers.len();
        // Spaces that run on other processors keep their contexts, which this processor shares.
        let others = self.running.iter().enumerate().filter(|(other, _)| *other != processor);
        let kept: Vec<u32> =
            others.filter(|_| self.are_shared()).filter_map(|(_, space)| *space).collect();
        let is_kept =
            |owner: &Option<Owner>| owner.is_some_and(|owner| kept.contains(&owner.space));
        let numbers = &mut self.numbers[set];
        numbers.now += 1;
        let (last, held_by) = (numbers.now, 1 << processor);
        if numbers.owners.is_empty() {
            return (Asid(0), Stale::NonGlobal);
        }
        if let Some((index, owner)) = find(&numbers.owners, space) {
            let held_by = owner.held_by | held_by;
            numbers.owners[index] = Some(Owner { space, last, held_by });
            return (Asid(index as u16), Stale::Nothing);
        }
        let mut everywhere = false;
        let index = match self.policy {
            ContextPolicy::Modulo => space as usize % numbers.owners.len(),
            ContextPolicy::Lru | ContextPolicy::PerProcessor => {
                let last = |owner: &Option<Owner>| owner.map_or(0, |owner| owner.last + 1);
                let all = numbers.owners.iter().enumerate().filter(|(_, owner)| !is_kept(owner));
                all.min_by_key(|(_, owner)| last(owner)).map_or(0, |(index, _)| index)
            }
            ContextPolicy::Generation => {
                let free = |numbers: &Numbers| {
                    (numbers.given..numbers.owners.len()).find(|&at| numbers.owners[at].is_none())
                };
                everywhere = free(numbers).is_none();
                if everywhere {
                    numbers
                        .owners
                        .iter_mut()
                        .filter(|one| !is_kept(one))
                        .for_each(|one| *one = None);
                    numbers.given = 0;
                }
                let index = free(numbers).unwrap_or(0);
                numbers.given = index + 1;
                index
            }
        };
        let asid = Asid(index as u16);
        let before = numbers.owners[index].replace(Owner { space, last, held_by });
        let stale = match before {
            _ if everywhere => Stale::Everywhere,
            Some(Owner { held_by, .. }) => Stale::Context { asid, held_by },
            None => Stale::Nothing,
        };
        (asid, stale)
    }

    /// The space that runs on `processor`.
    pub fn running(&self, processor: usize) -> Option<u32> {
        self.running[processor]
    }

    /// Whether a context stands for the same space on every processor.
    pub fn are_shared(&self) -> bool {
        self.numbers.len() == 1
    }

    fn numbers(&self, processor: usize) -> &Numbers {
        &self.numbers[processor % self.numbers.len()]
    }
}

/// The context of `space`, and the data of its owner.
fn find(owners: &[Option<Owner>], space: u32) -> Option<(usize, Owner)> {
    let has = |(index, owner): (usize, &Option<Owner>)| {
        owner.filter(|owner| owner.space == space).map(|owner| (index, owner))
    };
    owners.iter().enumerate().find_map(has)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const POLICIES: [ContextPolicy; 4] = [
        ContextPolicy::Modulo,
        ContextPolicy::Lru,
        ContextPolicy::Generation,
        ContextPolicy::PerProcessor,
    ];

    /// Simulates two processors whose TLBs never evict an entry; each entry is a pair of context
    /// and space. No space ever finds an entry of another space. If it is reported that no TLB has
    /// entries of a space, this is true.
    #[test]
    fn no_space_finds_what_another_has_left() {
        for policy in POLICIES {
            for bits in [0, 1, 2, 3] {
                let mut contexts = Contexts::new(policy, bits, 2);
                let mut tlbs: [BTreeSet<(u16, u32)>; 2] = Default::default();
                // For each processor, the context and the number of the running space.
                let mut running = [None; 2];
                let mut state = 0x2545_f491_4f6c_dd1d_u64;
                let mut flushes = 0;
                for step in 0..600 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let (processor, space) = ((state >> 8) as usize % 2, (state >> 16) as u32 % 11);
                    let (asid, stale) = contexts.enter(processor, space);
                    flushes += u32::from(stale != Stale::Nothing);
                    for (index, tlb) in tlbs.iter_mut().enumerate() {
                        match stale {
                            Stale::Nothing => {}
                            Stale::Context { asid, held_by } if held_by >> index & 1 == 1 => {
                                tlb.retain(|entry| entry.0 != asid.0);
                            }
                            Stale::Context { .. } => {}
                            Stale::NonGlobal if index == processor => tlb.clear(),
                            Stale::NonGlobal => {}
                            Stale::Everywhere => tlb.clear(),
                        }
                    }
                    let context = format!("{policy:?}, {bits} bits, step {step}");
                    let own = |entry: &&(u16, u32)| entry.0 == asid.0 && entry.1 != space;
                    assert_eq!(tlbs[processor].iter().find(own), None, "{context}");
                    running[processor] = Some((asid.0, space));
                    for (tlb, runs) in tlbs.iter_mut().zip(running) {
                        let Some(runs) = runs else { continue };
                        assert!(!tlb.iter().any(|one| one.0 == runs.0 && one.1 != runs.1));
                        tlb.insert(runs);
                    }
                    assert_eq!(contexts.of(processor, space), Some(asid), "{context}");
                    for (index, tlb) in tlbs.iter().enumerate() {
                        for of in 0..11 {
                            let held: Vec<u16> =
                                tlb.iter().filter(|entry| entry.1 == of).map(|one| one.0).collect();
                            let said = contexts.of(index, of).map(|asid| asid.0);
                            assert!(held.iter().all(|asid| said == Some(*asid)), "{context}");
                        }
                    }
                }
                assert!(flushes > 0, "{policy:?}, {bits} bits");
            }
        }
    }

    #[test]
    fn the_context_entered_longest_ago_goes_or_all_do() {
        let given = |policy| {
            let mut contexts = Contexts::new(policy, 1, 1);
            [0, 1, 0, 2, 0, 1].map(|space| {
                let (asid, stale) = contexts.enter(0, space);
                (asid.0, stale)
            })
        };
        let own = Stale::Nothing;
        let taken = |number| Stale::Context { asid: Asid(number), held_by: 1 };
        let lru = [(0, own), (1, own), (0, own), (1, taken(1)), (0, own), (1, taken(1))];
        assert_eq!(given(ContextPolicy::Lru), lru);
        let modulo = [(0, own), (1, own), (0, own), (0, taken(0)), (0, taken(0)), (1, own)];
        assert_eq!(given(ContextPolicy::Modulo), modulo);
        let anew = Stale::Everywhere;
        let generation = [(0, own), (1, own), (0, own), (0, anew), (1, own), (0, anew)];
        assert_eq!(given(ContextPolicy::Generation), generation);
    }
}
