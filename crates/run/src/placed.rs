//! Moves mappings to the addresses at which the modelled kernel would place them:
//! `os.linux.layout`.

use std::ops::DerefMut;

use description::{Description, Error, Layout, Version, managers::linux};
use trace::{Aligned, KernelLayout, Source, Spread};

/// The first version that places a mapping of 2M or more so that pages of 2M fit. From the version
/// of the next constant on, the kernel does this only if the length of the mapping is a multiple of
/// 2M.
const LONG: Version = Version(6, 7);
const MULTIPLES: Version = Version(6, 13);

/// A source whose mappings are at the addresses that the machine requests.
pub(crate) enum Placed<'a> {
    Recorded(&'a mut dyn Source),
    Kernel(Box<Spread<&'a mut dyn Source>>),
}

impl Placed<'_> {
    pub(crate) fn as_mut(&mut self) -> &mut dyn Source {
        match self {
            Placed::Recorded(source) => source.deref_mut(),
            Placed::Kernel(source) => source.as_mut(),
        }
    }
}

/// `source`, with its mappings at the addresses that all of `descriptions` request. It is an error
/// if the descriptions differ in this, or if the mappings of the trace cannot be moved.
pub(crate) fn placed<'a, 'b>(
    descriptions: impl IntoIterator<Item = &'b Description>,
    source: &'a mut dyn Source,
) -> Result<Placed<'a>, Error> {
    let mut asked = descriptions.into_iter().map(layout);
    let first = asked.next().flatten();
    if asked.any(|other| other != first) {
        let what = "os.linux.layout and os.linux.layout_seed must be equal in all designs of a \
                    sweep, since a sweep reads its trace only once: use separate sweeps";
        return Err(trace::Error::Parameters(what.to_owned()).into());
    }
    Ok(match first {
        Some(how) => Placed::Kernel(Box::new(Spread::as_kernel(source, how)?)),
        None => Placed::Recorded(source),
    })
}

/// How the kernel of `description` places mappings; `None` if the mappings stay at their recorded
/// addresses.
fn layout(description: &Description) -> Option<KernelLayout> {
    let asked = linux(&description.os).filter(|asked| asked.layout == Layout::Kernel)?;
    let aligned = match asked.version.unwrap_or(Version::MODELLED) {
        version if version >= MULTIPLES => Aligned::Multiples,
        version if version >= LONG => Aligned::Long,
        _ => Aligned::Nothing,
    };
    Some(KernelLayout { seed: asked.layout_seed, aligned })
}
