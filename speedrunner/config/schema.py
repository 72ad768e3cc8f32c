"""The configuration of a run: its typed records, and their YAML form."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from serving.options import Seconds, ServiceOptions, Text
from serving.usage import MAX_INTEGER, Prices
from speedrunner.config.condition import Start
from speedrunner.plain.plain_records import WrongData, flat, record, shown_differences
from speedrunner.plain.plain_yaml import NotPlain, read_yaml_file, write_yaml

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Rollouts = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
TaskIndex = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Usd = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class InvalidConfig(Exception):
    """A configuration has an unknown key, or a value that its key does not accept."""


class RunConfig(msgspec.Struct, frozen=True):
    """One run: where it is, how long, how often it sleeps and is evaluated."""

    #: Directory of the run; relative paths start at the current directory.
    dir: Text
    #: Identifies the run within its condition, and seeds each request to vLLM. With several requests in
    #: flight, a run does not repeat exactly: the numbers of a step depend on the requests that share it.
    seed: Count = 0
    #: Total training episodes; 0 evaluates the initial policy only.
    rollouts: Rollouts = 200
    #: Training episodes between two sleeps.
    sleep_every: AtLeastOne = 10
    #: Training episodes between two evaluations.
    eval_every: AtLeastOne = 50
    #: Held-out episodes of one evaluation; 0 for none.
    test_episodes: Count = 30
    #: Most primitive actions of an episode, if its environment allows more; `None`: the environment's limit.
    max_actions: AtLeastOne | None = None
    #: Most episodes in flight at the same time.
    in_flight: AtLeastOne = 16
    #: Time limit of an episode in seconds; then it is stopped and scored as it is.
    wall_clock_s: Seconds = 1800.0
    #: Time limit of a sleep in seconds, the model's answers included; then its agents are stopped. Accepted
    #: edits count, as at the inducer's other limits. Time in which the agents are queued or have no engine
    #: does not count.
    sleep_wall_s: Seconds = 14400.0
    #: Repeated calls in a row after which an episode is stopped and scored as it is; 0: never. A call repeats
    #: the one before if its name, arguments, result and reply are equal.
    stop_after_repeats: Count = 0
    #: Which time counts for `wall_clock_s`: `tools` counts tool calls; `all` (the paper's reading) also
    #: counts the model's answers, whose time depends on the load of your server.
    wall_clock: Literal["tools", "all"] = "tools"
    #: Longest tool result that the actor sees, in characters; records keep the whole result.
    reply_chars: AtLeastOne = 4000
    #: Wording of the system messages of the actor and of SpeedRunner's inducer; 1 to 3 are paraphrases of 0.
    wording: Literal[0, 1, 2, 3] = 0
    #: Start from the policy of another run: `RUN` (its newest) or `RUN:VERSION`; `None`: the method's first.
    start_from: Text | None = None
    #: Copy the training history of that run too, so that sleeps read its episodes, libraries and earlier
    #: sleeps; `false`: the policy only. Runs without training copy nothing.
    carry_history: bool = True
    #: Resume although code, versions or server options have changed since the start; the run records this.
    accept_changes: bool = False
    #: Replay episodes that ended by an infrastructure error: held-out episodes, and training episodes of the
    #: newest batch until a sleep has used it.
    retry_faults: bool = False
    #: Seconds that running episodes may continue after the first SIGINT or SIGTERM (after SIGUSR1 in a Slurm
    #: job: until its end). Later they are aborted, and restarted on resume.
    drain_s: Seconds = 20.0

    @property
    def checkpoints(self) -> list[int]:
        """Return the number of training episodes before each evaluation; empty without held-out episodes."""
        points = {*range(0, self.rollouts + 1, self.eval_every), self.rollouts}
        return sorted(points) if self.test_episodes else []

    @property
    def sleeps(self) -> int:
        """Return the number of sleeps: one after every `sleep_every` rollouts, and after the last one."""
        return -(-self.rollouts // self.sleep_every)


class ClassConfig(msgspec.Struct, frozen=True):
    """The environment, or the method. In YAML, its options are next to its name: `env.num_dists`."""

    #: Registry name, or `package.module:Class`.
    name: Text
    #: Options of its constructor and of an environment's `splits`; others keep their defaults.
    options: dict[str, Any] = {}


class TaskConfig(msgspec.Struct, frozen=True):
    """The task of `speedrunner episode`, which plays a single task."""

    #: Name of the task within the environment; `None`: the name of the first training task.
    name: Text | None = None
    #: World seed or variation; `None`: the index of the first training task (of this name), or 0 if no
    #: training task has this name.
    index: TaskIndex | None = None


class LibraryConfig(msgspec.Struct, frozen=True):
    """The part of a stored library that an evaluation shows, and how."""

    #: The actor sees only the last N skills, in the order in which they were added. Skills can call all
    #: (paper, "Post-hoc Library Truncation"). Only for evaluations, with `run.rollouts=0`. `None`: all.
    visible_last: Count | None = None
    #: `search`: instead of a tool for each skill, the actor has a tool that finds skills and one that calls
    #: them. Only for evaluations, with `run.rollouts=0`. `all`: each skill is a tool.
    shown: Literal["all", "search"] = "all"

    def __str__(self) -> str:
        usual, given = LibraryConfig(), msgspec.to_builtins(self)
        changed = {key: value for key, value in given.items() if value != getattr(usual, key)}
        return " ".join(f"library.{key}={value}" for key, value in changed.items())


class ModelOptions(msgspec.Struct, frozen=True):
    """The model of all roles."""

    #: Name of a model config in `models/`, or the path of any model config's `.yaml` file.
    name: Text
    #: Changes to the actor's budgets and sampling in the model config: fields of `Role` in
    #: serving/model_config.py, such as `model.actor.thinking_tokens`.
    actor: dict[str, Any] = {}
    #: The same for the inducer and every other role except the actor.
    inducer: dict[str, Any] = {}
    #: Data-parallel replicas of the server; `None`: as in the model config.
    replicas: AtLeastOne | None = None
    #: Whether the server has a prefix cache; `None`: as in the model config.
    prefix_caching: bool | None = None
    #: Longest prompt plus completion in tokens, if the model allows more; `None`: as in the model config.
    context: AtLeastOne | None = None
    #: `dummy` serves random weights in the model's shape and downloads nothing.
    load_format: Literal["auto", "dummy"] = "auto"


class Range(msgspec.Struct, frozen=True):
    """A measured value with its 95% interval."""

    value: Usd
    low: Usd
    high: Usd


class TokenCosts(msgspec.Struct, frozen=True):
    """Seconds or joules of a million tokens of each class, of a million output tokens for each thousand of
    their context (`attention`), and of a million requests without their tokens."""

    uncached: Range
    cached: Range
    output: Range
    attention: Range
    requests: Range


class MeasuredLevel(msgspec.Struct, frozen=True):
    """The costs at a number of requests in flight.

    Attributes:
        contexts: prompt tokens of the measured requests.
        cached_to_uncached: cost of a cached token divided by that of an uncached one.
        joules: `None` if they were not measured.
    """

    in_flight: AtLeastOne
    contexts: Annotated[list[AtLeastOne], msgspec.Meta(min_length=1)]
    seconds: TokenCosts
    cached_to_uncached: Range
    joules: TokenCosts | None = None


class MeasuredPrices(msgspec.Struct, frozen=True):
    """How `speedrunner bench tokens` measured a price list.

    Attributes:
        hardware: the GPU; for a model on a CPU, the CPU.
        engine: name and version.
        unit: the kind of seconds.
        usd_per_hour: USD of an hour of one GPU, or of one core.
        levels: the costs by requests in flight.
    """

    model: str
    hardware: str
    engine: str
    date: str
    unit: Literal["GPU", "CPU"]
    usd_per_hour: Annotated[float, msgspec.Meta(gt=0, le=1e6)]
    levels: Annotated[list[MeasuredLevel], msgspec.Meta(min_length=1)]

    def level(self, in_flight: float | None = None) -> MeasuredLevel:
        """Return the level nearest to a mean number of requests in flight; `None`: the highest level."""
        if in_flight is None:
            return max(self.levels, key=lambda level: level.in_flight)
        return min(self.levels, key=lambda level: abs(log(level.in_flight / in_flight)))

    def prices(self, in_flight: float | None = None) -> Prices:
        """Return USD per million tokens and requests at the level nearest to a number in flight."""
        costs = (getattr(self.level(in_flight).seconds, name) for name in Prices.__struct_fields__)
        return Prices(*(self.usd_per_hour / 3600 * cost.value for cost in costs))


class PricesConfig(msgspec.Struct, frozen=True):
    """A price list that overrides the prices in the model config."""

    #: USD per million computed prompt tokens; `None`: the price in the model config.
    uncached: Usd | None = None
    #: USD per million prompt tokens from the prefix cache; `None`: the price in the model config.
    cached: Usd | None = None
    #: USD per million generated tokens; `None`: the price in the model config.
    output: Usd | None = None
    #: Prices that `speedrunner bench tokens` measured, in place of the model config's.
    measured: MeasuredPrices | None = None
    #: Fewest prompt tokens that the provider caches, for the cache rule `provider`; `None`: as OpenAI, 1,024
    #: tokens in steps of 128.
    cache_minimum: Count | None = None
    #: Prompt tokens are cached in steps of this many, for the same rule.
    cache_step: AtLeastOne = 1

    @property
    def given(self) -> dict[str, float]:
        """The prices that are set, by class of tokens."""
        prices = {name: getattr(self, name) for name in ("uncached", "cached", "output")}
        return {name: usd for name, usd in prices.items() if usd is not None}

    @property
    def whole(self) -> Prices | None:
        """The list, if it has all three prices."""
        is_whole = self.measured is not None or len(self.given) == 3
        return self.in_place_of(Prices(0, 0, 0)) if is_whole else None

    @property
    def measured_whole(self) -> MeasuredPrices | None:
        """How the list was measured; `None` if a given price replaces a measured one."""
        return None if self.given else self.measured

    def in_place_of(self, own: Prices) -> Prices:
        """Return a model config's price list with the values of this one."""
        base = own if self.measured is None else self.measured.prices()
        return msgspec.structs.replace(base, **self.given)


class ServingConfig(ServiceOptions, frozen=True, kw_only=True):
    """How the engine is started or reached (serving/options.py), and what it may cost."""

    #: Stop sending requests after this many USD; `None`: no cap.
    spending_cap_usd: Usd | None = None


class SandboxConfig(msgspec.Struct, frozen=True):
    """How unreviewed skills and inducer code are confined (docs/sandbox.md)."""

    #: `isolated` isolates them from the machine, with bubblewrap; `rlimits` only limits
    #: resources, and every run warns about it.
    kind: Literal["isolated", "rlimits"] = "isolated"
    #: Address space of each of their processes, in MiB.
    memory_mb: Annotated[int, msgspec.Meta(ge=64)] = 1024
    #: Time limit of one tool call in seconds; `None`: the rest of the episode. The episode continues.
    call_wall_s: Seconds | None = 300.0
    #: Most actions (primitive calls that advance the world) of one skill call; `None`: the rest of the
    #: episode's. The episode continues.
    call_actions: AtLeastOne | None = 5000


class Config(msgspec.Struct, frozen=True):
    """The whole configuration of a run."""

    run: RunConfig
    env: ClassConfig
    method: ClassConfig
    model: ModelOptions
    task: TaskConfig = TaskConfig()
    library: LibraryConfig = LibraryConfig()
    prices: PricesConfig = PricesConfig()
    serving: ServingConfig = ServingConfig()
    sandbox: SandboxConfig = SandboxConfig()
    #: Also write a run's curves as event files for TensorBoard, or as an offline run for W&B.
    logging: Literal["none", "tensorboard", "wandb", "both"] = "none"
    #: Lowest severity of the messages that are shown.
    verbosity: Literal["debug", "info", "warning", "error"] = "info"
    #: The condition of the run in `run.start_from`, as far as it differs. It is read from that run.
    start: Start | None = None

    def with_run(self, **changes: object) -> Config:
        """Return a copy with other values in `run`."""
        return msgspec.structs.replace(self, run=msgspec.structs.replace(self.run, **changes))


def default_mapping() -> dict[str, Any]:
    """Return every key with a default, in its YAML form; `run.dir` is null."""
    nothing = ClassConfig("-")
    sections = to_mapping(Config(RunConfig("-"), nothing, nothing, ModelOptions("-")))
    sections["run"]["dir"] = None
    del sections["env"], sections["method"], sections["model"]["name"]
    return sections


def from_mapping(content: object) -> Config:
    """Check a configuration in its YAML form, and return it typed.

    Options of the environment and the method are not checked.

    Raises `InvalidConfig`: a key is unknown or missing, or a value has the wrong type or makes no sense.
    """
    if isinstance(content, Mapping):
        content = {
            key: _with_options_apart(section) if key in ("env", "method") else section
            for key, section in content.items()
        }
    try:
        config = record(Config, content)
    except WrongData as error:
        raise InvalidConfig(str(error)) from None
    if config.library != LibraryConfig() and config.run.rollouts:
        raise InvalidConfig(
            f"{config.library} works only in evaluations of a stored library:"
            f" `speedrunner run run.start_from=RUN run.rollouts=0 {config.library}`"
        )
    return config


def to_mapping(config: Config) -> dict[str, Any]:
    """Return the configuration in its YAML form; the order of keys is fixed."""
    sections: dict[str, Any] = msgspec.to_builtins(config)
    if config.start is None:
        del sections["start"]
    for section in sections.values():
        if isinstance(section, dict) and "options" in section:
            section.update(sorted(section.pop("options").items()))
    return sections


def read_file(file: Path) -> object:
    """Return the content of a YAML file that a user wrote. Raises `InvalidConfig`, which names the file."""
    try:
        return read_yaml_file(file)
    except NotPlain as error:
        raise InvalidConfig(str(error)) from None


def to_yaml(config: Config) -> str:
    """Return the text of a configuration; equal configurations give equal texts."""
    return write_yaml(to_mapping(config))


def changes_results(key: str) -> bool:
    """Return whether a run with another value of this key is another run.

    These may change when a run resumes: its directory, the episodes in flight, the engine's replicas, address
    and time limits, prices, the task of single episodes, the options of resuming, and output.
    `start` follows from `run.start_from`.
    """
    return not (
        key in ("run.dir", "run.in_flight", "run.accept_changes", "run.retry_faults", "run.drain_s")
        or key in ("model.replicas", "logging", "verbosity")
        or key.startswith(("prices.", "serving.", "start.", "task."))
    )


def differences(before: Config, after: Config) -> list[str]:
    """Return the differences that keep `after` from resuming a run of `before`, such as `run.rollouts: 20 ->
    40`.

    Keys that do not change results are left out; see `changes_results`. So are moves: of the run in
    `run.start_from`, and of files of model configs, whose content each process records.
    """
    if before.start == after.start:
        after = after.with_run(start_from=before.run.start_from)
    return shown_differences(_settings_of_results(before), _settings_of_results(after))


def _settings_of_results(config: Config) -> dict[str, Any]:
    settings = {key: value for key, value in flat(to_mapping(config)).items() if changes_results(key)}
    is_file = str(settings["model.name"]).endswith((".yaml", ".yml"))
    return settings | {"model.name": "a file"} if is_file else settings


def _with_options_apart(section: object) -> object:
    """Return a section with the options next to its name moved to `options`."""
    if not isinstance(section, Mapping):
        return section
    options = {str(key): value for key, value in section.items() if key != "name"}
    return {"options": options} | ({"name": section["name"]} if "name" in section else {})
