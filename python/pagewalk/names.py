"""Names that the library, its reports and its commands share."""

DEFAULT = "epyc-9005"
"""The machine that a trace runs on if none is named: a current server core."""

KEYS = ("region", "site", "function", "line", "thread", "page-size")
"""What misses can be told apart by."""

MACHINE = "machine"
"""The key of a sweep that varies over machines; no key of a machine's file is called so."""

TRACE = "trace"
"""The key of a sweep over several traces."""

MEANS = ("geometric", "arithmetic", "none")
"""The means of a sweep over several traces; the first one is the default."""

COLUMN_MM = 85
"""Millimetres across a column of a paper."""
