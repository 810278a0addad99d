//! Tests of skeletons of programs: a written skeleton is read without changes, and a damaged
//! skeleton is refused.

use smp::{KENBUS, skeleton::parse};

const TEXT: &str = "pagewalk-skeleton 1\nfile 0 sh\nfile 1 ls\nprocess 0 own sh -c\nm 400 2 5 f0+0\nm 500 10 3 a\n\
    t 400 1 x\nw 5200\nt 500 3 w\np 500 1 1\nd 501 1\nv 500 10 900 20\nf 1\nu 400 2\n\
    process 1 parent's ls\nt 500 1 w\ne\nm 400 1 5 g1+1f\nend 18\n";

#[test]
fn what_is_written_is_read() {
    let skeleton = parse(TEXT).unwrap();
    assert_eq!(skeleton.to_string(), TEXT);
    assert_eq!((skeleton.steps(), skeleton.instructions()), (13, 5200));
}

#[test]
fn a_skeleton_that_was_cut_or_changed_is_refused() {
    let head = TEXT.find('\n').unwrap();
    for end in 0..TEXT.len() - 1 {
        let error = parse(&TEXT[..end]).unwrap_err();
        assert!(!error.contains('\n'), "{error}");
        assert!(end < head || error.starts_with("the skeleton is truncated"), "{error}");
    }
    let without = TEXT.replace("w 5200\n", "");
    assert!(parse(&without).unwrap_err().contains("17 lines, but its last line says 18"));
    for (line, wrong) in [
        ("f 1", "f 0"),
        ("f 1", "f 7"),
        ("t 400 1 x", "t 400 0 x"),
        ("t 400 1 x", "t 400 1 q"),
        ("m 500 10 3 a", "m 500 ffffffffffff 3 a"),
        ("m 400 2 5 f0+0", "m 400 2 9 f0+0"),
        ("process 1", "process 2"),
        ("file 1", "file 2"),
        ("g1+1f", "g2+1f"),
    ] {
        let error = parse(&TEXT.replacen(line, wrong, 1)).unwrap_err();
        assert!(!error.contains('\n'), "{error}");
    }
    assert!(parse("#!/bin/sh\n").unwrap_err().contains("not a skeleton"));
}

#[test]
fn each_command_has_a_skeleton_of_a_few_kilobytes_per_process() {
    for (name, text) in KENBUS {
        let skeleton = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let bytes = text.len() / skeleton.processes.len();
        assert!(bytes < 20 << 10, "{name}: {bytes} bytes per process");
    }
}
