//! From the first Rust function to threads: memory, the kernel's tables, other processors, and what the
//! command line requests.

use alloc::boxed::Box;

use hat::{
    Hat, Pool,
    locking::{Embedded, Fine, ListLocks, Mutex, Once, Scheme, Site},
};

use crate::{
    arch, judge,
    locks::{Polled, PolledOnce},
    machine::{Machine, Plan, System, Table},
    memory::Layout,
    options, say, shootdown,
};

/// The kernel, after it was made.
static SYSTEM: PolledOnce<Box<dyn System + Send>> = PolledOnce::empty();
/// Set if processors are to be tested and there are no threads.
static JUDGES: PolledOnce<()> = PolledOnce::empty();

/// Starts the first processor.
pub fn first(boot: &arch::Boot) -> ! {
    let line = options::keep(boot.line);
    let mode = options::word(line, "do").unwrap_or("threads");
    // Threads have so little that pages must leave.
    let frames = options::number(line, "frames").or((mode == "threads").then_some(1024));
    let most = options::number(line, "memory").map_or(u64::MAX, |memory| memory.saturating_mul(1 << 20));
    let free = boot.free.start..boot.free.end.min(boot.free.start.saturating_add(most));
    let Some(layout) = Layout::of(&free, frames) else {
        say!("there is too little memory: give the machine 64M at least, and the kernel 64 frames");
        arch::exit(false)
    };
    layout.begin_heap();
    layout.map_kernel();
    arch::name(0);
    arch::begin_interrupts();
    shootdown::join(0);
    let wanted = options::number(line, "processors").unwrap_or(1) as u32;
    if wanted > 1 {
        arch::start_others(wanted as usize);
        let begun = arch::ticks();
        while shootdown::online() < wanted && arch::ticks() - begun < 2 * arch::ticks_per_second() {
            core::hint::spin_loop();
        }
    }
    match mode {
        "threads" => {}
        "judge" => judge(line, &layout),
        #[cfg(feature = "stream")]
        "stream" => {
            say!("digest {}", crate::stream::digest(300));
            arch::exit(true)
        }
        other => {
            say!("the kernel knows no do={other}: choose threads, judge, stream");
            arch::exit(false)
        }
    }
    let scheme = options::word(line, "scheme").unwrap_or("embedded");
    let (found, free) = (shootdown::online(), (layout.frames.end - layout.frames.start) >> 12);
    say!("{}: {found} processors of {wanted}, {free} frames, scheme {scheme}", arch::NAME);
    let plan = Plan { frames: layout.frames.clone(), disk: layout.disk.clone() };
    let lists = ListLocks::Each;
    match scheme {
        #[cfg(feature = "schemes")]
        "global" => threads(line, hat::locking::Global::<_, Polled>::new(Pool::unlimited()), &plan),
        #[cfg(feature = "schemes")]
        "early" => threads(line, hat::locking::Early::<_, Polled>::new(Pool::unlimited()), &plan),
        #[cfg(feature = "schemes")]
        "monitor" => threads(line, Fine::<_, Polled, _>::new(&hat::locking::Monitor, Pool::unlimited(), lists), &plan),
        #[cfg(feature = "schemes")]
        "hashed" => threads(
            line,
            Fine::<_, Polled, _>::new(&hat::locking::Hashed { mutexes: 16 }, Pool::unlimited(), lists),
            &plan,
        ),
        "embedded" => threads(line, Fine::<_, Polled, _>::new(&Embedded, Pool::unlimited(), lists), &plan),
        #[cfg(feature = "schemes")]
        "covering" => {
            threads(line, Fine::<_, Polled, _>::new(&hat::locking::Covering, Pool::unlimited(), lists), &plan)
        }
        _ => {
            say!("no scheme of locks is called {scheme}: choose global, early, monitor, hashed, embedded, covering");
            arch::exit(false)
        }
    }
}

fn threads<S>(line: &'static str, scheme: S, plan: &Plan) -> !
where
    S: Scheme<Table = Table> + Sync + Send + 'static,
    Hat<Table, S>: Sync + Send,
{
    let machine = Machine::new(scheme, plan);
    let number = |key, otherwise| options::number(line, key).unwrap_or(otherwise);
    let run = number("run", 0);
    let second = if run < 3 { number("from", 0) } else { number("seed", 1) & 0xffff_ffff | number("events", 20) << 32 };
    let first = machine.tasks.with(Site::Call, |tasks| machine.start_program(tasks, [run, second]));
    if first.is_none() {
        say!("there is too little memory for a program");
        arch::exit(false)
    }
    SYSTEM.get(|| Box::new(machine)).run(0)
}

/// Tests the processors, and leaves out flushes if that is requested.
fn judge(line: &str, layout: &Layout) -> ! {
    shootdown::omit(match options::word(line, "omit") {
        None => 0,
        Some("here") => 1,
        Some("elsewhere") => 2,
        Some(other) => {
            say!("the judge leaves out no omit={other}: choose here, elsewhere");
            arch::exit(false)
        }
    });
    JUDGES.get(|| ());
    let number = |key, otherwise| options::number(line, key).unwrap_or(otherwise);
    let stream = judge::Stream {
        events: number("events", 400),
        seed: number("seed", 1),
        is_told: number("told", 0) > 0,
        is_late: number("late", 0) > 0,
    };
    match judge::run(&layout.frames, &stream) {
        Ok((changes, accesses)) => {
            say!(
                "judged: {changes} operations and {accesses} accesses of seed {} are as `pagetable` has them",
                stream.seed
            );
            arch::exit(true)
        }
        Err(what) => {
            say!("found: {what}");
            arch::exit(false)
        }
    }
}

/// Starts another processor.
pub fn other(number: usize) -> ! {
    shootdown::enter(number, arch::kernel_root());
    arch::name(number);
    arch::begin_interrupts();
    shootdown::join(number);
    loop {
        if JUDGES.made().is_some() {
            judge::serve(number)
        }
        if let Some(system) = SYSTEM.made() {
            system.run(number)
        }
        core::hint::spin_loop();
        shootdown::poll();
    }
}
