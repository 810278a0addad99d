//! Tests windows of recordings with the engine: accesses outside of the windows are not recorded,
//! but counted exactly in the program itself.

use std::path::{Path, PathBuf};

use capture::{Options, Outcome, Sign};
use trace::Event;

use crate::common::{Row, Whole, compile, directory, native, numbers, record};

/// Makes function calls, indirect calls, string instructions of several kinds, bit operations on
/// memory, signals, and faults.
const BUSY: &str = r#"
    #define _GNU_SOURCE
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/prctl.h>
    #include <ucontext.h>
    static volatile long cells[4096]; static char from[70000], to[70000]; static volatile int faults, signals;
    static long add(long x) { return x + 3; } static long mix(long x) { return x * 5 ^ x >> 3; }
    static long (*volatile ways[2])(long) = { add, mix };
    static void on_fault(int s, siginfo_t *i, void *c) { ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP] += 3; faults++; }
    static void on_signal(int s) { signals++; }
    static void copy(void *to, const void *from, long n) { __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) :: "memory"); }
    static long find(const char *at, long n) { char z = 0; __asm__ volatile("repne scasb" : "+D"(at), "+c"(n) : "a"(z) : "memory", "cc"); return n; }
    __attribute__((noinline)) long work(int round) {
        long x = round;
        for (int i = 0; i < 3000; i++) { cells[(x + i) & 4095] = x; x = ways[i & 1](x) & 0xffff; }
        copy(to, from, sizeof to - round);
        x += find(from, 50000);
        for (long i = 0; i < 200; i++) { long bit = (x + i) & 262143; __asm__ volatile("btcq %1, %0" : "+m"(*cells) : "r"(bit) : "memory", "cc"); }
        if (round % 3 == 0) { register char *hole __asm__("rbx") = 0; __asm__ volatile("movb %%bl, (%0); .byte 0x90" :: "r"(hole + 1) : "memory"); }
        if (round % 4 == 0) raise(SIGUSR1);
        return x;
    }
    __attribute__((noinline)) void last(void) { cells[7] = 7; }
    int main(int argc, char **argv) {
        struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = on_fault; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0);
        signal(SIGUSR1, on_signal); memset(from, 1, sizeof from);
        FILE *f = fopen(argv[1], "w"); fprintf(f, "%lx %lx", (long)work, (long)last); fclose(f);
        long x = 0; for (int round = 0; round < 12; round++) x += work(round);
        prctl(0x50574c4b, 1, 9, 0, 0);
        last();
        return faults == 4 && signals == 3 ? 42 : 1;
    }"#;

fn busy(name: &str) -> (PathBuf, PathBuf, Options) {
    let directory = directory(name);
    let program = compile(&directory, "busy", "gcc", BUSY);
    let said = directory.join("said");
    let options = native(&program, &[said.to_str().unwrap()]);
    (directory, said, options)
}

fn recorded(directory: &Path, options: &Options) -> (Outcome, Whole) {
    let outcome = record(directory, options);
    assert_eq!(outcome.status, 42);
    assert!(outcome.lost.is_empty(), "{:?}", outcome.lost);
    let whole = Whole::read(&outcome.summary.path);
    (outcome, whole)
}

/// The numbers of accesses and of instructions that were left out.
fn left_out(whole: &Whole) -> (u64, u64) {
    let gaps = whole.events.iter().filter_map(|(_, _, event)| match event {
        Event::Gap { accesses: accesses @ 1.., instructions } => Some((*accesses, *instructions)),
        _ => None,
    });
    gaps.fold((0, 0), |sum, gap| (sum.0 + gap.0, sum.1 + gap.1))
}

fn same(ours: &[Row], theirs: &[Row], what: &str) {
    let plain = |row: &Row| (row.addr, row.kind());
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let differs = ours.iter().zip(theirs).position(|(a, b)| plain(a) != plain(b));
    assert_eq!(differs, None, "{what}");
}

/// For each number of skipped accesses, the recorded rows are equal to the rest of the whole
/// recording.
#[test]
fn what_is_skipped_is_counted_exactly() {
    let (directory, _, mut options) = busy("left_out_skip");
    let (outcome, whole) = recorded(&directory, &options);
    let all = whole.rows.len();
    let instructions = outcome.processes[0].instructions;
    for skip in [1, 77, 5_000, 100_000, 123_457, 250_001, all / 2, all - 100] {
        options.skip_accesses = skip as u64;
        let (outcome, part) = recorded(&directory, &options);
        same(&part.rows, &whole.rows[skip..], &format!("skip {skip}"));
        let gap = left_out(&part);
        assert_eq!(gap.0, skip as u64);
        // Instructions around a fault are counted as whole instructions.
        let sum = gap.1 + outcome.processes[0].instructions;
        assert!(sum.abs_diff(instructions) <= 4, "skip {skip}: {sum} {instructions}");
    }
}

/// A window that begins at a function or a marker is also equal to a part of the whole recording.
#[test]
fn a_window_from_a_sign_is_a_part_of_the_whole() {
    let (directory, said, mut options) = busy("left_out_sign");
    let (_, whole) = recorded(&directory, &options);
    let work = numbers(&said)[0];
    let at = whole.rows.iter().position(|row| row.addr == work).unwrap();
    options.from = Some(Sign::Symbol("work".to_owned()));
    let (_, part) = recorded(&directory, &options);
    same(&part.rows, &whole.rows[at..], "from work");
    assert_eq!(left_out(&part).0, at as u64);
    options.skip_accesses = 54_321;
    options.accesses_max = Some(200_000);
    let (_, part) = recorded(&directory, &options);
    same(&part.rows, &whole.rows[at + 54_321..][..200_000], "behind work");
    let marker = whole.events.iter().find(|(.., event)| matches!(event, Event::Marker { .. }));
    let at = marker.unwrap().0;
    options.from = Some(Sign::Marker(Some(9)));
    (options.skip_accesses, options.accesses_max) = (0, None);
    let (_, part) = recorded(&directory, &options);
    same(&part.rows, &whole.rows[at..], "from the marker");
    options.from = Some(Sign::Marker(Some(8)));
    let writer = trace::Options { overwrite: true, ..trace::Options::default() };
    let output = directory.join("none.pwt");
    let never = capture::record(&options, &output, &writer, &mut |_| {}).unwrap_err();
    assert!(never.to_string().contains("marker 8"), "{never}");
}

/// Each window of a sample is equal to the part of the whole recording at its position.
#[test]
fn a_sample_consists_of_windows_at_their_places() {
    let (directory, _, mut options) = busy("left_out_sample");
    let (_, whole) = recorded(&directory, &options);
    for (skip, window, period) in
        [(0, 1_000, 7_000), (0, 20_000, 100_000), (12_345, 30_000, 60_001), (0, 200_000, 450_000)]
    {
        options.skip_accesses = skip as u64;
        options.sample = Some([window as u64, period as u64]);
        let (_, part) = recorded(&directory, &options);
        let mut expected = Vec::new();
        for begin in (skip..whole.rows.len()).step_by(period) {
            expected.extend(whole.rows[begin..].iter().take(window).copied());
        }
        same(&part.rows, &expected, &format!("{window} of {period} behind {skip}"));
        assert_eq!(left_out(&part).0 as usize + part.rows.len(), whole.rows.len());
    }
    options.skip_accesses = 0;
    options.sample = Some([20_000, 100_000]);
    options.accesses_max = Some(50_000);
    let (_, part) = recorded(&directory, &options);
    let expected: Vec<Row> = (0..3)
        .flat_map(|at| whole.rows[at * 100_000..][..20_000].iter().copied())
        .take(50_000)
        .collect();
    same(&part.rows, &expected, "a limited sample");
}
