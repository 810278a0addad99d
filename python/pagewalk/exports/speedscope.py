"""Speedscope's own format: a profile of samples, each a stack with its misses as weight.

Source: `file-format-spec.ts` of speedscope, version 1.25.
"""

import json
from typing import TYPE_CHECKING

from pagewalk import origins

if TYPE_CHECKING:
    from pagewalk import plain

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def made(data: "plain.Document", by: str) -> bytes:
    """The stacks as a profile."""
    stacks = sorted(origins.stacks(data, by).items())
    frames = {name: at for at, name in enumerate(dict.fromkeys(n for s, _ in stacks for n in s))}
    weights = [misses for _, misses in stacks]
    document = {
        "$schema": SCHEMA,
        "exporter": f"pagewalk {data['pagewalk']}",
        "name": f"{data['trace']['name']} on {data['machine']['name']}",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": f"misses of every TLB, by {by}",
                "unit": "none",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": [[frames[name] for name in stack] for stack, _ in stacks],
                "weights": weights,
            }
        ],
    }
    return (json.dumps(document, ensure_ascii=False) + "\n").encode()
