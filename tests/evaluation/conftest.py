"""A small data set to be measured on."""

import pytest

from tests.data.conftest import heart, write_acdc
from vrnet.data.dataset import ACDC
from vrnet.data.prepared import PreparedSplit


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """A folder in ACDC's layout: two made-up patients, one of them in the split "test"."""
    folder = tmp_path_factory.mktemp("acdc")
    for name, seed in (("patient001", 3), ("patient002", 4)):
        write_acdc(folder, name, *heart(seed))
    (folder / "split.csv").write_text("patient,group,split\npatient001,NOR,test\npatient002,NOR,train\n")
    return folder


@pytest.fixture(scope="session")
def split(root):
    """The split "test" of the folder, prepared."""
    data = ACDC(root)
    samples = tuple(data.prepare(name, "evaluation") for name in data.subjects("test"))
    return PreparedSplit("acdc", "test", samples, data.structures, data.pairs_across_subjects)
