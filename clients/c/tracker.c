/* An example: a tracker that makes up a course and delivers it, and goes on where it was when it is started again.
 *
 * A real one has a GNSS receiver where `measure` stands, sleeps where `rest` does, and calls tg_step only while
 * its modem is on.
 */
#define _POSIX_C_SOURCE 200809L
#include "port_posix.h"
#include "tidegate.h"

#include <mbedtls/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef TG_NO_ALLOCATION
/* no_allocation.c: from here on, and until it is called with 0, allocating ends the program. */
void forbid_allocation(int forbidden);
#else
#define forbid_allocation(forbidden) ((void)(forbidden))
#endif

struct options {
    struct tg_config config;
    const char *file, *key;
    char host[TG_HOST_MAX + 1];
    uint32_t make, every_ms;
};

static const char usage[] =
    "usage: tracker --to HOST:PORT --device ID --key BASE64 --store FILE [options]\n"
    "  --make N            records to make in the life of the buffer, then deliver and end (100)\n"
    "  --every-ms N        rest between two records (0)\n"
    "  --slots N           records the buffer holds (4096)\n"
    "  --epoch N           epoch of a new buffer (the clock's Unix seconds)\n"
    "  --batch N           most records an upload (50)\n"
    "  --plain             do not compress\n"
    "  --full-answers      let the gateway send receipts\n"
    "  --idle-ms N         longest silence of the link (120000)\n"
    "  --backoff-ms N      first bound of the wait after a fault (5000)\n"
    "  --backoff-max-ms N  last bound of it (900000)\n"
    "Ends with 0 when all is delivered, 1 on a fault of its own, 2 on wrong arguments, 3 when the gateway refuses.\n";

/* By enum tg_status. */
static const char *const why_not[] = {"", "device id or host cannot be right", "the storage cannot be read or written",
                                      "the storage holds a buffer of another size: see --slots",
                                      "the storage is new and the clock is not set: give --epoch"};

static struct tg tracker;
static struct port port;

/* The record with this seq. */
static struct tg_record measure(uint64_t seq) {
    struct tg_record record;
    int32_t n = (int32_t)(seq % 30000);
    record.recorded_at = seq % 50 == 49 ? TG_NO_TIME : 1774930320u + 60u * (uint32_t)n;
    record.lat_e7 = seq % 10 == 9 ? TG_NO_FIX : 213069000 - 12345 * n;
    record.lon_e7 = seq % 10 == 9 ? 0 : -1578583000 + 23456 * n;
    record.battery_mv = (uint16_t)(4100 - n % 700);
    record.speed_dkn = seq % 7 == 0 ? TG_NO_SPEED : (uint16_t)(30 + n % 60);
    return record;
}

static void rest(uint32_t ms) {
    struct timespec time;
    time.tv_sec = (time_t)(ms / 1000);
    time.tv_nsec = (long)(ms % 1000) * 1000000L;
    (void)nanosleep(&time, NULL);
}

static uint32_t number(const char *text) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value > UINT32_MAX) {
        (void)fprintf(stderr, "not a number: %s\n%s", text, usage);
        exit(2);
    }
    return (uint32_t)value;
}

/* Where a named option's value belongs; null: there is no such option. */
static int set(struct options *options, const char *name, const char *value) {
    struct tg_config *config = &options->config;
    if (strcmp(name, "--to") == 0) config->host = value;
    else if (strcmp(name, "--device") == 0) config->device_id = value;
    else if (strcmp(name, "--key") == 0) options->key = value;
    else if (strcmp(name, "--store") == 0) options->file = value;
    else if (strcmp(name, "--make") == 0) options->make = number(value);
    else if (strcmp(name, "--every-ms") == 0) options->every_ms = number(value);
    else if (strcmp(name, "--slots") == 0) config->slots = number(value);
    else if (strcmp(name, "--epoch") == 0) config->epoch = number(value);
    else if (strcmp(name, "--batch") == 0) config->batch_max = (uint16_t)number(value);
    else if (strcmp(name, "--idle-ms") == 0) config->idle_ms = number(value);
    else if (strcmp(name, "--backoff-ms") == 0) config->backoff_ms = number(value);
    else if (strcmp(name, "--backoff-max-ms") == 0) config->backoff_max_ms = number(value);
    else return -1;
    return 0;
}

static int read_arguments(struct options *options, int argc, char **argv) {
    int i;
    size_t length = 0;
    options->make = 100;
    options->config.slots = 4096;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--plain") == 0) options->config.plain = 1;
        else if (strcmp(argv[i], "--full-answers") == 0) options->config.full_answers = 1;
        else if (i + 1 >= argc || set(options, argv[i], argv[i + 1]) != 0) return -1;
        else i++;
    }
    if (options->config.host == NULL || options->file == NULL || options->key == NULL) return -1;
    return mbedtls_base64_decode(options->config.key, sizeof options->config.key, &length,
                                 (const unsigned char *)options->key, strlen(options->key)) == 0 &&
                   length == sizeof options->config.key
               ? 0
               : -1;
}

static int open_port(struct options *options) {
    const char *why = "the address is not HOST:PORT";
    const char *colon = strrchr(options->config.host, ':');
    size_t length = colon == NULL ? 0 : (size_t)(colon - options->config.host);
    if (length > 0 && length < sizeof options->host) {
        memcpy(options->host, options->config.host, length);
        if (port_open(&port, options->file, options->host, colon + 1, &why) == 0) return 0;
    }
    (void)fprintf(stderr, "%s\n", why);
    return -1;
}

static int say(enum tg_did did, unsigned status) {
    static const char *const words[] = {"idle",  "acknowledged", "waiting", "no answer",
                                        "busy",  "split",        "refused", "storage failed"};
    printf("%s (status %u), %lu waiting\n", words[did], status, (unsigned long)tg_waiting(&tracker));
    return did == TG_REFUSED ? 3 : did == TG_STORE_FAILED ? 1 : 0;
}

/* Makes and delivers, an upload whenever there are records for a whole batch. */
static int sail(const struct options *options) {
    for (;;) {
        int made = tg_next_seq(&tracker) >= options->make;
        struct tg_next next = {TG_IDLE, 0, 0};
        if (made && tg_waiting(&tracker) == 0) return 0;
        if (!made) {
            struct tg_record record = measure(tg_next_seq(&tracker));
            if (tg_record(&tracker, &record, NULL) != TG_OK) return say(TG_STORE_FAILED, 0);
            if (options->every_ms > 0) rest(options->every_ms);
        }
        if (made || tg_waiting(&tracker) >= tracker.config.batch_max) next = tg_step(&tracker);
        if (next.did != TG_IDLE && next.did != TG_WAITING) {
            int code = say(next.did, next.status);
            if (code != 0) return code;
        }
        if (made && next.wait_ms > 0) rest(next.wait_ms);
    }
}

int main(int argc, char **argv) {
    static struct options options;
    static char out[BUFSIZ];
    enum tg_status opened;
    int code;
    if (read_arguments(&options, argc, argv) != 0) {
        (void)fputs(usage, stderr);
        return 2;
    }
    /* A buffer of our own, or the first printf would allocate one. */
    (void)setvbuf(stdout, out, _IOLBF, sizeof out);
    if (open_port(&options) != 0) return 1;
    opened = tg_open(&tracker, &options.config, &port);
    if (opened != TG_OK) {
        (void)fprintf(stderr, "cannot start: %s\n", why_not[-opened]);
        return 1;
    }
    printf("epoch %lu, next seq %lu, %lu waiting\n", (unsigned long)tracker.epoch,
           (unsigned long)tg_next_seq(&tracker), (unsigned long)tg_waiting(&tracker));
    forbid_allocation(1);
    code = sail(&options);
    forbid_allocation(0);
    printf("uploads %lu, acknowledged %lu, no answer %lu, busy %lu, split %lu, overwritten %lu, unreadable %lu\n",
           (unsigned long)tracker.counts.uploads, (unsigned long)tracker.counts.acked,
           (unsigned long)tracker.counts.unanswered, (unsigned long)tracker.counts.busy,
           (unsigned long)tracker.counts.split, (unsigned long)tracker.counts.overwritten,
           (unsigned long)tracker.counts.unreadable);
    tg_close(&tracker);
    port_close(&port);
    return code;
}
