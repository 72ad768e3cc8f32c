"""The table of commands: headings, names, one-line help, and the module of the function that runs each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One command, or a group of commands.

    Attributes:
        help: the first line of the function's docstring, at most 80 characters.
        module: the module below `speedrunner.cli`.
        commands: the commands of a group.
    """

    name: str
    help: str
    module: str = ""
    commands: tuple[Command, ...] = ()

    @property
    def function(self) -> str:
        """The name of the function in the module."""
        return "list_" if self.name == "list" else self.name


PROBE = (
    Command("tools", "Count valid, invalid and truncated tool calls of an engine.", "bench_commands"),
    Command("cache", "Compare cached tokens of one conversation with the maximum.", "bench_commands"),
)

BENCH = (
    Command("rollout", "Compare rollouts with a bare replay and an ideal cache.", "bench_commands"),
    Command("replay", "Replay a run to test whether the prefix cache changes answers.", "bench_commands"),
    Command("tokens", "Measure what an uncached, a cached and an output token cost.", "bench_commands"),
    Command("gpu", "Run all benchmarks of a model on this machine, in resumable steps.", "bench_commands"),
    Command("probe", "Test an engine's tool calls and prefix cache.", commands=PROBE),
)

COMMANDS = {
    "Run": (
        Command("run", "Play a run, resume it, or evaluate a stored policy.", "play_commands"),
        Command("sweep", "Play the runs of an experiment or a list, here or as Slurm jobs.", "play_commands"),
        Command("episode", "Play one episode and print everything.", "episode_command"),
        Command("list", "List environments, methods, models, experiments or all settings.", "list_command"),
    ),
    "Look": (
        Command("status", "Show the status of runs and their Slurm jobs.", "status_command"),
        Command("show", "List a run's episodes, or print a recorded episode or sleep.", "look_commands"),
        Command("view", "Browse runs, episodes, skills and sleeps in a web browser.", "view_command"),
        Command(
            "compare", "Print learning curves of runs and compare each run with the first.", "compare_command"
        ),
        Command("cost", "Price runs by role, class of tokens and checkpoint.", "cost_command"),
        Command("library", "Print the source of a library and who may call each skill.", "look_commands"),
        Command(
            "verify", "Check a run's records by repeating every call, without a model.", "verify_command"
        ),
    ),
    "Publish": (
        Command(
            "report", "Write results of runs: report.html, tables (CSV, LaTeX), figures.", "report_command"
        ),
        Command("export", "Write runs or a library in the formats of other tools.", "export_command"),
    ),
    "Cluster": (
        Command(
            "prepare", "Download and build what runs need on nodes without a network.", "cluster_commands"
        ),
        Command("doctor", "Check this machine before a run and say how to fix problems.", "cluster_commands"),
        Command("serve", "Serve a model until Ctrl-C, for runs in other terminals.", "cluster_commands"),
    ),
    "Extend": (
        Command("init", "Write an example environment or method, or a model's config.", "init_command"),
    ),
    "Measure": (Command("bench", "Benchmark this machine and its engine against targets.", commands=BENCH),),
}
"""The commands by heading, in the order of `speedrunner --help`."""
