"""What a stranger installs: a source archive, a wheel made from it, and a demonstration in an environment of its own.

Nothing is downloaded. The wheel is made as `python -m build` makes it, by the same backend, from the unpacked archive;
the packages that it needs are those of the tests, which the new environment sees, but not the vrnet that is there."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import vrnet
from vrnet.app.main import COMMANDS

pytestmark = pytest.mark.release
ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "vrnet"


def run(*words, cwd):
    """What a program prints; its errors where it fails. It sees neither the checkout nor a setting of Python's."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=plain, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(source, target, kind):
    """The archive of a kind that the backend makes of a source."""
    run(sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", target, cwd=source)
    (archive,) = target.iterdir()
    return archive


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """(source archive, wheel)"""
    pytest.importorskip("hatchling", reason="needs hatchling")
    folder = tmp_path_factory.mktemp("release")
    source = build(ROOT, folder / "sdist", "sdist")
    with tarfile.open(source) as file:
        file.extractall(folder, filter="data")
    return source, build(folder / source.name.removesuffix(".tar.gz"), folder / "wheel", "wheel")


@pytest.fixture(scope="module")
def clean(archives, tmp_path_factory):
    """The programs of a new environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    programs = folder / "bin"
    into = ("--python", programs / "python", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    run(sys.executable, "-m", "pip", *into, archives[1], cwd=folder)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(programs / "python", "-c", ask, cwd=folder).strip())
    (packages / "of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def test_the_wheel_is_the_package_and_nothing_else(archives):
    """Pages, weights, their terms and py.typed are in it; tests, results and documents are not."""
    with zipfile.ZipFile(archives[1]) as wheel:
        names = set(wheel.namelist())
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    inside = {name for name in names if not name.startswith(f"vrnet-{vrnet.__version__}.dist-info/")}
    assert inside == {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert {
        "vrnet/py.typed",
        "vrnet/weights/anatomy.safetensors",
        "vrnet/weights/short_axis.safetensors",
        "vrnet/weights/short_axis_cine.safetensors",
        "vrnet/weights/hippocampus.safetensors",
        "vrnet/weights/hippocampus_template.safetensors",
        "vrnet/report/web/page.html",
    } <= inside
    told = {name.rpartition("dist-info/licenses/")[2] for name in names - inside}
    assert {
        "LICENSE",
        "src/vrnet/weights/README.md",
        "src/vrnet/weights/HIPPOCAMPUS.md",
        "src/vrnet/weights/HIPPOCAMPUS_TEMPLATE.md",
        "src/vrnet/weights/SHORT_AXIS_CINE.md",
        "src/vrnet/report/web/vendor/LICENSE",
    } <= told


def test_the_archive_has_what_the_tests_and_the_site_need(archives):
    top = archives[0].name.removesuffix(".tar.gz")
    with tarfile.open(archives[0]) as file:
        names = {name.removeprefix(f"{top}/") for name in file.getnames()}
    wanted = "pyproject.toml Makefile mkdocs.yml README.md CHANGELOG.md constraints.txt tests/conftest.py docs/index.md"
    assert {*wanted.split(), "requirements/install.sh", "results/README.md", "benchmarks/stacks.py"} <= names
    assert not {name for name in names if name.startswith((".venv", "build", "site", "dist"))}


def test_installed_in_a_clean_environment_it_is_that_version_and_not_the_checkout(clean):
    printed = run(clean / "python", "-c", "import vrnet; print(vrnet.__file__, vrnet.__version__)", cwd=clean)
    place, number = printed.split()
    assert clean.parent in Path(place).parents
    assert number == vrnet.__version__
    assert number in run(clean / "vrnet", "--version", cwd=clean)


def test_installed_in_a_clean_environment_it_is_well_and_shows_a_heart(clean, tmp_path):
    if "doctor" in COMMANDS:
        run(clean / "vrnet", "doctor", cwd=tmp_path)
    assert "Verdict: good" in run(clean / "vrnet", "demo", "--out", tmp_path / "demo", cwd=tmp_path)
    made = {path.name for path in (tmp_path / "demo").iterdir()}
    assert {"report.html", "transform.nii.gz", "metrics.json"} <= made
