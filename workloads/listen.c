// Becomes a program whose standard input is a socket that listens, as FastCGI programs want it, for U02 section 4.6.
//
//   listen SOCKET PROGRAM ...
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3) return 2;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strncpy(at.sun_path, words[1], sizeof at.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    // A server that has given up its rights connects.
    umask(0);
    if (bind(fd, (void *)&at, sizeof at) || listen(fd, 5) || dup2(fd, 0)) return 1;
    close(fd);
    execv(words[2], words + 2);
    return 1;
}
