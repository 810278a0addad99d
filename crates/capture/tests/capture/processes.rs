//! Checks that nothing is lost from recordings of threads, forks, executed programs, and programs
//! that end in every possible way.

use std::fs;
use std::path::Path;

use addr::Kind;
use capture::{Live, Options};
use trace::Event;

use crate::common::{Whole, compile, directory, numbers, options, record};

#[test]
fn two_hundred_threads_each_in_order() {
    const THREADS: u64 = 200;
    const STORES: u64 = 3000;
    let directory = directory("threads");
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
            area = mmap(0, 200 * 4096 * 8, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            pthread_t threads[200];
            for (long i = 0; i < 200; i++)
                if (pthread_create(&threads[i], 0, run, (void *)i)) abort();
            for (int i = 0; i < 200; i++) pthread_join(threads[i], 0);
            FILE *f = fopen(argv[1], "w");
            fprintf(f, "%lx", (long)area);
            return fclose(f);
        }"#;
    let program = compile(&directory, "threads", "gcc", source);
    let said = directory.join("said");
    let outcome = record(&directory, &options(&program, &[said.to_str().unwrap()]));
    assert_eq!(outcome.status, 0);
    let start = numbers(&said)[0];
    let whole = Whole::read(&outcome.summary.path);
    let mut owners = std::collections::HashSet::new();
    for thread in 0..THREADS {
        let from = start + thread * 4096 * 8;
        let rows = whole.within(Kind::Store, from, 4096 * 8);
        let addrs: Vec<u64> = rows.iter().map(|row| row.addr).collect();
        let expected: Vec<u64> = (0..STORES).map(|k| from + 8 * k).collect();
        assert_eq!(addrs, expected, "thread {thread}");
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

#[test]
fn what_happened_before_comes_before() {
    // Each thread passes the turn to the next one through a pipe. A turn that is passed only
    // through memory is ordered only to within a segment.
    turns_are_in_order("turns", options);
}

/// Records four threads that store in turns, and checks that the stores are in the order of the
/// turns.
pub(crate) fn turns_are_in_order(name: &str, options: fn(&Path, &[&str]) -> Options) {
    let directory = directory(name);
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        static volatile long turns[8 * 400];
        static int pipes[4][2], turn;
        static void *run(void *arg) {
            long me = (long)arg;
            char token;
            for (int round = 0; round < 100; round++) {
                if (read(pipes[me][0], &token, 1) != 1) return 0;
                turns[8 * turn++] = 1;
                if (write(pipes[(me + 1) % 4][1], &token, 1) != 1) return 0;
            }
            return 0;
        }
        int main(int argc, char **argv) {
            pthread_t threads[4];
            for (int i = 0; i < 4; i++) if (pipe(pipes[i])) return 1;
            for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, run, (void *)i);
            if (write(pipes[0][1], "", 1) != 1) return 1;
            for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
            FILE *f = fopen(argv[1], "w");
            fprintf(f, "%lx", (long)turns);
            return fclose(f);
        }"#;
    let program = compile(&directory, "turns", "gcc", source);
    let said = directory.join("said");
    let outcome = record(&directory, &options(&program, &[said.to_str().unwrap()]));
    let start = numbers(&said)[0];
    let whole = Whole::read(&outcome.summary.path);
    let expected: Vec<u64> = (0..400).map(|turn| start + 64 * turn).collect();
    assert_eq!(whole.addrs(Kind::Store, start, 8 * 8 * 400), expected);
}

#[test]
fn a_thousand_threads_at_one_time() {
    let directory = directory("many");
    let source = r#"
        #include <pthread.h>
        #include <stdlib.h>
        static pthread_barrier_t all;
        static void *run(void *arg) { pthread_barrier_wait(&all); return 0; }
        int main(void) {
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            pthread_attr_setstacksize(&attributes, 65536);
            pthread_t threads[1000];
            pthread_barrier_init(&all, 0, 1001);
            for (int i = 0; i < 1000; i++)
                if (pthread_create(&threads[i], &attributes, run, 0)) abort();
            pthread_barrier_wait(&all);
            for (int i = 0; i < 1000; i++) pthread_join(threads[i], 0);
            return 0;
        }"#;
    let program = compile(&directory, "many", "gcc", source);
    let outcome = record(&directory, &options(&program, &[]));
    assert_eq!(outcome.status, 0);
    let whole = Whole::read(&outcome.summary.path);
    let started: Vec<u32> = whole
        .events
        .iter()
        .filter(|(_, _, event)| matches!(event, Event::ThreadStart { .. }))
        .map(|(_, thread, _)| *thread)
        .collect();
    assert_eq!(started.len(), 1001);
    assert_eq!(outcome.notes, Vec::<String>::new());
}

/// Makes 100,000 stores, writes the address of the table, and ends in the requested way.
const ENDS: &str = r#"
    #define _GNU_SOURCE
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/resource.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        volatile long *p = mmap(0, 800000, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        FILE *f = fopen(argv[1], "w");
        fprintf(f, "%lx", (long)p);
        fclose(f);
        if (!strcmp(argv[2], "close")) for (int fd = 0; fd < 1024; fd++) close(fd);
        for (int i = 0; i < 100000; i++) p[i] = i;
        if (!strcmp(argv[2], "kill")) kill(getpid(), SIGKILL);
        if (!strcmp(argv[2], "term")) kill(getpid(), SIGTERM);
        if (!strcmp(argv[2], "abort")) abort();
        if (!strcmp(argv[2], "fault")) *(volatile long *)8 = 0;
        if (!strcmp(argv[2], "exec")) execl("/nowhere/at/all", "x", (char *)0);
        _exit(9);
    }"#;

#[test]
fn however_a_program_ends_nothing_is_lost() {
    let directory = directory("ends");
    let program = compile(&directory, "ends", "gcc", ENDS);
    for (how, status) in [
        ("exit", 9),
        ("kill", 128 + 9),
        ("term", 128 + 15),
        ("abort", 128 + 6),
        ("fault", 128 + 11),
        ("close", 9),
        ("exec", 9),
    ] {
        let said = directory.join("said");
        let outcome = record(&directory, &options(&program, &[said.to_str().unwrap(), how]));
        assert_eq!(outcome.status, status, "{how}");
        let start = numbers(&said)[0];
        let whole = Whole::read(&outcome.summary.path);
        let expected: Vec<u64> = (0..100_000).map(|i| start + 8 * i).collect();
        assert_eq!(whole.addrs(Kind::Store, start, 800_000), expected, "{how}");
        let failed = whole.events.iter().any(|(_, _, event)| {
            *event == Event::Execve { path: "/nowhere/at/all".to_owned(), result: -2 }
        });
        assert_eq!(failed, how == "exec", "{how}: {:?}", whole.events);
    }
}

#[test]
fn children_are_followed() {
    let directory = directory("family");
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
            return WEXITSTATUS(status) == 4 ? 0 : 2;
        }"#;
    let program = compile(&directory, "family", "gcc", source);
    let said = directory.join("said");
    let outcome = record(&directory, &options(&program, &[said.to_str().unwrap()]));
    assert_eq!(outcome.status, 0);
    let start = numbers(&said)[0];
    let path = &outcome.summary.path;
    let files = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
    let files = files.filter(|name| name.to_string_lossy().contains(".pwt")).count();
    assert_eq!(files, 1, "one recording, one file");
    // The processes are the program, its first child, and its second child, which executes the
    // program again.
    let processes: Vec<&trace::Process> =
        outcome.processes.iter().map(|recorded| &recorded.process).collect();
    assert_eq!(processes.len(), 3, "{processes:?}");
    let stored: Vec<Vec<u64>> =
        (0..3).map(|it| Whole::process(path, it).addrs(Kind::Store, start, 24_000)).collect();
    let stores = |which: u64| (0..1000).map(|i| start + 8 * (which * 1000 + i)).collect();
    let expected: Vec<Vec<u64>> = vec![stores(0), stores(1), stores(2)];
    assert_eq!(stored, expected, "{processes:?}");
    assert_eq!(processes[2].programs.len(), 2);
    assert_eq!(&processes[2].programs[1].command[2..], ["more"]);
    let shares: Vec<bool> = processes.iter().map(|process| process.shares_space).collect();
    assert_eq!(shares, [false, false, true], "vfork's child runs in its parent's space");
    // The part of a child can be read alone: it has the child's mappings, and new ones after the
    // child has executed a program.
    let again = Whole::process(path, 2);
    let is_execve = |event: &Event| matches!(event, Event::Execve { result: 0, .. });
    let at = again.events.iter().position(|(_, _, event)| is_execve(event)).unwrap();
    assert_eq!(again.events[at].0 as u64, processes[2].programs[1].from);
    for events in [&again.events[..at], &again.events[at..]] {
        let is_mapping = |event: &Event| matches!(event, Event::Mapping { .. });
        let mappings = events.iter().filter(|(_, _, event)| is_mapping(event)).count();
        assert!(mappings > 3, "{mappings}");
    }
    // Each child begins where its parent forked it.
    let parent = Whole::process(path, 0);
    for child in &processes[1..] {
        let forks = |event: &Event| matches!(event, Event::Fork { result, .. } if *result == i64::from(child.pid));
        let fork = parent.events.iter().find(|(_, _, event)| forks(event)).unwrap();
        assert_eq!((child.parent, child.parent_accesses), (Some(0), Some(fork.0 as u64)));
    }
    // The whole recording has the rows of all its processes.
    let together = Whole::read(path);
    let rows = (0..3).map(|number| Whole::process(path, number).rows.len());
    assert_eq!(together.rows.len(), rows.sum::<usize>());
    assert_eq!(together.rows.len() as u64, outcome.summary.accesses);
    let order = together.addrs(Kind::Store, start, 24_000);
    assert_eq!(order, expected.concat(), "each waited for the one before");
}

/// Two threads, or two processes, take turns through pipes. In the recording and in a live run, all
/// turns must be in their order.
#[test]
fn a_hand_over_through_a_call_is_exact() {
    let directory = directory("pingpong");
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <sys/mman.h>
        #include <sys/wait.h>
        #include <unistd.h>
        enum { TURNS = 4000 };
        static volatile long *turns;
        static int pipes[2][2];
        static void *play(void *arg) {
            long me = (long)arg;
            char token;
            for (int i = 0; i < TURNS / 2; i++) {
                if (read(pipes[me][0], &token, 1) != 1) return 0;
                turns[2 * i + me] = 1;
                if (write(pipes[!me][1], &token, 1) != 1) return 0;
            }
            return 0;
        }
        int main(int argc, char **argv) {
            turns = mmap(0, TURNS * 8, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            if (pipe(pipes[0]) || pipe(pipes[1]) || write(pipes[0][1], "", 1) != 1) return 1;
            if (argc > 2) {
                if (fork() == 0) { play((void *)1); _exit(0); }
                play(0);
                wait(0);
            } else {
                pthread_t other;
                pthread_create(&other, 0, play, (void *)1);
                play(0);
                pthread_join(other, 0);
            }
            FILE *f = fopen(argv[1], "w");
            fprintf(f, "%lx", (long)turns);
            return fclose(f);
        }"#;
    let program = compile(&directory, "pingpong", "gcc", source);
    let said = directory.join("said");
    for arguments in [vec![said.to_str().unwrap()], vec![said.to_str().unwrap(), "fork"]] {
        let options = options(&program, &arguments);
        let outcome = record(&directory, &options);
        let start = numbers(&said)[0];
        let expected: Vec<u64> = (0..4000).map(|turn| start + 8 * turn).collect();
        let stored = Whole::read(&outcome.summary.path);
        assert!(stored.addrs(Kind::Store, start, 32_000) == expected, "{arguments:?} stored");
        let mut live = Live::start(&options).unwrap();
        let seen = Whole::of(&mut live);
        assert_eq!(live.finish(), 0);
        let start = numbers(&said)[0];
        let expected: Vec<u64> = (0..4000).map(|turn| start + 8 * turn).collect();
        assert!(seen.addrs(Kind::Store, start, 32_000) == expected, "{arguments:?} live");
    }
}

/// One process of several is selected by the program that it runs.
#[test]
fn one_process_is_kept_if_asked() {
    let directory = directory("wanted");
    let mut options =
        Options::new(["sh", "-c", "/bin/true; /bin/ls /; /bin/true x"].map(Into::into).to_vec());
    options.qemus = Some(crate::common::qemus());
    let all = record(&directory, &options);
    assert_eq!(all.processes.len(), 4);
    let ls = all.processes.iter().find(|it| it.process.name() == "ls").unwrap();
    options.process = Some("ls".to_owned());
    let one = record(&directory, &options);
    assert_eq!(one.status, 0);
    assert_eq!(one.processes.len(), 1);
    let process = &one.processes[0].process;
    assert_eq!((process.name(), process.programs[0].from, process.number), ("ls", 0, 0));
    // The child ran the shell's program before it executed `ls`.
    let before = ls.process.programs[1].from;
    assert_eq!(one.summary.accesses, ls.accesses - before);
    options.process = Some("no-such".to_owned());
    let output = directory.join("none.pwt");
    let error = capture::record(&options, &output, &trace::Options::default(), &mut |_| {});
    assert!(error.unwrap_err().to_string().contains("no process ran as `no-such`"));
    assert!(!output.exists() && !directory.join("none.pwt.part").exists());
}

/// A program is executed by a descriptor that `execve` closes.
#[test]
fn a_program_is_executed_by_its_descriptor() {
    let directory = directory("fexecve");
    let source = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <sys/mman.h>
        #include <unistd.h>
        int main(int argc, char **argv, char **environment) {
            if (argc > 2) return 7;
            char *again[] = {argv[0], "more", "arguments", 0}, block[4096];
            int fd = open(argv[0], O_RDONLY | O_CLOEXEC);
            if (argc > 1) {
                int copy = memfd_create("copy", MFD_CLOEXEC);
                long length;
                while ((length = read(fd, block, sizeof block)) > 0)
                    if (write(copy, block, length) != length) return 1;
                fd = copy;
            }
            fexecve(fd, again, environment);
            return 2;
        }"#;
    let program = compile(&directory, "fexecve", "gcc", source);
    for arguments in [vec![], vec!["copy"]] {
        let outcome = record(&directory, &options(&program, &arguments));
        assert_eq!(outcome.status, 7, "{arguments:?} {:?}", outcome.notes);
        assert_eq!(outcome.processes[0].process.programs.len(), 2, "{arguments:?}");
    }
}

/// The recording ends at the maximum size of its file, but the program continues. After an `execve`
/// the remaining thread is the first thread of the process, whichever thread called it; the numbers
/// of the other threads are not used again.
#[test]
fn the_first_thread_outlives_an_exec() {
    let directory = directory("outlives");
    let source = r#"
        #include <pthread.h>
        #include <unistd.h>
        static char **self;
        static void *nothing(void *arg) { return 0; }
        static void *execute(void *arg) { execl(self[0], self[0], "again", (char *)0); return 0; }
        int main(int argc, char **argv) {
            pthread_t thread;
            self = argv;
            pthread_create(&thread, 0, nothing, 0);
            pthread_join(thread, 0);
            pthread_create(&thread, 0, argc > 1 ? nothing : execute, 0);
            pthread_join(thread, 0);
            return 0;
        }"#;
    let program = compile(&directory, "outlives", "gcc", source);
    let outcome = record(&directory, &options(&program, &[]));
    assert_eq!(outcome.status, 0);
    let whole = Whole::read(&outcome.summary.path);
    let started = whole.events.iter().filter_map(|(_, thread, event)| match event {
        Event::ThreadStart { .. } => Some(*thread),
        _ => None,
    });
    assert_eq!(started.collect::<Vec<_>>(), [0, 1, 2, 0, 3, 4]);
    let mut seen: Vec<u32> = whole.rows.iter().map(|row| row.thread).collect();
    seen.dedup();
    assert_eq!(seen.last(), Some(&0));
}

#[test]
fn the_file_grows_no_larger_than_asked() {
    let directory = directory("bytes");
    let said = directory.join("said");
    let program = compile(&directory, "long", "gcc", LONG);
    let begun = directory.join("begun");
    let mut options = options(&program, &[begun.to_str().unwrap(), said.to_str().unwrap()]);
    let whole = record(&directory, &options).summary;
    options.bytes_max = Some(whole.bytes / 4);
    fs::remove_file(&said).unwrap();
    let part = record(&directory, &options).summary;
    assert!(said.exists(), "the program ran to its end");
    assert!(part.bytes < whole.bytes * 3 / 4, "{} of {}", part.bytes, whole.bytes);
    let part = Whole::read(&part.path);
    assert!(!part.rows.is_empty());
}

#[test]
fn scripts_run_and_only_the_program_is_recorded_if_asked() {
    let directory = directory("script");
    let script = directory.join("script");
    fs::write(&script, "#!/bin/sh -e\n[ \"$1\" = one ]\n/bin/true\nexit 12\n").unwrap();
    make_executable(&script);
    let mut options = options(&script, &["one"]);
    let outcome = record(&directory, &options);
    assert_eq!(outcome.status, 12);
    let programs: Vec<usize> =
        outcome.processes.iter().map(|it| it.process.programs.len()).collect();
    assert_eq!(programs, [1, 2], "the shell, and its child, which executed another");
    options.follow = false;
    let outcome = record(&directory, &options);
    assert_eq!(outcome.status, 12);
    assert_eq!(outcome.processes.len(), 1);
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn signals_and_faults_that_are_handled() {
    let directory = directory("signals");
    let source = r#"
        #include <signal.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <sys/mman.h>
        #include <sys/time.h>
        static volatile long ticks;
        static void tick(int signal) { ticks++; }
        static void fault(int signal, siginfo_t *info, void *context) {
            mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, 3);
        }
        int main(int argc, char **argv) {
            struct sigaction action = {0};
            action.sa_sigaction = fault;
            action.sa_flags = SA_SIGINFO;
            sigaction(SIGSEGV, &action, 0);
            volatile char *p = mmap(0, 1000 * 4096, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 0; i < 1000; i++) p[4096 * i] = i;
            signal(SIGALRM, tick);
            struct itimerval every = {{0, 300}, {0, 300}};
            setitimer(ITIMER_REAL, &every, 0);
            double sums[64] = {0};
            while (ticks < 300) for (int i = 0; i < 64; i++) ((volatile double *)sums)[i] += i;
            every = (struct itimerval){0};
            setitimer(ITIMER_REAL, &every, 0);
            FILE *f = fopen(argv[1], "w");
            fprintf(f, "%lx", (long)p);
            return fclose(f);
        }"#;
    let program = compile(&directory, "signals", "gcc", source);
    let said = directory.join("said");
    let outcome = record(&directory, &options(&program, &[said.to_str().unwrap()]));
    assert_eq!(outcome.status, 0);
    let start = numbers(&said)[0];
    let whole = Whole::read(&outcome.summary.path);
    let expected: Vec<u64> = (0..1000).map(|i| start + 4096 * i).collect();
    assert_eq!(whole.addrs(Kind::Store, start, 1000 * 4096), expected);
    let faults = whole
        .events
        .iter()
        .filter(|(_, _, event)| {
            matches!(event, Event::Mprotect { addr, prot: 3, .. } if addr - start < 1000 * 4096)
        })
        .count();
    assert_eq!(faults, 1000);
}

/// Runs for about a second, then writes that it has ended.
const LONG: &str = r#"
    #include <stdio.h>
    static volatile long table[1 << 16];
    int main(int argc, char **argv) {
        FILE *begun = fopen(argv[1], "w");
        fclose(begun);
        for (long i = 0; i < 50000000; i++) table[i & 0xffff] += i;
        FILE *f = fopen(argv[2], "w");
        fprintf(f, "1");
        return fclose(f);
    }"#;

#[test]
fn a_recorder_that_is_killed_does_not_hold_up_the_program() {
    let directory = directory("orphan");
    let program = compile(&directory, "long", "gcc", LONG);
    let (begun, ended) = (directory.join("begun"), directory.join("ended"));
    // The recorder that is killed is this test program, with an argument that makes it run the
    // function below.
    let mut recorder = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::recorder_to_be_killed", "--ignored"])
        .env("PAGEWALK_TEST_PROGRAM", &program)
        .env("PAGEWALK_TEST_DIRECTORY", &directory)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&begun);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(!ended.exists(), "it was killed in between");
    wait_for(&ended);
}

#[test]
#[ignore = "the other half of a_recorder_that_is_killed_does_not_hold_up_the_program"]
fn recorder_to_be_killed() {
    let variable =
        |name| std::path::PathBuf::from(std::env::var_os(name).expect("set by the test"));
    let directory = variable("PAGEWALK_TEST_DIRECTORY");
    let path = |name| directory.join(name).to_string_lossy().into_owned();
    let arguments = [path("begun"), path("ended")];
    let arguments = [arguments[0].as_str(), arguments[1].as_str()];
    record(&directory, &options(&variable("PAGEWALK_TEST_PROGRAM"), &arguments));
}

fn wait_for(path: &Path) {
    let begin = std::time::Instant::now();
    while !path.exists() {
        assert!(begin.elapsed().as_secs() < 60, "{} does not come", path.display());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
