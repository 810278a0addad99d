//! Tests mixes: the accesses of each program are unchanged, and turns have the right length.

use trace::import::Options;
use trace::mix::{Mix, Order, Part, Spec};
use trace::{Batch, Error, Event, Header, Meta, Placed, Source, generate};

use crate::common::{Rows, Stream};

const KIND: addr::Kind = addr::Kind::Load;

/// A source that returns given batches.
struct Given {
    header: Header,
    batches: std::vec::IntoIter<Batch>,
}

impl Source for Given {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        *batch = self.batches.next().unwrap_or_default();
        Ok(!batch.is_empty())
    }
}

/// A program whose addresses identify each access: an address contains the numbers of the program,
/// the space, the thread and the access.
fn program(number: u64, seed: u64) -> Given {
    let mut stream = Stream(seed | 1);
    let (mut batches, mut thread, mut space, mut count) = (Vec::new(), 0u32, 0u32, 0u64);
    for _ in 0..1 + stream.below(5) {
        let mut batch = Batch::default();
        for _ in 0..1 + stream.below(300) {
            match stream.below(20) {
                0 => thread = stream.below(3) as u32,
                1 => {
                    space = stream.below(3) as u32;
                    batch.push_event(thread, Event::Run { cpu: Some(9), space });
                }
                2 => batch.push_event(thread, Event::Brk { addr: count, result: 0 }),
                _ => {}
            }
            let addr = number << 48 | u64::from(space) << 40 | u64::from(thread) << 32 | count;
            batch.push(thread, addr, Meta::new(KIND, 8, stream.below(9) as u32));
            count += 1;
        }
        batches.push(batch);
    }
    batches.push(Batch {
        events: vec![Placed { at: 0, thread, event: Event::ThreadEnd }],
        ..Batch::default()
    });
    Given { header: crate::common::header(), batches: batches.into_iter() }
}

fn mix(spec: &str, programs: Vec<Given>) -> Mix {
    let spec: Spec = spec.parse().unwrap();
    let part = |program: Given| Part::whole("a".to_owned(), Box::new(program));
    Mix::new(spec, programs.into_iter().map(part).collect()).unwrap()
}

#[test]
fn what_each_program_does_stays_as_it_was() {
    for seed in 1..60u64 {
        let mut stream = Stream(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let count = 1 + stream.below(4);
        let cpus = 1 + stream.below(3);
        let (quantum, slice) = (1 + stream.below(2000), 1 + stream.below(700));
        let seeds: Vec<u64> = (0..count).map(|_| stream.below(1 << 40)).collect();
        let programs =
            || (0..count).map(|number| program(number, seeds[number as usize])).collect();
        let spec = format!("quantum={quantum},slice={slice},cpus={cpus},a*{count}");
        let all = Rows::of(&mut mix(&spec, programs()), 0).unwrap();
        let (mut spaces, mut threads) = (vec![], vec![]);
        let mut place = (u32::MAX, 0);
        let mut events = all.events.iter().peekable();
        let mut found: Vec<Rows> = vec![Rows::default(); count as usize];
        for (at, &(thread, addr, meta, _)) in (0u64..).zip(&all.rows) {
            while let Some((_, by, event)) = events.next_if(|(before, ..)| *before <= at) {
                match event {
                    Event::Run { cpu, space } => {
                        let now = (cpu.expect("a mix is a schedule"), *space);
                        assert_ne!(place, now, "{spec}: nothing changes at {at}");
                        place = now;
                    }
                    _ => assert_eq!(by % cpus as u32, place.0, "{spec}: an event's place"),
                }
            }
            let (number, own_space, own_thread) = (addr >> 48, addr >> 40 & 255, addr >> 32 & 255);
            assert_eq!(thread % cpus as u32, place.0, "{spec}: the processor at {at}");
            spaces.push(((number, own_space), place.1));
            threads.push(((number, own_thread), thread));
            found[number as usize].rows.push((own_thread as u32, addr, meta, None));
        }
        // Each number is assigned once, and the programs get the first numbers.
        for pairs in [&mut spaces, &mut threads] {
            pairs.sort_unstable();
            pairs.dedup();
            let mut given: Vec<u32> = pairs.iter().map(|pair| pair.1).collect();
            given.sort_unstable();
            given.dedup();
            assert_eq!(given.len(), pairs.len(), "{spec}");
            for ((number, own), given) in pairs.iter() {
                assert!(*own != 0 || u64::from(*given) == *number, "{spec}");
            }
        }
        for (number, found) in found.iter().enumerate() {
            let mut alone = program(number as u64, seeds[number]);
            let (mut batch, mut rows) = (Batch::default(), Vec::new());
            let mut kept = 0;
            loop {
                let more = alone.next(&mut batch).unwrap();
                kept += batch.events.iter().filter(|placed| !is_run(&placed.event)).count();
                rows.extend(batch.addr.iter().copied().zip(batch.meta.iter().copied()));
                if !more {
                    break;
                }
            }
            let found_rows: Vec<_> = found.rows.iter().map(|row| (row.1, row.2)).collect();
            assert_eq!(found_rows, rows, "{spec}: program {number}");
            if count == 1 {
                let found = all.events.iter().filter(|(.., event)| !is_run(event)).count();
                assert_eq!(found, kept, "{spec}");
            }
        }
    }
}

fn is_run(event: &Event) -> bool {
    matches!(event, Event::Run { .. })
}

/// The positions at which a mix of generators switches, each with the processor and the space; and
/// the number of switches at the end of a quantum.
fn places(spec: &str) -> (Vec<(u64, u32, u32)>, u64) {
    let mut mix = Mix::open(spec, &Options::default()).unwrap();
    let all = Rows::of(&mut mix, 0).unwrap();
    let runs = all.events.iter().filter_map(|(at, _, event)| match event {
        Event::Run { cpu, space } => Some((*at, (*cpu)?, *space)),
        _ => None,
    });
    (runs.collect(), mix.switches().unwrap().by_cause["quantum"])
}

#[test]
fn a_turn_is_a_quantum_long() {
    let a = "[generate:uniform,accesses=1000,instructions=10]";
    let b = "[generate:uniform,accesses=250,instructions=10]";
    let (runs, quanta) = places(&format!("quantum=1k,{a},{b}"));
    // Each turn has 100 accesses, until the second program ends in its third turn.
    let turns = [(100, 0, 1), (200, 0, 0), (300, 0, 1), (400, 0, 0), (500, 0, 1), (550, 0, 0)];
    // Before the first turn, the events of program 0 are at its place.
    assert_eq!((runs[0], &runs[1..]), ((0, 0, 0), &turns[..]));
    assert_eq!(quanta, 5);
    // The processors run in turn, one slice each, and no program waits for another one.
    let (runs, quanta) = places(&format!("quantum=1k,slice=2k,cpus=2,{a},{b}"));
    assert_eq!(runs[1..], [(200, 1, 1), (400, 0, 0), (600, 1, 1), (650, 0, 0)]);
    assert_eq!(quanta, 0);
    // Three programs run on two processors, and the third shares a processor with the first.
    let (runs, quanta) = places(&format!("quantum=1k,slice=500,cpus=2,{a},{b},{b}"));
    assert_eq!(runs[1..5], [(50, 1, 1), (100, 0, 0), (150, 1, 1), (200, 0, 2)]);
    assert_eq!(quanta, 5);
}

/// A program whose last access is also the last access of its quantum has ended. It gets no further
/// turn without accesses.
#[test]
fn a_program_that_ends_with_its_quantum_gets_no_empty_turn() {
    for accesses in [100, 300, 70_000] {
        let one = format!("[generate:uniform,accesses={accesses},instructions=10]");
        let mut mix = Mix::open(&format!("quantum=1k,{one}*2"), &Options::default()).unwrap();
        let all = Rows::of(&mut mix, 0).unwrap();
        assert_eq!(all.rows.len() as u64, 2 * accesses);
        let turns = accesses / 100;
        let switches = mix.switches().unwrap().by_cause;
        assert_eq!((switches["quantum"], switches["ended"]), (2 * (turns - 1), 1), "{accesses}");
    }
}

/// A window of a mix counts only its own switches, wherever batches end.
#[test]
fn a_part_has_the_switches_among_what_counts() {
    let one = "[generate:uniform,accesses=90k,instructions=10]";
    let open = || trace::open(&format!("mix:quantum=7k,{one}*2"), &Options::default()).unwrap();
    // A switch precedes each access whose index is a multiple of 700.
    for (skip, warmup, accesses, quanta) in [
        (0, 0, 30_000, 42),
        (0, 0, 700, 0),
        (0, 0, 701, 1),
        (650, 50, 1, 0),
        (650, 49, 2, 1),
        (100_000, 1_000, 7_000, 10),
    ] {
        let bounds = trace::Bounds { skip, warmup, accesses_max: Some(accesses) };
        let mut part = trace::Window::new(open(), bounds);
        let mut batch = Batch::default();
        while part.next(&mut batch).unwrap() {}
        let switches = part.switches().unwrap();
        assert_eq!(switches.by_cause["quantum"], quanta, "{bounds:?}");
        assert_eq!((switches.quantum_instructions, switches.unexplained), (Some(7000), 0));
    }
}

#[test]
fn a_description_says_all_again() {
    let spec: Spec =
        "cpus=2,a.pwt*3,[generate:uniform,size=4M]*2,order=turns,b.pwt".parse().unwrap();
    let traces = [("a.pwt", 3), ("generate:uniform,size=4M", 2), ("b.pwt", 1)];
    assert_eq!(spec.traces, traces.map(|(name, times)| (name.to_owned(), times)));
    assert_eq!((spec.order, spec.cpus, spec.quantum), (Order::Turns, 2, 30_000_000));
    assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
    for (wrong, says) in [
        ("", "empty part"),
        ("cpus=2", "no trace is named"),
        ("cpus=0,a", "from 1 to 1024"),
        ("quantum=x,a", "write a number"),
        ("colour=red,a", "`colour=red` is neither a file nor a setting"),
        ("order=chaos,a", "choose one of blocking, turns, stamps"),
        ("pipe=x,a", "write bytes with a unit"),
        ("a*0", "write a number of copies"),
        ("a*99999", "write a number of copies"),
        ("a*4000,b*4000", "8000 programs"),
        ("[a", "a [ without its ]"),
        ("a]", "a ] without its ["),
        ("mix:a", "cannot contain a mix"),
        ("-", "a pipe cannot be part of a mix"),
    ] {
        let error = wrong.parse::<Spec>().unwrap_err().to_string();
        assert!(error.starts_with("mix:") && error.contains(says), "{wrong}: {error}");
    }
    let missing = Mix::open("none.pwt", &Options::default()).err().unwrap().to_string();
    assert!(missing.contains("none.pwt"), "{missing}");
}

#[test]
fn programs_of_different_processors_do_not_mix() {
    let other = |arch| {
        let mut given = program(0, 1);
        given.header.arch = arch;
        given
    };
    let spec: Spec = "a,b".parse().unwrap();
    let part = |name: &str, arch| Part::whole(name.to_owned(), Box::new(other(arch)));
    let parts = vec![part("a", trace::Arch::X86_64), part("b", trace::Arch::Aarch64)];
    let error = Mix::new(spec, parts).err().unwrap().to_string();
    assert_eq!(
        error,
        "mix: a was recorded on x86-64, but b on aarch64; a machine runs programs of one instruction \
         set: leave one of them out"
    );
}

#[test]
fn a_mix_has_a_digest_and_a_length() {
    let mix = |spec: &str| Mix::open(spec, &Options::default()).unwrap();
    let a = "[generate:uniform,accesses=1000]";
    let digests = [format!("{a}*2"), format!("{a}*3"), format!("cpus=2,{a}*2")]
        .map(|spec| mix(&spec).digest().unwrap());
    assert!(digests[0] != digests[1] && digests[0] != digests[2]);
    assert_eq!(mix(&format!("{a}*3")).total(), Some(3000));
    assert_eq!(generate::parse("uniform,accesses=1000").unwrap().total(), Some(1000));
}
