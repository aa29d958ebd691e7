/* What the library's files give each other. Not for applications. */
#ifndef TG_PARTS_H
#define TG_PARTS_H

#include "tidegate.h"

/* ---- tg_text.c ---- */

/* Text that is being written: past its end nothing is, and `full` says so. */
struct tg_text {
    char *at;
    size_t left;
    int full;
};
void tg_put(struct tg_text *text, const char *string);
void tg_put_number(struct tg_text *text, uint64_t number);
/* number / 10^digits, as short as it can be: 213069000 with 7 digits is 21.3069. */
void tg_put_decimal(struct tg_text *text, int64_t number, unsigned digits);
void tg_put_base64(struct tg_text *text, const uint8_t *bytes, size_t length);
/* CRC-32 of IEEE 802.3, as zlib and Python have it. */
uint32_t tg_crc32(const uint8_t *bytes, size_t length);

/* ---- tg_store.c ---- */

enum tg_status tg_store_open(struct tg *tg);
enum tg_status tg_store_save(struct tg *tg);
/* 1: there; 0: that slot holds no such record; -1: cannot be read. */
int tg_store_get(struct tg *tg, uint64_t seq, struct tg_record *record);

/* ---- tg_batch.c ---- */

/* Makes the batch in flight ready in `out`, choosing one first where there is none. `records` may come out as 0. */
enum tg_status tg_batch_ready(struct tg *tg);

/* ---- tg_answer.c ---- */

enum tg_reading { TG_MORE, TG_WHOLE, TG_BROKEN };
void tg_answer_begin(struct tg_answer *answer);
/* Takes bytes in until the answer is whole; *used says how many. */
enum tg_reading tg_answer_take(struct tg_answer *answer, const uint8_t *bytes, size_t length, size_t *used);
/* The other side hung up. */
enum tg_reading tg_answer_end(struct tg_answer *answer);
/* Whether the connection can carry another exchange. */
int tg_answer_keeps(const struct tg_answer *answer);
/* Whether the body is one that a gateway sends with 200 or 202: none, or a receipt. */
int tg_answer_is_ours(const struct tg_answer *answer);

#endif
