//! Records freestanding programs, and compares what they access in three ways.
//!
//! ```text
//!   program --- the engine --> trace --.
//!           --- QEMU --------> trace ---+--> code and data, however they are split into blocks: equal
//!           --- ptrace, step by step --'
//! ```
//!
//! Freestanding programs run without a C library. Each has a stack of its own and is linked at
//! fixed addresses, so all of its addresses are the same in every run. No program uses AVX, except
//! for gathers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use addr::Kind;

use crate::common::{Whole, directory, native, options, record};
use crate::stepped;

/// The beginning of every freestanding program. It provides the stack, so that all addresses are
/// the same in every run.
const ALONE: &str = r#"
typedef unsigned long u64;
typedef unsigned int u32;
typedef unsigned char u8;
static u8 stack[1 << 16] __attribute__((aligned(64), used));
__asm__(".globl _start\n_start: lea stack+65536(%rip), %rsp\n call go\n mov %eax, %edi\n mov $231, %eax\n syscall\n");
static u64 seed = 12345;
__attribute__((unused)) static u64 next(void) { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed; }
__attribute__((unused)) static long call(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d; register long r8 __asm__("r8") = e; register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory"); return n; }
"#;

/// The programs: the name of what the program does, and its source.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "sorts",
        r#"
        static u64 a[500];
        static void sort(long from, long to) {
            if (from >= to) return;
            u64 pivot = a[to]; long at = from;
            for (long i = from; i < to; i++) if (a[i] < pivot) { u64 t = a[i]; a[i] = a[at]; a[at++] = t; }
            u64 t = a[at]; a[at] = a[to]; a[to] = t;
            sort(from, at - 1); sort(at + 1, to);
        }
        int go(void) { for (int i = 0; i < 500; i++) a[i] = next(); sort(0, 499); for (int i = 1; i < 500; i++) if (a[i - 1] > a[i]) return 1; return 7; }"#,
    ),
    (
        "multiplies",
        r#"
        static double a[12][12], b[12][12], c[12][12];
        int go(void) {
            for (int i = 0; i < 144; i++) { a[i / 12][i % 12] = i; b[i % 12][i / 12] = 2 * i; }
            for (int i = 0; i < 12; i++) for (int j = 0; j < 12; j++) for (int k = 0; k < 12; k++) c[i][j] += a[i][k] * b[k][j];
            return (int)c[3][4] & 63; }"#,
    ),
    (
        "repeats",
        r#"
        static u8 from[4000], to[4000];
        int go(void) {
            for (int i = 0; i < 4000; i++) from[i] = (u8)(i * 7);
            for (int round = 0; round < 9; round++) {
                void *d = to + round, *s = from + 2 * round; u64 n = 300 + round;
                __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) :: "memory");
                d = to; n = 77; __asm__ volatile("rep stosq" : "+D"(d), "+c"(n) : "a"(seed) : "memory");
                d = to; n = 400; __asm__ volatile("repne scasb" : "+D"(d), "+c"(n) : "a"(5) : "memory", "cc");
                d = to; s = from; n = 90; __asm__ volatile("repe cmpsb" : "+D"(d), "+S"(s), "+c"(n) :: "memory", "cc");
                s = from + 80; n = 10; u64 x; __asm__ volatile("std; rep lodsl; cld" : "+S"(s), "+c"(n), "=a"(x) :: "memory");
                d = to; n = 0; __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(1) : "memory");
                d = to + 3 * round; n = 253 + round; __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(round) : "memory");
                d = to + 1999; s = from + 2999; n = 120 * round; __asm__ volatile("std; rep movsb; cld" : "+D"(d), "+S"(s), "+c"(n) :: "memory");
                if (round > 6) { d = to; n = 1900; __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(round) : "memory"); }
                d = to; s = from; __asm__ volatile("movsq; movsb; stosw; lodsb; scasb; cmpsw" : "+D"(d), "+S"(s) :: "rax", "memory", "cc");
            }
            return to[3]; }"#,
    ),
    (
        "sets_bits",
        r#"
        static u64 bits[64];
        int go(void) {
            int set = 0;
            for (int i = 0; i < 300; i++) {
                long at = (long)(next() % 2048); u8 was;
                __asm__ volatile("btsq %2, %0; setc %1" : "+m"(bits[0]), "=q"(was) : "r"(at) : "memory", "cc"); set += was;
                int low = (int)(next() % 512) - 256;
                __asm__ volatile("btcl %2, %0; setc %1" : "+m"(bits[32]), "=q"(was) : "r"(low) : "memory", "cc"); set += was;
                __asm__ volatile("btw %w2, %0; setc %1" : "+m"(bits[32]), "=q"(was) : "r"(low) : "memory", "cc"); set += was;
                __asm__ volatile("btrq $5, %0" : "+m"(bits[i % 64]) :: "cc");
            }
            return set & 127; }"#,
    ),
    (
        "is_atomic",
        r#"
        static volatile u64 x; static u64 pair[2] __attribute__((aligned(16)));
        int go(void) {
            for (int i = 0; i < 40; i++) {
                __sync_fetch_and_add(&x, 3); __sync_lock_test_and_set(&x, x ^ 9); __sync_val_compare_and_swap(&x, 5, 6);
                __asm__ volatile("lock incq %0; lock btsq $3, %0; notq %0; negb %0" : "+m"(x) :: "cc");
                u64 low = pair[0], high = pair[1];
                __asm__ volatile("lock cmpxchg16b %0" : "+m"(pair), "+a"(low), "+d"(high) : "b"(low + 1), "c"(high + 2) : "cc");
            }
            return (int)(x + pair[0]) & 127; }"#,
    ),
    (
        "floats",
        r#"
        static double d[8], e[8]; static float s[8];
        int go(void) {
            for (int i = 0; i < 8; i++) { d[i] = i * 3; s[i] = (float)d[i]; e[i] = s[7 - i] / 2; }
            short word; __asm__ volatile("fnstcw %0; fldcw %0" : "+m"(word));
            for (int i = 0; i < 8; i++) __asm__ volatile("fldl %1; fadds %2; fmull %1; fstpl %0; fildl %2; fstps %2" : "=m"(e[i]), "+m"(d[i]), "+m"(s[i]));
            long n; __asm__ volatile("fldl %1; fistpll %0" : "=m"(n) : "m"(e[3]));
            return (int)n; }"#,
    ),
    (
        "jumps",
        r#"
        static int add(int a) { return a + 1; } static int sub(int a) { return a - 3; } static int twice(int a) { return 2 * a; }
        static int (*volatile table[3])(int) = { add, sub, twice };
        int go(void) {
            int x = 5;
            for (int i = 0; i < 200; i++) {
                x = table[next() % 3](x) & 0xffff;
                switch (next() % 7) { case 0: x += 3; break; case 1: x ^= 9; break; case 2: x -= 2; break; case 3: x *= 3; break; case 4: x |= 64; break; default: x &= 0xfff; }
                long n = 5; __asm__ volatile("1: incl %1\n loop 1b\n jrcxz 2f\n ud2\n 2:" : "+c"(n), "+r"(x) :: "cc");
            }
            return x & 127; }"#,
    ),
    (
        "uses_r10_and_r11",
        r#"
        static u64 a[64];
        int go(void) {
            u64 x = 3, y = 4;
            for (int i = 0; i < 60; i++)
                __asm__ volatile("mov %2, %%r10\n lea (%%r10,%1,2), %%r11\n mov %%r11, (%3)\n add (%3), %%r10\n push %%r10\n xor 8(%3), %%r11\n pop %0\n"
                    "mov %%r11, 16(%3)\n push %%r11\n lea 8f(%%rip), %%r11\n call *%%r11\n lea 7f(%%rip), %%r10\n jmp *%%r10\n"
                    "8: lea 8(%%rsp), %%r11\n xor (%%r11), %%r10\n ret\n 7: pop %1\n"
                    : "+r"(x), "+r"(y) : "r"(next()), "r"(a + i) : "r10", "r11", "memory", "cc");
            return (int)(x + y + a[9]) & 127; }"#,
    ),
    (
        "uses_the_stack",
        r#"
        static u64 v[4];
        int go(void) {
            u64 x = 1;
            for (int i = 0; i < 30; i++)
                __asm__ volatile("enter $32, $0\n mov %0, -8(%%rbp)\n pushq -8(%%rbp)\n popq %1\n pushq %1\n addq $5, (%%rsp)\n pop %0\n"
                    "pushfq\n popfq\n push $7\n pushw $3\n popw %w2\n add $8, %%rsp\n leave\n movq %%rsp, %3\n xchg %0, %1\n"
                    : "+r"(x), "+m"(v[0]), "=&r"(v[2]), "=m"(v[3]) :: "memory", "cc");
            return (int)x & 127; }"#,
    ),
    (
        "copies_vectors",
        r#"
        typedef int v4 __attribute__((vector_size(16)));
        static v4 a[40], b[40]; static int c[200];
        int go(void) {
            for (int i = 0; i < 200; i++) c[i] = (int)next();
            for (int i = 0; i < 40; i++) { v4 x; __builtin_memcpy(&x, c + i * 4 + 1, 16); a[i] = x; b[i] = a[i] * a[39 - i] + x; }
            int sum = 0; for (int i = 0; i < 40; i++) sum += b[i][0] ^ b[i][3]; return sum & 127; }"#,
    ),
    (
        "recurses",
        r#"
        static u64 fib(u64 n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
        int go(void) { return (int)fib(14) & 127; }"#,
    ),
    (
        "translates_bytes",
        r#"
        static u8 table[256], text[100];
        int go(void) {
            for (int i = 0; i < 256; i++) table[i] = (u8)(255 - i);
            for (int i = 0; i < 100; i++) { u8 c = (u8)i; __asm__ volatile("xlatb" : "+a"(c) : "b"(table) : "memory"); text[i] = c; }
            u64 sum = 0; for (int i = 0; i < 96; i++) { u64 x; __asm__ volatile("addr32 movq (%%edx), %0" : "=r"(x) : "d"(text + i)); sum += x; }
            return (int)sum & 127; }"#,
    ),
    (
        "sieves",
        r#"
        static u8 composite[3000];
        int go(void) {
            int count = 0;
            for (int i = 2; i < 3000; i++) { if (composite[i]) continue; count++; for (int k = i + i; k < 3000; k += i) composite[k] = 1; }
            return count & 127; }"#,
    ),
    (
        "hashes",
        r#"
        static struct { u64 key; u32 count, hash; } table[512];
        int go(void) {
            for (int i = 0; i < 1500; i++) {
                u64 key = 1 + next() % 200, h = 0xcbf29ce484222325; for (int b = 0; b < 8; b++) h = (h ^ (key >> 8 * b & 255)) * 0x100000001b3;
                u64 at = h % 512; while (table[at].key && table[at].key != key) at = (at + 1) % 512;
                table[at].key = key; table[at].count++; table[at].hash = (u32)h;
            }
            u64 most = 0; for (int i = 0; i < 512; i++) if (table[i].count > most) most = table[i].count;
            return (int)most & 127; }"#,
    ),
    (
        "checks_sums",
        r#"
        static u32 table[256]; static u8 text[2000];
        int go(void) {
            for (u32 i = 0; i < 256; i++) { u32 c = i; for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1; table[i] = c; }
            for (int i = 0; i < 2000; i++) text[i] = (u8)next();
            u32 c = ~0u; for (int i = 0; i < 2000; i++) c = table[(c ^ text[i]) & 255] ^ c >> 8;
            return (int)(c & 127); }"#,
    ),
    (
        "sorts_by_a_heap",
        r#"
        static int a[600];
        static void sift(int at, int n) { int x = a[at]; for (int k; (k = 2 * at + 1) < n; at = k) { if (k + 1 < n && a[k + 1] > a[k]) k++; if (a[k] <= x) break; a[at] = a[k]; } a[at] = x; }
        int go(void) {
            for (int i = 0; i < 600; i++) a[i] = (int)(next() >> 33);
            for (int i = 299; i >= 0; i--) sift(i, 600);
            for (int n = 599; n > 0; n--) { int x = a[0]; a[0] = a[n]; a[n] = x; sift(0, n); }
            for (int i = 1; i < 600; i++) if (a[i - 1] > a[i]) return 1;
            return 9; }"#,
    ),
    (
        "links_lists",
        r#"
        static struct node { struct node *next; u64 value; u8 pad[40]; } pool[300];
        int go(void) {
            struct node *list = 0; for (int i = 0; i < 300; i++) { struct node *n = pool + (i * 77) % 300; n->value = next() & 1023; n->next = list; list = n; }
            for (int r = 0; r < 5; r++) { struct node *back = 0; while (list) { struct node *n = list->next; list->next = back; back = list; list = n; } list = back; }
            struct node **at = &list; while (*at) { if ((*at)->value & 1) *at = (*at)->next; else at = &(*at)->next; }
            int n = 0; for (; list; list = list->next) n++; return n & 127; }"#,
    ),
    (
        "grows_trees",
        r#"
        static struct node { struct node *child[2]; long key; } pool[400], *root;
        static long walk(struct node *n) { return n ? walk(n->child[0]) * 3 + n->key + walk(n->child[1]) : 1; }
        int go(void) {
            for (int i = 0; i < 400; i++) { struct node *n = pool + i, **at = &root; n->key = (long)(next() % 5000); while (*at) at = &(*at)->child[n->key > (*at)->key]; *at = n; }
            return (int)walk(root) & 127; }"#,
    ),
    (
        "places_queens",
        r#"
        static int column[8], found;
        static void place(int row) {
            if (row == 7) { found++; return; }
            for (int c = 0; c < 7; c++) { int k = 0; while (k < row && column[k] != c && column[k] - c != row - k && c - column[k] != row - k) k++; if (k == row) { column[row] = c; place(row + 1); } }
        }
        int go(void) { place(0); return found; }"#,
    ),
    (
        "lives",
        r#"
        static u8 cells[2][40][40];
        int go(void) {
            for (int i = 0; i < 1600; i++) cells[0][i / 40][i % 40] = next() & 1;
            for (int g = 0; g < 6; g++) for (int y = 1; y < 39; y++) for (int x = 1; x < 39; x++) {
                int n = 0; for (int dy = -1; dy <= 1; dy++) for (int dx = -1; dx <= 1; dx++) n += cells[g & 1][y + dy][x + dx];
                n -= cells[g & 1][y][x]; cells[~g & 1][y][x] = n == 3 || (n == 2 && cells[g & 1][y][x]); }
            int n = 0; for (int i = 0; i < 1600; i++) n += cells[0][i / 40][i % 40]; return n & 127; }"#,
    ),
    (
        "finds_words",
        r#"
        static u8 text[1500]; static int fail[9]; static const u8 word[9] = "abaababa";
        int go(void) {
            for (int i = 0; i < 1500; i++) text[i] = "ab"[next() & 1];
            for (int i = 1, k = 0; i < 8; i++) { while (k && word[k] != word[i]) k = fail[k - 1]; if (word[k] == word[i]) k++; fail[i] = k; }
            int found = 0; for (int i = 0, k = 0; i < 1500; i++) { while (k && word[k] != text[i]) k = fail[k - 1]; if (word[k] == text[i]) k++; if (k == 8) { found++; k = fail[7]; } }
            return found & 127; }"#,
    ),
    (
        "interprets",
        r#"
        static const u8 code[] = { 0, 200, 3, 1, 7, 2, 4, 3, 5, 3, 6, 250, 8 }; static u64 stack_[16];
        int go(void) {
            static void *const ways[] = { &&push, &&add, &&xor, &&dup, &&dec, &&swap, &&jump, &&one, &&end };
            u64 *sp = stack_ + 4; const u8 *pc = code; u64 budget = 4000;
            #define NEXT do { if (!--budget) goto end; goto *ways[*pc++]; } while (0)
            NEXT;
            push: *++sp = *pc++; NEXT; add: sp[-1] += *sp; sp--; *++sp = 3; NEXT; xor: sp[-1] ^= *sp * 5; sp--; NEXT; dup: sp[1] = *sp; sp++; NEXT;
            dec: --*sp; NEXT; swap: { u64 x = *sp; *sp = sp[-1]; sp[-1] = x; } sp--; NEXT; jump: pc += (signed char)*pc; if (sp > stack_ + 10) sp = stack_ + 4; NEXT; one: *++sp = 1; NEXT;
            end: return (int)(*sp + budget) & 127; }"#,
    ),
    (
        "compresses",
        r#"
        static u8 text[1200], out[2600]; static int last[256];
        int go(void) {
            for (int i = 0; i < 1200; i++) text[i] = "abcd"[next() % 3 + (i % 50 == 0)];
            int n = 0; for (int i = 0; i < 256; i++) last[i] = -1;
            for (int i = 0; i < 1200;) {
                int h = (text[i] * 31 + text[i + 1 < 1200 ? i + 1 : i]) & 255, from = last[h], length = 0; last[h] = i;
                if (from >= 0) while (i + length < 1200 && length < 60 && text[from + length] == text[i + length]) length++;
                if (length > 3) { out[n++] = (u8)(128 + length); out[n++] = (u8)(i - from); i += length; } else out[n++] = text[i++];
            }
            return n & 127; }"#,
    ),
    (
        "multiplies_long_numbers",
        r#"
        static u64 a[20], b[20], c[40];
        int go(void) {
            for (int i = 0; i < 20; i++) { a[i] = next(); b[i] = next(); }
            for (int r = 0; r < 4; r++) {
                for (int i = 0; i < 20; i++) { u64 carry = 0; for (int k = 0; k < 20; k++) { unsigned __int128 x = (unsigned __int128)a[i] * b[k] + c[i + k] + carry; c[i + k] = (u64)x; carry = (u64)(x >> 64); } c[i + 20] = carry; }
                for (int i = 0; i < 20; i++) a[i] = c[i + 10] / (b[i] | 1);
            }
            return (int)c[17] & 127; }"#,
    ),
    (
        "draws",
        r#"
        static u8 rows[16][24]; static double x0[24];
        int go(void) {
            int sum = 0; for (int i = 0; i < 24; i++) x0[i] = i * .12 - 2;
            for (int y = 0; y < 16; y++) for (int x = 0; x < 24; x++) { double a = 0, b = 0; int n = 0; while (a * a + b * b < 4 && n < 20) { double t = a * a - b * b + x0[x]; b = 2 * a * b + y * .12 - 1; a = t; n++; } rows[y][x] = (u8)n; sum += n; }
            return sum & 127; }"#,
    ),
    (
        "finds_ways",
        r#"
        static u32 cost[24][24], far[24]; static u8 done[24];
        int go(void) {
            for (int i = 0; i < 576; i++) cost[i / 24][i % 24] = 1 + (u32)(next() % 90);
            for (int i = 1; i < 24; i++) far[i] = 100000;
            for (int r = 0; r < 24; r++) { int best = -1; for (int i = 0; i < 24; i++) if (!done[i] && (best < 0 || far[i] < far[best])) best = i; done[best] = 1; for (int i = 0; i < 24; i++) if (far[best] + cost[best][i] < far[i]) far[i] = far[best] + cost[best][i]; }
            u32 sum = 0; for (int i = 0; i < 24; i++) sum += far[i]; return (int)sum & 127; }"#,
    ),
    (
        "calls_deeply",
        r#"
        static int ack(int m, int n) { return m == 0 ? n + 1 : n == 0 ? ack(m - 1, 1) : ack(m - 1, ack(m, n - 1)); }
        static int many(int a, int b, int c, int d, int e, int f, int g, int h, int i) { volatile int x[4] = { g, h, i, a }; return a + b * c - d + e * f + x[b & 3]; }
        int go(void) { int x = ack(2, 8); for (int i = 0; i < 100; i++) x = many(x, i, 2, x, 4, i, 6, x, 8) & 0xffff; return x & 127; }"#,
    ),
    (
        "maps_memory",
        r#"
        int go(void) {
            u64 sum = 0;
            for (int i = 0; i < 12; i++) {
                u8 *at = (u8 *)0x20000000 + i * 0x10000; if (call(9, (long)at, 0x4000, 3, 0x32, -1, 0) != (long)at) return 1;
                for (int k = 0; k < 0x4000; k += 512) { *(u64 *)(at + k) = next(); sum += *(u64 *)(at + (k ^ 512)); }
                if (call(10, (long)at, 0x1000, 1, 0, 0, 0)) return 2; sum += at[100];
                if (i & 1 && call(11, (long)at, 0x4000, 0, 0, 0, 0)) return 3;
            }
            return (int)sum & 127; }"#,
    ),
    (
        "digests",
        r#"
        static u32 k[64], w[64], h[8];
        #define R(x, n) ((x) >> (n) | (x) << (32 - (n)))
        int go(void) {
            for (int i = 0; i < 64; i++) k[i] = (u32)next(); for (int i = 0; i < 8; i++) h[i] = (u32)next();
            for (int block = 0; block < 6; block++) {
                for (int i = 0; i < 16; i++) w[i] = __builtin_bswap32((u32)next());
                for (int i = 16; i < 64; i++) w[i] = (R(w[i-2], 17) ^ R(w[i-2], 19) ^ w[i-2] >> 10) + w[i-7] + (R(w[i-15], 7) ^ R(w[i-15], 18) ^ w[i-15] >> 3) + w[i-16];
                u32 v[8]; for (int i = 0; i < 8; i++) v[i] = h[i];
                for (int i = 0; i < 64; i++) { u32 t = v[7] + (R(v[4], 6) ^ R(v[4], 11) ^ R(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i], u = (R(v[0], 2) ^ R(v[0], 13)) + ((v[0] & v[1]) ^ (v[0] & v[2])); for (int j = 7; j; j--) v[j] = v[j-1]; v[4] += t; v[0] = t + u; }
                for (int i = 0; i < 8; i++) h[i] += v[i];
            }
            return (int)h[3] & 127; }"#,
    ),
    (
        "uses_gs",
        r#"
        static u64 block[80];
        int go(void) {
            u64 x = 0, y = 0;
            if (call(158, 0x1001, (long)block, 0, 0, 0, 0)) return 1;
            for (u64 i = 0; i < 40; i++)
                __asm__ volatile("mov $8, %%r10\n mov %2, %%r11\n mov %%r11, %%gs:8(%%r10,%%r11,8)\n addq $7, %%gs:16\n incl %%gs:(%%r10)\n push %%gs:24\n pop %0\n"
                    "mov %%gs:8(%%r11), %b1\n xchg %1, %%gs:40\n lock addl $4, %%gs:8(,%%r11,8)\n movdqu %%gs:16(,%%r11,4), %%xmm0\n movdqu %%xmm0, %%gs:64\n add %1, %0\n cmpb $3, %%gs:(,%%r11,2)\n"
                    : "+r"(x), "+r"(y) : "r"(i) : "r10", "r11", "memory", "cc", "xmm0");
            if (call(158, 0x1001, (long)(block + 20), 0, 0, 0, 0) || call(158, 0x1004, (long)(block + 1), 0, 0, 0, 0) || block[1] != (u64)(block + 20)) return 2;
            __asm__ volatile("mov %%gs:8, %0" : "=r"(y));
            return (int)(x + y + block[8]) & 127; }"#,
    ),
];

/// Compiles a freestanding program.
pub(crate) fn compile_alone(directory: &Path, name: &str, source: &str) -> PathBuf {
    let file = directory.join(name).with_extension("c");
    let program = directory.join(name);
    fs::write(&file, format!("{ALONE}{source}")).unwrap();
    let flags = [
        "-O1",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-ffreestanding",
        "-fno-stack-protector",
        "-mno-avx",
        "-fcf-protection=none",
        "-w",
        "-mno-red-zone",
        "-o",
    ];
    let status = Command::new("gcc").args(flags).arg(&program).arg(&file).status();
    assert!(status.expect("gcc runs").success(), "{name}.c does not compile");
    program
}

/// A data access: its kind, address and bytes.
pub(crate) type Access = (Kind, u64, u64);

/// The contents of a trace, independent of how the program is split into blocks: the ranges of code
/// that ran, each as the beginning and end of instructions that follow each other, and the data
/// accesses in pieces of at most 8 bytes.
pub(crate) fn essence(path: &Path) -> (Vec<(u64, u64)>, Vec<Access>) {
    essence_of(path, 0)
}

/// Like [`essence`], for process `number` of a recording.
pub(crate) fn essence_of(path: &Path, number: u32) -> (Vec<(u64, u64)>, Vec<Access>) {
    let (mut code, mut data) = (Vec::<(u64, u64)>::new(), Vec::new());
    for row in Whole::process(path, number).rows {
        let bytes = u64::from(row.meta.size());
        if row.kind() == Kind::Fetch {
            match code.last_mut() {
                Some(last) if last.1 == row.addr => last.1 += bytes,
                _ => code.push((row.addr, row.addr + bytes)),
            }
            continue;
        }
        append(&mut data, row.kind(), row.addr, bytes);
    }
    (code, data)
}

/// Appends an access, split into pieces of at most 8 bytes.
pub(crate) fn append(data: &mut Vec<Access>, kind: Kind, address: u64, bytes: u64) {
    let mut at = address;
    while at < address + bytes {
        let piece = (address + bytes - at).min(8);
        data.push((kind, at, piece));
        at += piece;
    }
}

/// Panics with the first difference between two lists.
pub(crate) fn compare<T: PartialEq + std::fmt::Debug>(
    name: &str,
    what: &str,
    own: &[T],
    other: &[T],
) {
    let differ = own.iter().zip(other).position(|(own, other)| own != other);
    if let Some(at) = differ {
        let from = at.saturating_sub(2);
        let [own, other] = [own, other].map(|list| &list[from..list.len().min(at + 4)]);
        panic!("{name}: {what} {at} is {own:x?} and should be {other:x?}");
    }
    assert_eq!(own.len(), other.len(), "{name}: {what}");
}

/// Programs with at most this number of instructions are also executed in single steps. With `make
/// torture` all programs are.
const STEPPED_MAX: u64 = 16_000;

#[test]
fn it_records_what_qemu_and_single_steps_give() {
    let directory = directory("native_equals");
    let is_torture = std::env::var_os("PAGEWALK_TORTURE").is_some();
    let mut stepped_programs = 0;
    for (name, source) in PROGRAMS {
        let program = compile_alone(&directory, name, source);
        let expected = Command::new(&program).status().unwrap().code();
        let qemu = record(&directory, &options(&program, &[]));
        let (qemu_code, qemu_data) = essence(&qemu.summary.path);
        let native = record(&directory, &native(&program, &[]));
        let (code, data) = essence(&native.summary.path);
        assert_eq!(Some(native.status), expected, "{name}");
        compare(name, "access of QEMU", &data, &qemu_data);
        compare(name, "code of QEMU", &code, &qemu_code);
        assert_eq!(native.summary.instructions, qemu.summary.instructions, "{name}");
        assert!(data.len() > 40, "{name}");
        if native.summary.instructions > STEPPED_MAX && !is_torture {
            continue;
        }
        let stepped = stepped::step(&program);
        compare(name, "access of single steps", &data, &stepped.data);
        compare(name, "code of single steps", &code, &stepped.code);
        assert_eq!(native.summary.instructions, stepped.instructions, "{name}");
        stepped_programs += 1;
    }
    assert!(PROGRAMS.len() >= 30 && stepped_programs >= 10, "{stepped_programs} were stepped");
}
