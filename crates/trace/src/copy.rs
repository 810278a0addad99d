use crate::{Error, Source, Writer};

/// Writes all of `source` to `writer`, which was made with the source's header. `progress` is
/// called with the accesses so far now and then; it stops the copy by giving false.
pub fn copy(
    _source: &mut dyn Source,
    _writer: &mut Writer,
    _progress: &mut dyn FnMut(u64) -> bool,
) -> Result<(), Error> {
    unimplemented!()
}
