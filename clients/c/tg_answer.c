/* Reads an HTTP answer byte by byte, in memory that does not depend on what comes.
 *
 * The status decides. Of the head only three fields matter; of the body only its start, which tells a
 * gateway's receipt from the page of a captive portal: deleting records because a hotel's access point said
 * "200 OK" would lose them.
 */
#include "tg_parts.h"
#include <string.h>

/* All heads and the body together; a gateway's answer is 40 to 600 bytes. */
#define ANSWER_MAX 8192u
/* 1xx answers before the final one. */
#define INTERIM_MAX 8
#define NUMBER_MAX 99999999u

enum { IN_STATUS, IN_FIELDS, IN_LENGTH, IN_CHUNK_SIZE, IN_CHUNK, IN_BODY, AT_END };

void tg_answer_begin(struct tg_answer *answer) {
    memset(answer, 0, sizeof *answer);
}

static int lower(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* The value of the field that is called so; null: another field. */
static const char *field(const char *line, const char *name) {
    while (*name != '\0')
        if (lower(*line++) != *name++) return NULL;
    if (*line++ != ':') return NULL;
    while (*line == ' ' || *line == '\t') line++;
    return line;
}

/* Digits and perhaps blanks. -1: something else, or past what makes sense here. */
static int32_t number(const char *text) {
    uint32_t value = 0;
    if (*text == '\0') return -1;
    for (; *text >= '0' && *text <= '9'; text++) {
        value = value * 10 + (uint32_t)(*text - '0');
        if (value > NUMBER_MAX) return -1;
    }
    while (*text == ' ' || *text == '\t') text++;
    return *text == '\0' ? (int32_t)value : -1;
}

/* Whether a list of words, as in Connection, has this one. */
static int has_word(const char *text, const char *word) {
    size_t length = strlen(word);
    while (*text != '\0') {
        size_t i = 0;
        while (i < length && lower(text[i]) == word[i]) i++;
        if (i == length && (text[i] == '\0' || text[i] == ',' || text[i] == ' ' || text[i] == ';')) return 1;
        while (*text != '\0' && *text != ',') text++;
        while (*text == ',' || *text == ' ' || *text == '\t') text++;
    }
    return 0;
}

/* "HTTP/1.1 200 OK"; the words behind the number may be missing. */
static int status_line(struct tg_answer *answer) {
    const char *line = answer->line;
    int i;
    if (memcmp(line, "HTTP/1.", 7) != 0 || line[7] < '0' || line[7] > '9' || line[8] != ' ') return -1;
    answer->status = 0;
    for (i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9') return -1;
        answer->status = (uint16_t)(answer->status * 10 + line[i] - '0');
    }
    if (line[12] != ' ' && line[12] != '\0') return -1;
    answer->closes = line[7] == '0';
    return answer->status >= 100 && answer->status < 600 ? 0 : -1;
}

static int field_line(struct tg_answer *answer) {
    const char *value = field(answer->line, "content-length");
    if (value != NULL) {
        int32_t length = number(value);
        /* Two that differ are an attack on whoever believes one of them. */
        if (length < 0 || (answer->has_length && answer->length != (uint32_t)length)) return -1;
        answer->has_length = 1;
        answer->length = (uint32_t)length;
    }
    value = field(answer->line, "retry-after");
    if (value != NULL && number(value) >= 0) {
        answer->has_retry = 1;
        answer->retry_s = (uint32_t)number(value);
    }
    value = field(answer->line, "transfer-encoding");
    if (value != NULL) {
        if (!has_word(value, "chunked")) return -1;
        answer->chunked = 1;
    }
    value = field(answer->line, "connection");
    if (value != NULL && has_word(value, "close")) answer->closes = 1;
    return 0;
}

/* The empty line: what comes now? */
static int head_ends(struct tg_answer *answer) {
    if (answer->status < 200) {
        /* 101 would change the protocol, and nobody asked for it. */
        if (answer->status == 101 || ++answer->interim > INTERIM_MAX) return -1;
        answer->state = IN_STATUS;
        answer->has_length = answer->has_retry = answer->chunked = 0;
        return 0;
    }
    if (answer->status == 204 || answer->status == 304) {
        answer->state = AT_END;
    } else if (answer->chunked) {
        answer->state = IN_CHUNK_SIZE;
    } else if (answer->has_length) {
        answer->state = answer->length == 0 ? AT_END : IN_LENGTH;
    } else {
        answer->state = IN_BODY;
        answer->closes = 1;
    }
    return 0;
}

/* Enough of a chunked body is known: where its last chunk ends does not matter, since such a connection is not used
 * again. */
static int chunk_size_line(struct tg_answer *answer) {
    char first = (char)lower(answer->line[0]);
    if (!((first >= '0' && first <= '9') || (first >= 'a' && first <= 'f'))) return -1;
    answer->state = IN_CHUNK;
    if (first == '0') {
        const char *at = answer->line;
        while (*at == '0') at++;
        /* "0", perhaps with an extension: the body is empty. */
        if (*at == '\0' || *at == ';' || *at == ' ') answer->state = AT_END;
    }
    return 0;
}

/* A whole line, without its end. Longer ones were cut, which no field that matters is. */
static int line_ends(struct tg_answer *answer) {
    int ended;
    answer->line[answer->line_len] = '\0';
    if (answer->line_len > 0 && answer->line[answer->line_len - 1] == '\r')
        answer->line[answer->line_len - 1] = '\0';
    switch (answer->state) {
    case IN_STATUS:
        ended = status_line(answer);
        answer->state = IN_FIELDS;
        break;
    case IN_FIELDS:
        ended = answer->line[0] == '\0' ? head_ends(answer) : field_line(answer);
        break;
    default:
        ended = chunk_size_line(answer);
    }
    answer->line_len = 0;
    return ended;
}

static void body_byte(struct tg_answer *answer, uint8_t byte) {
    if (answer->body_len < sizeof answer->body) answer->body[answer->body_len++] = (char)byte;
    /* Only a body whose end is known is read to it. */
    if (answer->state == IN_LENGTH ? --answer->length == 0 : answer->body_len == sizeof answer->body)
        answer->state = AT_END;
}

static int take_byte(struct tg_answer *answer, uint8_t byte) {
    if (++answer->seen > ANSWER_MAX) return -1;
    if (answer->state == IN_LENGTH || answer->state == IN_CHUNK || answer->state == IN_BODY) {
        body_byte(answer, byte);
        return 0;
    }
    if (byte == '\n') return line_ends(answer);
    if (byte == '\0') return -1;
    if (answer->line_len < sizeof answer->line - 1) answer->line[answer->line_len++] = (char)byte;
    return 0;
}

enum tg_reading tg_answer_take(struct tg_answer *answer, const uint8_t *bytes, size_t length, size_t *used) {
    for (*used = 0; *used < length && answer->state != AT_END; ++*used)
        if (take_byte(answer, bytes[*used]) != 0) return TG_BROKEN;
    return answer->state == AT_END ? TG_WHOLE : TG_MORE;
}

enum tg_reading tg_answer_end(struct tg_answer *answer) {
    answer->closes = 1;
    return answer->state == IN_BODY || answer->state == AT_END ? TG_WHOLE : TG_BROKEN;
}

int tg_answer_keeps(const struct tg_answer *answer) {
    return answer->state == AT_END && !answer->closes && !answer->chunked;
}

int tg_answer_is_ours(const struct tg_answer *answer) {
    static const char receipt[] = "{\"status\":";
    /* An empty body must be said to be empty: one whose connection ended behind the head may have been anything. */
    if (answer->body_len == 0) return answer->has_length || answer->chunked;
    return answer->body_len == sizeof answer->body && memcmp(answer->body, receipt, sizeof answer->body) == 0;
}
