import numpy as np
import pytest
from scipy.stats import bootstrap, wilcoxon

from vrnet.paper.tables import MARGINS, estimate_mean, holm, p_value, units_of

X = np.random.default_rng(3).normal(0.01, 0.02, 20)
ALONE = tuple((str(k),) for k in range(len(X)))


@pytest.mark.parametrize(("level", "ends"), [(0.95, (1, 2)), (0.9, (3, 4))])
def test_the_intervals_are_those_of_scipy(level, ends):
    theirs = bootstrap(
        (X,), np.mean, confidence_level=level, n_resamples=10_000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    ours = estimate_mean(X, ALONE)
    assert ours.mean == pytest.approx(X.mean())
    assert [ours[end] for end in ends] == pytest.approx(theirs, abs=4e-4)


def test_rows_of_the_same_images_are_resampled_as_one():
    """Everybody twice says nothing new."""
    assert estimate_mean(np.tile(X, 2), ALONE * 2) == pytest.approx(estimate_mean(X, ALONE))
    patients = units_of("acdc", ["patient074", "patient076", "patient078"])
    assert patients == (("patient074",), ("patient074",), ("patient078",))


@pytest.mark.parametrize(("shared", "variance"), [(1.0, 4.0), (0.0, 1.0)])
def test_intervals_of_pairs_that_share_subjects_are_not_too_narrow(shared, variance):
    """The mean of n pairs a_i + a_(i+1) varies by 4 / n, that of independent pairs by 1 / n."""
    rng, n, widths = np.random.default_rng(1), 40, []
    units = units_of("hippocampus", list(map(str, range(n))))
    for a in rng.normal(size=(50, n)):
        found = estimate_mean(a + shared * np.roll(a, -1), units)
        widths.append(found.high - found.low)
    assert 1 < np.mean(widths) / (2 * 1.96 * np.sqrt(variance / n)) < 1.8


def test_a_missing_value_counts_as_no_row():
    x = np.append(X, np.nan)
    assert estimate_mean(x, (*ALONE, ("another",))) == estimate_mean(X, ALONE)


def test_two_methods_are_equivalent_only_if_the_whole_90_percent_interval_is_within_the_margin():
    alternating = np.tile([0.001, -0.001], 10)
    assert estimate_mean(alternating, ALONE).is_within(MARGINS["dice"])
    assert not estimate_mean(20 * alternating, ALONE).is_within(MARGINS["dice"])  # as equal on average, but who knows
    assert not estimate_mean(alternating + 0.005, ALONE).is_within(MARGINS["dice"])
    assert not estimate_mean(alternating - 0.005, ALONE).is_within(MARGINS["dice"])


def test_p_is_that_of_wilcoxon_without_zeros_and_second_rows_of_the_same_images():
    x = np.array([*X[:8], 0.0, np.nan, 9.0])
    assert p_value(x, (*ALONE[:10], ALONE[0])) == wilcoxon(X[:8]).pvalue
    assert p_value(np.zeros(20), ALONE) == 1


def test_differences_that_only_rounding_tells_apart_are_ties():
    steps = np.array([0.1, 0.1, -0.1, 0.2, 0.3, 0.3, -0.2])
    blurred = steps + 1e-16 * np.arange(7)
    assert p_value(blurred, ALONE[:7]) == p_value(steps, ALONE[:7])


def test_holm_rejects_what_its_procedure_rejects():
    """Of n tests the k-th smallest p is compared with level / (n - k + 1), until one fails: for every level."""
    p = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005, "e": 0.5}
    for level in (0.005, 0.01, 0.03, 0.045, 0.06, 0.1, 0.2, 0.6):
        rejected = set()
        for k, name in enumerate(sorted(p, key=p.get)):
            if p[name] > level / (len(p) - k):
                break
            rejected.add(name)
        assert {name for name, corrected in holm(p).items() if corrected <= level} == rejected
    assert list(holm(p)) == list(p)
    assert max(holm(p).values()) <= 1
