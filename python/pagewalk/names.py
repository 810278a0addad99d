"""Names that the library, its reports and its commands share."""

DEFAULT = "epyc-9005"
"""The machine that a trace runs on if none is named: a current server core."""

KEYS = ("region", "site", "function", "line", "thread", "page-size")
"""The properties by which misses can be grouped."""

MACHINE = "machine"
"""The key of a sweep over several machines; no key of a machine's file has this name."""

TRACE = "trace"
"""The key of a sweep over several traces."""

MEANS = ("geometric", "arithmetic", "none")
"""The means of a sweep over several traces; the first one is the default."""

COLUMN_MM = 85
"""Millimetres across a column of a paper."""
WHY = {
    "obtained": "as requested",
    "policy-asks-base": "base pages requested",
    "unaligned": "no aligned block there",
    "region-too-small": "region smaller than a page",
    "mixed-rights": "parts with other rights",
    "other-size-present": "page of another size there",
    "pair-rule": "other page of the pair smaller",
    "in-page-cache": "parts in the page cache",
    "base-pages-present": "base pages there already",
    "table-kept": "old page table kept",
    "shared": "parts shared with other spaces",
    "no-frame": "no free frame of the size",
    "wait-timed-out": "no frame became free in time",
    "in-swap": "parts in swap",
    "scarce": "memory scarce",
    "watermark": "memory for the size used up",
    "wired": "parts wired",
    "exceed-none-pte": "too many pages missing",
    "exceed-swap-pte": "too many pages in swap",
    "exceed-shared-pte": "too many pages shared",
    "lack-referenced-page": "no page used recently",
    "pool-empty": "no free page in the pool",
}
"""The reasons for the sizes of pages in words, by their names in results."""
