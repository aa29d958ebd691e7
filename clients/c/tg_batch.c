/* A batch: which records, their JSON, compression, signature and head.
 *
 * Everything follows from the storage and the configuration, nothing from clock or chance, so the same batch
 * is the same bytes after a restart, too, and a gateway that has it already answers "duplicate".
 */
#include "tg_parts.h"
#include <string.h>
#if TG_ZLIB
#include <zlib.h>
#endif

static void put_record(struct tg_text *text, uint64_t seq, const struct tg_record *record) {
    tg_put(text, "{\"seq\":");
    tg_put_number(text, seq);
    if (record->recorded_at != TG_NO_TIME) {
        tg_put(text, ",\"recorded_at\":");
        tg_put_number(text, record->recorded_at);
    }
    if (record->lat_e7 != TG_NO_FIX) {
        tg_put(text, ",\"lat\":");
        tg_put_decimal(text, record->lat_e7, 7);
        tg_put(text, ",\"lon\":");
        tg_put_decimal(text, record->lon_e7, 7);
    }
    if (record->battery_mv != TG_NO_BATTERY) {
        tg_put(text, ",\"battery\":");
        tg_put_decimal(text, record->battery_mv, 3);
    }
    if (record->speed_dkn != TG_NO_SPEED) {
        tg_put(text, ",\"speed\":");
        tg_put_decimal(text, record->speed_dkn, 1);
    }
    tg_put(text, "}");
}

static void put_front(struct tg_text *text, const struct tg *tg, unsigned span) {
    tg_put(text, "{\"device_id\":\"");
    tg_put(text, tg->config.device_id);
    tg_put(text, "\",\"batch_id\":\"");
    tg_put_number(text, tg->epoch);
    tg_put(text, "-");
    tg_put_number(text, tg->tail);
    tg_put(text, "-");
    tg_put_number(text, span);
    tg_put(text, "\",\"epoch_id\":");
    tg_put_number(text, tg->epoch);
    tg_put(text, ",\"records\":[");
}

/* The body of the seqs tail .. tail + span - 1. Gives its length, -1 where the storage cannot be read, and 0 where not
 * all of them fit: *fit do. */
static int32_t write_body(struct tg *tg, char *body, unsigned span, unsigned *fit) {
    struct tg_text text;
    unsigned i;
    text.at = body;
    text.left = TG_BODY_MAX;
    text.full = 0;
    tg->records = 0;
    *fit = 0;
    put_front(&text, tg, span);
    for (i = 0; i < span && !text.full; i++) {
        struct tg_record record;
        int there = tg_store_get(tg, tg->tail + i, &record);
        if (there < 0) return -1;
        if (there == 1) {
            if (tg->records++ > 0) tg_put(&text, ",");
            put_record(&text, tg->tail + i, &record);
        }
        if (!text.full) *fit = i + 1;
    }
    tg_put(&text, "]}");
    return text.full ? 0 : (int32_t)(text.at - body);
}

/* As many records as fit, found by trying: the brackets behind them need room, too. */
static enum tg_status choose(struct tg *tg, char *body) {
    unsigned fit, span = tg->config.batch_max;
    int32_t length;
    if (span > tg_waiting(tg)) span = (unsigned)tg_waiting(tg);
    while ((length = write_body(tg, body, span, &fit)) == 0 && span > 1)
        span = fit < 2 ? 1 : fit < span ? fit : span - 1;
    if (length <= 0) return length < 0 ? TG_BAD_STORE : TG_BAD_CONFIG;
    tg->span = (uint16_t)span;
    if (tg_store_save(tg) == TG_OK) return TG_OK;
    /* Not on the medium: another life might choose another batch, so this one must not go out. */
    tg->span = 0;
    return TG_BAD_STORE;
}

#if TG_ZLIB
/* zlib's memory: pieces of the arena one after the other, all free again with the next body. */
static voidpf take(voidpf opaque, uInt items, uInt size) {
    struct tg *tg = opaque;
    uint32_t bytes = (items * size + 15u) & ~15u;
    uint8_t *piece = tg->arena.bytes + tg->arena_used;
    if (bytes > TG_ZLIB_ARENA - tg->arena_used) return Z_NULL;
    tg->arena_used += bytes;
    if (tg->arena_used > tg->arena_peak) tg->arena_peak = tg->arena_used;
    /* Nothing of an earlier body may have a say in the bytes of this one. */
    memset(piece, 0, bytes);
    return piece;
}

static void give_back(voidpf opaque, voidpf piece) {
    (void)opaque;
    (void)piece;
}

/* Gives the packed length, 0 where that is not less. */
static size_t pack(struct tg *tg, size_t length, uint8_t *packed) {
    z_stream stream;
    int ended;
    size_t made;
    memset(&stream, 0, sizeof stream);
    stream.zalloc = take;
    stream.zfree = give_back;
    stream.opaque = tg;
    tg->arena_used = 0;
    if (deflateInit2(&stream, 9, Z_DEFLATED, TG_ZLIB_WINDOW_BITS, TG_ZLIB_MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    stream.next_in = tg->text;
    stream.avail_in = (uInt)length;
    stream.next_out = packed;
    stream.avail_out = (uInt)(length - 1);
    ended = deflate(&stream, Z_FINISH);
    made = length - 1 - stream.avail_out;
    (void)deflateEnd(&stream);
    /* "Up to 32 KiB of window", which is no less true and the only header that every reader knows. */
    packed[0] = 0x78;
    packed[1] = 0xda;
    return ended == Z_STREAM_END ? made : 0;
}
#endif

static int sign(struct tg *tg, struct tg_text *text) {
    uint8_t mac[32];
    if (mbedtls_md_hmac_reset(&tg->hmac) != 0 ||
        mbedtls_md_hmac_update(&tg->hmac, tg->out + TG_HEAD_MAX, tg->body_len) != 0 ||
        mbedtls_md_hmac_finish(&tg->hmac, mac) != 0)
        return -1;
    tg_put_base64(text, mac, sizeof mac);
    return 0;
}

/* The head ends where the body begins, so that both go out in one piece. */
static enum tg_status write_head(struct tg *tg) {
    char head[TG_HEAD_MAX];
    struct tg_text text;
    text.at = head;
    text.left = sizeof head;
    text.full = 0;
    tg_put(&text, "POST /v1/batches HTTP/1.1\r\nHost: ");
    tg_put(&text, tg->config.host);
    tg_put(&text, "\r\nX-Device-Id: ");
    tg_put(&text, tg->config.device_id);
    tg_put(&text, "\r\nX-Signature: ");
    if (sign(tg, &text) != 0) return TG_BAD_CONFIG;
    if (!tg->config.full_answers) tg_put(&text, "\r\nPrefer: return=minimal");
    tg_put(&text, "\r\nContent-Length: ");
    tg_put_number(&text, tg->body_len);
    tg_put(&text, "\r\n\r\n");
    if (text.full) return TG_BAD_CONFIG;
    tg->head_len = (uint32_t)(text.at - head);
    memcpy(tg->out + TG_HEAD_MAX - tg->head_len, head, tg->head_len);
    return TG_OK;
}

enum tg_status tg_batch_ready(struct tg *tg) {
    uint8_t *body = tg->out + TG_HEAD_MAX;
    char *text = (char *)body;
    unsigned fit;
    int32_t length;
#if TG_ZLIB
    if (!tg->config.plain) text = (char *)tg->text;
#endif
    length = tg->span > 0 ? write_body(tg, text, tg->span, &fit) : 0;
    if (length == 0) {
        /* Chosen now, or by a build with longer bodies: then its records go out in smaller batches. */
        enum tg_status chosen = choose(tg, text);
        if (chosen != TG_OK) return chosen;
        length = write_body(tg, text, tg->span, &fit);
    }
    if (length <= 0) return TG_BAD_STORE;
    tg->body_len = (uint32_t)length;
#if TG_ZLIB
    if (!tg->config.plain) {
        size_t packed = pack(tg, (size_t)length, body);
        if (packed == 0) memcpy(body, tg->text, (size_t)length);
        if (packed != 0) tg->body_len = (uint32_t)packed;
    }
#endif
    tg->ready = tg->records > 0;
    return write_head(tg);
}
