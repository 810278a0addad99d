/*
 * Connect four, searched with a transposition table.
 *
 * Stands in for c4 of Aburto's collection (E99 table 1: 5.1 MB): alpha-beta over the game, whose
 * memory is a hash table of positions that every node reads and writes at a random place. The
 * bit board, the order of moves and the hash are ours; the table has as many places of five
 * bytes as make E99's size.
 *
 * usage: c4 [NODES]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 7, ROWS = 6, PLACES = 1050011 };

static uint32_t *keys; /* 4 bytes of a position */
static int8_t *scores; /* and its score */
static long nodes, nodes_max;

/* Four in a row: a column takes ROWS + 1 bits, so shifts by 1, 6, 7 and 8 never wrap. */
static int won(uint64_t board) {
    static const int shifts[] = {1, ROWS, ROWS + 1, ROWS + 2};
    for (int i = 0; i < 4; i++) {
        uint64_t pairs = board & (board >> shifts[i]);
        if (pairs & (pairs >> 2 * shifts[i])) return 1;
    }
    return 0;
}

static int search(uint64_t mine, uint64_t theirs, int height[], int stones, int alpha, int beta) {
    static const int order[COLUMNS] = {3, 2, 4, 1, 5, 0, 6};
    if (stones == COLUMNS * ROWS || ++nodes > nodes_max) return 0;
    uint64_t position = mine * 3 + theirs + (mine | theirs);
    long place = (long)(position % PLACES);
    if (keys[place] == (uint32_t)(position / PLACES) && scores[place]) {
        int known = scores[place];
        if (known > 0 && known - 64 >= beta) return known - 64;
        if (known < 0 && known + 64 <= alpha) return known + 64;
    }
    int best = -63;
    for (int i = 0; i < COLUMNS && best < beta; i++) {
        int column = order[i];
        if (height[column] == ROWS) continue;
        uint64_t moved = mine | 1ULL << (column * (ROWS + 1) + height[column]);
        int score;
        if (won(moved)) {
            score = COLUMNS * ROWS - stones;
        } else {
            height[column]++;
            int low = best > alpha ? best : alpha;
            score = -search(theirs, moved, height, stones + 1, -beta, -low);
            height[column]--;
        }
        if (score > best) best = score;
    }
    keys[place] = (uint32_t)(position / PLACES);
    scores[place] = (int8_t)(best >= beta ? best + 64 : best - 64);
    return best;
}

int main(int argc, char **argv) {
    nodes_max = argc > 1 ? atol(argv[1]) : 1500000;
    keys = calloc(PLACES, sizeof *keys);
    scores = calloc(PLACES, sizeof *scores);
    if (!keys || !scores) return 1;
    int height[COLUMNS] = {0};
    int score = search(0, 0, height, 0, -63, 63);
    printf("score %d after %ld nodes\n", score, nodes - 1);
    return 0;
}
