import csv
import re
from dataclasses import replace

import pytest

from tests.paper.fake_results import write_result
from vrnet.errors import BadInput, InputWarning
from vrnet.methods.names import parse
from vrnet.paper.budget import BUDGETS
from vrnet.paper.specs import TABLES
from vrnet.paper.tables import build_runtime_table, build_table, parameter_notes

NAMES = TABLES["initialisation"].methods
SCORES = {
    "R-L2-6x1": [(0.7, 9.0), (0.8, 8.0), (0.9, 7.0)],
    "R-L2-6x1-noise": [(0.6, 5.0), (0.7, 6.0), (0.8, 4.0)],
    "R-L2-6x1-zeros": [(0.5, 9.5), (0.6, 9.5), (0.7, 8.0)],
}


@pytest.fixture
def known(study):
    """A study with the scores of SCORES."""
    made = study()
    for name, scores in SCORES.items():
        write_result(made.results, made.results.entry(name), scores)
    return made


def test_a_table_is_the_means_over_subjects_with_the_best_in_bold(known):
    table = build_table("initialisation", known)
    assert table.header[:4] == ["method", "Dice Avg", "HD Avg", "J<0 %"]
    assert [row[0] for row in table.rows] == list(NAMES)
    assert [str(row[1]) for row in table.rows] == [".800(.082)", ".700(.082)", ".600(.082)"]
    assert [row[2].mean for row in table.rows] == pytest.approx([8.0, 5.0, 9.0])
    assert table.best == {(0, 1), (1, 2)}
    assert "| R-L2-6x1 | **.800(.082)** | 8.00(.82) |" in table.markdown()


def test_a_table_has_the_published_numbers_beside_ours(known):
    table = build_table("initialisation", known)
    assert table.header[4:] == ["Dice Avg, published on ukbb", "HD Avg, published on ukbb"]
    assert [str(row[4]) for row in table.rows] == [".804(.043)", ".740(.048)", ".744(.051)"]


def test_a_table_has_the_mean_over_the_seeds_that_all_methods_have_and_says_so(known):
    write_result(known.results, known.results.entry(NAMES[0], seed=1), [(0.5, 9.0), (0.6, 8.0), (0.7, 7.0)])
    with pytest.warns(
        InputWarning, match=f"of 1 seed, which all .*; of {NAMES[0]} there are up to 2. `seeds=2` trains"
    ):
        table = build_table("initialisation", known)
    assert table.rows[0][1].mean == pytest.approx(0.8)
    assert "1 seed (mean over seeds)" in table.notes[1]
    for name in NAMES[1:]:
        write_result(known.results, known.results.entry(name, seed=1), SCORES[name])
    table = build_table("initialisation", known)
    assert [row[1].mean for row in table.rows] == pytest.approx([0.7, 0.7, 0.6])
    assert "2 seeds (mean over seeds)" in table.notes[1]


def test_a_table_of_what_is_measured_names_the_other_rows_and_measures_nothing(study, monkeypatch):
    monkeypatch.setattr("vrnet.paper.study.Study._measure", None)
    monkeypatch.setitem(TABLES, "initialisation", replace(TABLES["initialisation"], methods=("identity", *NAMES)))
    made = study()
    for name in NAMES[1:]:
        write_result(made.results, made.results.entry(name), SCORES[name])
        write_result(made.results, made.results.entry(name, seed=1), SCORES[name])
    table = build_table("initialisation", made, measured_only=True)
    assert [row[0] for row in table.rows] == list(NAMES[1:])
    assert "2 seeds (mean over seeds)" in table.notes[1]
    assert table.notes[-1] == 'Not measured yet, budget "quick": identity, R-L2-6x1.'


def test_a_table_of_what_is_measured_leaves_out_a_network_that_has_too_few_seeds(known):
    for name in NAMES[:2]:
        write_result(known.results, known.results.entry(name, seed=1), SCORES[name])
    table = build_table("initialisation", known, seeds=2, measured_only=True)
    assert [row[0] for row in table.rows] == list(NAMES[:2])


def test_a_table_of_which_all_is_measured_is_the_whole_table(known):
    assert build_table("initialisation", known, measured_only=True) == build_table("initialisation", known)


def write_scores(results, names=NAMES):
    """Results of these rows, as if measured."""
    for name in names:
        write_result(results, results.entry(name), SCORES[name])


def test_a_table_that_lacks_rows_names_the_budgets_that_have_them_all(study):
    made = study(BUDGETS["short"])
    write_scores(made.results, NAMES[:1])
    for name in ("consistent", "long"):
        write_scores(replace(made.results, budget=BUDGETS[name]))
    write_scores(replace(made.results, budget=BUDGETS["central"]), NAMES[:2])
    words = '^2 of the 3 rows .* within the budget "short", but .*results has all of them with '
    with pytest.warns(InputWarning, match=words + '`budget="consistent"` or `budget="long"`$'):
        build_table("initialisation", made, measured_only=True)


def test_another_budget_counts_with_the_alphas_that_it_chooses(study, recwarn):
    """By the scores that it kept, it would take networks of which none is measured."""
    made = study(BUDGETS["short"])
    write_scores(made.results, NAMES[:1])
    write_scores(long := replace(made.results, budget=BUDGETS["long"]))
    rows = [(long.entry(name, alpha), name, alpha) for name in NAMES for alpha in (0.3, 0.7)]
    scores = (f"consistent,{entry.folder_name},{name},{alpha},{alpha}" for entry, name, alpha in rows)
    (long.out / long.data / "alphas.csv").write_text("\n".join(("protocol,entry,method,alpha,val_dice", *scores)))
    build_table("initialisation", made, measured_only=True)
    assert not recwarn


def test_a_budget_with_fewer_seeds_damaged_scores_or_other_images_has_not_all_rows(study, recwarn):
    made = study(BUDGETS["short"])
    write_scores(made.results, NAMES[:1])
    write_scores(replace(made.results, budget=BUDGETS["quick"]))
    write_scores(long := replace(made.results, budget=BUDGETS["long"]))
    (long.out / long.data / "alphas.csv").write_text("protocol,entry,method,alpha,val_dice\nconsistent,a,b,c,d\n")
    build_table("initialisation", made, measured_only=True)
    (long.out / long.data / "alphas.csv").unlink()
    with pytest.raises(BadInput, match="nothing of this table is measured"):
        build_table("initialisation", made, seeds=2, measured_only=True)
    assert not recwarn


def test_a_whole_table_names_no_other_budget(study, recwarn):
    made = study(BUDGETS["short"])
    for name in ("short", "long"):
        write_scores(replace(made.results, budget=BUDGETS[name]))
    build_table("initialisation", made)
    assert not recwarn


def test_there_is_no_table_of_what_is_measured_where_nothing_is(study):
    with pytest.raises(BadInput, match="nothing of this table is measured in"):
        build_table("initialisation", study(), measured_only=True)


def test_real_hearts_in_3d_stand_beside_what_was_published_of_private_ones(study):
    made = study(d=3)
    for name in TABLES["acdc3d"].methods:
        write_result(made.results, made.results.entry(name), SCORES["R-L2-6x1"])
    table = build_table("acdc3d", made)
    column = table.header.index("Dice Avg, published on cmr3d")
    published = {row[0]: str(row[column]) for row in table.rows if row[column] is not None}
    assert (published["FFD"], published["U-L1-2x1"]) == (".739(.047)", ".728(.031)")
    assert len(published) == 11


def test_notes_tell_steps_seeds_hardware_and_versions(known):
    for name in NAMES:
        write_result(known.results, known.results.entry(name, seed=1), SCORES[name], hardware="arm CPU, 1 threads")
    subjects, trained, computed = build_table("initialisation", known).notes
    assert subjects == "3 test subjects of phantom; mean (standard deviation over subjects)."
    steps = BUDGETS["quick"].training["phantom"].steps
    assert trained.startswith(f'Learned methods, budget "quick": {steps} steps of 1 pair, rate 0.001, α 0.05, width 2')
    assert computed == "Computed on a machine (torch 2.11); arm CPU, 1 thread (torch 2.11); vrnet 0.1.0."


@pytest.mark.parametrize("weight", ["labels_weight", "batch_dice"])
def test_notes_tell_of_labels_in_training(weight, study, steps):
    quick = steps(2)
    labelled = {name: replace(how, **{weight: 1.0}) for name, how in quick.training.items()}
    made = study(replace(quick, training=labelled))
    for name in NAMES:
        write_result(made.results, made.results.entry(name), SCORES[name])
    assert build_table("initialisation", made).notes[1].endswith("1 seed (mean over seeds); labels in training.")


def test_notes_tell_of_a_loss_that_is_not_the_methods_own(study, steps):
    quick = steps(2)
    bent = {name: replace(how, smoothness="Bending", consistency=0.03) for name, how in quick.training.items()}
    made = study(replace(quick, training=bent))
    for name in NAMES:
        write_result(made.results, made.results.entry(name), SCORES[name])
    assert build_table("initialisation", made).notes[2] == (
        "Loss: the method's own + α Bending + 0.03 inverse consistency."
    )


def test_a_whole_table_has_every_measure_p_and_times(study, monkeypatch):
    made = study()
    monkeypatch.setattr("vrnet.paper.tables.seconds_per_pair", lambda *words: {"cpu": 0.1234, "cuda": None}[words[4]])
    for k, name in enumerate(TABLES["acdc"].methods):
        write_result(made.results, made.results.entry(name), [(0.7 + 0.01 * k, 9.0), (0.8, 8.0 - 0.1 * k)])
    table = build_table("acdc", made)
    assert table.header[1:13] == [
        "Dice LV", "Dice Myo", "Dice RV", "Dice Avg", "HD LV", "HD Myo", "HD RV", "HD Avg", "J<0 %", "|∇J|",
        "p Dice", "p HD",
    ]  # fmt: skip
    assert table.header[13:16] == ["M params", "s CPU", "s GPU"]
    last = len(TABLES["acdc"].methods) - 1
    assert table.best == {(last, column) for column in range(1, 9)}
    assert table.rows[0][0] == "unregistered"
    assert [row[14] for row in table.rows] == [None, *["0.123"] * last]
    assert {row[15] for row in table.rows} == {None}
    shown = [table.header[j] for j in table.columns if "published" in table.header[j]]
    assert shown == [f"{kind}, published" for kind in ("Dice Avg", "HD Avg", "J<0 %", "|∇J|")]
    assert sum("published" in name for name in table.header) == 10
    assert "Wilcoxon" in table.notes[-1]
    assert "α 0.02, 0.05" in table.notes[1]
    changed = "FFD(spacing=40.0,levels=1,iterations=5), Demons(iterations=(5,)), SyN(iterations=(5,))"
    assert table.notes[2] == f"Parameters other than the tuned ones: {changed}."


def test_an_averaged_row_has_no_times_which_would_be_those_of_one_registration(study, monkeypatch):
    names = ("VoxelMorph", "VoxelMorph+average")
    monkeypatch.setitem(TABLES, "acdc", replace(TABLES["acdc"], methods=names))
    monkeypatch.setattr("vrnet.paper.tables.seconds_per_pair", lambda *words: 0.1234)
    made = study()
    for name in names:
        write_result(made.results, made.results.entry(name), [(0.7, 9.0), (0.8, 8.0)])
    table = build_table("acdc", made)
    assert [row[table.header.index("s CPU")] for row in table.rows] == ["0.123", None]


def test_an_averaged_method_is_told_of_only_where_its_parameters_are_other_ones():
    assert parameter_notes({"TV-L1+average": [parse("TV-L1")]}) == []
    assert parameter_notes({"TV-L1+average": [parse("TV-L1(lam=0.2)")]})


def test_seconds_per_pair_stand_beside_the_published(tmp_path, reader, monkeypatch):
    monkeypatch.setattr(
        "vrnet.paper.tables.seconds_per_pair", lambda *words: None if words[4] == "cuda" else len(words[2]) / 3
    )
    table = build_runtime_table(tmp_path, BUDGETS["quick"], BUDGETS["quick"], reader.stage)
    rows = {row[0]: row for row in table.rows}
    assert len(rows) == 12
    assert table.header == [
        "method",
        *(f"{d}D {x}{p}" for p in ("", ", published") for d in (2, 3) for x in ("CPU", "GPU")),
    ]
    assert [cell and str(cell) for cell in rows["FFD"]] == [
        "FFD",
        "0.667",
        None,
        "1",
        None,
        "5.15",
        None,
        "141.38",
        None,
    ]
    assert rows["7xRC-Net"][3] is None  # left out in 3D, as in the paper
    assert table.notes[0] == "One pair at a time: 48x48 and 16x16x16."
    assert table.notes[1].startswith("Parameters other than the tuned ones: FFD(spacing=40.0,levels=1,iterations=5), ")


def test_files_are_the_same_table_in_three_forms(known, tmp_path):
    table = build_table("initialisation", known)
    paths = table.write(tmp_path, "name")
    assert [path.name for path in paths] == ["name.md", "name.csv", "name.tex"]
    with paths[1].open() as file:
        means = {row["method"]: float(row["Dice Avg"]) for row in csv.DictReader(file)}
    assert means == pytest.approx(dict(zip(NAMES, (0.8, 0.7, 0.6), strict=True)))
    assert re.search(r"R-L2-6x1 & \\textbf{\.800\(\.082\)}", paths[2].read_text())
