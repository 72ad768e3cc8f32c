"""Voyager, online (paper, section 4.1 and Appendix F): a curriculum, programs as actions, a critic, and a
library of the programs that worked.

After Wang et al., "Voyager: An Open-Ended Embodied Agent with Large Language Models" (2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from speedrunner.config.schema import AtLeastOne
from speedrunner.methods import (
    ActorSpec,
    EpisodeContext,
    History,
    Library,
    Method,
    Policy,
    SleepTools,
    Task,
    Termination,
    TextEnv,
    UnfitEnvironment,
)
from speedrunner.methods.voyager.programs import add_programs
from speedrunner.methods.voyager.rollout import (
    MethodState,
    Objectives,
    Retrieve,
    Rollout,
    programming,
)
from speedrunner.store.policies import decode_state


@dataclass(kw_only=True)
class Voyager(Method):
    """Curriculum, programming actor and critic play training rollouts. The ordinary actor plays held-out
    episodes, with all skills as tools.

    Attributes:
        tries: maximum answers of the actor for one objective (Voyager: 4).
        retrieve: number of programs whose code the programming actor sees, those that fit the objective best
            (Voyager: 5); `all` lists all functions by signature and docstring.
    """

    tries: AtLeastOne = 4
    retrieve: Retrieve = 5

    def check(self, env: TextEnv) -> None:
        """Refuse environments with tasks that ask for different things."""
        if not env.goals:
            raise UnfitEnvironment(
                "method voyager needs an environment with the same goals in all tasks, such as crafter;"
                f" those of {env.name} differ"
            )

    def initial(self) -> Policy:
        """Return a policy without programs and objectives."""
        return Policy(version=0, method=msgspec.to_builtins(Objectives()))

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """Return all skills as tools; in training, a tool that runs a new program."""
        library = Library(env.primitives).of(policy)
        return programming(library, env, self.retrieve, self.tries) if training else ActorSpec(library)

    async def play(self, policy: Policy, spec: ActorSpec, context: EpisodeContext) -> Termination:
        """Pursue one objective after another until the world or the budget ends the rollout."""
        if not context.training:
            return await context.act(spec)
        objectives = decode_state(policy, Objectives, "objectives of Voyager")
        return await Rollout(context, context.library(policy), objectives, self.tries, self.retrieve).play()

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Append the batch's programs, and record which objectives were reached.

        Raises `InvalidPolicy`: stored data is damaged.
        """
        library = tools.library(policy)
        objectives = decode_state(policy, Objectives, "objectives of Voyager")
        batch = history.batch(history.batches()[-1])
        cut = sum(played.termination is Termination.CONTEXT_OVERFLOW for played in batch)
        if cut:  # as in the paper
            tools.fell_short(f"{cut} of {len(batch)} rollouts overflowed the context, so nothing changes")
            return policy
        for played in batch:
            kept = msgspec.convert(played.method_state, MethodState)
            library, edits = add_programs(library, kept.programs, tools.sleep)
            tools.edits += edits
            objectives = objectives.merge(kept)
        return msgspec.structs.replace(library.policy(policy), method=msgspec.to_builtins(objectives))
