//! The machines that come with Pagewalk. Also finds a machine by its name or path.

use super::{Error, suggest};

/// A machine that comes with Pagewalk.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The name for `--machine`.
    pub name: &'static str,
    /// The text of the machine file.
    pub text: &'static str,
}

macro_rules! builtin {
    ($($name:literal),* $(,)?) => {
        &[$(Builtin { name: $name, text: include_str!(concat!("../../../machines/", $name, ".toml")) }),*]
    };
}

/// All built-in machines; the machines of papers come first.
pub const BUILTIN: &[Builtin] = builtin![
    "opteron-2008",
    "freebsd-2009",
    "r4700",
    "origin-2000",
    "origin-200qc",
    "pentium4",
    "strongarm-1110",
    "sparccenter-2000",
    "epyc-9005",
    "xeon-6900p",
    "neoverse-n1",
    "xiangshan-kunminghu",
    "tlb-only"
];

/// The name, the text and the origin of the machine called `name_or_path`. The origin is shown in
/// errors: the path of a file or, for a built-in machine, its name. No path of a file is equal to
/// such a name.
pub fn find(name_or_path: &str) -> Result<(String, String, String), Error> {
    if let Some(builtin) = BUILTIN.iter().find(|builtin| builtin.name == name_or_path) {
        let name = builtin.name.to_owned();
        return Ok((name.clone(), builtin.text.to_owned(), name));
    }
    if !name_or_path.ends_with(".toml") && !name_or_path.contains('/') {
        let names: Vec<&str> = BUILTIN.iter().map(|builtin| builtin.name).collect();
        return Err(Error::NotFound(format!(
            "there is no machine `{name_or_path}`: choose one of {}, or give a file that ends in \
             .toml{}; `pagewalk machines` describes each",
            names.join(", "),
            suggest::hint(name_or_path, names.iter().copied())
        )));
    }
    let text = std::fs::read_to_string(name_or_path).map_err(|error| {
        Error::NotFound(format!("the machine file {name_or_path} cannot be read: {error}"))
    })?;
    let name = std::path::Path::new(name_or_path)
        .file_stem()
        .map_or_else(|| name_or_path.to_owned(), |stem| stem.to_string_lossy().into_owned());
    Ok((name, text, name_or_path.to_owned()))
}
