//! The streams' compression: zstd's. Miri runs no C, so that under it streams are stored as they
//! are, as the format allows, and the loops around them can be checked all the same.

#[cfg(not(miri))]
pub(crate) use zstd::bulk::{Compressor, Decompressor};

#[cfg(miri)]
pub(crate) use stored::{Compressor, Decompressor};

#[cfg(miri)]
mod stored {
    use std::io;
    use std::marker::PhantomData;

    /// Compresses nothing.
    pub(crate) struct Compressor<'a>(PhantomData<&'a ()>);

    impl Compressor<'_> {
        pub(crate) fn new(_level: i32) -> io::Result<Self> {
            Ok(Compressor(PhantomData))
        }

        pub(crate) fn compress_to_buffer(&mut self, _: &[u8], _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Decompresses nothing.
    pub(crate) struct Decompressor<'a>(PhantomData<&'a ()>);

    impl Decompressor<'_> {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Decompressor(PhantomData))
        }

        pub(crate) fn decompress_to_buffer(
            &mut self,
            _: &[u8],
            _: &mut Vec<u8>,
        ) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}
