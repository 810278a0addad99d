use trace::Event;
use trace::import::{ColumnSource, Columns, Options};

use crate::support::*;

fn named(pairs: &[(&str, &str)]) -> Options {
    let columns = pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    Options { columns, ..Options::default() }
}

#[test]
fn only_addresses_are_needed() {
    let given = import(b"addr\n0x10\n17\n\n0xfFfFfFfFfFfFfFfF", &Options::default()).unwrap();
    assert_eq!(given.rows, [(0, L, 16, 1, 0), (0, L, 17, 1, 0), (0, L, u64::MAX, 1, 0)]);
    assert!(given.paddr.is_empty() && given.events.is_empty());
}

#[test]
fn every_column_is_taken_in_any_order_and_others_are_left_out() {
    let text = b"\xef\xbb\xbf\"kind\"; size;what ;addr;thread;paddr;instrs\r\n\
        fetch;4;x;0x1000;77;0x9000;3\r\n\
        \"load\";8;y;0x2000;77;0;0\r\n\
        2;16383;;0x3000;70;0xb000;70000\r\n";
    let given = import(text, &Options::default()).unwrap();
    assert_eq!(
        given.rows,
        [(0, F, 0x1000, 4, 3), (0, L, 0x2000, 8, 0), (1, S, 0x3000, 16383, 65535)]
    );
    assert_eq!(given.paddr, [0x9000, 0, 0xb000]);
    assert_eq!(
        given.events,
        [
            (0, 0, Event::ThreadStart { tid: 77 }),
            (2, 1, Event::ThreadStart { tid: 70 }),
            (2, 1, Event::Gap { accesses: 0, instructions: 70000 - 65535 }),
        ]
    );
}

#[test]
fn columns_may_have_other_names() {
    let given =
        import(b"vaddr\trw\n0x10\tstore\n", &named(&[("addr", "vaddr"), ("kind", "rw")])).unwrap();
    assert_eq!(given.rows, [(0, S, 16, 1, 0)]);
}

#[test]
fn kinds_may_be_letters_or_words_in_any_case() {
    let text = b"addr,kind\n1,R\n2,W\n3,read\n4,Write\n5,r\n6,w\n7,LOAD\n8,Store\n9,I\n10,0\n";
    let given = import(text, &Options::default()).unwrap();
    let kinds: Vec<_> = given.rows.iter().map(|row| row.1).collect();
    assert_eq!(kinds, [L, S, L, S, L, S, L, S, F, F]);
}

/// If the first line has values, it is an access. The columns are recognised, or given by their
/// numbers.
#[test]
fn a_table_may_have_no_line_of_names() {
    let rows = |text: &str, options: &Options| import(text.as_bytes(), options).map(|it| it.rows);
    let no = Options::default();
    let both = [(0, L, 0x1000, 1, 0), (0, S, 0x2000, 1, 0)];
    for text in
        ["0x1000,R\n0x2000,W\n", "read;4096\r\nwrite;8192\r\n", "\u{feff}load\t4096\nstore\t8192"]
    {
        assert_eq!(rows(text, &no).unwrap(), both, "{text:?}");
    }
    assert_eq!(rows("0x1000\n8192", &no).unwrap(), [(0, L, 0x1000, 1, 0), (0, L, 0x2000, 1, 0)]);
    let by_number = named(&[("addr", "2"), ("size", "1"), ("thread", "4")]);
    assert_eq!(rows("8,0x1000,store,7\n", &by_number).unwrap(), [(0, S, 0x1000, 8, 0)]);
    let error = rows("0x1000,8\n", &no).unwrap_err().to_string();
    assert!(
        error.contains("the numbers of the columns") && error.contains("`0x1000,8`"),
        "{error}"
    );
    let error = rows("0x1000,R\nx,W\n", &no).unwrap_err().to_string();
    assert!(error.contains("line 2: `x` is not a number"), "{error}");
    refused(b"0x1000,R\n", &named(&[("addr", "3")]), "the numbers of the columns");
    refused(b"0x1000,8\n", &named(&[("addr", "1"), ("size", "3")]), "--column size=3: no column");
}

/// An option gives the instruction set of a table, which determines the tags in its addresses.
#[test]
fn tags_leave_a_table_of_aarch64() {
    let text = b"addr\n0x0700000040001000\n0xf400ffff00002000\n0xf0ff800000002000\n";
    let tagged = [0x0700_0000_4000_1000, 0xf400_ffff_0000_2000, 0xf0ff_8000_0000_2000];
    let addrs = |arch| -> Vec<u64> {
        let given = import(text, &Options { arch, ..Options::default() }).unwrap();
        let mut columns = Some(Columns { addr: tagged.to_vec(), ..Columns::default() });
        let mut source = ColumnSource::new("parquet", false, || Ok(columns.take())).with_arch(arch);
        assert_eq!(drain(&mut source).unwrap().rows, given.rows);
        given.rows.iter().map(|row| row.2).collect()
    };
    let plain = [0x4000_1000, 0xffff_0000_2000, 0xffff_8000_0000_2000];
    assert_eq!(addrs(Some(trace::Arch::Aarch64)), plain);
    assert_eq!(addrs(Some(trace::Arch::X86_64)), tagged);
    assert_eq!(addrs(None), tagged);
}

#[test]
fn fetches_without_counts_are_an_instruction_each() {
    let given = import(b"addr,kind\n1,0\n2,1\n3,0\n", &Options::default()).unwrap();
    assert_eq!(given.instructions(), 2);
}

#[test]
fn wrong_tables_are_refused_with_line_and_byte() {
    let no = Options::default();
    for (text, part, at) in [
        ("vaddr,size\n1,2\n", "`addr`; the first line names vaddr, size", 0),
        ("addr,size,addr\n1,2,3\n", "two columns are called `addr`", 0),
        ("addr,size\n1,2\n5\n", "line 3: fewer fields", 14),
        ("addr,size\n1,2\n5,6,7\n", "line 3: more fields", 18),
        ("addr,size\n1,\n", "line 2: `` is not a number", 12),
        ("addr,size\n1,0\n", "line 2: size 0", 10),
        ("addr,size\n1,16384\n", "line 2: size 16384", 10),
        ("addr,kind\n1,jump\n", "line 2: `jump` is unknown: it must be fetch, load, store", 12),
        ("addr,kind\n1,3\n", "kind 3", 10),
        ("addr\n0x12345678901234567\n", "is not a number", 5),
        ("addr\n-1\n", "is not a number", 5),
    ] {
        assert_eq!(refused(text.as_bytes(), &no, part), Some(at), "{text:?}");
    }
    refused(b"addr\n1\n", &named(&[("size", "bytes")]), "--column size=bytes");
    refused(b"addr\n1\n", &named(&[("length", "bytes")]), "the columns of a trace are addr, size");
}

#[test]
fn what_is_whole_before_a_wrong_line_is_kept_if_asked() {
    let keep = Options { keep_going: true, ..Options::default() };
    let given = import(b"addr\n1\n2\nx\n3\n", &keep).unwrap();
    assert_eq!(given.rows, [(0, L, 1, 1, 0), (0, L, 2, 1, 0)]);
    assert!(given.warnings[0].contains("line 4"), "{:?}", given.warnings);
}

#[test]
fn columns_from_outside_give_the_same_rows_in_any_portions() {
    seeded(4, |random| {
        let count = 200_000;
        let column = |random: &mut Random, bound: u64| -> Vec<u64> {
            (0..count).map(|_| random.below(bound)).collect()
        };
        let addr = column(random, u64::MAX);
        let size: Vec<u64> = column(random, 64).iter().map(|size| size + 1).collect();
        let (kind, thread) = (column(random, 3), column(random, 4));
        let (paddr, instrs) = (column(random, 1 << 40), column(random, 9));
        let mut text = "addr,size,kind,thread,paddr,instrs\n".to_owned();
        for i in 0..count {
            let (a, s, k, t, p, n) = (addr[i], size[i], kind[i], thread[i], paddr[i], instrs[i]);
            text += &format!("{a:#x},{s},{k},{t},{p},{n}\n");
        }
        let mut at = 0;
        let seed = random.next();
        let mut portions = Random(seed);
        let mut source = ColumnSource::new("parquet", true, || {
            let end = count.min(at + portions.below(100_000) as usize);
            let part = |column: &[u64]| column[at..end].to_vec();
            let columns = Columns {
                addr: part(&addr),
                size: part(&size),
                kind: part(&kind),
                thread: part(&thread),
                paddr: part(&paddr),
                instrs: part(&instrs),
            };
            let done = at == count;
            at = end;
            Ok((!done).then_some(columns))
        });
        let (columns, csv) =
            (drain(&mut source).unwrap(), import(text.as_bytes(), &Options::default()).unwrap());
        assert_eq!(columns.rows.len(), count);
        same(&columns.rows, &csv.rows, "rows");
        same(&columns.paddr, &csv.paddr, "physical addresses");
        same(&columns.events, &csv.events, "events");
    });
}

#[test]
fn columns_of_different_lengths_are_refused() {
    let mut given = Some(Columns { addr: vec![1, 2], size: vec![8], ..Columns::default() });
    let mut source = ColumnSource::new("parquet", false, || Ok(given.take()));
    let error = drain(&mut source).unwrap_err().to_string();
    assert!(error.contains("`size` has 1 rows and `addr` has 2"), "{error}");
}

#[test]
fn a_damaged_table_is_kept_as_far_as_it_goes_if_asked() {
    for keep in [false, true] {
        let mut given = vec![
            Err(trace::Error::Parameters("the table is damaged".to_owned())),
            Ok(Some(Columns { addr: vec![1, 2], ..Columns::default() })),
        ];
        let pull = || given.pop().unwrap_or(Ok(None));
        let mut source = ColumnSource::new("parquet", false, pull).keep_going(keep);
        match drain(&mut source) {
            Ok(kept) => {
                assert_eq!(kept.rows, [(0, L, 1, 1, 0), (0, L, 2, 1, 0)]);
                assert_eq!(kept.warnings, ["the table is damaged; the part before it is kept"]);
                assert!(keep);
            }
            Err(error) => assert!(!keep && error.to_string().contains("damaged")),
        }
    }
}
