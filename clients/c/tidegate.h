/* Tidegate tracker: a buffer of position records in non-volatile storage, and their upload over a bad link.
 *
 * C99, nothing of the system: what this library needs from one is the ten functions of "The port" below.
 * All memory is `struct tg`, which the caller gives. The one thing that allocates is mbedTLS in tg_open (the
 * context of its HMAC); after tg_open nothing does. No floating point, no recursion, no static state.
 *
 *     static struct tg tracker;
 *     tg_open(&tracker, &config, &port);
 *     for (;;) {
 *         tg_record(&tracker, &fix);              // whenever there is one
 *         struct tg_next next = tg_step(&tracker); // whenever the link is up; at most one upload
 *         ... sleep up to next.wait_ms ...
 *     }
 */
#ifndef TIDEGATE_H
#define TIDEGATE_H

#include <mbedtls/md.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes, which make up nearly all of sizeof(struct tg). Each may be set with -D. */

/* Longest body before compression. A record is 60 to 125 bytes of JSON, what is around them up to 180. */
#ifndef TG_BODY_MAX
#define TG_BODY_MAX 2048
#endif
/* Longest head of a request: the fixed part is 145 bytes, host and device id come on top. */
#ifndef TG_HEAD_MAX
#define TG_HEAD_MAX 384
#endif
/* Compression (zlib): 0 leaves it out. A window of 2^10 bytes holds some ten records, and more of them make a body
 * no shorter: 21 records in 2,045 bytes become 500 with it, 501 with zlib's widest. */
#ifndef TG_ZLIB
#define TG_ZLIB 1
#endif
#ifndef TG_ZLIB_WINDOW_BITS
#define TG_ZLIB_WINDOW_BITS 10
#endif
#ifndef TG_ZLIB_MEM_LEVEL
#define TG_ZLIB_MEM_LEVEL 2
#endif
/* What deflateInit2 asks for at those: zlib.h gives 2^(bits+2) + 2^(level+9), and its own state comes on top:
 * 5.9 KB where pointers have 64 bits. Too little is no fault: bodies then go out plain. */
#define TG_ZLIB_ARENA ((1u << (TG_ZLIB_WINDOW_BITS + 2)) + (1u << (TG_ZLIB_MEM_LEVEL + 9)) + 6400u)

#define TG_DEVICE_ID_MAX 64
#define TG_HOST_MAX 100

/* ---- The buffer ------------------------------------------------------------------------------------- */

/* Where lat_e7 says "no fix", battery_mv and speed_dkn "not measured", recorded_at "clock not set". */
#define TG_NO_FIX INT32_MIN
#define TG_NO_BATTERY 0u
#define TG_NO_SPEED UINT16_MAX
#define TG_NO_TIME 0u

/* One measurement. Positions outside -90..90 or -180..180 degrees are stored as "no fix". */
struct tg_record {
    uint32_t recorded_at; /* Unix seconds */
    int32_t lat_e7;       /* 1e-7 degrees WGS 84 */
    int32_t lon_e7;
    uint16_t battery_mv;
    uint16_t speed_dkn; /* tenths of a knot */
};

/* The ring's place in storage: two copies of a 64-byte header in blocks of their own, then the slots. */
#define TG_BLOCK 4096u
#define TG_SLOT 32u
/* Bytes of storage for a buffer of this many records. */
#define TG_STORE_BYTES(slots) (2u * TG_BLOCK + (uint32_t)(slots) * TG_SLOT)

enum tg_status {
    TG_OK = 0,
    TG_BAD_CONFIG = -1, /* a field of the configuration is missing or too long */
    TG_BAD_STORE = -2,  /* the storage cannot be read or written */
    TG_BAD_LAYOUT = -3, /* the storage holds a buffer of another size */
    TG_NEED_EPOCH = -4  /* the storage is new, and neither clock nor configuration can tell it from an older life */
};

/* ---- The configuration ------------------------------------------------------------------------------ */

/* Zero in any number takes the default. Strings must outlive the tracker. */
struct tg_config {
    const char *host;      /* what goes into the Host header; the port connects to it */
    const char *device_id; /* 1-64 of A-Z a-z 0-9 . _ : - */
    uint8_t key[32];       /* the decoded key of the device */
    uint32_t slots;        /* records that the buffer holds */
    uint32_t epoch;        /* first epoch of new storage; 0: the clock's Unix seconds */
    uint16_t batch_max;    /* records an upload; 50 */
    uint8_t plain;         /* 1: never compress */
    uint8_t full_answers;  /* 1: leave `Prefer: return=minimal` out (24 bytes up; the answer is 160 longer) */
    uint32_t connect_ms;   /* longest wait for a connection; 60 s */
    uint32_t idle_ms;      /* longest silence while sending or receiving; 120 s */
    uint32_t exchange_ms;  /* longest exchange in all; 20 min */
    uint32_t backoff_ms;   /* first bound of the random wait after a fault; 5 s */
    uint32_t backoff_max_ms; /* last bound of it; 15 min */
    uint32_t refused_ms;     /* wait after an answer that repeating does not heal; 1 h */
};

/* ---- The tracker ------------------------------------------------------------------------------------ */

/* What a person may want to see. Counted since tg_open, but the two that are kept in storage. */
struct tg_counts {
    uint32_t overwritten; /* in storage: records lost because the buffer was full */
    uint32_t unreadable;  /* in storage: records lost because their slot did not read back */
    uint32_t uploads;     /* requests begun */
    uint32_t acked;       /* batches acknowledged */
    uint32_t unanswered;  /* no answer, none that can be read, 400, 408 or 5xx */
    uint32_t foreign;     /* of those: 200 or 202 that no gateway says (a captive portal) */
    uint32_t busy;        /* 503, 429 */
    uint32_t refused;     /* anything else */
    uint32_t split;       /* batches cut in two for 413 */
};

/* Private; reads an answer as it comes. */
struct tg_answer {
    uint32_t seen;      /* bytes so far, of all answers to one request */
    uint32_t length;    /* Content-Length, as far as it is left */
    uint32_t retry_s;   /* Retry-After */
    uint16_t status;
    uint8_t state;
    uint8_t line_len;
    uint8_t body_len;
    uint8_t has_length, has_retry, chunked, closes, interim;
    char line[72];      /* start of the line under way */
    char body[10];      /* start of the body */
};

struct tg {
    void *port;
    struct tg_config config;
    struct tg_counts counts;
    mbedtls_md_context_t hmac;
    uint32_t generation; /* of the header last written */
    uint32_t epoch;
    uint64_t head;       /* seq of the next record */
    uint64_t tail;       /* oldest seq that is not acknowledged */
    uint16_t span;       /* seqs from tail on that make up the batch in flight; 0: none */
    uint16_t records;    /* of those: how many read back */
    uint8_t ready;       /* that batch's bytes stand in `out` */
    uint8_t connected, waiting;
    uint8_t faults;      /* in a row */
    uint32_t wait_from_ms, wait_ms;
    uint32_t head_len, body_len;
    struct tg_answer answer;
    uint8_t out[TG_HEAD_MAX + TG_BODY_MAX]; /* the head ends where the body begins */
#if TG_ZLIB
    uint32_t arena_used, arena_peak;
    uint8_t text[TG_BODY_MAX];
    union { uint64_t align; void *align_pointer; uint8_t bytes[TG_ZLIB_ARENA]; } arena;
#endif
};

/* Opens the buffer in the port's storage, and begins a new one (and with it an epoch) where there is none. */
enum tg_status tg_open(struct tg *tg, const struct tg_config *config, void *port);

/* Hangs up and gives mbedTLS its context back. */
void tg_close(struct tg *tg);

/* Stores a record; it is on the medium when this returns. Its seq goes to *seq where that is not null.
 * A full buffer forgets its oldest record: what a ship's owner asks first is where she is now. */
enum tg_status tg_record(struct tg *tg, const struct tg_record *record, uint64_t *seq);

/* Records that wait for their acknowledgement. */
uint64_t tg_waiting(const struct tg *tg);

/* The seq that the next record gets; in a new buffer 0. */
uint64_t tg_next_seq(const struct tg *tg);

enum tg_did {
    TG_IDLE,       /* nothing to send */
    TG_ACKED,      /* a batch arrived and left the buffer */
    TG_WAITING,    /* called before the wait was over: nothing was done */
    TG_UNANSWERED, /* the same bytes will go out again */
    TG_BUSY,       /* likewise; the gateway said when */
    TG_SPLIT,      /* the batch was too large and is now two */
    TG_REFUSED,    /* needs a person: wrong key or device (401), wrong address, one record over the limit (413) */
    TG_STORE_FAILED /* needs a person: the storage cannot be read or written */
};

struct tg_next {
    enum tg_did did;
    uint16_t status;  /* of the answer; 0: none */
    uint32_t wait_ms; /* before tg_step does anything again */
};

/* Uploads the batch in flight, or the next one, once. Never waits but for the network. */
struct tg_next tg_step(struct tg *tg);

/* ---- The port: what a system has to give ------------------------------------------------------------ */

/* Storage of TG_STORE_BYTES(slots), byte by byte. 0 or -1. Never written reads as anything. After `sync`
 * what was written must survive a power cut; what was not yet synced may be there, torn, or not be there. */
int tg_port_read(void *port, uint32_t offset, void *bytes, uint32_t length);
int tg_port_write(void *port, uint32_t offset, const void *bytes, uint32_t length);
int tg_port_sync(void *port);

/* One connection to the gateway (TLS, where it is wanted, is in here). `connect` and `close` are paired.
 * `send` and `recv` give the bytes done, 0 where the other side hung up, -1 on a fault or after `wait_ms`. */
int tg_port_connect(void *port, uint32_t wait_ms);
int32_t tg_port_send(void *port, const void *bytes, uint32_t length, uint32_t wait_ms);
int32_t tg_port_recv(void *port, void *bytes, uint32_t length, uint32_t wait_ms);
void tg_port_close(void *port);

/* Milliseconds that only ever rise and wrap at 2^32; Unix seconds, or 0 where the clock is not set; 32 bits for
 * spreading retries, no secrets. */
uint32_t tg_port_ms(void *port);
uint32_t tg_port_time(void *port);
uint32_t tg_port_random(void *port);

#endif
