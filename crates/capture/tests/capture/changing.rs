//! Tests programs that generate code and change it: the engine runs the current code, and records
//! what the processor does.

use crate::alone::{compare, compile_alone, essence};
use crate::common::{compile, directory, native, options, record};
use crate::stepped;

/// Freestanding programs that change their code. Their exit status is 42.
const PROGRAMS: &[(&str, &str)] = &[
    // Functions are rewritten in memory that stays writable, and called through a pointer.
    (
        "makes_functions",
        r#"
        static u8 code[8192] __attribute__((aligned(4096)));
        int go(void) {
            call(10, (long)code, 8192, 7, 0, 0, 0);
            u64 sum = 0;
            for (int round = 0; round < 50; round++) {
                u8 *p = code + (round & 3) * 64;
                int at = 0;
                p[at++] = 0xb8; *(u32 *)(p + at) = (u32)(round * 7); at += 4;
                int adds = (int)(next() % 5);
                for (int i = 0; i < adds; i++) { p[at++] = 0x83; p[at++] = 0xc0; p[at++] = (u8)i; }
                p[at] = 0xc3;
                for (int calls = 0; calls < 1 + round % 3; calls++) sum += ((u32 (*)(void))p)();
                if (round % 5 == 4) for (int other = 0; other < 4; other++) sum += ((u32 (*)(void))(code + other * 64))();
            }
            return sum > 1000 ? 42 : 1; }"#,
    ),
    // An instruction changes the next instruction, and a loop changes its own constant.
    (
        "changes_what_follows",
        r#"
        __asm__(".section .wx,\"awx\",@progbits\n .balign 4096\n"
            "changer: mov %dil, 1f+1(%rip)\n 1: mov $0x11, %al\n movzbl %al, %eax\n ret\n"
            "counter: xor %eax, %eax\n mov $20, %ecx\n 2: add $1, %eax\n incb 2b+2(%rip)\n dec %ecx\n jnz 2b\n movb $1, 2b+2(%rip)\n ret\n .text\n");
        extern int changer(int); extern int counter(void);
        int go(void) {
            for (int i = 0; i < 100; i++) if (changer(i) != i) return 1;
            for (int i = 0; i < 5; i++) if (counter() != 210) return 2;
            return 42; }"#,
    ),
    // The rights change before and after each change of code, with other code on the page and
    // blocks that run again later.
    (
        "flips_rights",
        r#"
        static u8 code[8192] __attribute__((aligned(4096)));
        static void put(int at, int value) { u8 *p = code + at; p[0] = 0xb8; *(u32 *)(p + 1) = (u32)value; p[5] = 0xc3; }
        static int run(int at) { return ((int (*)(void))(code + at))(); }
        int go(void) {
            for (int i = 0; i < 128; i++) put(32 * i, i);
            call(10, (long)code, 8192, 5, 0, 0, 0);
            for (int round = 0; round < 60; round++) {
                int which = (int)(next() % 128);
                call(10, (long)code, 8192, 3, 0, 0, 0);
                put(32 * which, 1000 + (round & 1));
                call(10, (long)code, 8192, 5, 0, 0, 0);
                if (run(32 * which) != 1000 + (round & 1)) return 1;
                for (int i = 0; i < 128; i += 9) if (i != which && run(32 * i) != i && run(32 * i) < 1000) return 2;
            }
            return 42; }"#,
    ),
    // Repeated and assisted instructions are replaced by other instructions.
    (
        "changes_odd_instructions",
        r#"
        static u8 code[4096] __attribute__((aligned(4096))); static u64 bits[64]; static u8 from[64], to[64];
        int go(void) {
            call(10, (long)code, 4096, 7, 0, 0, 0);
            for (int i = 0; i < 64; i++) from[i] = (u8)(i + 1);
            for (int round = 0; round < 30; round++) {
                u8 *p = code; long count = 8 + round % 3;
                switch (round % 5) {
                    case 0: p[0] = 0xf3; p[1] = 0xa4; p[2] = 0x90; break; // rep movsb
                    case 1: p[0] = 0xf3; p[1] = 0xaa; p[2] = 0x90; break; // rep stosb
                    case 2: p[0] = 0x0f; p[1] = 0xab; p[2] = 0x0f; break; // bts [rdi], ecx
                    case 3: p[0] = 0x48; p[1] = 0x01; p[2] = 0x0f; break; // add [rdi], rcx
                    default: p[0] = 0xf3; p[1] = 0xa5; p[2] = 0x90; break; // rep movsd
                }
                p[3] = 0xc3;
                void *d = round % 5 == 2 || round % 5 == 3 ? (void *)bits : (void *)to, *s = from;
                __asm__ volatile("call *%3" : "+D"(d), "+S"(s), "+c"(count) : "r"(code), "a"(5l) : "memory", "cc");
            }
            return bits[0] != 0 && to[0] != 0 ? 42 : 1; }"#,
    ),
];

/// Every program is compared with single steps. The program with an instruction that changes its
/// own block is not compared with QEMU, because QEMU restarts such a block and records its
/// beginning twice.
#[test]
fn changing_code_is_recorded_as_single_steps_and_qemu_give() {
    let directory = directory("native_changing");
    for (name, source) in PROGRAMS {
        let program = compile_alone(&directory, name, source);
        let outcome = record(&directory, &native(&program, &[]));
        assert_eq!(outcome.status, 42, "{name}");
        let (code, data) = essence(&outcome.summary.path);
        let stepped = stepped::step(&program);
        compare(name, "access of single steps", &data, &stepped.data);
        compare(name, "code of single steps", &code, &stepped.code);
        assert_eq!(outcome.summary.instructions, stepped.instructions, "{name}");
        if *name != "changes_what_follows" {
            let qemu = record(&directory, &options(&program, &[]));
            let (qemu_code, qemu_data) = essence(&qemu.summary.path);
            compare(name, "access of QEMU", &data, &qemu_data);
            compare(name, "code of QEMU", &code, &qemu_code);
        }
    }
}

/// Programs with a C library. Their exit status is 42.
const WITH_LIBRARY: &[(&str, &str)] = &[
    // The memory is mapped twice: once writable, and once executable and never writable.
    (
        "doubly_mapped",
        r#"
        #define _GNU_SOURCE
        #include <sys/mman.h>
        #include <unistd.h>
        #include <string.h>
        int main(void) {
            int fd = memfd_create("code", 0); if (ftruncate(fd, 8192)) return 1;
            unsigned char *w = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *x = mmap(0, 8192, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
            for (int i = 0; i < 300; i++) {
                unsigned char *p = w + 16 * (i % 7);
                p[0] = 0xb8; memcpy(p + 1, &i, 4); p[5] = 0xc3;
                if (((int (*)(void))(x + 16 * (i % 7)))() != i) return 2;
            }
            return 42; }"#,
    ),
    // Memory that moves with its code, is dropped, and is mapped again with other code.
    (
        "moves",
        r#"
        #define _GNU_SOURCE
        #include <sys/mman.h>
        #include <string.h>
        static unsigned char *put(unsigned char *p, int value) { p[0] = 0xb8; memcpy(p + 1, &value, 4); p[5] = 0xc3; return p; }
        int main(void) {
            unsigned char *p = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 1; i < 40; i++) {
                mprotect(p, 4096, 3); put(p, i); mprotect(p, 4096, 5);
                if (((int (*)(void))p)() != i) return 1;
                unsigned char *q = mmap(0, 8192, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                q = mremap(p, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, q);
                if (((int (*)(void))q)() != i) return 2;
                p = mmap(p, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
                put(p, i + 100); mprotect(p, 4096, 5);
                if (((int (*)(void))p)() != i + 100 || ((int (*)(void))q)() != i) return 3;
                munmap(q, 8192);
            }
            return 42; }"#,
    ),
    // Invalid bytes become an instruction, and unmapped memory is mapped.
    (
        "becomes_code",
        r#"
        #define _GNU_SOURCE
        #include <sys/mman.h>
        #include <signal.h>
        #include <setjmp.h>
        #include <string.h>
        static sigjmp_buf back; static void on(int s) { siglongjmp(back, s); }
        int main(void) {
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = on; a.sa_flags = SA_NODEFER; sigaction(SIGSEGV, &a, 0);
            unsigned char *p = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 0; i < 20; i++) {
                munmap(p, 4096);
                int caught = sigsetjmp(back, 1);
                if (!caught) { ((void (*)(void))p)(); return 1; }
                if (caught != SIGSEGV) return 2;
                if (mmap(p, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != p) return 3;
                p[0] = 0xb8; p[1] = i; p[2] = p[3] = p[4] = 0; p[5] = 0xc3;
                if (((int (*)(void))p)() != i) return 4;
                p[0] = 0x31; p[1] = 0xc0; p[2] = 0xc3;
                if (((int (*)(void))p)() != 0) return 5;
            }
            return 42; }"#,
    ),
    // Signals at any place of code that is made and changed.
    (
        "changes_in_a_storm",
        r#"
        #include <signal.h>
        #include <string.h>
        #include <sys/time.h>
        #include <sys/mman.h>
        static volatile unsigned long ticks; static void on(int s) { ticks++; }
        int main(void) {
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = on; sigaction(SIGALRM, &a, 0);
            struct itimerval t = { { 0, 150 }, { 0, 150 } }; setitimer(ITIMER_REAL, &t, 0);
            unsigned char *p = mmap(0, 65536, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 0; i < 4000; i++) {
                unsigned char *q = p + 64 * (i % 100);
                q[0] = 0xb8; memcpy(q + 1, &i, 4); q[5] = 0x53; q[6] = 0x5b; q[7] = 0xc3;
                if (((int (*)(void))q)() != i) return 1;
            }
            memset(&t, 0, sizeof t); setitimer(ITIMER_REAL, &t, 0);
            return ticks > 2 ? 42 : 2; }"#,
    ),
];

#[test]
fn code_that_changes_in_any_way_is_followed() {
    let directory = directory("native_changing_library");
    for (name, source) in WITH_LIBRARY {
        let program = compile(&directory, name, "gcc", source);
        let outcome = record(&directory, &native(&program, &[]));
        assert_eq!(outcome.status, 42, "{name}");
        assert!(outcome.lost.is_empty(), "{name}: {:?}", outcome.lost);
    }
}
