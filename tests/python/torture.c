/* One kind of program for each argument: what a recorder must not stumble over.
 * Each prints what it saw and ends with a status of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self;
static volatile long sink[4096];

static void work(int n) { for (int i = 0; i < n; i++) sink[i & 4095] += i; }

static int reap(void) {
    int status, sum = 0;
    while (wait(&status) > 0) sum += WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
    return sum;
}

static int forks(void) {
    for (int i = 0; i < 200; i++)
        if (fork() == 0) { work(1000); _exit(i & 1); }
    printf("%d\n", reap());
    return 3;
}

static int vforks(void) {
    for (int i = 0; i < 20; i++)
        if (vfork() == 0) { execl(self, self, "status", "2", (char *)0); _exit(9); }
    printf("%d\n", reap());
    return 4;
}

static int spawns(void) {
    char *arguments[] = {self, "status", "1", 0};
    for (int i = 0; i < 20; i++) posix_spawn(0, self, 0, 0, arguments, environ);
    printf("%d\n", reap());
    return 5;
}

static int execs(const char *left) {
    char next[16];
    int n = left ? atoi(left) : 20;
    work(1000);
    if (n == 0) { printf("end of the chain\n"); return 6; }
    snprintf(next, sizeof next, "%d", n - 1);
    execl(self, self, "execs", next, (char *)0);
    return 1;
}

static pthread_barrier_t barrier;
static void *waiting(void *unused) { (void)unused; work(100); pthread_barrier_wait(&barrier); return 0; }

static int threads(void) {
    pthread_t all[1000];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&barrier, 0, 1001);
    for (int i = 0; i < 1000; i++)
        if (pthread_create(&all[i], &small, waiting, 0)) return 1;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 1000; i++) pthread_join(all[i], 0);
    printf("1000 threads\n");
    return 7;
}

static void *nothing(void *unused) { (void)unused; return 0; }

static int churn(void) {
    for (int i = 0; i < 500; i++) {
        pthread_t one;
        if (pthread_create(&one, 0, nothing, 0)) return 1;
        pthread_join(one, 0);
    }
    printf("churned\n");
    return 8;
}

static int demon(const char *file) {
    fflush(stdout);
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            for (int fd = 0; fd < 1024; fd++) close(fd);
            usleep(100000);
            work(100000);
            int fd = open(file, O_CREAT | O_WRONLY, 0600);
            _exit(write(fd, "done", 4) != 4);
        }
        _exit(0);
    }
    reap();
    printf("parted\n");
    return 9;
}

static volatile sig_atomic_t came;
static void on_signal(int signal) { (void)signal; came++; }

static int timers(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, 0);
    struct itimerval often = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &often, 0);
    while (came < 100) work(100);
    printf("100 came\n");
    return 10;
}

static sigjmp_buf back;
static void on_fault(int signal) { (void)signal; came++; siglongjmp(back, 1); }

static int faults(void) {
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, 0);
    for (int i = 0; i < 50; i++)
        if (sigsetjmp(back, 1) == 0) *(volatile int *)8 = 1;
    printf("%d faults\n", (int)came);
    return 11;
}

static int closed(void) {
    printf("before\n");
    fflush(stdout);
    for (int fd = 0; fd < 1024; fd++) close(fd);
    work(100000);
    return 12;
}

static int children(void) {
    struct rlimit limit = {1024, 1024};
    setrlimit(RLIMIT_NOFILE, &limit);
    int gate[2];
    if (pipe(gate)) return 1;
    int made = 0;
    for (int i = 0; i < 700; i++) {
        pid_t pid = fork();
        if (pid == 0) { char c; close(gate[1]); if (read(gate[0], &c, 1)) _exit(2); _exit(0); }
        made += pid > 0;
    }
    close(gate[1]);
    printf("%d %d\n", made, reap());
    return 13;
}

static int homeless(void) {
    char name[] = "/tmp/torture-XXXXXX";
    if (!mkdtemp(name) || chdir(name) || rmdir(name)) return 1;
    if (fork() == 0) { execl(self, self, "status", "5", (char *)0); _exit(9); }
    printf("%d\n", reap());
    return 14;
}

static int nameless(void) {
    char copy[] = "/tmp/torture-XXXXXX", block[65536];
    int from = open(self, O_RDONLY), to = mkstemp(copy);
    for (ssize_t n; (n = read(from, block, sizeof block)) > 0;) if (write(to, block, n) != n) return 1;
    fchmod(to, 0700), close(to), close(from);
    to = open(copy, O_RDONLY | O_CLOEXEC);
    unlink(copy);
    char *arguments[] = {"nameless", "status", "6", 0};
    fflush(stdout);
    if (fork() == 0) { fexecve(to, arguments, environ); _exit(9); }
    printf("%d\n", reap());
    return 15;
}

static int orphans(void) {
    printf("gone\n");
    fflush(stdout);
    if (fork() == 0) { usleep(200000); work(100000); _exit(0); }
    return 16;
}

static int zombies(void) {
    for (int i = 0; i < 50; i++) if (fork() == 0) _exit(0);
    usleep(50000);
    printf("none is waited for\n");
    return 17;
}

static int sockets(void) {
    int ends[2];
    char text[16];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 1;
    if (fork() == 0) {
        for (int i = 0; i < 200; i++) if (read(ends[1], text, 8) != 8 || write(ends[1], text, 8) != 8) _exit(1);
        _exit(0);
    }
    for (int i = 0; i < 200; i++) if (write(ends[0], "question", 8) != 8 || read(ends[0], text, 8) != 8) return 1;
    printf("%.8s %d\n", text, reap());
    return 18;
}

static int maps(void) {
    for (int i = 0; i < 500; i++) {
        char *at = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        at[i * 1000] = 1;
        at = mremap(at, 1 << 20, 2 << 20, MREMAP_MAYMOVE);
        at[1 << 20] = 2;
        mprotect(at, 4096, PROT_READ), munmap(at, 2 << 20);
    }
    printf("mapped\n");
    return 19;
}

static int deep(int n) { volatile char room[512]; room[0] = n; return n ? deep(n - 1) + room[0] : 0; }

static void *executing(void *unused) { (void)unused; execl(self, self, "status", "20", (char *)0); return 0; }
static void *spinning(void *unused) { (void)unused; for (;;) work(100); return 0; }

static int thread_exec(void) {
    pthread_t one, other;
    pthread_create(&other, 0, spinning, 0);
    pthread_create(&one, 0, executing, 0);
    pthread_join(one, 0);
    return 1;
}

static void *ending(void *unused) { (void)unused; printf("ended by a thread\n"); exit(21); }

static int thread_exit(void) {
    pthread_t one, other;
    pthread_create(&other, 0, spinning, 0);
    pthread_create(&one, 0, ending, 0);
    pause();
    return 1;
}

static void *forking(void *unused) {
    (void)unused;
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0) { work(1000); _exit(0); }
        waitpid(pid, 0, 0);
    }
    return 0;
}

static int thread_fork(void) {
    pthread_t all[4];
    for (int i = 0; i < 4; i++) pthread_create(&all[i], 0, forking, 0);
    for (int i = 0; i < 4; i++) pthread_join(all[i], 0);
    printf("forked by threads\n");
    return 22;
}

static int stopped(void) {
    pid_t pid = fork();
    if (pid == 0) { raise(SIGSTOP); work(1000); _exit(3); }
    int status;
    waitpid(pid, &status, WUNTRACED);
    kill(pid, SIGCONT);
    printf("%d\n", reap());
    return 23;
}

static int code(void) {
    unsigned char *at = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int sum = 0;
    for (int i = 0; i < 200; i++) {
        unsigned char made[] = {0xb8, i, 0, 0, 0, 0xc3};
        memcpy(at, made, sizeof made);
        sum += ((int (*)(void))at)();
    }
    printf("%d\n", sum);
    return 24;
}

static int long_arguments(void) {
    char *arguments[1004] = {self, "count"}, text[101];
    memset(text, 'x', 100), text[100] = 0;
    for (int i = 2; i < 1003; i++) arguments[i] = text;
    arguments[1003] = 0;
    execv(self, arguments);
    return 1;
}

static int locked(void) {
    int done = mlockall(MCL_CURRENT) == 0 || errno == ENOMEM || errno == EPERM;
    work(1000);
    munlockall();
    printf("%d\n", done);
    return 26;
}

static int shared(void) {
    volatile int *turn = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fork() == 0) { for (int i = 0; i < 100; i++) { while (turn[0] != 2 * i + 1) sched_yield(); turn[0]++; } _exit(0); }
    for (int i = 0; i < 100; i++) { while (turn[0] != 2 * i) sched_yield(); turn[0]++; }
    printf("%d\n", reap());
    return 27;
}

int main(int argc, char **argv) {
    self = realpath("/proc/self/exe", 0);
    const char *kind = argc > 1 ? argv[1] : "", *more = argc > 2 ? argv[2] : 0;
    setvbuf(stdout, 0, _IONBF, 0);
#define KIND(name, call) if (!strcmp(kind, name)) return call
    KIND("status", atoi(more));
    KIND("count", (printf("%d\n", argc), 25));
    KIND("forks", forks());
    KIND("vforks", vforks());
    KIND("spawns", spawns());
    KIND("execs", execs(more));
    KIND("threads", threads());
    KIND("churn", churn());
    KIND("demon", demon(more));
    KIND("timers", timers());
    KIND("faults", faults());
    KIND("closed", closed());
    KIND("children", children());
    KIND("homeless", homeless());
    KIND("nameless", nameless());
    KIND("orphans", orphans());
    KIND("zombies", zombies());
    KIND("sockets", sockets());
    KIND("maps", maps());
    KIND("deep", (printf("%d\n", deep(5000) != 0), 28));
    KIND("thread-exec", thread_exec());
    KIND("thread-exit", thread_exit());
    KIND("thread-fork", thread_fork());
    KIND("stopped", stopped());
    KIND("code", code());
    KIND("long-arguments", long_arguments());
    KIND("locked", locked());
    KIND("shared", shared());
    KIND("killed", (raise(SIGKILL), 1));
    KIND("aborted", (abort(), 1));
    KIND("no-such", (execl("/nowhere", "x", (char *)0), 29));
    return 99;
}
