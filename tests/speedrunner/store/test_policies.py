from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speedrunner.store.json_records import UnknownFormat
from speedrunner.store.policies import InvalidPolicy, PolicyStore
from speedrunner.store.records import Policy, Skill

MODULE = '''from __future__ import annotations

from functools import cache

LIMIT = 3  # steps


def walk(steps: int = 1) -> str:
    """Walk ahead.

    Stops at walls.
    """
    for _ in range(steps):
        text = go_forward()
    return text


def _turn(side: str) -> str:
    """Turn."""
    return "def walk(): a name in a text"
'''

POLICY = Policy(
    version=3,
    module=MODULE,
    skills=(
        Skill(name="walk", public=True, created=1, edited=2),
        Skill(name="_turn", public=False, created=1, edited=2),
    ),
    notes="Keep *left*.\r\n\n",
    method={"tree": {"depth": 2, "names": ["a", None, 1.5]}},
)


@pytest.fixture
def store(tmp_path) -> PolicyStore:
    return PolicyStore(tmp_path / "policies")


class TestRoundTrip:
    @given(
        module=st.text(st.sampled_from("a\"'\\\r\n\x0c\u2028 é:=()")),
        notes=st.text(),
        method=st.dictionaries(st.text(), st.integers() | st.text()),
    )
    def test_whatever_its_texts_look_like(self, module, notes, method):
        policy = Policy(version=0, module=module, notes=notes, method=method)
        with tempfile.TemporaryDirectory() as folder:
            PolicyStore(Path(folder)).save(policy)
            assert PolicyStore(Path(folder)).load(0) == policy


class TestVersions:
    def test_they_are_listed_by_number(self, store):
        assert store.versions() == []
        for version in (0, 1, 10, 2):
            store.save(Policy(version=version))
        assert store.versions() == [0, 1, 2, 10]

    def test_a_missing_version_names_those_that_exist(self, store):
        with pytest.raises(InvalidPolicy, match="no policy version 4; it has: none"):
            store.load(4)
        store.save(POLICY)
        with pytest.raises(InvalidPolicy, match="no policy version 4; it has: 3"):
            store.load(4)

    def test_damage_and_unknown_formats_are_named(self, store):
        store.save(POLICY)
        folder = store.folder / "v0003"
        library = (folder / "library.json").read_text()
        (folder / "library.json").write_text(library.replace('"format": 3', '"format": 7'))
        with pytest.raises(UnknownFormat, match="format 7"):
            store.load(3)
        (folder / "library.json").write_text(library[:-20])
        with pytest.raises(InvalidPolicy, match=r"library\.json is not a valid LibraryIndex"):
            store.load(3)
        (folder / "library.json").write_text(library.replace('"version": 3', '"version": 2'))
        with pytest.raises(InvalidPolicy, match="v0003 is a copy of version 2"):
            store.load(3)
        (folder / "library.json").write_text(library)
        (folder / "skills.py").write_bytes(b"\xff")
        with pytest.raises(InvalidPolicy, match=r"v0003 contains no readable policy: .* can't decode"):
            store.load(3)


class TestRefusal:
    @pytest.mark.parametrize(
        "policy",
        [
            Policy(version=1, module="X = '\ud800'"),
            Policy(version=1, notes="\ud800"),
            Policy(version=1, method={"x": float("nan")}),
            Policy(version=1, method={"x": object()}),
        ],
    )
    def test_what_would_not_read_back_the_same_is_never_published(self, store, policy):
        with pytest.raises(InvalidPolicy, match="policy version 1 cannot be stored"):
            store.save(policy)
        assert list(store.folder.iterdir()) == []
