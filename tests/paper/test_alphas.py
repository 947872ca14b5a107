from dataclasses import replace

import pytest

from tests.paper.fake_results import write_result
from vrnet import BadInput
from vrnet.app.paper import PaperRequest, make_table
from vrnet.data.prepared import Source
from vrnet.files import read_rows
from vrnet.paper import study as alphas
from vrnet.paper.budget import three_times_as_long
from vrnet.paper.figures import measure_methods
from vrnet.paper.specs import TABLES
from vrnet.paper.study import best_alphas, choose_alphas, file_of
from vrnet.paper.tables import build_table

TRIED = 0.02, 0.1, 0.4
DICE = {"R-L2-6x1": (0.6, 0.8, 0.7), "R-L2-6x1-noise": (0.9, 0.8, 0.7), "R-L2-6x1-zeros": (0.5, 0.6, 0.7)}
BEST = {"R-L2-6x1": 0.1, "R-L2-6x1-noise": 0.02, "R-L2-6x1-zeros": 0.4}

HEADER, DAMAGED = "protocol,entry,method,alpha,val_dice\n", ("0.1,x", "-1,0.5")


@pytest.fixture
def scored(study, monkeypatch):
    """A study whose networks need no training to have the scores of DICE on validation."""
    made = study()
    known = {
        made.results.entry(name, alpha=alpha).folder_name: dice
        for name, scores in DICE.items()
        for alpha, dice in zip(TRIED, scores, strict=True)
    }
    monkeypatch.setattr(alphas.Results, "is_trained", lambda self, entry: True)
    monkeypatch.setattr(
        alphas.Results, "validations", lambda self, entry: [{"val_dice": known[entry.folder_name], "val_loss": 0.1}]
    )
    return made


def test_each_method_has_the_alpha_of_highest_dice_on_validation(scored):
    assert choose_alphas(scored, list(DICE), TRIED) == BEST


def test_no_test_subject_is_looked_at_to_choose(scored, monkeypatch):
    monkeypatch.setattr("vrnet.paper.study.evaluate_split", None)
    split = scored.split
    object.__setattr__(scored, "split", lambda name, purpose: split(name, purpose) if name != "test" else 1 / 0)
    choose_alphas(scored, list(DICE), TRIED)


def test_scores_are_kept_and_what_is_kept_is_not_trained_again(scored, monkeypatch):
    choose_alphas(scored, list(DICE), TRIED)
    rows = read_rows(file_of(scored.results), "scores")
    assert len(rows) == 9
    assert {row["alpha"] for row in rows} == {"0.02", "0.1", "0.4"}
    monkeypatch.setattr(alphas.Results, "is_trained", None)
    assert choose_alphas(scored, list(DICE), TRIED) == BEST


def test_a_reader_hears_which_networks_the_choice_waits_for(scored, reader):
    choose_alphas(scored, ["R-L2-6x1", "R-L2-6x1-zeros"], TRIED)
    assert len(reader.lines) == 1
    assert scored.results.entry("R-L2-6x1", alpha=0.02).folder_name in reader.lines[0]
    assert scored.results.entry("R-L2-6x1-zeros", alpha=0.4).folder_name in reader.lines[0]
    choose_alphas(scored, ["R-L2-6x1"], TRIED)
    assert len(reader.lines) == 1


def test_what_is_kept_tells_the_best_alpha_of_each(scored):
    assert best_alphas(scored.results) == {}
    choose_alphas(scored, list(DICE), TRIED)
    assert best_alphas(scored.results) == {str(scored.results.entry(name).method): best for name, best in BEST.items()}


def test_of_equal_scores_the_smallest_alpha_is_taken_in_a_table_and_in_a_figure(scored, monkeypatch):
    monkeypatch.setattr(alphas.Results, "validations", lambda self, entry: [{"val_dice": 0.5, "val_loss": 0.1}])
    assert choose_alphas(scored, ["R-L2-6x1"], TRIED[::-1]) == {"R-L2-6x1": TRIED[0]}
    assert list(best_alphas(scored.results).values()) == [TRIED[0]]


@pytest.mark.parametrize(
    "text", ["protocol,entry,method,alpha\nquick,a,b,0.1\n", *(f"{HEADER}quick,a,b,{cells}\n" for cells in DAMAGED)]
)
def test_damaged_scores_are_told(scored, text):
    file_of(scored.results).parent.mkdir(parents=True)
    file_of(scored.results).write_text(text)
    with pytest.raises(BadInput, match=r"alphas\.csv is damaged: restore it, or remove it"):
        best_alphas(scored.results)


def test_a_figure_is_drawn_with_the_chosen_alpha(scored):
    choose_alphas(scored, list(DICE), TRIED)
    for name, alpha in BEST.items():
        write_result(scored.results, scored.results.entry(name, alpha=alpha), [(0.7, 9.0), (alpha, 8.0)])
    found = measure_methods(scored, {name: name for name in BEST})
    assert {name: rows[1]["dice_mean"] for name, rows in found.items()} == BEST


def test_an_averaged_network_has_the_alpha_of_the_plain_one(scored):
    assert choose_alphas(scored, ["R-L2-6x1+average"], TRIED) == {"R-L2-6x1+average": BEST["R-L2-6x1"]}


def test_a_budget_may_take_the_alphas_that_another_one_chose(scored):
    short = scored.results.budget
    longer = replace(scored.results, budget=short.changed("longer", three_times_as_long, alphas_of=short))
    for name, alpha in BEST.items():
        write_result(longer, longer.entry(name, alpha=alpha), [(0.7, 9.0), (0.8, 8.0)])
    table = build_table("initialisation", replace(scored, results=longer), alphas=TRIED)
    assert f'on the validation subjects with the budget "{short.name}", from 0.02' in table.notes[-1]
    assert {row["protocol"] for row in read_rows(file_of(longer), "scores")} == {short.name}
    assert best_alphas(longer) == best_alphas(scored.results) != {}
    assert build_table("initialisation", replace(scored, results=longer)).notes == table.notes


def test_a_table_is_made_of_the_chosen_and_says_which(scored):
    for name, alpha in BEST.items():
        write_result(scored.results, scored.results.entry(name, alpha=alpha), [(0.7, 9.0), (0.8, 8.0)])
    notes = build_table("initialisation", scored, alphas=TRIED).notes
    assert notes[-1] == (
        "α was chosen for each method on the validation subjects, from 0.02, 0.1, 0.4: "
        "0.02 for R-L2-6x1-noise; 0.1 for R-L2-6x1; 0.4 for R-L2-6x1-zeros."
    )


def test_a_table_says_who_has_an_alpha_of_its_own(scored, monkeypatch):
    spec = replace(TABLES["initialisation"], methods=(*BEST, "Siamese"))
    monkeypatch.setitem(TABLES, "initialisation", spec)
    for name, alpha in (BEST | {"Siamese": None}).items():
        write_result(scored.results, scored.results.entry(name, alpha=alpha), [(0.7, 9.0), (0.8, 8.0)])
    chosen, own = build_table("initialisation", scored, alphas=TRIED).notes[-2:]
    assert chosen.startswith("α was chosen")
    assert "Siamese" not in chosen
    assert own == "Siamese has an α of its own, 0.02."


def test_a_table_that_is_made_again_without_alphas_is_the_one_with_them(scored, reader):
    """Also where another α was tried of one of its methods, and that of the budget is measured, of one seed."""
    scores = [(0.7, 9.0), (0.8, 8.0)]
    write_result(scored.results, scored.results.entry("R-L2-6x1"), [(0.9, 1.0), (0.9, 1.0)])
    for name, alpha in BEST.items():
        for seed in range(3):
            write_result(scored.results, scored.results.entry(name, alpha=alpha, seed=seed), scores)
    asked = build_table("initialisation", scored, seeds=3, alphas=TRIED)
    more = alphas.read_scores(scored.results)
    entry = scored.results.entry("R-L2-6x1", alpha=0.7)
    more[entry.folder_name] = alphas.Score(entry.folder_name, str(entry.method), 0.7, 1.0)
    alphas.write_scores(scored.results, more)
    reader.lines.clear()
    assert build_table("initialisation", scored) == asked
    assert build_table("initialisation", scored, measured_only=True) == asked
    assert reader.lines == []
    assert "3 seeds" in asked.notes[1]


@pytest.mark.parametrize("kept", [{"R-L2-6x1": TRIED, "R-L2-6x1-noise": TRIED}, dict.fromkeys(DICE, (0.4,))])
def test_without_two_alphas_that_all_were_trained_with_a_table_has_that_of_its_budget(scored, kept):
    for name, tried in kept.items():
        choose_alphas(scored, [name], tried)
    for name in DICE:
        write_result(scored.results, scored.results.entry(name), [(0.7, 9.0), (0.8, 8.0)])
    notes = build_table("initialisation", scored).notes
    assert "α 0.05, width" in notes[1]
    assert "was chosen" not in notes[-1]


def test_what_chooses_no_alpha_refuses_some(tmp_path, reader):
    with pytest.raises(BadInput, match="does not choose α"):
        make_table("runtime", PaperRequest(Source(""), tmp_path, "quick", alphas=(0.1,)), reader.stage, reader.say)


@pytest.mark.parametrize("value", [-0.1, float("nan")])
def test_an_alpha_is_a_number_from_zero_on(value, tmp_path):
    with pytest.raises(BadInput, match="alphas"):
        PaperRequest(Source(""), tmp_path, alphas=(0.1, value))


def test_without_labels_no_alpha_can_be_chosen(scored, monkeypatch):
    monkeypatch.setattr(alphas.Results, "validations", lambda self, entry: [{"val_loss": 0.1}])
    with pytest.raises(BadInput, match="have no labels"):
        choose_alphas(scored, list(DICE), TRIED)
