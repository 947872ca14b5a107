from rich.console import Console

from vrnet.console import metrics_table, stages

METRICS = {
    "method": "TV-L1",
    "seconds": 1.0,
    "slice_by_slice": True,
    "similarity": {"mae_before": 10.0, "mae_after": 5.0, "ncc_before": 0.9, "ncc_after": 0.99},
    "folding_percent": 0.1,
    "folding_strict_percent": 0.2,
}


def shown(metrics, **names):
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(metrics_table(metrics, **names))
    return console.export_text()


def dice(labels):
    """0.5 before and 0.75 after for each label and their mean."""
    return {"dice": {when: dict.fromkeys([*labels, "mean"], x) for when, x in (("before", 0.5), ("after", 0.75))}}


def test_the_table_has_before_and_after():
    text = shown(METRICS | dice("12"), structures={"1": "RV"})
    assert "TV-L1, slice by slice" in text
    assert "Dice RV" in text
    assert "Dice 2" in text
    (line,) = [line for line in text.splitlines() if "Dice, mean" in line]
    assert "0.500" in line
    assert "0.750" in line


def test_of_many_structures_the_mean_is_shown():
    text = shown(METRICS | dice([str(label) for label in range(45)]))
    assert text.count("Dice") == 1


def test_a_transform_by_file_took_no_time():
    assert "Seconds" not in shown(METRICS | {"seconds": None, "slice_by_slice": None})


def test_stages_are_shown_on_the_error_stream(capsys):
    with stages() as stage:
        stage("reading")
        tick = stage("registering")
        tick(0.5)
    out, err = capsys.readouterr()
    assert out == ""
    assert "100%" in err
