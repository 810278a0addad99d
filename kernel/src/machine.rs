//! The kernel's memory and threads: processors run threads, and handle their traps.
//!
//! ```text
//!   next thread --> its root --> user mode --> trap --> call      system call
//!        ^                                       |----> fault     paged by vm, or a message to its pager
//!        |                                       |----> timer     the next one's turn
//!        `---------------------------------------`----> wrong     the thread is stopped
//! ```

use addr::{Frames, Kind, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    Hat, HatSpace,
    locking::{Mutex, Scheme, Site},
};
use pagetable::{Flush, Mount};
use physmem::{Buddy, Physmem, Refusing};
use vm::{Error, Io, Kernel, Marks, Parts, Physical, Reference, Settings, Source, Vm};

use crate::{
    abi::{KERNEL, PROGRAM, STACK_BYTES, STACK_END, STOPPED, TAG_FAULT},
    arch::{self, Context, USER_END},
    direct::{self, Direct},
    disk::{self, Disk},
    flexpage::Flexpage,
    heap,
    locks::{Polled, PolledMutex},
    say, shootdown,
    task::{Place, State, TaskId, Tasks},
    trap::{Fault, Trap},
};

/// A page table in memory that processors walk.
pub type Table = Mount<arch::Table, Direct>;
/// The allocator of frames, which can be made to fail once.
pub type Memory = Physical<Refusing<Buddy>, Polled>;

/// A kernel under any locking scheme, as its processors use it.
pub trait System: Sync {
    /// Runs threads on this processor for ever.
    fn run(&self, processor: usize) -> !;
}

/// The whole kernel, with the locking scheme `S` of the HAT layer.
pub struct Machine<S> {
    pub(crate) vm: Vm<Polled>,
    pub(crate) hat: Hat<Table, S>,
    pub(crate) memory: Memory,
    pub(crate) disk: Disk,
    pub(crate) tasks: PolledMutex<Tasks>,
}

/// A processor and its disk, as the platform of `vm`.
pub struct Board<'a>(&'a Disk);

impl vm::Platform for Board<'_> {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        shootdown::shoot(flushes);
    }

    fn zero(&mut self, frame: PhysAddr, bytes: u64) {
        direct::zero(frame, bytes);
    }

    fn copy(&mut self, from: PhysAddr, to: PhysAddr, bytes: u64) {
        direct::copy(from, to, bytes);
    }

    fn transfer(&mut self, io: Io) {
        self.0.transfer(io);
    }
}

/// A processor and frames for tables, as the platform of the HAT layer where the kernel calls it
/// directly.
pub struct Below<'a>(&'a Memory);

impl hat::Platform for Below<'_> {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        shootdown::shoot(flushes);
    }

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }
}

impl Frames for Below<'_> {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        self.0.with(Site::Load, |memory| Frames::allocate(memory, size))
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        self.0.with(Site::Load, |memory| Frames::free(memory, frame, size));
    }
}

/// The thread to run after a trap of a thread.
pub enum After {
    /// The same thread.
    Same,
    /// Another thread.
    Other,
    /// This thread, which has waited for the thread's message.
    Switch(TaskId),
}

/// The ranges of physical memory, and how they are used.
pub struct Plan {
    /// Frames for `vm`.
    pub frames: core::ops::Range<u64>,
    /// The RAM disk.
    pub disk: core::ops::Range<u64>,
}

impl<S: Scheme<Table = Table> + Sync> Machine<S>
where
    Hat<Table, S>: Sync,
{
    /// A kernel without threads in this memory.
    pub fn new(scheme: S, plan: &Plan) -> Machine<S> {
        let bytes = plan.frames.end - plan.frames.start;
        let base = PageSize::SIZE_4K;
        let memory =
            Physmem::new(PhysAddr::new(plan.frames.start), bytes, base, |frames| Refusing::new(Buddy::new(frames)));
        let memory = Physical::with_locks(memory.expect("whole frames, of which there are some"));
        let disk = Disk::new(plan.disk.clone());
        let pages = bytes / base.bytes();
        let settings = Settings {
            sizes: &[PageSize::SIZE_4K],
            sizing: "base",
            paired: false,
            replacement: "clock",
            reference: Reference::Hardware,
            swap_pages: disk.swap_pages() as u32,
            marks: Marks::of(pages, base),
            reserving: None,
            nodes: 1,
            colors: 1,
            thp: None,
            groups: &[],
            hashed: None,
        };
        let vm = Vm::with_locks(settings, pages).expect("settings of this file");
        let make = || alloc::boxed::Box::new(Mount::shared(arch::table().forgetful(), Direct));
        let hat = Hat::with(scheme, hat::Tables::Each(alloc::boxed::Box::new(make)));
        Machine { vm, hat, memory, disk, tasks: PolledMutex::free(Tasks::new()) }
    }

    /// Calls `f` with `vm`, on this processor.
    pub fn kernel<R>(
        &self,
        f: impl FnOnce(&mut Kernel<'_, Parts<Table, Refusing<Buddy>, Board<'_>, Polled, S>>) -> R,
    ) -> R {
        let mut board = Board(&self.disk);
        f(&mut Kernel::new(&self.vm, &self.hat, &self.memory, &mut board))
    }

    /// The platform of the HAT layer.
    pub fn below(&self) -> Below<'_> {
        Below(&self.memory)
    }

    /// A new space with the kernel's half, which is paged by the kernel or by `pager`.
    pub fn new_space(&self, tasks: &mut Tasks, is_paged: bool, pager: Option<TaskId>) -> Option<HatSpace> {
        let space = match is_paged {
            true => self.kernel(|kernel| kernel.create()).ok()?,
            false => match self.hat.create(&mut self.below()) {
                Ok(space) => space,
                Err(_) => {
                    self.kernel(|kernel| kernel.tick());
                    self.hat.create(&mut self.below()).ok()?
                }
            },
        };
        let inner = self.hat.space(space).expect("it was created");
        arch::adopt(inner);
        tasks.spaces.insert(space.0, Place { root: inner.root(), is_paged, pager, threads: 0 });
        Some(space)
    }

    /// Ends a space without threads.
    pub fn end_space(&self, tasks: &mut Tasks, space: HatSpace) {
        let Some(place) = tasks.spaces.remove(&space.0) else { return };
        // Mappings that were passed on to other spaces are removed before the frames get other
        // owners.
        let whole = Flexpage::all().range();
        let _ = self.hat.revoke(space, whole, false, &mut |_, _| (), &mut self.below());
        // Nor is a processor in it, which has stopped a thread of it and has not gone on.
        shootdown::leave(place.root);
        match place.is_paged {
            true => {
                let ended = self.kernel(|kernel| kernel.exit(space));
                debug_assert_eq!(ended, Ok(true));
            }
            false => self.hat.destroy(space, &mut self.below()),
        }
    }

    /// Maps the program and a stack into a new space.
    pub fn load_program(&self, space: HatSpace) -> Result<(), Error> {
        let range = |start, bytes| VirtRange::new(VirtAddr::new(start), bytes).expect("the program's addresses");
        let text = range(PROGRAM, (disk::PROGRAM_BYTES.len() as u64).next_multiple_of(4096));
        let stack = range(STACK_END - STACK_BYTES, STACK_BYTES);
        let source = Source::File { key: disk::PROGRAM, first: 0, shared: false };
        let (code, data) = (Rights::READ | Rights::EXECUTE, Rights::READ | Rights::WRITE);
        self.kernel(|kernel| {
            kernel.map(space, text, code | Rights::USER, source, 0)?;
            kernel.map(space, stack, data | Rights::USER, Source::Anonymous, 1)
        })
    }

    /// Makes a space with the program, and a ready thread in it.
    pub fn start_program(&self, tasks: &mut Tasks, arguments: [u64; 2]) -> Option<TaskId> {
        let space = self.new_space(tasks, true, None)?;
        let context = Context::new(disk::program_start(), STACK_END, arguments);
        let id = self.load_program(space).ok().and_then(|()| tasks.add(context, space));
        match id {
            Some(id) => tasks.make_ready(id),
            None => self.end_space(tasks, space),
        }
        id
    }

    /// Ends a thread: wakes threads that wait for its end, and reports the end to threads that send
    /// to it or receive from it only.
    pub fn finish(&self, tasks: &mut Tasks, id: TaskId, code: u64) {
        let Some(task) = tasks.alive(id) else { return };
        task.state = State::Dead(code);
        let (space, senders) = (task.space, core::mem::take(&mut task.senders));
        for other in tasks.each() {
            let Some(task) = tasks.get(other) else { continue };
            let answer = match task.state {
                State::Waiting(of) if of == id => [crate::abi::OK, code],
                State::Receiving(from) if from == id => [crate::abi::NO_THREAD, 0],
                State::Sending if senders.contains(&other) => [crate::abi::NO_THREAD, 0],
                _ => continue,
            };
            if task.is_faulting {
                say!("thread {other} is stopped: its pager, thread {id}, has ended");
                self.finish(tasks, other, STOPPED);
                continue;
            }
            task.answer(&answer);
            tasks.make_ready(other);
        }
        let place = tasks.spaces.get_mut(&space.0).expect("a thread has a space");
        place.threads -= 1;
        if place.threads == 0 {
            self.end_space(tasks, space);
        }
        if tasks.spaces.is_empty() {
            say!("no thread is left");
            arch::exit(false);
        }
    }

    fn stop(&self, id: TaskId, why: core::fmt::Arguments<'_>) -> After {
        say!("thread {id} is stopped: {why}");
        self.tasks.with(Site::Call, |tasks| self.finish(tasks, id, STOPPED));
        After::Other
    }

    fn fault(&self, id: TaskId, pc: u64, fault: Fault) -> After {
        let Fault { at, kind } = fault;
        if at >= USER_END {
            return self.stop(id, format_args!("{} of the kernel's address {at:#x}, from {pc:#x}", kind.name()));
        }
        let (space, is_paged, pager) = self.tasks.with(Site::Fault, |tasks| {
            let space = tasks.running(id).space;
            let place = &tasks.spaces[&space.0];
            (space, place.is_paged, place.pager)
        });
        if is_paged {
            if !heap::has_room() {
                return self.stop(id, format_args!("the kernel's own memory is used up"));
            }
            let answered = self.kernel(|kernel| {
                if kernel.wants_memory() {
                    kernel.tick();
                }
                kernel.fault(space, VirtAddr::new(at), kind)
            });
            arch::renew(at);
            return match answered {
                Ok(_) => After::Same,
                Err(error) => self.stop(id, format_args!("{} at {at:#x}: {error}", kind.name())),
            };
        }
        let what = match kind {
            Kind::Fetch => 0,
            Kind::Load => 1,
            Kind::Store => 2,
        };
        let asked = self.tasks.with(Site::Fault, |tasks| {
            if tasks.running(id).is_killed {
                self.finish(tasks, id, STOPPED);
                return Some(After::Other);
            }
            let pager = pager.filter(|&pager| tasks.alive(pager).is_some())?;
            let task = tasks.running(id);
            task.is_faulting = true;
            Some(self.ipc(tasks, id, [pager, pager, TAG_FAULT, at, what, pc]))
        });
        asked.unwrap_or_else(|| self.stop(id, format_args!("{} at {at:#x}, and it has no pager", kind.name())))
    }

    fn answer(&self, processor: usize, id: TaskId, place: *mut Context, trap: Trap) -> After {
        // SAFETY: as in `run`.
        let (pc, call) = unsafe { ((*place).pc(), (*place).call()) };
        match trap {
            Trap::Call => self.call(processor, id, call),
            Trap::Page(fault) => self.fault(id, pc, fault),
            Trap::Timer | Trap::Poke => self.tasks.with(Site::Call, |tasks| {
                if tasks.running(id).is_killed {
                    self.finish(tasks, id, STOPPED);
                    return After::Other;
                }
                if !tasks.has_ready(processor) {
                    return After::Same;
                }
                tasks.make_ready(id);
                After::Other
            }),
            Trap::Wrong(number) => self.stop(id, format_args!("trap {number} at {pc:#x}")),
        }
    }
}

impl<S: Scheme<Table = Table> + Sync> System for Machine<S>
where
    Hat<Table, S>: Sync,
{
    fn run(&self, processor: usize) -> ! {
        loop {
            shootdown::poll();
            let next = self.tasks.with(Site::Call, |tasks| {
                for lost in tasks.lost() {
                    say!("thread {lost} is stopped: its processor does not answer");
                    self.finish(tasks, lost, STOPPED);
                }
                tasks.next(processor)
            });
            let Some((mut id, mut place, mut root)) = next else {
                shootdown::enter(processor, arch::kernel_root());
                arch::wait();
                continue;
            };
            loop {
                shootdown::enter(processor, root);
                // SAFETY: the thread is in the state of running here, so that nobody else reaches its registers, and it
                // is not forgotten.
                let trap = unsafe { (*place).run(processor) };
                shootdown::poll();
                match self.answer(processor, id, place, trap) {
                    After::Same => {}
                    After::Other => break,
                    After::Switch(to) => {
                        // Another processor may have stopped it meanwhile.
                        match self.tasks.with(Site::Call, |tasks| tasks.start(to, processor)) {
                            Some(next) => (id, place, root) = next,
                            None => break,
                        }
                    }
                }
            }
        }
    }
}

const _: () = assert!(KERNEL > USER_END);
