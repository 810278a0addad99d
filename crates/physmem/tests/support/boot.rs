//! Builds the kernel of a crate's example and boots it as a process.

use std::{path::Path, process::Command};

/// Runs the kernel of `crates/NAME/examples/boot.rs` and returns the digest that it prints for a
/// stream of the model test.
pub(crate) fn digest(name: &str) -> u64 {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = format!("boot-{name}");
    let package = format!("pagewalk-{name}");
    let target = workspace.join("target/kernels");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--profile=kernel", "--example", &example])
        .args(["--features=boot", "--package", &package, "--target-dir"])
        .arg(&target)
        .current_dir(&workspace)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the kernel of {name} does not build");
    let ran = Command::new(target.join("kernel/examples").join(&example)).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).trim().parse().unwrap()
}
