//! Tests the events of system calls: the processes and descriptors that a call refers to, and the
//! buffers that the kernel accessed.

use std::fs;
use std::path::Path;

use trace::{Buffer, Call, Event, FileKind};

use crate::common::{In, Whole, compile, directory, record};

in_both!(calls_tell_whom_they_were_about, messages_tell_what_the_kernel_touched);

/// The events of system calls with `--calls`, and of the other calls that manage memory.
fn calls_tell_whom_they_were_about((engine, options): In) {
    let directory = directory(&format!("calls-{engine}"));
    let source = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <stdio.h>
        #include <sys/ipc.h>
        #include <sys/mman.h>
        #include <sys/prctl.h>
        #include <sys/shm.h>
        #include <sys/uio.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static char buffer[64];
        int main(int argc, char **argv) {
            int fd = open(argv[1], O_RDWR | O_CREAT, 0600), pipes[2];
            if (write(fd, buffer, 10) != 10 || pwrite(fd, buffer + 10, 7, 100) != 7) return 1;
            struct iovec parts[2] = {{buffer, 3}, {buffer + 8, 4}};
            if (writev(fd, parts, 2) != 7 || pipe(pipes)) return 2;
            if (fork() == 0) _exit(write(pipes[1], buffer, 5) != 5);
            if (read(pipes[0], buffer, 64) != 5) return 3;
            wait(0);
            void *map = mmap(0, 8192, PROT_READ, MAP_SHARED, fd, 0);
            char *area = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            int id = shmget(IPC_PRIVATE, 12288, 0600);
            char *shared = shmat(id, 0, 0);
            shmctl(id, IPC_RMID, 0);
            mlock(area, 4096), munlock(area, 4096), msync(map, 4096, MS_SYNC);
            prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
            mlockall(MCL_CURRENT), munlockall();
            shared[1] = 2;
            shmdt(shared);
            dup2(pipes[0], 40);
            close(fd);
            return 0;
        }"#;
    let program = compile(&directory, "calls", "gcc", source);
    let file = directory.join("data");
    let mut options = options(&program, &[file.to_str().unwrap()]);
    options.calls = true;
    let outcome = record(&directory, &options);
    assert_eq!(outcome.status, 0);
    let path = &outcome.summary.path;
    let events: Vec<Event> =
        Whole::process(path, 0).events.into_iter().map(|(_, _, event)| event).collect();
    let calls: Vec<&Call> = events
        .iter()
        .filter_map(|event| if let Event::Call(call) = event { Some(&**call) } else { None })
        .collect();
    let of = |name: &str| -> Vec<&Call> {
        calls.iter().filter(|call| call.name == name).copied().collect()
    };
    use std::os::unix::fs::MetadataExt;
    let inode = fs::metadata(&file).unwrap().ino();
    let told = |call: &Call| {
        let which = call.descriptors.first().map(|it| (it.kind, it.file.inode));
        (call.result, call.offset, which, call.buffers.clone())
    };
    let regular = Some((FileKind::Regular, inode));
    let write = of("write").iter().map(|call| told(call)).find(|call| call.0 == 10).unwrap();
    assert_eq!((write.0, write.1, write.2), (10, Some(0), regular));
    let area = write.3[0].addr;
    let buffer = |addr, bytes| Buffer { addr, bytes };
    assert_eq!(told(of("pwrite64")[0]), (7, Some(100), regular, vec![buffer(area + 10, 7)]));
    let parts = vec![buffer(area, 3), buffer(area + 8, 4)];
    assert_eq!(told(of("writev")[0]), (7, Some(10), regular, parts));
    let pipe = of("pipe").into_iter().chain(of("pipe2")).next().unwrap();
    assert_eq!(pipe.descriptors.len(), 2);
    let ends = [pipe.descriptors[0].file.inode, pipe.descriptors[1].file.inode];
    assert!(pipe.descriptors[0].kind == FileKind::Pipe && ends[0] == ends[1]);
    let read = of("read").into_iter().find(|call| call.result == 5).unwrap();
    assert_eq!(read.descriptors[0].file.inode, ends[0]);
    let child = Whole::process(path, 1);
    let written = child.events.iter().find_map(|(_, _, event)| match event {
        Event::Call(call) if call.name == "write" => Some((**call).clone()),
        _ => None,
    });
    let written = written.unwrap();
    assert_eq!(written.descriptors[0].file.inode, ends[0], "both ends are one pipe");
    assert!(written.began_ns < read.ended_ns && read.began_ns < read.ended_ns);
    assert_eq!(of("dup2")[0].descriptors.len(), 2);
    assert!(of("close").iter().any(|call| told(call).2 == regular), "what was closed is known");
    assert!(of("wait4").len() == 1 && of("shmget").len() == 1);
    let has = |is: &dyn Fn(&Event) -> bool| events.iter().any(is);
    assert!(has(
        &|event| matches!(event, Event::Mmap { file: Some(file), .. } if file.inode == inode && file.bytes == 107)
    ));
    assert!(has(
        &|event| matches!(event, Event::Shmat { bytes: Some(12288), result, .. } if *result > 0)
    ));
    for name in ["shmdt", "mlock", "munlock", "msync", "huge-pages", "mlockall", "munlockall"] {
        assert!(has(&|event| event.name() == name), "{name}");
    }
    let own = fs::metadata(&program).unwrap();
    assert!(has(&|event| matches!(event, Event::Mapping { file: Some(file), offset: Some(0), .. }
        if (file.inode, file.device, file.bytes) == (own.ino(), own.dev(), own.len()))));
}

const MESSAGES: &str = r#"
    #define _GNU_SOURCE
    #include <stdio.h>
    #include <string.h>
    #include <sys/ipc.h>
    #include <sys/shm.h>
    #include <sys/socket.h>
    #include <sys/un.h>
    #include <unistd.h>
    static char out[64], in[64], more[64], control[128];
    static struct sockaddr_un to, from;
    int main(int argc, char **argv) {
        FILE *f = fopen(argv[1], "w");
        fprintf(f, "%lx %lx %lx %lx %lx", (long)out, (long)in, (long)more, (long)control, (long)&from);
        fclose(f);
        int ends[2], id = shmget(IPC_PRIVATE, 12288, 0600);
        char *shared = shmat(id, 0, 0);
        shmctl(id, IPC_RMID, 0);
        shared[1] = 2;
        if (shmdt(shared) || socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)) return 1;
        to.sun_family = AF_UNIX;
        memcpy(to.sun_path, "\0abc", 4);
        if (bind(ends[0], (struct sockaddr *)&to, 6)) return 2;
        // The message has two parts and a descriptor.
        struct iovec parts[2] = {{out, 10}, {out + 20, 7}};
        struct msghdr header = {0};
        header.msg_iov = parts, header.msg_iovlen = 2;
        header.msg_control = control, header.msg_controllen = CMSG_SPACE(sizeof(int));
        struct cmsghdr *first = CMSG_FIRSTHDR(&header);
        first->cmsg_level = SOL_SOCKET, first->cmsg_type = SCM_RIGHTS, first->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(first), &ends[0], sizeof(int));
        if (sendmsg(ends[0], &header, 0) != 17) return 3;
        struct iovec room[2] = {{in, 12}, {more, 60}};
        header.msg_iov = room, header.msg_controllen = sizeof control;
        header.msg_name = &from, header.msg_namelen = sizeof from;
        if (recvmsg(ends[1], &header, 0) != 17 || header.msg_namelen != 6) return 4;
        socklen_t length = sizeof from;
        if (send(ends[0], out, 5, 0) != 5) return 5;
        if (recvfrom(ends[1], in, 64, 0, (struct sockaddr *)&from, &length) != 5) return 6;
        if (send(ends[1], out, 3, 0) != 3 || recv(ends[0], in, 64, 0) != 3) return 7;
        return recv(ends[0], in, 64, MSG_DONTWAIT) != -1;
    }"#;

/// The system calls in the trace `path` by name, with result and buffers; and whether a segment was
/// attached.
fn told(path: &Path) -> (Vec<(String, i64, Vec<Buffer>)>, bool) {
    let events = Whole::process(path, 0).events;
    let calls = events.iter().filter_map(|(_, _, event)| match event {
        Event::Call(call) => Some((call.name.clone(), call.result, call.buffers.clone())),
        _ => None,
    });
    let attached = events.iter().find_map(|(_, _, event)| match event {
        Event::Shmat { bytes: Some(12288), result, .. } if *result > 4096 => Some(*result as u64),
        _ => None,
    });
    let gone = |event: &Event| matches!(event, Event::Shmdt { addr, result: 0 } if Some(*addr) == attached);
    (calls.collect(), events.iter().any(|(_, _, event)| gone(event)))
}

/// A recorded buffer has the bytes that were transferred, not the bytes for which the buffer had
/// room. This is tested on 64-bit processors and on 32-bit processors, where one system call stands
/// for many.
fn messages_tell_what_the_kernel_touched((engine, options): In) {
    let others: &[&str] = match engine {
        "qemu" => &["i686-linux-gnu-gcc", "aarch64-linux-gnu-gcc"],
        _ => &[],
    };
    for compiler in ["gcc"].iter().chain(others) {
        let directory = directory(&format!("messages-{engine}-{compiler}"));
        let program = compile(&directory, "messages", compiler, MESSAGES);
        let said = directory.join("said");
        let mut options = options(&program, &[said.to_str().unwrap()]);
        options.calls = true;
        let outcome = record(&directory, &options);
        assert_eq!(outcome.status, 0, "{compiler}");
        let [out, into, more, control, from] = crate::common::numbers(&said)[..] else {
            panic!("{compiler}")
        };
        let (calls, is_attached) = told(&outcome.summary.path);
        assert!(is_attached, "{compiler}: shmat and shmdt");
        let buffer = |addr, bytes| Buffer { addr, bytes };
        let of = |name: &str, result: i64| -> Vec<Buffer> {
            let found = calls.iter().find(|call| call.0 == name && call.1 == result);
            found
                .unwrap_or_else(|| panic!("{compiler}: no {name} of {result} in {calls:?}"))
                .2
                .clone()
        };
        // A header and a descriptor, aligned to a word of the processor's.
        let rights = if compiler.starts_with("i686") { 16 } else { 24 };
        let sent = [buffer(out, 10), buffer(out + 20, 7), buffer(control, rights)];
        assert_eq!(of("sendmsg", 17), sent, "{compiler}");
        let received =
            [buffer(into, 12), buffer(more, 5), buffer(from, 6), buffer(control, rights)];
        assert_eq!(of("recvmsg", 17), received, "{compiler}");
        assert_eq!(of("sendto", 5), [buffer(out, 5)], "{compiler}");
        assert_eq!(of("recvfrom", 5), [buffer(into, 5), buffer(from, 6)], "{compiler}");
        assert_eq!(of("recvfrom", 3), [buffer(into, 3)], "{compiler}");
        assert_eq!(of("recvfrom", -i64::from(libc::EAGAIN)), [], "{compiler}");
        assert_eq!(calls.iter().filter(|call| call.0 == "socketpair").count(), 1, "{compiler}");
        assert_eq!(calls.iter().filter(|call| call.0 == "shmget").count(), 1, "{compiler}");
    }
}
