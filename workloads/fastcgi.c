// A FastCGI program whose answer takes a working set of so many pages, for U02 section 4.6.
//
//   fastcgi PAGES      answers on the socket that it gets as standard input
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STEP = 4160, HEAD = 8, END = 3, INPUT = 5, OUTPUT = 6 };

static int all(int fd, char *to, int bytes) {
    for (int got, at = 0; at < bytes; at += got)
        if ((got = read(fd, to + at, bytes - at)) <= 0) return 0;
    return 1;
}

static char *record(char *at, int type, int id, const char *text, int bytes) {
    char head[HEAD] = {1, type, id >> 8, id, bytes >> 8, bytes, 0, 0};
    memcpy(at, head, HEAD);
    memcpy(at + HEAD, text, bytes);
    return at + HEAD + bytes;
}

// One request of the FastCGI protocol: records up to the end of the input, then the page.
static int answer(int fd, char *set, int pages) {
    static char body[65536], out[512];
    unsigned char head[HEAD];
    int id = 0;
    for (;;) {
        if (!all(fd, (char *)head, HEAD)) return 0;
        int bytes = head[4] << 8 | head[5];
        if (!all(fd, body, bytes + head[6])) return 0;
        id = head[2] << 8 | head[3];
        if (head[1] == INPUT && bytes == 0) break;
    }
    unsigned sum = 0;
    for (int page = 0; page < pages; page++) sum += set[page * STEP];
    char page[128];
    int bytes = snprintf(page, sizeof page, "Content-Type: text/plain\r\n\r\nHello world %u\n", sum);
    char *end = record(out, OUTPUT, id, page, bytes);
    end = record(end, OUTPUT, id, "", 0);
    end = record(end, END, id, "\0\0\0\0\0\0\0\0", 8);
    return write(fd, out, end - out) == end - out;
}

int main(int count, char **words) {
    int pages = count > 1 ? atoi(words[1]) : 0;
    char *set = calloc(pages + 1, STEP);
    for (int page = 0; page < pages; page++) set[page * STEP] = 1;
    for (int fd; (fd = accept(0, NULL, NULL)) >= 0; close(fd))
        while (answer(fd, set, pages)) continue;
    return 0;
}
