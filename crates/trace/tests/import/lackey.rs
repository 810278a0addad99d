use trace::import::{Fetches, Options};

use crate::support::*;

const TEXT: &str = "\
==9902== Lackey, an example Valgrind tool
==9902==\x20
I  0401ab70,3
I  0401ab73,5
 S 1fff000748,8
I  0401b770,1
 M 1fff000740,4
I  0401b771,7
 L 0000000000000010,16

==9902== Exit code:       0
";

#[test]
fn instructions_that_follow_each_other_are_one_row() {
    let given = import(TEXT.as_bytes(), &Options::default()).unwrap();
    assert_eq!(
        given.rows,
        [
            (0, F, 0x401_ab70, 8, 1),
            (0, S, 0x1f_ff00_0748, 8, 1),
            (0, F, 0x401_b770, 8, 1),
            (0, L, 0x1f_ff00_0740, 4, 0),
            (0, S, 0x1f_ff00_0740, 4, 0),
            (0, L, 0x10, 16, 1),
        ]
    );
    assert_eq!(given.instructions(), 4);
    assert!(given.warnings.is_empty() && given.events.is_empty());
    assert!(given.notes[0].contains("lackey"), "{:?}", given.notes);
}

#[test]
fn instructions_can_be_rows_of_their_own_or_none() {
    let rows =
        |fetches| import(TEXT.as_bytes(), &Options { fetches, ..Options::default() }).unwrap().rows;
    assert_eq!(
        rows(Fetches::Instructions)
            .iter()
            .filter(|row| row.1 == F)
            .map(|row| (row.2, row.3, row.4))
            .collect::<Vec<_>>(),
        [(0x401_ab70, 3, 1), (0x401_ab73, 5, 1), (0x401_b770, 1, 1), (0x401_b771, 7, 1)]
    );
    assert_eq!(
        rows(Fetches::None),
        [
            (0, S, 0x1f_ff00_0748, 8, 2),
            (0, L, 0x1f_ff00_0740, 4, 1),
            (0, S, 0x1f_ff00_0740, 4, 0),
            (0, L, 0x10, 16, 1),
        ]
    );
}

/// A superblock can be entered from anywhere, so it begins a row of its own.
#[test]
fn superblocks_begin_blocks() {
    let text = b"==1== Lackey, an example Valgrind tool\nSB 00400000\nI  00400000,3\n L 1ffe50,8\n\
        I  00400003,3\nSB 00400006\nI  00400006,3\n==1== \n";
    let given = import(text, &Options::default()).unwrap();
    assert_eq!(
        given.rows,
        [(0, F, 0x40_0000, 6, 1), (0, L, 0x1f_fe50, 8, 0), (0, F, 0x40_0006, 3, 2)]
    );
    assert_eq!(given.instructions(), 3);
}

#[test]
fn blanks_at_the_ends_of_lines_are_nothing() {
    let given = import(b" L 10,4 \n S 18,4\t\r\n L 20,4\n", &Options::default()).unwrap();
    assert_eq!(given.rows, [(0, L, 0x10, 4, 0), (0, S, 0x18, 4, 0), (0, L, 0x20, 4, 0)]);
}

/// Before the first access, a log may have more lines of messages than the detection of formats
/// reads.
#[test]
fn a_log_without_accesses_is_named() {
    let no = Options::default();
    let lackey = "==1== Lackey, an example Valgrind tool\n==1== Command: ./a\n";
    let counts = "==1== Counted 1 call to main()\n==1==   total:         10\n";
    for text in [format!("{lackey}{counts}"), format!("{lackey}SB 00400000\n{counts}")] {
        refused(text.as_bytes(), &no, "lackey without accesses: --trace-mem=yes was not given");
    }
    refused(b"==1== Memcheck\n==1== \n", &no, "--tool=lackey --trace-mem=yes");
    let late = format!("{lackey}{}I  1000,4\n", counts.repeat(500));
    assert_eq!(import(late.as_bytes(), &no).unwrap().rows, [(0, F, 0x1000, 4, 1)]);
}

#[test]
fn a_last_line_needs_no_end_and_trailing_instructions_are_counted() {
    let given = import(b"I  1000,4\n L 20,8\nI  1004,4\nI  1008,2", &Options::default()).unwrap();
    assert_eq!(given.rows, [(0, F, 0x1000, 10, 1), (0, L, 0x20, 8, 0)]);
    assert_eq!(given.instructions(), 3);
}

#[test]
fn foreign_lines_are_an_error_or_left_out() {
    let text = b"I  1000,4\nhello\n L 20,8\n";
    assert_eq!(refused(text, &Options::default(), "`hello` is not a line of lackey;"), Some(10));
    let given = import(text, &Options { keep_going: true, ..Options::default() }).unwrap();
    assert_eq!(given.rows, [(0, F, 0x1000, 4, 1), (0, L, 0x20, 8, 0)]);
    assert_eq!(given.warnings, ["1 line is not lackey's: left out"]);
}

#[test]
fn a_cut_last_line_is_told_from_a_foreign_one() {
    let text = b"I  1000,4\n L 2";
    assert_eq!(refused(text, &Options::default(), "within a record (4 bytes"), Some(10));
    let given = import(text, &Options { keep_going: true, ..Options::default() }).unwrap();
    assert_eq!(given.rows, [(0, F, 0x1000, 4, 1)]);
    assert!(given.warnings[0].contains("it is truncated"), "{:?}", given.warnings);
}

#[test]
fn a_line_without_end_is_an_error() {
    let mut text = b"I  1000,4\n==".to_vec();
    text.resize(1 << 20, b'x');
    assert_eq!(refused(&text, &Options::default(), "a record that is too long"), Some(10));
}

/// Compares random lines, more than a batch holds, with a simple model of their import.
#[test]
fn what_was_written_comes_out() {
    seeded(3, |random| {
        let (mut text, mut expected) = (String::new(), Vec::new());
        let mut instructions = 0u32;
        let mut pc = 0x40_0000;
        for _ in 0..150_000 {
            let (addr, size) = (random.next() >> 16, 1 << random.below(6));
            match random.below(4) {
                0 => {
                    pc = if random.below(5) == 0 { random.below(1 << 47) } else { pc + 4 };
                    text += &format!("I  {pc:08x},4\n");
                    instructions += 1;
                    expected.push((0, F, pc, 4, 1));
                    continue;
                }
                1 => {
                    text += &format!(" L {addr:08x},{size}\n");
                    expected.push((0, L, addr, size, 0));
                }
                2 => {
                    text += &format!(" S {addr:08X},{size}\r\n");
                    expected.push((0, S, addr, size, 0));
                }
                _ => {
                    text += &format!(" M {addr:016x},{size}\n");
                    expected.extend([(0, L, addr, size, 0), (0, S, addr, size, 0)]);
                }
            }
        }
        let bytes = text.as_bytes();
        let single = Options { fetches: Fetches::Instructions, ..Options::default() };
        same(&import(bytes, &single).unwrap().rows, &expected, "rows");

        let blocks = import(bytes, &Options::default()).unwrap();
        assert_eq!(blocks.instructions(), u64::from(instructions));
        let data: Vec<_> = expected.iter().filter(|row| row.1 != F).copied().collect();
        let data: Vec<_> = data.iter().map(|r| (r.0, r.1, r.2, r.3)).collect();
        same(&blocks.data(), &data, "accesses");
        let bytes_of = |rows: &[Row]| -> u64 {
            rows.iter().filter(|row| row.1 == F).map(|row| u64::from(row.3)).sum()
        };
        assert_eq!(bytes_of(&blocks.rows), bytes_of(&expected));
        assert!(blocks.count(F) < instructions as usize / 2);
    });
}

/// Compares the counts of instructions, loads and stores with those of Valgrind itself.
#[test]
fn the_counts_are_valgrinds_own() {
    use std::process::Command;
    let folder = std::env::temp_dir().join(format!("pagewalk-lackey-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (lines, counts) = (folder.join("lines"), folder.join("counts"));
    let run = |tool: &[&str], log: &std::path::Path| {
        let status = Command::new("valgrind")
            .args(["--tool=lackey", "--basic-counts=yes"])
            .args(tool)
            .arg(format!("--log-file={}", log.display()))
            .args(["/bin/sh", "-c", "exit 0"])
            .status();
        status.is_ok_and(|status| status.success())
    };
    let traced = run(&["--trace-mem=yes"], &lines);
    assert!(traced, "Valgrind is missing or fails: `make tools` installs it");
    assert!(run(&["--detailed-counts=yes"], &counts));
    let path = lines.display().to_string();
    let mut source = trace::open(&path, &Options::default()).unwrap();
    let info = trace::info(source.as_mut(), &mut |_| true).unwrap();
    let number = |word: &str| word.replace(',', "").parse::<u64>().ok();
    let own = std::fs::read_to_string(&lines).unwrap();
    let own = own.lines().find_map(|line| number(line.split_once("guest instrs:")?.1.trim()));
    // The instructions after the last access are counted by no row.
    assert_eq!(Some(info.instructions + info.missing.instructions), own);
    assert!(info.missing.instructions < 1000 && info.warnings.is_empty());
    // The table has a line a type: loads, stores, operations. A few accesses of atomic
    // instructions are counted there as something else.
    let (mut loads, mut stores) = (0, 0);
    for line in std::fs::read_to_string(&counts).unwrap().lines() {
        let numbers: Vec<u64> = line.split_whitespace().skip(2).filter_map(number).collect();
        if let [load, store, _] = numbers[..] {
            (loads, stores) = (loads + load, stores + store);
        }
    }
    for (ours, theirs) in [(info.accesses.load, loads), (info.accesses.store, stores)] {
        assert!(theirs > 1000 && ours.abs_diff(theirs) * 1000 < theirs, "{ours} {theirs}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
