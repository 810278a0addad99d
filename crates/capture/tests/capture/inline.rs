//! Compares the rows that translated code records itself with the rows that QEMU's callbacks give.

use addr::Kind;

use crate::common::{Row, Whole, compile, directory, numbers, options, record};

/// Uses everything that the translator handles in a special way: string instructions, vectors,
/// atomic operations, helpers that access memory, faults in the middle of a block, code that is
/// patched or replaced, indirect calls of different functions, and threads.
const MANY_WAYS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static volatile long words[4096];
static double numbers[512];
static sigjmp_buf before;
static long shared;

static void back(int signal) { siglongjmp(before, signal); }

static int order(const void *a, const void *b) {
    return *(const int *)a < *(const int *)b ? -1 : *(const int *)a > *(const int *)b;
}

static size_t one(const char *text) { return words[text[0] & 7]; }
static size_t two(const char *text) { return words[8 | (text[1] & 7)] + one(text); }

static void *count(void *argument) {
    for (int i = 0; i < 2000; i++) {
        words[(i * 37) & 1023] += i;
        __atomic_fetch_add(&shared, 1, __ATOMIC_SEQ_CST);
    }
    return argument;
}

int main(int argc, char **argv) {
    // From here on, QEMU translates for several threads, so the first thread does not make it
    // translate again.
    mmap(0, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, back);
    char *room = malloc(100000);
    for (int i = 1; i < 200; i++) {
        memset(room, i, i * 100);
        memcpy(room + 50000, room, i * 7);
        memmove(room + 1, room, i * 13);
        if (strlen(room) == 3 || memchr(room, i + 1, 40000)) words[i]++;
    }
    int values[999];
    for (int i = 0; i < 999; i++) values[i] = i * 7919 % 1000;
    qsort(values, 999, sizeof *values, order);
    for (int i = 0; i < 512; i++) numbers[i] = numbers[(i * 5) & 511] / (i + 1.5) + words[i];
    for (int i = 0; i < 400; i++) {
        unsigned __int128 *wide = (void *)room;
        words[i & 63] = (long)(wide[i] / (words[i & 15] | 3));
        __atomic_compare_exchange_n(&shared, &(long){i}, i + 1, 0, 5, 5);
    }
    volatile char *hole = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 20; i++) {
        if (!sigsetjmp(before, 1)) { words[i] = i; words[i + 1] += hole[i]; words[i + 2] = i; }
    }
    signal(SIGSEGV, SIG_DFL);
    // One call for many functions, each called a few times in a row.
    size_t (*functions[])(const char *) = {strlen, one, two, (void *)abs, (void *)labs};
    for (int i = 0; i < 400; i++) words[i & 63] += functions[i / 9 % 5](room) & 7;
#ifdef __x86_64__
    static char state[512] __attribute__((aligned(16)));
    for (int i = 0; i < 30; i++) {
        __asm__ volatile("fxsave %0\n fxrstor %0" : "+m"(state));
        long left = i * 9; void *to = room, *from = room + 60000;
        __asm__ volatile("rep movsb" : "+c"(left), "+D"(to), "+S"(from) :: "memory");
        left = i; to = room;
        __asm__ volatile("rep stosq" : "+c"(left), "+D"(to) : "a"(i) : "memory");
        left = 500; to = room; from = room + 60000;
        __asm__ volatile("repe cmpsb" : "+c"(left), "+D"(to), "+S"(from) :: "memory", "cc");
        __asm__ volatile("push %%rax\n pushfq\n popq %%rax\n popq %%rax\n lock xaddq %%rax, %0\n"
                         "enter $32, $1\n leave\n xlatb" : "+m"(shared) : "b"(room) : "rax", "memory");
        __asm__ volatile("movdqu (%0), %%xmm1\n pshufb 16(%0), %%xmm1\n pxor (%0), %%xmm1\n"
                         "pcmpistri $0, 32(%0), %%xmm1\n movdqu %%xmm1, 64(%0)"
                         :: "r"(room) : "xmm1", "rcx", "memory", "cc");
        __asm__ volatile("fldt (%0)\n fld1\n faddp\n fstpt 16(%0)" :: "r"(room) : "memory");
    }
    unsigned char *code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 20; i++) {
        unsigned char body[] = {0x48, 0x8b, 0x07, 0x48, 0x89, 0x47, 0, 0xc3};
        body[6] = 8 * (i & 7);
        memcpy(code, body, sizeof body);
        words[i] = ((long (*)(volatile long *))code)(words + i);
    }
    for (int i = 0; i < 20; i++) {
        unsigned char body[] = {0x48, 0x8b, 0x07, 0x48, 0x89, 0x47, 0, 0xc3};
        body[6] = 8 * (i & 3);
        mmap(code, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        memcpy(code, body, sizeof body);
        mprotect(code, 4096, 5);
        words[i] = ((long (*)(volatile long *))code)(words + i);
    }
#endif
    FILE *said = fopen(argv[1], "w");
    fprintf(said, "%lx\n", (unsigned long)words);
    fclose(said);
    // The first thread runs this loop before other threads exist, and afterwards.
    count(0);
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, count, room);
        pthread_join(thread, 0);
    }
    count(0);
    return shared & 7;
}
"#;

fn same(name: &str, compiler: &str) {
    let directory = directory(name);
    let source = match compiler {
        "i686-linux-gnu-gcc" | "arm-linux-gnueabihf-gcc" => {
            MANY_WAYS.replace("unsigned __int128", "unsigned long long")
        }
        _ => MANY_WAYS.to_owned(),
    };
    let program = compile(&directory, "ways", compiler, &source);
    let said = directory.join("said");
    let mut options = options(&program, &[said.to_str().unwrap()]);
    let mut recorded = |callbacks| {
        options.callbacks = callbacks;
        let outcome = record(&directory, &options);
        (outcome.status, Whole::read(&outcome.summary.path))
    };
    let (expected, callbacks) = recorded(true);
    let (status, inline) = recorded(false);
    assert_eq!(status, expected);

    // The waiting of threads differs between runs, but their accesses to `words` do not.
    let (one, other) = (alone(&inline), alone(&callbacks));
    assert!(one.len().min(other.len()) > 1_000_000, "{} and {}", one.len(), other.len());
    let differ = one.iter().zip(other).position(|(one, other)| one != other);
    assert_eq!(differ, None, "the row in which they differ");
    let start = numbers(&said)[0];
    for thread in 0..5 {
        let own = |whole: &Whole, kind| {
            let mut rows = whole.within(kind, start, 8192);
            rows.retain(|row| row.thread == thread);
            rows.iter().map(|row| (row.addr, row.meta.size())).collect::<Vec<_>>()
        };
        for kind in [Kind::Load, Kind::Store] {
            let expected = own(&callbacks, kind);
            assert!(expected.len() >= 2000, "thread {thread}: {}", expected.len());
            assert!(own(&inline, kind) == expected, "thread {thread}: {kind:?}");
        }
    }
}

/// The rows before the first row of a second thread.
fn alone(whole: &Whole) -> &[Row] {
    &whole.rows[..whole.rows.iter().position(|row| row.thread != 0).expect("it makes threads")]
}

#[test]
fn on_x86_64() {
    same("inline_x86_64", "gcc");
}

#[test]
fn on_i386() {
    same("inline_i386", "i686-linux-gnu-gcc");
}

#[test]
fn on_arm() {
    same("inline_arm", "arm-linux-gnueabihf-gcc");
}

#[test]
fn on_aarch64() {
    same("inline_aarch64", "aarch64-linux-gnu-gcc");
}

#[test]
fn on_riscv64() {
    same("inline_riscv64", "riscv64-linux-gnu-gcc");
}
