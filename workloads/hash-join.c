/*
 * A hash join: the rows of one table are looked up in a hash table of the other's keys.
 *
 * What docs/howto/large-pages.md records. The hash table is one block of memory that is read in
 * no order, so that base pages of it do not stay in a TLB, and large pages do.
 *
 * usage: hash-join [MEGABYTES [LOOKUPS]]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct row { uint64_t key, value; };

static uint64_t slots;

/* Where the search for `key` begins, by the multiplication of Fibonacci hashing. */
static uint64_t slot_of(uint64_t key) {
    return key * 0x9e3779b97f4a7c15 >> 20 & (slots - 1);
}

static struct row *make_table(uint64_t bytes) {
    for (slots = 1; slots * 2 * sizeof(struct row) <= bytes; slots *= 2) {}
    struct row *hash_table = calloc(slots, sizeof *hash_table);
    if (hash_table == NULL) exit(1);
    return hash_table;
}

static void insert(struct row *hash_table, uint64_t key, uint64_t value) {
    uint64_t at = slot_of(key);
    while (hash_table[at].key != 0) at = (at + 1) & (slots - 1);
    hash_table[at] = (struct row){key, value};
}

static uint64_t look_up(const struct row *hash_table, uint64_t key) {
    uint64_t at = slot_of(key);
    while (hash_table[at].key != 0 && hash_table[at].key != key) at = (at + 1) & (slots - 1);
    return hash_table[at].value;
}

int main(int count, char **arguments) {
    uint64_t megabytes = count > 1 ? strtoull(arguments[1], NULL, 10) : 64;
    uint64_t lookups = count > 2 ? strtoull(arguments[2], NULL, 10) : 2000000;
    struct row *hash_table = make_table(megabytes << 20);
    uint64_t rows = slots / 2, sum = 0;
    for (uint64_t key = 1; key <= rows; key++) insert(hash_table, key, key % 97);
    for (uint64_t i = 0; i < lookups; i++) sum += look_up(hash_table, 1 + i * 7919 % rows);
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
