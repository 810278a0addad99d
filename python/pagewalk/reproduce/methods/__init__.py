"""Ways to measure: one a file, `measure(parameters, lab) -> Table`."""
