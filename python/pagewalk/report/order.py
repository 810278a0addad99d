"""The regions of a run that the text and the page show, and their order."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FIELDS = {
    "misses": "misses",
    "l1_misses": "l1_misses",
    "cold_misses": "cold_misses",
    "lookups": "lookups",
    "walk_references": "walk_references",
    "pages": "pages",
    "size": "bytes",
    "start": "start",
    "name": "name",
}
"""The keys by which regions can be sorted, with the field of the results for each."""


class Order(NamedTuple):
    """An order of regions. Numbers are in descending order, places and names in ascending order."""

    by: str = "misses"
    """One of `FIELDS`."""
    top: int | None = None
    """The number of regions that are shown. If absent, as many as fit well."""

    def of(self, regions: Sequence[Mapping[str, Any]]) -> list[int]:
        """The indices in `regions` of the regions that were accessed, in this order."""
        field = FIELDS[self.by]
        looked_up = [at for at, region in enumerate(regions) if region["lookups"]]
        if self.by in ("start", "name"):
            return sorted(looked_up, key=lambda at: regions[at][field])
        return sorted(looked_up, key=lambda at: (-regions[at][field], -regions[at]["lookups"]))

    @property
    def words(self) -> str:
        """The order in words."""
        if self.by in ("start", "name"):
            return f"by {self.by}"
        noun = {"l1_misses": "L1 misses"}.get(self.by, self.by.replace("_", " "))
        return "largest first" if self.by == "size" else f"most {noun} first"


BY_MISSES = Order()
