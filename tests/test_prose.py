"""Sentences of the documentation and of public docstrings have a verb, and none of some metaphors."""

import prose
import pytest


def test_the_documentation() -> None:
    assert list(prose.findings()) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Six calls, each of another kind.",
        "The size of the result.",
        "Whole arrays, row by row.",
        "A list of all names.",
    ],
)
def test_a_sentence_without_a_verb_is_found(sentence: str) -> None:
    assert not prose.has_verb(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Give it the shape.",
        "It calls the function.",
        "A call returns nothing.",
        "Arrays aren't copied.",
        "X runs the tests.",
    ],
)
def test_verbs_are_found(sentence: str) -> None:
    assert prose.has_verb(sentence)


def test_pages_become_sentences() -> None:
    page = """
# A heading.

First line
of two. **Bold.** See [the link](page.md), `code.py`!

- an item
- One that ends.

| a | table. |
```python
no = "sentence."
```
![A caption.](picture.png)
"""
    found = list(prose.sentences(page))
    assert found == ["First line of two.", "Bold.", "See the link, X!", "One that ends."]


def test_metaphors_are_found() -> None:
    for text in ("It lives in the cache.", "The driver is told so.", "Arguments stretch over the call."):
        assert prose.METAPHORS.search(text)
    assert any(text.endswith("the best one that is here") for _, text in prose.messages())
    assert not prose.METAPHORS.search("Tell whether a tensor is delivered and retold.")
