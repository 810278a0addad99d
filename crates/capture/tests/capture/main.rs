//! Tests of recording under QEMU and natively. Each file has programs that do one kind of thing.
//!
//! All tests are in one program, so that it is linked once and the plugin is built once.

/// Makes two tests of each function: one that records in QEMU, and one that records with the
/// engine.
macro_rules! in_both {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn in_qemu() {
                super::$name(("qemu", crate::common::options));
            }

            #[test]
            fn natively() {
                super::$name(("native", crate::common::native));
            }
        }
    )+};
}

mod alone;
mod calls;
mod changing;
mod common;
mod derived;
mod families;
mod inline;
mod layout;
mod left_out;
mod native;
mod options;
mod processes;
mod random;
mod refusals;
mod sequences;
mod stepped;
mod threaded;
mod windows;
