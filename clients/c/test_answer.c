/* Numbers and codes as text, and the reading of answers. */
#include "test.h"

static const char *decimal(int64_t number, unsigned digits) {
    static char out[40];
    struct tg_text text = {out, sizeof out - 1, 0};
    tg_put_decimal(&text, number, digits);
    *text.at = '\0';
    return out;
}

static void numbers_are_as_short_as_can_be(void) {
    CHECK(strcmp(decimal(213069000, 7), "21.3069") == 0);
    CHECK(strcmp(decimal(-1578583000, 7), "-157.8583") == 0);
    CHECK(strcmp(decimal(-1, 7), "-0.0000001") == 0);
    CHECK(strcmp(decimal(0, 7), "0") == 0);
    CHECK(strcmp(decimal(-900000000, 7), "-90") == 0);
    CHECK(strcmp(decimal(3820, 3), "3.82") == 0);
    CHECK(strcmp(decimal(5, 1), "0.5") == 0);
    CHECK(strcmp(decimal(10050, 3), "10.05") == 0);
    CHECK(strcmp(decimal(INT64_MAX, 0), "9223372036854775807") == 0);
    CHECK(strcmp(decimal(INT64_MIN, 3), "-9223372036854775.808") == 0);
}

static void text_ends_where_its_room_ends(void) {
    char out[4] = "###";
    struct tg_text text = {out, 2, 0};
    tg_put_number(&text, 123);
    CHECK(text.full && text.left == 0 && memcmp(out, "12#", 4) == 0);
}

/* RFC 4648, section 10, without the padding; the check value of CRC-32/ISO-HDLC. */
static void codes_are_the_published_ones(void) {
    static const char *const in[] = {"", "f", "fo", "foo", "foob", "fooba", "foobar"};
    static const char *const out[] = {"", "Zg", "Zm8", "Zm9v", "Zm9vYg", "Zm9vYmE", "Zm9vYmFy"};
    size_t i;
    for (i = 0; i < sizeof in / sizeof *in; i++) {
        char made[16];
        struct tg_text text = {made, sizeof made - 1, 0};
        tg_put_base64(&text, (const uint8_t *)in[i], strlen(in[i]));
        *text.at = '\0';
        CHECK(strcmp(made, out[i]) == 0);
    }
    CHECK(tg_crc32((const uint8_t *)"123456789", 9) == 0xcbf43926u);
}

struct answer_case {
    const char *bytes;
    enum tg_reading reading;
    unsigned status;
    int keeps, ours;
};

#define A50 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A200 A50 A50 A50 A50

static const struct answer_case cases[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", TG_WHOLE, 200, 1, 1},
    {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", TG_WHOLE, 200, 1, 1},
    {"HTTP/1.1 202 Accepted\ncontent-LENGTH:\t0 \n\n", TG_WHOLE, 202, 1, 1},
    {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", TG_WHOLE, 200, 0, 1},
    {"HTTP/1.1 200 OK\r\nConnection: Upgrade, Close\r\nContent-Length: 0\r\n\r\n", TG_WHOLE, 200, 0, 1},
    {"HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{\"status\":\"processed\"}", TG_WHOLE, 200, 1, 1},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n16\r\n{\"status\":\"processed\"}\r\n0\r\n\r\n", TG_WHOLE, 200, 0, 1},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n000;x=y\r\n\r\n", TG_WHOLE, 200, 0, 1},
    {"HTTP/1.1 200 OK\r\n\r\n{\"status\":\"duplicate\"}", TG_WHOLE, 200, 0, 1},
    {"HTTP/1.1 204 No Content\r\n\r\n", TG_WHOLE, 204, 1, 0},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", TG_WHOLE, 200, 1, 1},
    {"HTTP/1.1 103 Hints\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", TG_WHOLE, 200, 1, 1},
    {"HTTP/1.1 200 OK\r\nX: " A200 "\r\nContent-Length: 0\r\n\r\n", TG_WHOLE, 200, 1, 1},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", TG_WHOLE, 200, 1, 0},
    /* A portal's page under the status that would delete records. */
    {"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>Pay</html>", TG_WHOLE, 200, 0, 0},
    {"HTTP/1.1 200 OK\r\n\r\n<html>", TG_WHOLE, 200, 0, 0},
    /* One that died behind its head. */
    {"HTTP/1.1 200 OK\r\n\r\n", TG_WHOLE, 200, 0, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n<html>\r\n0\r\n\r\n", TG_WHOLE, 200, 0, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", TG_WHOLE, 200, 1, 0},
    /* What is no answer. */
    {"", TG_BROKEN, 0, 0, 0},
    {"SSH-2.0-x\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/2 200\r\n\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 2000 OK\r\n\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 2 OK\r\n\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 099 x\r\n\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 999 x\r\n\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 101 Switching\r\n\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 0", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 0x10\r\n\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 4294967296\r\n\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", TG_BROKEN, 0, 0, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", TG_BROKEN, 0, 0, 0},
};

/* In pieces of so many bytes. */
static enum tg_reading read_in(struct tg_answer *answer, const uint8_t *bytes, size_t length, size_t piece) {
    enum tg_reading reading = TG_MORE;
    size_t at = 0;
    tg_answer_begin(answer);
    while (at < length && reading == TG_MORE) {
        size_t used, given = length - at < piece ? length - at : piece;
        reading = tg_answer_take(answer, bytes + at, given, &used);
        CHECK(used <= given);
        at += used;
    }
    if (reading == TG_WHOLE && at < length) answer->closes = 1;
    return reading == TG_MORE ? tg_answer_end(answer) : reading;
}

static void answers_are_read_and_rubbish_is_not(void) {
    size_t i, piece;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct answer_case *want = &cases[i];
        for (piece = 1; piece < 70; piece++) {
            struct tg_answer answer;
            size_t length = strlen(want->bytes);
            enum tg_reading reading = read_in(&answer, (const uint8_t *)want->bytes, length, piece);
            if (reading != want->reading ||
                (reading == TG_WHOLE && (answer.status != want->status || tg_answer_keeps(&answer) != want->keeps ||
                                         tg_answer_is_ours(&answer) != want->ours))) {
                (void)fprintf(stderr, "answer %u in pieces of %u\n", (unsigned)i, (unsigned)piece);
                CHECK(0);
            }
        }
    }
}

static void retry_after_is_read(void) {
    static const char in[] = "HTTP/1.1 503 x\r\nretry-after: 17\r\nRetry-After: Wed, 21 Oct 2015\r\nContent-Length: 0\r\n\r\n";
    struct tg_answer answer;
    CHECK(read_in(&answer, (const uint8_t *)in, sizeof in - 1, 7) == TG_WHOLE);
    CHECK(answer.has_retry && answer.retry_s == 17);
}

static void endless_answers_end(void) {
    static const char *const heads[] = {"HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",
                                        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"};
    static const char *const more[] = {"X: y\r\n", "x", "0000000000"};
    size_t i, n, used;
    struct tg_answer answer;
    for (i = 0; i < 3; i++) {
        enum tg_reading reading;
        tg_answer_begin(&answer);
        reading = tg_answer_take(&answer, (const uint8_t *)heads[i], strlen(heads[i]), &used);
        for (n = 0; n < 100000 && reading == TG_MORE; n++)
            reading = tg_answer_take(&answer, (const uint8_t *)more[i], strlen(more[i]), &used);
        CHECK(reading == TG_BROKEN);
    }
    tg_answer_begin(&answer);
    for (n = 0; n < 9; n++) {
        static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
        enum tg_reading reading = tg_answer_take(&answer, (const uint8_t *)interim, sizeof interim - 1, &used);
        CHECK(reading == (n < 8 ? TG_MORE : TG_BROKEN));
    }
}

/* Answers with bytes changed, cut and doubled: nothing is asked but that memory stays whole and reading ends. */
static void harmed_answers_harm_nothing(void) {
    uint32_t state = 2463534242u, round;
    for (round = 0; round < 20000; round++) {
        const char *from = cases[round % (sizeof cases / sizeof *cases)].bytes;
        uint8_t bytes[512];
        size_t length = strlen(from), changes = round % 5, piece;
        struct tg_answer answer;
        if (length == 0) continue;
        memcpy(bytes, from, length);
        for (; changes > 0; changes--) {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            bytes[state % length] = (uint8_t)(state >> 24);
        }
        piece = state % 40 + 1;
        (void)read_in(&answer, bytes, state % 3 == 0 ? length / 2 : length, piece);
        CHECK(answer.line_len < sizeof answer.line && answer.body_len <= sizeof answer.body);
    }
}

void test_text_and_answers(void) {
    numbers_are_as_short_as_can_be();
    text_ends_where_its_room_ends();
    codes_are_the_published_ones();
    answers_are_read_and_rubbish_is_not();
    retry_after_is_read();
    endless_answers_end();
    harmed_answers_harm_nothing();
}
