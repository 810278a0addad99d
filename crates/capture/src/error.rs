use std::io;
use std::path::PathBuf;

/// Why a program could not be recorded: what went wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no command.
    #[error("no command: give the program and its arguments after `--`")]
    NoCommand,
    /// The program does not exist.
    #[error("{0}: no such program; look at its spelling, or give its path")]
    NotFound(String),
    /// The program is a directory.
    #[error("{0} is a directory, not a program")]
    Directory(PathBuf),
    /// The program is not executable.
    #[error("{0} may not be executed; if it is a program, make it executable: `chmod +x FILE`")]
    NotExecutable(PathBuf),
    /// The program may not be read, which QEMU needs.
    #[error("{path} cannot be read ({error}); to record a program, its file must be readable")]
    Unreadable {
        /// The path of the program.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is neither a program nor a script.
    #[error("{path}: {what}")]
    NotAProgram {
        /// The path of the file.
        path: PathBuf,
        /// The type of the file.
        what: String,
    },
    /// The program is for an architecture that is not supported.
    #[error(
        "{path} is a program for {processor}; programs for x86-64, i386, Arm, AArch64 and RISC-V \
         (64 bit) can be recorded"
    )]
    Processor {
        /// The path of the program.
        path: PathBuf,
        /// The architecture.
        processor: String,
    },
    /// This host's processor is not one on which programs are recorded.
    #[error(
        "programs can be recorded and placed only on x86-64, and this processor is {0}: record on \
         an x86-64 computer, and read the trace here"
    )]
    Host(&'static str),
    /// The program runs with privileges that a traced program cannot have.
    #[error(
        "{program}: {why}, which the kernel does not grant to a program that an unprivileged \
         pagewalk traces: run it without pagewalk, or run pagewalk as root"
    )]
    OtherRights {
        /// The path of the program.
        program: PathBuf,
        /// The kind of privileges.
        why: String,
    },
    /// The kernel does not support filters of system calls (seccomp).
    #[error(
        "programs cannot be placed here, because the kernel refuses a filter of system calls \
         (seccomp): {0}; use a kernel with CONFIG_SECCOMP_FILTER, or --no-ptrace, with which \
         fewer rules are possible"
    )]
    NoFilter(io::Error),
    /// The kernel cannot make `always` mean `madvise` for one program.
    #[error(
        "--only needs prctl(PR_SET_THP_DISABLE, PR_THP_DISABLE_EXCEPT_ADVISED) of Linux 6.18, which \
         this kernel does not have: leave --only out, or write `madvise` to \
         /sys/kernel/mm/transparent_hugepage/enabled"
    )]
    NoExcept,
    /// The program's allocations cannot be marked.
    #[error("{path}: its allocations cannot be marked: {why}")]
    Allocations {
        /// The path of the program.
        path: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// The engine cannot record this kind of program.
    #[error("{program}: {why}, which --engine native does not record; use --engine qemu")]
    NotNative {
        /// The path of the program.
        program: PathBuf,
        /// The kind of program.
        why: String,
    },
    /// The engine does not support this option.
    #[error("{0} does not work with --engine native; use --engine qemu")]
    NativeOption(&'static str),
    /// The running program cannot be recorded, and runs on.
    #[error("process {pid}: {why}")]
    NotAttached {
        /// The process.
        pid: u32,
        /// The reason, and what to do.
        why: String,
    },
    /// The kernel does not report which pages are large.
    #[error(
        "--pages needs PAGEMAP_SCAN (Linux 6.7 or later) and a readable /proc/self/pagemap, but \
         one of them is missing here: leave --pages out"
    )]
    NoPagemapScan,
    /// Snapshots of pages are not possible in QEMU.
    #[error(
        "--pages does not work in QEMU, where the program's memory is a part of QEMU's \
         memory{why}; leave --pages out, or use --engine native"
    )]
    PagesInQemu {
        /// The reason why the program would run in QEMU if that was not requested, after a semicolon.
        why: String,
    },
    /// Neither the engine nor a QEMU can record the program.
    #[error(
        "neither engine can record the program: for --engine native, {why}; for --engine qemu, \
         {error}"
    )]
    NeitherEngine {
        /// The reason why the engine does not record it.
        why: String,
        /// The reason why QEMU does not.
        error: Box<Error>,
    },
    /// The engine's file is missing.
    #[error(
        "{0}: the engine for --engine native is not there; run `rustup target add \
         x86_64-unknown-none` and `make build` in Pagewalk's source tree to build it, or use \
         --engine qemu"
    )]
    NoEngine(PathBuf),
    /// The program may not be traced.
    #[error(
        "{0}: --engine native needs ptrace to start a program, but ptrace is forbidden here, by a \
         container or by Yama; allow it (--cap-add SYS_PTRACE, or kernel.yama.ptrace_scope below \
         3), or use --engine qemu"
    )]
    Untraced(PathBuf),
    /// The engine could not be put into the program.
    #[error("{program}: the engine cannot be put into it ({error}); use --engine qemu")]
    Injection {
        /// The path of the program.
        program: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The engine did not begin.
    #[error(
        "{program}: the engine did not begin, and the program ended with status {status}; use --engine qemu"
    )]
    NotEntered {
        /// The path of the program.
        program: PathBuf,
        /// The program's exit status.
        status: i32,
    },
    /// The engine has ended the program, as it could not execute it further.
    #[error(
        "{program}: {why}, at {pc:#x}, which --engine native does not record yet: the program was ended there and \
         nothing is kept; use --engine qemu"
    )]
    Refused {
        /// The path of the program.
        program: PathBuf,
        /// The address of the instruction.
        pc: u64,
        /// The reason.
        why: String,
    },
    /// There is no QEMU for the program's architecture.
    #[error(
        "there is no {0}, which records the program: build it with `make qemu` in Pagewalk's source \
         tree, or give --qemu the path of a QEMU that supports plugins"
    )]
    NoQemu(String),
    /// The requested QEMU does not exist.
    #[error("there is no {0}: give the path of a QEMU, as in --qemu /usr/bin/qemu-x86_64")]
    NoSuchQemu(PathBuf),
    /// The folder in the environment variable does not have this QEMU.
    #[error(
        "PAGEWALK_QEMU_DIR names {folder}, which has no {name}: name the folder that has it, or \
         unset the variable to record in Pagewalk's own QEMU"
    )]
    NotInFolder {
        /// The path of the folder.
        folder: PathBuf,
        /// The name of the QEMU.
        name: String,
    },
    /// The requested QEMU is for programs of another architecture.
    #[error(
        "{qemu} runs programs for {runs}, but {program} needs {needs}: give the path of {needs}"
    )]
    OtherQemu {
        /// The path of the requested QEMU.
        qemu: PathBuf,
        /// The architecture of its programs, as QEMU names it.
        runs: String,
        /// The path of the program.
        program: PathBuf,
        /// The name of the QEMU that can run the program.
        needs: String,
    },
    /// The QEMU that was found does not support plugins.
    #[error(
        "{0} was built without plugins, so that it cannot record: run `make qemu` in Pagewalk's \
         source tree, or give --qemu the path of a QEMU that was built with --enable-plugins"
    )]
    NoPlugins(PathBuf),
    /// QEMU refused the plugin.
    #[error("{qemu} does not load the recorder {plugin}: {said}")]
    PluginRefused {
        /// The path of QEMU.
        qemu: PathBuf,
        /// The path of the plugin.
        plugin: PathBuf,
        /// QEMU's message.
        said: String,
    },
    /// The plugin's file is missing.
    #[error(
        "the recorder plugin {0} is missing; build it with `cargo build --release -p recorder` \
         and name it in PAGEWALK_PLUGIN"
    )]
    NoPlugin(PathBuf),
    /// The system refused something that recording needs.
    #[error("{what}: {error}")]
    System {
        /// The action that failed.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// QEMU ended before it ran the program.
    #[error("{qemu} ended with status {status} before the program began: look at QEMU's messages")]
    NotStarted {
        /// The path of QEMU.
        qemu: PathBuf,
        /// The program's exit status.
        status: i32,
    },
    /// The rings have invalid contents.
    #[error(
        "the recorder of process {pid} has written invalid data ({what}): this is a fault in \
         Pagewalk; please report it"
    )]
    Garbled {
        /// The process identifier.
        pid: u32,
        /// Description of the invalid part.
        what: String,
    },
    /// Recording ended before the program did; what was recorded is kept.
    #[error("{error}; what was recorded before is kept in {part}, which --keep-going reads")]
    Kept {
        /// The error.
        error: Box<Error>,
        /// The path of the incomplete trace file.
        part: PathBuf,
    },
    /// The requested window did not begin.
    #[error("{what} (the program ended with status {status})")]
    NeverBegan {
        /// The event at which the window should have begun.
        what: String,
        /// The program's exit status.
        status: i32,
    },
    /// No process matched the one to record.
    #[error(
        "no process ran as `{process}`, so nothing was recorded (the program ended with status \
         {status}): record without --process, and list the processes with `pagewalk info`"
    )]
    NoProcess {
        /// The process as requested.
        process: String,
        /// The program's exit status.
        status: i32,
    },
    /// The trace cannot be written; the program was not started.
    #[error("{error}")]
    Output {
        /// The error.
        error: trace::Error,
    },
    /// The trace could not be written; the program has run to its end, with `status`.
    #[error("{error} (the program continued unrecorded and ended with status {status})")]
    Trace {
        /// The error.
        error: trace::Error,
        /// The program's exit status.
        status: i32,
    },
}
