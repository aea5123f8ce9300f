import datetime
import gzip
import importlib
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from corrgrpo_envs import DatasetError, Row, drawn_split, read_rows, schema_error, split_of

ROWS = [
    {"id": "a", "text": "é\u2028\x85 \ud83d\ude00", "n": 1, "list": [1, {"x": None}]},
    {"id": "b", "text": "", "n": 2, "list": []},
    {"id": "c", "text": "line\nline", "n": 3, "list": [{"x": "y"}]},
]
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "surrogatepass")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path
    data = json.dumps(rows).encode() if ".json." in path.name + "." else jsonl(rows)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def plain():
    rows = [dict(row) for row in ROWS]
    rows[0]["text"] = "é\u2028\x85 😀"  # no lone surrogates: UTF-8 has none
    return rows


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.json.gz", "x.jsonl.gz", "X.JSONL"])
def test_text_formats(tmp_path, plain, name):
    rows = read_rows(write(tmp_path / name, plain))
    assert [dict(row) for row in rows] == plain
    assert [(row.source, row.number) for row in rows] == [(name, 1), (name, 2), (name, 3)]


def test_parquet(tmp_path):
    rows = [{"id": "a", "n": 1, "nested": {"x": [1, 2]}}, {"id": "b", "n": 2, "nested": {"x": []}}]
    assert [dict(row) for row in read_rows(write(tmp_path / "x.parquet", rows))] == rows


def test_odds_and_ends_of_json(tmp_path):
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + json.dumps([{"a": 1}]).encode())
    assert dict(read_rows(tmp_path / "bom.json")[0]) == {"a": 1}
    (tmp_path / "lines.json").write_bytes(jsonl([{"a": 1}, {"a": 2}]))
    assert [row["a"] for row in read_rows(tmp_path / "lines.json")] == [1, 2]
    (tmp_path / "blank.jsonl").write_text('\n{"a": 1}\r\n\n  \n{"a": 2}')
    assert [(row.number, row["a"]) for row in read_rows(tmp_path / "blank.jsonl")] == [(2, 1), (5, 2)]
    (tmp_path / "lone.jsonl").write_text('{"a": "\\ud800"}')
    assert read_rows(tmp_path / "lone.jsonl")[0]["a"] == "\ud800"


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=3), min_size=1, max_size=5))
@settings(max_examples=30)
def test_any_objects_come_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "x.jsonl"
    path.write_bytes(jsonl(rows))
    assert [dict(row) for row in read_rows(path)] == rows


def test_a_folder_tells_the_splits(tmp_path):
    for name in ("train.jsonl", "dev.json", "deep/er/test-0001.jsonl.gz", "README.md", ".hidden.json"):
        write(tmp_path / name, [{"file": name}])
    write(tmp_path / ".cache" / "train.jsonl", [{"file": "cache"}])
    rows = read_rows(tmp_path)
    found = {row["file"]: split_of(row, row.source, "id") for row in rows}
    assert found == {"train.jsonl": "train", "dev.json": "validation", "deep/er/test-0001.jsonl.gz": "test"}
    assert {row.source for row in rows} == set(found)
    assert [row["file"] for row in read_rows(tmp_path, split="validation")] == ["dev.json"]
    assert len(read_rows(tmp_path, split="all")) == 3


def test_a_folder_in_the_hubs_layout(tmp_path):
    for split in ("train", "validation", "test"):
        name = f"data/{split}-00000-of-00001-0123abcd.parquet"
        write(tmp_path / name, [{"id": f"{split} {i}", "n": i} for i in range(3)])
    (tmp_path / "README.md").write_text("---\nconfigs:\n- config_name: default\n---\n")
    (tmp_path / "dataset_infos.json").write_text('{"default": {}}')
    rows = read_rows(str(tmp_path))
    assert len(rows) == 9
    assert all(split_of(row, row.source, row["id"]) == row["id"].split()[0] for row in rows)


def test_a_folder_saved_by_the_datasets_library(tmp_path):
    library = pytest.importorskip("datasets")
    parts = {name: library.Dataset.from_list([{"id": f"{name} {i}"} for i in range(4)]) for name in ("train", "test")}
    library.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    rows = read_rows(tmp_path / "saved")
    assert sorted(row["id"] for row in rows) == sorted(f"{name} {i}" for name in ("train", "test") for i in range(4))
    assert all(split_of(row, row.source, row["id"]) == row["id"].split()[0] for row in rows)


def test_the_home_folder(tmp_path, monkeypatch):
    write(tmp_path / "x.jsonl", [{"a": 1}])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(read_rows("~/x.jsonl")) == 1


# ---- splits ----


@pytest.mark.parametrize(
    ("source", "split"),
    [
        ("train.jsonl", "train"),
        ("TRAIN.parquet", "train"),
        ("LeetCodeDataset-v0.2.0-train.jsonl.gz", "train"),
        ("rlla_val.json", "validation"),
        ("valid.json", "validation"),
        ("dev_1.json", "validation"),
        ("validation-00000-of-00001.parquet", "validation"),
        ("test/part-0.jsonl", "test"),
        ("train/test.jsonl", "test"),
        ("lab/test-suite#train", "train"),
        ("lab/test-suite:test@v1#validation", "validation"),
    ],
)
def test_split_by_file_name(source, split):
    assert split_of({}, source, "any id") == split
    assert split_of({"split": None}, source, "any id") == split
    assert split_of({"split": ""}, source, "any id") == split


@pytest.mark.parametrize("source", ["data.json", "latest.json", "trainer.json", "train_test.json", "contest/a.json"])
def test_names_that_tell_nothing_leave_it_to_the_hash(source):
    for i in range(30):
        assert split_of({}, source, f"id {i}") == drawn_split(f"id {i}")
    assert split_of({}, "lab/test-suite#everything", "id 1") == drawn_split("id 1")


@pytest.mark.parametrize(
    ("field", "split"), [("train", "train"), ("dev", "validation"), (" Test ", "test"), ("val", "validation")]
)
def test_the_field_goes_first(field, split):
    assert split_of({"split": field}, "train.jsonl", "x") == split


@pytest.mark.parametrize("field", ["english", 3, ["train"], "all"])
def test_a_field_that_is_no_split(tmp_path, field):
    row = read_rows(write(tmp_path / "x.jsonl", [{"a": 1}, {"split": field}]))[1]
    with pytest.raises(DatasetError, match=r"x\.jsonl, row 2: field 'split' must be 'train' or 'validation' or 'test'"):
        split_of(row, row.source, "x")


def test_rows_of_another_split_are_left_out(tmp_path):
    rows = [{"id": 0, "split": "test"}, {"id": 1, "split": "train"}, {"id": 2}]
    write(tmp_path / "train.jsonl", rows)
    write(tmp_path / "more.jsonl", [{"id": 3}, {"id": 4, "split": "dev"}])
    assert sorted(row["id"] for row in read_rows(tmp_path, split="train")) == [1, 2, 3]
    assert sorted(row["id"] for row in read_rows(tmp_path, split="validation")) == [3, 4]
    with pytest.raises(ValueError, match=r"split 'dev' is unknown.*'validation'"):
        read_rows(tmp_path, split="dev")


# ---- rows ----


def test_a_row_is_a_read_only_mapping():
    row = Row({"a": 1, "b": None}, "x.json", 4)
    assert dict(row) == {"a": 1, "b": None}
    assert row.get("c") is None
    assert "c" not in row
    with pytest.raises(KeyError):
        row["c"]
    with pytest.raises(TypeError):
        row["a"] = 2
    assert repr(row) == "Row('x.json', 4, {'a': 1, 'b': None})"


@pytest.mark.parametrize(
    ("value", "kind"),
    [("x", str), (3, int), (3.5, float), (3, float), (True, bool), ([1], list), ({"a": 1}, dict)],
)
def test_required_fields_of_the_right_kind(value, kind):
    got = Row({"f": value}, "x.json", 1).require("f", kind)
    assert got == value
    assert type(got) is kind


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (3, str, "must be a text, found a whole number: 3"),
        (None, str, "must be a text, found null"),
        ("3", int, "must be a whole number, found a text: '3'"),
        (True, int, "must be a whole number, found true or false: True"),
        (True, float, "must be a number, found true or false"),
        (1, bool, "must be true or false, found a whole number: 1"),
        (1.5, int, "must be a whole number, found a number: 1.5"),
        ({"a": 1}, list, "must be a list, found an object"),
        (datetime.date(2020, 1, 1), str, "must be a text, found date"),
        ("x" * 10**6, list, "must be a list, found a text: 'xxx"),
    ],
)
def test_required_fields_of_a_wrong_kind(value, kind, words):
    with pytest.raises(DatasetError, match="x.json, row 7: field 'f' " + words) as error:
        Row({"f": value}, "x.json", 7).require("f", kind)
    assert len(str(error.value)) < 400


def test_missing_fields():
    row = Row({"prompt": "x", "answer": None}, "x.json", 7)
    with pytest.raises(DatasetError, match=r"row 7: field 'promt' \(a text\) is missing; .*Did you mean 'prompt'"):
        row.require("promt", str)
    assert row.require("hint", str, "none") == "none"
    assert row.require("answer", str, "none") == "none"
    assert row.require("hint", str, None) is None
    with pytest.raises(DatasetError, match="found a text"):
        row.require("prompt", int, 3)


def test_schema_errors_of_nested_fields():
    error = schema_error("a/b.json", 3, "tests[2].input", "a list of texts", 5)
    assert str(error) == "a/b.json, row 3: field 'tests[2].input' must be a list of texts, found a whole number: 5"


# ---- what can be wrong with files ----


def bad(name, data):
    return pytest.param(name, data, id=name)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("empty.json", b"", "the file is empty"),
        ("empty.parquet", b"", "the file is empty"),
        ("blank.jsonl", b"\n \n", "no rows"),
        ("none.json", b"[]", "no rows"),
        ("bad.json", b'[{"a": 1},\n {"a" 2}]', r"line 2, column 7: not JSON: Expecting ':'"),
        ("bad.jsonl", b'{"a": 1}\n{"a": \n', "line 2, column 7: not JSON"),
        ("half.json", b'[{"a": 1}, {"a": ', "not JSON"),
        ("object.json", b'{"data": []}', r"must be a list of objects, found \{'data': \[\]\}"),
        ("text.json", b'"x"', "must be a list of objects"),
        ("texts.json", b'[{"a": 1}, "x"]', "row 2: must be an object, found 'x'"),
        ("lists.jsonl", b'{"a": 1}\n\n[1]\n', r"row 3: must be an object, found \[1\]"),
        ("deep.json", b"[" * 200_000, "nested too deeply"),
        ("deep.jsonl", b'{"a": 1}\n' + b"[" * 200_000, "line 2, not usable JSON: nested too deeply"),
        ("digits.json", b"[" + b"9" * 5000 + b"]", "not usable JSON"),
        (
            "latin.json",
            '[{"a": "é"}]'.encode("latin-1"),
            "not UTF-8 text: byte 0xe9 at position 8; save it as UTF-8",
        ),
        ("wide.json", '[{"a": "é"}]'.encode("utf-16"), "not UTF-8 text: byte 0xff at position 0"),
        ("cut.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 1000, mtime=0)[:-12], "gzip file is cut off"),
        ("not.json.gz", b'[{"a": 1}]', "not a sound gzip file"),
        ("torn.json.gz", gzip.compress(b"x" * 99, mtime=0)[:15] + b"\xff" * 9, "gzip file"),
        ("not.parquet", b"PAR1 is not enough", "not a sound Parquet file"),
        ("not.arrow", b"something else", "not a sound Arrow stream"),
        ("table.csv", b"a,b\n1,2\n", r"can't be read; allowed: \.json"),
    ],
)
def test_bad_files_are_one_clear_line(tmp_path, name, data, words):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=words) as error:
        read_rows(path)
    assert str(error.value).startswith(f"{name}: ")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    if path.suffix != ".csv":
        write(tmp_path / "sound.jsonl", [{"a": 1}])
        with pytest.raises(DatasetError, match=name):
            read_rows(tmp_path)


def test_folders_without_data(tmp_path):
    (tmp_path / "README.md").write_text("nothing")
    with pytest.raises(DatasetError, match=r"has no data files \(\.json"):
        read_rows(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_files_that_may_not_be_read(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"a": 1}])
    path.chmod(0)
    with pytest.raises(DatasetError, match="can't be read: Permission denied"):
        read_rows(path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("trian.jsonl", "Did you mean 'train.jsonl'"),
        ("data/tset.json", r"Did you mean 'test.json'\? \(in 'data'\)"),
        ("dta/test.json", "Did you mean 'data'"),
        ("dta/deeper/test.jsonl", "Did you mean 'data'"),
        ("buildin", "Did you mean 'builtin'"),
        ("nothing-alike", "does not exist: not 'builtin', a file, a folder or a hub id 'owner/name'"),
        ("x" * 5000, "does not exist"),
        ("\ud800/\x00", "does not exist"),
        ("", "does not exist"),
    ],
)
def test_missing_files_name_the_nearest(tmp_path, monkeypatch, given, words):
    write(tmp_path / "train.jsonl", [{"a": 1}])
    write(tmp_path / "data" / "test.json", [{"a": 1}])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match=words) as error:
        read_rows(given)
    str(error.value).encode()
    if given.startswith(("trian", "data")):
        with pytest.raises(DatasetError, match=words.split(r"\?")[0]):
            read_rows(tmp_path / given)


def test_rows_are_read_once_until_the_file_changes(tmp_path, monkeypatch):
    path = write(tmp_path / "x.jsonl", [{"a": [1]}])
    first = read_rows(path)[0]["a"]
    assert read_rows(path)[0]["a"] is first
    monkeypatch.chdir(tmp_path)
    assert read_rows("x.jsonl")[0]["a"] is first
    assert read_rows(tmp_path)[0]["a"] is first
    write(path, [{"a": [1]}, {"a": [2]}])
    assert [row["a"] for row in read_rows(path)] == [[1], [2]]
    os.utime(path, ns=(1, 1))
    assert read_rows(path)[0]["a"] is not first


# ---- the hub ----


class Part:
    def __init__(self, rows):
        self.rows = rows

    def to_list(self):
        return self.rows


def hub(monkeypatch, load_dataset):
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))


def test_hub_ids(monkeypatch):
    asked = []

    def load_dataset(*args, **kwargs):
        asked.append((args, kwargs))
        return {"train": Part([{"a": 1}, {"a": 2}]), "dev": Part([{"a": 3}])}

    hub(monkeypatch, load_dataset)
    rows = read_rows("lab/test-set:main@v1.0")
    assert asked == [(("lab/test-set", "main"), {"revision": "v1.0"})]
    assert [(row["a"], row.source, row.number) for row in rows] == [
        (1, "lab/test-set#train", 1),
        (2, "lab/test-set#train", 2),
        (3, "lab/test-set#dev", 1),
    ]
    assert [split_of(row, row.source, "x") for row in rows] == ["train", "train", "validation"]
    assert [row["a"] for row in read_rows("lab/test-set:main@v1.0", split="validation")] == [3]
    assert len(asked) == 1
    read_rows("lab/test-set")
    assert asked[1:] == [(("lab/test-set", None), {"revision": None})]


def test_a_hub_that_fails_is_one_line(monkeypatch):
    def load_dataset(*args, **kwargs):
        raise ConnectionError("Couldn't reach it\nand " + "x" * 5000)

    hub(monkeypatch, load_dataset)
    with pytest.raises(DatasetError, match="data set 'lab/broken' can't be read from the hub: Couldn't reach") as error:
        read_rows("lab/broken")
    assert "\n" not in str(error.value)
    assert "give the folder's path" in str(error.value)
    assert len(str(error.value)) < 500


def test_a_hub_data_set_without_rows(monkeypatch):
    hub(monkeypatch, lambda *args, **kwargs: {"train": Part([])})
    with pytest.raises(DatasetError, match="has no rows"):
        read_rows("lab/empty")


def test_without_the_library_the_pip_command_is_named(monkeypatch):
    real = importlib.import_module

    def absent(name, *args):
        if name == "datasets":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"'lab/anything' is no path here, .*pip install 'corrgrpo\[hub\]'"):
        read_rows("lab/anything")


def test_the_library_offline():
    pytest.importorskip("datasets")
    code = "from corrgrpo_envs import read_rows; read_rows('corrgrpo-tests/no-such-data-set')"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    last = run.stderr.strip().splitlines()[-1]
    assert "DatasetError: data set 'corrgrpo-tests/no-such-data-set' can't be read from the hub" in last


# ---- upstream files ----


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("humaneval/HumanEval.jsonl.gz", 164),
        ("mbpp/mbpp.jsonl", 974),
        ("mbpp/sanitized-mbpp.json", 427),
        ("rlla/test.parquet", 80),
        ("asb/all_attack_tools.jsonl", 400),
        ("injecagent/test_cases_dh_base.json", 510),
        ("api_bank/level-1-api_processed.json", 399),
    ],
)
def test_upstream_files(name, count):
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is not here")
    assert len(read_rows(DATA / name)) == count
