"""The program as a whole: exit statuses, one line a fault, never a traceback."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kvserving_operator.cli import main as program
from kvserving_operator.render import render
from tests.unit.api.builders import make
from tests.unit.stack import planned

ROOT = Path(__file__).parents[4]


class Done(NamedTuple):
    status: int
    out: str
    err: str


class Runner:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def file(self, changes: dict[str, Any] | None = None, name: str = "x") -> str:
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(make(changes, name=name)))
        return str(path)

    def __call__(self, *arguments: str) -> Done:
        try:
            status = program.main(arguments)
        except SystemExit as end:  # argparse
            status = int(end.code or 0)
        streams = self._capsys.readouterr()
        return Done(status, streams.out, streams.err)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(tmp_path, capsys)


def test_a_good_manifest_is_valid(run: Runner) -> None:
    done = run("validate", "-f", run.file())
    assert done == (0, "", "1 of 1 valid\n")


def test_every_fault_is_one_line_with_field_what_and_remedy(run: Runner) -> None:
    changes = {
        "engine.extraArgs": ["--port", "1"],
        "rollout.strategy": "BlueGreen",
        "decode.replicas": -1,
    }
    first = run.file(changes)
    second = run.file({"engine.extraArgs": ["--max-num-seqs 8"]}, name="z")
    done = run("validate", "-f", first, "-f", second)
    assert done.status == 1
    assert done.out.splitlines() == [
        f"{first}: spec.decode.replicas: -1 is below 0; raise it",
        f"{second}: spec.engine.extraArgs[0]: holds a flag and its value in one element "
        "(--max-num-seqs …); write them as two elements, or join them by =",
    ]
    assert done.err == "0 of 2 valid\n"


def test_what_the_operator_refuses_comes_with_what_the_server_refuses(run: Runner) -> None:
    """Rules of the CRD and of the operator in one go; what both say is said once."""
    file = run.file(
        {
            "engine.extraArgs": ["--port=1"],
            "kvCache.remote": {"type": "Managed"},
            "prefill.parallelism.data": 2,
            "prefill.parallelism.prefillContext": 2,
        }
    )
    fields = [line.split(": ")[1] for line in run("validate", "-f", file).out.splitlines()]
    assert sorted(fields) == [
        "spec.engine.extraArgs[0]",
        "spec.engine.features",
        "spec.kvCache",
        "spec.kvCache.remote.memoryPerInstance",
        "spec.prefill.parallelism.data",
    ]


def test_faults_as_data(run: Runner) -> None:
    done = run("validate", "-o", "json", "-f", run.file({"rollout.strategy": "BlueGreen"}))
    [record] = json.loads(done.out)
    assert done.status == 1
    assert record["object"] == "default/x"
    assert (record["field"], record["refusedBy"]) == ("spec.rollout.strategy", "operator")
    assert record["reason"] == "NotAvailableYet"
    assert run("validate", "-q", "-f", run.file({"rollout.strategy": "BlueGreen"})) == (1, "", "")


def test_a_broken_file_is_a_fault(run: Runner) -> None:
    path = run.folder / "x.yaml"
    path.write_text("a: [")
    done = run("validate", "-f", str(path))
    assert done.status == 1
    assert done.out.startswith(f"{path}: manifest: line 1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: COMMAND"),
        (["validate"], "-f/--filename"),
        (["validate", "-f", "/no/such/file"], "kvserving: /no/such/file: No such file"),
        (["render", "-f", "/no/such/file", "-o", "dir"], "--output-dir DIR go together"),
        (["nonsense"], "invalid choice"),
        (["plan", "--tokens-per-seconds", "1"], "did you mean --tokens-per-second"),
        (
            ["plan", "--model=x"],
            "kvserving plan: does not know '--model=x', did you mean --model-card",
        ),
        (
            ["validate", "-f", "x", "y"],
            "kvserving validate: does not know 'y'; `kvserving validate",
        ),
    ],
)
def test_wrong_use_ends_with_2(run: Runner, arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.status == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_wrong_labels_are_told(run: Runner) -> None:
    done = run("render", "-f", run.file(), "--operator-labels", "x")
    assert (done.status, done.err) == (2, "kvserving: --operator-labels: 'x' is not key=value\n")


def test_a_defect_is_one_line(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> int:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("kvserving_operator.cli.validate.run", broken)
    done = run("validate", "-f", run.file())
    assert done.status == program.DEFECT
    assert done.err.startswith("kvserving: RuntimeError: two lines (a defect")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["render", "validate", "diff"])
def test_help_has_examples(run: Runner, command: str) -> None:
    done = run(command, "--help")
    assert done.status == 0
    assert f"kvserving {command} -f" in done.out


def test_no_colour_unless_a_terminal_looks(
    run: Runner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run.file({"decode.replicas": -1})
    assert "\x1b" not in run("validate", "-f", file).out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[31m" in run("validate", "-f", file).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("validate", "-f", file).out


def test_control_characters_of_a_manifest_never_reach_the_terminal(run: Runner) -> None:
    template = {"spec": {"containers": [{"name": "engine", "\x1b[2J": 1, "image": "x\ny"}]}}
    done = run("validate", "-f", run.file({"decode.podTemplate": template}))
    assert done.status == 1
    assert all(line.isprintable() for line in done.out.splitlines())
    assert "\\x1b[2J" in done.out


def test_rendered_is_what_the_operator_renders(run: Runner) -> None:
    from kvserving_operator.cli.render import UNKNOWN_AUTH, UNKNOWN_UID  # noqa: PLC0415
    from tests.unit.stack import owner  # noqa: PLC0415

    done = run(
        "render", "-f", run.file(),
        "--agent-image", "kvserving/operator:1", "--router-image", "kvserving/router:1",
        "--operator-labels", "app.kubernetes.io/name=kvserving-operator",
    )  # fmt: skip
    assert (done.status, done.err) == (0, "")
    reference = owner("x")
    reference = type(reference)(
        api_version=reference.api_version, kind=reference.kind, name="x", uid=UNKNOWN_UID
    )
    expected = render(planned(), UNKNOWN_AUTH, reference)
    shown = list(yaml.load_all(done.out, yaml.CSafeLoader))
    for manifest, one in zip(expected, shown, strict=True):
        if manifest["kind"] == "Secret":
            assert "data" not in one
            manifest.pop("data")
        assert one == manifest


def test_nothing_is_rendered_when_one_manifest_is_faulty(run: Runner) -> None:
    done = run("render", "-f", run.file(), "-f", run.file({"decode.replicas": -1}, name="z"))
    assert (done.status, done.out) == (1, "")
    assert "spec.decode.replicas: -1 is below 0; raise it" in done.err


def test_a_generated_name_cannot_be_rendered(run: Runner) -> None:
    path = Path(run.file())
    path.write_text(path.read_text().replace("name: x", "generateName: x-"))
    assert run("validate", "-f", str(path)).status == 0
    done = run("render", "-f", str(path))
    assert done.status == 1
    assert "metadata.name: is needed to render" in done.err


def test_flags_win_over_variables(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSERVING_ROUTER_IMAGE", "from/variable:1")
    file = run.file()
    assert "image: from/variable:1" in run("render", "-f", file).out
    assert "from/variable" not in run("render", "-f", file, "--router-image", "by/flag:2").out


def test_json_and_folders_hold_the_same_objects(run: Runner) -> None:
    file = run.file()
    stream = list(yaml.load_all(run("render", "-f", file, "-n", "prod").out, yaml.CSafeLoader))
    listed = json.loads(run("render", "-f", file, "-n", "prod", "-o", "json").out)
    assert listed["items"] == stream
    folder = run.folder / "out"
    done = run("render", "-f", file, "-n", "prod", "-o", "dir", "--output-dir", str(folder))
    assert (done.status, done.out) == (0, "")
    files = sorted((folder / "prod" / "x").iterdir())
    assert files[0].name == "01-serviceaccount-x-router.yaml"
    assert [yaml.load(path.read_text(), yaml.CSafeLoader) for path in files] == stream
    again = run("render", "-f", file, "-n", "prod", "-o", "dir", "--output-dir", str(folder))
    assert again.status == 2
    assert "is not empty" in again.err


def test_an_example_renders(run: Runner) -> None:
    assert run("render", "-f", str(ROOT / "examples" / "quickstart.yaml")).status == 0


def test_a_suspended_object_is_rendered_with_a_note(run: Runner) -> None:
    done = run("render", "-f", run.file({"suspend": True}))
    assert done.status == 0
    assert "default/x: is suspended" in done.err
