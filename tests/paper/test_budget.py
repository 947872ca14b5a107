from dataclasses import replace

from vrnet.data.prepared import MORE_USES, USES
from vrnet.methods.names import parse, parse_trainable, without_average
from vrnet.paper.budget import BUDGETS, DIMENSIONS
from vrnet.paper.specs import TABLES, TIMED_METHODS
from vrnet.training.settings import PRESETS

EVERY = sorted({without_average(name) for table in TABLES.values() for name in table.methods} | set(TIMED_METHODS))


def test_the_papers_budget_leaves_methods_as_they_are_named():
    for name in EVERY:
        assert {str(BUDGETS["paper"].method(name, d)) for d in (2, 3)} == {name}


def test_a_short_budget_narrows_networks_that_name_no_width():
    short, widths = BUDGETS["short"], {("R-L2-6x1", 2): 16, ("VoxelMorph-w32", 2): 32, ("C-L1-2x1", 3): 8}
    assert {given: short.method(*given).width for given in widths} == widths


def test_iterative_methods_are_tuned_whatever_the_budget_but_for_the_quick_one_which_says_so():
    for name in EVERY:
        if not parse(name).is_trainable:
            assert BUDGETS["short"].method(name, 2) == BUDGETS["paper"].method(name, 2) == parse(name)
            quick = BUDGETS["quick"].method(name, 3)
            assert str(quick).partition("(")[0] == name
            assert parse(str(quick)) == quick


def test_the_papers_training_is_that_of_the_presets_on_images_as_they_are():
    found = {
        data: BUDGETS["paper"].settings(parse_trainable("R-L2-6x1"), data, None, 0)
        for data in ("acdc", "ukbb", "cmr3d")
    }
    assert found == {data: replace(PRESETS[data], augmentation=None) for data in found}
    assert (found["ukbb"].steps, found["ukbb"].batch, found["ukbb"].alpha) == (50_000, 10, 0.1)


def test_the_augmented_budget_differs_from_the_papers_by_augmentation_alone():
    paper, augmented = BUDGETS["paper"], BUDGETS["augmented"]
    assert (augmented.widths, augmented.trained_as) == (paper.widths, paper.trained_as)
    for data, training in augmented.training.items():
        assert training.augmentation is not None
        assert paper.training[data] in (training, replace(training, augmentation=None))


def test_the_central_budget_differs_from_the_short_one_by_its_smoothness_alone():
    short, central = BUDGETS["short"], BUDGETS["central"]
    assert central.widths == short.widths
    for data, training in central.training.items():
        assert training == replace(short.training[data], smoothness="CentralDiffusion")


def test_the_long_budget_has_three_times_the_steps_of_the_consistent_one_and_its_alphas():
    consistent, long = BUDGETS["consistent"], BUDGETS["long"]
    assert (long.widths, long.alphas_of) == (consistent.widths, consistent)
    for data, training in long.training.items():
        steps = 3 * consistent.training[data].steps
        assert training == replace(consistent.training[data], steps=steps, validate_every=steps)


def test_every_budget_knows_how_to_train_on_every_data_set():
    for budget in BUDGETS.values():
        assert budget.training.keys() == DIMENSIONS.keys()


def test_alpha_and_seed_are_as_asked_for_but_siamese_has_its_own_alpha():
    budget = BUDGETS["short"]
    given = budget.settings(parse_trainable("VoxelMorph"), "acdc", 0.3, 2)
    assert (given.alpha, given.seed) == (0.3, 2)
    assert budget.settings(parse_trainable("Siamese"), "acdc", 0.3, 0).alpha == 0.02


def test_a_pack_holds_what_every_budget_trains_on():
    for budget in BUDGETS.values():
        for data in DIMENSIONS:
            purpose = budget.trained_as.get(data, "training")
            assert ("train", purpose) in (*USES, *MORE_USES.get(data, ()))
