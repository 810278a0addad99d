//! Tests a disk that becomes full while a program is recorded.
//!
//! This test is a program of its own, because it simulates the full disk by a limit on file sizes,
//! which holds for the whole process.

#[path = "capture/common/mod.rs"]
mod common;

use std::fs;

use capture::Error;
use common::{In, compile, directory, native, options};

#[test]
fn the_program_runs_to_its_end_and_what_was_written_stays() {
    fills_up(("disk", options));
    fills_up(("disk_native", native));
}

fn fills_up((name, options): In) {
    let directory = directory(name);
    let source = r#"
        #include <stdio.h>
        static volatile long table[1 << 20];
        int main(int argc, char **argv) {
            unsigned long x = 1;
            for (int i = 0; i < 30000000; i++) {
                x = x * 6364136223846793005ul + 1442695040888963407ul;
                table[x >> 44] = i;
            }
            FILE *f = fopen(argv[1], "w");
            fputs("1", f);
            return fclose(f) + 6;
        }"#;
    let program = compile(&directory, "long", "gcc", source);
    let said = directory.join("said");
    let arguments = [said.to_str().unwrap()];
    let options = options(&program, &arguments);
    let output = directory.join("out.pwt");
    let mut is_limited = false;
    let mut progress = |_: &capture::Progress| {
        if !std::mem::replace(&mut is_limited, true) {
            let limit = libc::rlimit { rlim_cur: 8 << 20, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: the calls take no pointers that outlive them. The signal is ignored, so that
            // the write fails instead of ending this process.
            unsafe {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
            }
        }
    };
    let error = capture::record(&options, &output, &trace::Options::default(), &mut progress)
        .expect_err("there is no room");
    // SAFETY: the call gets a pointer only to a local value.
    unsafe {
        let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &none), 0);
    }
    let Error::Trace { status, .. } = &error else { panic!("{error}") };
    assert_eq!(*status, 6, "{error}");
    assert!(said.exists(), "the program ran to its end");
    assert!(error.to_string().contains("out.pwt"), "{error}");
    assert!(error.to_string().contains("out.pwt.part"), "{error}");
    let left = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("out")).collect();
    assert_eq!(left, ["out.pwt.part"]);
    let reader = trace::Reader::open(&directory.join("out.pwt.part")).expect("it is read");
    assert!(reader.cut_at().is_some() && reader.accesses() > 1_000_000);
}
