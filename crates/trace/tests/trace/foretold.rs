//! A trace with translations can be read twice at the same time.

use trace::{
    Batch, Bounds, Event, KnownSizes, Options, Reader, Seen, Source, Translation, When, Window,
    Writer,
};

use crate::common::{Rows, Script, header};

/// A trace of 60 blocks, with a snapshot after every ten if it is `translated`.
fn written(name: &str, translated: bool) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("pagewalk-{}-{name}.pwt", std::process::id()));
    let options = Options { overwrite: true, chunk_accesses: 7, ..Options::default() };
    let mut writer = Writer::create(&path, header(), options).unwrap();
    let shapes =
        vec![trace::Shape { pc: 64, bytes: 4, instructions: 1, fetch: true, ops: Vec::new() }];
    for round in 0..6 {
        let calls = (0..10).map(|_| crate::common::Call::Execute(0, vec![0])).collect();
        Script { shapes: shapes.clone(), calls }.play(&mut writer).unwrap();
        if translated {
            let event = Event::Snapshot { when: When::Interval, sizes: KnownSizes::All };
            trace::Sink::event(&mut writer, 0, event).unwrap();
            let found = Translation::base(Seen::Snapshot, round << 12);
            trace::Sink::event(&mut writer, 0, Event::Translation(Box::new(found))).unwrap();
        }
    }
    writer.finish().unwrap();
    path
}

#[test]
fn translations_can_be_read_ahead() {
    let path = written("foretold", true);
    let whole = Rows::of(&mut Reader::open(&path).unwrap(), 0).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let mut batch = Batch::default();
    reader.next(&mut batch).unwrap();
    let mut foretold = reader.foretold().unwrap();
    assert_eq!(Rows::of(&mut *foretold, 0).unwrap(), whole);
    // A part of the trace and a window of this part are read.
    let mut part = Reader::open(&path).unwrap().range(15..35).unwrap();
    let mut foretold = part.foretold().unwrap();
    assert_eq!(Rows::of(&mut *foretold, 15).unwrap(), whole.part(15, 35));
    assert_eq!(Rows::of(&mut part, 15).unwrap(), whole.part(15, 35));
    let bounds = Bounds { skip: 20, ..Bounds::default() };
    let window = Window::new(Box::new(Reader::open(&path).unwrap()) as Box<dyn Source>, bounds);
    let mut foretold = window.foretold().unwrap();
    assert_eq!(Rows::of(&mut *foretold, 0).unwrap().events, whole.events);
    std::fs::remove_file(path).unwrap();
    let path = written("plain", false);
    assert!(Reader::open(&path).unwrap().foretold().is_none());
    std::fs::remove_file(path).unwrap();
}
