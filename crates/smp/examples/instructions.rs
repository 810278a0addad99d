//! Runs an operation of the HAT layer without locks a given number of times. Under a tool that
//! counts instructions, this yields the values in [`smp::Costs`].
//!
//! ```text
//!   valgrind --tool=cachegrind --cache-sim=no target/release/examples/instructions OPERATION PAGES TIMES
//! ```
//!
//! The cost of one operation is a thousandth of the difference between the counts for 2000 times
//! and for 1000 times. This cost is a linear function of the number of pages: a fixed cost per
//! operation, plus a cost for each page.

use addr::{Frames, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    Hat, HatSpace, Platform, Pool, Tables,
    locking::{Global, Single},
};
use pagetable::{Flush, Mount, Mounted, SparseMemory, Translation, X86_64};

struct Quiet(u64);

impl Platform for Quiet {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }
}

impl Frames for Quiet {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        self.0 += size.bytes();
        Ok(PhysAddr::new(self.0))
    }

    fn free(&mut self, _: PhysAddr, _: PageSize) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [operation, pages, times] = std::env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| "give load, protect or duplicate, a number of pages, and how often")?;
    let (pages, times): (u64, u64) = (pages.parse()?, times.parse()?);
    let memory = 1 << 34;
    let table: Box<dyn Mounted> =
        Box::new(Mount::tree(X86_64::<4>::new(), SparseMemory::new(memory)));
    let scheme = Global::<dyn Mounted, Single>::new(Pool::unlimited());
    let hat = Hat::with(scheme, Tables::One(table));
    let mut quiet = Quiet(1 << 32);
    let [space, other] = [hat.create(&mut quiet)?, hat.create(&mut quiet)?];
    let page = |at: u64, frame: u64| {
        Translation::new(
            VirtAddr::new(at).page(PageSize::SIZE_4K),
            PhysAddr::new(frame),
            Rights::ALL,
        )
    };
    // These pages stay loaded, so that their page tables are not removed.
    for space in [space, other] {
        hat.load(space, page(0x10_0000, 0x10_0000), 1, &mut quiet)?;
    }
    let range = VirtRange::new(VirtAddr::new(0), pages << 12)?;
    for turn in 0..times {
        let rights = if turn % 2 == 0 { Rights::READ } else { Rights::ALL };
        match operation.as_str() {
            "load" => {
                hat.load(space, page(0, 0x20_0000), pages, &mut quiet)?;
                hat.unload(space, range, &mut |_| (), &mut quiet)?;
            }
            "protect" => {
                if turn == 0 {
                    hat.load(space, page(0, 0x20_0000), pages, &mut quiet)?;
                }
                hat.protect(space, range, rights, &mut quiet)?;
            }
            "duplicate" => {
                if turn == 0 {
                    hat.load(space, page(0, 0x20_0000), pages, &mut quiet)?;
                }
                hat.duplicate(space, other, range, &mut quiet)?;
                hat.unload(other, range, &mut |_| (), &mut quiet)?;
            }
            other => return Err(format!("{other} is not load, protect or duplicate").into()),
        }
    }
    Ok(())
}
