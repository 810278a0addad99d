//! Tests of programs that gcc compiles from C and C++: with and without debugging information,
//! stripped, and with separate debug files.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSegment, ObjectSymbol};
use symbols::{Frame, Spot, Symbols, identity};

const PROGRAM: &str = "\
int table[4096];
static inline __attribute__((always_inline)) int pick(int at)
{
    return table[at & 4095];
}
__attribute__((noinline)) int work(int at)
{
    int x = pick(at);
    return x + 1;
}
int main(int argc, char **argv)
{
    (void)argv;
    return work(argc);
}
";

/// Makes a folder for this test, and compiles a program in it. Returns the path of the program.
fn compiled(name: &str, compiler: &str, source: &str, options: &[&str]) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("pagewalk-symbols-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(if compiler == "g++" { "work.cc" } else { "work.c" });
    std::fs::write(&file, source).unwrap();
    let program = folder.join("work");
    run(Command::new(compiler).args(options).arg("-o").arg(&program).arg(&file));
    program
}

fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The offset in the file at which the function `name` begins.
fn offset_of(program: &Path, name: &str) -> u64 {
    let contents = std::fs::read(program).unwrap();
    let file = object::File::parse(&*contents).unwrap();
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
    let segments = file.segments();
    let holds = |it: &object::Segment<'_, '_>| {
        (it.address()..it.address() + it.size()).contains(&symbol.address())
    };
    let segment = segments.into_iter().find(holds).unwrap();
    symbol.address() - segment.address() + segment.file_range().0
}

/// The names that are known for `count` instructions from `offset` on. Equal results for successive
/// instructions are listed once.
fn names(symbols: &mut Symbols, program: &Path, offset: u64, count: u32) -> Vec<Vec<Frame>> {
    let identity = identity(program);
    let mut found: Vec<Vec<Frame>> = (0..count)
        .map(|instruction| {
            let path = program.to_str().unwrap();
            let is_return = false;
            symbols.frames(Spot {
                path,
                identity: identity.as_deref(),
                offset,
                instruction,
                is_return,
            })
        })
        .collect();
    found.dedup();
    found
}

fn plain() -> Symbols {
    Symbols::with_debug_directories([])
}

#[test]
fn lines_and_inlined_functions_are_found() {
    for (name, pie) in [("pie", "-pie"), ("no-pie", "-no-pie")] {
        let program = compiled(name, "gcc", PROGRAM, &["-g", "-O1", pie]);
        let mut symbols = plain();
        let found = names(&mut symbols, &program, offset_of(&program, "work"), 4);
        let line = |frame: &Frame| (frame.function.clone().unwrap(), frame.line.unwrap());
        let found: Vec<Vec<_>> =
            found.iter().map(|frames| frames.iter().map(line).collect()).collect();
        assert!(found.iter().all(|frames| frames.last().unwrap().0 == "work"), "{found:?}");
        let inlined = found.iter().find(|frames| frames.len() > 1).unwrap();
        assert_eq!(inlined[..], [("pick".to_owned(), 4), ("work".to_owned(), 8)]);
        assert!(found.iter().any(|frames| frames[0].1 == 9), "{found:?}");
        assert_eq!(symbols.troubles(), [""; 0]);
    }
}

#[test]
fn a_stripped_program_has_no_names_but_those_of_its_debug_file() {
    let program = compiled("stripped", "gcc", PROGRAM, &["-g", "-O1", "-Wl,--build-id"]);
    let offset = offset_of(&program, "work");
    let with = names(&mut plain(), &program, offset, 4);
    let folder = program.parent().unwrap();
    let debug = folder.join("kept.debug");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&debug));
    run(Command::new("strip").arg(&program));
    assert_eq!(names(&mut plain(), &program, offset, 4), [vec![]]);
    // The debug file is found by its build id.
    let id = identity(&program).unwrap();
    let id = id.strip_prefix("build-id ").unwrap();
    let place = folder.join(format!("debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::copy(&debug, &place).unwrap();
    let mut symbols = Symbols::with_debug_directories([folder.join("debug")]);
    assert_eq!(names(&mut symbols, &program, offset, 4), with);
    // The debug file is found by its debug link. A debug file of another build is not used.
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run(Command::new("objcopy").arg(link).arg(&program));
    assert_eq!(names(&mut plain(), &program, offset, 4), with);
    std::fs::write(&debug, b"another").unwrap();
    assert_eq!(names(&mut plain(), &program, offset, 4), [vec![]]);
}

#[test]
fn a_file_that_has_changed_gives_no_names() {
    let program = compiled("changed", "gcc", PROGRAM, &["-g"]);
    let path = program.to_str().unwrap();
    let offset = offset_of(&program, "work");
    let recorded = identity(&program);
    let spot = |identity| Spot { path, identity, offset, instruction: 0, is_return: false };
    let function = plain().frames(spot(recorded.as_deref()))[0].function.clone();
    assert_eq!(function.as_deref(), Some("work"));
    run(Command::new("gcc").args(["-g", "-O2", "-o", path]).arg(program.with_extension("c")));
    for (identity, expected) in [(recorded.as_deref(), "has changed since"), (None, "which build")]
    {
        let mut symbols = plain();
        for _ in 0..2 {
            assert_eq!(symbols.frames(spot(identity)), []);
        }
        assert_eq!(symbols.troubles().len(), 1);
        assert!(symbols.troubles()[0].contains(expected), "{:?}", symbols.troubles());
    }
    std::fs::remove_file(&program).unwrap();
    let mut symbols = plain();
    assert_eq!(symbols.frames(spot(recorded.as_deref())), []);
    assert!(symbols.troubles()[0].contains("cannot be read"), "{:?}", symbols.troubles());
}

#[test]
fn a_file_without_a_build_id_is_known_by_its_contents() {
    let program = compiled("no-id", "gcc", PROGRAM, &["-Wl,--build-id=none"]);
    let id = identity(&program).unwrap();
    assert!(id.starts_with("crc32 "), "{id}");
    let found = names(&mut plain(), &program, offset_of(&program, "work"), 1);
    assert_eq!((found[0][0].function.as_deref(), found[0][0].line), (Some("work"), None));
}

#[test]
fn names_of_cpp_are_demangled() {
    let source = "namespace list { struct node { long grow(int); }; \
                  __attribute__((noinline)) long node::grow(int x) { return x * 3; } }\n\
                  int main(int argc, char **) { list::node n; return n.grow(argc); }\n";
    let program = compiled("cpp", "g++", source, &["-O1"]);
    let found = names(&mut plain(), &program, offset_of(&program, "_ZN4list4node4growEi"), 1);
    assert_eq!(found[0][0].function.as_deref(), Some("list::node::grow"));
}

#[test]
fn garbage_is_no_program() {
    let folder =
        std::env::temp_dir().join(format!("pagewalk-symbols-{}-garbage", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("garbage");
    for contents in [&b""[..], b"\x7fELF", &[0x7f; 4096]] {
        std::fs::write(&path, contents).unwrap();
        assert_eq!(names(&mut plain(), &path, 0, 2), [vec![]]);
    }
    assert_eq!(identity(&folder.join("none")), None);
}
