"""The labels that a paper's pages of the scoreboard use, each with its meaning.

`scoreboard.py` puts on each page the labels that occur in the page's text.
"""

import re

LABELS = {
    "E99": [
        (
            "MPT",
            "**MPT**: the multi-level page table, a radix tree of six levels over all 64 bits of "
            "an address",
        ),
        (
            r"G\d+|guarded",
            "**G2** to **G256**: guarded page tables (radix trees without the nodes that have only "
            "one entry) whose nodes have 2 to 256 entries; G16 has nodes of 16 entries",
        ),
        (
            "H8k|H128k|hashed",
            "**H8k** and **H128k**: hashed page tables, the small and the large one, with an array "
            "of 8 or 128 KB for each address space",
        ),
        (
            "C128k|clustered",
            "**C128k**: the clustered page table, a hashed table with an array of 128 KB whose "
            "entries hold eight adjacent pages each",
        ),
        (
            "S8k|S128k|software TLB",
            "**S8k/G16** and **S128k/G16**: a software TLB of 8 or 128 KB (an array of "
            "translations in memory) in front of G16, which is searched only if the software TLB "
            "misses",
        ),
        (
            "uniform|on file|file:|sparse",
            "**uniform** and **file**: sparse address spaces, with pages at uniformly distributed "
            "random addresses, or with objects whose sizes have the distribution of file sizes",
        ),
        (
            "PROT",
            "**PROT1** and **PROTN**: write access to the pages is removed by one operation for "
            "each page, or by one operation for all pages",
        ),
        (
            "MPT, alone",
            "**MPT, alone**: MPT without the segment of 64 MB that is mapped as well in figure 11",
        ),
        (
            r"\b(?:mm|swim|gcc|go|c4|tfftdp|heapsort|nsieve)\b",
            "**swim**, **go**, **mm** and so on: our stand-ins for the paper's programs "
            "([`experiments/programs.toml`](../../../experiments/programs.toml))",
        ),
    ],
    "B10": [
        (
            r"UPTC|SPTC|UTC|STC|TPC",
            "**UPTC** and **SPTC**: MMU caches that find page-table entries by their physical "
            "address (page-table caches), unified (one array for all levels) or split (one array "
            "per level); **UTC** and **STC**: MMU caches that find tables by a prefix of the "
            "virtual address (translation caches), unified or split; **TPC**: a translation-path "
            "cache, whose entries hold all tables on the path of a walk. "
            "[MMU caches](../../machines/mmu-caches.md) has examples",
        ),
        (
            r"\d+ x \d+|3 x n",
            "**3 x 8**: a split cache with 8 entries for each of three levels of the page table",
        ),
        (
            r"[Ll]evel-?\s?[234]",
            "**level 4** to **level 1**: the levels of the page table from the root down; an entry "
            "of level 3 covers 1 GB of addresses, an entry of level 2 covers 2 MB, and an entry of "
            "level 1 maps a page of 4 KB",
        ),
        (
            "VI-LRU|fixed insertion|insertion point",
            "**VI-LRU**: LRU with a variable insertion point: a new entry is inserted into the "
            "LRU order below as many entries as there are of higher levels. **Fixed insertion "
            "point**: a new entry of level 2 is always inserted at the same place of the LRU order",
        ),
        (
            r"L2 hits|DRAM accesses",
            "**L2 hits** and **DRAM accesses**: references of a walk that the second-level data "
            "cache or memory serves",
        ),
        (
            r"IPT|inverted",
            "**IPT (n)**: an inverted page table, which is one hashed table for all of memory, "
            "with n translations per entry",
        ),
        (
            "TSB",
            "**TSB**: the translation storage buffer of SPARC, an array of translations in memory "
            "that a refill searches first; on a miss, software searches the page table behind it",
        ),
        (
            "SpecTLB|predictions",
            "**SpecTLB**: a buffer that predicts the frame of a page from the frames of its "
            "neighbours while the walk runs ([SpecTLB](../../machines/spec-tlb.md)); "
            "**reservation**: the frames of a large page, which the operating system keeps for one "
            "range of 2 MB (or 1 GB) of addresses",
        ),
        (
            "devices?'? ?s? page|marks",
            "**marks**: bits by which the operating system tells the SpecTLB which pages lie in a "
            "reservation; **device's page**: a page whose frame belongs to a device, so that a "
            "speculative access to it may have side effects",
        ),
        (
            r"\b(?:xz|minisat|zeusmp|python3|warehouse)\b",
            "**xz**, **minisat**, **warehouse** and so on: our programs, in place of those of SPEC "
            "([`experiments/programs.toml`](../../../experiments/programs.toml))",
        ),
    ],
    "U02": [
        (
            "small|large",
            "**small space** and **large space**: several small address spaces lie side by side "
            "within one address space, so that a switch to a small space changes no page table; a "
            "large space has its page table to itself "
            "([small address spaces](../../machines/small-spaces.md))",
        ),
        (
            "trace cache|native",
            "**trace cache**: a cache of decoded instructions in the Pentium 4, which is looked up "
            "before the TLB; loading the page-table base register empties it",
        ),
        (
            "user level|Linux",
            "**native**: Linux is the kernel; **at user level**: Linux is a process (the server) "
            "on a microkernel, and a system call is two messages",
        ),
        ("ITLB|DTLB", "**ITLB** and **DTLB**: the TLBs for instructions and for data"),
        (
            "FastCGI",
            "**FastCGI program**: a process that answers requests for a web server; its **working "
            "set** is the number of data pages that it reads for each request",
        ),
    ],
    "K94": [
        (
            "one lock|One lock|several",
            "**one lock**: a single lock for the whole HAT layer, the part of the kernel that "
            "changes page tables and flushes TLBs; **several locks**: a busy and a wanted flag in "
            "the descriptor of each frame and of each MMU descriptor",
        ),
        (
            "MMU descriptor|_mutex",
            "**MMU descriptor**: the record of one page table; **mmu_mutex** guards the flags of "
            "all MMU descriptors, **page_mutex** the flags of all frames, and "
            "**hat_resource_mutex** the lists of free page tables, space numbers and contexts",
        ),
        (
            "`fork`|`exec`|`fault`|`kenbus`|load",
            "**`fork`**, **`fault`**, **`tpcb`**, **`kenbus`** and so on: loads of `pagewalk hat` "
            "([locks](../../machines/locks.md#loads) has what an operation of each does); the "
            "database load is `tpcb`, the users who run commands are `kenbus`",
        ),
        (
            "window",
            "**window**: addresses of the kernel at which it maps a page of a file to read it",
        ),
        ("[Cc]ontext", "**context**: the number of a space, by which hardware tags TLB entries"),
        ("pool", "**pool**: the memory that the HAT layer has for page tables"),
    ],
    "G98": [
        (
            r"\d+[KM]\b",
            "**16K**, **64K**, **256K**, **1M**: the page size that data, stack and text of the "
            "program get; 16K is the base page",
        ),
        (
            "vortex|fftpde|turb3d|tomcatv|appsp",
            "**turb3d**, **tomcatv**, **fftpde** and **appsp**: C programs of ours with the "
            "structure and sizes of the paper's programs; **vortex**: the paper's database, in "
            "whose place we run sqlite3",
        ),
        (
            "spinner|background",
            "**background threads**: threads that take turns with the program on its processor: "
            "**spinner** (it uses a single page), **fftpde 16K** and **fftpde 64K** (copies of "
            "fftpde with pages of this size)",
        ),
        (
            "[Dd]owngrade|upgrade",
            "**downgrade**: a large page is split into smaller pages; **upgrade**: existing pages "
            "are combined into a large page",
        ),
        (
            "aged|coalescing",
            "**aged memory**: memory in the state after long use; the **coalescing daemon** moves "
            "base pages to obtain free blocks for large pages",
        ),
    ],
}
"""By paper: a pattern that finds the label in a page, and the label with its meaning."""


def of(paper: str, text: str) -> list[str]:
    """A list of the labels of `paper` that `text` uses, as lines of Markdown."""
    used = [meaning for pattern, meaning in LABELS[paper] if re.search(pattern, text)]
    return ["Labels on this page:", "", *(f"* {meaning}." for meaning in used), ""] if used else []
