"""`pagewalk hat`: memory management on many processors, with different locking schemes."""

import argparse
import json

from pagewalk.commands import arguments
from pagewalk.commands.command import Command, Flag, Table, refuse, shows_text
from pagewalk.commands.flags import FORCE, html, json_of, pictures
from pagewalk.commands.kinds import counts, names, number, positive, size
from pagewalk.commands.parser import UsageError
from pagewalk.hat_runs import (
    CPUS,
    CPUS_MAX,
    LOADS,
    LOCK_KINDS,
    LOCKS_SHOWN,
    SCHEMES,
    SHOOTDOWNS,
    TABLES,
    THREADS,
    hat_on_host,
    loads,
)  # fmt: skip
from pagewalk.hat_runs import hat as run_hat
from pagewalk.progress import ProgressLine
from pagewalk.terminal import say

EPILOG = """\
examples:
  pagewalk hat --work fault --cpus 1,2,4               every locking scheme, as text
  pagewalk hat --hat-only --work fault --cpus 1,8      the HAT layer alone
  pagewalk hat --work make.skeleton --cpus 1,8         recorded processes, on each processor
  pagewalk hat --locking global,monitor --html hat.html  charts of throughput and contention
  pagewalk hat --work fault --pool 160K --cpus 4 --json  page tables compete for memory
  pagewalk hat --on host --locking embedded --rounds 1  on this computer, with control runs
"""


_OF_MODEL, _OF_HOST = (
    f"is for --on {one}: leave it out, or give --on {one}" for one in ("model", "host")
)


def _list(flag: str, known: list[str], default: list[str], what: str) -> Flag:
    return Flag(
        flag,
        type=names,
        default=default,
        metavar="NAME,...",
        help=f"{what}: {', '.join(known)} (default: {','.join(default)})",
    )


def _choice(flag: str, known: list[str], what: str, default: str | None = None) -> Flag:
    default = default or known[0]
    return Flag(
        flag,
        unless=_OF_MODEL,
        default=default,
        metavar="KIND",
        help=f"{what}; one of {', '.join(known)} (default: {default})",
    )


class Hat(Command):
    """Runs memory management on many processors, with different locking schemes."""

    name = "hat"
    help = "run memory management on many processors, under different locks"
    description = (
        "Run loads on the memory manager and on the HAT (hardware address translation) layer below "
        f"it, which has spaces, mapping lists and shootdowns, on 1 to {CPUS_MAX} simulated "
        "processors in virtual time, and count what the locks cost."
    )
    epilog = EPILOG
    flags = (
        Flag(
            "--on",
            choices=("model", "host"),
            default="model",
            help="model: simulate processors in virtual time; host: run threads on this computer "
            "(default: model)",
        ),
        Flag(
            "--cpus",
            unless=_OF_MODEL,
            type=counts,
            metavar="N,...",
            help=f"numbers of simulated processors (default: {','.join(map(str, CPUS))})",
        ),
        Flag(
            "--threads",
            unless=_OF_HOST,
            type=counts,
            metavar="N,...",
            help=f"numbers of threads on this computer (default: {','.join(map(str, THREADS))})",
        ),
        Flag(
            "--rounds",
            unless=_OF_HOST,
            type=number,
            metavar="N",
            help="rounds on this computer, each with a control run; results are medians (default: "
            "5)",
        ),
        _list("--locking", SCHEMES, SCHEMES, "locking schemes"),
        _list(
            "--work",
            LOADS,
            ["tpcb"],
            "loads (micro: the first four, mt: all mt-...), or files of `pagewalk skeleton`",
        ),
        _list(
            "--tables",
            TABLES,
            ["x86-64"],
            "page-table formats; with -shared, one table serves all spaces",
        ),
        Flag(
            "--hat-only",
            action="store_true",
            help="run the HAT layer alone, without the memory manager above it and the memory "
            "manager's locks",
        ),
        Flag(
            "--pool",
            unless=_OF_MODEL,
            type=size,
            metavar="BYTES",
            help="memory for page tables, such as 160K; when it is used up, the least recently "
            "loaded spaces lose their page tables (default: unlimited)",
        ),
        Flag(
            "--lock-per-list",
            unless=_OF_MODEL,
            action="store_true",
            help="use one lock per free list, in place of one lock for all free lists",
        ),
        _choice(
            "--shootdowns",
            SHOOTDOWNS,
            "how other processors' TLB entries are flushed. interrupts: by interrupts to all "
            "processors that may have such entries. lazy: by interrupts to processors that run "
            "the space now; others flush when they next run it. broadcast: by the hardware",
        ),
        Flag(
            "--contexts",
            unless=_OF_MODEL,
            type=number,
            metavar="N",
            help="number of hardware contexts (ASIDs), such as 4096; when all are in use, the "
            "least recently entered space loses its context (default: unlimited)",
        ),
        Flag(
            "--context-threshold",
            unless=_OF_MODEL,
            type=number,
            default=0,
            metavar="N",
            help="keep the list of contexts in LRU order only while more than N contexts are in "
            "use (default: 0)",
        ),
        Flag(
            "--virtual-caches",
            unless=_OF_MODEL,
            action="store_true",
            help="simulate caches that are indexed by virtual addresses: flush unmapped pages from "
            "them, and count the flushes",
        ),
        _choice(
            "--lock-kind",
            LOCK_KINDS,
            "what a processor does while it waits for a lock. spin: it spins. adaptive: it spins "
            "while the holder runs, and sleeps otherwise. hand-over: it sleeps until it gets the "
            "lock. barging: it spins and competes for the lock with all others",
            "adaptive",
        ),
        Flag("--seed", type=number, default=1, metavar="N", help="seed of the loads (default: 1)"),
        Flag(
            "--top",
            unless=_OF_MODEL,
            type=positive,
            default=LOCKS_SHOWN,
            metavar="N",
            help="in the text, show the N classes of locks of each scheme that were waited for "
            f"longest (default: {LOCKS_SHOWN})",
        ),
        Table("the runs"),
        json_of("the counts"),
        html("write a page for a browser"),
        pictures(unless=_OF_MODEL),
        FORCE,
    )

    def run(self, options: argparse.Namespace) -> int:
        """Runs the loads, and writes the requested text, JSON and page."""
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
        made = runs.document
        arguments.write_table(options, runs.made())
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
        if shows_text(options):
            from pagewalk.report.hat import summary

            say(summary(runs, options.top))
        return 0


def _check(options: argparse.Namespace) -> None:
    """Raises an error for flags that do not apply to the given `--on`."""
    foreign = _OF_HOST if options.on == "model" else _OF_MODEL
    refuse(options, *(flag for flag in options.flags.each() if flag.unless == foreign))
    if options.context_threshold and options.contexts is None:
        raise UsageError(
            "--context-threshold is for a limited number of contexts: give --contexts too"
        )
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
    made = runs.document
    arguments.write_table(options, runs.made())
    if options.json is not None:
        text = json.dumps(made, ensure_ascii=False) + "\n"
        arguments.write_output(options.json, text, options.force)
    if options.html is not None:
        from pagewalk.output import write_text
        from pagewalk.report.hat import render_host

        write_text(options.html, render_host(made, runs), options.force)
    if shows_text(options):
        say(host_summary(runs))
    return 0
