r"""The report: results to plain data, plain data to charts and one offline HTML file.

```
 Results --data.py--> Report --charts.py--> Vega-Lite --+
                        \-------------------------------+--page.py--> HTML
```
"""

from collections.abc import Sequence

from pagewalk.results import Results


def render(results: Sequence[Results]) -> str:
    """The report of one run, or of several side by side, as the text of an HTML file.

    The results documents themselves are in the page, as JSON in the script element
    `results`: an array in the order of the runs.
    """
    # The charting libraries take longer to load than a short run takes.
    from pagewalk.report import data, page

    return page.render(data.report([result.data for result in results]))
