/* Marks allocations for Pagewalk's recorder: `pagewalk record --allocations` has the dynamic loader
 * load this library before all others.
 *
 *     program --malloc(n)--> here --malloc(n)--> the C library
 *                             |
 *                             +-- prctl(PAGEWALK_OPTION, ALLOCATED, address, n, frame)
 *
 * Each function here calls the one that it hides, and tells the recorder of what came back. The
 * recorder leaves the accesses of this library's own code out, and follows the frame pointers from
 * `frame` on to find the calls that led here. Without the recorder Linux answers with EINVAL, and
 * nothing else happens.
 *
 * It is compiled without a C library, so that it fits any: it has no symbol of a certain version.
 */
typedef __SIZE_TYPE__ size_t;

#define NULL ((void *)0)
#define OWN __attribute__((visibility("default")))
#define WEAK __attribute__((weak))
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* As in pagewalk.h and the recorder. */
#define PAGEWALK_OPTION 0x50574c4bul
#define ALLOCATED 3ul
#define FREED 4ul

#if defined(__x86_64__)
#define FRAME_OFFSET 0ul
ALWAYS_INLINE void say(unsigned long what, unsigned long a, unsigned long b, unsigned long c)
{
    unsigned long number = 157;
    register unsigned long d __asm__("r10") = b, e __asm__("r8") = c;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(PAGEWALK_OPTION), "S"(what), "d"(a), "r"(d), "r"(e)
                     : "rcx", "r11", "memory");
}
#elif defined(__i386__)
#define FRAME_OFFSET 0ul
ALWAYS_INLINE void say(unsigned long what, unsigned long a, unsigned long b, unsigned long c)
{
    unsigned long number = 172;
    /* The compiler may need ebx for itself. */
    __asm__ volatile("push %%ebx\n\tmov %5, %%ebx\n\tint $0x80\n\tpop %%ebx"
                     : "+a"(number)
                     : "c"(what), "d"(a), "S"(b), "D"(c), "i"(PAGEWALK_OPTION)
                     : "memory");
}
#elif defined(__aarch64__)
#define FRAME_OFFSET 0ul
ALWAYS_INLINE void say(unsigned long what, unsigned long a, unsigned long b, unsigned long c)
{
    register unsigned long number __asm__("x8") = 167, x0 __asm__("x0") = PAGEWALK_OPTION;
    register unsigned long x1 __asm__("x1") = what, x2 __asm__("x2") = a, x3 __asm__("x3") = b;
    register unsigned long x4 __asm__("x4") = c;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(number), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
                     : "memory");
}
#elif defined(__riscv) && __riscv_xlen == 64
/* The return address and the caller's frame pointer are below the frame. */
#define FRAME_OFFSET 16ul
ALWAYS_INLINE void say(unsigned long what, unsigned long a, unsigned long b, unsigned long c)
{
    register unsigned long number __asm__("a7") = 167, a0 __asm__("a0") = PAGEWALK_OPTION;
    register unsigned long a1 __asm__("a1") = what, a2 __asm__("a2") = a, a3 __asm__("a3") = b;
    register unsigned long a4 __asm__("a4") = c;
    __asm__ volatile("ecall"
                     : "+r"(a0)
                     : "r"(number), "r"(a1), "r"(a2), "r"(a3), "r"(a4)
                     : "memory");
}
#else
#error "Pagewalk records programs for x86-64, i386, AArch64 and RISC-V (64 bit)"
#endif

/* What was allocated, and by whom: to be used in the function that the program has called. */
#define TELL(address, bytes)                                                                    \
    say(ALLOCATED | FRAME_OFFSET << 8, (unsigned long)(address), (unsigned long)(bytes),        \
        (unsigned long)__builtin_frame_address(0))

extern void *dlsym(void *, const char *) WEAK;
#define NEXT ((void *)-1l)

/* Those of glibc, where `dlsym` is in a library of its own that is not loaded. */
extern void *__libc_malloc(size_t) WEAK;
extern void *__libc_calloc(size_t, size_t) WEAK;
extern void *__libc_realloc(void *, size_t) WEAK;
extern void *__libc_memalign(size_t, size_t) WEAK;
extern void __libc_free(void *) WEAK;

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);

/* What `dlsym` itself allocates while the functions are looked up. It is never given back. */
static char early[1 << 14] __attribute__((aligned(64)));
static size_t early_used;
static int is_looking;

/* Whether what is called next is a part of what has called it, and tells nothing. */
static __thread int is_part __attribute__((tls_model("initial-exec")));

static void *allocate_early(size_t bytes)
{
    size_t at = early_used;
    if (bytes > sizeof early - at) return NULL;
    early_used = (at + bytes + 63) & ~(size_t)63;
    return early + at;
}

ALWAYS_INLINE int is_early(const void *at)
{
    return (const char *)at >= early && (const char *)at < early + sizeof early;
}

static void *find(const char *name, void *instead)
{
    void *found = dlsym ? dlsym(NEXT, name) : NULL;
    return found ? found : instead;
}

__attribute__((constructor)) static void look(void)
{
    if (next_free) return;
    is_looking = 1;
    next_malloc = find("malloc", (void *)__libc_malloc);
    next_calloc = find("calloc", (void *)__libc_calloc);
    next_realloc = find("realloc", (void *)__libc_realloc);
    next_free = find("free", (void *)__libc_free);
    is_looking = 0;
}

#define LOOK(function)                                                                          \
    if (!next_##function && !is_looking) look()

OWN void *malloc(size_t bytes)
{
    LOOK(malloc);
    if (!next_malloc) return allocate_early(bytes);
    int tells = !is_part;
    is_part = 0;
    void *at = next_malloc(bytes);
    if (at && tells) TELL(at, bytes);
    return at;
}

OWN void *calloc(size_t count, size_t each)
{
    LOOK(calloc);
    if (!next_calloc) return allocate_early(count * each);
    void *at = next_calloc(count, each);
    if (at) TELL(at, count * each);
    return at;
}

OWN void free(void *at)
{
    if (!at || is_early(at)) return;
    LOOK(free);
    say(FREED, (unsigned long)at, 0, 0);
    if (next_free) next_free(at);
}

ALWAYS_INLINE void *resize(void *at, size_t bytes)
{
    LOOK(realloc);
    if (is_early(at) || !next_realloc) {
        char *moved = next_malloc ? next_malloc(bytes) : allocate_early(bytes);
        for (size_t i = 0; moved && at && i < bytes && (char *)at + i < early + sizeof early; i++) {
            moved[i] = ((char *)at)[i];
        }
        return moved;
    }
    /* Before it is: another thread may be given the block at once. */
    if (at) say(FREED, (unsigned long)at, 0, 0);
    return next_realloc(at, bytes);
}

OWN void *realloc(void *at, size_t bytes)
{
    void *moved = resize(at, bytes);
    if (moved) TELL(moved, bytes);
    return moved;
}

OWN void *reallocarray(void *at, size_t count, size_t each)
{
    size_t bytes;
    /* The C library's own sets errno. */
    if (__builtin_mul_overflow(count, each, &bytes)) bytes = (size_t)-1;
    void *moved = resize(at, bytes);
    if (moved) TELL(moved, bytes);
    return moved;
}

/* A function that gives a block of `bytes` or NULL, and is looked up when it is first called. */
#define WRAP(...) WRAP_NAMED(__VA_ARGS__)
#define WRAP_NAMED(name, instead, parameters, arguments, bytes)                                 \
    OWN void *name parameters                                                                   \
    {                                                                                           \
        static void *(*next) parameters;                                                        \
        if (!next) {                                                                            \
            look();                                                                             \
            next = find(#name, (void *)instead);                                                \
        }                                                                                       \
        if (!next) return NULL;                                                                 \
        int tells = !is_part;                                                                   \
        is_part = 1;                                                                            \
        void *at = next arguments;                                                              \
        is_part = 0;                                                                            \
        if (at && tells) TELL(at, bytes);                                                       \
        return at;                                                                              \
    }

WRAP(memalign, __libc_memalign, (size_t alignment, size_t bytes), (alignment, bytes), bytes)
WRAP(aligned_alloc, __libc_memalign, (size_t alignment, size_t bytes), (alignment, bytes), bytes)
WRAP(valloc, NULL, (size_t bytes), (bytes), bytes)
WRAP(pvalloc, NULL, (size_t bytes), (bytes), bytes)

OWN int posix_memalign(void **to, size_t alignment, size_t bytes)
{
    static int (*next)(void **, size_t, size_t);
    if (!next) {
        look();
        next = find("posix_memalign", NULL);
    }
    int failed = next ? next(to, alignment, bytes) : 12 /* ENOMEM */;
    if (!failed) TELL(*to, bytes);
    return failed;
}

/* The C++ library's `operator new`, under the names that its compilers give it. */
#if __SIZEOF_SIZE_T__ == 8
#define MANGLED(before, after) before##m##after
#else
#define MANGLED(before, after) before##j##after
#endif

WRAP(MANGLED(_Znw, ), NULL, (size_t bytes), (bytes), bytes)
WRAP(MANGLED(_Zna, ), NULL, (size_t bytes), (bytes), bytes)
WRAP(MANGLED(_Znw, RKSt9nothrow_t), NULL, (size_t bytes, void *how), (bytes, how), bytes)
WRAP(MANGLED(_Zna, RKSt9nothrow_t), NULL, (size_t bytes, void *how), (bytes, how), bytes)
WRAP(MANGLED(_Znw, St11align_val_t), NULL, (size_t bytes, size_t to), (bytes, to), bytes)
WRAP(MANGLED(_Zna, St11align_val_t), NULL, (size_t bytes, size_t to), (bytes, to), bytes)

/* A mapping that the program asks for itself; those of the C library do not come here. */
#define WRAP_MAP(name, offset_type)                                                             \
    OWN void *name(void *at, size_t bytes, int rights, int flags, int file, offset_type offset) \
    {                                                                                           \
        static void *(*next)(void *, size_t, int, int, int, offset_type);                       \
        if (!next) {                                                                            \
            look();                                                                             \
            next = find(#name, NULL);                                                           \
        }                                                                                       \
        void *mapped = next(at, bytes, rights, flags, file, offset);                            \
        if (mapped != (void *)-1l) TELL(mapped, bytes);                                         \
        return mapped;                                                                          \
    }

WRAP_MAP(mmap, long)
WRAP_MAP(mmap64, long long)
