//! Layers that are wrong on purpose, which test the tests. Each defect is found from at least 8 of
//! 10 seeds.

use std::mem::take;

use hat::{
    AddressSpace, Contexts, Frame, Mmu, Numbers, Pool,
    locking::{
        Array, Arrays, Below, Class, Embedded, Fine, Held, ListLocks, Locks, Monitor, Mutex,
        Scheme, Site,
    },
};
use pagetable::Mounted;
use smp::{Ranked, Timed, pass};

use super::{
    PLAN,
    world::{Faults, Plan, each, explore},
    x86_64,
};

/// The largest number of schedules of a seed in which the defect must be found.
const BUDGET: u64 = 60;

/// Runs the schedules of each of 10 seeds until one fails. The error must be one of `expected`.
fn found_by_most(name: &str, expected: &[&str], run: impl Fn(u64) -> Result<(), String>) {
    let mut found = 0;
    for seed in 0..10 {
        let mut schedules = (0..BUDGET).map(|number| run(seed * BUDGET + number));
        if let Some(number) = schedules.by_ref().position(|result| match result {
            Ok(()) => false,
            Err(told) => {
                assert!(expected.iter().any(|text| told.contains(text)), "{name}: {told}");
                true
            }
        }) {
            println!("{name}: seed {seed} found it in schedule {number}");
            found += 1;
        }
    }
    assert!(found >= 8, "{name} was found from {found} of 10 seeds");
}

/// The defect that the lock of a frame is released before the list of the frame has changed.
struct EarlyDrop;

struct EarlyArray<D: Default + Send, L: Locks> {
    inner: <Embedded as Arrays<L>>::Of<D>,
    is_early: bool,
}

impl<L: Locks> Arrays<L> for EarlyDrop {
    type Of<D: Default + Send> = EarlyArray<D, L>;
    type Mmus<D: Default + Send> = <Embedded as Arrays<L>>::Mmus<D>;

    fn mmus<D: Default + Send>(&self) -> Self::Mmus<D> {
        Arrays::<L>::mmus(&Embedded)
    }

    fn array<D: Default + Send>(&self, of: Class, flags: Class) -> EarlyArray<D, L> {
        let inner = Arrays::<L>::array(&Embedded, of, flags);
        EarlyArray { inner, is_early: of == Class::Frame }
    }
}

impl<D: Default + Send, L: Locks> Array<D> for EarlyArray<D, L> {
    fn until<R>(
        &self,
        site: Site,
        number: u64,
        mut f: impl FnMut(&mut D) -> Option<R>,
    ) -> Option<R> {
        if !self.is_early {
            return self.inner.until(site, number, f);
        }
        loop {
            let mut taken = self.inner.until(site, number, |frame| Some(take(frame)))?;
            pass();
            let result = f(&mut taken);
            self.inner.until(site, number, |frame| {
                *frame = take(&mut taken);
                Some(())
            });
            if result.is_some() {
                return result;
            }
        }
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        self.inner.each(f);
    }
}

#[test]
fn a_frame_lock_that_is_dropped_too_early() {
    let expected = [
        "nodes",
        "mapping node",
        "is in a TLB",
        "in a TLB",
        "being unloaded",
        "overflow",
        "taken for each page",
        "the processors do not end",
        "sleep",
    ];
    found_by_most("early drop", &expected, |seed| {
        let scheme = Fine::<_, Timed, _>::new(&EarlyDrop, Pool::unlimited(), ListLocks::One);
        explore(scheme, each(x86_64), Plan { seed, ..PLAN })
    });
}

/// The defect that there is a gap between testing a condition and going to sleep. A wake-up in this
/// gap is lost.
enum Gap {}

impl Locks for Gap {
    type Mutex<T: Send> = GapMutex<T>;
    type Row<T: Send> = Box<[GapMutex<T>]>;
    type Rw<T> = <Timed as Locks>::Rw<T>;
    type Wait = <Timed as Locks>::Wait;
    type Once<T> = <Timed as Locks>::Once<T>;
}

struct GapMutex<T: Send>(<Timed as Locks>::Mutex<T>);

impl<T: Send> Mutex<T> for GapMutex<T> {
    type Wait = <Timed as Locks>::Wait;

    fn new(class: Class, value: T) -> GapMutex<T> {
        GapMutex(Mutex::new(class, value))
    }

    fn with<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(site, f)
    }

    fn until<R>(&self, site: Site, wait: &Self::Wait, mut f: impl FnMut(&mut T) -> Option<R>) -> R {
        loop {
            if let Some(result) = self.0.with(site, &mut f) {
                return result;
            }
            pass();
            let mut is_asleep = false;
            self.0.until(site, wait, |_| std::mem::replace(&mut is_asleep, true).then_some(()));
        }
    }

    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

#[test]
fn a_wake_up_that_is_lost() {
    found_by_most("lost wake-up", &["sleep"], |seed| {
        let scheme = Fine::<_, Gap, _>::new(&Monitor, Pool::unlimited(), ListLocks::One);
        explore(scheme, each(x86_64), Plan { seed, ..PLAN })
    });
}

#[test]
fn a_frame_that_is_free_before_the_shootdown_is_answered() {
    let faults = Faults { early_answer: true, ..PLAN.faults };
    found_by_most("early answer", &["in a TLB"], |seed| {
        let scheme = Fine::<_, Ranked<Timed>, _>::new(&Embedded, Pool::unlimited(), ListLocks::One);
        explore(scheme, each(x86_64), Plan { seed, faults, ..PLAN })
    });
}

/// The defect that a processor traverses a copy of the list of a space's MMU descriptors, so that
/// others can remove a descriptor during the traversal.
struct Unread(Fine<dyn Mounted, Timed, Embedded>);

struct UnreadHeld<'a> {
    fine: &'a Fine<dyn Mounted, Timed, Embedded>,
    site: Site,
}

impl Scheme for Unread {
    type Table = dyn Mounted;
    type Held<'a> = UnreadHeld<'a>;

    fn enter<R>(&self, site: Site, f: impl FnOnce(&mut UnreadHeld<'_>) -> R) -> R {
        f(&mut UnreadHeld { fine: &self.0, site })
    }
}

impl Held for UnreadHeld<'_> {
    type Table = dyn Mounted;
    type Below = Self;

    fn space<K, R>(
        &mut self,
        space: u32,
        of: impl FnOnce(&AddressSpace) -> Option<K>,
        f: impl FnOnce(Option<K>, &mut Self) -> R,
    ) -> R {
        let known = self.fine.enter(self.site, |held| held.space(space, of, |known, _| known));
        if self.site == Site::Load {
            // An interrupt, during which another processor can end the space and create another
            // one.
            (0..60).for_each(|_| pass());
        }
        f(known, self)
    }

    fn place_of_space<R>(
        &mut self,
        space: u32,
        f: impl FnOnce(Option<&mut Option<AddressSpace>>) -> R,
    ) -> R {
        self.fine.enter(self.site, |held| held.place_of_space(space, f))
    }

    fn try_mmu<R>(
        &mut self,
        mmu: u32,
        f: impl FnOnce(&mut Mmu<dyn Mounted>, &mut Self) -> R,
    ) -> Option<R> {
        self.fine.enter(self.site, |held| held.try_mmu(mmu, |mmu, _| f(mmu, self)))
    }

    fn each_frame(&mut self, f: &mut dyn FnMut(u64, &Frame)) {
        self.fine.enter(self.site, |held| held.each_frame(f));
    }
}

impl Below for UnreadHeld<'_> {
    fn frame<R>(&mut self, frame: u64, f: impl FnMut(&mut Frame) -> Option<R>) -> Option<R> {
        self.fine.enter(self.site, |held| held.frame(frame, f))
    }

    fn pool<R>(&mut self, f: impl FnOnce(&mut Pool) -> R) -> R {
        self.fine.enter(self.site, |held| held.pool(f))
    }

    fn numbers<R>(&mut self, f: impl FnOnce(&mut Numbers) -> R) -> R {
        self.fine.enter(self.site, |held| held.numbers(f))
    }

    fn contexts<R>(&mut self, f: impl FnOnce(&mut Contexts) -> R) -> R {
        self.fine.enter(self.site, |held| held.contexts(f))
    }
}

#[test]
fn an_mmu_descriptor_that_is_freed_under_a_reader() {
    let expected =
        ["does not exist", "the map", "nodes", "mapping node", "in a TLB", "where a page is"];
    found_by_most("descriptor freed", &expected, |seed| {
        let fine = Fine::new(&Embedded, Pool::unlimited(), ListLocks::One);
        explore(Unread(fine), each(x86_64), Plan { seed, ..PLAN })
    });
}

#[test]
fn a_steal_during_a_load() {
    let faults = Faults { steal_in_load: true, ..PLAN.faults };
    let expected = ["while it holds", "sleep", "the map"];
    found_by_most("steal in a load", &expected, |seed| {
        let scheme = Fine::<_, Ranked<Timed>, _>::new(&Embedded, Pool::unlimited(), ListLocks::One);
        explore(scheme, each(x86_64), Plan { seed, faults, frames: 14, ..PLAN })
    });
}
