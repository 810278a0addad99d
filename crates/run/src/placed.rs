//! Mappings where the modelled kernel would place them: `os.linux.layout`.

use std::ops::DerefMut;

use description::{Description, Error, Layout, Version, managers::linux};
use trace::{Aligned, KernelLayout, Source, Spread};

/// Memory of 2M and more is placed so that pages of 2M fit, since this version; since the next one only where
/// its length is a multiple of that.
const LONG: Version = Version(6, 7);
const MULTIPLES: Version = Version(6, 13);

/// A source, at the addresses that the machine asks for.
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

/// `source`, with its mappings where all of `descriptions` say. The error is that they disagree, or that the
/// trace cannot be placed.
pub(crate) fn placed<'a, 'b>(
    descriptions: impl IntoIterator<Item = &'b Description>,
    source: &'a mut dyn Source,
) -> Result<Placed<'a>, Error> {
    let mut asked = descriptions.into_iter().map(layout);
    let first = asked.next().flatten();
    if asked.any(|other| other != first) {
        let what = "os.linux.layout and layout_seed must be equal in all designs of a sweep, which reads its \
                    trace once";
        return Err(trace::Error::Parameters(what.to_owned()).into());
    }
    Ok(match first {
        Some(how) => Placed::Kernel(Box::new(Spread::as_kernel(source, how)?)),
        None => Placed::Recorded(source),
    })
}

/// How the kernel of `description` places mappings, if they are not to stay where they were recorded.
fn layout(description: &Description) -> Option<KernelLayout> {
    let asked = linux(&description.os).filter(|asked| asked.layout == Layout::Kernel)?;
    let aligned = match asked.version.unwrap_or(Version::MODELLED) {
        version if version >= MULTIPLES => Aligned::Multiples,
        version if version >= LONG => Aligned::Long,
        _ => Aligned::Nothing,
    };
    Some(KernelLayout { seed: asked.layout_seed, aligned })
}
