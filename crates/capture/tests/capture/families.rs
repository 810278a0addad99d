//! Tests native recordings of several processes: forks, executed programs, and the parts that are
//! missing from a recording.

use addr::Kind;
use trace::Event;

use crate::alone::{compile_alone, essence_of};
use crate::common::{Whole, compile, directory, native, numbers, options, record};

/// The test knows the stores, the process ids and the parents of all processes.
#[test]
fn children_are_followed_natively() {
    let directory = directory("native_family");
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static volatile long area[3000];
        static void stores(long which) { for (int i = 0; i < 1000; i++) area[which * 1000 + i] = i; }
        int main(int argc, char **argv) {
            if (argc > 2) { stores(2); return 4; }
            FILE *f = fopen(argv[1], "w");
            fprintf(f, "%lx", (long)area);
            fclose(f);
            stores(0);
            int status = 0;
            if (fork() == 0) { stores(1); _exit(5); }
            wait(&status);
            if (WEXITSTATUS(status) != 5) return 1;
            if (vfork() == 0) { execl(argv[0], "again", argv[1], "more", (char *)0); _exit(6); }
            wait(&status);
            if (WEXITSTATUS(status) != 4) return 2;
            if (vfork() == 0) { execl("/nowhere/at/all", "x", (char *)0); _exit(7); }
            wait(&status);
            return WEXITSTATUS(status) == 7 ? 0 : 3;
        }"#;
    let program = compile(&directory, "family", "gcc", source);
    let said = directory.join("said");
    let outcome = record(&directory, &native(&program, &[said.to_str().unwrap()]));
    assert_eq!(outcome.status, 0);
    assert!(outcome.lost.is_empty() && outcome.notes.is_empty(), "{outcome:?}");
    let start = numbers(&said)[0];
    let path = &outcome.summary.path;
    let processes: Vec<&trace::Process> =
        outcome.processes.iter().map(|recorded| &recorded.process).collect();
    assert_eq!(processes.len(), 4, "{processes:?}");
    let stored: Vec<Vec<u64>> =
        (0..4).map(|it| Whole::process(path, it).addrs(Kind::Store, start, 24_000)).collect();
    let stores = |which: u64| (0..1000).map(|i| start + 8 * (which * 1000 + i)).collect();
    let expected: Vec<Vec<u64>> = vec![stores(0), stores(1), stores(2), Vec::new()];
    assert_eq!(stored, expected, "{processes:?}");
    assert_eq!(processes[2].programs.len(), 2);
    assert_eq!(&processes[2].programs[1].command[2..], ["more"]);
    let shares: Vec<bool> = processes.iter().map(|process| process.shares_space).collect();
    assert_eq!(shares, [false, false, true, true], "vfork's child runs in its parent's space");
    let again = Whole::process(path, 2);
    let is_execve = |event: &Event| matches!(event, Event::Execve { result: 0, .. });
    let at = again.events.iter().position(|(_, _, event)| is_execve(event)).unwrap();
    for events in [&again.events[..at], &again.events[at..]] {
        let is_mapping = |event: &Event| matches!(event, Event::Mapping { .. });
        let mappings = events.iter().filter(|(_, _, event)| is_mapping(event)).count();
        assert!((4..40).contains(&mappings), "{mappings}");
    }
    let failed = Whole::process(path, 3).events.iter().any(|(_, _, event)| {
        *event == Event::Execve { path: "/nowhere/at/all".to_owned(), result: -2 }
    });
    assert!(failed);
    let parent = Whole::process(path, 0);
    for child in &processes[1..] {
        let forks = |event: &Event| matches!(event, Event::Fork { result, .. } if *result == i64::from(child.pid));
        let fork = parent.events.iter().find(|(_, _, event)| forks(event)).unwrap();
        assert_eq!((child.parent, child.parent_accesses), (Some(0), Some(fork.0 as u64)));
    }
    let together = Whole::read(path);
    let order = together.addrs(Kind::Store, start, 24_000);
    assert_eq!(order, expected.concat(), "each waited for the one before");
}

/// Freestanding programs with several processes: the instructions and data accesses of each process
/// are equal in the recordings of the engine and of QEMU.
#[test]
fn families_are_equal_in_both_engines() {
    let directory = directory("native_equal_families");
    for (name, source) in FAMILIES {
        let program = compile_alone(&directory, name, source);
        let of = |options| {
            let outcome = record(&directory, &options);
            assert!(outcome.lost.is_empty(), "{name}: {:?}", outcome.lost);
            let mut all = Vec::new();
            for number in 0..outcome.processes.len() as u32 {
                all.push(essence_of(&outcome.summary.path, number));
            }
            (outcome.status, all)
        };
        let (qemu, engine) = (of(options(&program, &[])), of(native(&program, &[])));
        assert_eq!(engine.0, qemu.0, "{name}");
        assert_eq!(engine.1.len(), qemu.1.len(), "{name}");
        for (number, pair) in engine.1.iter().zip(&qemu.1).enumerate() {
            assert!(pair.0 == pair.1, "{name}: process {number}");
        }
    }
}

/// A child that does something that the engine cannot record continues without being recorded, and
/// a note says so.
#[test]
fn a_child_that_cannot_be_recorded_runs_on() {
    let directory = directory("native_runs_on");
    let source = r#"
        #include <signal.h>
        #include <string.h>
        #include <sys/prctl.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static volatile int got; static volatile double d = 1.5; static void on(int s) { got = s; }
        int main(void) {
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = on; sigaction(SIGUSR1, &a, 0);
            int status = 0;
            if (fork() == 0) {
                d *= 3; prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); prctl(59, 0, 0, 0, 0);
                raise(SIGUSR1); if (got != SIGUSR1 || d != 4.5) _exit(1);
                int inner = 0; if (fork() == 0) _exit(6); wait(&inner);
                _exit(WEXITSTATUS(inner)); }
            wait(&status);
            return WEXITSTATUS(status) == 6 ? 42 : WEXITSTATUS(status); }"#;
    let program = compile(&directory, "runs_on", "gcc", source);
    let outcome = record(&directory, &native(&program, &[]));
    assert_eq!((outcome.status, outcome.processes.len()), (42, 2));
    assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
    let note = &outcome.notes[0];
    assert!(note.contains("it ran on unrecorded, as it catches its own system calls"), "{note}");
}

/// Programs that fork immediately after they were executed, while their earlier programs are still
/// being read.
#[test]
fn a_child_may_arrive_before_its_parent() {
    let directory = directory("native_early");
    let mut options = native(std::path::Path::new("/bin/sh"), &[]);
    let script =
        "for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'exec sh -c \":|:; (exit 3)\"' & done; wait";
    options.command = ["/bin/sh", "-c", script].map(Into::into).to_vec();
    let outcome = record(&directory, &options);
    assert_eq!(outcome.status, 0);
    assert!(outcome.lost.is_empty() && outcome.notes.is_empty(), "{outcome:?}");
    let parents = outcome.processes.iter().filter(|one| one.process.parent.is_some()).count();
    assert_eq!(parents + 1, outcome.processes.len());
    assert!(parents >= 30, "{parents}");
}

/// Programs that start other processes. Their exit status is 7.
const FAMILIES: &[(&str, &str)] = &[
    (
        "forks",
        r#"
        static u64 a[400]; static int status;
        static void work(u64 from) { for (int i = 0; i < 400; i++) a[i] = a[i] * 31 + from + i; }
        int go(void) {
            work(1);
            for (long k = 0; k < 4; k++) {
                if (call(57, 0, 0, 0, 0, 0, 0) == 0) { work(k + 10); call(231, (long)(a[k] & 63), 0, 0, 0, 0, 0); }
                call(61, -1, (long)&status, 0, 0, 0, 0);
                if (status >> 8 == 64) return 1;
                work(k);
            }
            return 7; }"#,
    ),
    // Each child has a child, and each runs code that its parent has not run, and code that its parent has.
    (
        "generations",
        r#"
        static u64 a[64]; static int status;
        static u64 f0(u64 x) { return x * 3; } static u64 f1(u64 x) { return x + 5; } static u64 f2(u64 x) { return x ^ 77; } static u64 f3(u64 x) { return x - 9; }
        static u64 (*volatile f[4])(u64) = { f0, f1, f2, f3 };
        static int generation(int left) {
            for (int i = 0; i < 64; i++) a[i] = f[left & 3](a[i] + left);
            if (left == 0) return 3;
            if (call(57, 0, 0, 0, 0, 0, 0) == 0) call(231, generation(left - 1), 0, 0, 0, 0, 0);
            call(61, -1, (long)&status, 0, 0, 0, 0);
            for (int i = 0; i < 64; i++) a[i] = f[(left + 1) & 3](a[i]);
            return status >> 8 == 3 ? 3 : 4;
        }
        int go(void) { return generation(6) + 4; }"#,
    ),
    // As libraries do it: a child with a stack of its own and CLONE_VM | CLONE_VFORK.
    (
        "clones",
        r#"
        static u8 other[8192] __attribute__((aligned(64))); static u64 a[100]; static int status;
        int go(void) {
            for (int k = 0; k < 3; k++) {
                for (int i = 0; i < 100; i++) a[i] += i * k;
                long pid;
                register long r10 __asm__("r10") = 0; register long r8 __asm__("r8") = 0;
                __asm__ volatile("syscall\n test %%rax, %%rax\n jnz 1f\n push %%rax\n push $9\n pop %%rdi\n pop %%rax\n mov $231, %%eax\n syscall\n 1:"
                    : "=a"(pid) : "0"(56l), "D"(0x4111l), "S"(other + 8192), "d"(0l), "r"(r10), "r"(r8) : "rcx", "r11", "memory", "cc");
                if (pid <= 0) return 1;
                call(61, pid, (long)&status, 0, 0, 0, 0);
                if (status != 9 << 8) return 2;
            }
            return 7; }"#,
    ),
];
