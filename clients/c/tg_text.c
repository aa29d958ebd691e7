/* Numbers and bytes as text. */
#include "tg_parts.h"

static void put_char(struct tg_text *text, char c) {
    if (text->left == 0) {
        text->full = 1;
        return;
    }
    *text->at++ = c;
    text->left--;
}

void tg_put(struct tg_text *text, const char *string) {
    while (*string != '\0') put_char(text, *string++);
}

void tg_put_number(struct tg_text *text, uint64_t number) {
    char digits[20]; /* of 2^64 - 1 */
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (n > 0) put_char(text, digits[--n]);
}

void tg_put_decimal(struct tg_text *text, int64_t number, unsigned digits) {
    uint64_t size = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    uint64_t scale = 1;
    unsigned i;
    for (i = 0; i < digits; i++) scale *= 10;
    if (number < 0) put_char(text, '-');
    tg_put_number(text, size / scale);
    size %= scale;
    if (size == 0) return;
    put_char(text, '.');
    while (size > 0) {
        scale /= 10;
        put_char(text, (char)('0' + size / scale));
        size %= scale;
    }
}

/* Without padding: each byte costs, and a gateway takes both. */
void tg_put_base64(struct tg_text *text, const uint8_t *bytes, size_t length) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t held = 0;
    unsigned bits = 0;
    size_t i;
    for (i = 0; i < length; i++) {
        held = (held << 8 | bytes[i]) & 0xffffu;
        for (bits += 8; bits >= 6; bits -= 6) put_char(text, letters[held >> (bits - 6) & 63]);
    }
    if (bits > 0) put_char(text, letters[held << (6 - bits) & 63]);
}

/* Bit by bit: 32 bytes at a time, a table would cost more than it saves. */
uint32_t tg_crc32(const uint8_t *bytes, size_t length) {
    uint32_t crc = 0xffffffffu;
    size_t i;
    for (i = 0; i < length; i++) {
        int bit;
        crc ^= bytes[i];
        for (bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
    }
    return ~crc;
}
