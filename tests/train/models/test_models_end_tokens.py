"""End tokens that a model's files name."""

from corrgrpo_train.models.end_tokens import end_tokens


def test_end_tokens_are_those_of_the_generation_settings(tmp_path):
    assert end_tokens("") == end_tokens(str(tmp_path)) == ()
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert end_tokens(str(tmp_path)) == (7, 9)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
    assert end_tokens(str(tmp_path)) == (5,)
