//! A file that gets its name only when it is complete.
//!
//! ```text
//!   create --> NAME.part --write--> NAME.part --finish: sync, rename--> NAME
//!                                       \-- dropped before: removed
//!
//!   create --> a device, a pipe --write, finish--> it, as it is
//! ```
//!
//! A device or a pipe (`/dev/null`, `/dev/stdout`) is written to directly and never replaced. For a
//! symbolic link, the file to which the link leads is replaced.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::Error;

/// The file, under its temporary name.
#[derive(Debug)]
pub(crate) struct PartFile {
    path: PathBuf,
    /// The temporary name; `None` if `path` is not a regular file and is written to directly.
    part: Option<PathBuf>,
    file: File,
    overwrite: bool,
}

impl PartFile {
    /// Begins to write `path`. A file may exist there only if `overwrite`, or if it is a device.
    pub(crate) fn create(path: &Path, overwrite: bool) -> Result<PartFile, Error> {
        let refuse = |path: &Path, error: io::Error| Error::Io { path: path.to_owned(), error };
        let Some(name) = path.file_name() else {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "not a file name");
            return Err(refuse(path, error));
        };
        let found = path.metadata();
        if found.as_ref().is_ok_and(|found| found.is_dir()) {
            let error = io::Error::new(io::ErrorKind::IsADirectory, "it is a directory");
            return Err(refuse(path, error));
        }
        if found.is_ok_and(|found| !found.is_file()) {
            let opened = OpenOptions::new().write(true).open(path);
            let file = opened.map_err(|error| refuse(path, error))?;
            return Ok(PartFile { path: path.to_owned(), part: None, file, overwrite });
        }
        if !overwrite && path.symlink_metadata().is_ok() {
            return Err(refuse(
                path,
                exists("it exists already; give another name, or replace it with --force"),
            ));
        }
        let mut name = name.to_owned();
        name.push(".part");
        let part = path.with_file_name(name);
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true).create_new(!overwrite);
        let file = open.open(&part).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => refuse(
                &part,
                exists(
                    "this unfinished file is being written, or was left behind by a process that \
                     was killed; rename it to read it as a trace, or remove it",
                ),
            ),
            _ => refuse(path, error),
        })?;
        Ok(PartFile { path: path.to_owned(), part: Some(part), file, overwrite })
    }

    /// The name that the file will have.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// `error` as an error about this file.
    pub(crate) fn error(&self, error: io::Error) -> Error {
        Error::Io { path: self.path.clone(), error }
    }

    /// Keeps the unfinished file under its temporary name, which is returned.
    pub(crate) fn keep(&mut self) -> Option<PathBuf> {
        self.part.take()
    }

    /// Adds `bytes`.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|error| self.error(error))
    }

    /// Syncs the file to disk and renames it to its name.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        let Some(part) = &self.part else { return Ok(()) };
        self.file.sync_all().map_err(|error| self.error(error))?;
        if !self.overwrite && self.path.symlink_metadata().is_ok() {
            // If a file with this name has appeared in the meantime, it belongs to another program
            // and stays. The finished part is kept for the user.
            let text = format!(
                "another program has created this file in the meantime; the trace is in {}",
                part.display()
            );
            self.part = None;
            return Err(self.error(exists(&text)));
        }
        let target = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        std::fs::rename(part, &target).map_err(|error| self.error(error))?;
        self.part = None;
        // The rename survives a crash only if the directory has been synced to disk. If the file
        // system cannot sync it, the trace exists nevertheless.
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            let _ = std::fs::remove_file(part);
        }
    }
}

fn exists(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}
