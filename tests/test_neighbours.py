"""The examples with data loaders of others run where these are installed; their stand-in runs with the documents."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "neighbours.md"
BLOCKS = re.findall(r"^```(py|python)\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S)


def test_every_example_hands_over_the_keys_that_the_loop_reads():
    """That of MONAI, that of TorchIO and the stand-in."""
    loop = next(code for _, code in BLOCKS if "def train(" in code)
    keys = set(re.findall(r'batch\["(\w+)"\]', loop))
    examples = [code for _, code in BLOCKS if re.search(r"^\s*train\(", code, flags=re.M)]
    assert keys == {"fixed", "moving"}
    assert len(examples) == 3
    assert all(keys <= set(re.findall(r"\w+", code)) for code in examples)


@pytest.mark.release
@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("package", ["monai", "torchio"])
def test_networks_train_with_their_data_loaders(package, reader):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    known = {}
    for language, code in BLOCKS:
        if language == "python" or package in code:
            exec(compile(code, str(PAGE), "exec"), known)
    assert package in known["loader"].__class__.__module__


@pytest.mark.release
def test_the_warp_of_monai_takes_our_fields(smooth_image, random):
    if find_spec("monai") is None:
        pytest.skip("monai is not installed")
    import torch
    from monai.networks.blocks import Warp

    from vrnet.fields.calculus import smooth, warp

    image, u = smooth_image((24, 20)).float(), 3 * smooth(random(1, 2, 24, 20), 3.0).float()
    torch.testing.assert_close(Warp("bilinear", "border")(image, u), warp(image, u), atol=1e-4, rtol=1e-4)
