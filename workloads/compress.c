/*
 * Compression in memory: a buffer of text is packed by LZW, unpacked again and compared.
 *
 * Stands in for compress of SPEC95 (E99 table 1: 34.9 MB), which does the same with Unix compress
 * over a buffer that it fills with generated text: codes of at most 16 bits, and a table of 69001
 * places that each byte looks up by a hash of the last code and itself. All buffers are written
 * before it begins; with the tables they take E99's size.
 *
 * usage: compress [BYTES]     of text
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 69001, CODES = 1 << 16, FIRST = 257, CLEAR = 256 };

static int32_t keys[PLACES];      /* of a place: the last code and the byte, or -1 */
static uint16_t codes[PLACES];    /* and the code of both together */
static uint16_t prefix[CODES];    /* of a code: the code before its last byte */
static unsigned char last[CODES], stack[CODES];

static unsigned long next(unsigned long *state) {
    *state = *state * 6364136223846793005UL + 1442695040888963407UL;
    return *state >> 33;
}

/* Words of a small vocabulary, eight letters a time, some as frequent as in a language. */
static void fill(uint64_t *text, long words) {
    static const char letters[] = "eeeeeetttttaaaaooooiiinnnssshhrrddlluucmwfgypbvk     .,";
    static uint64_t vocabulary[4096];
    unsigned long state = 1;
    for (unsigned i = 0; i < sizeof vocabulary; i++)
        ((char *)vocabulary)[i] = letters[next(&state) % (sizeof letters - 1)];
    for (long i = 0; i < words; i++) {
        unsigned long drawn = next(&state);
        text[i] = vocabulary[drawn % 4 ? drawn / 4 % 64 : drawn / 4 % 4096];
    }
}

static long pack(const unsigned char *text, long bytes, uint16_t *out) {
    long made = 0, code = text[0];
    int32_t free_code = FIRST;
    memset(keys, -1, sizeof keys);
    for (long i = 1; i < bytes; i++) {
        int32_t key = (int32_t)(code << 8 | text[i]);
        long place = ((long)text[i] << 8 ^ code) % PLACES, step = place ? PLACES - place : 1;
        while (keys[place] >= 0 && keys[place] != key) place = (place - step + PLACES) % PLACES;
        if (keys[place] == key) {
            code = codes[place];
            continue;
        }
        out[made++] = (uint16_t)code;
        code = text[i];
        if (free_code < CODES) {
            keys[place] = key;
            codes[place] = (uint16_t)free_code++;
        } else {
            out[made++] = CLEAR;
            memset(keys, -1, sizeof keys);
            free_code = FIRST;
        }
    }
    out[made++] = (uint16_t)code;
    return made;
}

static long unpack(const uint16_t *in, long count, unsigned char *text) {
    long made = 0;
    int32_t free_code = FIRST, before = -1;
    unsigned char first = 0;
    for (long i = 0; i < count; i++) {
        int32_t code = in[i], at = code;
        if (code == CLEAR) {
            free_code = FIRST;
            before = -1;
            continue;
        }
        long depth = 0;
        if (before >= 0 && code >= free_code) {
            stack[depth++] = first;
            at = before;
        }
        while (at >= FIRST) {
            stack[depth++] = last[at];
            at = prefix[at];
        }
        first = (unsigned char)at;
        text[made++] = first;
        while (depth > 0) text[made++] = stack[--depth];
        if (before >= 0 && free_code < CODES) {
            prefix[free_code] = (uint16_t)before;
            last[free_code++] = first;
        }
        before = code;
    }
    return made;
}

int main(int argc, char **argv) {
    long bytes = (argc > 1 ? atol(argv[1]) : 11200000) / 8 * 8, room = bytes + bytes / 8;
    unsigned char *text = malloc((size_t)bytes), *back = malloc((size_t)bytes);
    uint16_t *packed = malloc((size_t)room);
    if (!text || !back || !packed || bytes < 8) return 1;
    fill((uint64_t *)text, bytes / 8);
    memset(back, 1, (size_t)bytes);
    memset(packed, 1, (size_t)room);
    long count = pack(text, bytes, packed);
    long made = unpack(packed, count, back);
    if (made != bytes || memcmp(text, back, (size_t)bytes)) return 2;
    printf("%ld bytes in %ld codes\n", bytes, count);
    free(text);
    free(back);
    free(packed);
    return 0;
}
