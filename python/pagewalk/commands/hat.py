"""`pagewalk hat`: memory management on many processors, under different locks."""

import argparse
import json
from typing import Any

from pagewalk.commands import arguments
from pagewalk.commands.parser import UsageError
from pagewalk.hat import (
    CPUS,
    CPUS_MAX,
    LOADS,
    LOCK_KINDS,
    SCHEMES,
    SHOOTDOWNS,
    TABLES,
    THREADS,
    hat_on_host,
    loads,
)  # fmt: skip
from pagewalk.hat import document as hat_document
from pagewalk.hat import hat as run_hat
from pagewalk.progress import ProgressLine
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk hat --work fault --cpus 1,2,4               every scheme of locks, as text
  pagewalk hat --hat-only --work fault --cpus 1,8      the HAT layer without what is above it
  pagewalk hat --work make.skeleton --cpus 1,8         what was recorded, by each processor
  pagewalk hat --locking global,monitor --html hat.html  throughput and contention, drawn
  pagewalk hat --work fault --pool 160K --cpus 4 --json  page tables that do not all fit
  pagewalk hat --on host --work fault --rounds 1       this host's processors, with a control
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "hat",
        help="run memory management on many processors, under different locks",
        description="Run loads on the memory manager and the HAT layer below it (spaces, mapping "
        f"lists, shootdowns) on 1 to {CPUS_MAX} processors of virtual time, and count what the "
        "locks cost.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--on",
        choices=("model", "host"),
        default="model",
        help="processors of virtual time, or this host's (default: model)",
    )
    parser.add_argument(
        "--cpus",
        type=_counts,
        metavar="N,...",
        help=f"numbers of processors of the model (default: {','.join(map(str, CPUS))})",
    )
    parser.add_argument(
        "--threads",
        type=_counts,
        metavar="N,...",
        help=f"numbers of threads on the host (default: {','.join(map(str, THREADS))})",
    )
    parser.add_argument(
        "--rounds",
        type=arguments.number,
        metavar="N",
        help="rounds on the host, each beside its control; medians count (default: 5)",
    )
    _add_list(parser, "--locking", SCHEMES, SCHEMES, "schemes of locks")
    what = "loads (micro: the first four, mt: all mt-...), or files of `pagewalk skeleton`"
    _add_list(parser, "--work", LOADS, ["tpcb"], what)
    _add_list(parser, "--tables", TABLES, ["x86-64"], "page tables, one per space or -shared")
    parser.add_argument(
        "--hat-only",
        action="store_true",
        help="drive the HAT layer alone, without the memory manager above it and its locks",
    )
    parser.add_argument(
        "--pool",
        type=arguments.size,
        metavar="BYTES",
        help="memory for page tables, as 160K; spaces that were loaded least recently lose theirs "
        "where it is used up (default: as much as is wanted)",
    )
    parser.add_argument(
        "--lock-per-list",
        action="store_true",
        help="a lock for each list of free resources, in place of one for all",
    )
    _add_choice(parser, "--shootdowns", SHOOTDOWNS, "how processors are told to forget")
    parser.add_argument(
        "--contexts",
        type=arguments.number,
        metavar="N",
        help="contexts of the hardware, as 4096: the space entered least recently loses its own "
        "where all are in use (default: without limit)",
    )
    parser.add_argument(
        "--context-threshold",
        type=arguments.number,
        default=0,
        metavar="N",
        help="while at most N contexts are in use, their list is not kept in order (default: 0)",
    )
    parser.add_argument(
        "--virtual-caches",
        action="store_true",
        help="caches are indexed by virtual addresses: what is unmapped leaves them, counted",
    )
    _add_choice(parser, "--lock-kind", LOCK_KINDS, "what waits for a lock", "adaptive")
    parser.add_argument(
        "--seed", type=arguments.number, default=1, metavar="N", help="of the loads (default: 1)"
    )
    arguments.add_json(parser, "the counts")
    parser.add_argument("--html", metavar="FILE", help="write a page for a browser")
    arguments.add_pictures(parser)
    arguments.add_force(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs, and gives the text, the JSON and the page that were asked for."""
    arguments.no_program(options)
    arguments.check_documents(options)
    _check(options)
    if options.on == "host":
        return _run_on_host(options)
    settings = {
        "cpus": options.cpus or list(CPUS),
        "locking": options.locking,
        "work": loads(options.work, hat_only=options.hat_only),
        "tables": options.tables,
        "hat_only": options.hat_only,
        "pool_bytes": options.pool,
        "lock_per_list": options.lock_per_list,
        "shootdowns": options.shootdowns,
        "contexts": options.contexts,
        "context_threshold": options.context_threshold,
        "virtual_caches": options.virtual_caches,
        "lock_kind": options.lock_kind,
        "seed": options.seed,
    }
    with ProgressLine("running", "runs", quiet=options.quiet) as progress:
        runs = run_hat(**settings, progress=progress)
    made = hat_document(runs, settings)
    if options.json is not None:
        text = json.dumps(made, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, text, options.force)
    if options.html is not None:
        from pagewalk.output import write_text
        from pagewalk.report.hat import render

        write_text(options.html, render(made, runs), options.force)
    if options.svg or options.pdf or options.png:
        from pagewalk.report.hat import charts

        arguments.write_pictures(options, charts(runs))
    if arguments.shows_text(options):
        from pagewalk.report.hat import summary

        say(summary(runs))
    return 0


_OF_THE_MODEL = (
    "cpus", "pool", "lock_per_list", "shootdowns", "contexts", "context_threshold",
    "virtual_caches", "lock_kind",
)  # fmt: skip
_OF_THE_HOST = ("threads", "rounds")


def _check(options: argparse.Namespace) -> None:
    """Refuses options of the other kind of processors."""
    foreign, other = (_OF_THE_HOST, "host") if options.on == "model" else (_OF_THE_MODEL, "model")
    for name in (*foreign, *(() if options.on == "model" else ("svg", "pdf", "png"))):
        if getattr(options, name) != options.parser.get_default(name):
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} is of --on {other}: leave it out, or give --on {other}")
    if options.context_threshold and options.contexts is None:
        raise UsageError("--context-threshold is of limited contexts: give --contexts too")
    if options.rounds == 0:
        raise UsageError("--rounds 0 measures nothing: give 1 or more")


def _run_on_host(options: argparse.Namespace) -> int:
    from pagewalk.report.hat import host_summary

    settings = {
        "threads": options.threads or list(THREADS),
        "locking": list(dict.fromkeys(["single", *options.locking])),
        "work": loads(options.work, hat_only=options.hat_only),
        "tables": options.tables,
        "hat_only": options.hat_only,
        "rounds": options.rounds or 5,
        "seed": options.seed,
    }
    with ProgressLine("running", "runs", quiet=options.quiet) as progress:
        runs = hat_on_host(**settings, progress=progress)
    made = hat_document(runs, settings)
    if options.json is not None:
        text = json.dumps(made, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, text, options.force)
    if options.html is not None:
        from pagewalk.output import write_text
        from pagewalk.report.hat import render_host

        write_text(options.html, render_host(made, runs), options.force)
    if arguments.shows_text(options):
        say(host_summary(runs))
    return 0


def _add_list(
    parser: argparse.ArgumentParser, flag: str, known: list[str], default: list[str], what: str
) -> None:
    parser.add_argument(
        flag,
        type=_names,
        default=default,
        metavar="NAME,...",
        help=f"{what}: {', '.join(known)} (default: {','.join(default)})",
    )


def _add_choice(
    parser: argparse.ArgumentParser,
    flag: str,
    known: list[str],
    what: str,
    default: str | None = None,
) -> None:
    default = default or known[0]
    parser.add_argument(
        flag, default=default, metavar="KIND", help=f"{what}: {', '.join(known)} ({default})"
    )


def _names(text: str) -> list[str]:
    names = [part for part in text.split(",") if part]
    if not names:
        raise argparse.ArgumentTypeError(f"`{text}` names nothing: write A or A,B")
    return list(dict.fromkeys(names))


def _counts(text: str) -> list[int]:
    return list(dict.fromkeys(arguments.number(part) for part in _names(text)))
