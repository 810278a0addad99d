r"""The report.

Results become plain data, and these become charts and one HTML file that needs no network.

```
 Results --data.py--> Report --charts.py--> Vega-Lite --+
                        \-------------------------------+--page.py--> HTML
```
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagewalk.document import Document
    from pagewalk.report.order import Order


def render(results: "Sequence[Document]", order: "Order | None" = None) -> str:
    """The report of one run, or of several side by side, as the text of an HTML file.

    Regions are in `order`. If it is absent, those with the most misses are first. The results
    documents themselves are in the page, as JSON in the script element `results`: an array in the
    order of the runs.
    """
    # Loading the charting libraries takes longer than a short run.
    from pagewalk.report import data, page

    documents = [result.data for result in results]
    return page.render(data.report(documents, order) if order else data.report(documents))
