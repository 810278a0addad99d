"""TLB entries for more than one page, as runs tell of them: blocks of pages, and ranges."""

import pagewalk
from pagewalk import summary
from pagewalk.report import data, page

TRACE = "generate:strided,accesses=60k,size=16M,stride=512B"


def test_blocks_are_told_of() -> None:
    settings = {"os.manager": "base", "tlb.l2d.blocks": '{kind="coalesced",pages=4}'}
    document = pagewalk.Machine("opteron-2008", set=settings).run(TRACE).data
    blocks = document["tlbs"][1]["blocks"]
    assert blocks["kind"] == "coalesced" and blocks["pages_filled"] > blocks["fills"]
    told = " ".join(summary.summary(document).split())
    assert "tlb.l2d: coalesced entries of up to 4 pages, filled in with" in told
    assert "coalesced entries of up to 4 pages" in page.render(data.report([document]))


def test_hits_of_ranges_are_no_misses() -> None:
    trace = "generate:strided,accesses=20k,size=32M,stride=4K"
    settings = {"os.manager": "base", "range_tlb": "{}"}
    document = pagewalk.Machine("opteron-2008", set=settings).run(trace).data
    ranges = document["range_tlb"]
    assert ranges["lookups"] == document["tlbs"][1]["misses"]
    assert ranges["misses"] == document["walks"]["walks"] < ranges["hits"]
    told = " ".join(summary.summary(document).split())
    assert "Range TLB: 32 ranges, lru" in told
    assert "Range TLB: 32 ranges, lru" in page.render(data.report([document]))
