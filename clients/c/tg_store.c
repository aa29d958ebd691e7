/* The ring of records in non-volatile storage. README.md has its format.
 *
 * A record's slot is seq modulo slots, so the slots say by themselves which seq comes next, and storing a
 * record is one write. The header is written when a batch is chosen and when it is acknowledged. It repeats
 * the next seq: whatever happens to a slot later, a seq that may have been sent is never given out again. A
 * record whose write was torn never was part of a batch, so its seq may be.
 */
#include "tg_parts.h"
#include <string.h>

#define HEADER 64u
#define MAGIC 0x31734754u /* "TGs1" */
/* 2020-01-01: a clock that says less was never set. */
#define CLOCK_MIN 1577836800u

static void put32(uint8_t *at, uint32_t number) {
    int i;
    for (i = 0; i < 4; i++) at[i] = (uint8_t)(number >> (8 * i));
}

static void put64(uint8_t *at, uint64_t number) {
    put32(at, (uint32_t)number);
    put32(at + 4, (uint32_t)(number >> 32));
}

static uint32_t get32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get64(const uint8_t *at) {
    return get32(at) | (uint64_t)get32(at + 4) << 32;
}

static uint16_t get16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

/* Two's complement, whatever the compiler's own conversion does. */
static int32_t signed32(uint32_t bits) {
    return bits <= INT32_MAX ? (int32_t)bits : (int32_t)(bits - 0x80000000u) + INT32_MIN;
}

/* ---- Slots ---- */

static void write_slot(uint8_t *slot, uint32_t epoch, uint64_t seq, const struct tg_record *record) {
    int fix = record->lat_e7 >= -900000000 && record->lat_e7 <= 900000000 &&
              record->lon_e7 >= -1800000000 && record->lon_e7 <= 1800000000;
    put32(slot + 4, epoch);
    put64(slot + 8, seq);
    put32(slot + 16, record->recorded_at);
    put32(slot + 20, (uint32_t)(fix ? record->lat_e7 : TG_NO_FIX));
    put32(slot + 24, (uint32_t)(fix ? record->lon_e7 : 0));
    slot[28] = (uint8_t)record->battery_mv;
    slot[29] = (uint8_t)(record->battery_mv >> 8);
    slot[30] = (uint8_t)record->speed_dkn;
    slot[31] = (uint8_t)(record->speed_dkn >> 8);
    put32(slot, tg_crc32(slot + 4, TG_SLOT - 4));
}

static uint32_t slot_offset(const struct tg *tg, uint64_t seq) {
    return 2 * TG_BLOCK + (uint32_t)(seq % tg->config.slots) * TG_SLOT;
}

int tg_store_get(struct tg *tg, uint64_t seq, struct tg_record *record) {
    uint8_t slot[TG_SLOT];
    if (tg_port_read(tg->port, slot_offset(tg, seq), slot, TG_SLOT) != 0) return -1;
    if (get32(slot) != tg_crc32(slot + 4, TG_SLOT - 4)) return 0;
    if (get32(slot + 4) != tg->epoch || get64(slot + 8) != seq) return 0;
    record->recorded_at = get32(slot + 16);
    record->lat_e7 = signed32(get32(slot + 20));
    record->lon_e7 = signed32(get32(slot + 24));
    record->battery_mv = get16(slot + 28);
    record->speed_dkn = get16(slot + 30);
    return 1;
}

/* Looks at every slot: the seq behind the greatest one of this epoch, and the greatest epoch of any. */
static enum tg_status scan(struct tg *tg, uint64_t *head, uint32_t *epoch_max) {
    uint8_t slot[TG_SLOT];
    uint32_t i;
    for (i = 0; i < tg->config.slots; i++) {
        if (tg_port_read(tg->port, slot_offset(tg, i), slot, TG_SLOT) != 0) return TG_BAD_STORE;
        if (get32(slot) != tg_crc32(slot + 4, TG_SLOT - 4)) continue;
        if (get32(slot + 4) > *epoch_max) *epoch_max = get32(slot + 4);
        if (get32(slot + 4) == tg->epoch && get64(slot + 8) % tg->config.slots == i &&
            get64(slot + 8) >= *head)
            *head = get64(slot + 8) + 1;
    }
    return TG_OK;
}

/* ---- The header ---- */

/* The copies take turns, so that a torn write leaves the one before it. */
enum tg_status tg_store_save(struct tg *tg) {
    uint8_t header[HEADER] = {0};
    uint32_t generation = tg->generation + 1;
    put32(header, MAGIC);
    put32(header + 4, generation);
    put32(header + 8, tg->config.slots);
    put32(header + 12, tg->epoch);
    put64(header + 16, tg->head);
    put64(header + 24, tg->tail);
    put32(header + 32, tg->span);
    put32(header + 36, tg->counts.overwritten);
    put32(header + 40, tg->counts.unreadable);
    put32(header + 60, tg_crc32(header, 60));
    if (tg_port_write(tg->port, generation % 2 * TG_BLOCK, header, HEADER) != 0) return TG_BAD_STORE;
    if (tg_port_sync(tg->port) != 0) return TG_BAD_STORE;
    tg->generation = generation;
    return TG_OK;
}

/* Takes the newer of two copies. TG_NEED_EPOCH: neither is one. */
static enum tg_status load(struct tg *tg) {
    enum tg_status found = TG_NEED_EPOCH;
    uint32_t copy;
    for (copy = 0; copy < 2; copy++) {
        uint8_t header[HEADER];
        if (tg_port_read(tg->port, copy * TG_BLOCK, header, HEADER) != 0) return TG_BAD_STORE;
        if (get32(header) != MAGIC || get32(header + 60) != tg_crc32(header, 60)) continue;
        if (found != TG_NEED_EPOCH && get32(header + 4) < tg->generation) continue;
        found = get32(header + 8) == tg->config.slots ? TG_OK : TG_BAD_LAYOUT;
        tg->generation = get32(header + 4);
        tg->epoch = get32(header + 12);
        tg->head = get64(header + 16);
        tg->tail = get64(header + 24);
        tg->span = get16(header + 32);
        tg->counts.overwritten = get32(header + 36);
        tg->counts.unreadable = get32(header + 40);
    }
    return found;
}

/* New storage, or storage that lost both headers: a new life, whose epoch must be above all before it. */
static enum tg_status begin(struct tg *tg) {
    uint32_t now = tg_port_time(tg->port), before = 0;
    uint64_t none = 0;
    enum tg_status status = scan(tg, &none, &before);
    if (status != TG_OK) return status;
    tg->epoch = tg->config.epoch != 0 ? tg->config.epoch : now >= CLOCK_MIN ? now : 0;
    if (tg->epoch == 0) return TG_NEED_EPOCH;
    /* Slots can outlive the headers. */
    if (before != UINT32_MAX && tg->epoch <= before) tg->epoch = before + 1;
    status = tg_store_save(tg);
    return status == TG_OK ? tg_store_save(tg) : status;
}

/* What a full ring has forgotten, and the batch in flight if that was part of it. */
static void forget(struct tg *tg) {
    uint64_t oldest = tg->head > tg->config.slots ? tg->head - tg->config.slots : 0;
    if (tg->tail >= oldest) return;
    tg->counts.overwritten += (uint32_t)(oldest - tg->tail);
    tg->tail = oldest;
    tg->span = 0;
    tg->ready = 0;
}

enum tg_status tg_store_open(struct tg *tg) {
    uint32_t ignored = 0;
    enum tg_status status = load(tg);
    if (status == TG_NEED_EPOCH) return begin(tg);
    if (status != TG_OK) return status;
    status = scan(tg, &tg->head, &ignored);
    /* The header says less where the last life ended with a full ring: it is not written for each record. */
    forget(tg);
    return status;
}

enum tg_status tg_record(struct tg *tg, const struct tg_record *record, uint64_t *seq) {
    uint8_t slot[TG_SLOT];
    write_slot(slot, tg->epoch, tg->head, record);
    if (tg_port_write(tg->port, slot_offset(tg, tg->head), slot, TG_SLOT) != 0) return TG_BAD_STORE;
    if (tg_port_sync(tg->port) != 0) return TG_BAD_STORE;
    if (seq != NULL) *seq = tg->head;
    tg->head++;
    forget(tg);
    return TG_OK;
}

uint64_t tg_waiting(const struct tg *tg) {
    return tg->head - tg->tail;
}

uint64_t tg_next_seq(const struct tg *tg) {
    return tg->head;
}
