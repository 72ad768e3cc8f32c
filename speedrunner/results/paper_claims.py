"""The claims of the paper, as comparisons that runs can support or contradict.

Ranges are ours where the paper gives no number: "near-perfect" is above 95%, "ties" is within 5 points,
"about" is within 20% of the paper's value, "nearly two orders of magnitude" is above 30 times, and a
truncated library "meaningfully exceeds" no library by more than one achievement.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import msgspec

from speedrunner.results.claim_records import Claim, ClaimComparison, Mean
from speedrunner.results.conditions import (
    ABLATIONS,
    FAMILIES,
    OFF,
    OURS,
    REACT,
    ZOMBIES,
    after_third,
    returned_to_third,
)

CRAFTER, SCIENCEWORLD, BABYAI = "crafter", "scienceworld", "babyai"
ENVS = (CRAFTER, SCIENCEWORLD, BABYAI)
SETTINGS = (CRAFTER, *FAMILIES, BABYAI)

PROSE_AND_CODE = (REACT, "opo", "asi")
GPT, GEMINI, QWEN = "gpt-5.4-mini", "gemini-3-flash-preview", "qwen3.5-27b"

TIE = 0.05
"""Difference in score within which methods tie."""

NEAR_PERFECT = 0.95
ABOUT = 0.2
"""Relative tolerance of "about"."""

Group = tuple[ClaimComparison, ...]


def _subtract(own: Mean, other: Mean, sign: int) -> ClaimComparison:
    """Compare two means: their difference has a sign."""
    return _bound(ClaimComparison("difference", own, other), 0.0, sign)


def _differ(measure: str, own: str, other: str, env: str, sign: int) -> ClaimComparison:
    """Compare two methods: their difference has a sign."""
    return _subtract(Mean(measure, own, env), Mean(measure, other, env), sign)


def _bound(comparison: ClaimComparison, bound: float, sign: int) -> ClaimComparison:
    """Return a comparison with the range above (sign 1) or below (-1) a bound."""
    return msgspec.structs.replace(comparison, **({"low": bound} if sign > 0 else {"high": bound}))


def _ratio(measure: str, own: str, other: str, env: str) -> ClaimComparison:
    return ClaimComparison("ratio", Mean(measure, own, env), Mean(measure, other, env))


def _change(measure: str, method: str, env: str, sign: int) -> ClaimComparison:
    """Compare the last checkpoint with the first."""
    return _subtract(Mean(measure, method, env), Mean(measure, method, env, "first"), sign)


def _about(comparison: ClaimComparison, value: float) -> ClaimComparison:
    """Return a comparison with the range within `ABOUT` of a value."""
    return msgspec.structs.replace(comparison, low=(1 - ABOUT) * value, high=(1 + ABOUT) * value)


def _value(measure: str, method: str, env: str) -> ClaimComparison:
    return ClaimComparison("value", Mean(measure, method, env))


def _others(env: str) -> tuple[str, ...]:
    """Return the baselines of an environment."""
    return (*PROSE_AND_CODE, "voyager") if env == CRAFTER else PROSE_AND_CODE


def _with(model: str, comparisons: Sequence[ClaimComparison]) -> Group:
    return tuple(msgspec.structs.replace(each, model=model) for each in comparisons)


def _wins(env: str, cost: str) -> list[ClaimComparison]:
    """Compare SpeedRunner with each baseline: better in score and cost."""
    return [
        each
        for other in _others(env)
        for each in (_differ("score", OURS, other, env, 1), _differ(cost, OURS, other, env, -1))
    ]


def _retention(measure: str, method: str, sign: int) -> ClaimComparison:
    return _subtract(
        Mean(measure, returned_to_third(method), FAMILIES[0]), Mean(measure, method, FAMILIES[0]), sign
    )


def _shifted(measure: str, sign: int) -> list[ClaimComparison]:
    """Compare SpeedRunner with the other methods at the end of each task of the shift."""
    first, second = FAMILIES
    return [
        *(_differ(measure, OURS, other, first, sign) for other in PROSE_AND_CODE),
        _differ(measure, after_third(OURS), REACT, second, sign),
        *(_differ(measure, after_third(OURS), after_third(other), second, sign) for other in ("opo", "asi")),
    ]


def _claim(
    name: str,
    place: str,
    experiment: str,
    text: str,
    *groups: ClaimComparison | Group,
    paper: str = "",
    needed: int | None = None,
) -> Claim:
    """Return a claim that needs all or some of its groups; a comparison is a group alone."""
    made = tuple(each if isinstance(each, tuple) else (each,) for each in groups)
    return Claim(name, text, place, experiment, paper, made, needed)


CLAIMS: tuple[Claim, ...] = (
    # Section 1 and 5: the main comparison.
    _claim(
        "dominates-in-usd", "Section 1, Figure 1", "main",
        "SpeedRunner has a higher score and costs less USD than every baseline in each environment.",
        *(each for env in ENVS for each in _wins(env, "cost_usd")),
    ),
    _claim(
        "higher-score", "Section 5, Figure 3", "main",
        "SpeedRunner has a higher score than every baseline, except OPO in ScienceWorld.",
        *(
            _differ("score", OURS, other, env, 1)
            for env in ENVS for other in _others(env) if (env, other) != (SCIENCEWORLD, "opo")
        ),
    ),
    _claim(
        "fewer-tokens", "Section 5, Figure 3", "main",
        "SpeedRunner writes fewer output tokens than every baseline in each environment.",
        *(_differ("output", OURS, other, env, -1) for env in ENVS for other in _others(env)),
    ),
    _claim(
        "babyai-start", "Section 5", "main", "ReAct solves about 67% of BabyAI.",
        _about(_value("score", REACT, BABYAI), 0.67), paper="about 67%",
    ),
    _claim(
        "babyai-near-perfect", "Section 5", "main", "SpeedRunner becomes near-perfect in BabyAI.",
        _bound(_value("score", OURS, BABYAI), NEAR_PERFECT, 1), paper="near-perfect",
    ),
    _claim(
        "babyai-others", "Section 5", "main", "No other method becomes near-perfect in BabyAI.",
        *(_bound(_value("score", other, BABYAI), NEAR_PERFECT, -1) for other in PROSE_AND_CODE),
    ),
    _claim(
        "scienceworld-tie", "Section 5", "main", "SpeedRunner and OPO tie in ScienceWorld.",
        msgspec.structs.replace(_differ("score", OURS, "opo", SCIENCEWORLD, 1), low=-TIE, high=TIE),
    ),
    _claim(
        "scienceworld-asi", "Section 5", "main", "SpeedRunner has a higher score than ASI in ScienceWorld.",
        _differ("score", OURS, "asi", SCIENCEWORLD, 1),
    ),
    _claim(
        "crafter-below-30", "Section 5", "main", "Every method ends below 30% in Crafter.",
        *(_bound(_value("score", name, CRAFTER), 0.3, -1) for name in (*_others(CRAFTER), OURS)),
        paper="below 30%",
    ),
    _claim(
        "cost-falls", "Section 5", "main",
        "SpeedRunner's output tokens fall over training in each environment.",
        *(_change("output", OURS, env, -1) for env in ENVS),
    ),
    _claim(
        "asi-grows", "Section 5", "main", "ASI's output tokens grow over training in each environment.",
        *(_change("output", "asi", env, 1) for env in ENVS),
    ),
    _claim(
        "babyai-eighth", "Section 5, Appendix G", "main",
        "In BabyAI, SpeedRunner ends at about an eighth of ReAct's output tokens.",
        _about(_ratio("output", OURS, REACT, BABYAI), 0.125), paper="about 1/8",
    ),
    _claim(
        "opo-like-react", "Section 5", "main",
        "OPO's output tokens stay close to ReAct's in ScienceWorld and BabyAI.",
        *(_about(_ratio("output", "opo", REACT, env), 1.0) for env in (SCIENCEWORLD, BABYAI)),
    ),
    _claim(
        "opo-grows", "Section 5", "main", "OPO's output tokens grow over training in Crafter.",
        _change("output", "opo", CRAFTER, 1),
    ),
    # Section 6.1 and 6.2: parts and libraries.
    _claim(
        "parts-score", "Section 6.1, Figure 4", "ablations",
        "Without any one of its three parts, SpeedRunner has a lower score in BabyAI.",
        *(_differ("score", name, OURS, BABYAI, -1) for name in ABLATIONS),
    ),
    _claim(
        "parts-tokens", "Section 6.1, Figure 4", "ablations",
        "Without any one of its three parts, SpeedRunner writes more output tokens in BabyAI.",
        *(_differ("output", name, OURS, BABYAI, 1) for name in ABLATIONS),
    ),
    _claim(
        "interpreter-matters-most", "Section 6.1, Figure 4", "ablations",
        "Removing the code interpreter costs more output tokens than removing another part.",
        *(_differ("output", OFF, name, BABYAI, 1) for name in ABLATIONS[1:]),
    ),
    _claim(
        "deeper-than-asi", "Section 6.2, Table 1", "main",
        "SpeedRunner's call graphs are deeper than ASI's in all four settings, at most and on average.",
        *(_differ(name, OURS, "asi", env, 1) for env in SETTINGS for name in ("max_depth", "mean_depth")),
        paper="max depth 8.7, 5.8, 2.3 and 1.7, 1.7, 1.0",
    ),
    _claim(
        "denser-than-asi", "Section 6.2, Table 1", "main",
        "SpeedRunner's call graphs are denser than ASI's in all four settings.",
        *(_differ("density", OURS, "asi", env, 1) for env in SETTINGS),
        paper="0.149, 0.067, 0.206 and 0.030, 0.016, 0.018",
    ),
    _claim(
        "voyager-graph", "Section 6.2", "main",
        "In Crafter, SpeedRunner's call graph is deeper and denser than Voyager's.",
        *(_differ(name, OURS, "voyager", CRAFTER, 1) for name in ("max_depth", "density")),
        paper="8.7 and 5.7; 0.149 and 0.0005",
    ),
    _claim(
        "tokens-to-asi", "Section 6.2", "main",
        "ASI writes 2 to 8 times SpeedRunner's output tokens in all four settings.",
        *(
            msgspec.structs.replace(_ratio("output", "asi", OURS, env), low=2.0, high=8.0)
            for env in SETTINGS
        ),
        paper="2 to 8",
    ),
    # Section 6.3 and Appendix J: randomness.
    _claim(
        "zombies-ours", "Section 6.3, Figure 5", "zombies",
        "SpeedRunner has a higher score than ReAct with no, usual and twice as many zombies.",
        *(_differ("score", OURS, REACT, env, 1) for env in ZOMBIES.values()),
    ),
    *(
        _claim(
            f"zombies-{name}", place, "zombies",
            f"{title} has a higher score than ReAct without zombies, and a lower one with twice as many.",
            _differ("score", name, REACT, ZOMBIES["0x"], 1),
            _differ("score", name, REACT, ZOMBIES["2x"], -1),
        )
        for name, title, place in (
            ("opo", "OPO", "Section 6.3, Figure 5"), ("voyager", "Voyager", "Section 6.3, Appendix K"),
        )
    ),
    _claim(
        "zombies-combat", "Section 6.3, Appendix J", "zombies",
        "The more zombies, the larger the share of SpeedRunner's functions that are about combat.",
        *(
            _subtract(Mean("combat", OURS, more), Mean("combat", OURS, less), 1)
            for less, more in ((ZOMBIES["0x"], CRAFTER), (CRAFTER, ZOMBIES["2x"]))
        ),
        paper="24.0%, 31.5%, 53.1%",
    ),
    _claim(
        "zombies-depth", "Section 6.3, Appendix J", "zombies",
        "SpeedRunner's call graph is deeper with twice as many zombies than with none.",
        _subtract(Mean("max_depth", OURS, ZOMBIES["2x"]), Mean("max_depth", OURS, ZOMBIES["0x"]), 1),
        paper="10 and 6",
    ),
    _claim(
        "zombies-voyager-library", "Appendix J", "zombies",
        "Voyager's functions are more complex than SpeedRunner's, its call graph less dense, at each number"
        " of zombies.",
        *(
            _differ(name, "voyager", OURS, env, sign)
            for env in ZOMBIES.values() for name, sign in (("cyclomatic", 1), ("density", -1))
        ),
        paper="33.4, 30.2, 31.6 and 11.2, 17.5, 14.8",
    ),
    # Section 6.4: distribution shift.
    _claim(
        "shift-score", "Section 6.4, Figure 6", "shift",
        "SpeedRunner has the highest score at the end of both tasks of the shift.",
        *_shifted("score", 1),
    ),
    _claim(
        "shift-tokens", "Section 6.4, Figure 6", "shift",
        "SpeedRunner writes the fewest output tokens at the end of both tasks of the shift.",
        *_shifted("output", -1),
    ),
    _claim(
        "shift-library", "Section 6.4", "shift",
        "After the second task, SpeedRunner has about 40 functions and ASI about 160.",
        _about(_value("functions", after_third(OURS), FAMILIES[1]), 40),
        _about(_value("functions", after_third("asi"), FAMILIES[1]), 160),
        paper="about 40 and 160",
    ),
    _claim(
        "retention-score", "Section 6.4", "shift",
        "After the second task, SpeedRunner and OPO score lower on the first, and ASI higher.",
        *(_retention("score", name, sign) for name, sign in ((OURS, -1), ("asi", 1), ("opo", -1))),
        paper="-3.3, +4.4, -5.6 points",
    ),
    _claim(
        "retention-cost", "Section 6.4", "shift",
        "After the second task, only SpeedRunner is cheaper (USD) on the first.",
        *(_retention("usd", name, sign) for name, sign in ((OURS, -1), ("asi", 1), ("opo", 1))),
        paper="-27.1%, +40.6%, +6.8%",
    ),
    # Appendix G.
    _claim(
        "interpreter-tokens", "Appendix G", "interpreter",
        "Without the code interpreter, SpeedRunner writes more output tokens in each environment.",
        *(_differ("output", OFF, OURS, env, 1) for env in ENVS),
    ),
    _claim(
        "interpreter-score", "Appendix G", "interpreter",
        "Without the code interpreter, SpeedRunner has a lower score in two of three environments.",
        *(_differ("score", OFF, OURS, env, -1) for env in ENVS), paper="2 of 3", needed=2,
    ),
    _claim(
        "models-tokens", "Appendix G, Figures 9 and 10", "models",
        "SpeedRunner writes fewer output tokens than every baseline with Gemini and with Qwen.",
        *(
            msgspec.structs.replace(_differ("output", OURS, other, env, -1), model=model)
            for model in (GEMINI, QWEN) for env in ENVS for other in _others(env)
        ),
    ),
    _claim(
        "models-asi", "Appendix G", "models",
        "SpeedRunner has a higher score than ASI in ScienceWorld and BabyAI with each model.",
        *(
            msgspec.structs.replace(_differ("score", OURS, "asi", env, 1), model=model)
            for model in (GPT, GEMINI, QWEN) for env in (SCIENCEWORLD, BABYAI)
        ),
    ),
    _claim(
        "models-opo", "Appendix G", "models",
        "OPO has a higher score than SpeedRunner with Qwen in ScienceWorld, and with Gemini everywhere.",
        *_with(QWEN, [_differ("score", OURS, "opo", SCIENCEWORLD, -1)]),
        *_with(GEMINI, [_differ("score", OURS, "opo", env, -1) for env in ENVS]),
    ),
    _claim(
        "gemini-calls", "Appendix G", "models",
        "With Gemini, SpeedRunner's LLM calls in Crafter fall by 94% over training.",
        msgspec.structs.replace(
            _about(
                ClaimComparison(
                    "ratio", Mean("llm_calls", OURS, CRAFTER), Mean("llm_calls", OURS, CRAFTER, "first")
                ), 0.06,
            ), model=GEMINI,
        ),
        paper="-94%",
    ),
    _claim(
        "dominates-in-tokens", "Appendix G, Figure 11", "models",
        "SpeedRunner has a higher score and fewer output tokens than every baseline in 5 of 9 settings.",
        *(_with(model, _wins(env, "output")) for model, env in product((GPT, GEMINI, QWEN), ENVS)),
        paper="5 of 9", needed=5,
    ),
    _claim(
        "replay-score", "Appendix G, Figure 12", "replay",
        "Verification by replay raises ASI's score on ScienceWorld 3.",
        _differ("score", "asi_replay", "asi", FAMILIES[0], 1),
    ),
    _claim(
        "replay-below-ours", "Appendix G, Figure 12", "replay",
        "SpeedRunner has a higher score than ASI on ScienceWorld 3, with and without replay.",
        *(_differ("score", OURS, name, FAMILIES[0], 1) for name in ("asi", "asi_replay")),
    ),
    _claim(
        "replay-tokens", "Appendix G, Figure 12", "replay",
        "SpeedRunner writes about 65% fewer output tokens than ASI, with and without replay.",
        *(_about(_ratio("output", OURS, name, FAMILIES[0]), 0.35) for name in ("asi", "asi_replay")),
        paper="about -65%",
    ),
    _claim(
        "crafter-tokens", "Appendix G", "main",
        "In Crafter, OPO and ASI write more than 3 times SpeedRunner's output tokens.",
        *(_bound(_ratio("output", name, OURS, CRAFTER), 3.0, 1) for name in ("opo", "asi")),
        paper="more than 3",
    ),
    # Appendix H to K: libraries.
    _claim(
        "interpreter-depth", "Appendix H, Table 2", "interpreter",
        "With the code interpreter, call graphs are deeper in Crafter and both ScienceWorld tasks, at most"
        " and on average.",
        *(
            _differ(name, OURS, OFF, env, 1)
            for env in (CRAFTER, *FAMILIES) for name in ("max_depth", "mean_depth")
        ),
        paper="8.7, 5.7, 6.0 and 6.3, 5.3, 5.0",
    ),
    _claim(
        "babyai-dense", "Appendix H, Table 2", "interpreter",
        "In BabyAI, SpeedRunner's library is denser and more complex with the code interpreter than without.",
        *(_differ(name, OURS, OFF, BABYAI, 1) for name in ("density", "cyclomatic")),
        paper="0.206 and 0.178; 10.9 and 8.1",
    ),
    _claim(
        "voyager-size", "Appendix H", "main",
        "In Crafter, Voyager has over 30 times as many functions as SpeedRunner, at higher complexity.",
        _bound(_ratio("functions", "voyager", OURS, CRAFTER), 30.0, 1),
        _differ("cyclomatic", "voyager", OURS, CRAFTER, 1),
        paper="1,077 and 22.3; 30.2 and 17.5",
    ),
    _claim(
        "voyager-lowest", "Appendix I", "main", "Voyager has the lowest score of all methods in Crafter.",
        *(_differ("score", "voyager", name, CRAFTER, -1) for name in (*PROSE_AND_CODE, OURS)),
        paper="14.7%, ASI 20.5%",
    ),
    _claim(
        "interpreter-exception", "Appendix I", "interpreter",
        "ScienceWorld 4 is the one setting in which SpeedRunner scores higher without the code interpreter.",
        *(_differ("score", OFF, OURS, env, 1 if env == FAMILIES[1] else -1) for env in SETTINGS),
    ),
    _claim(
        "truncation-useless", "Appendix K, Table 8", "truncation",
        "No truncation of Voyager's library scores more than one achievement above no library.",
        *(
            msgspec.structs.replace(
                ClaimComparison(
                    "difference", Mean("score", f"voyager-visible_last{size}-from_crafter", CRAFTER),
                    Mean("score", "voyager", CRAFTER, "first"),
                ), high=1 / 22,
            )
            for size in (50, 100, 200, 400, 800)
        ),
        paper="0.124 to 0.174 and 0.173",
    ),
    _claim(
        "voyager-falls", "Appendix K", "main",
        "Voyager's whole library scores lower than no library in Crafter.",
        _change("score", "voyager", CRAFTER, -1), paper="0.153 and 0.173",
    ),
)  # fmt: skip
"""The claims, in the order of the paper's sections."""
