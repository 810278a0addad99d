//! Following `execve`: the new program runs in QEMU with this plugin too.
//!
//! QEMU itself would let the kernel execute the file natively, and the new program would not be
//! recorded. Instead, the recorder executes QEMU, `qemu-ARCH -plugin SESSION -0 ARGV0 PATH ARGS…`,
//! with the guest's own strings. If a program cannot be followed, QEMU handles the call as usual,
//! with the errors that the program expects.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::Ordering;

use ring::EventCode;

use crate::isa::Guest;
use crate::{events, global, guest, qemu, span};

const PATH_BYTES: usize = 4096;
/// The number of bytes at the beginning of a file from which its type is determined. Linux reads
/// this many bytes for `#!`.
const HEAD_BYTES: usize = 256;
/// The maximum length in bytes of the path and arguments that are reported to the host.
const TOLD_BYTES: usize = 2048;
/// The maximum number of arguments, and of environment variables, of a program that is followed.
/// Linux limits their bytes, and this limit allows no more of them.
const STRINGS_MAX: usize = 1 << 18;

type Path = [u8; PATH_BYTES];

/// The guest's request, as addresses in its memory.
pub(crate) struct Request {
    /// The directory descriptor of `execveat`.
    pub(crate) directory: Option<i32>,
    pub(crate) path: u64,
    pub(crate) arguments: u64,
    pub(crate) environment: u64,
    pub(crate) flags: i32,
}

/// Executes QEMU for the program that the guest requests. Returns only if the program cannot or
/// must not be followed.
pub(crate) fn follow(vcpu: u32, guest: Guest, request: &Request) {
    let mut path = [0; PATH_BYTES];
    let Some(held) = resolve(request, &mut path) else { return };
    let Some(arguments) = Strings::read(guest, request.arguments) else { return };
    let Some(environment) = Strings::read(guest, request.environment) else { return };
    tell(vcpu, &path, &arguments);
    let session = global::shared().session();
    if session.follow != 0 && session.over.load(Ordering::Relaxed) == 0 {
        match Plan::make(&path) {
            // The interpreter could not open the script, since `execve` closes its descriptor. The
            // kernel then refuses the call, so QEMU's own handling is right.
            Ok(plan) if plan.is_script && held != Held::Nothing => {}
            Ok(mut plan) => {
                global::process().executing.store(1, Ordering::Release);
                plan.execute(&path, &arguments, &environment);
                global::process().executing.store(0, Ordering::Release);
            }
            Err(Some(why)) => {
                events::note(vcpu, why);
                span::mark(vcpu, true);
            }
            Err(None) => {}
        }
    }
    held.release();
    global::process().leaving.store(1, Ordering::Release);
}

/// Called when the guest's `execve` has failed: the process continues.
pub(crate) fn failed() {
    global::process().leaving.store(0, Ordering::Release);
}

/// How a file is to be executed.
struct Plan {
    /// The path of QEMU.
    qemu: Path,
    /// The file that QEMU runs: the program, or a script's interpreter.
    program: Path,
    /// The interpreter's optional argument.
    option: Option<Path>,
    /// Whether the file is a script.
    is_script: bool,
    /// The library that reports the program's allocations, if it is requested and installed.
    preload: Option<Path>,
}

impl Plan {
    /// Examines the file. The error contains a note if the file must run unrecorded.
    fn make(path: &Path) -> Result<Plan, Option<&'static str>> {
        let mut program = *path;
        let mut option = None;
        let mut is_script = false;
        loop {
            let mut head = [0; HEAD_BYTES];
            let length = head_of(&program, &mut head)?;
            let head = &head[..length];
            if let Some(line) = head.strip_prefix(b"#!") {
                if is_script {
                    return Err(Some(
                        "a script ran unrecorded: its interpreter is itself a script",
                    ));
                }
                let (interpreter, argument) = shebang(line).ok_or(None)?;
                is_script = true;
                program = in_folder(&interpreter).unwrap_or(interpreter);
                option = argument;
                continue;
            }
            let Some(arch) = arch_of(head) else {
                return Err(Some(
                    "a program ran unrecorded: programs for its processor cannot be recorded",
                ));
            };
            let prefix = until_zero(&global::shared().session().qemu);
            let qemu = joined(&[prefix, arch]).ok_or(None)?;
            // SAFETY: the path is terminated.
            if unsafe { libc::access(qemu.as_ptr().cast(), libc::X_OK) } != 0 {
                return Err(Some(
                    "a program ran unrecorded: no QEMU for its processor is installed",
                ));
            }
            let library = until_zero(&global::shared().session().allocations);
            let preload = match library {
                b"" => None,
                stem => joined(&[stem, arch, b".so"]).filter(|path| {
                    // SAFETY: the path is terminated.
                    unsafe { libc::access(path.as_ptr().cast(), libc::R_OK) == 0 }
                }),
            };
            return Ok(Plan { qemu, program, option, is_script, preload });
        }
    }

    /// Executes QEMU. Returns only if the kernel refuses.
    fn execute(&mut self, path: &Path, arguments: &Strings, environment: &Strings) {
        let extra = 10;
        let changed = self.preloading(environment);
        let Some(vector) = Strings::new(arguments.count + extra) else { return };
        let session = global::shared().session();
        let argv0 = match (self.is_script, arguments.get(0)) {
            (false, Some(argv0)) => argv0,
            _ => self.program.as_ptr().cast(),
        };
        let fixed: [*const c_char; 5] = [
            self.qemu.as_ptr().cast(),
            c"-plugin".as_ptr(),
            session.plugin.as_ptr().cast(),
            c"-0".as_ptr(),
            argv0,
        ];
        let preload = changed.as_ref().and_then(|(_, value)| value.as_ref());
        let preload = preload.map(|value| value.as_ptr().cast::<c_char>());
        let environment = changed.as_ref().map_or(environment, |(rest, _)| rest);
        let preload = preload.into_iter().flat_map(|value| [c"-E".as_ptr(), value]);
        let program = [self.program.as_ptr().cast::<c_char>()];
        let option = self.option.as_ref().map(|option| option.as_ptr().cast::<c_char>());
        let script = self.is_script.then(|| path.as_ptr().cast::<c_char>());
        let rest = (1..arguments.count).filter_map(|index| arguments.get(index));
        let all =
            fixed.into_iter().chain(preload).chain(program).chain(option).chain(script).chain(rest);
        for (index, string) in all.enumerate() {
            vector.set(index, string);
        }
        // SAFETY: both vectors end with a null; the kernel checks the strings.
        unsafe { libc::execve(self.qemu.as_ptr().cast(), vector.as_ptr(), environment.as_ptr()) };
    }
}

/// The name of the environment variable that lists the libraries to load first, with the `=` after
/// it.
const PRELOAD: &[u8; 11] = b"LD_PRELOAD=";

impl Plan {
    /// If allocations are recorded: the environment for QEMU, and the variable `LD_PRELOAD` for the
    /// program. QEMU's environment lacks this variable, since QEMU's own loader must not load the
    /// program's libraries. The variable lists the library for the program's processor, then the
    /// libraries that the program's environment lists.
    fn preloading(&self, environment: &Strings) -> Option<(Strings, Option<Path>)> {
        let stem = Some(until_zero(&global::shared().session().allocations));
        let stem = stem.filter(|stem| !stem.is_empty())?;
        let rest = Strings::new(environment.count)?;
        let (mut count, mut wanted) = (0, [0; PATH_BYTES]);
        for index in 0..environment.count {
            let Some(string) = environment.get(index) else { break };
            let address = (string as u64).wrapping_sub(qemu::guest_base() as u64);
            let mut name = [0; PRELOAD.len()];
            if guest::read(address, &mut name) && name == *PRELOAD {
                read_string(address + PRELOAD.len() as u64, &mut wanted);
            } else {
                rest.set(count, string);
                count += 1;
            }
        }
        let mut wanted = until_zero(&wanted);
        if wanted.starts_with(stem) {
            // The recorder added this library for the program that calls `execve`.
            let end = wanted.iter().position(|&byte| byte == b':');
            wanted = end.map_or(&b""[..], |end| &wanted[end + 1..]);
        }
        let own = self.preload.as_ref().map_or(&b""[..], |path| until_zero(path));
        let between: &[u8] = if own.is_empty() || wanted.is_empty() { b"" } else { b":" };
        let is_any = !own.is_empty() || !wanted.is_empty();
        let value = is_any.then(|| joined(&[PRELOAD, own, between, wanted]));
        Some((rest, value.flatten()))
    }
}

/// How QEMU can open the file that a descriptor refers to, although `execve` may close this
/// descriptor.
#[derive(PartialEq, Eq)]
enum Held {
    /// QEMU uses the descriptor itself, which `execve` does not close.
    Nothing,
    /// QEMU opens the file by its path.
    ByPath,
    /// QEMU uses this copy of the descriptor.
    Copy(i32),
}

impl Held {
    /// Finds another way to open the file of `fd`, whose path is `path`, if `execve` closes `fd`.
    fn of(fd: i32, path: &mut Path) -> Held {
        // SAFETY: system calls on a descriptor and terminated paths.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) & libc::FD_CLOEXEC == 0 {
                return Held::Nothing;
            }
            let mut named = [0; PATH_BYTES];
            let length = guest::path_of(fd as u32, &mut named[..PATH_BYTES - 1]);
            let mut there: libc::stat = core::mem::zeroed();
            let is_same = length != 0
                && libc::stat(named.as_ptr().cast(), &mut there) == 0
                && guest::file_of(fd)[..2] == [there.st_dev, there.st_ino];
            if is_same {
                *path = named;
                return Held::ByPath;
            }
            // A high number, so that the copy does not take a low number that the program expects
            // to be free.
            let copy = libc::fcntl(fd, libc::F_DUPFD, 200);
            let copy = if copy < 0 { libc::fcntl(fd, libc::F_DUPFD, 3) } else { copy };
            let mut link = [0; 32];
            match guest::proc_fd(copy as u32, &mut link).and_then(|link| joined(&[link.to_bytes()]))
            {
                Some(link) if copy >= 0 => {
                    *path = link;
                    Held::Copy(copy)
                }
                _ => Held::Nothing,
            }
        }
    }

    /// Closes the copy of the descriptor, if there is one. Called if the program was not executed.
    fn release(self) {
        if let Held::Copy(fd) = self {
            // SAFETY: the recorder itself has opened this descriptor.
            unsafe { libc::close(fd) };
        }
    }
}

/// Resolves the path that the guest gives, relative to this process's directory.
fn resolve(request: &Request, path: &mut Path) -> Option<Held> {
    let mut asked = [0; PATH_BYTES];
    if !read_string(request.path, &mut asked) {
        return None;
    }
    let mut descriptor = None;
    let asked = until_zero(&asked);
    let is_self = asked == b"/proc/self/exe";
    let own = qemu::program();
    let mut link = [0; 32];
    let parts: [&[u8]; 3] = if let Some(own) = own.filter(|_| is_self) {
        [own.to_bytes(), b"", b""]
    } else if asked.starts_with(b"/") {
        [asked, b"", b""]
    } else {
        match request.directory {
            Some(fd) if fd != libc::AT_FDCWD => {
                let link = guest::proc_fd(fd as u32, &mut link)?;
                if asked.is_empty() {
                    if request.flags & libc::AT_EMPTY_PATH == 0 {
                        return None;
                    }
                    descriptor = Some(fd);
                    [link.to_bytes(), b"", b""]
                } else {
                    [link.to_bytes(), b"/", asked]
                }
            }
            _ if asked.is_empty() => return None,
            // A name that begins with a dash would be an option to QEMU.
            _ => [b"./", asked, b""],
        }
    };
    *path = joined(&parts)?;
    if let Some(inside) = in_folder(path) {
        *path = inside;
        return Some(Held::Nothing);
    }
    if descriptor.is_none() {
        // A C library uses these paths for `fexecve` if the kernel has no `execveat`.
        let own = [&b"/proc/self/fd/"[..], b"/dev/fd/"];
        let number = own.iter().find_map(|prefix| asked.strip_prefix(*prefix));
        descriptor = number.and_then(|number| core::str::from_utf8(number).ok()?.parse().ok());
    }
    Some(descriptor.map_or(Held::Nothing, |fd| Held::of(fd, path)))
}

/// The program with the absolute `path` inside the folder in which QEMU first looks for files to
/// open (`-L`), if this program exists. For example, a program of another architecture that
/// executes `/bin/sh` gets the shell of its own architecture.
fn in_folder(path: &Path) -> Option<Path> {
    // SAFETY: the name is terminated, and nobody changes QEMU's own environment.
    let folder = unsafe { libc::getenv(c"QEMU_LD_PREFIX".as_ptr()) };
    if folder.is_null() || path[0] != b'/' {
        return None;
    }
    // SAFETY: a variable's value is terminated.
    let inside = joined(&[unsafe { CStr::from_ptr(folder) }.to_bytes(), until_zero(path)])?;
    // SAFETY: the path is terminated.
    (unsafe { libc::access(inside.as_ptr().cast(), libc::X_OK) } == 0).then_some(inside)
}

/// Reads a zero-terminated string of the guest.
fn read_string(address: u64, to: &mut Path) -> bool {
    // The string may end right before unmapped memory, so read up to the end of a page at a time.
    let mut length = 0;
    while length < PATH_BYTES {
        let step = (4096 - (address as usize).wrapping_add(length) % 4096).min(PATH_BYTES - length);
        let from = address.wrapping_add(length as u64);
        if guest::read_bytes(from, to[length..].as_mut_ptr(), step) != step {
            return false;
        }
        if to[length..length + step].contains(&0) {
            return true;
        }
        length += step;
    }
    false
}

/// Reads the beginning of an executable file; `Err(None)` if the kernel will refuse it.
fn head_of(path: &Path, head: &mut [u8; HEAD_BYTES]) -> Result<usize, Option<&'static str>> {
    let name = path.as_ptr().cast::<c_char>();
    // SAFETY: the path is terminated; results are checked.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        if libc::access(name, libc::X_OK) != 0
            || libc::stat(name, &mut stat) != 0
            || stat.st_mode & libc::S_IFMT != libc::S_IFREG
        {
            return Err(None);
        }
        if stat.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0 && libc::geteuid() != 0 {
            return Err(Some("a program ran unrecorded: it gets other rights (setuid or setgid)"));
        }
        let fd = libc::open(name, libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(Some("a program ran unrecorded: this user may not read its file"));
        }
        let length = libc::read(fd, head.as_mut_ptr().cast(), HEAD_BYTES);
        libc::close(fd);
        Ok(length.max(0) as usize)
    }
}

/// The interpreter in the line after `#!`, and its argument if there is one.
fn shebang(line: &[u8]) -> Option<(Path, Option<Path>)> {
    let end = line.iter().position(|&byte| byte == b'\n')?;
    let line = line[..end].trim_ascii();
    let split = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(split);
    let rest = rest.trim_ascii();
    if interpreter.is_empty() {
        return None;
    }
    let option = if rest.is_empty() { None } else { Some(joined(&[rest])?) };
    Some((joined(&[interpreter])?, option))
}

/// QEMU's name for the architecture of an ELF file.
fn arch_of(head: &[u8]) -> Option<&'static [u8]> {
    if head.len() < 20 || !head.starts_with(b"\x7fELF") {
        return None;
    }
    // Class, byte order, machine: ELF specification, figures 1-3 and 1-4.
    match (head[4], head[5], u16::from_le_bytes([head[18], head[19]])) {
        (2, 1, 62) => Some(b"x86_64"),
        (1, 1, 3) => Some(b"i386"),
        (1, 1, 40) => Some(b"arm"),
        (2, 1, 183) => Some(b"aarch64"),
        (2, 1, 243) => Some(b"riscv64"),
        _ => None,
    }
}

/// Reports path and arguments to the host.
fn tell(vcpu: u32, path: &Path, arguments: &Strings) {
    let mut told = [0u8; TOLD_BYTES];
    let mut length = 0;
    let mut append = |text: &[u8]| {
        let room = TOLD_BYTES - length;
        if text.len() < room {
            told[length..length + text.len()].copy_from_slice(text);
            length += text.len() + 1;
        }
    };
    append(until_zero(path));
    let mut argument = [0; PATH_BYTES];
    for index in 0..arguments.count {
        let Some(string) = arguments.get(index) else { break };
        let address = (string as u64).wrapping_sub(qemu::guest_base() as u64);
        if read_string(address, &mut argument) {
            append(until_zero(&argument));
        }
    }
    events::text(vcpu, EventCode::Execve, &[], &told[..length]);
    span::mark(vcpu, true);
}

/// A vector of strings for `execve`. The vector of pointers has its own memory mapping.
struct Strings {
    pointers: *mut *const c_char,
    count: usize,
}

impl Strings {
    /// A vector of `count` null pointers, and one more that terminates it.
    fn new(count: usize) -> Option<Strings> {
        // SAFETY: a fresh anonymous mapping.
        let pages = unsafe {
            libc::mmap(
                ptr::null_mut(),
                (count + 1) * size_of::<*const c_char>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        (pages != libc::MAP_FAILED).then_some(Strings { pointers: pages.cast(), count })
    }

    /// The guest's vector at `address`, with its pointers converted to host addresses.
    fn read(guest: Guest, address: u64) -> Option<Strings> {
        if address == 0 {
            return Strings::new(0);
        }
        let bytes = guest.pointer_bytes();
        let pointer = |index: usize| {
            let mut word = [0u8; 8];
            let at = address.wrapping_add((index * bytes) as u64);
            let read = guest::read_bytes(at, word.as_mut_ptr(), bytes) == bytes;
            read.then(|| u64::from_le_bytes(word))
        };
        let mut count = 0;
        while pointer(count)? != 0 {
            count += 1;
            if count > STRINGS_MAX {
                return None;
            }
        }
        let strings = Strings::new(count)?;
        let base = qemu::guest_base();
        for index in 0..count {
            let host = (pointer(index)? as usize).wrapping_add(base);
            strings.set(index, host as *const c_char);
        }
        Some(strings)
    }

    fn set(&self, index: usize, string: *const c_char) {
        assert!(index < self.count);
        // SAFETY: inside the mapping.
        unsafe { self.pointers.add(index).write(string) };
    }

    fn get(&self, index: usize) -> Option<*const c_char> {
        // SAFETY: inside the mapping.
        (index < self.count).then(|| unsafe { self.pointers.add(index).read() })
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers
    }
}

impl Drop for Strings {
    fn drop(&mut self) {
        let bytes = (self.count + 1) * size_of::<*const c_char>();
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(self.pointers.cast::<c_void>(), bytes) };
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The parts joined and zero-terminated. `None` if the result is too long.
fn joined(parts: &[&[u8]]) -> Option<Path> {
    let mut whole = [0; PATH_BYTES];
    let mut length = 0;
    for part in parts {
        whole.get_mut(length..length + part.len())?.copy_from_slice(part);
        length += part.len();
    }
    (length < PATH_BYTES).then_some(whole)
}
