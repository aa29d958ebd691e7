/* The port of memory. */
#include "test.h"

struct world world;
struct tg tg;
const char ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

int tg_port_read(void *port, uint32_t offset, void *bytes, uint32_t length) {
    (void)port;
    CHECK(offset + length <= STORE);
    memcpy(bytes, world.store + offset, length);
    return 0;
}

int tg_port_write(void *port, uint32_t offset, const void *bytes, uint32_t length) {
    uint32_t whole = world.power >= 0 && world.power < (long)length ? (uint32_t)world.power : length;
    (void)port;
    CHECK(offset + length <= STORE);
    memcpy(world.store + offset, bytes, whole);
    if (whole < length && whole > 0 && world.torn_rest != 0)
        memset(world.store + offset + whole, world.torn_rest, length - whole);
    if (world.power >= 0) world.power -= (long)whole;
    return whole == length ? 0 : -1;
}

int tg_port_sync(void *port) {
    (void)port;
    return world.power == 0 ? -1 : 0;
}

int tg_port_connect(void *port, uint32_t wait_ms) {
    (void)port;
    CHECK(wait_ms > 0);
    world.connects++;
    world.at = NULL;
    world.length = 0;
    return 0;
}

int32_t tg_port_send(void *port, const void *bytes, uint32_t length, uint32_t wait_ms) {
    /* In pieces, as a full socket would take it. */
    uint32_t piece = length < 100 ? length : 100;
    (void)port;
    CHECK(wait_ms > 0);
    if (world.at != NULL) {
        world.at = NULL;
        world.length = 0;
    }
    CHECK(world.length + piece < sizeof world.request);
    memcpy(world.request + world.length, bytes, piece);
    world.length += piece;
    world.request[world.length] = '\0';
    return (int32_t)piece;
}

int32_t tg_port_recv(void *port, void *bytes, uint32_t length, uint32_t wait_ms) {
    uint32_t left;
    (void)port;
    CHECK(wait_ms > 0);
    if (world.at == NULL) {
        world.requests++;
        world.at = world.answered < 8 ? world.answers[world.answered] : NULL;
        world.answered++;
        if (world.at == NULL) return 0;
    }
    left = (uint32_t)strlen(world.at);
    if (left > length) left = length;
    memcpy(bytes, world.at, left);
    world.at += left;
    return (int32_t)left;
}

void tg_port_close(void *port) {
    (void)port;
}

uint32_t tg_port_ms(void *port) {
    (void)port;
    return world.ms;
}

uint32_t tg_port_time(void *port) {
    (void)port;
    return world.time;
}

uint32_t tg_port_random(void *port) {
    (void)port;
    return world.random;
}

void new_world(void) {
    memset(&world, 0, sizeof world);
    world.power = -1;
    world.time = 1774930320;
}

struct tg_config config(void) {
    struct tg_config config;
    memset(&config, 0, sizeof config);
    config.host = "gateway";
    config.device_id = "buoy-1";
    config.slots = SLOTS;
    config.epoch = 7;
    config.batch_max = 4;
    config.plain = 1;
    config.backoff_ms = 1000;
    config.backoff_max_ms = 8000;
    return config;
}

enum tg_status open_with(const struct tg_config *config) {
    tg_close(&tg);
    return tg_open(&tg, config, NULL);
}

enum tg_status reopen(void) {
    struct tg_config same = config();
    return open_with(&same);
}

void fresh(void) {
    struct tg_config same = config();
    new_world();
    CHECK(open_with(&same) == TG_OK);
}

enum tg_status measure(uint32_t number) {
    struct tg_record record = {0, 213069000, -1578583000, 3820, TG_NO_SPEED};
    record.recorded_at = number;
    return tg_record(&tg, &record, NULL);
}

void measure_many(uint32_t from, uint32_t to) {
    for (; from < to; from++) CHECK(measure(from) == TG_OK);
}

void answers(const char *first, const char *second) {
    world.answers[0] = first;
    world.answers[1] = second;
    world.answered = world.requests = 0;
}

struct tg_next step_for(const char *answer) {
    answers(answer, NULL);
    return tg_step(&tg);
}

const char *body(void) {
    const char *end = strstr((const char *)world.request, "\r\n\r\n");
    CHECK(end != NULL);
    return end + 4;
}

