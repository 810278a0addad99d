//! Plays the processes of a skeleton on the memory manager.
//!
//! ```text
//!   process 0   map  touch  fork 1 ............................ touch  end
//!   process 1                      touch  exec  map  touch  end
//! ```
//!
//! One processor plays all processes of a skeleton: a parent waits for its child, as a shell does.
//! The processes of a pipeline therefore do not run in parallel.

use std::collections::BTreeSet;

use addr::{Kind, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::Mounted;
use vm::{Error, FileKey, Host, How, Kernel, Source};

use locks::{baton::spend, costs::Costs};

use crate::{
    load::{Processor, SIZE, range, text},
    skeleton::{Backing, Skeleton, Step},
};

/// The device number of the files of skeletons.
const DEVICE: u64 = 2;

/// Runs the first process of `skeleton` and all processes that it forks, from a new space to the
/// end.
pub(crate) fn play<H>(
    kernel: &mut Kernel<'_, H>,
    hat: &Hat<dyn Mounted, H::Scheme>,
    costs: &Costs,
    skeleton: &Skeleton,
) -> Result<(), String>
where
    H: Host<Table = dyn Mounted>,
    H::Platform: Processor,
{
    let space = kernel.create().map_err(text)?;
    let mut player = Player { kernel, hat, costs, skeleton, stores: BTreeSet::new() };
    player.process(0, space)
}

struct Player<'a, 'k, H: Host<Table = dyn Mounted>> {
    kernel: &'a mut Kernel<'k, H>,
    hat: &'a Hat<dyn Mounted, H::Scheme>,
    costs: &'a Costs,
    skeleton: &'a Skeleton,
    /// Pages to which the hardware already allows stores, each with its space.
    stores: BTreeSet<(HatSpace, u64)>,
}

impl<H> Player<'_, '_, H>
where
    H: Host<Table = dyn Mounted>,
    H::Platform: Processor,
{
    /// Runs a process, from its beginning to its end, in the given space.
    fn process(&mut self, number: usize, mut space: HatSpace) -> Result<(), String> {
        self.kernel.platform().enter(self.hat, space)?;
        let process = &self.skeleton.processes[number];
        let mut is_shared = process.shares_space;
        for step in &process.steps {
            match *step {
                Step::Work(instructions) => spend(instructions),
                Step::Touch { page, pages, kind } => {
                    (page..page + pages).try_for_each(|page| self.touch(space, page, kind))?;
                }
                Step::Fork(child) => {
                    self.fork(child as usize, space)?;
                    self.kernel.platform().enter(self.hat, space)?;
                }
                Step::Exec if is_shared => {
                    spend(self.costs.trap);
                    let own = self.kernel.create().map_err(text)?;
                    self.kernel.exit(space).map_err(text)?;
                    (space, is_shared) = (own, false);
                    self.kernel.platform().enter(self.hat, space)?;
                }
                Step::Exec => {
                    spend(self.costs.trap);
                    self.forget(space, 0, u64::MAX);
                    self.kernel.exec(space).map_err(text)?;
                }
                Step::Map { .. }
                | Step::Unmap { .. }
                | Step::Protect { .. }
                | Step::Discard { .. }
                | Step::Move { .. } => self.call(space, step)?,
            }
        }
        spend(self.costs.trap);
        if !is_shared {
            self.forget(space, 0, u64::MAX);
        }
        self.kernel.exit(space).map(|_| ()).map_err(text)
    }

    fn fork(&mut self, child: usize, space: HatSpace) -> Result<(), String> {
        spend(self.costs.trap);
        if self.skeleton.processes[child].shares_space {
            self.kernel.share(space).map_err(text)?;
            return self.process(child, space);
        }
        let own = self.kernel.create().map_err(text)?;
        self.kernel.fork(space, own).map_err(text)?;
        self.forget(space, 0, u64::MAX);
        self.process(child, own)
    }

    fn call(&mut self, space: HatSpace, step: &Step) -> Result<(), String> {
        spend(self.costs.trap);
        let kernel = &mut *self.kernel;
        let done = match *step {
            Step::Map { page, pages, rights, backing } => {
                let source = match backing {
                    Backing::Anonymous => Source::Anonymous,
                    Backing::Shared => Source::SharedMemory,
                    Backing::File { number, first, shared } => {
                        let inode = inode(&self.skeleton.files[number as usize]);
                        Source::File { key: FileKey { device: DEVICE, inode }, first, shared }
                    }
                };
                self.forget(space, page, pages);
                let rights = Rights::from_bits(rights);
                self.kernel.map(space, of(page, pages), rights, source, 0)
            }
            Step::Unmap { page, pages } => {
                self.forget(space, page, pages);
                self.kernel.unmap(space, of(page, pages))
            }
            Step::Protect { page, pages, rights } => {
                self.forget(space, page, pages);
                self.kernel.protect(space, of(page, pages), Rights::from_bits(rights))
            }
            Step::Discard { page, pages } => {
                self.forget(space, page, pages);
                self.kernel.discard(space, of(page, pages))
            }
            Step::Move { page, pages, to, to_pages } => {
                let (start, bytes) = (VirtAddr::new(to << SIZE.shift()), to_pages << SIZE.shift());
                let done = kernel.move_pages(space, of(page, pages), start, bytes);
                self.forget(space, page, pages);
                self.forget(space, to, to_pages);
                done
            }
            Step::Touch { .. } | Step::Work(_) | Step::Fork(_) | Step::Exec => Ok(()),
        };
        done.map_err(text)
    }

    fn touch(&mut self, space: HatSpace, page: u64, kind: Kind) -> Result<(), String> {
        if kind == Kind::Store && self.stores.contains(&(space, page)) {
            return Ok(());
        }
        spend(self.costs.trap);
        let addr = VirtAddr::new(page << SIZE.shift());
        match self.kernel.fault(space, addr, kind) {
            Ok(How::Zero | How::Copy | How::Write) => {
                self.stores.insert((space, page));
                Ok(())
            }
            // In the cases of an error, the recorded access succeeded in a region that the
            // recording does not contain.
            Ok(_) | Err(Error::NoRegion(_) | Error::Denied { .. }) => Ok(()),
            Err(error) => Err(text(error)),
        }
    }

    /// Removes these pages from `stores`: stores to them may fault again.
    fn forget(&mut self, space: HatSpace, page: u64, pages: u64) {
        let range = (space, page)..=(space, page.saturating_add(pages - 1));
        let gone: Vec<_> = self.stores.range(range).copied().collect();
        gone.iter().for_each(|page| {
            self.stores.remove(page);
        });
    }
}

fn of(page: u64, pages: u64) -> VirtRange {
    range(page << SIZE.shift(), pages)
}

/// A number for a file, computed from its name, so that files with equal names in several
/// skeletons count as one file.
fn inode(name: &str) -> u64 {
    // FNV-1a.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
