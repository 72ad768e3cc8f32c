"""The table of commands: headings, names, one-line help, and the function that runs each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One command, or a group of commands.

    Attributes:
        help: the first line of the function's docstring, at most 80 characters.
        target: `module:function` below `speedrunner.cli`; by default `NAME_command:NAME`.
        commands: the commands of a group.
    """

    name: str
    help: str
    target: str = ""
    commands: tuple[Command, ...] = ()


PROBE = (
    Command("tools", "Count valid, invalid and truncated tool calls of an engine.", "probe_command:tools"),
    Command("cache", "Compare cached tokens of one conversation with the maximum.", "probe_command:cache"),
)

BENCH = (
    Command("rollout", "Compare rollouts with a bare replay and an ideal cache.", "bench_command:rollout"),
    Command("replay", "Replay a run to test whether the prefix cache changes answers."),
    Command("tokens", "Measure what an uncached, a cached and an output token cost."),
    Command("gpu", "Run all benchmarks of a model on this machine, in resumable steps.", "bench_command:gpu"),
    Command("probe", "Test an engine's tool calls and prefix cache.", commands=PROBE),
)

COMMANDS = {
    "Run": (
        Command("run", "Play a run, resume it, or evaluate a stored policy."),
        Command("sweep", "Play the runs of an experiment or a list, here or as Slurm jobs."),
        Command("episode", "Play one episode and print everything."),
        Command(
            "list", "List environments, methods, models, experiments or all settings.", "list_command:list_"
        ),
    ),
    "Look": (
        Command("status", "Show the status of runs and their Slurm jobs."),
        Command("show", "List a run's episodes, or print a recorded episode or sleep."),
        Command("view", "Browse runs, episodes, skills and sleeps in a web browser."),
        Command("compare", "Print learning curves of runs and compare each run with the first."),
        Command("cost", "Price runs by role, class of tokens and checkpoint."),
        Command("library", "Print the source of a library and who may call each skill."),
        Command("verify", "Check a run's records by repeating every call, without a model."),
    ),
    "Publish": (
        Command("report", "Write results of runs: report.html, tables (CSV, LaTeX), figures."),
        Command("export", "Write runs or a library in the formats of other tools."),
    ),
    "Cluster": (
        Command("prepare", "Download and build what runs need on nodes without a network."),
        Command("doctor", "Check this machine before a run and say how to fix problems."),
        Command("serve", "Serve a model until Ctrl-C, for runs in other terminals."),
    ),
    "Extend": (Command("init", "Write an example environment or method, or a model's config."),),
    "Measure": (Command("bench", "Benchmark this machine and its engine against targets.", commands=BENCH),),
}
"""The commands by heading, in the order of `speedrunner --help`."""
