//! Checks that a program has equal addresses in all recordings, whatever addresses the host's
//! kernel chooses for QEMU.

use std::process::Command;

use crate::common::{directory, numbers, options, record};

/// Writes the addresses of its code, its heap, its stack, and mappings with and without a requested
/// address. The heap grows by 768 MB at once.
const PARTS: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (1 << 20)

static void *map(void *wish) {
    return mmap(wish, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(int argc, char **argv) {
    FILE *said = fopen(argv[1], "w");
    char *start = sbrk(0);
    for (int i = 0; i < 768; i++)
        if (sbrk(SIZE) == (void *)-1) return 1;
    if ((char *)sbrk(0) != start + 768 * (long)SIZE) return 2;
    void *first = map(0);
    // The first requested address is free and is used; the second one is not free.
    munmap(map(first + 8 * SIZE), SIZE);
    void *wished = map(first + 8 * SIZE), *other = map(first);
    if (wished != first + 8 * SIZE) return 3;
    void *moved = mremap(map(0), SIZE, 3 * SIZE, MREMAP_MAYMOVE);
    // No program has the page at 0.
    if (mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == first) return 4;
    void *parts[] = {(void *)main, start, &said, first, wished, other, map(0), moved, malloc(10), malloc(SIZE)};
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        fprintf(said, "%lx\n", (unsigned long)(uintptr_t)parts[i]);
    fclose(said);
    return 0;
}
"#;

fn same(name: &str, compiler: &str) {
    let directory = directory(name);
    let (source, program) = (directory.join("parts.c"), directory.join("parts"));
    std::fs::write(&source, PARTS).expect("the source is written");
    // The program has a loader and is position-independent, as programs of distributions are.
    let mut command = Command::new(compiler);
    let status =
        command.args(["-O1", "-w", "-pie", "-fPIE", "-o"]).arg(&program).arg(&source).status();
    assert!(status.expect("`make test` installs the compiler").success());
    let said = directory.join("said");
    let options = options(&program, &[said.to_str().expect("a path in UTF-8")]);
    let recorded = || {
        let _ = std::fs::remove_file(&said);
        assert_eq!(record(&directory, &options).status, 0);
        numbers(&said)
    };
    let parts = recorded();
    assert_eq!(parts.len(), 10);
    for _ in 0..3 {
        assert_eq!(recorded(), parts);
    }
}

#[test]
fn on_x86_64() {
    same("layout_x86_64", "gcc");
}

#[test]
fn on_i386() {
    same("layout_i386", "i686-linux-gnu-gcc");
}

#[test]
fn on_arm() {
    same("layout_arm", "arm-linux-gnueabihf-gcc");
}

#[test]
fn on_aarch64() {
    same("layout_aarch64", "aarch64-linux-gnu-gcc");
}

#[test]
fn on_riscv64() {
    same("layout_riscv64", "riscv64-linux-gnu-gcc");
}
