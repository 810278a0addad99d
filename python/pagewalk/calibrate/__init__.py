"""A machine file of this computer, from timing alone.

```
  probe.c --cc--> probe --> curves of nanoseconds --> seen.py: knees and plateaus, with spreads
                                                           |
  machine file <-- machine_file.py <-- fit.py: host, last cache, memory, from far loads
```

What the processor and the system report is not used, because virtual machines often report wrong
facts about their hardware. A number that cannot be found by timing is an assumption, and the file
marks it as one.
"""

from pagewalk.calibrate.machine_file import machine_file
from pagewalk.calibrate.probe import measure
from pagewalk.calibrate.seen import Seen, Spread, see

__all__ = ["Seen", "Spread", "machine_file", "measure", "see"]
