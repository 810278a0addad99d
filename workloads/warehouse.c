/*
 * Orders of one warehouse on a heap of objects.
 *
 * Stands in for SPECjbb2005 on one warehouse (B10 §4.5.1, tables 4.3 and 4.4), whose transactions
 * after TPC-C go over objects that lie all over the heap of a Java program: a customer, the
 * stock of ten or so items, a new order with its lines in a young part of the heap, and now and
 * then the delivery of an old one. Customers, items and stock are looked up by random number, as
 * TPC-C draws them.
 *
 * usage: warehouse [MEGABYTES [TRANSACTIONS]]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINES = 10, QUEUE = 1 << 14 };

struct item { long price, number; char name[48]; };
struct stock { struct item *item; long quantity, ordered, year; char about[96]; };
struct line { struct stock *stock; long quantity, amount; };
struct order { struct customer *customer; long lines, total; struct line *line[LINES]; };
struct customer { long balance, payments; struct order *last; char about[168]; };

static unsigned long next(unsigned long *state) {
    *state = *state * 6364136223846793005UL + 1442695040888963407UL;
    return *state >> 33;
}

static void *make(size_t bytes) {
    void *made = calloc(1, bytes);
    if (!made) exit(1);
    return made;
}

int main(int argc, char **argv) {
    long megabytes = argc > 1 ? atol(argv[1]) : 128;
    long transactions = argc > 2 ? atol(argv[2]) : 1000000;
    long customers = megabytes * 1024, stocks = megabytes * 2048;
    struct customer **customer = make((size_t)customers * sizeof *customer);
    struct stock **stock = make((size_t)stocks * sizeof *stock);
    struct order **queue = make(QUEUE * sizeof *queue);
    unsigned long state = 1;
    for (long i = 0; i < stocks; i++) {
        stock[i] = make(sizeof **stock);
        stock[i]->item = make(sizeof(struct item));
        stock[i]->item->price = (long)(next(&state) % 10000);
        stock[i]->quantity = 50;
        if (i < customers) customer[i] = make(sizeof **customer);
    }
    long sum = 0;
    for (long at = 0; at < transactions; at++) {
        struct order *order = make(sizeof *order);
        order->customer = customer[next(&state) % (unsigned long)customers];
        order->lines = 5 + (long)(next(&state) % 6);
        for (long i = 0; i < order->lines; i++) {
            struct line *line = order->line[i] = make(sizeof *line);
            line->stock = stock[next(&state) % (unsigned long)stocks];
            line->quantity = 1 + (long)(next(&state) % 10);
            line->amount = line->quantity * line->stock->item->price;
            line->stock->quantity -= line->quantity;
            if (line->stock->quantity < 10) line->stock->quantity += 91;
            line->stock->ordered++;
            order->total += line->amount;
        }
        order->customer->last = order;
        struct order *old = queue[at % QUEUE];
        queue[at % QUEUE] = order;
        if (!old) continue;
        for (long i = 0; i < old->lines; i++) {
            sum += old->line[i]->amount;
            free(old->line[i]);
        }
        old->customer->balance += old->total;
        old->customer->payments++;
        if (old->customer->last == old) old->customer->last = NULL;
        free(old);
    }
    printf("%ld sold\n", sum);
    return 0;
}
