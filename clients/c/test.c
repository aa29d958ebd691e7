/* The rest of the tests: what is sent, what becomes of it, and all of them run. */
#include "test.h"
#if TG_ZLIB
#include <zlib.h>
#endif

/* ---- The request ---- */

static void the_request_is_what_http_needs(void) {
    static const char head[] = "POST /v1/batches HTTP/1.1\r\nHost: gateway\r\nX-Device-Id: buoy-1\r\nX-Signature: ";
    static const char tail[] = "\r\nPrefer: return=minimal\r\nContent-Length: 155\r\n\r\n";
    static const char want[] =
        "{\"device_id\":\"buoy-1\",\"batch_id\":\"7-0-2\",\"epoch_id\":7,\"records\":["
        "{\"seq\":0,\"recorded_at\":9,\"lat\":-90,\"lon\":0.0000001,\"battery\":3.82,\"speed\":4.5},{\"seq\":1}]}";
    struct tg_record record = {9, -900000000, 1, 3820, 45};
    struct tg_record nothing = {TG_NO_TIME, 900000001, 0, TG_NO_BATTERY, TG_NO_SPEED};
    fresh();
    CHECK(tg_record(&tg, &record, NULL) == TG_OK && tg_record(&tg, &nothing, NULL) == TG_OK);
    CHECK(step_for(ok).did == TG_ACKED && tg_waiting(&tg) == 0);
    CHECK(strcmp(body(), want) == 0 && strlen(want) == 155);
    CHECK(memcmp(world.request, head, sizeof head - 1) == 0);
    /* 43 characters of base64 without padding between the two. */
    CHECK(memcmp(world.request + sizeof head - 1 + 43, tail, sizeof tail - 1) == 0);
    CHECK(tg_step(&tg).did == TG_IDLE);
}

/* ---- A full buffer, epochs, configuration ---- */

static void a_full_buffer_forgets_its_oldest(void) {
    fresh();
    measure_many(0, 3);
    CHECK(step_for(NULL).did == TG_UNANSWERED);
    measure_many(3, 18);
    CHECK(tg_waiting(&tg) == SLOTS && tg.counts.overwritten == 2);
    world.ms += 1000000;
    /* The batch in flight had lost records, so it is another one under another id. */
    CHECK(step_for(ok).did == TG_ACKED && strstr(body(), "\"batch_id\":\"7-2-4\"") != NULL);
    CHECK(tg_waiting(&tg) == SLOTS - 4);
    measure_many(18, 40);
    CHECK(reopen() == TG_OK && tg_waiting(&tg) == SLOTS && tg_next_seq(&tg) == 40);
    CHECK(tg.counts.overwritten == 2 + 18);
}

static void a_new_buffer_begins_a_new_epoch(void) {
    struct tg_config by_clock = config();
    by_clock.epoch = 0;
    new_world();
    world.time = 1000;
    CHECK(open_with(&by_clock) == TG_NEED_EPOCH);
    world.time = 1774930320;
    CHECK(open_with(&by_clock) == TG_OK && tg.epoch == 1774930320 && tg_next_seq(&tg) == 0);
    /* Never the same again, even where the configuration says so and only slots are left to tell. */
    fresh();
    measure_many(0, 3);
    memset(world.store, 0xff, 2 * TG_BLOCK);
    CHECK(reopen() == TG_OK && tg.epoch == 8 && tg_next_seq(&tg) == 0 && tg_waiting(&tg) == 0);
}

static void wrong_configurations_are_refused(void) {
    struct tg_config wrong = config();
    char long_id[66];
    new_world();
    wrong.device_id = "a b";
    CHECK(open_with(&wrong) == TG_BAD_CONFIG);
    memset(long_id, 'a', sizeof long_id);
    long_id[65] = '\0';
    wrong.device_id = long_id;
    CHECK(open_with(&wrong) == TG_BAD_CONFIG);
    wrong.device_id = "..";
    CHECK(open_with(&wrong) == TG_BAD_CONFIG);
    wrong = config();
    wrong.host = "x\r\nX-Evil: y";
    CHECK(open_with(&wrong) == TG_BAD_CONFIG);
    wrong = config();
    wrong.slots = 0;
    CHECK(open_with(&wrong) == TG_BAD_CONFIG);
    fresh();
    wrong = config();
    wrong.slots = SLOTS / 2;
    CHECK(open_with(&wrong) == TG_BAD_LAYOUT);
}

/* ---- What becomes of a batch ---- */

static void each_status_has_its_consequence(void) {
    static const struct {
        const char *answer;
        enum tg_did did;
        uint32_t least, most; /* ms to wait */
        unsigned left;
    } decisions[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", TG_ACKED, 0, 0, 0},
        {"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", TG_ACKED, 0, 0, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", TG_UNANSWERED, 1, 1000, 3},
        {"HTTP/1.1 503 x\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n", TG_BUSY, 30000, 30999, 3},
        {"HTTP/1.1 503 x\r\nRetry-After: 99999999\r\nContent-Length: 0\r\n\r\n", TG_BUSY, 86400000, 86400999, 3},
        {"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n", TG_BUSY, 1, 1000, 3},
        {"HTTP/1.1 429 x\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n", TG_BUSY, 2000, 2999, 3},
        {"HTTP/1.1 400 x\r\nContent-Length: 0\r\n\r\n", TG_UNANSWERED, 1, 1000, 3},
        {"HTTP/1.1 408 x\r\nContent-Length: 0\r\n\r\n", TG_UNANSWERED, 1, 1000, 3},
        {"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n", TG_UNANSWERED, 1, 1000, 3},
        {"HTTP/1.1 401 x\r\nContent-Length: 0\r\n\r\n", TG_REFUSED, 3600000, 4499999, 3},
        {"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n", TG_REFUSED, 3600000, 4499999, 3},
        {"HTTP/1.1 302 x\r\nContent-Length: 0\r\n\r\n", TG_REFUSED, 3600000, 4499999, 3},
        {"rubbish\r\n", TG_UNANSWERED, 1, 1000, 3},
        {NULL, TG_UNANSWERED, 1, 1000, 3},
    };
    size_t i, random;
    for (i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        for (random = 0; random < 2; random++) {
            struct tg_next next;
            fresh();
            /* The ends of each spread: the second is one less than a multiple of all of them. */
            world.random = random == 0 ? 0 : 35999999;
            measure_many(0, 3);
            next = step_for(decisions[i].answer);
            CHECK(next.did == decisions[i].did);
            CHECK(next.wait_ms == (random == 0 ? decisions[i].least : decisions[i].most));
            CHECK(tg_waiting(&tg) == decisions[i].left && world.requests == 1);
            if (next.wait_ms == 0) continue;
            /* Too early: nothing happens. */
            world.ms += next.wait_ms - 1;
            CHECK(tg_step(&tg).did == TG_WAITING && world.requests == 1);
            world.ms++;
            CHECK(step_for(ok).did == TG_ACKED && tg_waiting(&tg) == 0);
        }
    }
}

static void waits_grow_to_their_bound(void) {
    static const uint32_t most[] = {1000, 2000, 4000, 8000, 8000, 8000};
    size_t i;
    fresh();
    world.random = 7999999; /* the last number of each spread */
    world.ms = UINT32_MAX - 3000; /* the clock wraps on the way */
    measure_many(0, 1);
    for (i = 0; i < sizeof most / sizeof *most; i++) {
        CHECK(step_for(NULL).wait_ms == most[i]);
        world.ms += most[i];
    }
    CHECK(step_for(ok).did == TG_ACKED);
    measure_many(1, 2);
    CHECK(step_for(NULL).wait_ms == 1000);
}

static void a_batch_too_large_is_halved(void) {
    static const char large[] = "HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n";
    fresh();
    measure_many(0, 4);
    CHECK(step_for(large).did == TG_SPLIT && strstr(body(), "\"7-0-4\""));
    CHECK(reopen() == TG_OK);
    CHECK(step_for(large).did == TG_SPLIT && strstr(body(), "\"7-0-2\""));
    CHECK(step_for(large).did == TG_REFUSED && strstr(body(), "\"7-0-1\""));
    CHECK(tg_waiting(&tg) == 4);
}

static void a_kept_connection_that_ended_is_made_anew_at_once(void) {
    fresh();
    measure_many(0, 8);
    CHECK(step_for(ok).did == TG_ACKED && world.connects == 1);
    answers(NULL, ok);
    CHECK(tg_step(&tg).did == TG_ACKED && world.connects == 2 && world.requests == 2);
    /* And hung up when nothing is left. */
    CHECK(!tg.connected);
}

static void bytes_behind_an_answer_end_the_connection(void) {
    fresh();
    measure_many(0, 8);
    CHECK(step_for("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n").did == TG_ACKED);
    CHECK(!tg.connected && tg_waiting(&tg) == 4);
}

/* With ids of every length, so that each byte of a body is once the one that is too much. */
static void bodies_are_full_and_within_their_bound(void) {
    static const struct tg_record longest = {UINT32_MAX, -899999999, -1799999999, 65535, 65534};
    char id[TG_DEVICE_ID_MAX + 1];
    size_t length;
    for (length = 1; length <= TG_DEVICE_ID_MAX; length++) {
        struct tg_config many = config();
        uint32_t i;
        memset(id, 'a', length);
        id[length] = '\0';
        many.device_id = id;
        many.batch_max = UINT16_MAX;
        many.slots = 2 * SLOTS;
        new_world();
        CHECK(open_with(&many) == TG_OK);
        for (i = 0; i < 2 * SLOTS; i++) CHECK(tg_record(&tg, &longest, NULL) == TG_OK);
        CHECK(step_for(ok).did == TG_ACKED && tg_waiting(&tg) > 0);
        /* One more would be a comma and as much as the last one here. */
        CHECK(strlen(body()) <= TG_BODY_MAX && strlen(body()) + strlen(strrchr(body(), '{')) - 1 > TG_BODY_MAX);
        while (tg_waiting(&tg) > 0) CHECK(step_for(ok).did == TG_ACKED && strlen(body()) <= TG_BODY_MAX);
    }
}

#if TG_ZLIB
static void packed_bodies_unpack_to_the_plain_ones(void) {
    struct tg_config packing = config();
    char plain[TG_BODY_MAX + 1];
    char unpacked[TG_BODY_MAX];
    uLongf length = sizeof unpacked;
    fresh();
    measure_many(0, 4);
    CHECK(step_for(NULL).did == TG_UNANSWERED);
    (void)strcpy(plain, body());
    packing.plain = 0;
    CHECK(open_with(&packing) == TG_OK && step_for(NULL).did == TG_UNANSWERED);
    CHECK(tg.body_len < strlen(plain) && tg.arena_peak > 0 && tg.arena_peak <= TG_ZLIB_ARENA);
    CHECK(tg.out[TG_HEAD_MAX] == 0x78 && tg.out[TG_HEAD_MAX + 1] == 0xda);
    CHECK(uncompress((Bytef *)unpacked, &length, tg.out + TG_HEAD_MAX, tg.body_len) == Z_OK);
    CHECK(length == strlen(plain) && memcmp(unpacked, plain, length) == 0);
    (void)printf("struct tg %lu bytes, of those zlib's arena %lu, used %lu\n", (unsigned long)sizeof tg,
                 (unsigned long)TG_ZLIB_ARENA, (unsigned long)tg.arena_peak);
}
#endif

int main(void) {
    test_text_and_answers();
    test_power_cuts();
    the_request_is_what_http_needs();
    a_full_buffer_forgets_its_oldest();
    a_new_buffer_begins_a_new_epoch();
    wrong_configurations_are_refused();
    each_status_has_its_consequence();
    waits_grow_to_their_bound();
    a_batch_too_large_is_halved();
    a_kept_connection_that_ended_is_made_anew_at_once();
    bytes_behind_an_answer_end_the_connection();
    bodies_are_full_and_within_their_bound();
#if TG_ZLIB
    packed_bodies_unpack_to_the_plain_ones();
#endif
    tg_close(&tg);
    (void)puts("all tests passed");
    return 0;
}
