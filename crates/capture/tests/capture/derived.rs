//! Tests blocks for which not all addresses are recorded, because some can be derived from others.
//! A fault ends such a block at every possible place. The rows are compared with those that QEMU's
//! callbacks give.

use crate::common::{Whole, compile, directory, options, record};

/// Makes loads and stores through one pointer, with other accesses between them. An inaccessible
/// page, or the end of a mapped file, begins at each byte of each access in turn. The accesses are
/// repeated in a forked child and, on x86, by code that writes to its own page.
const FALLS: &str = r#"
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT(type, offset) (*(volatile type *)(at + (offset)))

static sigjmp_buf before;
static volatile long words[64];
static volatile int sum;

static void back(int signal) { siglongjmp(before, signal); }

__attribute__((noinline)) static void read_ahead(volatile char *at, volatile long *other) {
    sum += AT(long, 0) + AT(int, 8) + words[3] + other[0] + AT(long, 12) + AT(short, 20) + other[2];
}

__attribute__((noinline)) static void read_back(volatile char *at, volatile long *other) {
    sum += AT(char, 40) + AT(long, 32) + other[1] + AT(long, 3) + AT(short, 1) + words[5] + AT(char, 0);
}

__attribute__((noinline)) static void write_both(volatile char *at, volatile long *other) {
    AT(long, 0) += 1; AT(short, 8) = 2; other[1] = AT(long, 16); AT(int, 24) += 3; AT(char, 28) = 4;
    words[7] += 5; AT(char, 29) += other[2];
}

__attribute__((noinline)) static void read_then_write(volatile char *at, volatile long *other) {
    sum += AT(long, 0) + AT(long, 16); other[4] = 1; AT(long, 0) = 7; AT(long, 16) = 9; other[5] = 2;
}

__attribute__((noinline)) static void other_last(volatile char *at, volatile long *other) {
    sum += words[1] + words[2] + words[60] + AT(long, 0); other[0] = 1; other[1] += 2;
}

static void (*falls[])(volatile char *, volatile long *) =
    {read_ahead, read_back, write_both, read_then_write, other_last};

static void fall(char *edge) {
    for (int way = 0; way < 5; way++)
        for (int far = -3; far < 48; far++)
            for (int turn = 0; turn < 2; turn++)
                if (!sigsetjmp(before, 1)) {
                    if (turn) falls[way](edge - far, words + 16);
                    else falls[way]((char *)(words + 32), (long *)(edge - far));
                }
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = back};
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGBUS, &action, 0);
    char *room = mmap(0, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(room, 1, 8 * 4096);
    mprotect(room + 4096, 4096, PROT_NONE);
    fall(room + 4096);
    fall(room + 8192);
    mprotect(room + 4 * 4096, 4096, PROT_READ);
    fall(room + 4 * 4096);
    fall(room + 5 * 4096);
    int file = memfd_create("short", 0);
    if (ftruncate(file, 4096)) return 1;
    char *mapped = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    fall(mapped + 4096);
    // Addresses that no program has.
    fall((char *)(uintptr_t)0x7ffffffffff8);
    fall((char *)(uintptr_t)0xfffffffffffffff0);
    fall((char *)16);
    int status = 0;
    if (!fork()) {
        fall(room + 4096);
        fall(room + 4 * 4096);
        _exit(3);
    }
    wait(&status);
    fall(room + 4096);
#ifdef __x86_64__
    char *code = mmap(0, 8192, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 60; i++) {
        // mov [rdi], rax; mov [rdi + 8], rax; mov [rdi + rsi], rax; mov rdx, [rdi + 16]; mov [rdi + 24], rax; ret
        unsigned char body[] = {0x48, 0x89, 0x07, 0x48, 0x89, 0x47, 0x08, 0x48, 0x89, 0x04, 0x37,
                                0x48, 0x8b, 0x57, 0x10, 0x48, 0x89, 0x47, 0x18, 0xc3};
        char *to = i % 3 == 0 ? code + 512 + 8 * i : i % 3 == 1 ? code + 4096 - 4 - i / 3 : (char *)words;
        memcpy(code, body, sizeof body);
        void (*run)(char *, long) = (void *)code;
        run(to, i % 2 ? 128 : 64);
        run(to, 256);
    }
    // The program accesses the last page that it can map, and an address behind this page.
    char *top = mmap((void *)0x7fffffffe000, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    for (int i = 0; i < 20 && top != MAP_FAILED; i++)
        if (!sigsetjmp(before, 1))
            __asm__ volatile("mov (%0), %%rax\n mov 8(%0), %%rcx\n mov 8192(%0), %%rcx\n mov %%rax, %1\n"
                             :: "r"(top + 4000 + 8 * i), "m"(words[i]) : "rax", "rcx", "memory");
    // Aligned vector instructions use addresses that are not aligned; a handler leaves them, and
    // the host does not fault.
    for (int i = 0; i < 20; i++)
        if (!sigsetjmp(before, 1))
            __asm__ volatile("mov (%0), %%rax\n mov 8(%0), %%rcx\n movaps 16(%0), %%xmm0\n"
                             "mov 32(%0), %%rax\n movups 48(%0), %%xmm1\n movaps %%xmm1, 80(%0)\n"
                             :: "r"(room + i * (i & 1 ? 1 : 16)) : "rax", "rcx", "xmm0", "xmm1", "memory");
    // A base that changes, and one that is loaded over itself.
    void *chain[4] = {chain + 1, chain + 2, chain + 3, chain};
    for (int i = 0; i < 20; i++)
        __asm__ volatile("mov %0, %%rax\n mov (%%rax), %%rax\n mov (%%rax), %%rax\n mov 8(%0), %%rcx\n"
                         "push %%rax\n push 8(%%rsp)\n pop %%rcx\n pop %%rcx\n lea 8(%%rax), %%rdx\n"
                         "mov -8(%%rdx), %%rcx\n add $8, %%rdx\n mov -16(%%rdx), %%rcx\n"
                         :: "r"(chain) : "rax", "rcx", "rdx", "memory");
#endif
    return WEXITSTATUS(status);
}
"#;

fn same(name: &str, compiler: &str) {
    let directory = directory(name);
    let program = compile(&directory, "falls", compiler, FALLS);
    let mut options = options(&program, &[]);
    let mut recorded = |callbacks| {
        options.callbacks = callbacks;
        let outcome = record(&directory, &options);
        let process = |number| Whole::process(&outcome.summary.path, number).rows;
        (outcome.status, process(0), process(1))
    };
    let (callbacks, inline) = (recorded(true), recorded(false));
    assert_eq!(inline.0, callbacks.0);
    for (inline, callbacks) in [(inline.1, callbacks.1), (inline.2, callbacks.2)] {
        assert!(callbacks.len() > 10_000, "{}", callbacks.len());
        let differ = inline.iter().zip(&callbacks).position(|(one, other)| one != other);
        let around = differ.map(|row| {
            let rows = row.saturating_sub(6)..row + 6;
            (inline.get(rows.clone()), callbacks.get(rows))
        });
        assert_eq!(around, None, "around the row in which they differ");
        assert_eq!(inline.len(), callbacks.len());
    }
}

#[test]
fn on_x86_64() {
    same("derived_x86_64", "gcc");
}

#[test]
fn on_i386() {
    same("derived_i386", "i686-linux-gnu-gcc");
}

#[test]
fn on_arm() {
    same("derived_arm", "arm-linux-gnueabihf-gcc");
}

#[test]
fn on_aarch64() {
    same("derived_aarch64", "aarch64-linux-gnu-gcc");
}

#[test]
fn on_riscv64() {
    same("derived_riscv64", "riscv64-linux-gnu-gcc");
}
