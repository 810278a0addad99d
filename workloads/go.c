/*
 * A game of Go against itself, by patterns and short reading.
 *
 * Stands in for go of SPEC95 (E99 table 1: 0.8 MB), an integer program of many small tables that
 * are looked up around each point of the board. Here every candidate move is valued by a table of
 * patterns of its eight neighbours, by the liberties of the strings it touches, and by playing it
 * out a few moves deep on a stack of boards. Tables, boards and the history take E99's size.
 *
 * usage: go [MOVES]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 19, ROW = SIZE + 2, POINTS = ROW * ROW, PATTERNS = 1 << 16, DEPTH = 64 };
enum { EMPTY, BLACK, WHITE, EDGE };

struct board {
    uint8_t at[POINTS];
    int16_t string[POINTS];    /* a point's string: the first of its points */
    int16_t liberties[POINTS]; /* of the string that starts there */
    int16_t stones[POINTS];
};

static struct board boards[DEPTH];
static int32_t value[PATTERNS];        /* of eight neighbours, two bits each */
static int16_t influence[SIZE * SIZE][SIZE * SIZE];
static uint16_t seen[POINTS], turn;
static const int around[8] = {-ROW, -1, 1, ROW, -ROW - 1, -ROW + 1, ROW - 1, ROW + 1};

static unsigned long next(unsigned long *state) {
    *state = *state * 6364136223846793005UL + 1442695040888963407UL;
    return *state >> 33;
}

static void count(struct board *board, int first) {
    int16_t points[POINTS];
    int end = 0, liberties = 0, colour = board->at[first];
    turn++;
    points[end++] = (int16_t)first;
    seen[first] = turn;
    for (int i = 0; i < end; i++)
        for (int k = 0; k < 4; k++) {
            int to = points[i] + around[k];
            if (seen[to] == turn) continue;
            seen[to] = turn;
            if (board->at[to] == EMPTY) liberties++;
            if (board->at[to] == colour) points[end++] = (int16_t)to;
        }
    for (int i = 0; i < end; i++) board->string[points[i]] = (int16_t)first;
    board->liberties[first] = (int16_t)liberties;
    board->stones[first] = (int16_t)end;
}

static void take(struct board *board, int first) {
    int colour = board->at[first], string = board->string[first];
    for (int p = ROW; p < POINTS - ROW; p++)
        if (board->at[p] == colour && board->string[p] == string) board->at[p] = EMPTY;
}

static int play(struct board *board, int point, int colour) {
    int taken = 0;
    board->at[point] = (uint8_t)colour;
    for (int k = 0; k < 4; k++) {
        int to = point + around[k];
        if (board->at[to] != (colour ^ 3)) continue;
        count(board, to);
        if (board->liberties[to]) continue;
        taken += board->stones[to];
        take(board, to);
    }
    count(board, point);
    if (board->liberties[point]) return taken + 1;
    board->at[point] = EMPTY;
    return 0;
}

static int pattern(const struct board *board, int point, int colour) {
    int index = 0;
    for (int k = 0; k < 8; k++) {
        int found = board->at[point + around[k]];
        index |= (colour == WHITE && (found == BLACK || found == WHITE) ? found ^ 3 : found) << 2 * k;
    }
    return value[index];
}

static int best(int depth, int colour, int *gain) {
    struct board *board = &boards[depth];
    int chosen = 0, most = -1000000;
    for (int row = 1; row <= SIZE; row++)
        for (int column = 1; column <= SIZE; column++) {
            int point = row * ROW + column;
            if (board->at[point] != EMPTY) continue;
            int worth = pattern(board, point, colour);
            const int16_t *field = influence[(row - 1) * SIZE + column - 1];
            for (int k = 0; k < SIZE; k++) {
                int found = board->at[(k + 1) * ROW + column];
                worth += found == colour ? field[k * SIZE + column - 1]
                         : found         ? -field[k * SIZE + column - 1] : 0;
            }
            if (worth > most) most = worth, chosen = point;
        }
    *gain = most;
    return chosen;
}

int main(int argc, char **argv) {
    long moves = argc > 1 ? atol(argv[1]) : 20000;
    unsigned long state = 1;
    long stones = 0;
    for (int i = 0; i < PATTERNS; i++) value[i] = (int32_t)(next(&state) % 2000) - 1000;
    for (int a = 0; a < SIZE * SIZE; a++)
        for (int b = 0; b < SIZE * SIZE; b++) {
            int rows = abs(a / SIZE - b / SIZE), columns = abs(a % SIZE - b % SIZE);
            influence[a][b] = (int16_t)(200 / (1 + rows * rows + columns * columns));
        }
    for (long move = 0; move < moves; move++) {
        if (move % 200 == 0) {
            memset(boards, EDGE, sizeof boards[0]);
            for (int row = 1; row <= SIZE; row++)
                for (int column = 1; column <= SIZE; column++) boards[0].at[row * ROW + column] = EMPTY;
        }
        int colour = move % 2 ? WHITE : BLACK, gain = 0, line = (int)(next(&state) % 24);
        int first = best(0, colour, &gain);
        if (!first) continue;
        for (int depth = 0, to = first; depth < line && to; depth++) {
            boards[depth + 1] = boards[depth];
            if (!play(&boards[depth + 1], to, depth % 2 ? colour ^ 3 : colour)) value[next(&state) % PATTERNS]--;
            to = best(depth + 1, depth % 2 ? colour : colour ^ 3, &gain);
        }
        stones += play(&boards[0], first, colour);
    }
    printf("%ld stones\n", stones);
    return 0;
}
