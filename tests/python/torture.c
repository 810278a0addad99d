/* A program that checks itself all the time, in as many ways as there are for a tool to disturb it.
 *
 *   torture KIND ...   one or more threads of each kind, until it is killed
 *
 * Each 20 ms it prints its round, the number of wrong results, and the number of pieces of work that all kinds have
 * done since the last line by the kind that did least: 0 if one of them stands still for a second.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KINDS_MAX 64
#define THREADS_MAX 256

static atomic_long bad, done[KINDS_MAX], seen[KINDS_MAX];
static atomic_int first_bad;

/* Counts a wrong result, and keeps the line of the first one. */
#define WRONG(is_wrong)                                              \
    do {                                                             \
        if (is_wrong) {                                              \
            int none = 0;                                            \
            atomic_compare_exchange_strong(&first_bad, &none, __LINE__); \
            bad++;                                                   \
        }                                                            \
    } while (0)

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void sleep_for(long us) {
    struct timespec time = { us / 1000000, us % 1000000 * 1000 };
    WRONG(clock_nanosleep(CLOCK_MONOTONIC, 0, &time, 0) != 0);
}

/* What a kind has in common with a second thread of its own. */
struct pair {
    int kind, ends[2];
    atomic_int word;
    atomic_long sent;
    pthread_t other;
};

/* Handlers. */

static _Thread_local volatile long handled[65];
static _Thread_local volatile int is_in_handler;
static _Thread_local char alternate[1 << 16];
static _Thread_local volatile int wants_alternate;

static void on_signal(int signal) {
    char here;
    if (wants_alternate) WRONG(&here < alternate || &here >= alternate + sizeof alternate);
    WRONG(signal == SIGUSR1 && is_in_handler);
    int before = errno;
    is_in_handler = signal == SIGUSR1;
    handled[signal]++;
    is_in_handler = 0;
    errno = before;
}

static void handle(int signal, int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = flags;
    WRONG(sigaction(signal, &action, 0));
}

static void use_alternate(void) {
    stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate };
    WRONG(sigaltstack(&stack, 0));
    wants_alternate = 1;
}

/* SIGPROF comes only to threads that make no calls which it would end. */
static void let_profile(void) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGPROF);
    WRONG(pthread_sigmask(SIG_UNBLOCK, &one, 0));
}

/* Sums, a known number each time. The vector and floating-point registers are in use all the time. */
static void *sums(void *it) {
    struct pair *own = it;
    let_profile();
    for (;;) {
        double sum = 0, product = 1;
        unsigned long bits = 1;
        for (int i = 1; i <= 20000; i++) {
            sum += i * 0.5;
            product = product * 1.0000001 + 1e-9;
            bits = bits * 6364136223846793005ul + 1442695040888963407ul;
        }
        WRONG(sum != 100005000.0);
        static double product_known;
        static unsigned long bits_known;
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&lock);
        if (!bits_known) product_known = product, bits_known = bits;
        WRONG(product != product_known || bits != bits_known);
        pthread_mutex_unlock(&lock);
        done[own->kind]++;
    }
}

/* A timer's signals at 1 kHz, to handlers on an alternate stack; calls that they interrupt. */
static void *alarms(void *it) {
    struct pair *own = it;
    use_alternate();
    handle(SIGRTMIN + 1, SA_ONSTACK | SA_RESTART);
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGRTMIN + 1;
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    timer_t timer;
    WRONG(timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec each = { { 0, 1000000 }, { 0, 1000000 } };
    WRONG(timer_settime(timer, 0, &each, 0));
    for (;;) {
        long before = handled[SIGRTMIN + 1];
        unsigned long sum = 0;
        for (int i = 0; i < 100000; i++) sum += i ^ (sum >> 3);
        static _Atomic unsigned long known;
        unsigned long none = 0;
        atomic_compare_exchange_strong(&known, &none, sum);
        WRONG(sum != known);
        while (handled[SIGRTMIN + 1] < before + 3) sched_yield();
        done[own->kind]++;
    }
}

/* Profiling: SIGPROF for the CPU time of all threads, to whichever thread. */
static void *profiles(void *it) {
    struct pair *own = it;
    handle(SIGPROF, SA_RESTART);
    let_profile();
    struct itimerval each = { { 0, 1000 }, { 0, 1000 } };
    WRONG(setitimer(ITIMER_PROF, &each, 0));
    for (;;) {
        long before = handled[SIGPROF];
        for (volatile int i = 0; i < 100000; i++) {}
        WRONG(handled[SIGPROF] < before);
        done[own->kind]++;
    }
}

/* Sends a signal once, as soon as the other thread waits in the system call whose number is in `word`. */
static void *sends(void *it) {
    struct pair *own = it;
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/syscall", own->sent);
    for (;;) {
        int number = own->word;
        FILE *file = fopen(path, "r");
        WRONG(!file);
        int is_read = file && fgets(text, sizeof text, file) && *text != 'r';
        /* A sleep that was interrupted by a stop goes on as another call. */
        int is_there = is_read && (atoi(text) == number || atoi(text) == SYS_restart_syscall);
        if (file) fclose(file);
        int expected = number;
        if (number >= 0 && is_there && atomic_compare_exchange_strong(&own->word, &expected, -1)) {
            WRONG(pthread_kill(own->other, SIGUSR2));
        }
        sleep_for(300);
    }
}

static void begin(pthread_t *thread, void *(*run)(void *), void *it) {
    pthread_t none;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 18);
    WRONG(pthread_create(thread ? thread : &none, &attributes, run, it));
}

/* Waits in the calls that a signal ends, as its handler has no SA_RESTART, or always. */
static void *ends(void *it) {
    struct pair *own = it;
    own->other = pthread_self();
    own->sent = syscall(SYS_gettid);
    own->word = -1;
    handle(SIGUSR2, 0);
    WRONG(pipe(own->ends));
    int set = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN };
    WRONG(epoll_ctl(set, EPOLL_CTL_ADD, own->ends[0], &event));
    begin(0, sends, own);
    static const int NUMBERS[] = { SYS_pause, SYS_epoll_wait, SYS_read, SYS_rt_sigsuspend, SYS_nanosleep };
    for (long turn = 0;; turn++) {
        long before = handled[SIGUSR2], result;
        char byte;
        sigset_t now_;
        WRONG(pthread_sigmask(SIG_BLOCK, 0, &now_));
        struct timespec time = { 1000, 0 };
        own->word = NUMBERS[turn % 5];
        switch (turn % 5) {
        case 0: result = syscall(SYS_pause); break;
        case 1: result = syscall(SYS_epoll_wait, set, &event, 1, -1); break;
        case 2: result = read(own->ends[0], &byte, 1); break;
        case 3: result = syscall(SYS_rt_sigsuspend, &now_, 8); break;
        default: result = syscall(SYS_nanosleep, &time, &time);
        }
        WRONG(result != -1 || errno != EINTR);
        WRONG(handled[SIGUSR2] != before + 1);
        done[own->kind]++;
    }
}

/* The mask changes all the time; a signal that is blocked comes when it is unblocked, and not before. */
static void *masks(void *it) {
    struct pair *own = it;
    handle(SIGUSR1, 0);
    sigset_t one, before, now_, waiting;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    for (;;) {
        WRONG(pthread_sigmask(SIG_BLOCK, &one, &before));
        WRONG(sigismember(&before, SIGUSR1) != 0);
        long count = handled[SIGUSR1];
        WRONG(pthread_kill(pthread_self(), SIGUSR1));
        for (volatile int i = 0; i < 2000; i++) {}
        WRONG(handled[SIGUSR1] != count);
        WRONG(pthread_sigmask(SIG_BLOCK, 0, &now_) || sigismember(&now_, SIGUSR1) != 1);
        WRONG(sigpending(&waiting) || sigismember(&waiting, SIGUSR1) != 1);
        WRONG(pthread_sigmask(SIG_SETMASK, &before, 0));
        WRONG(handled[SIGUSR1] != count + 1);
        done[own->kind]++;
    }
}

/* Threads that come and end all the time, each with a result. */
static void *square(void *it) {
    long number = (long)it;
    volatile long cells[64];
    for (int i = 0; i < 64; i++) cells[i] = number;
    long sum = 0;
    for (int i = 0; i < 64; i++) sum += cells[i];
    return (void *)(sum / 64 * number);
}

static void *starts(void *it) {
    struct pair *own = it;
    for (long number = 1;; number++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) begin(&threads[i], square, (void *)(number + i));
        for (int i = 0; i < 4; i++) {
            void *result;
            WRONG(pthread_join(threads[i], &result));
            WRONG((long)result != (number + i) * (number + i));
        }
        done[own->kind]++;
    }
}

/* Numbers through a pipe. */
static void *writes(void *it) {
    struct pair *own = it;
    for (unsigned number = 0;; number++) {
        WRONG(write(own->ends[1], &number, sizeof number) != sizeof number);
        if (number % 4 == 0) sleep_for(700);
    }
}

static void *reads(void *it) {
    struct pair *own = it;
    WRONG(pipe(own->ends));
    begin(0, writes, own);
    for (unsigned expected = 0;; expected++) {
        unsigned number;
        WRONG(read(own->ends[0], &number, sizeof number) != sizeof number || number != expected);
        done[own->kind]++;
    }
}

/* The kinds of waiting for a descriptor, without a limit and with one. */
static void *waits(void *it) {
    struct pair *own = it;
    int set = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec each = { { 0, 3000000 }, { 0, 3000000 } };
    WRONG(timerfd_settime(timer, 0, &each, 0));
    struct epoll_event event = { .events = EPOLLIN };
    WRONG(epoll_ctl(set, EPOLL_CTL_ADD, timer, &event));
    for (long turn = 0;; turn++) {
        struct pollfd one = { timer, POLLIN, 0 };
        fd_set descriptors;
        FD_ZERO(&descriptors);
        FD_SET(timer, &descriptors);
        struct timeval long_ = { 100, 0 };
        switch (turn % 4) {
        case 0: WRONG(poll(&one, 1, -1) != 1); break;
        case 1: WRONG(poll(&one, 1, 100000) != 1); break;
        case 2: WRONG(select(timer + 1, &descriptors, 0, 0, &long_) != 1); break;
        default: WRONG(epoll_wait(set, &event, 1, 100000) != 1);
        }
        unsigned long count;
        WRONG(read(timer, &count, sizeof count) != sizeof count || count == 0);
        done[own->kind]++;
    }
}

/* Sleeps last at least as long as they should. */
static void *naps(void *it) {
    struct pair *own = it;
    for (;;) {
        double before = now();
        struct timespec time = { 0, 40000000 };
        WRONG(nanosleep(&time, 0) != 0);
        WRONG(now() - before < 0.040);
        done[own->kind]++;
    }
}

/* A futex, passed to and fro. */
static void *pongs(void *it) {
    struct pair *own = it;
    for (;;) {
        while (own->word != 1) syscall(SYS_futex, &own->word, FUTEX_WAIT, 0, 0, 0, 0);
        sleep_for(500);
        own->word = 0;
        syscall(SYS_futex, &own->word, FUTEX_WAKE, 1, 0, 0, 0);
    }
}

static void *pings(void *it) {
    struct pair *own = it;
    begin(0, pongs, own);
    for (;;) {
        own->word = 1;
        syscall(SYS_futex, &own->word, FUTEX_WAKE, 1, 0, 0, 0);
        while (own->word != 0) {
            long result = syscall(SYS_futex, &own->word, FUTEX_WAIT, 1, 0, 0, 0);
            WRONG(result != 0 && errno != EAGAIN);
        }
        done[own->kind]++;
    }
}

/* Connections. */
static void *connects(void *it) {
    struct pair *own = it;
    struct sockaddr_in address;
    socklen_t bytes = sizeof address;
    WRONG(getsockname(own->ends[0], (struct sockaddr *)&address, &bytes));
    for (unsigned char number = 0;; number++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        WRONG(connect(fd, (struct sockaddr *)&address, sizeof address));
        unsigned char answer = 0;
        WRONG(send(fd, &number, 1, 0) != 1 || recv(fd, &answer, 1, 0) != 1 || answer != (unsigned char)~number);
        struct linger at_once = { 1, 0 };
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        WRONG(close(fd));
        sleep_for(1500);
    }
}

static void *accepts(void *it) {
    struct pair *own = it;
    own->ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    WRONG(bind(own->ends[0], (struct sockaddr *)&any, sizeof any) || listen(own->ends[0], 8));
    begin(0, connects, own);
    for (;;) {
        int fd = accept(own->ends[0], 0, 0);
        WRONG(fd < 0);
        unsigned char byte;
        WRONG(recv(fd, &byte, 1, 0) != 1);
        byte = ~byte;
        WRONG(send(fd, &byte, 1, 0) != 1);
        WRONG(close(fd));
        done[own->kind]++;
    }
}

/* Signals that are waited for, and never handled. */
static void *queues(void *it) {
    struct pair *own = it;
    for (int number = 0;; number++) {
        union sigval value = { .sival_int = number };
        WRONG(pthread_sigqueue(own->other, SIGRTMIN + 2, value));
        if (number % 4 == 3) sleep_for(1500);
    }
}

static void *sigwaits(void *it) {
    struct pair *own = it;
    own->other = pthread_self();
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGRTMIN + 2);
    WRONG(pthread_sigmask(SIG_BLOCK, &one, 0));
    begin(0, queues, own);
    for (int expected = 0;; expected++) {
        siginfo_t info;
        int signal;
        do signal = sigwaitinfo(&one, &info);
        while (signal < 0 && errno == EINTR);
        WRONG(signal != SIGRTMIN + 2 || info.si_value.sival_int != expected);
        done[own->kind]++;
    }
}

/* Children: by fork, and by vfork, which stop the parent until they end. */
static void *forks(void *it) {
    struct pair *own = it;
    for (int number = 0;; number = (number + 1) % 100) {
        pid_t child = fork();
        WRONG(child < 0);
        if (child == 0) _exit(number);
        int status;
        WRONG(waitpid(child, &status, 0) != child);
        WRONG(!WIFEXITED(status) || WEXITSTATUS(status) != number);
        done[own->kind]++;
        sleep_for(1000);
    }
}

static void *vforks(void *it) {
    struct pair *own = it;
    for (int number = 0;; number = (number + 1) % 100) {
        pid_t child = vfork();
        if (child == 0) {
            struct timespec time = { 0, 10000000 };
            nanosleep(&time, 0);
            _exit(number);
        }
        int status;
        WRONG(waitpid(child, &status, 0) != child);
        WRONG(!WIFEXITED(status) || WEXITSTATUS(status) != number);
        done[own->kind]++;
        sleep_for(2000);
    }
}

/* Faults that a handler leaves by a jump. */
static _Thread_local sigjmp_buf back;
static void on_fault(int signal, siginfo_t *info, void *context) {
    WRONG(signal != SIGSEGV || info->si_addr != (void *)16);
    siglongjmp(back, 1);
}

static void *faults(void *it) {
    struct pair *own = it;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    WRONG(sigaction(SIGSEGV, &action, 0));
    for (;;) {
        volatile int is_back = 0;
        if (sigsetjmp(back, 1) == 0) *(volatile int *)16 = 1;
        else is_back = 1;
        WRONG(!is_back);
        done[own->kind]++;
    }
}

static const struct { const char *name; void *(*run)(void *); } KINDS[] = {
    { "sums", sums }, { "alarms", alarms }, { "profiles", profiles }, { "ends", ends }, { "masks", masks },
    { "starts", starts }, { "reads", reads }, { "waits", waits }, { "naps", naps }, { "pings", pings },
    { "accepts", accepts }, { "sigwaits", sigwaits }, { "forks", forks }, { "vforks", vforks },
    { "faults", faults },
};

int main(int argc, char **argv) {
    int count = argc - 1;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGPROF);
    WRONG(pthread_sigmask(SIG_BLOCK, &one, 0));
    for (int at = 0; at < count; at++) {
        struct pair *own = calloc(1, sizeof *own);
        own->kind = at;
        int is_known = 0;
        for (unsigned kind = 0; kind < sizeof KINDS / sizeof *KINDS; kind++) {
            if (!strcmp(KINDS[kind].name, argv[1 + at])) begin(0, KINDS[kind].run, own), is_known = 1;
        }
        if (!is_known) return 2;
    }
    double looked = now();
    long least = 0;
    for (long round = 0;; round++) {
        sleep_for(20000);
        if (now() - looked >= 1) {
            looked = now();
            least = -1;
            for (int at = 0; at < count; at++) {
                long made = done[at] - seen[at];
                seen[at] = done[at];
                if (least < 0 || made < least) least = made;
            }
        }
        printf("%ld %ld %ld %d\n", round, (long)bad, least, (int)first_bad);
        fflush(stdout);
    }
}
