//! The layers on which a load runs: a HAT layer, and the memory manager above it unless the load
//! calls only the HAT layer.

use addr::{PhysAddr, VirtAddr, VirtRange};
use hat::{
    Hat, Tables,
    locking::{Locks, Scheme},
};
use pagetable::{Hashed, HashedShape, Mount, Mounted, SparseMemory};
use physmem::Physmem;
use vm::{Kernel, Marks, POLICIES, Physical, Reference, Settings, Vm};

use locks::costs::Costs;

use crate::{
    kernel::{self, Process},
    layer::{self, Layer},
    load::{Asked, Load, Processor, SIZE, SIZES, WINDOWS, Work, text},
    spaces::{Above, Shared, Spaces},
};

/// Bytes of memory. No load fills this memory, as the loads of K94 did not fill the memory of its
/// machine.
const BYTES: u64 = 2 << 30;

/// Bytes of the range for the kernel's windows.
const WINDOWS_BYTES: u64 = 64 << 20;

/// Bytes of physical memory that entries of an I/O MMU can address.
const DEVICE_MEMORY: u64 = 1 << 40;

/// The HAT layer, and the memory manager above it if there is one.
pub(crate) struct World<S, L: Locks> {
    hat: Hat<dyn Mounted, S>,
    above: Option<Above<L>>,
}

impl<S: Scheme<Table = dyn Mounted>, L: Locks> World<S, L> {
    /// A world without spaces.
    pub(crate) fn new(
        scheme: S,
        tables: Tables<dyn Mounted>,
        hat_only: bool,
    ) -> Result<World<S, L>, String> {
        let hat = Hat::with(scheme, tables);
        if hat_only {
            return Ok(World { hat, above: None });
        }
        let pages = BYTES >> SIZE.shift();
        let settings = Settings {
            sizes: &[SIZE],
            sizing: "base",
            paired: false,
            replacement: POLICIES[0].0,
            reference: Reference::Hardware,
            swap_pages: 0,
            marks: Marks::of(pages, SIZE),
            reserving: None,
            nodes: 1,
            colors: 1,
            thp: None,
            groups: &[],
            hashed: None,
        };
        let memory = Physmem::buddy(PhysAddr::new(0), BYTES, SIZE).map_err(text)?;
        let vm = Vm::with_locks(settings, pages).map_err(text)?;
        Ok(World { hat, above: Some(Above { vm, memory: Physical::with_locks(memory) }) })
    }

    /// The HAT layer.
    pub(crate) fn hat(&self) -> &Hat<dyn Mounted, S> {
        &self.hat
    }

    /// Makes the space that all processors share, and its I/O MMU if the load has one.
    pub(crate) fn shared(&self, asked: &Asked, cpu: &mut impl Processor) -> Result<Shared, String> {
        let space = match &self.above {
            None => layer::shared(&self.hat, cpu, asked),
            Some(above) => kernel::shared(&self.hat, above, cpu, asked),
        }?;
        if asked.load != Load::Dma {
            return Ok((space, None));
        }
        let windows = VirtRange::new(VirtAddr::new(WINDOWS), WINDOWS_BYTES).map_err(text)?;
        let table = Hashed::new(HashedShape { shared: true, ..HashedShape::H8K }).map_err(text)?;
        let table = Box::new(Mount::new(table, SparseMemory::new(DEVICE_MEMORY)));
        let device = self.hat.attach(space, table, Some(windows), cpu).map_err(text)?;
        Ok((space, device))
    }

    /// Makes the spaces of a processor, for a load.
    pub(crate) fn spaces(
        &self,
        asked: &Asked,
        (shared, device): Shared,
        cpu: &mut impl Processor,
    ) -> Result<Spaces, String> {
        match &self.above {
            None => {
                let own = self.hat.create(cpu).map_err(text)?;
                Ok(Spaces { own, shared, device, parents: [own; SIZES.len()] })
            }
            Some(above) => kernel::spaces(&self.hat, above, cpu, (shared, device), asked),
        }
    }

    /// A processor that runs a load in these spaces.
    pub(crate) fn processor<'a, P: Processor>(
        &'a self,
        cpu: &'a mut P,
        of: (u64, Spaces),
        (seed, costs): (u64, Costs),
        asked: &Asked,
    ) -> Result<Box<dyn Work + 'a>, String> {
        Ok(match &self.above {
            None => Box::new(Layer::new(&self.hat, cpu, of, (seed, costs), asked)?),
            Some(above) => Box::new(Process::new(&self.hat, above, cpu, of, (seed, costs), asked)?),
        })
    }

    /// Compares data that is kept in several places. Called while no processor works. The error
    /// describes the difference.
    pub(crate) fn check(&self, cpu: &mut impl Processor) -> Result<(), String> {
        match &self.above {
            None => self.hat.check().map_err(String::from),
            Some(Above { vm, memory }) => Kernel::new(vm, &self.hat, memory, cpu).check(),
        }
    }
}
