//! The files of a folder that belong to a trace.
//!
//! ```text
//!   drmemtrace.app.1234.5678.dir/
//!     trace/   drmemtrace.app.1234.5679.trace.zip ...     one per thread or processor
//!              serial_schedule.bin.gz  cpu_schedule.bin.zip
//!     raw/     what the tracer wrote, before raw2trace
//!     aux/     v2p.textproto  modules.log
//!
//!   outdir/                                     of a program that started others: all of them
//!     drmemtrace.app.1234.5678.dir/  drmemtrace.child.1240.8765.dir/ ...
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// The contents of a folder.
#[derive(Debug)]
pub(crate) struct Folder {
    /// The files with accesses, by name.
    pub(crate) traces: Vec<TraceFile>,
    /// The recorded order of all threads, if there is one.
    pub(crate) serial_schedule: Option<PathBuf>,
    /// The recorded order of each processor's threads, if there is one.
    pub(crate) cpu_schedule: Option<PathBuf>,
}

/// A file with accesses.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TraceFile {
    pub(crate) path: PathBuf,
    /// The file with the physical addresses of its process's pages.
    pub(crate) v2p: Option<PathBuf>,
}

impl Folder {
    /// Searches `path`, which may be the folder with the files or the folder that contains it.
    pub(crate) fn open(path: &Path) -> Result<Folder, Error> {
        let below = path.join("trace");
        let within = if below.is_dir() { below } else { path.to_owned() };
        let io = |error| Error::Io { path: within.clone(), error };
        let mut folder = Folder { traces: Vec::new(), serial_schedule: None, cpu_schedule: None };
        let v2p = listed_beside(path, &within);
        let mut below = Vec::new();
        for entry in fs::read_dir(&within).map_err(io)? {
            let file = entry.map_err(io)?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("serial_schedule.bin") {
                folder.serial_schedule = Some(file);
            } else if name.starts_with("cpu_schedule.bin") {
                folder.cpu_schedule = Some(file);
            } else if is_trace(&name) && file.is_file() {
                folder.traces.push(TraceFile { path: file, v2p: v2p.clone() });
            } else if name.ends_with(".dir") && file.join("trace").is_dir() {
                below.push(file);
            }
        }
        if folder.traces.is_empty() {
            for process in below {
                let files = Folder::open(&process)?.traces.into_iter();
                // A list for the process is preferred to a list for all processes.
                folder.traces.extend(
                    files.map(|file| TraceFile { v2p: file.v2p.or_else(|| v2p.clone()), ..file }),
                );
            }
        }
        folder.traces.sort();
        if folder.traces.is_empty() {
            let raw =
                path.join("raw").is_dir() || path.file_name().is_some_and(|name| name == "raw");
            let advice = if raw {
                "it holds a raw trace, which only DynamoRIO can read, where the traced programs \
                 are: run `drrun -t drmemtrace -indir FOLDER -tool basic_counts` once, which makes \
                 the final trace"
            } else {
                "a file of accesses has a name like NAME.trace.zip or NAME.trace.gz"
            };
            return Err(Error::Parameters(format!(
                "{}: no trace in the folder; {advice}",
                path.display()
            )));
        }
        Ok(folder)
    }
}

/// The file with the physical addresses of pages, for the trace files in `within`, which is `path`
/// or its folder `trace`.
fn listed_beside(path: &Path, within: &Path) -> Option<PathBuf> {
    [
        path.join("aux/v2p.textproto"),
        path.join("v2p.textproto"),
        within.join("v2p.textproto"),
        // If `path` is the folder `trace`, the folder `aux` is beside it.
        path.join("../aux/v2p.textproto"),
        path.join("../v2p.textproto"),
    ]
    .into_iter()
    .take(if path.file_name().is_some_and(|name| name == "trace") { 5 } else { 3 })
    .find(|file| file.is_file())
}

/// Whether a file called `name` has accesses.
fn is_trace(name: &str) -> bool {
    const ENDINGS: [&str; 8] = ["", ".zip", ".gz", ".sz", ".lz4", ".zst", ".xz", ".bz2"];
    ENDINGS.iter().any(|ending| {
        name.strip_suffix(ending)
            .is_some_and(|stem| stem.ends_with(".trace") || stem.ends_with(".memtrace"))
    })
}
