import subprocess
import sys

import numpy as np
import pytest

from tests.data.conftest import write
from vrnet import BadInput
from vrnet.data.dataset import DATASETS, find_dataset

LOADED = """
import sys, pkgutil, importlib, vrnet.data
for module in pkgutil.iter_modules(vrnet.data.__path__):
    importlib.import_module(f"vrnet.data.{module.name}")
print([name for name in ("nibabel", "SimpleITK", "matplotlib", "scipy.ndimage") if name in sys.modules])
"""


def test_each_name_builds_a_data_set_of_that_name(tmp_path):
    write(tmp_path / "a.nii.gz", np.arange(4096).reshape(16, 16, 16), np.eye(4))
    (tmp_path / "pairs.csv").write_text("fixed,moving\na.nii.gz,a.nii.gz\n")
    roots = {"folder": tmp_path, "file": tmp_path / "pairs.csv", None: None}
    for name, (summary, reads, _) in DATASETS.items():
        assert find_dataset(name, roots[reads]).name == name
        assert summary


def test_what_cannot_be_built_says_what_to_do(tmp_path):
    (tmp_path / "pairs.csv").write_text("")
    for name, root, split_file, message in (
        ("acdc4d", tmp_path, None, 'no data set "acdc4d": choose one of acdc, acdc3d'),
        (str(tmp_path / "pairs.csv"), None, None, "give `data=manifest` `root=.*pairs.csv`"),
        (str(tmp_path), None, None, "name the folder with `root=.*`, and what it holds with `data`, one of acdc,"),
        ("acdc", None, None, "read from a folder: name it with `root`"),
        ("manifest", None, None, "read from a file"),
        ("phantom", tmp_path, None, "made on the spot: leave `root` out"),
        ("ukbb", tmp_path / "none", None, "there is no folder"),
        ("ukbb", tmp_path / "pairs.csv", None, "there is no folder"),
        ("manifest", tmp_path, None, "there is no file"),
        ("phantom3d", None, tmp_path / "pairs.csv", "takes no file of splits"),
    ):
        with pytest.raises(BadInput, match=message):
            find_dataset(name, root, split_file)


def test_importing_the_data_sets_loads_no_reader_of_images():
    found = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr


@pytest.mark.parametrize(("name", "d"), [("acdc", 2), ("acdc3d", 3), ("ukbb", 2), ("cmr3d", 3), ("hippocampus", 3)])
def test_another_file_of_splits_takes_the_place_of_the_folder_s(tmp_path, name, d):
    (tmp_path / "mine.csv").write_text("subject,split\na,fold1\nb,fold2\n")
    data = find_dataset(name, tmp_path, tmp_path / "mine.csv")
    assert data.subjects("fold2") == ["b"]
    with pytest.raises(BadInput, match=r"there is no .*split\.csv"):
        find_dataset(name, tmp_path).subjects("fold2")
