//! Compiles the user program, which is part of the kernel's image, and names the linker scripts.

use std::{env, path::PathBuf, process::Command};

fn main() {
    let target = env::var("TARGET").expect("cargo says the target");
    let arch = match target.as_str() {
        "x86_64-unknown-none" => "x86_64",
        "riscv64gc-unknown-none-elf" => "riscv64",
        other => panic!(
            "the kernel is for x86_64-unknown-none and riscv64gc-unknown-none-elf, not for {other}: kernel/run builds it"
        ),
    };
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo says the folder"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo says where to")).join("user");
    let script = |name: &str| here.join("link").join(name).display().to_string();
    let status = Command::new(env::var("RUSTC").expect("cargo says the compiler"))
        .args(["--edition=2024", "--crate-type=bin", "--crate-name=user", "--target", &target])
        .args(["-Copt-level=2", "-Cpanic=abort", "-Crelocation-model=static", "-Cstrip=symbols"])
        .arg(format!("-Clink-arg=-T{}", script("user.ld")))
        .arg("-o")
        .arg(&out)
        .arg(here.join("user/main.rs"))
        .status()
        .expect("the compiler that compiles this runs");
    assert!(status.success(), "user/main.rs does not compile for {target}");
    println!("cargo:rustc-env=USER_PROGRAM={}", out.display());
    println!("cargo:rustc-link-arg-bins=-T{}", script(&format!("{arch}.ld")));
    for changed in ["user", "../tests/boot", "link", "build.rs"] {
        println!("cargo:rerun-if-changed={changed}");
    }
}
