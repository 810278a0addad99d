//! Finds a QEMU that contains the recorder; or else a QEMU that loads plugins, and the recorder plugin for it.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use trace::Arch;

use crate::command::Program;
use crate::{Error, Options};

/// The environment variable with a folder of QEMUs that contain the recorder.
const FOLDER_VARIABLE: &str = "PAGEWALK_QEMU_DIR";
/// The suffix of the version of a QEMU that contains the recorder, and the name of the option with the
/// recorder's arguments.
const INSIDE: (&str, &str) = ("(pagewalk)", "pagewalk");
/// The environment variable with the path of the plugin.
const PLUGIN_VARIABLE: &str = "PAGEWALK_PLUGIN";
/// The plugins for QEMU up to 8, and for newer ones.
const PLUGINS: [&str; 2] = ["librecorder.so", "librecorder_api4.so"];
/// The first major version of QEMU that needs the newer build of the plugin.
const NEWER: u32 = 9;
/// The first major version of QEMU in which all elements of a `rep` instruction are one execution
/// of their block. Their accesses would look like those that older versions of QEMU make themselves
/// after a block.
const REPEATS: u32 = 10;

/// The recorder for a QEMU.
#[derive(Debug)]
pub(crate) enum Recorder {
    /// QEMU itself contains the recorder, as built by `make qemu`.
    Inside,
    /// QEMU loads this plugin.
    Plugin(PathBuf),
}

/// A QEMU for a program.
#[derive(Debug)]
pub(crate) struct Qemu {
    pub(crate) path: PathBuf,
    pub(crate) recorder: Recorder,
    /// The folder with the loader and libraries of a program for another architecture.
    pub(crate) prefix: Option<PathBuf>,
    /// Whether accesses that QEMU makes while it saves a signal frame may be recorded as the
    /// program's.
    pub(crate) strays: bool,
    /// Whether the recorder may insert code into QEMU's translations.
    pub(crate) inline_code: bool,
}

impl Qemu {
    /// Finds QEMU and the plugin for `program`.
    pub(crate) fn find(options: &Options, program: &Program) -> Result<Qemu, Error> {
        let name = format!("qemu-{}", program.elf.qemu_name());
        let path = path(options, &name)?;
        let said = |option: &str| {
            let output = Command::new(&path).arg(option).output().map_err(|error| {
                Error::System { what: format!("cannot run {}", path.display()), error }
            })?;
            Ok::<_, Error>(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        if !said("-h")?.contains("-plugin") {
            return Err(Error::NoPlugins(path));
        }
        let said = said("-version")?;
        if let Some(runs) = target(&said).filter(|&runs| runs != program.elf.qemu_name()) {
            let program = program.path.clone();
            return Err(Error::OtherQemu {
                qemu: path,
                runs: runs.to_owned(),
                program,
                needs: name,
            });
        }
        let version = version(&said);
        let strays = version.is_none_or(|(major, _)| major < REPEATS);
        let is_ours = said.contains(INSIDE.0);
        let recorder = if is_ours {
            Recorder::Inside
        } else {
            let newer = version.is_some_and(|(major, _)| major >= NEWER);
            Recorder::Plugin(find_plugin(options, newer)?)
        };
        let inline_code = is_ours && !options.callbacks;
        Ok(Qemu { path, recorder, prefix: library_prefix(program)?, strays, inline_code })
    }

    /// QEMU's path without the name of the architecture at its end. It is used for programs that
    /// are executed later. Empty if the file's name does not end in this way.
    pub(crate) fn stem(&self, program: &Program) -> Vec<u8> {
        let path = self.path.as_os_str().as_bytes();
        path.strip_suffix(program.elf.qemu_name().as_bytes()).unwrap_or_default().to_vec()
    }

    /// The `-plugin` argument for the session at the path `session`.
    pub(crate) fn plugin_argument(&self, session: &str) -> OsString {
        // QEMU splits the argument at commas. Two commas stand for one.
        let mut argument = Vec::new();
        for &byte in self.plugin().as_os_str().as_bytes() {
            argument.push(byte);
            if byte == b',' {
                argument.push(byte);
            }
        }
        argument.extend_from_slice(b",session=");
        argument.extend_from_slice(session.as_bytes());
        OsString::from_vec(argument)
    }

    fn plugin(&self) -> &Path {
        match &self.recorder {
            Recorder::Inside => Path::new(INSIDE.1),
            Recorder::Plugin(path) => path,
        }
    }

    /// Why QEMU does not start: its message when it is started again without a program.
    pub(crate) fn complaint(&self, program: &Program) -> Option<Error> {
        let argument = self.plugin_argument("/dev/null");
        let output = Command::new(&self.path)
            .arg("-plugin")
            .arg(argument)
            .arg(&program.path)
            .output()
            .ok()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
        let said = lines.find(|line| line.contains("API version") || line.contains("load"))?;
        Some(Error::PluginRefused {
            qemu: self.path.clone(),
            plugin: self.plugin().to_owned(),
            said: said.to_owned(),
        })
    }
}

/// The QEMU to run: the requested one, or one that comes with Pagewalk.
fn path(options: &Options, name: &str) -> Result<PathBuf, Error> {
    if let Some(path) = &options.qemu {
        // A name without a slash would be searched in PATH when QEMU is started.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        return if path.is_file() { Ok(path) } else { Err(Error::NoSuchQemu(path)) };
    }
    let named = env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty());
    if let Some(folder) = named.map(PathBuf::from) {
        let path = folder.join(name);
        return match path.is_file() {
            true => Ok(path),
            false => Err(Error::NotInFolder { folder, name: name.to_owned() }),
        };
    }
    let ours = options.qemus.as_ref().map(|folder| folder.join(name));
    ours.filter(|path| path.is_file()).ok_or_else(|| Error::NoQemu(name.to_owned()))
}

fn find_plugin(options: &Options, newer: bool) -> Result<PathBuf, Error> {
    let given = if newer { options.plugins.last() } else { options.plugins.first() };
    let named = env::var_os(PLUGIN_VARIABLE).map(PathBuf::from);
    if let Some(path) = named.or_else(|| given.cloned()) {
        // QEMU searches a plugin name without a slash in the system's library directories.
        let whole = std::path::absolute(&path).unwrap_or(path);
        return if whole.is_file() { Ok(whole) } else { Err(Error::NoPlugin(whole)) };
    }
    let name = PLUGINS[usize::from(newer)];
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.join(name)));
    let path = beside.unwrap_or_else(|| name.into());
    if path.is_file() { Ok(path) } else { Err(Error::NoPlugin(path)) }
}

/// Debian's folder with the libraries of a foreign architecture, if the program needs one.
fn library_prefix(program: &Program) -> Result<Option<PathBuf>, Error> {
    let Some(interpreter) = &program.elf.interpreter else { return Ok(None) };
    if interpreter.exists() || env::var_os("QEMU_LD_PREFIX").is_some() {
        return Ok(None);
    }
    let triplet = match program.elf.arch {
        Arch::I386 => "i686-linux-gnu",
        Arch::Arm => "arm-linux-gnueabihf",
        Arch::Aarch64 => "aarch64-linux-gnu",
        Arch::Riscv64 => "riscv64-linux-gnu",
        Arch::X86_64 | Arch::Unknown => "x86_64-linux-gnu",
    };
    let prefix = Path::new("/usr").join(triplet);
    let relative = interpreter.strip_prefix("/").unwrap_or(interpreter);
    if prefix.join(relative).exists() {
        return Ok(Some(prefix));
    }
    Err(Error::NotAProgram {
        path: program.path.clone(),
        what: format!(
            "needs the loader {}, which does not exist; set QEMU_LD_PREFIX to the folder that \
             contains it, or link the program statically",
            interpreter.display()
        ),
    })
}

/// The architecture in QEMU's version: `x86_64` of `qemu-x86_64 version 7.2.22 (...)`.
fn target(said: &str) -> Option<&str> {
    said.strip_prefix("qemu-")?.split_once(" version ").map(|(target, _)| target)
}

/// Major and minor version in QEMU's version: `qemu-x86_64 version 7.2.22 (...)`.
fn version(said: &str) -> Option<(u32, u32)> {
    let (_, rest) = said.split_once(" version ")?;
    let mut parts = rest.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("qemu-x86_64 version 7.2.22 (Debian 1:7.2)\n"), Some((7, 2)));
        assert_eq!(version("qemu-aarch64 version 10.0.2\n"), Some((10, 0)));
        assert_eq!(version("usage: qemu"), None);
        assert_eq!(target("qemu-aarch64 version 10.0.2\n"), Some("aarch64"));
        assert_eq!(target("usage: qemu"), None);
    }
}
