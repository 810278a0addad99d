/*
 * A breadth-first search of a random graph: each vertex has its distance from the first one.
 *
 * One of the twelve programs of docs/method/placing.md. The edges of a vertex lie together, and
 * lead to vertices anywhere: the distances are read in no order, and that is most of the misses.
 *
 * usage: graph-search [VERTICES [DEGREE [SEARCHES]]]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t random_state = 1;

static uint32_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

static void *array(uint64_t count, uint64_t bytes) {
    void *found = malloc(count * bytes);
    if (found == NULL) exit(1);
    return found;
}

/* Returns how many vertices are reached from `first`, and adds up their distances. */
static uint32_t search(const uint32_t *edges, uint32_t *distance, uint32_t *queue, uint32_t first,
                       uint32_t vertices, uint32_t degree, uint64_t *sum) {
    uint32_t head = 0, tail = 1;
    for (uint32_t vertex = 0; vertex < vertices; vertex++) distance[vertex] = UINT32_MAX;
    queue[0] = first;
    distance[first] = 0;
    while (head < tail) {
        uint32_t from = queue[head++];
        const uint32_t *to = edges + (uint64_t)from * degree;
        for (uint32_t edge = 0; edge < degree; edge++)
            if (distance[to[edge]] == UINT32_MAX) {
                distance[to[edge]] = distance[from] + 1;
                queue[tail++] = to[edge];
            }
        *sum += distance[from];
    }
    return tail;
}

int main(int count, char **arguments) {
    uint32_t size[3] = {1 << 20, 8, 2};
    for (int i = 0; i < 3 && i + 1 < count; i++) size[i] = (uint32_t)atol(arguments[i + 1]);
    uint32_t vertices = size[0], degree = size[1], searches = size[2], reached = 0;
    uint32_t *edges = array((uint64_t)vertices * degree, sizeof *edges);
    uint32_t *distance = array(vertices, sizeof *distance), *queue = array(vertices, sizeof *queue);
    for (uint64_t edge = 0; edge < (uint64_t)vertices * degree; edge++)
        edges[edge] = next_random() % vertices;
    uint64_t sum = 0;
    for (uint32_t turn = 0; turn < searches; turn++)
        reached += search(edges, distance, queue, next_random() % vertices, vertices, degree, &sum);
    printf("%u vertices, distances of %llu in all\n", reached, (unsigned long long)sum);
    return 0;
}
