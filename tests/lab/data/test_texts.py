"""Texts: windows of characters and their answers, the last tenth apart, one in every install."""

import numpy as np
import pytest
from click.testing import CliRunner

import jaxarch
from jaxarch.lab import cli
from jaxarch.lab.data import load, load_examples, load_images, load_text, text, text_from_bytes


def test_tiny_shakespeare_is_whole_and_in_every_install():
    plays = load_text("tiny-shakespeare", length=32)
    assert plays.characters == b"\n !$&',-.3:;?" + bytes(range(65, 91)) + bytes(range(97, 123))
    first = bytes(plays.characters[token] for token in plays.x[0])
    assert first == b"First Citizen:\nBefore we proceed"


@pytest.mark.parametrize("content", [b"", b"BZh9 damaged"])
def test_another_file_in_its_place_is_refused(content, tmp_path, monkeypatch):
    file = tmp_path / "plays.bz2"
    file.write_bytes(content)
    monkeypatch.setattr(text, "FILE", file)
    with pytest.raises(jaxarch.ArgumentError, match="is missing, truncated or altered"):
        text.tiny_shakespeare()


def test_each_answer_is_the_character_after_a_token_and_the_test_shares_none_with_the_training():
    numbers = bytes(range(200))
    cut = text_from_bytes(numbers, length=4)
    assert cut.characters == numbers
    np.testing.assert_array_equal(cut.y, cut.x + 1)
    seen = [
        set(np.concatenate([part[0].ravel(), part[1].ravel()]).tolist())
        for part in ((cut.x[: cut.train], cut.y[: cut.train]), (cut.x[cut.train :], cut.y[cut.train :]))
    ]
    assert not seen[0] & seen[1]
    assert min(seen[1]) == 180


@pytest.mark.parametrize(
    ("content", "length", "message"),
    [
        ("words", 2, r"text: expected bytes, got 'words'; a str has encode\(\)"),
        (b"ab" * 20, 0, "length: expected"),
        (b"ab" * 20, 4, "text: mine has 40 characters; expected at least 50, for a window of 4"),
        (b"a" * 50, 4, "text: mine has a single character, b'a', again and again"),
    ],
)
def test_what_cannot_be_cut_is_refused(content, length, message):
    with pytest.raises(jaxarch.ArgumentError, match=message):
        text_from_bytes(content, length, "mine")


def test_the_shortest_text_has_a_window_to_test_on():
    cut = text_from_bytes(b"ab" * 25, length=4)
    assert len(cut.x) - cut.train == 1


def test_a_file_of_the_user_s_is_a_text_by_its_name(tmp_path):
    (tmp_path / "mine.txt").write_text("ab" * 25)
    mine = load_text(tmp_path / "mine.txt", length=4)
    assert mine.name == "mine"
    assert mine.characters == b"ab"
    shown = CliRunner().invoke(cli.app, ["data", str(tmp_path / "mine.txt")]).output
    assert "2 distinct ones: 'ab'" in shown


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(jaxarch.ArgumentError, match=r"dataset: cannot read '.*mine.txt' \(No such file"):
        load_text(tmp_path / "mine.txt", length=4)


def test_what_is_no_text_is_refused_with_those_that_are():
    with pytest.raises(
        jaxarch.ArgumentError, match=r"dataset: 'digits' is no text; expected tiny-shakespeare or a file FILE"
    ):
        load_text("digits", length=4)


@pytest.mark.parametrize("read", [load, load_images, load_examples])
def test_a_text_is_neither_features_nor_pictures(read, tmp_path):
    (tmp_path / "mine.TXT").write_text("words")
    for name in ("tiny-shakespeare", str(tmp_path / "mine.TXT")):
        with pytest.raises(jaxarch.ArgumentError, match=f"{name[-8:]}' is a text, not pictures or features"):
            read(name)
