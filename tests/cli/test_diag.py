import json
import socket

import pytest
from real_program import Program, Serve

from hipfire.cli.examination import gpu_findings


def test_a_healthy_machine_is_ready(program: Program) -> None:
    done = program.run("diag")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert {line.split("  ")[0] for line in lines if line[:1].isalpha()} >= {
        "hipfire", "processor", "features", "kernels", "memory", "settings", "state root", "models folder", "models",
        "port",
    }  # fmt: skip
    assert lines[-1] == "ready: hipfire serve smollm2:135m downloads a small model and serves it"


def test_json_is_one_document(program: Program) -> None:
    document = json.loads(program.run("diag", "--json").stdout)
    assert document["healthy"] is True
    assert document["cpu"]["kernels"] in document["cpu"]["variants"]
    assert document["cpu"]["problem"] is None
    assert 0 < document["memory"]["available_bytes"] < document["memory"]["total_bytes"]
    assert document["models"] == []
    assert {finding["level"] for finding in document["findings"]} <= {"ok", "note"}


def test_a_bad_setting_is_a_problem_with_its_place(program: Program) -> None:
    program.root.mkdir()
    config = program.root / "config.toml"
    config.write_text("[serve]\nprot = 80\n")
    done = program.run("diag")
    assert done.returncode == 1
    assert f"problem  {config}:2: there is no setting serve.prot\n" in done.stdout
    assert "→ did you mean serve.port?\n" in done.stdout
    assert " the built-in one, is free; which one is set cannot be read\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("hipfire cannot serve as things are: settings")


def test_models_toml_is_looked_at_too(program: Program) -> None:
    program.root.mkdir()
    names = program.root / "models.toml"
    names.write_text('[model.smolm]\ntop_k = 1\n[model.gone]\npath = "gone.gguf"\n')
    done = program.run("diag")
    assert done.returncode == 0
    assert f"note     {names}:2: there is no model smolm\n" in done.stdout
    assert f"gone cannot be used: {program.root}/gone.gguf: No such file or directory\n" in done.stdout
    assert f"→ correct it in {names}\n" in done.stdout
    names.write_text("[model.smollm2]\ntop_q = 1\n")
    done = program.run("diag")
    assert done.returncode == 1
    assert f"problem  {names}:2: there is no setting top_q\n" in done.stdout


def test_a_broken_model_is_noted(program: Program) -> None:
    program.models_dir.mkdir(parents=True)
    (program.models_dir / "broken.gguf").write_bytes(b"GGUF")
    done = program.run("diag")
    assert done.returncode == 0
    assert "note     broken cannot be used: " in done.stdout
    assert "→ hipfire rm broken, then pull it again\n" in done.stdout


def test_a_port_in_use_is_a_problem(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = program.run("diag", HIPFIRE_PORT=str(port))
    assert done.returncode == 1
    assert f"problem  {port} is held by a program that is not hipfire\n" in done.stdout


def test_a_serve_that_is_up_is_said(shared_serve: Serve) -> None:
    done = shared_serve.program.run("diag")
    assert done.returncode == 0
    assert f"{shared_serve.port} is held by the serve, process {shared_serve.process.pid}\n" in done.stdout
    assert done.stdout.splitlines()[-1] == "ready: a server is up; hipfire ps shows it"


def test_a_folder_that_cannot_be_written_is_noted(program: Program) -> None:
    done = program.run("diag", HIPFIRE_MODELS_DIR="/dev/null/models")
    assert "note     /dev/null/models cannot be written\n" in done.stdout


RUNTIME = {"library": "/lib/libamdhip64.so", "version": "6.3.1", "problem": None, "advice": None}
CARD = {"index": 0, "name": "A card", "arch": "gfx1100", "pci": "0000:03:00.0", "total_nbytes": 24 * 10**9}
NO_LIBRARY = {"library": None, "devices": [], "problem": "no library", "advice": "install ROCm"}
NO_CARD = {"library": "/lib/libamdhip64.so", "devices": [], "problem": "no AMD GPU was found", "advice": "plug one in"}


def test_a_gpu_is_shown_with_its_runtime() -> None:
    card = {**CARD, "covered": True, "other_users": {}}
    findings = gpu_findings({**RUNTIME, "devices": [card]}, "auto")
    assert [(finding.level, finding.text) for finding in findings] == [
        ("ok", "/lib/libamdhip64.so, 6.3.1"),
        ("ok", "hip:0 A card, gfx1100, 0000:03:00.0, 24.0 GB"),
    ]


def test_a_gpu_that_is_of_no_use_is_noted() -> None:
    cards = [{**CARD, "covered": False, "other_users": {}}, {**CARD, "covered": True, "other_users": {"7": 5 * 10**9}}]
    findings = gpu_findings({**RUNTIME, "devices": cards}, "auto")[1:]
    assert [finding.level for finding in findings] == ["note", "note"]
    assert findings[0].text.endswith("24.0 GB; there are no kernels for it")
    assert findings[1].text.endswith("24.0 GB; process 7 has 5.0 GB of it")


@pytest.mark.parametrize(
    ("gpu", "device", "level", "advice"),
    [
        (NO_LIBRARY, "auto", "ok", None),
        (NO_LIBRARY, "hip:0", "problem", "install ROCm"),
        (NO_CARD, "auto", "note", "plug one in"),
        (NO_CARD, "gfx1100", "problem", "plug one in"),
    ],
)
def test_no_gpu_is_a_problem_for_who_wants_one(gpu: dict[str, str], device: str, level: str, advice: str) -> None:
    (finding,) = gpu_findings(gpu, device)
    assert (finding.level, finding.text, finding.advice) == (level, f"none: {gpu['problem']}", advice)


@pytest.mark.parametrize(("device", "level"), [("auto", "problem"), ("cpu", "note")])
def test_a_runtime_that_crashes_is_a_problem_unless_it_is_not_used(device: str, level: str) -> None:
    (finding,) = gpu_findings({"problem": "looking at the GPU failed: exit status -11"}, device)
    assert (finding.level, finding.text) == (level, "looking at the GPU failed: exit status -11")
    assert finding.advice == "hipfire serve --device cpu works"


def test_diag_has_a_line_for_the_gpu(program: Program) -> None:
    # Where the tests run there may be one or not.
    document = json.loads(program.run("diag", "--json").stdout)
    assert any(finding["what"] == "GPU" for finding in document["findings"])
    assert document["gpu"].keys() == {"library", "version", "devices", "problem", "advice"}
