//! Programs recorded under QEMU and natively, one file per thing that they do.
//!
//! One program, so that it is linked once and the plugin is built once.

/// Two tests of each of these functions: in QEMU, and with the engine.
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
