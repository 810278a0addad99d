use std::io;
use std::path::PathBuf;

/// Why a program could not be recorded: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no command.
    #[error("no command: give the program and its arguments after `--`")]
    NoCommand,
    /// The program is not there.
    #[error("{0}: no such program; look at its spelling, or give its path")]
    NotFound(String),
    /// The program is a directory.
    #[error("{0}: is a directory, not a program")]
    Directory(PathBuf),
    /// The program may not be executed.
    #[error("{0}: may not be executed; `chmod +x` it if it is a program")]
    NotExecutable(PathBuf),
    /// The program may not be read, which QEMU has to.
    #[error("{path}: cannot be read, which recording needs: {error}")]
    Unreadable {
        /// The program.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file is neither a program nor a script.
    #[error("{path}: {what}")]
    NotAProgram {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// The program is for a processor that is not recorded.
    #[error(
        "{path}: is a program for {processor}; programs for x86-64, i386, Arm, AArch64 and RISC-V \
         (64 bit) can be recorded"
    )]
    Processor {
        /// The program.
        path: PathBuf,
        /// What it is for.
        processor: String,
    },
    /// The program is run with rights that one that is traced cannot have.
    #[error(
        "{program}: {why}, which the kernel does not grant to a program that an unprivileged \
         pagewalk traces: run it without pagewalk, or run pagewalk as root"
    )]
    OtherRights {
        /// The program.
        program: PathBuf,
        /// What it is.
        why: String,
    },
    /// The kernel takes no filter of system calls.
    #[error(
        "programs cannot be placed here, as a filter of system calls (seccomp) is refused: {0}"
    )]
    NoFilter(io::Error),
    /// The kernel cannot have `always` mean `madvise` for one program.
    #[error(
        "--only needs prctl(PR_SET_THP_DISABLE, PR_THP_DISABLE_EXCEPT_ADVISED) of Linux 6.18, \
         which this kernel does not have: leave it out, or write `madvise` to \
         /sys/kernel/mm/transparent_hugepage/enabled"
    )]
    NoExcept,
    /// Its allocations cannot be marked.
    #[error("{path}: its allocations cannot be marked: {why}")]
    Allocations {
        /// The program.
        path: PathBuf,
        /// Why not, and what to do.
        why: String,
    },
    /// The engine cannot record such a program.
    #[error("{program}: {why}, which --engine native does not record; use --engine qemu")]
    NotNative {
        /// The program.
        program: PathBuf,
        /// What it is.
        why: String,
    },
    /// The engine cannot do that.
    #[error("{0} does not work with --engine native; use --engine qemu")]
    NativeOption(&'static str),
    /// The engine is not there.
    #[error(
        "{0}: there is no engine for --engine native; `rustup target add x86_64-unknown-none` and `make build` in \
         Pagewalk's source tree build it; or use --engine qemu"
    )]
    NoEngine(PathBuf),
    /// The program may not be traced.
    #[error(
        "{0}: ptrace is forbidden here, by a container or by Yama, and --engine native needs it to \
         start; allow it (--cap-add SYS_PTRACE, or kernel.yama.ptrace_scope below 3), or use \
         --engine qemu"
    )]
    Untraced(PathBuf),
    /// The engine could not be put into the program.
    #[error("{program}: the engine cannot be put into it ({error}); use --engine qemu")]
    Injection {
        /// The program.
        program: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The engine did not begin.
    #[error(
        "{program}: the engine did not begin, and the program ended with status {status}; use --engine qemu"
    )]
    NotEntered {
        /// The program.
        program: PathBuf,
        /// The program's exit status.
        status: i32,
    },
    /// The engine has ended the program, as it could not go on.
    #[error(
        "{program}: {why}, at {pc:#x}, which --engine native does not record yet: the program was ended there and \
         nothing is kept; use --engine qemu"
    )]
    Refused {
        /// The program.
        program: PathBuf,
        /// Where.
        pc: u64,
        /// What it did.
        why: String,
    },
    /// There is no QEMU for it.
    #[error(
        "there is no {0}, which records the program: build it with `make qemu` in Pagewalk's \
         source tree, or name a QEMU that supports plugins with --qemu PATH"
    )]
    NoQemu(String),
    /// The QEMU that was asked for is not there.
    #[error("there is no {0}: give the path of a QEMU, as in --qemu /usr/bin/qemu-x86_64")]
    NoSuchQemu(PathBuf),
    /// The folder of QEMUs that the environment names does not have it.
    #[error(
        "PAGEWALK_QEMU_DIR names {folder}, which has no {name}: name the folder that has it, or unset the variable to \
         record in Pagewalk's own"
    )]
    NotInFolder {
        /// The folder.
        folder: PathBuf,
        /// The name of the QEMU.
        name: String,
    },
    /// The QEMU that was asked for is for programs of another instruction set.
    #[error(
        "{qemu} runs programs for {runs}, and {program} needs {needs}: give the path of that \
         instead"
    )]
    OtherQemu {
        /// The QEMU that was asked for.
        qemu: PathBuf,
        /// The instruction set of its programs, as QEMU names it.
        runs: String,
        /// The program.
        program: PathBuf,
        /// The name of the QEMU that can run the program.
        needs: String,
    },
    /// The QEMU that is there takes no plugins.
    #[error(
        "{0} was built without plugins, so that it cannot record: run `make qemu` in Pagewalk's \
         source tree, or name a QEMU that was built with --enable-plugins with --qemu PATH"
    )]
    NoPlugins(PathBuf),
    /// QEMU and the plugin do not fit together.
    #[error("{qemu} does not load the recorder {plugin}: {said}")]
    PluginRefused {
        /// QEMU.
        qemu: PathBuf,
        /// The plugin.
        plugin: PathBuf,
        /// What QEMU said.
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
        /// What was tried.
        what: String,
        /// What the system said.
        error: io::Error,
    },
    /// QEMU ended before it ran the program.
    #[error("{qemu} ended with status {status} before the program ran")]
    NotStarted {
        /// QEMU.
        qemu: PathBuf,
        /// Its exit status.
        status: i32,
    },
    /// The rings hold what they should not.
    #[error("the recorder of process {pid} has sent nonsense ({what}); please report this")]
    Garbled {
        /// The process.
        pid: u32,
        /// What was found.
        what: String,
    },
    /// Recording ended before the program did.
    #[error("{error}; what was recorded before is kept in {part}, which --keep-going reads")]
    Kept {
        /// What happened.
        error: Box<Error>,
        /// The file.
        part: PathBuf,
    },
    /// The window that was asked for did not begin.
    #[error("{what} (the program ended with status {status})")]
    NeverBegan {
        /// What did not come.
        what: String,
        /// The program's exit status.
        status: i32,
    },
    /// No process was the one to record.
    #[error(
        "no process ran as `{process}`, so nothing was recorded (the program ended with status \
         {status}); `pagewalk record` without --process records all, and `pagewalk info` lists them"
    )]
    NoProcess {
        /// What was asked for.
        process: String,
        /// The program's exit status.
        status: i32,
    },
    /// The trace cannot be written; the program was not started.
    #[error("{error}")]
    Output {
        /// What is wrong.
        error: trace::Error,
    },
    /// The trace could not be written; the program has run to its end, with `status`.
    #[error("{error} (the program went on unrecorded and ended with status {status})")]
    Trace {
        /// What happened.
        error: trace::Error,
        /// The program's exit status.
        status: i32,
    },
}
