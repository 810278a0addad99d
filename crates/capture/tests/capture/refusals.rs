//! Checks that each refusal to record is an error of one line that says what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use capture::{Error, Options};

use crate::common::{directory, plugin, qemus};

fn refusal(directory: &Path, program: &str, change: impl Fn(&mut Options)) -> Error {
    let mut options = Options::new(vec![program.into()]);
    options.qemus = Some(qemus());
    change(&mut options);
    let output = directory.join("out.pwt");
    let outcome = capture::record(&options, &output, &trace::Options::default(), &mut |_| {});
    let error = outcome.expect_err(program);
    assert!(!error.to_string().contains('\n'), "one line: {error}");
    let left: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with("out"))
        .collect();
    assert!(left.is_empty(), "nothing is left behind: {left:?}");
    error
}

fn file(directory: &Path, name: &str, contents: &[u8], mode: u32) -> String {
    let path = directory.join(name);
    // A file that is open for writing cannot be executed, and a child that another test forks meanwhile would keep it
    // open. So the file is made by a process of its own.
    let contents_of = directory.join(format!("{name}.contents"));
    fs::write(&contents_of, contents).unwrap();
    let install = Command::new("install")
        .args(["-m", &format!("{mode:o}")])
        .args([&contents_of, &path])
        .status();
    assert!(install.unwrap().success(), "{}", path.display());
    fs::remove_file(contents_of).unwrap();
    path.to_string_lossy().into_owned()
}

/// The first bytes of an ELF file for the processor `machine`.
fn elf(class: u8, order: u8, machine: u16) -> Vec<u8> {
    let mut head = vec![0; 64];
    head[..4].copy_from_slice(b"\x7fELF");
    (head[4], head[5]) = (class, order);
    let half = |value: u16| if order == 2 { value.to_be_bytes() } else { value.to_le_bytes() };
    head[16..18].copy_from_slice(&half(2));
    head[18..20].copy_from_slice(&half(machine));
    head
}

#[test]
fn commands_that_cannot_be_recorded() {
    let directory = directory("refusals");
    let none = |_: &mut Options| {};
    assert!(matches!(refusal(&directory, "", none), Error::NoCommand));
    let error = refusal(&directory, "no-such-program-anywhere", none);
    assert!(matches!(error, Error::NotFound(_)), "{error}");
    let error = refusal(&directory, "/no/such/program", none);
    assert!(matches!(error, Error::NotFound(_)), "{error}");
    let error = refusal(&directory, "/usr", none);
    assert!(matches!(error, Error::Directory(_)), "{error}");
    let plain = file(&directory, "plain", b"#!/bin/sh\n", 0o644);
    let error = refusal(&directory, &plain, none);
    assert!(matches!(error, Error::NotExecutable(_)), "{error}");
    for (name, contents, says) in [
        ("empty", &b""[..], "is empty"),
        ("text", b"hello\n", "neither"),
        ("bare", b"#! \n", "no interpreter"),
        ("short", b"\x7fELF\x02\x01", "truncated ELF"),
    ] {
        let path = file(&directory, name, contents, 0o755);
        let error = refusal(&directory, &path, none);
        assert!(error.to_string().contains(says), "{name}: {error}");
        assert!(error.to_string().contains(&path), "{name}: {error}");
    }
    for (class, order, machine, says) in [
        (2, 2, 22, "s390x"),
        (1, 2, 40, "Arm"),
        (2, 1, 21, "PowerPC"),
        (1, 1, 62, "x32"),
        (2, 1, 9999, "machine 9999"),
    ] {
        let path = file(&directory, "foreign", &elf(class, order, machine), 0o755);
        let error = refusal(&directory, &path, none);
        assert!(matches!(error, Error::Processor { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn headers_of_any_bytes_are_refused_or_read() {
    // Each byte of a small header is changed to some values. The answer must be a result or an
    // error, never a panic.
    let directory = directory("headers");
    let path = directory.join("program");
    let mut whole = elf(2, 1, 62);
    whole[32..40].copy_from_slice(&64u64.to_le_bytes());
    whole[54..56].copy_from_slice(&56u16.to_le_bytes());
    whole[56..58].copy_from_slice(&1u16.to_le_bytes());
    let mut segment = [0u8; 56];
    segment[0] = 3;
    segment[8..16].copy_from_slice(&120u64.to_le_bytes());
    segment[32..40].copy_from_slice(&8u64.to_le_bytes());
    whole.extend(segment);
    whole.extend(b"/nowher\0");
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = whole.clone();
            changed[at] = value;
            fs::write(&path, &changed).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            let mut options = Options::new(vec![path.clone().into()]);
            // QEMU is not needed, since the tested cases fail before it is started.
            options.qemu = Some("/no/qemu/here".into());
            options.plugins = vec!["/no/plugin".into()];
            let output = directory.join("out.pwt");
            let writer = trace::Options::default();
            capture::record(&options, &output, &writer, &mut |_| {}).expect_err("refused");
        }
    }
}

#[test]
fn tools_that_are_missing_or_unfit() {
    let directory = directory("tools");
    let error = refusal(&directory, "/bin/true", |options| options.qemu = Some("/no/qemu".into()));
    assert!(error.to_string().contains("/no/qemu: give the path of a QEMU"), "{error}");
    let error = refusal(&directory, "/bin/true", |options| options.qemus = Some(directory.clone()));
    let says = "there is no qemu-x86_64, which records the program: build it";
    assert!(error.to_string().contains(says), "{error}");
    let script = b"#!/bin/sh\necho qemu-x86_64 version 7.2.0 -plugin\n";
    let loads = file(&directory, "qemu-loads", script, 0o755);
    let error = refusal(&directory, "/bin/true", |options| {
        options.qemu = Some(loads.clone().into());
        options.plugins = vec!["/no.so".into()];
    });
    assert!(matches!(error, Error::NoPlugin(_)), "{error}");
    // A QEMU without plugins, as Debian 13's is.
    let unfit = file(&directory, "qemu-x86_64", b"#!/bin/sh\necho usage: qemu\n", 0o755);
    let error =
        refusal(&directory, "/bin/true", |options| options.qemu = Some(unfit.clone().into()));
    assert!(matches!(error, Error::NoPlugins(_)), "{error}");
    let script = b"#!/bin/sh\necho qemu-aarch64 version 10.0.13 -plugin\n";
    let other = file(&directory, "qemu-aarch64", script, 0o755);
    let error =
        refusal(&directory, "/bin/true", |options| options.qemu = Some(other.clone().into()));
    let says = "runs programs for aarch64, but /bin/true needs qemu-x86_64";
    assert!(error.to_string().contains(says), "{error}");
    // This QEMU supports plugins, but refuses Pagewalk's plugin.
    let says = "plugin requires API version 1, but this QEMU supports only a minimum version of 2";
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -h ] && {{ echo ' version 7.2 -plugin'; exit; }}\necho '{says}' >&2\nexit 1\n"
    );
    let newer = file(&directory, "qemu-newer", script.as_bytes(), 0o755);
    let error = refusal(&directory, "/bin/true", |options| {
        options.qemu = Some(newer.clone().into());
        options.plugins = vec![plugin()];
    });
    assert!(matches!(error, Error::PluginRefused { .. }), "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn an_output_that_exists_is_kept_and_nothing_runs() {
    let directory = directory("exists");
    let output = directory.join("out.pwt");
    fs::write(&output, "precious").unwrap();
    let mark = directory.join("mark");
    let mut options = Options::new(vec!["touch".into(), mark.clone().into()]);
    options.qemus = Some(qemus());
    let error = capture::record(&options, &output, &trace::Options::default(), &mut |_| {})
        .expect_err("refused");
    assert!(matches!(error, Error::Output { .. }), "{error}");
    assert!(error.to_string().contains("out.pwt"), "{error}");
    assert_eq!(fs::read(&output).unwrap(), b"precious");
    assert!(!mark.exists(), "the program did not run");
}

#[test]
fn the_recorder_inside_is_asked_for_by_its_name() {
    let directory = directory("inside");
    let said = directory.join("said");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >>{}\necho 'qemu-x86_64 version 10.0.13 (pagewalk) -plugin'\n",
        said.display()
    );
    let ours = file(&directory, "qemu-x86_64", script.as_bytes(), 0o755);
    let asked = |change: &dyn Fn(&mut Options)| {
        let _ = fs::remove_file(&said);
        let error = refusal(&directory, "/bin/true", |options| {
            options.plugins = vec!["/no/plugin/is/looked/for".into()];
            change(options);
        });
        assert!(matches!(error, Error::NotStarted { .. }), "{error}");
        let said = fs::read_to_string(&said).expect("it was started");
        assert!(said.contains("-plugin pagewalk,session=/proc/"), "{said}");
    };
    asked(&|options| options.qemu = Some(ours.clone().into()));
    asked(&|options| options.qemus = Some(directory.clone()));
    // A requested QEMU is used before all others.
    let error = refusal(&directory, "/bin/true", |options| {
        options.qemus = Some(directory.clone());
        options.qemu = Some("/no/qemu".into());
    });
    assert!(matches!(error, Error::NoSuchQemu(_)), "{error}");
}
