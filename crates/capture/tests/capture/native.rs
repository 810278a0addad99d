//! Checks that the engine records what QEMU records, and that programs behave as without recording.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use addr::Kind;
use trace::{Event, Origin, Reader, Source};

use crate::alone::{compile_alone, essence};
use crate::common::{Whole, compile, directory, engine, native, numbers, options, record};

/// Programs with signal handlers of all kinds. Each program checks its own results.
const SIGNALS: &[(&str, &str)] = &[
    // Each access of a block faults: the handler sees exact registers, corrects one of them and
    // continues.
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
    // Signals arrive at any place between system calls, repeated instructions, and events of the
    // engine itself.
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
    // The fault is in the middle of a block, in an instruction with two accesses, in an instruction
    // whose address the engine derives, at the end of a block, or in a repeated instruction.
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
    // The second run gets equal addresses for all mappings.
    let again = record(&directory, &native(&program, &[said.to_str().unwrap()]));
    assert_eq!(again.summary.accesses, outcome.summary.accesses);
    assert_eq!(numbers(&said), [mapped, stack, heap]);
}

#[test]
fn what_it_cannot_record_ends_in_one_line() {
    let directory = directory("native_refusals");
    let gs = r#"int main(void) { __asm__ volatile("mov %0, %%gs" :: "r"(0)); return 0; }"#;
    let personality =
        "#include <sys/personality.h>\nint main(void) { return personality(0x400000) < 0; }";
    let dispatch = "#include <sys/prctl.h>\nint main(void) { return prctl(59, 1, 0, 0, 0); }";
    let small =
        r#"int main(void) { int x = 20; __asm__ volatile("int $0x80" : "+a"(x)); return x < 0; }"#;
    let transaction = r#"int main(void) { __asm__ volatile(".byte 0xc7, 0xf8, 0, 0, 0, 0" ::: "rax"); return 0; }"#;
    let seccomp = "#include <sys/prctl.h>\nint main(void) { return prctl(22, 1); }";
    for (name, source, expected) in [
        ("gs", gs, "it loads the segment register fs or gs"),
        ("personality", personality, "it makes all of its memory executable"),
        ("small_calls", small, "it makes a system call of 32-bit programs"),
        ("transaction", transaction, "it begins a transaction of memory"),
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
    // QEMU also answers these calls with an error.
    for (name, source, expected) in [
        ("dispatch", dispatch, "it catches its own system calls"),
        ("seccomp", seccomp, "it filters its own system calls"),
    ] {
        let program = compile(&directory, name, "gcc", source);
        let outcome = record(&directory, &native(&program, &[]));
        assert_eq!(outcome.status, 255, "{name}");
        assert!(outcome.notes.iter().any(|note| note.contains(expected)), "{:?}", outcome.notes);
        assert_eq!(record(&directory, &options(&program, &[])).status, 255, "{name}");
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

/// Code that is generated at run time, in pages that are never writable and executable at the same
/// time, is translated again after each change.
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

/// No instruction of the engine uses a vector register, so the program's values in these registers
/// are preserved.
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

/// The part of [`under_a_filter`] that runs in a process of its own. It is not run as a separate
/// test.
#[test]
#[ignore = "started by another test, under a filter of system calls"]
fn records_where_ptrace_is_forbidden() {
    let directory = PathBuf::from(std::env::var_os("PAGEWALK_TEST_FOLDER").expect("a folder"));
    let mut options = native(Path::new("/bin/true"), &[]);
    options.aslr = true;
    let outcome = record(&directory, &options);
    assert_eq!((outcome.status, outcome.engine), (0, capture::Engine::Qemu));
    let note = outcome.notes.iter().find(|note| note.contains("ptrace is forbidden here"));
    let note = note.expect("a note says why");
    assert!(note.contains("does not randomise") && !note.contains('\n'), "{note}");
    let notes = Reader::open(&outcome.summary.path).unwrap().header().notes.clone();
    assert!(notes.iter().any(|note| note.contains("recorded in QEMU's user mode")), "{notes:?}");
}

/// Forbids `ptrace` in this process and in the processes that it starts: the call fails, or ends
/// the process.
fn forbid_ptrace(answer: u32) -> std::io::Result<()> {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    let filter = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filters = [
        filter(LOAD_NUMBER, 0, 0, 0),
        filter(JUMP_IF_EQUAL, 0, 1, libc::SYS_ptrace as u32),
        filter(RETURN, 0, 0, answer),
        filter(RETURN, 0, 0, ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filters.as_mut_ptr() };
    // SAFETY: the system calls get pointers only to local structures, which live long enough.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program) != 0
    };
    if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
fn where_ptrace_is_forbidden_qemu_records_and_a_note_says_so() {
    use std::os::unix::process::CommandExt;
    // The engine and QEMU are built before the filter is installed.
    let _ = (engine(), crate::common::qemus());
    const ERRNO_EPERM: u32 = 0x0005_0001;
    const KILL_PROCESS: u32 = 0x8000_0000;
    for (name, answer) in [("refused", ERRNO_EPERM), ("killed", KILL_PROCESS)] {
        let directory = directory(&format!("native_untraced_{name}"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "native::records_where_ptrace_is_forbidden", "--ignored"])
            .env("PAGEWALK_TEST_FOLDER", &directory);
        // SAFETY: between fork and exec only system calls are made.
        unsafe { command.pre_exec(move || forbid_ptrace(answer)) };
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{name}: {said}");
    }
}

/// Programs that make system calls which an older kernel does not have, read special registers of
/// the processor, or use gs and gathers.
const PROCESSORS: &[(&str, &str)] = &[
    (
        "is_an_older_kernel",
        r#"
        #define _GNU_SOURCE
        #include <unistd.h>
        #include <errno.h>
        #include <sys/syscall.h>
        static char area[64] __attribute__((aligned(32)));
        int main(void) {
            unsigned long old = 0;
            if (syscall(334, area, 32, 0, 0x53053053) != -1 || errno != ENOSYS) return 1;
            if (syscall(SYS_arch_prctl, 0x5001, 1) != -1 || errno != EINVAL) return 2;
            if (syscall(SYS_arch_prctl, 0x5005, &old) != -1 || errno != EINVAL) return 3;
            return 42; }"#,
    ),
    (
        "saves_registers",
        r#"
        #include <string.h>
        static unsigned char area[16384] __attribute__((aligned(64))), legacy[512] __attribute__((aligned(64))), old[108];
        int main(void) {
            double x = 0; long double pi; short word = 0;
            for (int i = 0; i < 50; i++) {
                double in = i * 1.5, out = 0; __asm__ volatile("movsd %0, %%xmm5\n fldl %0\n xor %%ecx, %%ecx\n" : : "m"(in) : "xmm5", "rcx");
                __asm__ volatile("mov $7, %%eax\n xor %%edx, %%edx\n xsave64 %0\n fninit\n xorps %%xmm5, %%xmm5\n mov $7, %%eax\n xrstor64 %0\n movsd %%xmm5, %1\n fstpl %2\n" : "+m"(area), "=m"(out), "=m"(x) :: "rax", "rdx", "xmm5", "memory");
                if (out != in || x != in) return 1;
                __asm__ volatile("fldl %2\n fxsave64 %0\n fninit\n fxrstor64 %0\n fstpl %1\n" : "+m"(legacy), "=m"(out) : "m"(in) : "memory");
                if (out != in) return 2;
                __asm__ volatile("fldl %2\n fnsave %0\n frstor %0\n fstpl %1\n" : "+m"(old), "=m"(out) : "m"(in) : "memory");
                if (out != in) return 3;
                __asm__ volatile("fldpi\n fstpt %0\n fldt %0\n fbstp %2\n fnstenv %2\n fldenv %2\n fnstcw %1\n" : "=m"(pi), "+m"(word), "+m"(old) :: "memory");
            }
            return word == 0x37f && pi > 3.14L ? 42 : 4; }"#,
    ),
    (
        "has_a_base_of_gs",
        r#"
        #define _GNU_SOURCE
        #include <sys/syscall.h>
        #include <unistd.h>
        #include <signal.h>
        #include <string.h>
        #include <errno.h>
        #include <setjmp.h>
        static unsigned long block[64]; static sigjmp_buf back; static void *at; static unsigned long r10;
        #include <ucontext.h>
        static void on(int s, siginfo_t *i, void *v) { at = i->si_addr; r10 = ((ucontext_t *)v)->uc_mcontext.gregs[REG_R10]; siglongjmp(back, 1); }
        int main(void) {
            for (int i = 0; i < 64; i++) block[i] = i * 3;
            unsigned long x, y, g = 0;
            if (syscall(SYS_arch_prctl, 0x1001, 1ul << 62) != -1 || errno != EPERM) return 1;
            if (syscall(SYS_arch_prctl, 0x1004, 8) != -1 || errno != EFAULT) return 2;
            if (syscall(SYS_arch_prctl, 0x1001, block) || syscall(SYS_arch_prctl, 0x1004, &g) || g != (unsigned long)block) return 3;
            struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = on; a.sa_flags = SA_SIGINFO | SA_NODEFER; sigaction(SIGSEGV, &a, 0);
            if (!sigsetjmp(back, 1)) { __asm__ volatile("mov $55, %%r10\n mov %%gs:-8(,%0,8), %%rax" :: "r"(-(long)block / 8 + 10) : "rax", "r10"); return 4; }
            if (at != (void *)72 || r10 != 55) return 5;
            __asm__ volatile("mov %%gs:(%2), %0\n mov %%gs:8, %1" : "=&r"(x), "=r"(y) : "r"(16ul)); if (x != 6 || y != 3) return 6;
            return 42; }"#,
    ),
];

#[test]
fn the_processor_is_the_programs() {
    let directory = directory("native_processor");
    for (name, source) in PROCESSORS {
        let program = compile(&directory, name, "gcc", source);
        // The kernel itself may support a call that the engine refuses.
        if *name != "is_an_older_kernel" {
            assert_eq!(Command::new(&program).status().unwrap().code(), Some(42), "{name}");
        }
        let outcome = record(&directory, &native(&program, &[]));
        assert_eq!(outcome.status, 42, "{name}");
        assert!(outcome.lost.is_empty(), "{name}: {:?}", outcome.lost);
    }
}

/// The elements that a gather loads are recorded in order. Elements that the mask excludes are not
/// recorded.
#[test]
fn gathers_are_recorded_by_element() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        eprintln!("untried: this processor has no AVX2");
        return;
    }
    let directory = directory("native_gathers");
    let source = r#"
        static int table[256] __attribute__((aligned(64), section(".data"))) = {7}; static double more[64] __attribute__((section(".data"))) = {1};
        static int index[8] = {1, 5, 9, 13, 200, 7, 3, -1}, mask[8] = {-1, 0, -1, -1, -1, 0, -1, 5}; static long wide[4] = {3, 60, 1, 20};
        static int out[8]; static double outs[4];
        int go(void) {
            for (int i = 0; i < 256; i++) table[i] = i * i;
            __asm__ volatile("vmovdqu %1, %%ymm1\n vmovdqu %2, %%ymm2\n vpgatherdd %%ymm2, 4(%3,%%ymm1,4), %%ymm3\n vmovdqu %%ymm3, %0\n"
                "vmovdqu %4, %%ymm4\n vpcmpeqd %%ymm5, %%ymm5, %%ymm5\n vgatherqpd %%ymm5, (%5,%%ymm4,8), %%ymm6\n vmovdqu %%ymm6, %6\n"
                "vpcmpeqd %%xmm5, %%xmm5, %%xmm5\n vpgatherdq %%xmm5, (%5,%%xmm1,2), %%xmm7\n vpcmpeqd %%xmm5, %%xmm5, %%xmm5\n vpgatherqd %%xmm5, (%3,%%ymm4,1), %%xmm7\n"
                : "=m"(out) : "m"(index), "m"(mask), "r"(table), "m"(wide), "r"(more), "m"(outs) : "memory", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
            for (int i = 0; i < 8; i++) if (mask[i] < 0 && out[i] != (index[i] + 1) * (index[i] + 1)) return 1;
            return table[5] + (int)((long)table & 0) + 17; }"#;
    let program = compile_alone(&directory, "gathers", source);
    let outcome = record(&directory, &native(&program, &[]));
    assert_eq!(outcome.status, 42);
    let symbols = Command::new("nm").arg(&program).output().unwrap().stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let of = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).expect(name);
        u64::from_str_radix(&line[..16], 16).unwrap()
    };
    let (table, more) = (of("table"), of("more"));
    let whole = Whole::read(&outcome.summary.path);
    let loads = |start: u64, bytes: u64, size: u32| -> Vec<u64> {
        let rows = whole.within(Kind::Load, start, bytes);
        rows.iter().filter(|row| row.meta.size() == size).map(|row| row.addr - start).collect()
    };
    let gathered = loads(table, 1024, 4);
    assert_eq!(gathered[..9], [8, 40, 56, 804, 16, 3, 60, 1, 20]);
    assert_eq!(loads(more, 512, 8), [24, 480, 8, 160, 2, 10]);
}
