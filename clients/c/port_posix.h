/* The port for POSIX systems: a file for storage, a TCP socket for the gateway. */
#ifndef PORT_POSIX_H
#define PORT_POSIX_H

#include <netinet/in.h>

struct port {
    int file, random, socket;
    struct sockaddr_storage address;
    socklen_t address_len;
};

/* Opens the file, making it where it is not, and looks the gateway up. 0, or -1 with *why saying what failed.
 * Looking up a name allocates, so the address stays as it is until the next start. */
int port_open(struct port *port, const char *file, const char *host, const char *service, const char **why);
void port_close(struct port *port);

#endif
