//! Finds the program that a command line starts, in a form that QEMU can run.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::elf::{self, Elf};

/// The most scripts whose interpreters are scripts; the same as in Linux.
const SCRIPTS_MAX: usize = 4;
/// The number of bytes that Linux reads from a file to find `#!`.
const SHEBANG_BYTES: usize = 256;

/// A program that QEMU can run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    /// The path of the program's file.
    pub(crate) path: PathBuf,
    /// The program name that the program gets as argument 0.
    pub(crate) argv0: OsString,
    /// The program's arguments: those of the command; for a script, after the interpreter's option and the
    /// script.
    pub(crate) arguments: Vec<OsString>,
    /// The properties of the program's file.
    pub(crate) elf: Elf,
}

impl Program {
    /// Finds the program that `command` starts.
    pub(crate) fn find(command: &[OsString]) -> Result<Program, Error> {
        let Some((name, arguments)) = command.split_first() else { return Err(Error::NoCommand) };
        if name.is_empty() {
            return Err(Error::NoCommand);
        }
        let mut path = locate(name)?;
        let mut argv0 = name.clone();
        let mut arguments = arguments.to_vec();
        for _ in 0..=SCRIPTS_MAX {
            check(&path)?;
            let head = head(&path)?;
            let Some(line) = head.strip_prefix(b"#!") else {
                let elf = elf::read(&path)?;
                return Ok(Program { path, argv0, arguments, elf });
            };
            let (interpreter, option) = shebang(line).ok_or_else(|| Error::NotAProgram {
                path: path.clone(),
                what: "its first line names no interpreter after `#!`".to_owned(),
            })?;
            arguments.insert(0, path.into_os_string());
            if let Some(option) = option {
                arguments.insert(0, option);
            }
            argv0 = interpreter.clone();
            path = PathBuf::from(interpreter);
        }
        Err(Error::NotAProgram {
            path,
            what: "its interpreter is a script, whose interpreter is a script again, and so on, \
                 more often than Linux permits: name a program as the interpreter"
                .to_owned(),
        })
    }
}

/// Finds the file of a program by its name, as `execvp` does.
fn locate(name: &OsStr) -> Result<PathBuf, Error> {
    let missing = || Error::NotFound(name.to_string_lossy().into_owned());
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return if path.exists() { Ok(path) } else { Err(missing()) };
    }
    let search = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut unfit = None;
    for directory in env::split_paths(&search) {
        let path = if directory.as_os_str().is_empty() {
            Path::new(".").join(name)
        } else {
            directory.join(name)
        };
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(error @ Error::NotExecutable(_)) => unfit = unfit.or(Some(error)),
            Err(_) => {}
        }
    }
    Err(unfit.unwrap_or_else(missing))
}

/// Checks that the file is one that may be executed.
fn check(path: &Path) -> Result<(), Error> {
    let meta =
        fs::metadata(path).map_err(|_| Error::NotFound(path.to_string_lossy().into_owned()))?;
    if meta.is_dir() {
        return Err(Error::Directory(path.to_owned()));
    }
    let is_executable = meta.is_file() && meta.permissions().mode() & 0o111 != 0 && allowed(path);
    if is_executable { Ok(()) } else { Err(Error::NotExecutable(path.to_owned())) }
}

fn allowed(path: &Path) -> bool {
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is terminated.
    unsafe { libc::access(name.as_ptr(), libc::X_OK) == 0 }
}

fn head(path: &Path) -> Result<Vec<u8>, Error> {
    let unreadable = |error| Error::Unreadable { path: path.to_owned(), error };
    let mut head = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(SHEBANG_BYTES as u64).read_to_end(&mut head).map_err(unreadable)?;
    Ok(head)
}

/// The interpreter and its option in the line after `#!`.
fn shebang(line: &[u8]) -> Option<(OsString, Option<OsString>)> {
    let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (interpreter, option) = line.split_at(end);
    let option = option.trim_ascii();
    let os = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    (!interpreter.is_empty()).then(|| (os(interpreter), (!option.is_empty()).then(|| os(option))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        let check = |line: &[u8], expected: Option<(&str, Option<&str>)>| {
            let expected = expected.map(|(name, option)| (name.into(), option.map(Into::into)));
            assert_eq!(shebang(line), expected, "{:?}", String::from_utf8_lossy(line));
        };
        check(b"/bin/sh\necho", Some(("/bin/sh", None)));
        check(b" /usr/bin/env  -S python3 -u \n", Some(("/usr/bin/env", Some("-S python3 -u"))));
        check(b"\t/bin/sh -e", Some(("/bin/sh", Some("-e"))));
        check(b"\n", None);
        check(b"", None);
    }
}
