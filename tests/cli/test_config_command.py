"""`hipfire config`, by the real program."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf_writer
import pytest
from real_program import TINY, Program

from hipfire.config.schema import SETTINGS

Install = Callable[[str], Path]

SEE_SET = "(see hipfire config set --help)"


@pytest.fixture
def program(program: Program) -> Program:
    """Without the port that keeps serves of tests apart: nothing listens here."""
    del program.variables["HIPFIRE_PORT"]
    return program


def write(program: Program, name: str, text: str) -> Path:
    path = program.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def said(program: Program, *args: str, **variables: str) -> str:
    """What a command that goes well prints, on either stream."""
    done = program.run("config", *args, **variables)
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).replace(str(program.root), "~")


def error_of(program: Program, *args: str, status: int) -> str:
    done = program.run("config", *args)
    assert (done.returncode, done.stdout) == (status, "")
    return done.stderr.removeprefix("hipfire: ").replace(str(program.root), "~").rstrip("\n")


def explained(program: Program, *args: str, **variables: str) -> tuple[object, str, list[str]]:
    """The value, its place, and the sources that it shadows."""
    document = json.loads(program.run("config", *args, **variables).stdout)
    place = document["place"] or document["source"]
    return document["value"], place.replace(str(program.root), "~"), [other["source"] for other in document["shadows"]]


def test_a_key_is_explained_by_all_its_sources(program: Program) -> None:
    lines = said(program, "explain", "serve.port").splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "serve.port = 11435 built-in",
        "TCP port to listen on.",
        "A whole number from 1 to 65535; environment HIPFIRE_PORT, also called port.",
        "",
        "flag –",
        "environment – HIPFIRE_PORT is not set",
        "models.toml – the same for every model",
        "profile – none is chosen",
        "config.toml – there is no ~/config.toml",
        "model's card – the same for every model",
        "model's file – the same for every model",
        "built-in 11435 in force",
    ]


def test_each_source_wins_over_those_below_it(program: Program, install: Install) -> None:
    """Source by source from the weakest: what wins, and that everything below is shadowed."""
    entries = [gguf_writer.entry("general.sampling.top_k", gguf_writer.I32, gguf_writer.scalar(gguf_writer.I32, 1))]
    program.models_dir.mkdir(parents=True)
    mine = program.models_dir / "mine.gguf"
    explain = ("mine", "explain", "top_k", "--json")
    shadows = ["built-in"]
    mine.write_bytes(gguf_writer.with_entries(TINY.read_bytes(), entries))
    assert explained(program, *explain) == (1, "~/models/mine.gguf", shadows)
    shadows = ["model's file", *shadows]
    write(program, "config.toml", "# mine\n[generation]\ntop_k = 3\n")
    assert explained(program, *explain) == (3, "~/config.toml:3", shadows)
    shadows = ["config.toml", *shadows]
    write(program, "profiles/quick.toml", "top_k = 4\n")
    assert explained(program, *explain, HIPFIRE_PROFILE="quick") == (4, "~/profiles/quick.toml:1", shadows)
    write(program, "models.toml", "[model.mine]\ngeneration.top_k = 5\n")
    assert explained(program, *explain) == (5, "~/models.toml:2", shadows)
    shadows = ["models.toml", *shadows]
    assert explained(program, *explain, HIPFIRE_TOP_K="6") == (6, "HIPFIRE_TOP_K", shadows)
    shadows = ["environment", *shadows]
    command = ("--", "run", "mine", "--top-k", "7", "hello")
    assert explained(program, *explain, *command, HIPFIRE_TOP_K="6") == (7, "--top-k", shadows)


def test_a_card_is_a_source_before_the_model_is_here(program: Program) -> None:
    value, place, shadows = explained(program, "smollm2", "explain", "temperature", "--json")
    assert (value, place, shadows) == (0.0, "the card of smollm2:135m", ["built-in"])


def test_the_port_by_flag_variable_profile_and_file(program: Program) -> None:
    write(program, "config.toml", 'profile = "quick"\nport = 1\n')
    write(program, "profiles/quick.toml", "[serve]\nport = 2\n")
    explain = ("explain", "serve.port", "--json")
    assert explained(program, *explain, HIPFIRE_PROFILE="none") == (1, "~/config.toml:2", ["built-in"])
    assert explained(program, *explain) == (2, "~/profiles/quick.toml:2", ["config.toml", "built-in"])
    _, place, _ = explained(program, *explain, HIPFIRE_PORT="3")
    assert place == "HIPFIRE_PORT"
    assert explained(program, *explain, "--", "serve", "[::1]:4", HIPFIRE_PORT="3") == (
        4,
        "PORT",
        ["environment", "profile", "config.toml", "built-in"],
    )


def test_list_has_every_setting_with_its_source(program: Program) -> None:
    write(program, "config.toml", "[serve]\nport = 8080\napi_keys = ['sk-1', 'sk-2']\n")
    *lines, note = said(program, "list", HIPFIRE_TOP_K="7").splitlines()
    assert note == "a model's card or file may differ: hipfire config MODEL list"
    assert [line.split()[0] for line in lines] == ["key", *SETTINGS]
    rows = {line.split()[0]: line.split(maxsplit=1)[1].split("  ") for line in lines}
    assert [rows["serve.port"][0], rows["serve.port"][-1].strip()] == ["8080", "~/config.toml:2"]
    assert [rows["generation.top_k"][0], rows["generation.top_k"][-1].strip()] == ["7", "HIPFIRE_TOP_K"]
    assert [rows["serve.host"][0], rows["serve.host"][-1].strip()] == ["127.0.0.1", "built-in"]
    document = json.loads(program.run("config", "list", "-j").stdout)
    assert [row["key"] for row in document] == [*SETTINGS]


def test_a_secret_is_shown_nowhere(program: Program) -> None:
    key = "sk-not-for-you"
    assert "sk-" not in said(program, "set", "api_keys", f"{key},{key}2")
    for args in (
        ["list"],
        ["list", "--json"],
        ["get", "api_keys"],
        ["explain", "api_keys"],
        ["explain", "-j", "api_keys"],
    ):
        text = said(program, *args)
        assert "(2 hidden)" in text
        assert key not in text
    assert key in (program.root / "config.toml").read_text()


def test_set_get_and_reset(program: Program) -> None:
    path = write(program, "config.toml", "# mine\r\nport = 1 # why\r\n\r\n[log]\r\nlevel = 'info'\r\n")
    assert said(program, "set", "serve.port", "8080") == "serve.port = 8080 in ~/config.toml\n"
    assert path.read_bytes() == b"# mine\r\nport = 8080 # why\r\n\r\n[log]\r\nlevel = 'info'\r\n"
    assert said(program, "get", "port") == "8080\n"
    assert said(program, "set", "top_k", "-1") == "generation.top_k = -1 in ~/config.toml\n"
    assert said(program, "reset", "log.level") == "log.level is out of ~/config.toml\nin force is info (built-in)\n"
    assert path.read_bytes() == b"# mine\r\nport = 8080 # why\r\n\r\n[generation]\r\ntop_k = -1\r\n"
    assert said(program, "reset", "log.level") == "log.level is not set in ~/config.toml\n"
    said(program, "reset", "--all", "-y")
    assert path.read_bytes().strip() == b"# mine"


def test_set_says_what_comes_first(program: Program) -> None:
    assert said(program, "set", "port", "8080", HIPFIRE_PORT="9") == (
        "serve.port = 8080 in ~/config.toml\nin force is 9 (HIPFIRE_PORT)\n"
    )


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["set", "prot", "1"], "there is no setting 'prot', did you mean serve.port? (see hipfire config set --help)"),
        (
            ["get", "zzz"],
            "there is no setting 'zzz', hipfire config list shows them all (see hipfire config get --help)",
        ),
        (
            ["set", "port", "http"],
            "serve.port must be a whole number from 1 to 65535, not 'http' (see hipfire config set --help)",
        ),
        (["set", "host", "\udcff"], f"serve.host must be UTF-8, not '\\udcff' {SEE_SET}"),
        (
            ["smollm2", "set", "port", "1"],
            f"serve.port is the same for every model, it cannot be set for smollm2:135m alone {SEE_SET}",
        ),
        (["lst"], "there is no command 'lst', did you mean list? (see hipfire config --help)"),
        (["reset"], "give a KEY, or --all (see hipfire config reset --help)"),
        (["reset", "--all"], "nobody is there to ask: -y resets without asking (see hipfire config reset --help)"),
        (
            ["explain", "port", "--", "srve"],
            "there is no command 'srve', did you mean serve? (see hipfire config explain --help)",
        ),
        (
            ["set", "port", "1", "--profile", "x", "y"],
            "got unexpected extra argument (y) (see hipfire config set --help)",
        ),
    ],
)
def test_wrong_use_changes_nothing(args: list[str], error: str, program: Program) -> None:
    assert error_of(program, *args, status=2) == error
    assert not (program.root / "config.toml").exists()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"[serve]\nprot = 1\n", "~/config.toml:2: there is no setting serve.prot (did you mean serve.port?)"),
        (b"[serve]\n\nport = 0\n", "~/config.toml:3: serve.port must be a whole number from 1 to 65535, not 0"),
        (b"[serve]\nport = \n", "~/config.toml:2:8: invalid value"),
        (b"a = 1\n\xff", "~/config.toml:2: this is not UTF-8 (save the file as UTF-8)"),
    ],
)
def test_a_broken_file_stops_commands_with_its_place(data: bytes, error: str, program: Program) -> None:
    write(program, "config.toml", "").write_bytes(data)
    assert error_of(program, "list", status=1) == error


def test_what_is_wrong_can_be_reset_and_set(program: Program) -> None:
    path = write(program, "config.toml", "[serve]\nprot = 1\nhots = 1\nport = 'x'\n")
    assert "serve.prot is out of" in said(program, "reset", "serve.prot")
    assert said(program, "reset", "hots") == "serve.hots is out of ~/config.toml\n"
    assert said(program, "set", "serve.port", "80") == "serve.port = 80 in ~/config.toml\n"
    assert path.read_text() == "[serve]\nport = 80\n"


def test_a_folder_in_the_file_s_place_and_a_root_that_cannot_be_written(program: Program) -> None:
    (program.root / "config.toml").mkdir(parents=True)
    assert error_of(program, "list", status=1) == "cannot read ~/config.toml: Is a directory"
    assert error_of(program, "set", "port", "1", status=1) == "cannot read ~/config.toml: Is a directory"
    shutil.rmtree(program.root)
    program.root.write_text("")
    assert error_of(program, "set", "port", "1", status=1).startswith("cannot write ~/config.toml: ")


def test_two_programs_at_once_lose_nothing(program: Program) -> None:
    keys = [
        "serve.port",
        "serve.max_queue",
        "generation.top_k",
        "memory.max_seq",
        "hardware.threads",
        "serve.max_concurrent",
    ]
    running = [program.start("config", "set", key, "600" if key == "memory.max_seq" else "7") for key in keys]
    assert [process.wait() for process in running] == [0] * len(keys)
    document = {row["key"]: row for row in json.loads(program.run("config", "list", "--json").stdout)}
    assert all(document[key]["source"] == "config.toml" for key in keys)


def test_a_model_has_settings_of_its_own(program: Program, install: Install) -> None:
    install("mine.gguf")
    path = write(program, "models.toml", '# names\n[model.mine]\naliases = ["m"]\n')
    assert said(program, "m", "set", "temperature", "0.7") == (
        'generation.temperature = 0.7 in [model."mine"] of ~/models.toml\n'
    )
    said(program, "smollm2", "set", "max_seq", "4096")
    assert path.read_text() == (
        '# names\n[model.mine]\naliases = ["m"]\n\n[model.mine.generation]\ntemperature = 0.7\n\n'
        '[model."smollm2:135m".memory]\nmax_seq = 4096\n'
    )
    assert said(program, "mine", "get", "temperature") == "0.7\n"
    assert said(program, "get", "temperature") == "0.3\n"
    lines = said(program, "mine", "list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [key for key, setting in SETTINGS.items() if setting.per_model]
    said(program, "m", "reset", "--all", "-y")
    assert path.read_text().startswith('# names\n[model.mine]\naliases = ["m"]\n\n[model."smollm2:135m".memory]')


def test_an_unknown_model_is_told(program: Program) -> None:
    error = error_of(program, "smolm2", "set", "temperature", "0.7", status=1)
    assert error == "there is no model 'smolm2' (did you mean smollm2:135m?)"


def test_profiles(program: Program) -> None:
    assert "there are no profiles" in said(program, "profile", "list")
    create = ("profile", "create", "quiet", "port=81", "log.level=error")
    assert said(program, *create) == (
        "the profile quiet is in ~/profiles/quiet.toml; hipfire config profile set quiet chooses it\n"
    )
    assert error_of(program, *create, status=1).startswith("there is a profile quiet already: ~/profiles/quiet.toml")
    assert said(program, "profile", "show", "quiet") == "serve.port  81\nlog.level   error\n"
    assert said(program, "profile", "list") == "quiet  2 settings\n"
    assert said(program, "profile", "set", "quiet") == "the profile quiet is in force\n"
    assert said(program, "profile", "list") == "quiet  2 settings  in force\n"
    assert said(program, "get", "port") == "81\n"
    assert said(program, "set", "--profile", "quiet", "port", "82") == "serve.port = 82 in ~/profiles/quiet.toml\n"
    assert said(program, "set", "port", "83") == (
        "serve.port = 83 in ~/config.toml\nin force is 82 (~/profiles/quiet.toml:2)\n"
    )
    assert said(program, "profile", "set", "none") == "no profile is in force\n"
    assert said(program, "get", "port") == "83\n"


@pytest.mark.parametrize(
    ("args", "error", "status"),
    [
        (["profile", "set", "zzz"], "there is no profile zzz (there are none)", 1),
        (["profile", "create", "../x"], "'../x' is no name for a profile (letters, digits, - and _, and not none)", 1),
        (
            ["profile", "create", "x", "profile=y"],
            "a profile cannot name a profile (hipfire config profile set NAME)",
            1,
        ),
        (
            ["profile", "create", "x", "port"],
            "'port' is not KEY=VALUE with a setting's key (see hipfire config profile create --help)",
            2,
        ),
        (["set", "--profile", "zzz", "port", "1"], "there is no profile zzz (there are none)", 1),
        (["set", "profile", "zzz"], "there is no profile zzz (there are none)", 1),
        (["set", "profile", ""], "'' is no name for a profile (letters, digits, - and _, and not none)", 1),
    ],
)
def test_profile_mistakes(args: list[str], error: str, status: int, program: Program) -> None:
    assert error_of(program, *args, status=status) == error
    assert not (program.root / "profiles").exists()
    assert not (program.root / "config.toml").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hipfire config ", {"plain,list", "plain,set", "plain,smollm2:135m"}),
        ("hipfire config smollm2:135m se", {"plain,set"}),
        ("hipfire config set serve.po", {"plain,serve.port"}),
        ("hipfire config set prefix_cache ", {"plain,true", "plain,false"}),
        ("hipfire config set log.level w", {"plain,warning"}),
    ],
)
def test_completion(words: str, expected: set[str], program: Program) -> None:
    done = program.run(_HIPFIRE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1))
    assert expected <= set(done.stdout.splitlines())
