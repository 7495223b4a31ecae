"""List sentences without a verb, and some metaphors, in the documentation, in public docstrings and in messages.

    python codegen/tools/prose.py

A sentence has a verb if one of its words is a form of ``_VERBS``, which were collected from the texts themselves.
Forms that are nouns as well (``_ALSO_NOUNS``: calls, results) count where the word in front or behind makes a verb
likely. What is no sentence by its kind is left out: headings, tables, captions, items of lists without a full stop,
the first lines of classes and properties, and the sections of parameters in docstrings. Errors in both directions are
possible: a sentence whose only "verb" is a noun passes, and a verb that is not listed here is reported until it is.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "codegen")]

METAPHORS = re.compile(
    r"\b(guests?|feeds?|feeding|rooms?|stretch(?:es|ed|ing)?|speaks?|speaking|talks?|talking|lives?|living|happy|happily|"
    r"tells?(?! whether)|telling|told|bears?|handed|hands? (?:over|out|back)|swallows?|swallowed|(?<!cell )magic|"
    r"under the hood|out of the box|heavy lifting|first-class)\b",
    re.IGNORECASE,
)
# A list of changes, and pages that programs write.
_WITHOUT_VERBS = ("CHANGELOG.md", "docs/benchmarks.md", "docs/reference/slang.md")
_IRREGULAR = """
am are be became become becomes been began begin begins begun being bound broke broken brought built came can cannot
chose chosen cost costs could cut cuts did do does done drawn drew fallen fell felt fit fits found gave given gives
go goes gone got grew grown had has have held hid hit hits is kept knew known laid lain lay led left let lets lies
lost made may means meant met might must need needs paid put ran reads rose run runs said saw seen sent set sets
shall should shown spent split stood swept taken taught think thought threw took understood was went were will won
would written wrote
"""
_VERBS = """
accept adapt add agree allow answer appear apply arrange arrive ask assume avoid belong bias bind break brighten
bring build calculate cancel carry catch cause choose clamp clear clip close collect combine come commit compare
compile complain compress compute consist contain continue convert count cover crash create decide declare decrease
define delete depend derive describe differ disappear dispatch divide draw drop emit enlarge ensure enter equal
erase evaluate exceed execute exist expect explain expose extend fail fall fetch fill find finish fix flatten fold
follow forbid forget free gather generate get give grow guess hang happen have hear help hold honour ignore imitate
imply import include increase indicate infer inherit initialize insert install interpolate interrupt introduce
invert involve iterate join keep know lack last launch lead learn leave lend lie load lock look lose make map mark
match mean measure meet merge minimize mirror miss modify move multiply name need note notice occur omit open opens
order overlap overwrite own pack pad pair pass paste pay perform permit pick place play point poll pose possess
prefer prepare prevent print process produce promise prove provide publish push quote raise rank reach react read
receive recognize record reduce refer refuse register reject release rely remain remember remove render repeat
replace report require reset resolve respect restart retain return reuse reveal rewrite rise root round run save say
scale search see seem select send separate serve settle share show sign simplify simulate skip sort speak stand
start stay stop store submit subtract suggest suit sum supply support survive swap switch sync synchronize take tell
test think throw tie touch track train translate transpose travel treat trigger trust try tune turn understand
unload unpack update upload use vary verify view visit wait walk want warn watch win work wrap write yield
"""
_ALSO_NOUNS = """
access address answer array bias block bound buffer cache call change check copy cost count cover crash cut draw
drop fall file fill find fix fold follow fork form frame function graph group guard hang hash head help hit host
index kernel key label last launch layout leaf level limit line link list load lock log look loop map mark mask
match measure memory method model module name need note object offset open option order output own pack pad pair
parameter pass pattern permit pick place play point pool pose print process produce push query queue quote range
rank rate reach read reason record reference release render repeat report request reset result return rise root
round row rule run sample save scale scope search section set shape share show sign signal size sort source space
split stack stand start state stay step stop store stream structure submit suit sum support switch target task test
thread tie time timer token tool touch trace track train try turn type update use value version view wait walk
warning watch weight win word work wrap write yield
"""


def inflected(stem: str) -> set[str]:
    """The forms of a regular verb but for the one in -ing, which is no verb by itself."""
    if re.search(r"(?:s|x|z|ch|sh)$", stem):
        third = stem + "es"
    elif re.search(r"[^aeiou]y$", stem):
        third = stem[:-1] + "ies"
    else:
        third = stem + "s"
    if stem.endswith("e"):
        past = {stem + "d"}
    elif re.search(r"[^aeiou]y$", stem):
        past = {stem[:-1] + "ied"}
    else:
        past = {stem + "ed", stem + stem[-1] + "ed"}
    return {stem, third} | past


_NOUNS = {form for stem in _ALSO_NOUNS.split() for form in inflected(stem) if not form.endswith("ed")}
_NOUNS -= {"need", "needs", "stores", "works", "waits", "measures", "reaches"}
_ANY = {form for stem in _VERBS.split() for form in inflected(stem)} | set(_IRREGULAR.split())
_ANY |= {form for stem in _ALSO_NOUNS.split() for form in inflected(stem)}
# After one of these, or before one of the others, such a form is taken for a verb.
_BEFORE = re.compile(
    r"(?:it|they|you|we|who|which|that|this|these|those|one|each|neither|nothing|nobody|something|what|x|please|to|not|and|or|"
    r"\w+s)$"
)
_AFTER = re.compile(
    r"(?:the|an?|its|their|each|all|no|nothing|one|two|it|them|what|only|also|about|more|as|at|so|on|four|\d+)$"
)


def has_verb(sentence: str) -> bool:
    """Tell whether a sentence has a verb by the rules of this file."""
    words = re.findall(r"[A-Za-z]+(?:n't)?|\d+|[,;:()]", sentence)
    for k, word in enumerate(words):
        form = word.lower()
        if form.endswith("n't") or (form in _ANY and form not in _NOUNS):
            return True
        after = words[k + 1].lower() if k + 1 < len(words) else ""
        if form in _NOUNS and (
            k == 0 or _BEFORE.match(words[k - 1].lower()) or (form[-1] == "s" and _AFTER.match(after))
        ):
            return True
    # A label in front of code or of a list.
    return len(words) < 2 or (sentence.endswith(":") and len(words) < 5)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a Markdown page, with X for code."""
    text = re.sub(r"^```.*?^```", "\n", text, flags=re.M | re.S)
    text = re.sub(r"^ *```.*?^ *```", "\n", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"``.*?``|`[^`]*`", "X", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    # A heading in its paragraph.
    text = re.sub(r"^((?:[-*]|\d+\.)? *)\*\*[^*]*[.:]\*\*", r"\1", text, flags=re.M)
    text = re.sub(r"[*]{1,2}", "", text)
    for paragraph in re.split(r"\n\s*\n|\n(?= *(?:[-*] |\d+\. ))", text):
        lines = [line for line in paragraph.splitlines() if not re.match(r"\s*(\||#|>|</?)", line)]
        joined = " ".join(" ".join(lines).split())
        joined = re.sub(r"^(?:[-*]|\d+\.) ", "", joined)
        if joined.endswith((".", "!", "?", ":")):
            yield from re.split(r"(?<=[.!?]) (?=[A-Z\"(])", joined)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the names and texts of all pages."""
    for path in [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")]:
        yield path.name, path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs").rglob("*.md")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the names and texts of public docstrings, without sections, and first lines of functions alone."""
    import slangpy_rt as spy

    for name in spy.__all__:
        thing = getattr(spy, name)
        yield name, _prose(thing)
        if inspect.isclass(thing):
            for member in dir(thing):
                if not member.startswith("_") and any(member in vars(c) for c in _ours(thing)):
                    yield f"{name}.{member}", _prose(inspect.getattr_static(thing, member))


def _ours(thing: type) -> list[type]:
    return [c for c in thing.__mro__ if c.__module__.startswith("slangpy_rt")]


def _prose(thing: object) -> str:
    thing = getattr(thing, "__func__", thing)
    text = inspect.getdoc(thing) if inspect.isclass(thing) or callable(thing) or isinstance(thing, property) else ""
    text = re.split(r"^\w+\n-+$", text or "", flags=re.M)[0]
    if not inspect.isroutine(thing):
        text = text.partition("\n\n")[2]
    return re.sub(r"^( {4}.*\n?)+", "\n", text, flags=re.M)


def messages() -> Iterator[tuple[str, str]]:
    """Yield the places and texts of literals of several words in the package but docstrings: parts of messages."""
    for path in sorted([*(ROOT / "slangpy_rt").rglob("*.py"), *(ROOT / "codegen/slangpy_rt_codegen").rglob("*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        heads = [node.body[0] for node in ast.walk(tree) if isinstance(node, owners) and node.body]
        docs = {id(head.value) for head in heads if isinstance(head, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value if " " in node.value else ""


def findings() -> Iterator[str]:
    """Yield a line for each finding."""
    for name, text in messages():
        yield from (f"{name}: '{found[0]}' in a message: {text}" for found in METAPHORS.finditer(text))
    for name, text in [*pages(), *docstrings()]:
        for sentence in sentences(text):
            for found in METAPHORS.finditer(sentence):
                yield f"{name}: '{found[0]}' in: {sentence}"
            if name not in _WITHOUT_VERBS and not has_verb(sentence):
                yield f"{name}: no verb in: {sentence}"


def main() -> int:
    """Print the findings."""
    found = list(findings())
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
