//! Programs with several threads, recorded natively.

use std::collections::HashSet;

use addr::Kind;
use trace::Event;

use crate::common::{Whole, compile, directory, native, numbers, record};

#[test]
fn threads_are_recorded_natively_each_in_order() {
    const THREADS: u64 = 60;
    const STORES: u64 = 3000;
    let directory = directory("native_threads");
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        static volatile long *area;
        static void *run(void *arg) {
            for (long k = 0; k < 3000; k++) area[(long)arg * 4096 + k] = k;
            return 0;
        }
        int main(int argc, char **argv) {
            area = mmap(0, 60 * 4096 * 8, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            pthread_t threads[60];
            for (long i = 0; i < 60; i++) if (pthread_create(&threads[i], 0, run, (void *)i)) abort();
            for (int i = 0; i < 60; i++) pthread_join(threads[i], 0);
            FILE *f = fopen(argv[1], "w");
            fprintf(f, "%lx", (long)area);
            return fclose(f);
        }"#;
    let program = compile(&directory, "threads", "gcc", source);
    let said = directory.join("said");
    let outcome = record(&directory, &native(&program, &[said.to_str().unwrap()]));
    assert_eq!(outcome.status, 0);
    assert!(outcome.lost.is_empty(), "{:?}", outcome.lost);
    let start = numbers(&said)[0];
    let whole = Whole::read(&outcome.summary.path);
    let mut owners = HashSet::new();
    for thread in 0..THREADS {
        let from = start + thread * 4096 * 8;
        let rows = whole.within(Kind::Store, from, 4096 * 8);
        let addrs: Vec<u64> = rows.iter().map(|row| row.addr).collect();
        let expected: Vec<u64> = (0..STORES).map(|k| from + 8 * k).collect();
        assert!(addrs == expected, "thread {thread}");
        assert!(rows.iter().all(|row| row.thread == rows[0].thread), "of one thread");
        assert!(owners.insert(rows[0].thread), "of its own");
    }
    let count = |which: fn(&Event) -> bool| {
        whole.events.iter().filter(|(_, _, event)| which(event)).count() as u64
    };
    assert_eq!(count(|event| matches!(event, Event::ThreadStart { .. })), THREADS + 1);
    assert_eq!(count(|event| matches!(event, Event::ThreadEnd)), THREADS);
    assert_eq!(count(|event| matches!(event, Event::Clone { .. })), THREADS);
}

/// Each turn passes to the next thread by a system call, so the order in the recording is exact.
#[test]
fn turns_of_threads_are_in_order() {
    crate::processes::turns_are_in_order("native_turns", native);
}

/// Programs with threads that check their own results. Their exit status is 42.
const PROGRAMS: &[(&str, &str)] = &[
    // Threads begin and end all the time, and all of them run code that no thread has run before.
    (
        "storm_of_clones",
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        static unsigned long sums[8]; static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; static long total;
        #define F(n) static long f##n(long x) { return x * n + (x >> n % 7); }
        F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15) F(16)
        static long (*volatile f[16])(long) = { f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16 };
        static long compute(long seed) { long x = seed; for (int i = 0; i < 300; i++) x = f[(x ^ i) & 15](x & 0xffff) + i; return x; }
        static void *run(void *arg) { long x = compute((long)arg); pthread_mutex_lock(&lock); total += x; pthread_mutex_unlock(&lock); return (void *)x; }
        int main(void) {
            long expected = 0, joined = 0; pthread_t t[8]; void *x;
            for (long round = 0; round < 40; round++) {
                for (long i = 0; i < 8; i++) if (pthread_create(&t[i], 0, run, (void *)(round * 8 + i))) return 1;
                for (long i = 0; i < 8; i++) { pthread_join(t[i], &x); joined += (long)x; }
            }
            for (long i = 0; i < 320; i++) expected += compute(i);
            return total == expected && joined == expected ? 42 : 2; }"#,
    ),
    // Signals to chosen threads, and to the process, with masks and stacks of their own.
    (
        "signals_to_threads",
        r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <signal.h>
        #include <string.h>
        #include <unistd.h>
        #include <sys/syscall.h>
        static volatile int got[4], right[4], wrong, ready, stop; static __thread int me = -1; static pthread_t t[4];
        static char stacks[4][65536];
        static void on(int s) { char here; if (me < 0) { wrong++; return; } __sync_fetch_and_add(&got[me], 1); right[me] += &here > stacks[me] && &here < stacks[me] + 65536; }
        static void *run(void *arg) {
            me = (int)(long)arg; stack_t s = { stacks[me], 0, 65536 }; sigaltstack(&s, 0); __sync_fetch_and_add(&ready, 1);
            volatile unsigned long x = 1; while (!stop) for (int i = 0; i < 100; i++) x = x * 31 + i;
            return 0; }
        int main(void) {
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = on; a.sa_flags = SA_ONSTACK; sigaction(SIGUSR1, &a, 0); sigaction(SIGUSR2, &a, 0);
            for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, run, (void *)i);
            while (ready < 4) usleep(100);
            sigset_t all; sigfillset(&all); pthread_sigmask(SIG_BLOCK, &all, 0);
            for (int k = 0; k < 400; k++) { int w = k & 3, before = got[w]; pthread_kill(t[w], SIGUSR1); while (got[w] == before) usleep(10); }
            for (int k = 0; k < 4; k++) if (got[k] != 100) return 10 + k;
            for (int k = 0; k < 50; k++) { int before = got[0] + got[1] + got[2] + got[3]; kill(getpid(), SIGUSR2); while (got[0] + got[1] + got[2] + got[3] == before) usleep(10); }
            stop = 1; for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
            return wrong ? 3 : right[0] + right[1] + right[2] + right[3] == 450 ? 42 : 4; }"#,
    ),
    // Code that one thread changes while others run it, through memory that stays writable and by rights.
    (
        "changes_code_of_threads",
        r#"
        #include <pthread.h>
        #include <sys/mman.h>
        #include <string.h>
        static unsigned char *p, *q; static volatile int stop; static volatile long bad;
        static void put(unsigned char *at, int value) { unsigned char code[8] = { 0xb8, (unsigned char)value, 0, 0, 0, 0xc3, 0x90, 0x90 }; unsigned long w; memcpy(&w, code, 8); *(volatile unsigned long *)at = w; }
        static void *run(void *arg) { while (!stop) for (int i = 0; i < 64; i++) { int x = ((int (*)(void))(p + 64 * i))(); if (x < i || x > i + 100) bad++; } return 0; }
        int main(void) {
            p = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); q = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 0; i < 64; i++) put(p + 64 * i, i);
            pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, run, 0);
            for (int k = 0; k < 2000; k++) {
                int i = k * 7 % 64; put(p + 64 * i, i + k % 100);
                if (k % 20 == 0) { mprotect(q, 4096, 3); put(q, k & 63); mprotect(q, 4096, 5); if (((int (*)(void))q)() != (k & 63)) return 1; }
            }
            stop = 1; for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
            return bad ? 2 : 42; }"#,
    ),
    // Children of a program with threads: some execute another program, and some continue.
    (
        "forks_beside_threads",
        r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <unistd.h>
        #include <stdlib.h>
        #include <spawn.h>
        #include <sys/wait.h>
        extern char **environ; static volatile int stop;
        static void *busy(void *arg) { volatile unsigned long x = 1; while (!stop) { free(malloc(100 + x % 1000)); x = x * 31 + 7; } return 0; }
        static void *one(void *arg) { return arg; }
        int main(void) {
            pthread_t t[2], u; for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, busy, 0);
            for (int k = 0; k < 6; k++) {
                int status = 0; pid_t pid = fork();
                if (pid == 0) { void *x = 0; pthread_create(&u, 0, one, (void *)5); pthread_join(u, &x); _exit((int)(long)x + k); }
                waitpid(pid, &status, 0); if (WEXITSTATUS(status) != 5 + k) return 1;
                char *args[] = { "true", 0 };
                if (posix_spawn(&pid, "/bin/true", 0, 0, args, environ)) return 2;
                waitpid(pid, &status, 0); if (status) return 3;
            }
            stop = 1; for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
            return 42; }"#,
    ),
    // One thread ends the process after the first thread has ended.
    (
        "outlives_the_first_thread",
        r#"
        #include <pthread.h>
        #include <unistd.h>
        #include <stdlib.h>
        static void *last(void *arg) { usleep(20000); exit(42); }
        static void *sleeps(void *arg) { for (;;) pause(); }
        int main(void) { pthread_t t; pthread_create(&t, 0, sleeps, 0); pthread_create(&t, 0, last, 0); pthread_exit(0); }"#,
    ),
    (
        "executes_beside_threads",
        r#"
        #include <pthread.h>
        #include <unistd.h>
        static char **self;
        static void *sleeps(void *arg) { for (;;) pause(); }
        static void *execute(void *arg) { execl(self[0], self[0], "again", (char *)0); return 0; }
        int main(int argc, char **argv) {
            if (argc > 1) return 42;
            pthread_t t; self = argv; for (int i = 0; i < 3; i++) pthread_create(&t, 0, sleeps, 0);
            pthread_create(&t, 0, execute, 0); pthread_join(t, 0); return 1; }"#,
    ),
];

#[test]
fn programs_with_threads_work() {
    let directory = directory("native_threaded");
    for (name, source) in PROGRAMS {
        let program = compile(&directory, name, "gcc", source);
        let outcome = record(&directory, &native(&program, &[]));
        assert_eq!(outcome.status, 42, "{name}");
        assert!(outcome.lost.is_empty(), "{name}: {:?}", outcome.lost);
    }
}

/// Several threads run, sleep and fork, while another thread runs so much code that all translated
/// code is dropped.
#[test]
fn translated_code_of_several_threads_is_dropped() {
    let directory = directory("native_dropped");
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <sys/wait.h>
        #include <time.h>
        #include <unistd.h>
        enum { FUNCTIONS = 160000, BYTES = 384 };
        static volatile int over;
        static unsigned long hash(int rounds) {
            unsigned long h = 1, table[64] = {0};
            for (int i = 0; i < rounds; i++) { table[i & 63] += h; h = h * 6364136223846793005ul + table[(i * 7) & 63]; }
            return h;
        }
        static void *computes(void *wrong) {
            unsigned long expected = hash(5000);
            while (!over) if (hash(5000) != expected) return (void *)1;
            return 0;
        }
        static void *sleeps(void *unused) {
            while (!over) { struct timespec t = {0, 1000000}; nanosleep(&t, 0); }
            return 0;
        }
        static void *forks(void *unused) {
            while (!over) {
                int status = 0;
                if (fork() == 0) _exit(hash(100) == 0);
                wait(&status);
                if (status) return (void *)2;
                usleep(500000);
            }
            return 0;
        }
        int main(void) {
            pthread_t threads[4];
            void *(*works[4])(void *) = {computes, computes, sleeps, forks};
            for (int i = 0; i < 4; i++) pthread_create(threads + i, 0, works[i], 0);
            unsigned char *code = mmap(0, (long)FUNCTIONS * BYTES, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            long sum = 0;
            for (int i = 0; i < FUNCTIONS; i++) {
                unsigned char *at = code + (long)i * BYTES;
                *at++ = 0xb8, memcpy(at, &i, 4), at += 4;
                // add $1, %eax
                for (int k = 0; k < 60; k++) memcpy(at, "\x05\1\0\0\0", 5), at += 5;
                *at = 0xc3;
                sum += ((int (*)(void))(code + (long)i * BYTES))();
            }
            over = 1;
            for (int i = 0; i < 4; i++) { void *wrong; pthread_join(threads[i], &wrong); if (wrong) return 1; }
            if (sum != (long)FUNCTIONS * (FUNCTIONS - 1) / 2 + 60l * FUNCTIONS) return 2;
            char line[512]; int regions = 0;
            FILE *maps = fopen("/proc/self/maps", "r");
            while (fgets(line, sizeof line, maps)) regions += strstr(line, "r-xs") && strstr(line, "pagewalk-code");
            return regions == 0 ? 3 : regions > 6 ? 4 : 42;
        }"#;
    let program = compile(&directory, "dropped", "gcc", source);
    let outcome = record(&directory, &native(&program, &[]));
    assert_eq!(outcome.status, 42);
    assert!(outcome.lost.is_empty(), "{:?}", outcome.lost);
}
