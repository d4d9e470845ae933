"""The command line without a GPU."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from granikv import day, plot
from granikv.cli import main, resize_under_load


def test_explain_says_which_way_why_and_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--gpu", "H200", "--n", "256", "--lp", "8192"]) == 0
    said = capsys.readouterr().out
    assert "n*Lp = 2097152 pays" in said
    assert "costs of NVIDIA H200 (measured)" in said
    assert main(["explain", "--n", "24", "--lp", "256", "--batch", "256"]) == 0
    said = capsys.readouterr().out
    assert "paged.fused" in said
    assert "overlap" not in said, "the ways of that step alone"
    assert main(["explain", "--n", "1", "--lp", "64"]) == 0
    assert "does not pay" in capsys.readouterr().out


def test_an_unknown_gpu_gets_the_rule_and_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--gpu", "Imaginary", "--n", "64", "--lp", "4096"]) == 0
    assert "rule, not measured" in capsys.readouterr().out


def test_a_resize_under_load_loses_nothing() -> None:
    found = resize_under_load(120)
    assert (found["wrongTokens"], found["failed"]) == (0, 0)
    assert found["asked"] == [True, True]
    assert found["finished"] == 120
    assert found["resizeSteps"] > 0, "steps of the resize were seen, else its ratio says nothing"
    assert found["p99Ratio"]


def test_the_way_back_is_refused_while_more_is_held_than_fits() -> None:
    found = resize_under_load(120, prefixes=16)
    assert found["asked"] == [True, False]
    assert (found["wrongTokens"], found["failed"], found["finished"]) == (0, 0, 120)


def test_a_mixed_day_is_played_by_shares_and_tuned() -> None:
    phases = (day.Phase(2, 512, 60.0), day.Phase(5, 2048, 60.0))
    found = day.play((20, 40), seconds=1.0, phases=phases)
    assert set(found["runs"]) == {"20", "40", "tuned"}
    for row in found["runs"].values():
        assert (row["finished"], row["failed"], row["wrongTokens"]) == (120, 0, 0)
    assert found["best static"] in {"20", "40"}
    assert found["tuned over best"] <= found["tuned over 20"]


def test_unknown_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "--n", "1", "--lp", "2", "--what"])
    assert "unknown arguments: --what" in capsys.readouterr().err


def test_plots_are_well_formed(tmp_path: Path) -> None:
    text = plot.lines(
        "a < b", [1, 2, 4], {"x & y": [1.0, 8.0, 64.0]}, x_name="n", y_name="us", log=True
    )
    root = ET.fromstring(text)  # noqa: S314  our own text
    assert len([e for e in root if e.tag.endswith("polyline")]) == 1
