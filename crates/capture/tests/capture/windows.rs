//! Tests windows that begin and end at a function or a marker, with several processes and on
//! several kinds of processors.

use std::path::Path;

use addr::Kind;
use capture::{Live, Sign};

use crate::common::{In, Whole, compile, directory, options, record};

in_both!(
    a_forked_child_comes_to_a_symbol,
    each_process_has_its_own_instructions,
    whatever_was_started_ends_with_the_window,
);

const SERVER: &str = r#"
    #include <stdio.h>
    #include <string.h>
    #include <sys/prctl.h>
    #include <sys/wait.h>
    #include <unistd.h>
    enum { N = 1000 };
    static volatile long before[N], during[2 * N], after[N];
    __attribute__((noinline)) void work(int which) { for (int i = 0; i < N; i++) during[which * N + i] = i; }
    __attribute__((noinline)) void done(void) { for (int i = 0; i < N; i++) after[i] = i; }
    int main(int argc, char **argv) {
        FILE *f = fopen(argv[1], "w");
        fprintf(f, "%lx %lx %lx", (long)before, (long)during, (long)after);
        fclose(f);
        for (int i = 0; i < N; i++) before[i] = i;
        for (int which = 0; which < 2; which++) {
            if (fork() == 0) { work(which); _exit(0); }
            wait(0);
        }
        done();
        if (argc > 2) {
            if (fork() == 0) for (;;) pause();
            for (;;) pause();
        }
        return 0;
    }"#;

/// The numbers of stores to the arrays `before`, `during` and `after`.
fn stores(whole: &Whole, said: &Path) -> [usize; 3] {
    let places = crate::common::numbers(said);
    let count = |at: usize, words: u64| whole.addrs(Kind::Store, places[at], 8 * words).len();
    [count(0, 1000), count(1, 2000), count(2, 1000)]
}

fn symbol(name: &str) -> Option<Sign> {
    Some(Sign::Symbol(name.to_owned()))
}

/// The function at which the window begins is called only in children, which inherit it from their
/// parent.
fn a_forked_child_comes_to_a_symbol((engine, options): In) {
    let directory = directory(&format!("windows-{engine}"));
    let program = compile(&directory, "server", "gcc", SERVER);
    let said = directory.join("said");
    let mut options = options(&program, &[said.to_str().unwrap()]);
    (options.from, options.to) = (symbol("work"), symbol("done"));
    let outcome = record(&directory, &options);
    assert_eq!(outcome.status, 0);
    let whole = Whole::read(&outcome.summary.path);
    assert_eq!(stores(&whole, &said), [0, 2000, 0]);
    let mut live = Live::start(&options).unwrap();
    let seen = Whole::of(&mut live);
    assert_eq!((live.finish(), stores(&seen, &said)), (0, [0, 2000, 0]));
    // The window begins at the function `done` and has no last function.
    (options.from, options.to) = (symbol("done"), None);
    let outcome = record(&directory, &options);
    assert_eq!(stores(&Whole::read(&outcome.summary.path), &said), [0, 0, 1000]);
}

/// The limit on instructions holds for each process separately.
fn each_process_has_its_own_instructions((engine, options): In) {
    let directory = directory(&format!("instructions-{engine}"));
    let program = compile(&directory, "server", "gcc", SERVER);
    let said = directory.join("said");
    let mut options = options(&program, &[said.to_str().unwrap()]);
    options.from = symbol("work");
    options.instructions_max = Some(2000);
    let outcome = record(&directory, &options);
    let counts: Vec<u64> = outcome.processes.iter().map(|process| process.instructions).collect();
    // The parent also runs 2000 instructions after the first child has reached the function.
    assert_eq!(counts.len(), 3);
    for (number, count) in counts.iter().enumerate() {
        // The instructions after the last access are not counted.
        assert!((1990..2100).contains(count), "process {number}: {counts:?}");
    }
}

/// When the window has ended, no process continues, including processes that the program started.
fn whatever_was_started_ends_with_the_window((engine, options): In) {
    let directory = directory(&format!("ended-{engine}"));
    let program = compile(&directory, "server", "gcc", SERVER);
    let said = directory.join("said");
    let mut options = options(&program, &[said.to_str().unwrap(), "stay"]);
    (options.to, options.ends) = (symbol("pause"), true);
    let outcome = record(&directory, &options);
    assert_eq!(outcome.status, 0, "it was killed as asked");
    assert_eq!(stores(&Whole::read(&outcome.summary.path), &said), [1000, 2000, 1000]);
    let mut live = Live::start(&options).unwrap();
    let seen = Whole::of(&mut live);
    assert_eq!((live.finish(), stores(&seen, &said)), (0, [1000, 2000, 1000]));
}

/// Markers and symbols work on other processors: a marker is the same system call everywhere, and
/// symbols are found in 32-bit and in 64-bit ELF files.
#[test]
fn other_processors_have_signs_too() {
    let source = SERVER.replace(
        "done();",
        "prctl(0x50574c4b, 1, 7, 0, 0); done(); prctl(0x50574c4b, 1, 8, 0, 0);",
    );
    for (compiler, word) in
        [("i686-linux-gnu-gcc", 4), ("aarch64-linux-gnu-gcc", 8), ("riscv64-linux-gnu-gcc", 8)]
    {
        let directory = directory(&format!("windows-{compiler}"));
        let program = compile(&directory, "server", compiler, &source);
        let said = directory.join("said");
        let mut options = options(&program, &[said.to_str().unwrap()]);
        let places = |whole: &Whole| {
            let places = crate::common::numbers(&said);
            [0, 2, 1].map(|at| {
                let words = if at == 1 { 2000 } else { 1000 };
                whole.addrs(Kind::Store, places[at], word * words).len()
            })
        };
        (options.from, options.to) = (symbol("work"), symbol("done"));
        let path = record(&directory, &options).summary.path;
        assert_eq!(places(&Whole::read(&path)), [0, 0, 2000], "{compiler}");
        (options.from, options.to) = (Some(Sign::Marker(Some(7))), Some(Sign::Marker(None)));
        let path = record(&directory, &options).summary.path;
        assert_eq!(places(&Whole::read(&path)), [0, 1000, 0], "{compiler}");
    }
}
