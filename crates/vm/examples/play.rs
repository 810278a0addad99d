//! Runs a stream of memory calls and accesses on the memory manager with the settings of `linux`,
//! with contents of pages, and prints the outcome of each call and access. `tests/kernel/play.c`
//! does this on a real kernel.
//!
//! ```text
//!   play ALWAYS MADVISE < STREAM > RESULTS      masks of the orders that are allowed
//! ```
//!
//! The lines of the stream are those of `tests/kernel/play.c`, each with one more number at the
//! end: the result that the real kernel returned. Here calls have these results, as in a trace: a
//! call that the kernel refused does nothing, unless the kernel does a part of such a call. The
//! output has the format of `tests/kernel/play.c`.

use std::{collections::BTreeMap, io::Read, ops::Range, process::ExitCode};

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::{Flush, Mount, Mounted, SparseMemory, X86_64};
use physmem::{Contiguous, FrameId, PageBlocks, Physmem};
use vm::{
    Error, FileKey, Io, Kernel, Khugepaged, Marks, Module, Parts, Physical, Platform, Refused,
    Settings, Source, Store, Thp, Vm,
};

const BASE: PageSize = PageSize::SIZE_4K;
const LARGE: PageSize = PageSize::SIZE_2M;
/// The base pages of memory. They have 4 GiB, so that a block is always free.
const PAGES: u64 = 1 << 20;
/// log2 of the number of base pages of a large page, which is also the largest block of a page
/// block.
const ORDER: u32 = 9;
const FILE: FileKey = FileKey { device: 1, inode: 1 };
/// Base pages of the file, which are in the page cache.
const FILE_PAGES: u64 = 2048;

// Errors and advice, as Linux numbers them.
const ENOMEM: i64 = -12;
const EINVAL: i64 = -22;
const DONTNEED: u64 = 4;
const HUGEPAGE: u64 = 14;
const NOHUGEPAGE: u64 = 15;
const POPULATE_READ: u64 = 22;
const POPULATE_WRITE: u64 = 23;
const COLLAPSE: u64 = 25;

/// The contents of frames, and of pages of the file.
#[derive(Default)]
struct Board {
    contents: BTreeMap<PhysAddr, u64>,
    disk: BTreeMap<Store, u64>,
}

impl Platform for Board {
    // There is no TLB: each access walks.
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn zero(&mut self, frame: PhysAddr, bytes: u64) {
        let end = PhysAddr::new(frame.get() + bytes);
        let cleared: Vec<PhysAddr> = self.contents.range(frame..end).map(|(&at, _)| at).collect();
        cleared.iter().for_each(|at| _ = self.contents.remove(at));
    }

    fn copy(&mut self, from: PhysAddr, to: PhysAddr, bytes: u64) {
        for into in (0..bytes).step_by(BASE.bytes() as usize) {
            let value = self.value(PhysAddr::new(from.get() + into));
            self.contents.insert(PhysAddr::new(to.get() + into), value);
        }
    }

    fn transfer(&mut self, io: Io) {
        if io.write {
            self.disk.insert(io.store, self.value(io.frame));
        } else {
            let value = self.disk.get(&io.store).copied().unwrap_or_default();
            self.contents.insert(io.frame, value);
        }
    }
}

impl Board {
    fn value(&self, frame: PhysAddr) -> u64 {
        self.contents.get(&frame).copied().unwrap_or_default()
    }
}

type Allocator = Contiguous<PageBlocks>;

struct World {
    vm: Vm,
    hat: Hat,
    memory: Physical<Allocator>,
    board: Board,
    spaces: BTreeMap<u64, HatSpace>,
}

impl World {
    fn new(thp: Thp) -> World {
        let memory = Physmem::new(PhysAddr::new(0), PAGES * BASE.bytes(), BASE, |frames| {
            Contiguous::new(PageBlocks::new(frames, ORDER, ORDER + 1), ORDER + 1)
        });
        let settings = Settings {
            sizes: &[BASE, LARGE],
            marks: Marks::of(PAGES, BASE),
            thp: Some(thp),
            ..Settings::default()
        };
        let table = Mount::tree(X86_64::<4>::new(), SparseMemory::new(PAGES * BASE.bytes()));
        let mut world = World {
            vm: Vm::new(settings, PAGES).expect("the settings are right"),
            hat: Hat::new(Box::new(table)),
            memory: Physical::new(memory.expect("memory has frames")),
            board: Board::default(),
            spaces: BTreeMap::new(),
        };
        let first = world.kernel().create().expect("memory is free");
        world.spaces.insert(0, first);
        // The file is in the page cache, as if it had been written before the stream began.
        let each = &mut |board: &mut Board, frame, index| {
            board.contents.insert(frame, 1 << 60 | index);
        };
        let bytes = FILE_PAGES * BASE.bytes();
        world.kernel().transfer_file(FILE, 0, bytes, true, each).expect("memory is free");
        world
    }

    fn kernel(&mut self) -> Kernel<'_, Parts<dyn Mounted, Allocator, Board>> {
        let World { vm, hat, memory, board, .. } = self;
        Kernel::new(vm, hat, memory, board)
    }

    /// Accesses the first bytes of a page. Returns what a load reads, or why the access is refused.
    fn touch(&mut self, space: HatSpace, page: u64, stored: Option<u64>) -> Result<u64, Error> {
        let addr = VirtAddr::new(page << BASE.shift());
        let kind = if stored.is_some() { Kind::Store } else { Kind::Load };
        let inner = self.hat.space(space).expect("the process has not ended");
        let mut faults = 0;
        let found = loop {
            if let Ok(found) = self.hat.table_mut().walk(inner, addr, kind, &mut Vec::new()) {
                break found.apply(addr).align_down(BASE);
            }
            assert!(faults < 2, "{addr} faults again and again");
            faults += 1;
            self.kernel().fault(space, addr, kind)?;
        };
        match stored {
            Some(value) => {
                self.board.contents.insert(found, value);
                Ok(0)
            }
            None => Ok(self.board.value(found)),
        }
    }

    /// For each process, lists its regions (v), the regions without rights (n), and the runs of
    /// pages that are mapped in hardware.
    fn check(&mut self) -> String {
        if let Err(wrong) = self.kernel().check() {
            panic!("{wrong}");
        }
        let mut text = String::new();
        for (number, space) in &self.spaces {
            text += &format!(" {number}");
            for region in self.vm.regions(*space) {
                let Range { start, end } = region.pages;
                text += &format!(" {start}+{}v", end - start);
                if region.rights == Rights::NONE {
                    text += &format!(" {start}+{}n", end - start);
                }
            }
            let mut runs: Vec<(u64, u64, char)> = Vec::new();
            self.hat.visit(*space, VirtRange::ALL, &mut |mapping| {
                let of = mapping.translation;
                let is_zero =
                    self.vm.is_zero_frame(FrameId((of.frame.get() >> BASE.shift()) as u32));
                let letter = match (of.page.size() == LARGE, is_zero) {
                    (false, false) => 'p',
                    (false, true) => 'z',
                    (true, false) => 'L',
                    (true, true) => 'Z',
                };
                let first = of.page.start().get() >> BASE.shift();
                let count = of.page.size().count_of(BASE);
                match runs.last_mut() {
                    Some((start, all, last)) if *start + *all == first && *last == letter => {
                        *all += count
                    }
                    _ => runs.push((first, count, letter)),
                }
            });
            runs.iter().for_each(|(start, all, letter)| text += &format!(" {start}+{all}{letter}"));
        }
        text
    }

    /// Runs a line of the stream. Returns the line of results.
    fn line(&mut self, line: &str) -> Result<String, Error> {
        let mut words = line.split_ascii_whitespace();
        let what = words.next().unwrap_or_default();
        if what == "check" {
            return Ok(self.check());
        }
        let of: Vec<i64> = words.map(|word| word.parse().expect("numbers")).collect();
        let (&result, of) = of.split_last().expect("numbers");
        let of: Vec<u64> = of.iter().map(|&number| number as u64).collect();
        let space = self.spaces[&of[0]];
        let range = |first: u64, pages: u64| {
            VirtRange::new(VirtAddr::new(first << BASE.shift()), pages << BASE.shift()).ok()
        };
        let done = Ok(result.to_string());
        match what {
            "load" => return self.touch(space, of[1], None).map(|value| value.to_string()),
            "store" => return self.touch(space, of[1], Some(of[2])).map(|value| value.to_string()),
            "exit" => {
                self.spaces.remove(&of[0]);
                self.kernel().exit(space)?;
                return done;
            }
            "fork" if result == 0 => {
                let child = self.kernel().create()?;
                self.kernel().fork(space, child)?;
                self.spaces.insert(of[1], child);
                return done;
            }
            _ => {}
        }
        let Some(range) = range(of[1], of[2]) else { return done };
        let advice = if what == "advise" { of[3] } else { 0 };
        // The range that a failed call had processed before it failed.
        let begun = match (result, what) {
            (0, _) => Some(range),
            (ENOMEM, "protect" | "lock" | "unlock") => self.vm.before_hole(space, range),
            (EINVAL, "advise") if advice == DONTNEED => self.vm.before_wired(space, range),
            (_, "advise") if matches!(advice, COLLAPSE | POPULATE_READ | POPULATE_WRITE) => {
                Some(range)
            }
            (ENOMEM, "advise") => Some(range),
            _ => None,
        };
        let Some(range) = begun else { return done };
        let mut kernel = self.kernel();
        match what {
            // The flag is MLOCK_ONFAULT.
            "lock" if of[3] == 1 => kernel.lock_on_fault(space, range)?,
            "lock" if result != 0 && range.last().get() >> BASE.shift() < of[1] + of[2] - 1 => {
                kernel.lock_later(space, range)?;
            }
            // Not all pages can be brought in; those before the first page that cannot are in
            // memory.
            "lock" if result != 0 => match kernel.lock(space, range) {
                Ok(()) | Err(Error::Denied { .. }) => {}
                Err(error) => return Err(error),
            },
            "map" => {
                let source = match of[4] {
                    0 => Source::Anonymous,
                    1 => Source::SharedMemory,
                    kind => Source::File { key: FILE, first: of[5], shared: kind == 3 },
                };
                kernel.map(space, range, rights(of[3]), source, 0)?;
            }
            "unmap" => kernel.unmap(space, range)?,
            "protect" => kernel.protect(space, range, rights(of[3]))?,
            "move" => {
                let to = if of[5] & 2 != 0 { of[3] } else { of[1] };
                let (to, bytes) = (VirtAddr::new(to << BASE.shift()), of[4] << BASE.shift());
                kernel.move_pages(space, range, to, bytes)?;
            }
            "lock" => kernel.lock(space, range)?,
            "unlock" => kernel.unlock(space, range)?,
            "advise" => match of[3] {
                DONTNEED => kernel.discard(space, range)?,
                HUGEPAGE | NOHUGEPAGE => {
                    let size = if of[3] == HUGEPAGE { LARGE } else { BASE };
                    let module = Module { page_size: Some(size), ..Module::default() };
                    kernel.attach(space, range, module)?;
                }
                COLLAPSE => {
                    let refused = if result == EINVAL { Refused::Known } else { Refused::No };
                    kernel.collapse(space, range, refused)?;
                }
                POPULATE_READ => kernel.prefault(space, range, Some(Kind::Load))?,
                POPULATE_WRITE => kernel.prefault(space, range, Some(Kind::Store))?,
                advice => panic!("advice {advice} is not modelled"),
            },
            _ => panic!("no operation: {line}"),
        }
        done
    }
}

fn rights(prot: u64) -> Rights {
    Rights::from_bits((prot & 7) as u8)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut stream = String::new();
    let read = std::io::stdin().read_to_string(&mut stream);
    let (Ok(_), [always, madvise]) = (read, arguments.as_slice()) else {
        eprintln!("play ALWAYS MADVISE < STREAM > RESULTS: masks of orders");
        return ExitCode::FAILURE;
    };
    let mask = |text: &str| text.parse().expect("a mask of orders");
    let thp = Thp::new(mask(always), mask(madvise), Khugepaged::of(ORDER));
    let mut world = World::new(thp);
    for line in stream.lines() {
        match world.line(line) {
            Ok(result) => println!("{result}"),
            Err(Error::NoRegion(_)) => println!("none"),
            Err(Error::Denied { .. }) => println!("denied"),
            Err(error) => println!("{error}"),
        }
    }
    ExitCode::SUCCESS
}
