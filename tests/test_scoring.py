"""Parity without frameworks: how rows are compared, kept and taken up again. The probes here are stand-ins."""

import json
from pathlib import Path

import pytest
from conftest import make_task

from envconvert import pipeline, scoring
from envconvert.formats.catalogue import Format
from envconvert.formats.probe import Agent, Framework, Loaded, Score, designated


class StandIn:
    """Answers from a table, and remembers what it was asked."""

    framework = Framework(name="stand-in", requirement="stand-in==1.0", python=(3, 11), megabytes=1)

    def __init__(
        self, rewards: dict[tuple[str, Agent], float | None], stop_at: tuple[str, Agent] | None = None
    ) -> None:
        self.rewards = rewards
        self.stop_at = stop_at
        self.stopped = False
        self.asked: list[tuple[str, Agent]] = []

    def load(self, python: Path, source: Path) -> Loaded:
        return Loaded(tasks=(), errors=())

    def score(self, python: Path, source: Path, task: str, agent: Agent, reward_key: str | None, work: Path) -> Score:
        if (task, agent) == self.stop_at or self.stopped:
            self.stopped = True
            raise KeyboardInterrupt
        self.asked.append((task, agent))
        reward = self.rewards[task, agent]
        return Score(reward, None if reward is not None else "it failed")


SOURCE: dict[tuple[str, Agent], float | None] = {
    ("a", "oracle"): 1.0,
    ("a", "nop"): 0.0,
    ("b", "oracle"): 0.3,
    ("b", "nop"): None,
}


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two tasks as Harbor and as a package, with a cache of their own and no framework behind them."""
    monkeypatch.setenv("ENVCONVERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scoring, "require_docker", lambda: None)
    monkeypatch.setattr(scoring, "interpreter", lambda framework, say: Path("python"))
    source = tmp_path / "source"
    make_task(source / "a")
    make_task(source / "b")
    pipeline.convert(source, tmp_path / "package", to="verifiers")
    return source, tmp_path / "package"


def use(monkeypatch: pytest.MonkeyPatch, harbor: StandIn, verifiers: StandIn) -> None:
    probes = {"harbor": harbor, "verifiers": verifiers}
    monkeypatch.setattr(Format, "probe", property(lambda self: probes[self.name]))


def quiet(line: str) -> None:
    """Progress that nobody reads."""


def test_counts_are_disjoint(sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    target = {**SOURCE, ("a", "nop"): 0.5, ("b", "oracle"): 0.1 + 0.2}
    use(monkeypatch, StandIn(SOURCE), StandIn(target))
    result = scoring.parity(*sides, say=quiet)
    assert [(row.task, row.agent, row.source, row.target, row.equal) for row in result.rows] == [
        ("a", "oracle", 1.0, 1.0, True),
        ("a", "nop", 0.0, 0.5, False),
        ("b", "oracle", 0.3, 0.1 + 0.2, True),  # within 1e-9
        ("b", "nop", None, None, True),
    ]
    assert (result.equal, result.different, result.unscored) == (2, 1, 1)
    assert result.rows[3].reason == "harbor: it failed; verifiers: it failed"


def test_null_on_one_side_is_different_and_not_zero(sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, StandIn(SOURCE), StandIn({**SOURCE, ("a", "nop"): None}))
    result = scoring.parity(*sides, say=quiet)
    row = result.rows[1]
    assert (row.source, row.target, row.equal) == (0.0, None, False)
    assert (result.equal, result.different, result.unscored) == (2, 1, 1)


def test_an_interrupted_parity_goes_on(sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, StandIn(SOURCE), StandIn(SOURCE, stop_at=("b", "oracle")))
    with pytest.raises(KeyboardInterrupt):
        scoring.parity(*sides, say=quiet)
    second = StandIn(SOURCE)
    use(monkeypatch, StandIn(SOURCE), second)
    result = scoring.parity(*sides, say=quiet)
    assert second.asked == [("b", "oracle"), ("b", "nop")]
    assert [row.source for row in result.rows] == [1.0, 0.0, 0.3, None]


def test_rows_of_other_files_are_not_taken_up(sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, StandIn(SOURCE), StandIn(SOURCE, stop_at=("b", "oracle")))
    with pytest.raises(KeyboardInterrupt):
        scoring.parity(*sides, say=quiet)
    (sides[0] / "a" / "tests" / "test.sh").write_text("#!/bin/bash\necho 0 > /logs/verifier/reward.txt\n")
    second = StandIn(SOURCE)
    use(monkeypatch, StandIn(SOURCE), second)
    scoring.parity(*sides, say=quiet)
    assert ("a", "oracle") in second.asked


def test_a_finished_parity_measures_again(sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, StandIn(SOURCE), StandIn(SOURCE))
    scoring.parity(*sides, say=quiet)
    again = StandIn(SOURCE)
    use(monkeypatch, StandIn(SOURCE), again)
    scoring.parity(*sides, say=quiet)
    assert len(again.asked) == 4


@pytest.mark.parametrize(
    ("rewards", "key", "reward"),
    [
        ({"reward": 0.5, "style": 1.0}, None, 0.5),
        ({"reward": 0.5, "style": 1.0}, "style", 1.0),
        ({"accuracy": 0.75}, None, 0.75),
        ({"accuracy": True}, None, 1.0),
        ({"a": 1.0, "b": 0.0}, None, None),
        ({}, None, None),
        (None, None, None),
    ],
)
def test_designated_reward(rewards: dict[str, float] | None, key: str | None, reward: float | None) -> None:
    assert designated(rewards, key).reward == reward


def test_an_undesignated_reward_names_the_keys() -> None:
    assert designated({"b": 0.0, "a": 1.0}, None).reason == "no reward is named 'reward'; there are a, b"


def test_json_of_a_row(sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from envconvert.report import to_json

    use(monkeypatch, StandIn(SOURCE), StandIn(SOURCE))
    document = json.loads(to_json(scoring.parity(*sides, agents=["nop"], tasks="b", say=quiet)))
    assert document == {
        "rows": [
            {
                "task": "b",
                "framework": "verifiers",
                "agent": "nop",
                "source": None,
                "target": None,
                "equal": True,
                "reason": "harbor: it failed; verifiers: it failed",
            }
        ],
        "equal": 0,
        "different": 0,
        "unscored": 1,
    }
