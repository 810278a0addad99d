"""A machine file of the machine at hand, from timing alone.

```
  probe.c --cc--> probe --> curves of nanoseconds --> seen.py: knees and plateaus, with spreads
                                                           |
  machine file <-- machine_file.py <-- fit.py: host, last cache, memory, from far loads
```

Nothing is asked of the processor or of the system: what virtual machines say of their hardware is
often not so. What timing cannot see is an assumption, and the file says which.
"""

from pagewalk.calibrate.machine_file import machine_file
from pagewalk.calibrate.probe import measure
from pagewalk.calibrate.seen import Seen, Spread, see

__all__ = ["Seen", "Spread", "machine_file", "measure", "see"]
