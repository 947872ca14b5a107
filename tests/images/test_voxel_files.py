"""The files of an image are those that SimpleITK writes of it."""

import numpy as np
import pytest
import SimpleITK as sitk

from vrnet.images.formats import files_of_image


@pytest.mark.parametrize("name", ["x.nii.gz", "x.mhd", "x.nhdr", "x.img"])
def test_the_files_of_an_image_are_all_that_is_written_of_it(tmp_path, name):
    sitk.WriteImage(sitk.GetImageFromArray(np.zeros((4, 5, 6), np.float32)), str(tmp_path / name))
    assert sorted(files_of_image(str(tmp_path / name))) == sorted(map(str, tmp_path.iterdir()))


@pytest.mark.parametrize("text", ["", "NDims = 3\nElementDataFile = ../x\n"])
def test_a_header_that_leads_nowhere_is_one_file(tmp_path, text):
    (tmp_path / "x.mhd").write_text(text)
    (tmp_path.parent / "x").touch()
    assert files_of_image(str(tmp_path / "x.mhd")) == [str(tmp_path / "x.mhd")]
