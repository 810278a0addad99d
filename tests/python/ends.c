/* Programs that end in many ways, for two ways of a run to agree on:
 *   ends WAY       ends so, after some work
 *   ends -WAY      a child of it does, and then it works on
 *   ends +WAY      a second thread does, while the first has long been waiting for it
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 24 };
static volatile char area[PAGES * PAGE];
static sigjmp_buf back;

/* Accesses that hit, and some that miss. */
static void work(unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++) area[((uint64_t)i * PAGE + i) % sizeof area]++;
}

static void jump_to(uint64_t address) {
    ((void (*)(volatile char *))address)(area);
}

static char *pages(size_t count, int rights) {
    char *made = mmap(NULL, count * PAGE, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) exit(99);
    return made;
}

/* Instructions that end right before a page without rights, or reach into it. */
static void run_off(const char *code, size_t bytes, size_t inside) {
    char *at = pages(2, PROT_READ | PROT_WRITE | PROT_EXEC);
    memset(at, 0x90, PAGE);
    memcpy(at + PAGE - inside, code, bytes);
    mprotect(at + PAGE, PAGE, PROT_NONE);
    work(20000);
    jump_to((uint64_t)at + PAGE - inside - 8);
}

static void jump_away(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static int dive(volatile int *depth) {
    volatile char frame[3000];
    frame[*depth % sizeof frame] = (char)++*depth;
    return *depth > 0 ? dive(depth) + frame[7] : 0;
}

static void end(const char *way) {
    work(30000);
#define IS(name) (strcmp(way, name) == 0)
    if (IS("jump")) jump_to(0x123456000);
    if (IS("non-canonical")) jump_to(0x8000123456780000);
    if (IS("no-execute")) jump_to((uint64_t)area);
    if (IS("odd-movaps")) __asm__ volatile("movaps %0, %%xmm0" : : "m"(area[1]));
    if (IS("odd-fxsave")) __asm__ volatile("fxsave %0" : "=m"(area[PAGE + 1]));
    /* Its last instruction is incb (%rdi), and then the page is over; or a move of 64 bits goes on there. */
    if (IS("next-page")) run_off("\xfe\x07", 2, 2);
    if (IS("into-page")) run_off("\x48\xb8\1\2\3\4\5\6\7\x08", 5, 5);
    if (IS("load")) (void)*(volatile char *)0x123456000;
    if (IS("store")) *(volatile char *)0x123456000 = 1;
    if (IS("read-only")) *(volatile char *)pages(1, PROT_READ) = 1;
    if (IS("behind-file")) {
        int file = memfd_create("empty", 0);
        (void)*(volatile char *)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
    }
    if (IS("idiv")) __asm__ volatile("xor %%ecx, %%ecx; idiv %%ecx" : : : "eax", "ecx", "edx");
    if (IS("hlt")) __asm__ volatile("hlt");
    if (IS("int")) __asm__ volatile("int $0x42");
    if (IS("int3")) __asm__ volatile("int3");
    if (IS("undefined")) __asm__ volatile("ud2");
    if (IS("pipe")) {
        int ends[2];
        if (pipe(ends) != 0) exit(99);
        close(ends[0]);
        (void)!write(ends[1], "", 1);
    }
    if (IS("stack")) {
        volatile int depth = 0;
        dive(&depth);
    }
    if (IS("tgkill")) syscall(SYS_tgkill, getpid(), gettid(), SIGTERM);
    if (IS("kill")) kill(getpid(), SIGKILL);
    if (IS("abort")) abort();
    if (IS("exit")) exit(3);
    if (IS("return")) return;
    if (IS("handled")) {
        signal(SIGSEGV, jump_away);
        for (volatile unsigned i = 0; i < 30; i++) {
            work(3000);
            if (sigsetjmp(back, 1) == 0) jump_to(0x123456000 + i % 3 * PAGE);
        }
        return;
    }
    if (IS("spin")) {
        (void)!write(1, "ready\n", 6);
        for (;;) work(30000);
    }
    exit(98);
}

/* What the first thread does until it waits is over by then, so that each run has as many accesses. */
static void *end_later(void *way) {
    usleep(400000);
    end(way);
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 2) return 99;
    const char *way = arguments[1];
    if (*way == '+') {
        pthread_t thread;
        work(9000);
        if (pthread_create(&thread, NULL, end_later, arguments[1] + 1) != 0) return 99;
        pthread_join(thread, NULL);
        work(9000);
        return 0;
    }
    if (*way != '-') {
        end(way);
        return 0;
    }
    work(9000);
    pid_t child = fork();
    if (child == 0) {
        end(way + 1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    work(9000);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 64 + WEXITSTATUS(status);
}
