"""A warning of an input points at the line of the caller, not into the package."""

import warnings

from vrnet.errors import InputWarning, counted, did_you_mean, in_runs, most_like, numbered, type_name, warn_of_input


def function_of(module, text, **names):
    """A function f, as if it stood in a module of that name."""
    exec(compile(text, f"{module}.py", "exec"), names := {"__name__": module, **names})
    return names["f"]


def test_a_warning_points_at_the_first_line_outside_the_package():
    warn = getattr(warn_of_input, "__wrapped__", warn_of_input)  # without the check of types, which is outside too
    inner = function_of("vrnet.images.inner", "def f(): warn('beware')", warn=warn)
    outer = function_of("vrnet.app.outer", "def f(): inner()", inner=inner)
    users = function_of("vrnet_of_mine", "\n\ndef f(): outer()", outer=outer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        users()
        outer()
    assert [(each.filename, str(each.message), each.category) for each in caught] == [
        ("vrnet_of_mine.py", "beware", InputWarning),
        (__file__, "beware", InputWarning),
    ]
    assert caught[0].lineno == 3


def test_neighbouring_numbers_are_named_together():
    assert in_runs([4, 5, 6, 8, 10, 11]) == "4 to 6, 8, 10 to 11"


def test_slices_are_counted_from_one_whatever_their_order():
    assert numbered("slice", [11]) == "slice 12"
    assert numbered("slice", (11, 3, 1, 2)) == "slices 2 to 4, 12"


def test_one_is_no_plural():
    assert [counted(n, "thread") for n in (0, 1, 2, 1000)] == ["0 threads", "1 thread", "2 threads", "1,000 threads"]


def test_names_that_hold_a_word_are_nearer_than_one_that_resembles_it():
    known = ("--fixed-mask", "--moving-mask", "--fixed-labels", "--moving-labels", "--label-names", "--max", "--out")
    assert did_you_mean("--mask", known) == "did you mean --fixed-mask or --moving-mask?"
    assert did_you_mean("--label", known) == "did you mean --fixed-labels, --moving-labels or --label-names?"
    assert did_you_mean("-o", known) == "did you mean --out?"
    assert did_you_mean("--lable-names", known) == "did you mean --label-names?"
    assert did_you_mean("--OUT", known) == "did you mean --out?"


def test_all_of_a_family_are_named_and_one_of_a_crowd():
    family = [f"Gaussian-{data}" for data in ("L1", "L2", "LNCC", "MIND", "NMI", "Remap")]
    assert did_you_mean("gaussian", family) == f"did you mean {', '.join(family[:-1])} or Gaussian-Remap?"
    assert did_you_mean("gaussian", [*family, "Gaussian"]) == "did you mean Gaussian?"


def test_dashes_make_no_words_alike():
    for word in ("--pairs", "---", ""):
        assert did_you_mean(word, ("--bids", "--data")) == ""


def test_types_have_their_article():
    assert [type_name(value) for value in ([], 3)] == ["a list", "an int"]


def test_a_name_is_most_like_a_word_whatever_its_capitals_if_it_is_similar_enough():
    assert most_like("Split", ("name", "split"), 0.8) == "split"
    assert most_like("site", ("name", "split"), 0.8) is None
    assert most_like("site", ("name", "split")) == "split"
