//! Code that the tests of recording share: compiling C programs, building the plugin, and reading
//! traces as lists.
#![allow(dead_code, unreachable_pub)]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use addr::Kind;
use capture::{Engine, Options, Outcome};
use trace::{Batch, Event, Meta, Reader, Source};

/// One row of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    pub thread: u32,
    pub addr: u64,
    pub meta: Meta,
}

impl Row {
    pub fn kind(&self) -> Kind {
        self.meta.kind()
    }
}

/// A whole trace: its rows, and its events, each with the number of rows before it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Whole {
    pub rows: Vec<Row>,
    pub events: Vec<(usize, u32, Event)>,
}

impl Whole {
    /// Reads all batches of `source`.
    pub fn of(source: &mut dyn Source) -> Whole {
        let mut whole = Whole::default();
        let mut batch = Batch::default();
        loop {
            let more = source.next(&mut batch).expect("the source gives batches");
            let before = whole.rows.len();
            for placed in &batch.events {
                let at = before + placed.at as usize;
                whole.events.push((at, placed.thread, placed.event.clone()));
            }
            let mut segments = batch.segments.iter().peekable();
            let mut thread = 0;
            for (index, (&addr, &meta)) in batch.addr.iter().zip(&batch.meta).enumerate() {
                while let Some(segment) = segments.next_if(|next| next.start as usize <= index) {
                    thread = segment.thread;
                }
                whole.rows.push(Row { thread, addr, meta });
            }
            if !more {
                return whole;
            }
        }
    }

    /// Reads the trace in a file.
    pub fn read(path: &Path) -> Whole {
        Whole::of(&mut Reader::open(path).expect("the trace opens"))
    }

    /// Reads process `number` of a recording.
    pub fn process(path: &Path, number: u32) -> Whole {
        let reader = Reader::open(path).expect("the trace opens");
        Whole::of(&mut reader.process(number).expect("the process is there"))
    }

    /// The rows of kind `kind` whose addresses are among the `bytes` bytes from `start` on.
    pub fn within(&self, kind: Kind, start: u64, bytes: u64) -> Vec<Row> {
        let inside = |row: &&Row| row.kind() == kind && row.addr.wrapping_sub(start) < bytes;
        self.rows.iter().filter(inside).copied().collect()
    }

    /// The addresses of the rows that [`Whole::within`] returns.
    pub fn addrs(&self, kind: Kind, start: u64, bytes: u64) -> Vec<u64> {
        self.within(kind, start, bytes).iter().map(|row| row.addr).collect()
    }
}

/// An empty directory for the test `name`.
pub fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a directory for the test");
    path
}

/// The folder with the QEMUs that contain the recorder.
pub fn qemus() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/pagewalk/qemu");
    assert!(
        folder.join("qemu-x86_64").is_file(),
        "`make qemu` builds what programs are recorded in"
    );
    folder.canonicalize().expect("a folder")
}

/// The plugin for QEMUs without the recorder. It is built once.
pub fn plugin() -> PathBuf {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN
        .get_or_init(|| {
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin");
            let status = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--release", "-p", "recorder", "--target-dir"])
                .arg(&target)
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .expect("cargo runs");
            assert!(status.success(), "the plugin does not build");
            target.join("release/librecorder.so")
        })
        .clone()
}

/// The engine. It is built once.
pub fn engine() -> PathBuf {
    static ENGINE: OnceLock<PathBuf> = OnceLock::new();
    const TARGET: &str = "x86_64-unknown-none";
    ENGINE
        .get_or_init(|| {
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("engine");
            let status = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--release", "-p", "engine", "--features", "blob"])
                .args(["--bin", "pagewalk-engine", "--target", TARGET, "--target-dir"])
                .arg(&target)
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .expect("cargo runs");
            assert!(
                status.success(),
                "`rustup target add {TARGET}` installs what the engine needs"
            );
            target.join(TARGET).join("release/pagewalk-engine")
        })
        .clone()
}

/// Options that record `program` with the engine.
pub fn native(program: &Path, arguments: &[&str]) -> Options {
    let mut options = options(program, arguments);
    options.engine = Engine::Native;
    options.engine_path = Some(engine());
    options
}

/// The recorder of a test: its name, and a function that returns its options for a program and its
/// arguments.
pub type In = (&'static str, fn(&Path, &[&str]) -> Options);

/// Compiles `source` with `compiler`. Returns the path of the program.
pub fn compile(directory: &Path, name: &str, compiler: &str, source: &str) -> PathBuf {
    let file = directory.join(name).with_extension("c");
    let program = directory.join(name);
    fs::write(&file, source).expect("the source is written");
    let flags = ["-O1", "-pthread", "-static", "-o"];
    let status = Command::new(compiler).args(flags).arg(&program).arg(&file).status();
    let status = status
        .unwrap_or_else(|error| panic!("{compiler}: {error}; `make test` installs what is needed"));
    assert!(status.success(), "{name}.c does not compile");
    program
}

/// Options that record `program` with `arguments` in QEMU.
pub fn options(program: &Path, arguments: &[&str]) -> Options {
    let mut command: Vec<OsString> = vec![program.into()];
    command.extend(arguments.iter().map(OsString::from));
    let mut options = Options::new(command);
    options.engine = Engine::Qemu;
    options.qemus = Some(qemus());
    options
}

/// Records with `options`. The trace is `directory/out.pwt`.
pub fn record(directory: &Path, options: &Options) -> Outcome {
    let output = directory.join("out.pwt");
    let writer = trace::Options { overwrite: true, ..trace::Options::default() };
    match capture::record(options, &output, &writer, &mut |_| {}) {
        Ok(outcome) => outcome,
        Err(error) => panic!("{error}; `make test` installs what is needed"),
    }
}

/// The hexadecimal numbers in a file that a recorded program wrote.
pub fn numbers(path: &Path) -> Vec<u64> {
    let text = fs::read_to_string(path).expect("the program has written its file");
    let number = |word: &str| u64::from_str_radix(word, 16).expect("a number");
    text.split_whitespace().map(number).collect()
}
