//! Programs whose accesses the test knows are recorded exactly.

use addr::Kind;
use trace::{Arch, Event, Origin, Reader, Source};

use crate::common::{Whole, compile, directory, numbers, options, record};

/// Stores 1,024 numbers, 4 KiB apart, to a mapping, and writes the address of the mapping.
const STORES: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
int main(int argc, char **argv) {
    volatile long *p = mmap(0, 1024 * 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 1024; i++) p[i * (4096 / sizeof *p)] = i;
    long sum = 0;
    for (int i = 1023; i >= 0; i--) sum += p[i * (4096 / sizeof *p)];
    FILE *f = fopen(argv[1], "w");
    fprintf(f, "%lx %lx\n", (unsigned long)p, sum);
    return fclose(f) + 7;
}
"#;

fn stores(name: &str, compiler: &str, arch: Arch, word_bytes: u32) {
    let directory = directory(name);
    let program = compile(&directory, "stores", compiler, STORES);
    let said = directory.join("said");
    let outcome = record(&directory, &options(&program, &[said.to_str().unwrap()]));
    assert_eq!(outcome.status, 7);
    assert_eq!(outcome.processes.len(), 1);
    let start = numbers(&said)[0];
    let path = &outcome.summary.path;
    let header = Reader::open(path).unwrap().header().clone();
    assert_eq!(header.arch, arch);
    let whole = Whole::read(path);
    let expected: Vec<u64> = (0..1024).map(|i| start + i * 4096).collect();
    assert_eq!(whole.addrs(Kind::Store, start, 1024 * 4096), expected);
    let backwards: Vec<u64> = expected.iter().rev().copied().collect();
    assert_eq!(whole.addrs(Kind::Load, start, 1024 * 4096), backwards);
    let rows = whole.within(Kind::Store, start, 1024 * 4096);
    assert!(rows.iter().all(|row| row.meta.size() == word_bytes), "sizes");
    let mapped = whole.events.iter().any(|(_, _, event)| {
        matches!(event, Event::Mmap { bytes: 0x40_0000, fd: -1, result, .. } if *result as u64 == start)
    });
    assert!(mapped, "the mapping is an event with its address");
    let stack = whole.events.iter().any(|(_, _, event)| {
        matches!(event, Event::Mapping { origin: Origin::Stack, rights: 3, .. })
    });
    assert!(stack, "the stack is known");
    let text = whole.events.iter().any(|(_, _, event)| {
        matches!(event, Event::Mapping { origin: Origin::File(file), rights: 5, .. }
            if file == &program.to_string_lossy())
    });
    assert!(text, "the program's text is known");
}

#[test]
fn stores_x86_64() {
    stores("stores_x86_64", "gcc", Arch::X86_64, 8);
}

#[test]
fn stores_i386() {
    stores("stores_i386", "i686-linux-gnu-gcc", Arch::I386, 4);
}

#[test]
fn stores_aarch64() {
    stores("stores_aarch64", "aarch64-linux-gnu-gcc", Arch::Aarch64, 8);
}

#[test]
fn stores_riscv64() {
    stores("stores_riscv64", "riscv64-linux-gnu-gcc", Arch::Riscv64, 8);
}

#[test]
fn atomic_operations_load_and_store() {
    let directory = directory("atomic");
    let source = r#"
        #include <stdio.h>
        static volatile long x;
        int main(int argc, char **argv) {
            FILE *f = fopen(argv[1], "w");
            fprintf(f, "%lx\n", (unsigned long)&x);
            fclose(f);
            for (int i = 0; i < 5; i++) __atomic_fetch_add(&x, 1, __ATOMIC_SEQ_CST);
            return 0;
        }"#;
    let program = compile(&directory, "atomic", "gcc", source);
    let said = directory.join("said");
    let outcome = record(&directory, &options(&program, &[said.to_str().unwrap()]));
    let x = numbers(&said)[0];
    let whole = Whole::read(&outcome.summary.path);
    assert_eq!(whole.addrs(Kind::Load, x, 8), vec![x; 5]);
    assert_eq!(whole.addrs(Kind::Store, x, 8), vec![x; 5]);
}

#[test]
fn the_whole_program_is_counted() {
    // A loop of known length: its instructions and its fetches.
    let directory = directory("counted");
    let source = r#"
        int main(void) {
            long n = 1000000;
            __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(n));
            return n;
        }"#;
    let program = compile(&directory, "counted", "gcc", source);
    let outcome = record(&directory, &options(&program, &[]));
    let whole = Whole::read(&outcome.summary.path);
    let mut fetches = std::collections::HashMap::new();
    for row in whole.rows.iter().filter(|row| row.kind() == Kind::Fetch) {
        *fetches.entry(row.addr).or_insert(0u64) += 1;
    }
    // The first iteration may belong to the block before the loop.
    let most = fetches.values().max().copied().unwrap_or(0);
    assert!((999_999..=1_000_000).contains(&most), "{most}");
    let instructions = outcome.summary.instructions;
    assert!((2_000_000..2_200_000).contains(&instructions), "{instructions}");
}

#[test]
fn system_calls_carry_arguments_results_and_paths() {
    let directory = directory("sequence-of-calls");
    let source = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <stdio.h>
        #include <sys/mman.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            int fd = open(argv[0], O_RDONLY);
            char *file = mmap(0, 8192, PROT_READ, MAP_PRIVATE, fd, 4096);
            char *a = mmap(0, 16384, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char *b = mremap(a, 16384, 65536, MREMAP_MAYMOVE);
            mprotect(b, 4096, PROT_READ);
            madvise(b + 4096, 8192, MADV_DONTNEED);
            munmap(b, 65536);
            munmap((void *)1, 4096);
            void *old = sbrk(0);
            sbrk(12345);
            FILE *f = fopen(argv[1], "w");
            fprintf(f, "%lx %lx %lx %lx", (long)file, (long)a, (long)b, (long)old);
            fclose(f);
            _exit(3);
        }"#;
    for (arch, compiler) in [
        ("x86_64", "gcc"),
        ("i386", "i686-linux-gnu-gcc"),
        ("aarch64", "aarch64-linux-gnu-gcc"),
        ("riscv64", "riscv64-linux-gnu-gcc"),
    ] {
        let name = format!("calls_{arch}");
        let program = compile(&directory, &name, compiler, source);
        let said = directory.join("said");
        let outcome = record(&directory, &options(&program, &[said.to_str().unwrap()]));
        assert_eq!(outcome.status, 3, "{arch}");
        let said = numbers(&said);
        let [file, a, b, old] = said[..] else { panic!("{said:?}") };
        let whole = Whole::read(&outcome.summary.path);
        let events: Vec<&Event> = whole.events.iter().map(|(_, _, event)| event).collect();
        let has = |what: &str, matches: &dyn Fn(&Event) -> bool| {
            assert!(events.iter().any(|event| matches(event)), "{arch}: {what} in {events:#?}");
        };
        has("mmap of a file", &|event| {
            matches!(event, Event::Mmap { bytes: 8192, prot: 1, offset: 4096, path: Some(path), result, .. }
                if *result as u64 == file && path == &program.to_string_lossy())
        });
        has("mremap", &|event| {
            matches!(event, Event::Mremap { addr, old_bytes: 16384, new_bytes: 65536, flags: 1, result, .. }
                if *addr == a && *result as u64 == b)
        });
        has("mprotect", &|event| {
            *event == Event::Mprotect { addr: b, bytes: 4096, prot: 1, result: 0 }
        });
        has("madvise", &|event| {
            *event == Event::Madvise { addr: b + 4096, bytes: 8192, advice: 4, result: 0 }
        });
        has("munmap", &|event| *event == Event::Munmap { addr: b, bytes: 65536, result: 0 });
        has("munmap that fails", &|event| {
            *event == Event::Munmap { addr: 1, bytes: 4096, result: -22 }
        });
        has("brk", &|event| {
            matches!(event, Event::Brk { addr, result }
                if *addr == old + 12345 && *result as u64 == old + 12345)
        });
        // Only an event of the writer may follow, with instructions that no access counts.
        let last = events.iter().rfind(|event| !matches!(event, Event::Gap { .. }));
        assert_eq!(last, Some(&&Event::Exit { status: 3, group: true }), "{arch}");
    }
}
