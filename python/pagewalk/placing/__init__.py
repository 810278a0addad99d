"""Page sizes of programs that run on Linux: how they are set, and how the actual sizes are found.

```
 mappings   /proc/PID/smaps: what is mapped, and what was advised
 pages      which blocks have large pages
 system     knobs, counters, pools, groups of processes
 rules      a place file, for what runs here
 wanted     by rule, advice or knob: which size each mapping should have
 reasons    a closed list: why a part of a mapping does not have its size, and what to change
 verify     wanted, got and reasons of a process as a document     show    the document as text
 launch     runs a program with page sizes, by the launcher of the native half
 journal    knobs and pools that root changes, and how they come back
```
"""
