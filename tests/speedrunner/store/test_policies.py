from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speedrunner.store.files import StorageError, UnknownFormat, temporary_name
from speedrunner.store.policies import InvalidPolicy, PolicyStore
from speedrunner.store.records import Policy, Skill

WALK = '''def walk(steps: int = 1) -> str:
    """Walk ahead.

    Stops at walls.
    """
    for _ in range(steps):
        text = go_forward()
    return text
    # nothing more'''

TURN = '''@cache
def _turn(side: str) -> str:
    """Turn."""

    def inner() -> str:
        return "def walk(): a name in a text"

    return inner()
'''


def skill(name: str, source: str, **changes) -> Skill:
    values = {"name": name, "source": source, "doc": "Doc.", "public": True, "created": 1, "edited": 2}
    return Skill(**(values | changes))


POLICY = Policy(
    version=3,
    skills=(skill("walk", WALK), skill("_turn", TURN, public=False)),
    preamble="from functools import cache\n\nLIMIT = 3  # steps",
    notes="Keep *left*.\r\n\n",
    method={"tree": {"depth": 2, "names": ["a", None, 1.5]}},
)


@pytest.fixture
def store(tmp_path) -> PolicyStore:
    return PolicyStore(tmp_path / "policies")


def sources(name: str):
    """Sources of one skill that are no tidier than a model's."""
    body = st.sampled_from(
        [
            "    return None",
            "    # über\n    return '\\x0c \\u2028'",
            "    text = '''\n\n\n\ndef other(): pass\n'''\n    return text",
            "    return 1\r\n",
            "    return '\\d is no escape'",
            "    if True:\n\n\n\n        return 2\n\n\n\n",
            "    return 'a\u2028b\x0cc'\n# after it\nX = 1",
            "    return 3\n\n\n\nclass Helper:\n    def walk(self): ...",
        ]
    )
    head = st.sampled_from(
        [
            f"def {name}():\n",
            f"async def {name}(a: int = 1, *,\n    b: str) -> str:\n",
            f"@x\n@y(1)\ndef {name}():\n",
        ]
    )
    return st.builds(str.__add__, head, body)


names = ["walk", "other_skill", "_private", "z"]
preambles = st.sampled_from(
    [
        "",
        "import math",
        "from __future__ import annotations\n\n\n\nA = 1\n",
        "# only a comment",
        "\n\nB = 2\n\n",
    ]
)


class TestRoundTrip:
    def test_a_policy_reads_back_the_same(self, store):
        store.save(POLICY)
        assert store.load(3) == POLICY

    @settings(max_examples=100, deadline=None)
    @given(data=st.data(), order=st.permutations(names), count=st.integers(0, 4), preamble=preambles)
    def test_whatever_the_sources_look_like(self, data, order, count, preamble):
        policy = Policy(
            version=0,
            skills=tuple(skill(name, data.draw(sources(name))) for name in order[:count]),
            preamble=preamble,
            notes=data.draw(st.text()),
            method=data.draw(st.dictionaries(st.text(), st.integers() | st.text())),
        )
        with tempfile.TemporaryDirectory() as folder:
            PolicyStore(Path(folder)).save(policy)
            assert PolicyStore(Path(folder)).load(0) == policy

    def test_the_initial_policy_may_be_empty(self, store):
        store.save(Policy(version=0))
        assert store.load(0) == Policy(version=0)

    def test_the_layout_is_four_files_for_people(self, store):
        store.save(POLICY)
        folder = store.folder / "v0003"
        assert sorted(file.name for file in folder.iterdir()) == [
            "library.json",
            "method.json",
            "notes.md",
            "skills.py",
        ]
        library = msgspec.json.decode((folder / "library.json").read_bytes())
        assert library["skills"][1] == {
            "name": "_turn", "public": False, "doc": "Doc.", "created": 1, "edited": 2,
        }  # fmt: skip

    def test_skills_py_is_an_importable_module(self, store):
        store.save(POLICY)
        spec = importlib.util.spec_from_file_location("skills", store.folder / "v0003" / "skills.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.LIMIT == 3
        assert module.walk.__doc__.startswith("Walk ahead.")
        assert "version 3" in module.__doc__

    def test_a_copy_may_be_edited_by_hand(self, store):
        store.save(POLICY)
        file = store.folder / "v0003" / "skills.py"
        file.write_text(file.read_text().replace("range(steps)", "range(steps + 1)"))
        walk, turn = store.load(3).skills
        assert walk.source == WALK.replace("range(steps)", "range(steps + 1)")
        assert turn == POLICY.skills[1]


class TestVersions:
    def test_latest_is_the_highest(self, store):
        assert store.latest() is None
        for version in (0, 1, 10, 2):
            store.save(Policy(version=version))
        assert store.versions() == [0, 1, 2, 10]
        assert store.latest().version == 10

    def test_a_version_never_changes(self, store):
        store.save(POLICY)
        with pytest.raises(StorageError, match="exists already"):
            store.save(msgspec.structs.replace(POLICY, notes="other"))
        assert store.load(3) == POLICY
        assert [path.name for path in store.folder.iterdir()] == ["v0003"]

    def test_a_missing_version_names_those_that_exist(self, store):
        with pytest.raises(InvalidPolicy, match="no policy version 4; it holds: none"):
            store.load(4)
        store.save(POLICY)
        with pytest.raises(InvalidPolicy, match="no policy version 4; it holds: 3"):
            store.load(4)

    def test_what_a_kill_left_in_preparation_is_no_version(self, store):
        store.folder.mkdir()
        leftover = temporary_name(store.folder / "v0003")
        leftover.mkdir()
        (leftover / "skills.py").write_text("def")
        assert store.versions() == []
        store.save(POLICY)
        assert store.load(3) == POLICY

    def test_damage_and_unknown_formats_are_named(self, store):
        store.save(POLICY)
        folder = store.folder / "v0003"
        library = (folder / "library.json").read_text()
        (folder / "library.json").write_text(library.replace('"format": 1', '"format": 7'))
        with pytest.raises(UnknownFormat, match="format 7"):
            store.load(3)
        (folder / "library.json").write_text(library)
        (folder / "skills.py").write_text('"""Empty."""\n')
        with pytest.raises(InvalidPolicy, match=r"v0003 holds no readable policy: .*walk, _turn"):
            store.load(3)


class TestRefusal:
    @pytest.mark.parametrize(
        "policy",
        [
            Policy(version=1, skills=(skill("walk", "def walk(:\n    pass"),)),
            Policy(version=1, skills=(skill("walk", "# before it\ndef walk(): ..."),)),
            Policy(version=1, skills=(skill("walk", "def run(): ..."),)),
            Policy(version=1, skills=(skill("walk", WALK), skill("walk", WALK))),
            Policy(version=1, skills=(skill("walk", WALK), skill("run", f"{WALK}\ndef run(): ..."))),
            Policy(version=1, preamble="def walk(): ...", skills=(skill("walk", WALK),)),
            Policy(version=1, preamble="   \n"),
            Policy(version=1, notes="\ud800"),
            Policy(version=1, method={"x": float("nan")}),
            Policy(version=1, method={"x": object()}),
        ],
    )
    def test_what_would_not_read_back_the_same_is_never_published(self, store, policy):
        with pytest.raises(InvalidPolicy, match="policy version 1 cannot be stored"):
            store.save(policy)
        assert list(store.folder.iterdir()) == []
