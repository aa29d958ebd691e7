/* The only file that knows the system: storage, network, clock, chance. */
#define _POSIX_C_SOURCE 200809L
#include "port_posix.h"
#include "tidegate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A new file is only there after a power cut if its folder was synced, too. */
static int sync_folder(const char *file) {
    char folder[PATH_MAX];
    const char *slash = strrchr(file, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - file) + 1;
    int opened, synced;
    if (length >= sizeof folder) return -1;
    memcpy(folder, file, length);
    folder[length] = '\0';
    opened = open(length == 0 ? "." : folder, O_RDONLY);
    if (opened < 0) return -1;
    synced = fsync(opened);
    (void)close(opened);
    return synced;
}

/* Two trackers on one buffer would give out each seq twice. */
static int lock(int file) {
    struct flock whole;
    memset(&whole, 0, sizeof whole);
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    return fcntl(file, F_SETLK, &whole);
}

static int look_up(struct port *port, const char *host, const char *service) {
    struct addrinfo hints, *found = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, service, &hints, &found) != 0) return -1;
    port->address_len = found->ai_addrlen;
    memcpy(&port->address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

int port_open(struct port *port, const char *file, const char *host, const char *service, const char **why) {
    memset(port, 0, sizeof *port);
    port->socket = port->random = -1;
    *why = "cannot open the storage file";
    port->file = open(file, O_RDWR | O_CREAT, 0600);
    if (port->file < 0 || sync_folder(file) != 0) return -1;
    *why = "another process uses the storage file";
    if (lock(port->file) != 0) return -1;
    *why = "cannot open /dev/urandom";
    port->random = open("/dev/urandom", O_RDONLY);
    if (port->random < 0) return -1;
    *why = "cannot find the gateway's address";
    return look_up(port, host, service);
}

void port_close(struct port *port) {
    if (port->file >= 0) (void)close(port->file);
    if (port->random >= 0) (void)close(port->random);
}

int tg_port_read(void *port, uint32_t offset, void *bytes, uint32_t length) {
    uint8_t *at = bytes;
    while (length > 0) {
        ssize_t got = pread(((struct port *)port)->file, at, length, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) {
            /* Behind the end nothing was ever written. */
            memset(at, 0, length);
            return 0;
        }
        at += got;
        offset += (uint32_t)got;
        length -= (uint32_t)got;
    }
    return 0;
}

int tg_port_write(void *port, uint32_t offset, const void *bytes, uint32_t length) {
    const uint8_t *at = bytes;
    while (length > 0) {
        ssize_t put = pwrite(((struct port *)port)->file, at, length, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return -1;
        at += put;
        offset += (uint32_t)put;
        length -= (uint32_t)put;
    }
    return 0;
}

int tg_port_sync(void *port) {
    return fdatasync(((struct port *)port)->file);
}

/* Waits until the socket is ready. */
static int ready(const struct port *port, short events, uint32_t wait_ms) {
    struct pollfd waiting;
    uint32_t from = tg_port_ms(NULL);
    waiting.fd = port->socket;
    waiting.events = events;
    for (;;) {
        uint32_t passed = tg_port_ms(NULL) - from;
        uint32_t left = passed < wait_ms ? wait_ms - passed : 0;
        int found = poll(&waiting, 1, left > INT_MAX ? INT_MAX : (int)left);
        if (found > 0) return 0;
        if (found == 0 || errno != EINTR) return -1;
    }
}

int tg_port_connect(void *opaque, uint32_t wait_ms) {
    struct port *port = opaque;
    int fault = 0;
    socklen_t length = sizeof fault;
    port->socket = socket(port->address.ss_family, SOCK_STREAM, 0);
    if (port->socket < 0) return -1;
    if (fcntl(port->socket, F_SETFL, O_NONBLOCK) == 0) {
        int begun = connect(port->socket, (const struct sockaddr *)&port->address, port->address_len);
        if (begun == 0) return 0;
        if (errno == EINPROGRESS && ready(port, POLLOUT, wait_ms) == 0 &&
            getsockopt(port->socket, SOL_SOCKET, SO_ERROR, &fault, &length) == 0 && fault == 0)
            return 0;
    }
    tg_port_close(port);
    return -1;
}

int32_t tg_port_send(void *opaque, const void *bytes, uint32_t length, uint32_t wait_ms) {
    struct port *port = opaque;
    ssize_t sent;
    if (ready(port, POLLOUT, wait_ms) != 0) return -1;
    sent = send(port->socket, bytes, length, MSG_NOSIGNAL);
    if (sent < 0) return errno == EPIPE || errno == ECONNRESET ? 0 : -1;
    return (int32_t)sent;
}

int32_t tg_port_recv(void *opaque, void *bytes, uint32_t length, uint32_t wait_ms) {
    struct port *port = opaque;
    ssize_t got;
    if (ready(port, POLLIN, wait_ms) != 0) return -1;
    got = recv(port->socket, bytes, length, 0);
    if (got < 0) return errno == ECONNRESET ? 0 : -1;
    return (int32_t)got;
}

void tg_port_close(void *opaque) {
    struct port *port = opaque;
    if (port->socket >= 0) (void)close(port->socket);
    port->socket = -1;
}

uint32_t tg_port_ms(void *port) {
    struct timespec now;
    (void)port;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)now.tv_sec * 1000u + (uint32_t)(now.tv_nsec / 1000000);
}

uint32_t tg_port_time(void *port) {
    time_t now = time(NULL);
    (void)port;
    return now > 0 ? (uint32_t)now : 0;
}

uint32_t tg_port_random(void *port) {
    uint32_t bits = 0;
    if (read(((struct port *)port)->random, &bits, sizeof bits) != (ssize_t)sizeof bits) return tg_port_ms(NULL);
    return bits;
}
