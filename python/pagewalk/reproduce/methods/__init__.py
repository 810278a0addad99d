"""The methods of measurement: one per file, as `measure(parameters, lab) -> Table`."""
