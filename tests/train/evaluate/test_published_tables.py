"""The published tables, checked by the sums that the papers' own rows obey."""

import pytest

from corrgrpo_train.evaluate.benchmarks import BENCHMARKS
from corrgrpo_train.evaluate.published import published_tables, tables_about

TABLES = published_tables()


def rows(number, environment=""):
    """Rows of a table as dicts by heading."""
    (table,) = [
        t for t in TABLES if t.number == number and (not environment or t.columns[0].environment == environment)
    ]
    titles = [column.title for column in table.columns]
    return {row.label: dict(zip(titles, row.values, strict=True)) for row in table.rows}


def test_all_tables_are_there():
    sizes = [(table.number, len(table.columns), len(table.rows)) for table in TABLES]
    assert sizes == [
        *((1, 7, 16), (2, 9, 9), (3, 4, 9), (3, 4, 9), (3, 5, 9)),
        *((4, 4, 9), (5, 3, 10), (6, 2, 11), (7, 5, 13), (8, 7, 6)),
    ]
    for table in TABLES:
        assert all(len(row.values) == len(table.columns) for row in table.rows)
        assert all(0 <= value <= 100 for row in table.rows for value in row.values)
        assert table.protocol
        assert "arXiv" in table.source


def test_columns_name_measures_that_are_computed_here():
    for table in TABLES:
        for column in table.columns:
            if column.environment:
                assert column.measure in BENCHMARKS[column.environment].titles
            else:
                assert column.measure in ("code_average", "overall")


@pytest.mark.parametrize("number", [1, 8])
def test_code_averages_are_means_of_the_four(number):
    for label, row in rows(number).items():
        mean = (row["LeetCode"] + row["HumanEval"] + row["MBPP"] + row["LCB v6"]) / 4
        assert row["Avg."] == pytest.approx(mean, abs=0.0101), label


def test_tool_averages_are_means():
    for label, row in rows(2).items():
        assert row["API avg."] == pytest.approx((row["V1"] + row["V2"] + row["V3"]) / 3, abs=0.0101), label
        assert row["Overall"] == pytest.approx((row["All exact"] + row["API avg."]) / 2, abs=0.0101), label


def test_shares_are_of_the_published_numbers_of_tasks():
    for row in rows(1).values():
        for title, count in (("LeetCode", 228), ("Exec.", 228), ("HumanEval", 164), ("MBPP", 500), ("LCB v6", 175)):
            assert abs(row[title] * count / 100 - round(row[title] * count / 100)) < 0.02, title
    for row in rows(2).values():
        assert abs(row["All exact"] * 71 / 100 - round(row["All exact"] * 71 / 100)) < 0.01
    for row in rows(3, "AgentDojo-v0").values():
        assert abs(row["clean utility"] * 21 / 100 - round(row["clean utility"] * 21 / 100)) < 0.01


def test_rows_that_stand_in_two_tables_are_equal():
    assert rows(8)["7B GDPO"] == rows(1)["7B GDPO"]
    for label in ("base", "GRPO", "CorrGRPO"):
        one, other = rows(4)[f"Qwen2.5-Coder-7B-Instruct {label}"], rows(1)[f"7B {label}"]
        assert one == {
            "HumanEval": other["HumanEval"],
            "MBPP": other["MBPP"],
            "LiveCodeBench": other["LCB v6"],
            "LeetCode": other["LeetCode"],
        }


def test_some_values():
    assert rows(1)["7B CorrGRPO"]["LeetCode"] == 24.12
    assert rows(3, "AgentDojo-v0")["Qwen2.5-3B CorrGRPO"]["Joint"] == 89.62
    assert rows(3, "ASB-v0")["Qwen2.5-7B base"]["ASR"] == 33.25
    assert rows(3, "InjecAgent-v0")["Qwen3-8B CorrGRPO"]["S2"] == 74.19
    assert rows(5)["GPT-4o (± 3.61, 3.91, 3.90)"] == {
        "clean utility": 69.00,
        "utility under attack": 50.08,
        "ASR": 47.69,
    }
    assert rows(6)["Mixtral-8x7B"] == {"clean utility": 0.0, "OPI ASR": 4.8}
    assert rows(7)["Llama2-70B"]["overall"] == 86.9


def test_tables_about_an_environment():
    assert [table.number for table in tables_about(["ASB-v0"])] == [3, 6]
    assert [table.number for table in tables_about(["MBPP-v0"])] == [1, 4, 8]
    assert tables_about(["CorrelatedBandit-v0"]) == []
