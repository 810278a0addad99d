//! Tests each part of naming code, sites and regions, with a `find` function of the tests.

use super::*;

fn place(function: &str, file: &str, line: u32) -> CodePlace {
    CodePlace {
        object: Some("/bin/own".to_owned()),
        offset: 0x1234,
        function: (!function.is_empty()).then(|| function.to_owned()),
        file: (!file.is_empty()).then(|| file.to_owned()),
        line: (line > 0).then_some(line),
        ..CodePlace::default()
    }
}

fn frame(function: &str, file: &str, line: u32) -> FrameName {
    let CodePlace { function, file, line, .. } = place(function, file, line);
    FrameName { function, file, line }
}

/// Code at an offset in a program, or in no file.
fn at(object: Option<&str>, offset: u64) -> CodePlace {
    CodePlace { object: object.map(str::to_owned), offset, ..CodePlace::default() }
}

#[test]
fn a_site_is_called_by_the_innermost_call_in_the_programs_own_sources() {
    let own = place("fill", "/home/own/table.cc", 12);
    let main = place("main", "/home/own/main.cc", 3);
    let library = place("std::vector<int>::grow", "/usr/include/c++/12/bits/vector.h", 7);
    for folder in
        ["/usr/include/bits", "/usr/lib/rust/src", "/rustc/1a2b/core", "/opt/include/c++/13"]
    {
        let others = place("grow", &format!("{folder}/alloc.h"), 7);
        let stack = [others, own.clone(), main.clone()];
        assert_eq!(site_name(&stack), "fill (table.cc:12)", "{folder}");
    }
    for (stack, expected) in [
        (vec![library], "std::vector<int>::grow (vector.h:7)"),
        (vec![place("", "", 0), place("grow", "", 0)], "grow (own)"),
        (vec![place("", "", 0)], "own+0x1234"),
        (vec![at(None, 0x77)], "code of no file+0x77"),
        (vec![], "an unknown caller"),
    ] {
        assert_eq!(site_name(&stack), expected);
    }
    // The innermost of the functions that were inlined into the function of the symbol.
    let inlined = CodePlace { inlined: vec!["choose".to_owned(), "pick".to_owned()], ..own };
    assert_eq!(code_name(&inlined), "pick (table.cc:12)");
}

/// Places that differ in any value that is shown are not merged.
#[test]
fn equal_places_are_joined() {
    let mut code = vec![place("a", "a.c", 1), place("b", "b.c", 2), place("a", "a.c", 1)];
    (code[0].offset, code[0].instruction) = (0x2000, 1);
    code[2].instruction = 5;
    assert_eq!(join_code(&mut code), [0, 1, 0]);
    assert_eq!((code.len(), code[0].offset, code[0].instruction), (2, 0x1234, 5));

    let one = place("a", "a.c", 1);
    let text = || Some("other".to_owned());
    for other in [
        CodePlace { object: text(), ..one.clone() },
        CodePlace { identity: text(), ..one.clone() },
        CodePlace { function: text(), ..one.clone() },
        CodePlace { inlined: vec!["other".to_owned()], ..one.clone() },
        CodePlace { file: text(), ..one.clone() },
        CodePlace { line: Some(2), ..one.clone() },
    ] {
        assert_eq!(join_code(&mut vec![one.clone(), other.clone()]), [0, 1], "{other:?}");
    }
    // If code belongs to no file, only its address is known.
    let further = CodePlace { instruction: 1, ..at(None, 7) };
    let mut of_no_file = vec![at(None, 7), at(None, 8), further, at(None, 7)];
    assert_eq!(join_code(&mut of_no_file), [0, 1, 2, 0]);
}

#[test]
fn equal_sites_are_joined_and_the_worst_come_first() {
    let site = |function, count| SiteCounts {
        stack: vec![place(function, "a.c", 1)],
        allocations: count,
        bytes: 100 * count,
        peak_bytes: 10 * count,
        misses: 3 * count,
        cold_misses: 2 * count,
        ..SiteCounts::default()
    };
    let large = SiteCounts { peak_bytes: 1000, ..site("large", 4) };
    let mut sites = vec![site("a", 1), site("small", 4), large, site("a", 2), site("b", 5)];
    assert_eq!(join_sites(&mut sites), [3, 2, 1, 3, 0]);
    assert_eq!(sites[3], site("a", 3));
    let order: Vec<_> = sites.iter().map(|site| (site.misses, site.peak_bytes)).collect();
    assert_eq!(order, [(15, 50), (12, 1000), (12, 40), (9, 30)]);
}

/// Regions are numbered from the lowest address of the first space on, whatever their order in the list.
#[test]
fn regions_are_named_by_their_sites() {
    let call = |offset| SiteCall {
        file: Some(trace::MappedFile {
            path: "/bin/own".to_owned(),
            identity: Some("crc32 1".to_owned()),
        }),
        offset,
    };
    let region = |name: &str, space, start, site| RegionInfo {
        name: name.to_owned(),
        start,
        bytes: 4096,
        rights: "rw-".to_owned(),
        inferred: false,
        accesses: trace::ByKind::default(),
        pages: 0,
        space,
        resident_bytes: None,
        site,
    };
    let known = || vec![call(0x10), call(0x20)];
    let mut regions = [
        region("third", 1, 0x1000, known()),
        region("heap", 0, 0x3000, Vec::new()),
        region("second", 0, 0x2000, known()),
        region("first", 0, 0x1000, known()),
        region("other", 0, 0x500, vec![call(0x20)]),
        region("nameless", 0, 0x400, vec![SiteCall { file: None, offset: 0x77 }]),
    ];
    name_regions(&mut regions, &mut |place, returns| {
        let from_own = place.object.as_deref() == Some("/bin/own")
            && place.identity.as_deref() == Some("crc32 1");
        match place.offset {
            0x10 if from_own && returns => vec![frame("fill", "table.c", 12)],
            _ => Vec::new(),
        }
    });
    let names = regions.map(|region| region.name);
    let fill = ["fill (table.c:12) 3", "heap", "fill (table.c:12) 2", "fill (table.c:12)"];
    assert_eq!(names[..4], fill);
    assert_eq!(names[4..], ["own+0x20", "code of no file+0x77"]);
}
