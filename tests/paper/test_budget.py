from dataclasses import replace

from vrnet.data.prepared import MORE_USES, USES
from vrnet.methods.names import parse, parse_trainable, without_average
from vrnet.paper.specs import BUDGETS, DIMENSIONS, TABLES, TIMED_METHODS
from vrnet.training.settings import PRESETS

EVERY = sorted({without_average(name) for table in TABLES.values() for name in table.methods} | set(TIMED_METHODS))


def test_methods_are_as_named_but_narrow_within_the_short_budget_and_cut_short_within_the_quick_one():
    paper, short, quick = (BUDGETS[name] for name in ("paper", "short", "quick"))
    for name in EVERY:
        assert {str(paper.method(name, d)) for d in (2, 3)} == {name}
        if not parse(name).is_trainable:
            assert short.method(name, 2) == paper.method(name, 2) == parse(name)
            changed = str(quick.method(name, 3))
            assert changed.partition("(")[0] == name
            assert parse(changed) == quick.method(name, 3)
    widths = {("R-L2-6x1", 2): 16, ("VoxelMorph-w32", 2): 32, ("C-L1-2x1", 3): 8}
    assert {given: short.method(*given).width for given in widths} == widths


def test_budgets_differ_by_what_they_say_alone():
    paper, augmented, short, central, consistent, long = (
        BUDGETS[name] for name in ("paper", "augmented", "short", "central", "consistent", "long")
    )
    for data in ("acdc", "ukbb", "cmr3d"):
        found = paper.settings(parse_trainable("R-L2-6x1"), data, None, 0)
        assert found == replace(PRESETS[data], augmentation=None)
    assert (augmented.widths, augmented.trained_as) == (paper.widths, paper.trained_as)
    assert (central.widths, long.widths, long.alphas_of) == (short.widths, consistent.widths, consistent)
    for budget, cycles in ((paper, BUDGETS["cycles"]), (augmented, BUDGETS["cycles-augmented"])):
        found = replace(budget.training["acdc"], validate_every=20_000)  # the last weights
        assert (cycles.training["acdc"], cycles.data_sets["acdc"]) == (found, "acdc-cycles")
    for data in DIMENSIONS:
        assert augmented.training[data].augmentation is not None
        assert paper.training[data] in (augmented.training[data], replace(augmented.training[data], augmentation=None))
        assert central.training[data] == replace(short.training[data], smoothness="CentralDiffusion")
        steps = 3 * consistent.training[data].steps
        assert long.training[data] == replace(consistent.training[data], steps=steps, validate_every=steps)


def test_alpha_and_seed_are_as_asked_for_but_siamese_has_its_own_alpha():
    budget = BUDGETS["short"]
    given = budget.settings(parse_trainable("VoxelMorph"), "acdc", 0.3, 2)
    assert (given.alpha, given.seed) == (0.3, 2)
    assert budget.settings(parse_trainable("Siamese"), "acdc", 0.3, 0).alpha == 0.02


def test_every_budget_knows_how_to_train_on_every_data_set_and_a_pack_holds_what_it_needs():
    for budget in BUDGETS.values():
        assert budget.training.keys() == DIMENSIONS.keys()
        for data in DIMENSIONS:
            purpose = budget.trained_as.get(data, "training")
            assert ("train", purpose) in (*USES, *MORE_USES.get(data, ()))
