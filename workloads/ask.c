// A thin client that asks a server for the same thing again and again, for U02 sections 4.6 and 4.7.
//
//   ask http PORT TIMES              a page of a web server, which ends with "Hello world N"
//   ask mysql SOCKET TIMES QUERY     a query, in which %d is how often it asked before
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TRIES = 1000, WAIT = 20000, HEAD = 4, QUIT = 1, QUERY = 3, END = 0xfe, WRONG = 0xff };

static unsigned char packet[1 << 16];

static int reach(struct sockaddr *to, socklen_t bytes) {
    for (int tries = 0; tries < TRIES; tries++) {
        int fd = socket(to->sa_family, SOCK_STREAM, 0);
        if (!connect(fd, to, bytes)) return fd;
        close(fd);
        usleep(WAIT);
    }
    exit(1);
}

static void all(int fd, void *to, int bytes) {
    for (int got, at = 0; at < bytes; at += got)
        if ((got = read(fd, (char *)to + at, bytes - at)) <= 0) exit(1);
}

// One packet of the protocol: its length, which bytes 0 to 2 say before it.
static int receive(int fd) {
    unsigned char head[HEAD];
    all(fd, head, HEAD);
    int bytes = head[0] | head[1] << 8 | head[2] << 16;
    if (bytes > (int)sizeof packet) exit(1);
    all(fd, packet, bytes);
    return bytes;
}

static void send_packet(int fd, int number, const void *what, int bytes) {
    static unsigned char out[4096];
    unsigned char head[HEAD] = {bytes, bytes >> 8, bytes >> 16, number};
    memcpy(out, head, HEAD);
    memcpy(out + HEAD, what, bytes);
    if (write(fd, out, HEAD + bytes) < 0) exit(1);
}

// Columns, then rows, an end behind each; or one packet that says how it went.
static void answer(int fd) {
    receive(fd);
    if (packet[0] == WRONG) exit(3);
    if (packet[0] == 0) return;
    for (int ends = 0; ends < 2;) {
        int bytes = receive(fd);
        if (packet[0] == WRONG) exit(3);
        ends += packet[0] == END && bytes < 9;
    }
}

static void ask_mysql(int fd, int times, const char *query) {
    // What it can do (a long password, protocol 4.1), the longest packet, the character set, a name.
    static const char hello[4 + 4 + 1 + 23 + 6] = {1, 0x82, 0, 0, 0, 0, 1, 0, 8};
    static char login[sizeof hello];
    static char text[1024] = {QUERY};
    receive(fd);
    memcpy(login, hello, sizeof hello);
    memcpy(login + 32, "root", 5);
    send_packet(fd, 1, login, sizeof login);
    answer(fd);
    for (int time = 0; time < times; time++) {
        int bytes = snprintf(text + 1, sizeof text - 1, query, time);
        send_packet(fd, 0, text, 1 + bytes);
        answer(fd);
    }
    send_packet(fd, 0, (char[]){QUIT}, 1);
}

static void ask_http(int fd, int times) {
    static const char request[] = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    static char page[4096];
    for (int time = 0; time < times; time++) {
        if (write(fd, request, sizeof request - 1) < 0) exit(1);
        for (int got = 0; !strstr(page, "Hello world") || page[got - 1] != '\n';) {
            int more = read(fd, page + got, sizeof page - 1 - got);
            if (more <= 0) exit(1);
            page[got += more] = 0;
        }
        page[0] = 0;
    }
}

int main(int count, char **words) {
    if (count < 4) return 2;
    int times = atoi(words[3]);
    if (count == 5 && !strcmp(words[1], "mysql")) {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        strncpy(to.sun_path, words[2], sizeof to.sun_path - 1);
        ask_mysql(reach((void *)&to, sizeof to), times, words[4]);
    } else if (!strcmp(words[1], "http")) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ask_http(reach((void *)&to, sizeof to), times);
    } else {
        return 2;
    }
    return 0;
}
