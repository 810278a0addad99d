//! Tests options for reading a trace that are given as a document.

use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};
use trace::import::{Fetches, Format, Interleave, Options};

fn document() -> Value {
    json!({
        "format": "lackey", "keep_going": true, "fetches": "instructions", "arch": null,
        "columns": [["addr", "vaddr"]], "interleave": "schedule", "v2p": {"Unix": [47, 255]},
        "process": "cc1", "no_fetch": true, "spread": 2097152, "kernel": null, "physical": false,
        "bounds": {"skip": 1, "warmup": 2, "max_accesses": 3},
    })
}

fn read(document: Value) -> Result<Options, String> {
    serde_json::from_value(document).map_err(|error| error.to_string())
}

#[test]
fn every_key_is_read_and_a_path_need_not_be_text() {
    let options = read(document()).unwrap();
    assert_eq!(options.format, Some(Format::Lackey));
    assert_eq!(options.v2p.unwrap().as_os_str().as_bytes(), b"/\xff");
    assert_eq!(
        (options.fetches, options.interleave),
        (Fetches::Instructions, Interleave::Schedule)
    );
    assert_eq!(options.columns, [("addr".to_owned(), "vaddr".to_owned())]);
    assert!(options.keep_going && options.data_only);
    let bounds = options.bounds;
    assert_eq!((bounds.skip, bounds.warmup, bounds.accesses_max), (1, 2, Some(3)));
}

#[test]
fn what_is_wrong_is_named() {
    for (key, value, complaint) in [
        ("format", json!("pdf"), "`pdf` is not a format; the formats are pagewalk"),
        ("fetches", json!("some"), "fetches: unknown variant `some`, expected one of `blocks`"),
        ("interleave", json!("none"), "interleave: unknown variant `none`"),
        ("colour", json!(1), "unknown field `colour`"),
    ] {
        let mut wrong = document();
        wrong[key] = value;
        let said = read(wrong).unwrap_err();
        assert!(said.starts_with(complaint), "{said}");
    }
}
