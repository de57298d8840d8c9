import pytest

from hipfire.catalog.hub_name import HubName, choose_files, parse_hub_name, quant_of
from hipfire.catalog.registry import HubFile
from hipfire.errors import DownloadError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hf:owner/repo", HubName(repo="owner/repo")),
        ("hf:owner/repo-1.5_GGUF:Q4_K_M", HubName(repo="owner/repo-1.5_GGUF", quant="Q4_K_M")),
        ("hf:owner/repo:UD-Q4_K_XL", HubName(repo="owner/repo", quant="UD-Q4_K_XL")),
        ("hf:owner/repo/sub/a b.gguf", None),
        ("hf:owner/repo/sub/a.gguf", HubName(repo="owner/repo", path="sub/a.gguf")),
        ("hf:owner/repo@refs/pr/1:F16", HubName(repo="owner/repo", revision="refs/pr/1", quant="F16")),
        ("hf:owner/repo@abc", HubName(repo="owner/repo", revision="abc")),
        ("hf:owner/repo@abc/a.gguf", HubName(repo="owner/repo", revision="abc", path="a.gguf")),
        ("hf:owner", None),
        ("hf:", None),
        ("hf:a/b/c", None),
        ("hf:owner/repo/../x.safetensors", None),
        ("hf:owner/repo:", None),
    ],
)
def test_a_name_tells_repository_revision_and_which(text: str, name: HubName | None) -> None:
    if name is None:
        with pytest.raises(DownloadError, match=r"names no model of the hub .*hf:owner/repo:Q4_K_M"):
            parse_hub_name(text)
    else:
        assert parse_hub_name(text) == name
        assert str(name) == text


def test_any_other_name_is_none_of_the_hub() -> None:
    assert parse_hub_name("smollm2:135m") is None
    assert parse_hub_name("./hf:x") is None


@pytest.mark.parametrize(
    ("file", "quant"),
    [
        ("a-Q4_K_M.gguf", "Q4_K_M"),
        ("a.i1-iq4_xs.gguf", "IQ4_XS"),
        ("dir/a-UD-Q4_K_XL-00001-of-00005.gguf", "UD-Q4_K_XL"),
        ("a.BF16.gguf", "BF16"),
        ("a-mxfp4_moe.gguf", "MXFP4_MOE"),
        ("model.gguf", ""),
    ],
)
def test_the_quantisation_ends_a_file_s_name(file: str, quant: str) -> None:
    assert quant_of(file) == quant


FILES = [
    "README.md",
    "mmproj-F16.gguf",
    "m-Q8_0.gguf",
    "m-Q4_K_M.gguf",
    "m-UD-Q4_K_M.gguf",
    "m-UD-Q5_K_M.gguf",
    "BF16/m-BF16-00002-of-00002.gguf",
    "BF16/m-BF16-00001-of-00002.gguf",
]


def chosen(text: str, files: list[str] = FILES) -> list[str]:
    name = parse_hub_name(text)
    assert name is not None
    return [file.path for file in choose_files(name, [HubFile(path=path) for path in files])]


def test_a_quantisation_means_its_file_or_all_its_parts() -> None:
    assert chosen("hf:o/m:q8_0") == ["m-Q8_0.gguf"]
    assert chosen("hf:o/m:Q4_K_M") == ["m-Q4_K_M.gguf"]
    assert chosen("hf:o/m:UD-Q4_K_M") == ["m-UD-Q4_K_M.gguf"]
    assert chosen("hf:o/m:Q5_K_M") == ["m-UD-Q5_K_M.gguf"]
    parts = ["BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"]
    assert chosen("hf:o/m:BF16") == parts
    assert chosen("hf:o/m/BF16/m-BF16-00002-of-00002.gguf") == parts


def test_without_one_it_is_q4_k_m_or_the_only_model() -> None:
    assert chosen("hf:o/m") == ["m-Q4_K_M.gguf"]
    assert chosen("hf:o/m", ["a.gguf", "mmproj-a.gguf", ".gguf"]) == ["a.gguf"]


def test_what_cannot_be_told_is_listed() -> None:
    with pytest.raises(
        DownloadError, match=r"has no such model: BF16, Q4_K_M, Q8_0, UD-Q4_K_M, UD-Q5_K_M .*hf:o/m: and"
    ):
        chosen("hf:o/m:Q2_K")
    with pytest.raises(DownloadError, match=r"has several models: Q3_K_M, Q8_0"):
        chosen("hf:o/m", ["a-Q8_0.gguf", "a-Q3_K_M.gguf"])
    with pytest.raises(DownloadError, match="has no GGUF files"):
        chosen("hf:o/m", ["model.safetensors"])
    with pytest.raises(DownloadError, match=r"m-BF16 has 00002 parts, of which the hub has 1"):
        chosen("hf:o/m", FILES[:-1])
