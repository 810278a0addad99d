//! The engine records what QEMU records, and leaves programs as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use addr::Kind;
use trace::{Event, Origin, Reader, Source};

use crate::common::{Whole, compile, directory, engine, native, numbers, options, record};

/// What programs begin with that need no system: their stack is their own, so that all addresses are the same
/// wherever they run.
const ALONE: &str = r#"
typedef unsigned long u64;
typedef unsigned char u8;
static u8 stack[1 << 16] __attribute__((aligned(64), used));
__asm__(".globl _start\n_start: lea stack+65536(%rip), %rsp\n call go\n mov %eax, %edi\n mov $231, %eax\n syscall\n");
static u64 seed = 12345;
__attribute__((unused)) static u64 next(void) { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed; }
"#;

/// Programs by what they do, and their ends.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "sorts",
        r#"
        static u64 a[500];
        static void sort(long from, long to) {
            if (from >= to) return;
            u64 pivot = a[to]; long at = from;
            for (long i = from; i < to; i++) if (a[i] < pivot) { u64 t = a[i]; a[i] = a[at]; a[at++] = t; }
            u64 t = a[at]; a[at] = a[to]; a[to] = t;
            sort(from, at - 1); sort(at + 1, to);
        }
        int go(void) { for (int i = 0; i < 500; i++) a[i] = next(); sort(0, 499); for (int i = 1; i < 500; i++) if (a[i - 1] > a[i]) return 1; return 7; }"#,
    ),
    (
        "multiplies",
        r#"
        static double a[12][12], b[12][12], c[12][12];
        int go(void) {
            for (int i = 0; i < 144; i++) { a[i / 12][i % 12] = i; b[i % 12][i / 12] = 2 * i; }
            for (int i = 0; i < 12; i++) for (int j = 0; j < 12; j++) for (int k = 0; k < 12; k++) c[i][j] += a[i][k] * b[k][j];
            return (int)c[3][4] & 63; }"#,
    ),
    (
        "repeats",
        r#"
        static u8 from[4000], to[4000];
        int go(void) {
            for (int i = 0; i < 4000; i++) from[i] = (u8)(i * 7);
            for (int round = 0; round < 9; round++) {
                void *d = to + round, *s = from + 2 * round; u64 n = 300 + round;
                __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) :: "memory");
                d = to; n = 77; __asm__ volatile("rep stosq" : "+D"(d), "+c"(n) : "a"(seed) : "memory");
                d = to; n = 400; __asm__ volatile("repne scasb" : "+D"(d), "+c"(n) : "a"(5) : "memory", "cc");
                d = to; s = from; n = 90; __asm__ volatile("repe cmpsb" : "+D"(d), "+S"(s), "+c"(n) :: "memory", "cc");
                s = from + 80; n = 10; u64 x; __asm__ volatile("std; rep lodsl; cld" : "+S"(s), "+c"(n), "=a"(x) :: "memory");
                d = to; n = 0; __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(1) : "memory");
                d = to; s = from; __asm__ volatile("movsq; movsb; stosw; lodsb; scasb; cmpsw" : "+D"(d), "+S"(s) :: "rax", "memory", "cc");
            }
            return to[3]; }"#,
    ),
    (
        "sets_bits",
        r#"
        static u64 bits[64];
        int go(void) {
            int set = 0;
            for (int i = 0; i < 300; i++) {
                long at = (long)(next() % 2048); u8 was;
                __asm__ volatile("btsq %2, %0; setc %1" : "+m"(bits[0]), "=q"(was) : "r"(at) : "memory", "cc"); set += was;
                int low = (int)(next() % 512) - 256;
                __asm__ volatile("btcl %2, %0; setc %1" : "+m"(bits[32]), "=q"(was) : "r"(low) : "memory", "cc"); set += was;
                __asm__ volatile("btw %w2, %0; setc %1" : "+m"(bits[32]), "=q"(was) : "r"(low) : "memory", "cc"); set += was;
                __asm__ volatile("btrq $5, %0" : "+m"(bits[i % 64]) :: "cc");
            }
            return set & 127; }"#,
    ),
    (
        "is_atomic",
        r#"
        static volatile u64 x; static u64 pair[2] __attribute__((aligned(16)));
        int go(void) {
            for (int i = 0; i < 40; i++) {
                __sync_fetch_and_add(&x, 3); __sync_lock_test_and_set(&x, x ^ 9); __sync_val_compare_and_swap(&x, 5, 6);
                __asm__ volatile("lock incq %0; lock btsq $3, %0; notq %0; negb %0" : "+m"(x) :: "cc");
                u64 low = pair[0], high = pair[1];
                __asm__ volatile("lock cmpxchg16b %0" : "+m"(pair), "+a"(low), "+d"(high) : "b"(low + 1), "c"(high + 2) : "cc");
            }
            return (int)(x + pair[0]) & 127; }"#,
    ),
    (
        "floats",
        r#"
        static double d[8], e[8]; static float s[8];
        int go(void) {
            for (int i = 0; i < 8; i++) { d[i] = i * 3; s[i] = (float)d[i]; e[i] = s[7 - i] / 2; }
            short word; __asm__ volatile("fnstcw %0; fldcw %0" : "+m"(word));
            for (int i = 0; i < 8; i++) __asm__ volatile("fldl %1; fadds %2; fmull %1; fstpl %0; fildl %2; fstps %2" : "=m"(e[i]), "+m"(d[i]), "+m"(s[i]));
            long n; __asm__ volatile("fldl %1; fistpll %0" : "=m"(n) : "m"(e[3]));
            return (int)n; }"#,
    ),
    (
        "jumps",
        r#"
        static int add(int a) { return a + 1; } static int sub(int a) { return a - 3; } static int twice(int a) { return 2 * a; }
        static int (*volatile table[3])(int) = { add, sub, twice };
        int go(void) {
            int x = 5;
            for (int i = 0; i < 200; i++) {
                x = table[next() % 3](x) & 0xffff;
                switch (next() % 7) { case 0: x += 3; break; case 1: x ^= 9; break; case 2: x -= 2; break; case 3: x *= 3; break; case 4: x |= 64; break; default: x &= 0xfff; }
                long n = 5; __asm__ volatile("1: incl %1\n loop 1b\n jrcxz 2f\n ud2\n 2:" : "+c"(n), "+r"(x) :: "cc");
            }
            return x & 127; }"#,
    ),
    (
        "uses_r10_and_r11",
        r#"
        static u64 a[64];
        int go(void) {
            u64 x = 3, y = 4;
            for (int i = 0; i < 60; i++)
                __asm__ volatile("mov %2, %%r10\n lea (%%r10,%1,2), %%r11\n mov %%r11, (%3)\n add (%3), %%r10\n push %%r10\n xor 8(%3), %%r11\n pop %0\n"
                    "mov %%r11, 16(%3)\n push %%r11\n lea 8f(%%rip), %%r11\n call *%%r11\n lea 7f(%%rip), %%r10\n jmp *%%r10\n"
                    "8: lea 8(%%rsp), %%r11\n xor (%%r11), %%r10\n ret\n 7: pop %1\n"
                    : "+r"(x), "+r"(y) : "r"(next()), "r"(a + i) : "r10", "r11", "memory", "cc");
            return (int)(x + y + a[9]) & 127; }"#,
    ),
    (
        "uses_the_stack",
        r#"
        static u64 v[4];
        int go(void) {
            u64 x = 1;
            for (int i = 0; i < 30; i++)
                __asm__ volatile("enter $32, $0\n mov %0, -8(%%rbp)\n pushq -8(%%rbp)\n popq %1\n pushq %1\n addq $5, (%%rsp)\n pop %0\n"
                    "pushfq\n popfq\n push $7\n pushw $3\n popw %w2\n add $8, %%rsp\n leave\n movq %%rsp, %3\n xchg %0, %1\n"
                    : "+r"(x), "+m"(v[0]), "=&r"(v[2]), "=m"(v[3]) :: "memory", "cc");
            return (int)x & 127; }"#,
    ),
    (
        "copies_vectors",
        r#"
        typedef int v4 __attribute__((vector_size(16)));
        static v4 a[40], b[40]; static int c[200];
        int go(void) {
            for (int i = 0; i < 200; i++) c[i] = (int)next();
            for (int i = 0; i < 40; i++) { v4 x; __builtin_memcpy(&x, c + i * 4 + 1, 16); a[i] = x; b[i] = a[i] * a[39 - i] + x; }
            int sum = 0; for (int i = 0; i < 40; i++) sum += b[i][0] ^ b[i][3]; return sum & 127; }"#,
    ),
    (
        "recurses",
        r#"
        static u64 fib(u64 n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
        int go(void) { return (int)fib(14) & 127; }"#,
    ),
    (
        "translates_bytes",
        r#"
        static u8 table[256], text[100];
        int go(void) {
            for (int i = 0; i < 256; i++) table[i] = (u8)(255 - i);
            for (int i = 0; i < 100; i++) { u8 c = (u8)i; __asm__ volatile("xlatb" : "+a"(c) : "b"(table) : "memory"); text[i] = c; }
            u64 sum = 0; for (int i = 0; i < 96; i++) { u64 x; __asm__ volatile("addr32 movq (%%edx), %0" : "=r"(x) : "d"(text + i)); sum += x; }
            return (int)sum & 127; }"#,
    ),
];

/// Compiles a program that needs no system.
fn compile_alone(directory: &Path, name: &str, source: &str) -> PathBuf {
    let file = directory.join(name).with_extension("c");
    let program = directory.join(name);
    fs::write(&file, format!("{ALONE}{source}")).unwrap();
    let flags = [
        "-O1",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-ffreestanding",
        "-fno-stack-protector",
        "-mno-avx",
        "-fcf-protection=none",
        "-w",
        "-mno-red-zone",
        "-o",
    ];
    let status = Command::new("gcc").args(flags).arg(&program).arg(&file).status();
    assert!(status.expect("gcc runs").success(), "{name}.c does not compile");
    program
}

/// A data access: its kind, address and bytes.
type Access = (Kind, u64, u64);

/// What a trace says of one program, however it is split into blocks: the stretches of code that ran one behind the
/// other, and data accesses in pieces of 8 bytes at most.
fn essence(path: &Path) -> (Vec<(u64, u64)>, Vec<Access>) {
    let (mut code, mut data) = (Vec::<(u64, u64)>::new(), Vec::new());
    for row in Whole::read(path).rows {
        let bytes = u64::from(row.meta.size());
        if row.kind() == Kind::Fetch {
            match code.last_mut() {
                Some(last) if last.1 == row.addr => last.1 += bytes,
                _ => code.push((row.addr, row.addr + bytes)),
            }
            continue;
        }
        let mut at = row.addr;
        while at < row.addr + bytes {
            let piece = (row.addr + bytes - at).min(8);
            data.push((row.kind(), at, piece));
            at += piece;
        }
    }
    (code, data)
}

#[test]
fn it_records_what_qemu_records() {
    let directory = directory("native_equals");
    for (name, source) in PROGRAMS {
        let program = compile_alone(&directory, name, source);
        let expected = Command::new(&program).status().unwrap().code();
        let qemu = record(&directory, &options(&program, &[]));
        let (qemu_code, qemu_data) = essence(&qemu.summary.path);
        let native = record(&directory, &native(&program, &[]));
        let (code, data) = essence(&native.summary.path);
        assert_eq!(Some(native.status), expected, "{name}");
        assert_eq!(native.summary.instructions, qemu.summary.instructions, "{name}");
        let differ = data.iter().zip(&qemu_data).position(|(own, other)| own != other);
        if let Some(at) = differ {
            panic!(
                "{name}: access {at} is {:x?} and in QEMU {:x?}",
                &data[at..data.len().min(at + 4)],
                &qemu_data[at..qemu_data.len().min(at + 4)]
            );
        }
        assert_eq!(data.len(), qemu_data.len(), "{name}");
        let differ = code.iter().zip(&qemu_code).position(|(own, other)| own != other);
        if let Some(at) = differ {
            panic!("{name}: stretch {at} is {:x?} and in QEMU {:x?}", code[at], qemu_code[at]);
        }
        assert_eq!(code.len(), qemu_code.len(), "{name}");
        assert!(data.len() > 40, "{name}");
    }
}

/// Handlers of all kinds, whose ends are checked by the program itself.
const SIGNALS: &[(&str, &str)] = &[
    // A fault in each access of a block: the handler sees registers that are exact, mends one and goes on.
    (
        "faults",
        r#"
        #define _GNU_SOURCE
        #include <signal.h>
        #include <sys/mman.h>
        #include <ucontext.h>
        #include <string.h>
        static char *page; static int seen; static unsigned long r10, r11, rbx; static void *at;
        static void on(int s, siginfo_t *i, void *v) {
            ucontext_t *u = v; seen++; at = i->si_addr;
            r10 = u->uc_mcontext.gregs[REG_R10]; r11 = u->uc_mcontext.gregs[REG_R11]; rbx = u->uc_mcontext.gregs[REG_RBX];
            mprotect(page, 4096, 3);
        }
        int main(void) {
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = on; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0);
            page = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int k = 0; k < 8; k++) {
                unsigned long sum = 0, other[8] = {1, 2, 3, 4, 5, 6, 7, 8}; unsigned long *p[8];
                for (int i = 0; i < 8; i++) p[i] = other + i;
                p[k] = (unsigned long *)(page + 8 * k);
                page[8 * k] = 5; mprotect(page, 4096, 0); seen = 0;
                __asm__ volatile("mov $77, %%r10\n mov $88, %%r11\n mov $99, %%rbx\n"
                    "mov (%1), %%rax\n add (%%rax), %0\n inc %%r10\n mov 8(%1), %%rax\n add (%%rax), %0\n inc %%r10\n mov 16(%1), %%rax\n add (%%rax), %0\n inc %%r10\n"
                    "mov 24(%1), %%rax\n add (%%rax), %0\n inc %%r10\n mov 32(%1), %%rax\n add (%%rax), %0\n inc %%r10\n mov 40(%1), %%rax\n add (%%rax), %0\n inc %%r10\n"
                    "mov 48(%1), %%rax\n add (%%rax), %0\n inc %%r10\n mov 56(%1), %%rax\n add (%%rax), %0\n inc %%r10\n"
                    : "+r"(sum) : "r"(p) : "rax", "rbx", "r10", "r11", "memory", "cc");
                if (seen != 1 || at != page + 8 * k || r10 != 77 + k || r11 != 88 || rbx != 99 || sum != 36 - (k + 1) + 5) return 10 + k;
            }
            return 42; }"#,
    ),
    (
        "alternate_stack",
        r#"
        #include <signal.h>
        #include <string.h>
        #include <setjmp.h>
        #include <stdlib.h>
        static char stack[65536]; static sigjmp_buf back; static volatile int on_stack, count;
        static void on(int s) { char here; on_stack += &here > stack && &here < stack + sizeof stack; siglongjmp(back, 1); }
        static int deep(int n) { volatile char room[4096]; room[0] = (char)n; return deep(n + 1) + room[0]; }
        int main(void) {
            stack_t s = { stack, 0, sizeof stack }; sigaltstack(&s, 0);
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = on; a.sa_flags = SA_ONSTACK; sigaction(SIGSEGV, &a, 0);
            for (count = 0; count < 3; count++) if (!sigsetjmp(back, 1)) deep(0);
            return on_stack == 3 ? 42 : on_stack; }"#,
    ),
    (
        "masks",
        r#"
        #include <signal.h>
        #include <string.h>
        static volatile int order[8], n; static volatile double d = 1.5;
        static void on(int s) { order[n++] = s; if (s == SIGUSR1) { d *= 3; raise(SIGUSR2); order[n++] = -1; } }
        int main(void) {
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = on; sigaddset(&a.sa_mask, SIGUSR2);
            sigaction(SIGUSR1, &a, 0); sigaction(SIGUSR2, &a, 0);
            sigset_t s, old; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, &old);
            raise(SIGUSR1); if (n) return 1;
            sigset_t pending; sigpending(&pending); if (!sigismember(&pending, SIGUSR1)) return 2;
            double x = d * 2; sigsuspend(&old); x += d;
            if (n != 3 || order[0] != SIGUSR1 || order[1] != -1 || order[2] != SIGUSR2) return 3;
            sigprocmask(SIG_BLOCK, 0, &old); if (!sigismember(&old, SIGUSR1)) return 4;
            return x == 7.5 ? 42 : 5; }"#,
    ),
    (
        "restarts",
        r#"
        #include <signal.h>
        #include <string.h>
        #include <unistd.h>
        #include <errno.h>
        #include <sys/time.h>
        static volatile int ticks; static int pipes[2];
        static void on(int s) { if (++ticks == 3) write(pipes[1], "x", 1); }
        int main(void) {
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = on; a.sa_flags = SA_RESTART; sigaction(SIGALRM, &a, 0);
            pipe(pipes); struct itimerval t = { { 0, 10000 }, { 0, 10000 } }; setitimer(ITIMER_REAL, &t, 0);
            char c = 0; if (read(pipes[0], &c, 1) != 1 || c != 'x' || ticks < 3) return 1;
            a.sa_flags = 0; sigaction(SIGALRM, &a, 0);
            if (read(pipes[0], &c, 1) != -1 || errno != EINTR) return 2;
            return 42; }"#,
    ),
    // Signals at any place of a computation whose result is known.
    (
        "storm",
        r#"
        #include <signal.h>
        #include <string.h>
        #include <sys/time.h>
        static volatile unsigned long ticks; static unsigned long junk[64], table[256];
        static void on(int s) { ticks++; for (int i = 0; i < 64; i++) junk[i] += i * ticks; volatile double d = ticks; d = d / 3; }
        static unsigned long compute(void) {
            unsigned long h = 1, *a = table; double f = 0;
            for (int r = 0; r < 3000; r++) for (int i = 0; i < 256; i++) { a[i] += h; h = h * 6364136223846793005ul + a[(i * 7 + r) & 255]; f += (double)(h & 15); }
            return h + (unsigned long)f; }
        int main(void) {
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = on; sigaction(SIGALRM, &a, 0);
            struct itimerval t = { { 0, 200 }, { 0, 200 } }; setitimer(ITIMER_REAL, &t, 0);
            unsigned long h = compute(); memset(&t, 0, sizeof t); setitimer(ITIMER_REAL, &t, 0);
            unsigned long quiet = (memset(table, 0, sizeof table), compute());
            return ticks < 3 ? 1 : h == quiet ? 42 : 2; }"#,
    ),
    // Signals at any place between system calls, repeated instructions, and what the engine tells itself.
    (
        "storm_of_calls",
        r#"
        #include <signal.h>
        #include <string.h>
        #include <unistd.h>
        #include <sys/time.h>
        #include <sys/mman.h>
        static volatile unsigned long ticks; static char a[5000], b[5000];
        static void on(int s) { ticks++; getppid(); }
        int main(void) {
            struct sigaction x; memset(&x, 0, sizeof x); x.sa_handler = on; x.sa_flags = SA_RESTART; sigaction(SIGALRM, &x, 0);
            struct itimerval t = { { 0, 100 }, { 0, 100 } }; setitimer(ITIMER_REAL, &t, 0);
            unsigned long bits[64] = {0}, set = 0;
            for (int i = 0; i < 4000; i++) {
                char *p = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); p[5] = 1; munmap(p, 8192);
                void *d = b, *s = a; unsigned long n = 1 + i % 4999; memset(a, i, sizeof a);
                __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) :: "memory");
                if (d != b + 1 + i % 4999 || b[i % 4999] != (char)i) return 3;
                long at = i % 4096; unsigned char was;
                __asm__ volatile("btsq %2, %0; setc %1" : "+m"(bits[0]), "=q"(was) : "r"(at) : "memory", "cc"); set += !was;
            }
            memset(&t, 0, sizeof t); setitimer(ITIMER_REAL, &t, 0);
            return ticks < 3 ? 1 : set == 4000 ? 42 : 2; }"#,
    ),
    (
        "ends_by_a_fault",
        r#"
        int main(void) { volatile long x = 5; long y = x; *(volatile long *)8 = y; return 1; }"#,
    ),
    (
        "divides_by_zero",
        r#"
        #include <signal.h>
        #include <string.h>
        #include <setjmp.h>
        static sigjmp_buf back; static volatile int count, code;
        static void on(int s, siginfo_t *i, void *v) { count++; code = i->si_code; siglongjmp(back, 1); }
        int main(void) {
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = on; a.sa_flags = SA_SIGINFO; sigaction(SIGFPE, &a, 0); sigaction(SIGILL, &a, 0); sigaction(SIGTRAP, &a, 0);
            volatile int zero = 0;
            if (!sigsetjmp(back, 1)) zero = 5 / zero;
            if (count != 1 || code != FPE_INTDIV) return 1;
            if (!sigsetjmp(back, 1)) __asm__ volatile("ud2");
            if (!sigsetjmp(back, 1)) __asm__ volatile("int3");
            return count == 3 ? 42 : 2; }"#,
    ),
];

#[test]
fn signals_find_programs_as_they_are() {
    let directory = directory("native_signals");
    for (name, source) in SIGNALS {
        let program = compile(&directory, name, "gcc", source);
        let expected = Command::new(&program).status().unwrap();
        let outcome = record(&directory, &native(&program, &[]));
        let status = expected.code().unwrap_or(128 + 11);
        assert_eq!(outcome.status, status, "{name}");
        assert!(status == 42 || *name == "ends_by_a_fault", "{name}: {status}");
        assert!(outcome.lost.is_empty(), "{name}: {:?}", outcome.lost);
    }
}

#[test]
fn a_record_ends_with_the_access_that_faults() {
    let directory = directory("native_cut");
    // In the middle of a block, in an instruction with two accesses, in one whose address the engine works out, at the
    // end of a block, and in a repeated one.
    for (name, code, accesses) in [
        (
            "middle",
            "mov (%0), %%rax; mov 8(%0), %%rcx; mov %%rax, 16(%0); mov %%rcx, (%1); mov 24(%0), %%rax",
            3,
        ),
        (
            "second",
            "mov (%0), %%rax; pushq 8(%0); mov %1, %%rdi; mov %0, %%rsi; movsq; mov 24(%0), %%rax",
            4,
        ),
        (
            "assisted",
            "mov (%0), %%rax; mov 8(%0), %%rcx; addr32 mov %%rcx, (%%edx); mov 24(%0), %%rax",
            2,
        ),
        ("end", "mov (%0), %%rax; mov 8(%0), %%rcx; call *(%1)", 2),
        (
            "repeated",
            "mov (%0), %%rax; mov %0, %%rsi; lea edge(%%rip), %%rdi; mov $600, %%ecx; rep movsq",
            1 + 2 * 512 + 1,
        ),
    ] {
        let source = format!(
            r#"static u64 a[1000] = {{1, 2, 3, 4}};
            __asm__(".bss\n .balign 4096\n edge: .skip 8192\n .text");
            int go(void) {{
                __asm__ volatile("mov $10, %%eax\n lea edge+4096(%%rip), %%rdi\n mov $4096, %%esi\n mov $0, %%edx\n syscall" ::: "rax", "rdi", "rsi", "rdx", "rcx", "r11");
                __asm__ volatile("{code}" :: "r"(a), "d"(64l) : "rax", "rcx", "rsi", "rdi", "memory");
                return 0; }}"#
        );
        let program = compile_alone(&directory, name, &source);
        let mut data = Vec::new();
        for options in [options(&program, &[]), native(&program, &[])] {
            let outcome = record(&directory, &options);
            assert_eq!(outcome.status, 139, "{name}");
            data.push(essence(&outcome.summary.path).1);
        }
        assert!(data[1] == data[0], "{name}: {:x?}", [data[0].last(), data[1].last()]);
        assert_eq!(data[1].len(), 1 + accesses, "{name}");
    }
}

#[test]
fn the_layout_is_linuxs() {
    let directory = directory("native_layout");
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        int main(int argc, char **argv) {
            char *heap = malloc(100000); long *p = mmap(0, 1 << 16, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 0; i < 100; i++) p[i * 8] = i;
            FILE *f = fopen(argv[1], "w");
            fprintf(f, "%lx %lx %lx\n", (long)p, (long)&heap, (long)heap);
            return fclose(f); }"#;
    let program = compile(&directory, "layout", "gcc", source);
    let said = directory.join("said");
    let outcome = record(&directory, &native(&program, &[said.to_str().unwrap()]));
    let [mapped, stack, heap] = numbers(&said)[..] else { panic!("three numbers") };
    let whole = Whole::read(&outcome.summary.path);
    let expected: Vec<u64> = (0..100).map(|i| mapped + i * 64).collect();
    assert_eq!(whole.addrs(Kind::Store, mapped, 1 << 16), expected);
    let holds = |wanted: &Origin, at: u64| {
        whole.events.iter().any(|(_, _, event)| {
            matches!(event, Event::Mapping { start, bytes, origin, .. }
                if origin == wanted && at.wrapping_sub(*start) < *bytes)
        })
    };
    assert!(holds(&Origin::Stack, stack), "the stack is known");
    assert!(holds(&Origin::File(program.to_string_lossy().into_owned()), 0x401000));
    assert!(stack > 0x7fff_0000_0000, "{stack:x}");
    let brk = whole.events.iter().filter_map(|(_, _, event)| match event {
        Event::Brk { result, .. } => Some(*result as u64),
        _ => None,
    });
    assert!(brk.max().is_some_and(|end| heap < end), "the heap grows by brk");
    let notes = Reader::open(&outcome.summary.path).unwrap().header().notes.clone();
    assert!(notes.iter().any(|note| note.contains("natively by Pagewalk's engine")), "{notes:?}");
    // All begins at the same places again.
    let again = record(&directory, &native(&program, &[said.to_str().unwrap()]));
    assert_eq!(again.summary.accesses, outcome.summary.accesses);
    assert_eq!(numbers(&said), [mapped, stack, heap]);
}

#[test]
fn what_it_cannot_record_ends_in_one_line() {
    let directory = directory("native_refusals");
    let thread = r#"
        #include <pthread.h>
        static void *run(void *x) { return x; }
        int main(void) { pthread_t t; pthread_create(&t, 0, run, 0); return pthread_join(t, 0); }"#;
    let fork = "#include <unistd.h>\nint main(void) { return fork() == 0; }";
    let exec =
        "#include <unistd.h>\nint main(void) { return execl(\"/bin/true\", \"true\", (char *)0); }";
    let code = r#"
        #include <sys/mman.h>
        int main(void) {
            unsigned char *p = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            p[0] = 0xc3; ((void (*)(void))p)(); return 0; }"#;
    let gs = r#"int main(void) { long x; __asm__ volatile("mov %%gs:0, %0" : "=r"(x)); return (int)x; }"#;
    let seccomp = "#include <sys/prctl.h>\nint main(void) { return prctl(22, 1); }";
    for (name, source, expected) in [
        ("thread", thread, "it starts a second thread"),
        ("fork", fork, "it starts another process"),
        ("exec", exec, "it executes another program"),
        ("code", code, "it runs code that it can change"),
        ("gs", gs, "it uses the segment register gs"),
        ("seccomp", seccomp, "it filters its own system calls"),
    ] {
        let program = compile(&directory, name, "gcc", source);
        let output = directory.join(format!("{name}.pwt"));
        let options = native(&program, &[]);
        let error = capture::record(&options, &output, &trace::Options::default(), &mut |_| {});
        let error = error.expect_err(name).to_string();
        assert!(error.contains(expected) && error.contains("--engine qemu"), "{name}: {error}");
        assert!(!error.contains('\n'), "{name}: {error}");
        let left = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|file| file.to_string_lossy().contains(".pwt")).collect();
        assert!(left.is_empty(), "{name} leaves {left:?}");
    }
    let other =
        compile(&directory, "other", "aarch64-linux-gnu-gcc", "int main(void) { return 0; }");
    let small = compile(&directory, "small", "i686-linux-gnu-gcc", "int main(void) { return 0; }");
    let setuid = compile(&directory, "setuid", "gcc", "int main(void) { return 0; }");
    let chmod = Command::new("chmod").arg("u+s").arg(&setuid).status();
    assert!(chmod.unwrap().success());
    for (program, expected) in
        [(other, "is a program for aarch64"), (small, "is a program for i386"), (setuid, "setuid")]
    {
        let output = directory.join("out.pwt");
        let options = native(&program, &[]);
        let error = capture::record(&options, &output, &trace::Options::default(), &mut |_| {});
        let error = error.expect_err(expected).to_string();
        assert!(error.contains(expected) && error.contains("--engine qemu"), "{error}");
    }
    let mut missing = native(Path::new("/bin/true"), &[]);
    missing.engine_path = Some(directory.join("nothing"));
    let output = directory.join("out.pwt");
    let error = capture::record(&missing, &output, &trace::Options::default(), &mut |_| {});
    assert!(error.unwrap_err().to_string().contains("rustup target add x86_64-unknown-none"));
}

/// Code that is made at run time in pages that are never writable and executable at once is translated again.
#[test]
fn code_that_is_written_anew_between_rights_is_followed() {
    let directory = directory("native_flips");
    let source = r#"
        #include <sys/mman.h>
        int main(void) {
            unsigned char *p = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); int sum = 0;
            for (int i = 0; i < 10; i++) {
                mprotect(p, 4096, PROT_READ | PROT_WRITE);
                p[0] = 0xb8; p[1] = i; p[2] = p[3] = p[4] = 0; p[5] = 0xc3;
                mprotect(p, 4096, PROT_READ | PROT_EXEC);
                sum += ((int (*)(void))p)();
            }
            return sum; }"#;
    let program = compile(&directory, "flips", "gcc", source);
    assert_eq!(record(&directory, &native(&program, &[])).status, 45);
}

/// No instruction of the engine uses a vector register: the program's stay where they are.
#[test]
fn the_engine_uses_no_vector_register() {
    let output = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(engine()).output();
    let text = String::from_utf8(output.expect("objdump runs").stdout).unwrap();
    let instructions = text.lines().filter(|line| line.starts_with("  ")).count();
    assert!(instructions > 10_000, "{instructions} instructions");
    let vector = |line: &&str| {
        ["%xmm", "%ymm", "%zmm", "%mm", "%st", "%fs:"].iter().any(|name| line.contains(name))
    };
    let found: Vec<&str> = text.lines().filter(vector).take(5).collect();
    assert!(found.is_empty(), "{found:?}");
    for named in ["\txsave64", "\txrstor64", "\tfxrstor64"] {
        assert_eq!(text.matches(named).count(), 1, "{named}");
    }
}
