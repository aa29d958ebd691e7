/* Tests of the library's parts, on a port of memory whose power can fail at any byte and whose gateway says what a
 * test tells it to. */
#ifndef TEST_H
#define TEST_H

#include "tg_parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the line of what is wrong. */
#define CHECK(is)                                                                 \
    do {                                                                          \
        if (!(is)) {                                                              \
            (void)fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #is);    \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

#define SLOTS 16u
/* Room for the one test that wants more. */
#define STORE TG_STORE_BYTES(2 * SLOTS)

struct world {
    uint8_t store[STORE];
    long power;          /* bytes that can still be written; -1: as many as one likes */
    uint8_t torn_rest;   /* what a torn write leaves behind the tear; 0: what was there */
    uint32_t ms, time, random;
    const char *answers[8]; /* of the next requests; null: the connection breaks */
    unsigned answered, connects, requests;
    const char *at;      /* where the answer is read */
    uint8_t request[TG_HEAD_MAX + TG_BODY_MAX + 1];
    size_t length;       /* of the request so far */
};

extern struct world world;
extern struct tg tg;

/* A gateway's answer to what it stored. */
extern const char ok[];

/* A new buffer, SLOTS records, 4 a batch, epoch 7, in an empty world. */
void fresh(void);
void new_world(void);
struct tg_config config(void);
enum tg_status open_with(const struct tg_config *config);
/* As after a power cut: nothing of memory is left. */
enum tg_status reopen(void);

/* Records a measurement that is told apart by its time; so many of them. */
enum tg_status measure(uint32_t number);
void measure_many(uint32_t from, uint32_t to);

/* The next answers (null: the connection breaks); the books of requests begin anew. */
void answers(const char *first, const char *second);
struct tg_next step_for(const char *answer);
/* Of the last request. */
const char *body(void);

/* test_answer.c */
void test_text_and_answers(void);
/* test_power.c */
void test_power_cuts(void);

#endif
