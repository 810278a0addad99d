// A client that asks a web server behind a Unix socket for one page again and again, for U02 section 4.6.
//
//   web-client SOCKET TIMES
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 3) return 2;
    int times = atoi(words[2]);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, words[1], sizeof to.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    for (int tries = 0; connect(fd, (void *)&to, sizeof to); tries++) {
        if (tries == 500) return 1;
        usleep(20000);
    }
    static const char request[] = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    static char page[4096];
    for (int time = 0; time < times; time++) {
        if (write(fd, request, sizeof request - 1) < 0) return 1;
        int got = 0;
        do {
            int more = read(fd, page + got, sizeof page - 1 - got);
            if (more <= 0) return 1;
            page[got += more] = 0;
        } while (!strstr(page, "Hello world") || page[got - 1] != '\n');
    }
    return 0;
}
