/* For tests on glibc: stands in for malloc and its kin in the whole process, zlib and mbedTLS included, and ends
 * it where something allocates or frees while that is forbidden. */
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

void forbid_allocation(int forbidden);

/* glibc's own, under the names it keeps for such stand-ins. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t items, size_t size);
void *__libc_realloc(void *piece, size_t size);
void __libc_free(void *piece);

static int is_forbidden;

void forbid_allocation(int forbidden) {
    is_forbidden = forbidden;
}

static void check(void) {
    static const char words[] = "allocated after the start\n";
    if (!is_forbidden) return;
    is_forbidden = 0;
    if (write(2, words, sizeof words - 1) < 0) _exit(98);
    _exit(99);
}

void *malloc(size_t size) {
    check();
    return __libc_malloc(size);
}

void *calloc(size_t items, size_t size) {
    check();
    return __libc_calloc(items, size);
}

void *realloc(void *piece, size_t size) {
    check();
    return __libc_realloc(piece, size);
}

void free(void *piece) {
    if (piece != NULL) check();
    __libc_free(piece);
}
