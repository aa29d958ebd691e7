/* One upload: send, read, and decide by the status what becomes of the batch. */
#include "tg_parts.h"
#include <string.h>

/* A day: what a Retry-After can do to a tracker at most. */
#define RETRY_MAX_S 86400u

static uint32_t or_default(uint32_t value, uint32_t otherwise) {
    return value != 0 ? value : otherwise;
}

static int is_device_id(const char *id) {
    size_t i;
    for (i = 0; id[i] != '\0'; i++) {
        char c = id[i];
        int fine = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
                   c == '_' || c == ':' || c == '-';
        if (!fine || i == TG_DEVICE_ID_MAX) return 0;
    }
    return i > 0 && strcmp(id, ".") != 0 && strcmp(id, "..") != 0;
}

static int is_host(const char *host) {
    size_t i;
    for (i = 0; host[i] != '\0'; i++)
        if (host[i] <= ' ' || host[i] > '~' || i == TG_HOST_MAX) return 0;
    return i > 0;
}

static enum tg_status configure(struct tg *tg) {
    struct tg_config *config = &tg->config;
    if (config->host == NULL || config->device_id == NULL) return TG_BAD_CONFIG;
    if (!is_host(config->host) || !is_device_id(config->device_id)) return TG_BAD_CONFIG;
    /* The offset of a slot has 32 bits. */
    if (config->slots == 0 || config->slots > (UINT32_MAX - 2 * TG_BLOCK) / TG_SLOT) return TG_BAD_CONFIG;
    config->batch_max = (uint16_t)or_default(config->batch_max, 50);
    config->connect_ms = or_default(config->connect_ms, 60000);
    config->idle_ms = or_default(config->idle_ms, 120000);
    config->exchange_ms = or_default(config->exchange_ms, 1200000);
    config->backoff_ms = or_default(config->backoff_ms, 5000);
    config->backoff_max_ms = or_default(config->backoff_max_ms, 900000);
    config->refused_ms = or_default(config->refused_ms, 3600000);
    return TG_OK;
}

enum tg_status tg_open(struct tg *tg, const struct tg_config *config, void *port) {
    enum tg_status status;
    memset(tg, 0, sizeof *tg);
    tg->port = port;
    tg->config = *config;
    mbedtls_md_init(&tg->hmac);
    status = configure(tg);
    if (status == TG_OK) status = tg_store_open(tg);
    if (status != TG_OK) return status;
    /* The last allocation: hmac_reset starts each further signature from the key set here. */
    if (mbedtls_md_setup(&tg->hmac, mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), 1) != 0 ||
        mbedtls_md_hmac_starts(&tg->hmac, tg->config.key, sizeof tg->config.key) != 0) {
        mbedtls_md_free(&tg->hmac);
        return TG_BAD_CONFIG;
    }
    return TG_OK;
}

static void hang_up(struct tg *tg) {
    if (tg->connected) tg_port_close(tg->port);
    tg->connected = 0;
}

void tg_close(struct tg *tg) {
    hang_up(tg);
    mbedtls_md_free(&tg->hmac);
}

/* ---- The exchange ---- */

static int timed_out(const struct tg *tg, uint32_t from) {
    return tg_port_ms(tg->port) - from >= tg->config.exchange_ms;
}

static int send_all(struct tg *tg, uint32_t from) {
    const uint8_t *at = tg->out + TG_HEAD_MAX - tg->head_len;
    uint32_t left = tg->head_len + tg->body_len;
    while (left > 0) {
        int32_t sent = timed_out(tg, from) ? -1 : tg_port_send(tg->port, at, left, tg->config.idle_ms);
        if (sent <= 0) return -1;
        at += sent;
        left -= (uint32_t)sent;
    }
    return 0;
}

static enum tg_reading read_answer(struct tg *tg, uint32_t from) {
    enum tg_reading reading = TG_MORE;
    tg_answer_begin(&tg->answer);
    while (reading == TG_MORE) {
        uint8_t bytes[64];
        size_t used;
        int32_t got = timed_out(tg, from) ? -1 : tg_port_recv(tg->port, bytes, sizeof bytes, tg->config.idle_ms);
        if (got < 0) return TG_BROKEN;
        if (got == 0) return tg_answer_end(&tg->answer);
        reading = tg_answer_take(&tg->answer, bytes, (size_t)got, &used);
        /* Bytes behind the answer belong to nothing that was asked. */
        if (reading == TG_WHOLE && used < (size_t)got) tg->answer.closes = 1;
    }
    return reading;
}

/* Gives the status, 0 where there is none. */
static uint16_t exchange(struct tg *tg) {
    uint32_t from = tg_port_ms(tg->port);
    enum tg_reading reading = TG_BROKEN;
    int used_before = tg->connected;
    for (;;) {
        tg->counts.uploads++;
        if (!tg->connected && tg_port_connect(tg->port, tg->config.connect_ms) != 0) return 0;
        tg->connected = 1;
        tg_answer_begin(&tg->answer);
        reading = send_all(tg, from) == 0 ? read_answer(tg, from) : TG_BROKEN;
        if (reading == TG_WHOLE) break;
        hang_up(tg);
        /* A kept connection may have ended meanwhile: a fresh one is worth one try at once. */
        if (!used_before || tg->answer.seen > 0 || timed_out(tg, from)) return 0;
        used_before = 0;
    }
    if (!tg_answer_keeps(&tg->answer)) hang_up(tg);
    return tg->answer.status;
}

/* ---- What becomes of the batch ---- */

/* 0 .. bound - 1 */
static uint32_t spread(struct tg *tg, uint32_t bound) {
    return bound == 0 ? 0 : tg_port_random(tg->port) % bound;
}

static struct tg_next wait_for(struct tg *tg, enum tg_did did, uint16_t status, uint32_t wait_ms) {
    struct tg_next next;
    tg->waiting = 1;
    tg->wait_from_ms = tg_port_ms(tg->port);
    tg->wait_ms = wait_ms;
    next.did = did;
    next.status = status;
    next.wait_ms = wait_ms;
    /* Nobody keeps a satellite modem on while waiting. */
    if (wait_ms > 0) hang_up(tg);
    return next;
}

/* Exponential with full jitter: a fleet that lost its gateway at once must not come back at once. */
static struct tg_next back_off(struct tg *tg, enum tg_did did, uint16_t status) {
    uint32_t bound = tg->config.backoff_ms;
    uint8_t i;
    for (i = 0; i < tg->faults && bound < tg->config.backoff_max_ms; i++)
        bound = bound > UINT32_MAX / 2 ? UINT32_MAX : bound * 2;
    if (bound > tg->config.backoff_max_ms) bound = tg->config.backoff_max_ms;
    if (tg->faults < UINT8_MAX) tg->faults++;
    return wait_for(tg, did, status, spread(tg, bound) + 1);
}

static struct tg_next unanswered(struct tg *tg, uint16_t status) {
    tg->counts.unanswered++;
    return back_off(tg, TG_UNANSWERED, status);
}

static struct tg_next busy(struct tg *tg, uint16_t status) {
    uint32_t seconds = tg->answer.retry_s < RETRY_MAX_S ? tg->answer.retry_s : RETRY_MAX_S;
    tg->counts.busy++;
    if (!tg->answer.has_retry) return back_off(tg, TG_BUSY, status);
    return wait_for(tg, TG_BUSY, status, seconds * 1000 + spread(tg, tg->config.backoff_ms));
}

/* Repeating does not heal it, and forgetting the records would be worse: ask again now and then, since a person may
 * mend the key at the other end. */
static struct tg_next refused(struct tg *tg, uint16_t status) {
    tg->counts.refused++;
    return wait_for(tg, TG_REFUSED, status, tg->config.refused_ms + spread(tg, tg->config.refused_ms / 4));
}

static struct tg_next store_failed(struct tg *tg, uint16_t status) {
    return back_off(tg, TG_STORE_FAILED, status);
}

/* Moves past the batch. Where that cannot be saved it goes out again, and is a duplicate. */
static enum tg_status leave_behind(struct tg *tg) {
    uint64_t tail = tg->tail;
    uint16_t span = tg->span;
    enum tg_status saved;
    tg->tail += span;
    tg->span = 0;
    tg->counts.unreadable += (uint32_t)(span - tg->records);
    saved = tg_store_save(tg);
    if (saved != TG_OK) {
        tg->tail = tail;
        tg->span = span;
        tg->counts.unreadable -= (uint32_t)(span - tg->records);
        return saved;
    }
    tg->ready = 0;
    return TG_OK;
}

static struct tg_next acknowledged(struct tg *tg, uint16_t status) {
    if (!tg_answer_is_ours(&tg->answer)) {
        tg->counts.foreign++;
        return unanswered(tg, status);
    }
    if (leave_behind(tg) != TG_OK) return store_failed(tg, status);
    tg->counts.acked++;
    tg->faults = 0;
    if (tg_waiting(tg) == 0) hang_up(tg);
    return wait_for(tg, TG_ACKED, status, 0);
}

/* Half of it is another batch under another id, since the count is part of the id. */
static struct tg_next too_large(struct tg *tg, uint16_t status) {
    uint16_t span = tg->span;
    if (span < 2) return refused(tg, status);
    tg->span = (uint16_t)((span + 1) / 2);
    if (tg_store_save(tg) != TG_OK) {
        tg->span = span;
        return store_failed(tg, status);
    }
    tg->ready = 0;
    tg->counts.split++;
    return wait_for(tg, TG_SPLIT, status, 0);
}

static struct tg_next decide(struct tg *tg, uint16_t status) {
    switch (status) {
    case 200:
    case 202:
        return acknowledged(tg, status);
    case 413:
        return too_large(tg, status);
    case 429:
    case 503:
        return busy(tg, status);
    case 0:
    case 400:
    case 408:
        return unanswered(tg, status);
    default:
        return status >= 500 ? unanswered(tg, status) : refused(tg, status);
    }
}

struct tg_next tg_step(struct tg *tg) {
    struct tg_next next = {TG_IDLE, 0, 0};
    uint32_t passed = tg_port_ms(tg->port) - tg->wait_from_ms;
    if (tg->waiting && passed < tg->wait_ms) {
        next.did = TG_WAITING;
        next.wait_ms = tg->wait_ms - passed;
        return next;
    }
    tg->waiting = 0;
    /* Records whose slots do not read back are passed over, a batch of them at a time. */
    while (!tg->ready) {
        if (tg_waiting(tg) == 0) return next;
        if (tg_batch_ready(tg) != TG_OK) return store_failed(tg, 0);
        if (tg->records == 0 && leave_behind(tg) != TG_OK) return store_failed(tg, 0);
    }
    return decide(tg, exchange(tg));
}
