//! System calls. A new call needs a variant of [`Number`] and a case in
//! `Machine::do_call`.

use addr::{Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    Hat,
    locking::{Mutex, Scheme, Site},
};
use vm::{Error, FileKey, How, Source};

use crate::{
    abi::{
        BAD, EXECUTE, Fact, Failure, MEMORY, NO_THREAD, Number, OK, READ, SOURCE_FILE, SOURCE_FILE_SHARED,
        SOURCE_SHARED, SOURCE_ZEROS, SPACE_EMPTY, SPACE_OF, SPACE_PAGED, SPACE_SAME, SPACE_WITHOUT_PAGER, STACK_END,
        STOPPED, WRITE,
    },
    arch::{self, Context, USER_END},
    console,
    direct::Direct,
    disk::Disk,
    flexpage::Flexpage,
    heap,
    machine::{After, Machine, Table},
    shootdown,
    task::{State, TaskId, Tasks},
    trap::Call,
};

/// The most regions of a space: their descriptions take the kernel's memory.
const REGIONS_MAX: usize = 128;

/// The range of user addresses of a call: not empty, and extended to whole pages.
fn range(start: u64, bytes: u64) -> Option<VirtRange> {
    let is_whole = start % 4096 == 0 && bytes % 4096 == 0 && bytes > 0;
    let is_user = start < USER_END && bytes <= USER_END - start;
    if is_whole && is_user { VirtRange::new(VirtAddr::new(start), bytes).ok() } else { None }
}

/// The rights for user mode in a call.
fn rights(bits: u64) -> Option<Rights> {
    let is_known = bits & !(READ | WRITE | EXECUTE) == 0 && (bits == 0 || bits & READ != 0);
    is_known.then(|| Rights::from_bits(bits as u8) | Rights::USER)
}

/// The entry of a page table at a physical address.
fn entry_at(at: u64) -> u64 {
    Direct.read_u64(PhysAddr::new(at))
}

fn status(done: Result<(), Error>) -> u64 {
    match done {
        Ok(()) => OK,
        Err(Error::OutOfMemory { .. } | Error::TableMemory | Error::NoMemory | Error::PinLimit(_)) => MEMORY,
        Err(Error::NoRegion(_) | Error::Denied { .. } | Error::Table(_) | Error::NoSpace(_)) => BAD,
        Err(Error::Given(_) | Error::NotGiven(_) | Error::Attributes { .. } | Error::Io(_)) => BAD,
    }
}

impl<S: Scheme<Table = Table> + Sync> Machine<S>
where
    Hat<Table, S>: Sync,
{
    /// Handles a system call of a thread.
    pub fn call(&self, processor: usize, id: TaskId, call: Call) -> After {
        let Call { number, arguments } = call;
        if number == Number::Fail as u64 && arguments[0] == Failure::Processor as u64 && shootdown::online() > 1 {
            loop {
                core::hint::spin_loop();
            }
        }
        self.tasks.with(Site::Call, |tasks| {
            if tasks.running(id).is_killed {
                self.finish(tasks, id, STOPPED);
                return After::Other;
            }
            let Some(number) = Number::of(number) else {
                tasks.running(id).answer(&[BAD]);
                return After::Same;
            };
            self.do_call(processor, tasks, id, number, arguments)
        })
    }

    fn do_call(&self, processor: usize, tasks: &mut Tasks, id: TaskId, number: Number, arguments: [u64; 6]) -> After {
        let [first, second, third, ..] = arguments;
        // Calls that could exhaust the kernel's own memory are refused before it is exhausted.
        let grows = matches!(number, Number::Spawn | Number::Fork | Number::Map | Number::Protect | Number::Ipc);
        if grows && !heap::has_room() {
            tasks.running(id).answer(&[MEMORY]);
            return After::Same;
        }
        let result = match number {
            Number::Ipc => return self.ipc(tasks, id, arguments),
            Number::Accept => match Flexpage::of(first) {
                Some(window) => {
                    tasks.running(id).window = window;
                    [OK, 0]
                }
                None => [BAD, 0],
            },
            Number::Flush => [self.flush(tasks, id, first, second != 0), 0],
            Number::Spawn => self.spawn(tasks, id, arguments),
            Number::Fork => self.fork(tasks, id),
            Number::Exit => {
                self.finish(tasks, id, first);
                return After::Other;
            }
            Number::Wait => match tasks.get(first).map(|task| task.state) {
                Some(State::Dead(code)) => {
                    tasks.forget(first);
                    [OK, code]
                }
                Some(_) if first != id => {
                    tasks.running(id).state = State::Waiting(first);
                    return After::Other;
                }
                Some(_) | None => [NO_THREAD, 0],
            },
            Number::Kill => return self.kill(tasks, id, first),
            Number::Map => [self.map(tasks, id, arguments), 0],
            Number::Unmap | Number::Protect | Number::Discard => {
                [self.change(tasks, id, number, [first, second, third]), 0]
            }
            Number::Yield => {
                tasks.running(id).answer(&[OK]);
                if !tasks.has_ready(processor) {
                    return After::Same;
                }
                tasks.make_ready(id);
                return After::Other;
            }
            Number::Print => {
                let text = arguments[1..].iter().flat_map(|word| word.to_le_bytes());
                let mut bytes = [0; 40];
                bytes.iter_mut().zip(text).for_each(|(to, byte)| *to = byte);
                console::bytes(&bytes[..(first as usize).min(40)]);
                [OK, 0]
            }
            Number::Fact => match Fact::of(first) {
                Some(fact) => [OK, self.fact(tasks, processor, id, fact, second)],
                None => [BAD, 0],
            },
            Number::Processor => {
                if !shootdown::is_online(first.min(63) as usize) {
                    [BAD, 0]
                } else {
                    tasks.running(id).processor = Some(first as usize);
                    tasks.running(id).answer(&[OK]);
                    if first as usize == processor {
                        return After::Same;
                    }
                    tasks.make_ready(id);
                    return After::Other;
                }
            }
            Number::Shutdown => arch::exit(first == 0),
            Number::Fail => [self.fail(tasks, processor, id, first, second), 0],
        };
        tasks.running(id).answer(&result);
        After::Same
    }

    fn fact(&self, tasks: &mut Tasks, processor: usize, id: TaskId, fact: Fact, second: u64) -> u64 {
        match fact {
            Fact::Processors => shootdown::online().into(),
            Fact::FreeFrames => self.memory.with(Site::Look, |memory| memory.free_bytes() >> PageSize::SIZE_4K.shift()),
            Fact::Swapped => self.vm.swapped(),
            Fact::SwapReads => self.vm.faults()[How::Swap as usize],
            Fact::Shootdowns => shootdown::sent() as u64,
            Fact::Copies => self.vm.faults()[How::Copy as usize],
            Fact::Faults => self.vm.faults().iter().sum(),
            Fact::ThisProcessor => processor as u64,
            // What is looked at holds while no operation is in progress.
            Fact::Check | Fact::Tables if tasks.others_run(processor) || !heap::has_room() => u64::MAX,
            Fact::Tables if second >= USER_END => 0,
            Fact::Tables => arch::ENTRIES.digest(tasks.root(id).get(), second, &entry_at).unwrap_or(0),
            Fact::Check => {
                let checked = self.hat.check().and_then(|()| self.kernel(|kernel| kernel.check().map_err(|_| "vm")));
                if let Err(what) = checked {
                    crate::say!("the kernel's data are inconsistent: {what}");
                }
                u64::from(checked.is_err())
            }
            Fact::Spaces => tasks.spaces.len() as u64,
            Fact::Usage => {
                let space = tasks.running(id).space;
                let bits = |page: u64| {
                    let at = second.checked_add(page * 4096).filter(|at| *at < USER_END)?;
                    let usage = self.hat.query(space, VirtAddr::new(at))?.usage;
                    Some((1 | u64::from(usage.referenced) << 16 | u64::from(usage.dirty) << 32) << page)
                };
                (0..16).filter_map(bits).sum()
            }
            Fact::FaultsOfKind => self.vm.faults().get(second as usize).copied().unwrap_or(0),
        }
    }

    fn fail(&self, tasks: &mut Tasks, processor: usize, id: TaskId, what: u64, number: u64) -> u64 {
        match Failure::of(what) {
            Some(Failure::Frame) => self.memory.with(Site::Look, |memory| memory.allocator_mut().0.refuse(number)),
            Some(Failure::Heap) => heap::refuse(number),
            Some(Failure::Entry) if number < USER_END && !tasks.others_run(processor) => {
                let Some(at) = arch::ENTRIES.find(tasks.root(id).get(), 1, number, &entry_at) else { return BAD };
                Direct.invert_u64(PhysAddr::new(at), arch::ENTRIES.ignored);
            }
            Some(Failure::Processor | Failure::Entry) | None => return BAD,
        }
        OK
    }

    /// Whether a space has as many regions as it may have, and this call could make one more.
    fn has_many(&self, space: hat::HatSpace, range: VirtRange, number: Number) -> bool {
        let (regions, first, last) = (self.vm.regions(space), range.start().get() >> 12, range.last().get() >> 12);
        let splits = |region: &vm::Region| region.pages.start < first && last + 1 < region.pages.end;
        regions.len() >= REGIONS_MAX && (number != Number::Unmap || regions.iter().any(splits))
    }

    fn map(&self, tasks: &mut Tasks, id: TaskId, arguments: [u64; 6]) -> u64 {
        let [start, bytes, bits, source, inode, page] = arguments;
        let space = tasks.running(id).space;
        let (Some(range), Some(rights)) = (range(start, bytes), rights(bits)) else { return BAD };
        let key = FileKey { device: 1, inode };
        let source = match source {
            SOURCE_ZEROS => Source::Anonymous,
            SOURCE_SHARED => Source::SharedMemory,
            SOURCE_FILE | SOURCE_FILE_SHARED if Disk::has(key, page, bytes / 4096) => {
                Source::File { key, first: page, shared: source == SOURCE_FILE_SHARED }
            }
            _ => return BAD,
        };
        if !tasks.spaces[&space.0].is_paged {
            return BAD;
        }
        if self.has_many(space, range, Number::Map) {
            return MEMORY;
        }
        self.take_back(space, range);
        status(self.kernel(|kernel| kernel.map(space, range, rights, source, 2)))
    }

    /// Unmaps what was mapped on from these pages, before the pages are changed.
    fn take_back(&self, space: hat::HatSpace, range: VirtRange) {
        // The space is there, as its thread runs.
        let _ = self.hat.revoke(space, range, false, &mut |_, _| (), &mut self.below());
    }

    fn change(&self, tasks: &mut Tasks, id: TaskId, number: Number, arguments: [u64; 3]) -> u64 {
        let [start, bytes, bits] = arguments;
        let space = tasks.running(id).space;
        let Some(range) = range(start, bytes) else { return BAD };
        if !tasks.spaces[&space.0].is_paged {
            return BAD;
        }
        if number != Number::Discard && self.has_many(space, range, number) {
            return MEMORY;
        }
        self.take_back(space, range);
        status(self.kernel(|kernel| match number {
            Number::Unmap => kernel.unmap(space, range),
            Number::Discard => kernel.discard(space, range),
            _ => match rights(bits) {
                Some(rights) => kernel.protect(space, range, rights),
                None => Err(Error::NoRegion(range.start())),
            },
        }))
    }

    fn flush(&self, tasks: &mut Tasks, id: TaskId, page: u64, with_own: bool) -> u64 {
        let Some(page) = Flexpage::of(page) else { return BAD };
        let space = tasks.running(id).space;
        // A page that the kernel pages is its region's: what others have of it goes, and it stays.
        let with_own = with_own && !tasks.spaces[&space.0].is_paged;
        let below = &mut self.below();
        let done = match page.rights == Rights::USER {
            true => self.hat.revoke(space, page.range(), with_own, &mut |_, _| (), below),
            false => self.hat.restrict(space, page.range(), page.rights, with_own, below),
        };
        if done.is_ok() { OK } else { BAD }
    }

    fn spawn(&self, tasks: &mut Tasks, id: TaskId, arguments: [u64; 6]) -> [u64; 2] {
        let [pc, stack, one, two, kind, _] = arguments;
        let own = tasks.running(id).space;
        if pc >= USER_END || stack > USER_END || stack % 16 != 0 {
            return [BAD, 0];
        }
        let space = match kind {
            SPACE_SAME => Some(own),
            SPACE_PAGED => self.new_space(tasks, true, None),
            SPACE_EMPTY => self.new_space(tasks, false, Some(id)),
            SPACE_WITHOUT_PAGER => self.new_space(tasks, false, None),
            _ => match tasks.alive(kind.wrapping_sub(SPACE_OF)).map(|task| task.space) {
                Some(space) => Some(space),
                None => return [NO_THREAD, 0],
            },
        };
        let Some(space) = space else { return [MEMORY, 0] };
        let is_loaded = kind != SPACE_PAGED || self.load_program(space).is_ok();
        let stack = if kind == SPACE_PAGED { STACK_END } else { stack };
        let thread = if is_loaded { tasks.add(Context::new(pc, stack, [one, two]), space) } else { None };
        match thread {
            Some(thread) => {
                tasks.make_ready(thread);
                [OK, thread]
            }
            None => {
                if tasks.spaces[&space.0].threads == 0 {
                    self.end_space(tasks, space);
                }
                [MEMORY, 0]
            }
        }
    }

    fn fork(&self, tasks: &mut Tasks, id: TaskId) -> [u64; 2] {
        let space = tasks.running(id).space;
        if !tasks.spaces[&space.0].is_paged {
            return [BAD, 0];
        }
        // Otherwise spaces to which pages were passed on could store to pages that parent and child
        // share.
        self.take_back(space, Flexpage::all().range());
        let Some(child) = self.new_space(tasks, true, None) else { return [MEMORY, 0] };
        let forked = self.kernel(|kernel| kernel.fork(space, child));
        // SAFETY: the thread runs here, and has the lock of all threads.
        let context = unsafe { (*tasks.running(id).registers.place()).clone() };
        let thread = if forked.is_ok() { tasks.add(context, child) } else { None };
        match thread {
            Some(thread) => {
                tasks.running(thread).answer(&[OK, 0]);
                tasks.make_ready(thread);
                [OK, thread]
            }
            None => {
                self.end_space(tasks, child);
                [MEMORY, 0]
            }
        }
    }

    fn kill(&self, tasks: &mut Tasks, id: TaskId, whom: TaskId) -> After {
        let state = tasks.alive(whom).map(|task| task.state);
        match state {
            None => tasks.running(id).answer(&[NO_THREAD]),
            Some(_) if whom == id => {
                self.finish(tasks, id, STOPPED);
                return After::Other;
            }
            Some(State::Running(elsewhere)) => {
                tasks.running(whom).is_killed = true;
                arch::interrupt(elsewhere);
                tasks.running(id).answer(&[OK]);
            }
            Some(State::Ready | State::Sending | State::Receiving(_) | State::Waiting(_) | State::Dead(_)) => {
                tasks.running(id).answer(&[OK]);
                self.finish(tasks, whom, STOPPED);
            }
        }
        After::Same
    }
}
