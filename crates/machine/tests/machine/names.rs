//! Tests that the results of a run have the names that a lookup function gives for code, sites and
//! regions.

use machine::{
    Machine, RunOptions,
    results::{CodePlace, FrameName, MissOrigins, RegionCounts, SiteCounts},
};
use trace::generate;

fn frame(function: &str, file: &str, line: u32) -> FrameName {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    FrameName { function: known(function), file: known(file), line: (line > 0).then_some(line) }
}

/// Code at an offset of a file, or without a file.
fn at(object: Option<&str>, offset: u64) -> CodePlace {
    CodePlace { object: object.map(str::to_owned), offset, ..CodePlace::default() }
}

#[test]
fn results_have_their_names_and_one_row_for_what_looks_the_same() {
    let machine = Machine::load("tlb-only", &[]).unwrap();
    let mut source = generate::parse("uniform,size=1M,accesses=10").unwrap();
    let options = RunOptions { check: false, progress: &mut |_| true };
    let mut results = machine.run(source.as_mut(), options).unwrap();
    let own = Some("/bin/own");
    let site = |offset| SiteCounts {
        stack: vec![at(own, offset)],
        misses: offset,
        ..SiteCounts::default()
    };
    results.origins = Some(MissOrigins {
        code: vec![at(own, 0x10), at(own, 0x18), at(None, 0x10), at(own, 0x20)],
        sites: vec![site(0x10), site(0x20), site(0x18), site(0x10)],
        misses: vec![
            (Some(2), 0, None, Some(1), 4096, 1, 0),
            (Some(0), 0, Some(0), Some(1), 4096, 5, 1),
            (Some(1), 0, Some(2), Some(1), 4096, 6, 2),
            (Some(1), 0, Some(2), Some(2), 4096, 7, 3),
            (Some(1), 0, Some(1), Some(1), 4096, 8, 3),
            (Some(1), 1, Some(2), Some(1), 4096, 9, 3),
            (Some(1), 0, Some(2), Some(1), 8192, 10, 3),
            (Some(3), 0, Some(3), Some(1), 4096, 2, 1),
            (Some(0), 0, Some(3), Some(1), 4096, 11, 4),
        ],
        notes: Vec::new(),
    });
    let region = results.regions[0].clone();
    let of = |site| RegionCounts { site, ..region.clone() };
    results.regions = vec![of(Some(0)), of(None), of(Some(2)), of(Some(3)), of(Some(1))];
    let inlined = [("pick", "pick.h", 7), ("choose", "choose.h", 8), ("fill", "table.c", 12)];
    results.name_origins(&mut |place, returns| match (place.object.as_deref(), place.offset) {
        (None, _) | (_, 0x20) => Vec::new(),
        // A return address is named by the call before it; other addresses are named as they are.
        _ if returns => vec![frame("reserve", "", 0), frame("fill", "table.c", 14)],
        _ => inlined.map(|(function, file, line)| frame(function, file, line)).to_vec(),
    });
    let origins = results.origins.unwrap();
    let fill = CodePlace {
        file: Some("pick.h".to_owned()),
        line: Some(7),
        function: Some("fill".to_owned()),
        inlined: vec!["choose".to_owned(), "pick".to_owned()],
        ..at(own, 0x10)
    };
    assert_eq!(origins.code, [fill, at(None, 0x10), at(own, 0x20)]);
    let names: Vec<_> = origins.sites.iter().map(|site| (&*site.name, site.misses)).collect();
    let fill = "fill (table.c:14)";
    assert_eq!(names, [(fill, 0x20), ("own+0x20", 0x20), (fill, 0x18)]);
    let calls = [&origins.sites[0].stack[0], &origins.sites[0].stack[1]];
    assert_eq!(calls.map(|call| (call.offset, call.line)), [(0x10, None), (0x10, Some(14))]);
    assert_eq!(
        origins.misses,
        [
            (Some(0), 0, Some(0), Some(1), 4096, 16, 5),
            (Some(0), 0, Some(2), Some(1), 8192, 10, 3),
            (Some(0), 1, Some(2), Some(1), 4096, 9, 3),
            (Some(0), 0, Some(1), Some(1), 4096, 8, 3),
            (Some(0), 0, Some(2), Some(2), 4096, 7, 3),
            (Some(0), 0, Some(2), Some(1), 4096, 6, 2),
            (Some(2), 0, Some(0), Some(1), 4096, 2, 1),
            (Some(1), 0, None, Some(1), 4096, 1, 0),
        ]
    );
    let regions: Vec<_> = results.regions.iter().map(|it| (it.name.as_str(), it.site)).collect();
    let again = "fill (table.c:14) 2";
    let unnamed = (region.name.as_str(), None);
    let rest = [(fill, Some(2)), (again, Some(0)), ("own+0x20", Some(1))];
    assert_eq!(regions, [&[(fill, Some(0)), unnamed][..], &rest].concat());
}
