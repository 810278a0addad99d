//! Where the locks of descriptors are stored, chosen at the beginning of a run: the HAT layer and the memory
//! manager are compiled once for all schemes with a lock per descriptor.
//!
//! ```text
//!   Fine<_, L, Chosen>   the layer's operations, compiled once
//!        | &mut dyn FnMut
//!        +-- monitor     +-- hashed     +-- embedded     +-- covering
//! ```
//!
//! The indirect call costs nothing in virtual time. For measurements on this host, where it would
//! cost time, each scheme is compiled separately instead.

use hat::locking::{
    Array, Arrays, Class, Covering, CoveringArray, Embedded, EmbeddedArray, EmbeddedMmus, Hashed,
    HashedArray, Locks, Monitor, MonitorArray, Part, Site, SubtreePlace,
};

/// A way in which [`Fine`](hat::locking::Fine) schemes lock descriptors.
#[derive(Clone, Copy, Debug)]
pub enum Chosen {
    /// The scheme `monitor`: flags under one mutex.
    Monitor,
    /// A mutex for each of a number of buckets.
    Hashed(Hashed),
    /// A lock in each descriptor.
    Embedded,
    /// A lock for each table of a page table.
    Covering,
}

/// Descriptors that are locked in the chosen way.
pub struct ChosenArray<D: Default + Send, L: Locks>(Kind<D, L>);

enum Kind<D: Default + Send, L: Locks> {
    Monitor(MonitorArray<D, L>),
    Hashed(HashedArray<D, L>),
    Embedded(EmbeddedArray<D, L>),
    EmbeddedMmus(EmbeddedMmus<D, L>),
    Covering(CoveringArray<D, L>),
}

impl<L: Locks> Arrays<L> for Chosen {
    type Of<D: Default + Send> = ChosenArray<D, L>;
    type Mmus<D: Default + Send> = ChosenArray<D, L>;

    fn array<D: Default + Send>(&self, of: Class, flags: Class) -> ChosenArray<D, L> {
        ChosenArray(match self {
            Chosen::Monitor => Kind::Monitor(Monitor.array(of, flags)),
            Chosen::Hashed(hashed) => Kind::Hashed(hashed.array(of, flags)),
            Chosen::Embedded => Kind::Embedded(Embedded.array(of, flags)),
            Chosen::Covering => Kind::Embedded(Covering.array(of, flags)),
        })
    }

    fn mmus<D: Default + Send>(&self) -> ChosenArray<D, L> {
        ChosenArray(match self {
            Chosen::Monitor => Kind::Monitor(Monitor.mmus()),
            Chosen::Hashed(hashed) => Kind::Hashed(hashed.mmus()),
            Chosen::Embedded => Kind::EmbeddedMmus(Embedded.mmus()),
            Chosen::Covering => Kind::Covering(Covering.mmus()),
        })
    }
}

/// Runs `$what` with the chosen array.
macro_rules! with {
    ($self:expr, $array:ident => $what:expr) => {
        match &$self.0 {
            Kind::Monitor($array) => $what,
            Kind::Hashed($array) => $what,
            Kind::Embedded($array) => $what,
            Kind::EmbeddedMmus($array) => $what,
            Kind::Covering($array) => $what,
        }
    };
}

impl<D: Default + Send, L: Locks> ChosenArray<D, L> {
    fn until_done(
        &self,
        site: Site,
        number: u64,
        f: &mut dyn FnMut(&mut D) -> Option<()>,
    ) -> Option<()> {
        with!(self, array => array.until(site, number, f))
    }

    fn several_in_turn(
        &self,
        site: Site,
        count: usize,
        number: &dyn Fn(usize) -> u64,
        f: &mut dyn FnMut(usize, Option<&mut D>) -> bool,
    ) {
        with!(self, array => array.several(site, count, number, f));
    }

    fn run_part(
        &self,
        (site, number): (Site, u64),
        lowest: &dyn Fn(&D) -> Option<SubtreePlace>,
        covering: &dyn Fn(&D) -> u8,
        f: &mut dyn FnMut(Part<'_, D>),
    ) -> Option<()> {
        with!(self, array => array.part(site, number, lowest, covering, f))
    }
}

impl<D: Default + Send, L: Locks> Array<D> for ChosenArray<D, L> {
    fn until<R>(
        &self,
        site: Site,
        number: u64,
        mut f: impl FnMut(&mut D) -> Option<R>,
    ) -> Option<R> {
        let mut result = None;
        self.until_done(site, number, &mut |descriptor| {
            result = f(descriptor);
            result.as_ref().map(|_| ())
        })?;
        result
    }

    fn several(
        &self,
        site: Site,
        count: usize,
        number: impl Fn(usize) -> u64,
        mut f: impl FnMut(usize, Option<&mut D>) -> bool,
    ) {
        self.several_in_turn(site, count, &number, &mut f);
    }

    fn part<R>(
        &self,
        site: Site,
        number: u64,
        lowest: impl Fn(&D) -> Option<SubtreePlace>,
        covering: impl Fn(&D) -> u8,
        f: impl FnOnce(Part<'_, D>) -> R,
    ) -> Option<R> {
        let (mut f, mut result) = (Some(f), None);
        self.run_part((site, number), &lowest, &covering, &mut |part| {
            result = f.take().map(|f| f(part));
        })?;
        result
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        with!(self, array => array.each(f));
    }
}
