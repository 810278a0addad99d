// The loop of src/naive.rs in C++, to see that Rust's is no slower:
//   c++ -O2 -o naive benches/naive.cpp && ./naive 64 64 512 4 10000000
// It prints million accesses per second over uniform pages of 8 MiB, and both counts of misses.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Level {
    uint64_t sets;
    size_t ways;
    std::vector<uint64_t> tags, stamps;
    Level(size_t entries, size_t ways)
        : sets(entries / ways), ways(ways), tags(entries, UINT64_MAX), stamps(entries, 0) {}

    bool hits(uint64_t page, uint64_t now) {
        size_t start = page % sets * ways, oldest = start;
        for (size_t slot = start; slot < start + ways; slot++) {
            if (tags[slot] == page) {
                stamps[slot] = now;
                return true;
            }
            if (stamps[slot] < stamps[oldest]) oldest = slot;
        }
        tags[oldest] = page;
        stamps[oldest] = now;
        return false;
    }
};

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    Level first(atol(argv[1]), atol(argv[2])), second(atol(argv[3]), atol(argv[4]));
    std::vector<uint64_t> addrs(atol(argv[5]));
    uint64_t state = 1;
    for (auto &addr : addrs) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        addr = state >> 41;
    }
    uint64_t now = 0, l1_misses = 0, l2_misses = 0;
    auto start = std::chrono::steady_clock::now();
    for (uint64_t addr : addrs) {
        uint64_t page = addr >> 12;
        now++;
        if (!first.hits(page, now)) {
            l1_misses++;
            l2_misses += !second.hits(page, now);
        }
    }
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    printf("%.1f M/s, %lu %lu\n", addrs.size() / took.count() / 1e6, (unsigned long)l1_misses,
           (unsigned long)l2_misses);
}
