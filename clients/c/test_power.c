/* What power cuts and harmed storage do to the buffer. */
#include "test.h"

static struct {
    char content[64][160]; /* of each seq ever sent, as it was first sent */
    uint8_t acked[64];
} seen;

/* Whatever is sent again must be what it was. */
static void look_at_request(int acked) {
    const char *at = body();
    while ((at = strstr(at, "{\"seq\":")) != NULL) {
        unsigned long seq = strtoul(at + 7, NULL, 10);
        size_t length = (size_t)(strchr(at, '}') - at);
        CHECK(seq < 64 && length < sizeof seen.content[0]);
        if (seen.content[seq][0] == '\0') memcpy(seen.content[seq], at, length);
        CHECK(strncmp(seen.content[seq], at, length) == 0 && seen.content[seq][length] == '\0');
        if (acked) seen.acked[seq] = 1;
        at += length;
    }
}

/* Records and uploads in turn; every second answer is lost. Gives how many records are safe when the power fails. */
static unsigned live(unsigned measured, unsigned until) {
    unsigned turn = 0;
    while (measured < until) {
        if (measure(1000 + measured) != TG_OK) return measured;
        measured++;
        if (++turn % 3 != 0) continue;
        world.ms += 1000000;
        answers(turn % 2 ? ok : NULL, NULL);
        world.length = 0;
        if (tg_step(&tg).did == TG_STORE_FAILED && world.requests == 0) return measured;
        look_at_request(turn % 2);
        if (world.power == 0) return measured;
    }
    return measured;
}

/* The power fails at each byte that a life writes in turn: what was safe arrives, no seq is sent with two contents. */
static void no_power_cut_loses_or_repeats(uint8_t torn_rest) {
    int ended = 0;
    long cut;
    for (cut = 0; !ended; cut++) {
        unsigned safe, seq, step;
        fresh();
        memset(&seen, 0, sizeof seen);
        world.power = cut;
        world.torn_rest = torn_rest;
        safe = live(0, 20);
        ended = world.power > 0;
        world.power = -1;
        CHECK(reopen() == TG_OK && tg.epoch == 7);
        CHECK(tg_next_seq(&tg) >= safe && tg_next_seq(&tg) <= safe + 1);
        safe = (unsigned)tg_next_seq(&tg);
        /* Another measurement than the one that was lost may take its seq, unless that was sent. */
        measure_many(5000, 5003);
        for (step = 0; step < 20 && tg_waiting(&tg) > 0; step++) {
            CHECK(step_for(ok).did == TG_ACKED);
            look_at_request(1);
        }
        CHECK(tg_waiting(&tg) == 0 && tg.counts.overwritten == 0);
        for (seq = 0; seq < safe + 3; seq++) CHECK(seen.acked[seq] || tg.counts.unreadable > 0);
        CHECK(tg.counts.unreadable == 0);
    }
}

static void the_batch_in_flight_survives_a_restart(void) {
    char before[TG_BODY_MAX];
    fresh();
    measure_many(0, 3);
    CHECK(step_for(NULL).did == TG_UNANSWERED);
    (void)strcpy(before, body());
    CHECK(strstr(before, "\"batch_id\":\"7-0-3\"") != NULL);
    measure_many(3, 9);
    CHECK(reopen() == TG_OK && step_for(ok).did == TG_ACKED);
    CHECK(strcmp(before, body()) == 0);
    CHECK(step_for(ok).did == TG_ACKED && strstr(body(), "\"batch_id\":\"7-3-4\"") != NULL);
}

static void harm_slot(uint64_t seq) {
    world.store[2 * TG_BLOCK + seq % SLOTS * TG_SLOT + 20] ^= 0x10;
}

static void harmed_slots_are_passed_over_and_counted(void) {
    unsigned byte;
    for (byte = 0; byte < TG_SLOT; byte++) {
        fresh();
        measure_many(0, 4);
        world.store[2 * TG_BLOCK + TG_SLOT + byte] ^= 1;
        CHECK(step_for(ok).did == TG_ACKED && tg_waiting(&tg) == 0);
        CHECK(strstr(body(), "\"seq\":0") && !strstr(body(), "\"seq\":1") && strstr(body(), "\"seq\":2"));
        CHECK(tg.counts.unreadable == 1);
    }
    /* A whole batch of them, and the newest: its seq was never sent, or stands in the header. */
    fresh();
    measure_many(0, 6);
    for (byte = 0; byte < 4; byte++) harm_slot(byte);
    CHECK(step_for(ok).did == TG_ACKED && tg.counts.unreadable == 4 && strstr(body(), "\"7-4-2\""));
    harm_slot(5);
    harm_slot(4);
    CHECK(reopen() == TG_OK && tg_next_seq(&tg) == 6 && tg.counts.unreadable == 4);
}

/* A write that never reached the medium leaves the record of a lap before, or of a life before. */
static void stale_slots_are_not_taken_for_new_ones(void) {
    uint8_t before[TG_SLOT];
    uint8_t *slot = world.store + 2 * TG_BLOCK + TG_SLOT;
    fresh();
    measure_many(0, SLOTS);
    memcpy(before, slot, TG_SLOT);
    while (tg_waiting(&tg) > 0) CHECK(step_for(ok).did == TG_ACKED);
    measure_many(SLOTS, SLOTS + 4);
    memcpy(slot, before, TG_SLOT);
    CHECK(step_for(ok).did == TG_ACKED && tg.counts.unreadable == 1);
    CHECK(strstr(body(), "\"seq\":16") && !strstr(body(), "\"seq\":1,") && !strstr(body(), "\"seq\":17"));
    fresh();
    measure_many(0, 2);
    memset(world.store, 0, 2 * TG_BLOCK);
    CHECK(reopen() == TG_OK && tg.epoch == 8);
    measure_many(0, 1);
    CHECK(reopen() == TG_OK && tg_next_seq(&tg) == 1 && tg_waiting(&tg) == 1);
}

static void a_harmed_header_costs_one_step(void) {
    unsigned copy;
    for (copy = 0; copy < 2; copy++) {
        fresh();
        measure_many(0, 8);
        CHECK(step_for(ok).did == TG_ACKED && step_for(NULL).did == TG_UNANSWERED);
        world.store[copy * TG_BLOCK + 20] ^= 1;
        CHECK(reopen() == TG_OK && tg.epoch == 7 && tg_next_seq(&tg) == 8);
        CHECK(tg_waiting(&tg) == 4 && step_for(ok).did == TG_ACKED && strstr(body(), "\"7-4-4\"") != NULL);
    }
}

void test_power_cuts(void) {
    no_power_cut_loses_or_repeats(0);
    no_power_cut_loses_or_repeats(0xff);
    the_batch_in_flight_survives_a_restart();
    harmed_slots_are_passed_over_and_counted();
    stale_slots_are_not_taken_for_new_ones();
    a_harmed_header_costs_one_step();
}
