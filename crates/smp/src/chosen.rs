//! Where the locks of descriptors lie, chosen when a run begins: the layer and the memory manager are compiled once for
//! all schemes with a lock for each descriptor.
//!
//! ```text
//!   Fine<_, L, Chosen>   the layer's operations, compiled once
//!        | &mut dyn FnMut
//!        +-- monitor     +-- hashed     +-- embedded     +-- covering
//! ```
//!
//! The indirect call costs nothing in virtual time. Rounds that are timed on this host have each scheme compiled for
//! itself.

use hat::locking::{
    Array, Arrays, Class, Covering, CoveringArray, Embedded, EmbeddedArray, EmbeddedMmus, Hashed,
    HashedArray, Locks, Monitor, MonitorArray, Part, Place, Site,
};

/// One of hat's ways to lock descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chosen {
    Monitor,
    Hashed(Hashed),
    Embedded,
    Covering,
}

/// Descriptors that are locked as was chosen.
pub(crate) enum ChosenArray<D: Default + Send, L: Locks> {
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
        match self {
            Chosen::Monitor => ChosenArray::Monitor(Monitor.array(of, flags)),
            Chosen::Hashed(hashed) => ChosenArray::Hashed(hashed.array(of, flags)),
            Chosen::Embedded => ChosenArray::Embedded(Embedded.array(of, flags)),
            Chosen::Covering => ChosenArray::Embedded(Covering.array(of, flags)),
        }
    }

    fn mmus<D: Default + Send>(&self) -> ChosenArray<D, L> {
        match self {
            Chosen::Monitor => ChosenArray::Monitor(Monitor.mmus()),
            Chosen::Hashed(hashed) => ChosenArray::Hashed(hashed.mmus()),
            Chosen::Embedded => ChosenArray::EmbeddedMmus(Embedded.mmus()),
            Chosen::Covering => ChosenArray::Covering(Covering.mmus()),
        }
    }
}

/// Does `$what` with the array that was chosen.
macro_rules! with {
    ($self:expr, $array:ident => $what:expr) => {
        match $self {
            ChosenArray::Monitor($array) => $what,
            ChosenArray::Hashed($array) => $what,
            ChosenArray::Embedded($array) => $what,
            ChosenArray::EmbeddedMmus($array) => $what,
            ChosenArray::Covering($array) => $what,
        }
    };
}

impl<D: Default + Send, L: Locks> ChosenArray<D, L> {
    fn until_done(&self, site: Site, number: u64, f: &mut dyn FnMut(&mut D) -> Option<()>) {
        with!(self, array => array.until(site, number, f));
    }

    fn several_in_turn(
        &self,
        site: Site,
        count: usize,
        number: &dyn Fn(usize) -> u64,
        f: &mut dyn FnMut(usize, &mut D) -> bool,
    ) {
        with!(self, array => array.several(site, count, number, f));
    }

    fn run_part(
        &self,
        (site, number): (Site, u64),
        lowest: &dyn Fn(&D) -> Option<Place>,
        covering: &dyn Fn(&D) -> u8,
        f: &mut dyn FnMut(Part<'_, D>),
    ) {
        with!(self, array => array.part(site, number, lowest, covering, f));
    }
}

impl<D: Default + Send, L: Locks> Array<D> for ChosenArray<D, L> {
    fn until<R>(&self, site: Site, number: u64, mut f: impl FnMut(&mut D) -> Option<R>) -> R {
        let mut result = None;
        self.until_done(site, number, &mut |descriptor| {
            result = f(descriptor);
            result.as_ref().map(|_| ())
        });
        result.expect("an array runs what it is given until there is a result")
    }

    fn several(
        &self,
        site: Site,
        count: usize,
        number: impl Fn(usize) -> u64,
        mut f: impl FnMut(usize, &mut D) -> bool,
    ) {
        self.several_in_turn(site, count, &number, &mut f);
    }

    fn part<R>(
        &self,
        site: Site,
        number: u64,
        lowest: impl Fn(&D) -> Option<Place>,
        covering: impl Fn(&D) -> u8,
        f: impl FnOnce(Part<'_, D>) -> R,
    ) -> R {
        let (mut f, mut result) = (Some(f), None);
        self.run_part((site, number), &lowest, &covering, &mut |part| {
            result = f.take().map(|f| f(part));
        });
        result.expect("an array runs what it is given once")
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        with!(self, array => array.each(f));
    }
}
