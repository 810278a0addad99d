"""The methods of measurement.

Each file has one, as a function `measure(parameters, lab) -> Table`.
"""
