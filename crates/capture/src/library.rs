//! The library that reports allocations. It is loaded into recorded programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;

use crate::Error;
use crate::command::Program;

/// The beginning of the file name of each build of the library. The name of the architecture
/// follows.
const NAME: &str = "pagewalk-allocations-";
/// The architectures for which the library can be built, as QEMU names them.
const PROCESSORS: [&str; 4] = ["x86_64", "i386", "aarch64", "riscv64"];
/// The environment variable with the libraries to load first.
pub(crate) const VARIABLE: &str = "LD_PRELOAD";

/// The library, in the build for the recorded program.
pub(crate) struct Library {
    /// The library's path, up to the name of the architecture.
    stem: Vec<u8>,
    path: OsString,
}

impl Library {
    /// Finds the build for `program` in `folder`, or in the folder of the running program.
    pub(crate) fn find(folder: Option<&Path>, program: &Program) -> Result<Library, Error> {
        let refused = |why: String| Error::Allocations { path: program.path.clone(), why };
        if program.elf.interpreter.is_none() {
            return Err(refused(
                "it is linked statically, so no library can be loaded into it; link it \
                 dynamically, or record it without --allocations: misses are reported by mapping \
                 in any case"
                    .to_owned(),
            ));
        }
        let own = env::current_exe().ok();
        let folder = folder.or_else(|| own.as_deref()?.parent());
        // The path must be the one that the system reports, because the recorder recognises the
        // library by its path when the library is mapped.
        let folder = folder.and_then(|folder| folder.canonicalize().ok()).unwrap_or_default();
        let named = |processor: &str| folder.join(format!("{NAME}{processor}.so"));
        let path = named(program.elf.qemu_name());
        if !path.is_file() {
            let mut built = PROCESSORS.to_vec();
            built.retain(|processor| named(processor).is_file());
            let built = if built.is_empty() { "no processor".to_owned() } else { built.join(", ") };
            return Err(refused(format!(
                "the library that marks allocations was not built for {}, only for {built}; install \
                 a compiler for that processor ({}-linux-gnu-gcc) and build Pagewalk again",
                program.elf.arch.name(),
                program.elf.qemu_name().replace("i386", "i686"),
            )));
        }
        // The loader splits the variable at spaces and colons, and QEMU splits its option at
        // commas.
        if path.as_os_str().as_bytes().iter().any(|byte| b" :,".contains(byte)) {
            return Err(refused(format!(
                "the path of the library that marks allocations, {}, contains a space, colon or \
                 comma: install Pagewalk in another folder",
                path.display()
            )));
        }
        let stem = folder.join(NAME).into_os_string().into_vec();
        Ok(Library { stem, path: path.into_os_string() })
    }

    /// The library's path, up to the name of the architecture.
    pub(crate) fn stem(&self) -> &[u8] {
        &self.stem
    }

    /// The value of [`VARIABLE`] by which a program loads the library first, and then the libraries
    /// that the environment names.
    pub(crate) fn libraries(&self) -> OsString {
        let mut value = self.path.clone();
        if let Some(wanted) = env::var_os(VARIABLE).filter(|wanted| !wanted.is_empty()) {
            value.push(OsStr::new(":"));
            value.push(wanted);
        }
        value
    }

    /// Makes the QEMU that `command` starts load the library into the program. QEMU itself does not
    /// load the library.
    pub(crate) fn preload(&self, command: &mut Command) {
        let mut value = OsString::from(VARIABLE);
        value.push("=");
        value.push(self.libraries());
        command.env_remove(VARIABLE).arg("-E").arg(value);
    }
}
