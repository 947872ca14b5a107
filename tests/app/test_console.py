"""What a person sees in the terminal is whole, is shown and not obeyed, and tells that the work goes on."""

import time

import pytest
from rich.console import Console

from vrnet.app import console
from vrnet.app.console import metrics_table, stage_progress, status_line, tally_line, training_bar
from vrnet.cohort.run import Tally
from vrnet.report.measures import MEASURES, summary
from vrnet.training.fit import TrainingStatus

METRICS = {
    "method": "TV-L1",
    "seconds": 1.0,
    "slice_by_slice": True,
    "similarity": {"mae_before": 10.0, "mae_after": 5.0, "ncc_before": 0.9, "ncc_after": 0.99},
    "folding_percent": 0.1,
    "folding_strict_percent": 0.2,
}


def rendered(table, width=100):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(table)
    return console.export_text()


def metrics_text(metrics):
    return rendered(metrics_table(metrics))


def dice(labels):
    """0.5 before and 0.75 after for each label and their mean."""
    return {"dice": {when: dict.fromkeys([*labels, "mean"], x) for when, x in (("before", 0.5), ("after", 0.75))}}


def test_the_table_has_before_and_after():
    text = metrics_text(METRICS | dice("12") | {"label_names": {"1": "RV"}})
    assert "TV-L1, slice by slice" in text
    assert "Dice RV" in text
    assert "Dice label 2" in text
    (line,) = [line for line in text.splitlines() if "Dice, mean" in line]
    assert "0.500" in line
    assert "0.750" in line


def test_of_a_stack_every_dice_says_over_what_it_is():
    found = dice("12")
    text = metrics_text(METRICS | found | {"dice_mean_over_slices": found["dice"]})
    rows = [line.split("│")[1].strip() for line in text.splitlines() if "Dice" in line]
    assert rows == [
        "Dice label 1, whole volume", "Dice label 2, whole volume", "Mean Dice, whole volume",
        "Mean Dice, mean over slices",
    ]  # fmt: skip


def test_of_many_structures_the_mean_is_shown():
    text = metrics_text(METRICS | dice([str(label) for label in range(45)]))
    assert text.count("Dice") == 1


def test_every_kind_of_hausdorff_distance_is_explained_where_there_is_one(monkeypatch):
    """By the word that its row has."""
    printed = []
    monkeypatch.setattr(console, "print_line", lambda *lines: printed.extend(lines))
    verdict = {"verdict": {"level": "good", "reasons": [], "try": []}}
    console.print_result(METRICS | verdict, [])
    assert not printed
    distances = {key: dice("12")["dice"] for key in MEASURES if "hausdorff" in key}
    console.print_result(METRICS | verdict | distances, [])
    (legend,) = printed
    kinds = [row.name.partition(", ")[2].removesuffix(" (mm)") for row in summary(distances)]
    assert len(kinds) == 3
    assert all(f"{kind[:1].upper()}{kind[1:]}: " in legend for kind in kinds)


def test_a_transform_by_file_took_no_time():
    assert "Seconds" not in metrics_text(METRICS | {"seconds": None, "slice_by_slice": None})


def test_stages_are_shown_on_the_error_stream(capsys):
    with stage_progress() as stage:
        stage("reading")
        tick = stage("registering")
        tick(0.5)
    out, err = capsys.readouterr()
    assert out == ""
    assert "100%" in err


def test_in_a_file_a_long_stage_is_told_of_from_time_to_time(capsys, monkeypatch):
    monkeypatch.setattr(console, "FIRST_LINE_SECONDS", 0.02)
    with stage_progress() as stage:
        stage("reading")
        time.sleep(0.3)
    assert capsys.readouterr().err.splitlines()[0] == "reading"
    with stage_progress() as stage:
        stage("tracking [red]")(0.25)
        time.sleep(0.3)
    assert capsys.readouterr().err.splitlines()[0] == "tracking [red], 25 %"
    with stage_progress() as stage:
        stage("tracking")(0.25)
        stage("writing")
        time.sleep(0.3)
    assert capsys.readouterr().err.splitlines()[0] == "writing"


def test_a_log_of_a_cohort_has_a_line_soon_while_nothing_ends_and_then_few(monkeypatch, capsys):
    """One subject may take minutes; and a night's run must not fill a log."""
    monkeypatch.setattr(console, "FIRST_LINE_SECONDS", 0.2)
    assert console.LINE_SECONDS == 60
    with console.cohort_progress() as show:
        show(Tally(3))
        time.sleep(0.6)
    assert capsys.readouterr().err.splitlines()[0].startswith("0 done, 0 failed, 3 left")


def test_the_line_of_a_cohort_tells_how_fast_it_is_and_how_long_it_takes():
    assert tally_line(Tally(2, has_workers=False), None) == "0 done, 0 failed, 2 left, no worker yet"
    tally = Tally(40, 9, {"p9": "no image"})
    assert tally_line(tally, 0.05) == "9 done, 1 failed, 30 left, 3 per minute, 0:10:00 left"
    assert tally_line(tally, 2.0).endswith("2 per second, 0:00:15 left")
    assert tally_line(tally, 1e-4).endswith("0.006 per minute, 3 days, 11:20:00 left")


def status(step=12_345, scores=None):
    return TrainingStatus(step, 20_000, 0.0123, scores or {}, 52.14)


def test_the_training_bar_says_status_line():
    assert status_line(status()) == "12345/20000, loss 0.0123, 52.1 steps/s"
    labelled = status(scores={"val_dice": 0.801})
    assert status_line(labelled) == "12345/20000, loss 0.0123, Dice 0.801, 52.1 steps/s"


def test_the_training_bar_fits_a_terminal(monkeypatch):
    terminal = Console(width=100, force_terminal=True, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    monkeypatch.setattr(console, "bar_screen", terminal)
    with training_bar("R-L2-6x1-w32") as watch:
        watch(status(scores={"val_dice": 0.801}))
    line = terminal.export_text().splitlines()[-1]
    assert "12345/20000, loss 0.0123, Dice 0.801, 52.1 steps/s" in line
    assert line.rstrip().endswith(("-:--:--", ":00"))


def test_in_a_file_training_is_told_of_from_time_to_time(capsys, monkeypatch):
    monkeypatch.setattr(console, "FIRST_LINE_SECONDS", 0.02)
    with training_bar("R-L1-1x1") as watch:
        watch(status(20))
        time.sleep(0.3)
    assert capsys.readouterr().err.splitlines()[0] == status_line(status(20))


NUMBERS = [f"{k}.{k}{k}{k}" for k in range(1, 9)]


@pytest.mark.parametrize(("width", "columns"), [(40, 4), (80, 8)])
def test_every_number_and_every_name_is_whole_in_a_narrow_terminal(width, columns):
    table = console.numbers_table("a title of several words", *(f"c{k}" for k in range(columns)))
    table.add_row("a_name_without_any_blank_in_it", *NUMBERS[:columns])
    text = rendered(table, width)
    assert "…" not in text
    cells = [line.split("│")[1:-1] for line in text.splitlines() if "│" in line]
    whole = ["".join(parts).replace(" ", "") for parts in zip(*cells, strict=True)]
    assert whole == ["a_name_without_any_blank_in_it", *NUMBERS[:columns]]


def test_a_bundled_model_is_called_by_its_name_with_what_it_is_in_brackets():
    from vrnet.methods.names import kind_of

    text = metrics_text(METRICS | {"method": "short-axis", "weights": "short_axis.safetensors"})
    assert f"short-axis ({kind_of('short-axis')})" in text
    assert "R-L1-3x2 (mine.safetensors)" in metrics_text(
        METRICS | {"method": "R-L1-3x2", "weights": "mine.safetensors"}
    )


NASTY = "a\x1b[2J\x07\x9b31m\u202e[red]b[/red]:heart:"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_names_and_cells_are_shown_and_not_obeyed(is_terminal, monkeypatch):
    """Tables, lines and bars alike; colours and bars still have their own codes in a terminal."""
    monkeypatch.setattr(console.screen, "_force_terminal", is_terminal)
    with console.screen.capture() as capture:
        console.print_line(f"{NASTY}\nvrnet: forged")
        console.screen.print(console.numbers_table(NASTY, "before"))
        table = console.numbers_table("t", "x")
        table.add_row(console.Text(NASTY), "1")
        console.screen.print(table)
    shown = capture.get()
    assert "\x1b[2J" not in shown
    assert not set("\x07\x9b\u202e") & set(shown)
    assert "a\\x1b[2J\\x9b31m\\u202e[red]b[/red]:heart:\\nvrnet: forged" in shown


def test_what_a_bar_says_is_no_markup(capsys):
    with console.stage_progress() as stage:
        stage("registering [red]a[/red]\x1b[2J")(0.5)
        columns = console.progress.TextColumn("{task.description}", markup=False)
        assert columns.markup is False
    assert "\x1b[2J" not in capsys.readouterr().err
