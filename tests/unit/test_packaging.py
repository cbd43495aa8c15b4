"""What we ship is what we pinned: the locks, the wheel and the sdist."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = [*PYPROJECT["project"]["dependencies"], *PYPROJECT["project"]["optional-dependencies"]["embedded"]]
DEV = [*RUNTIME, *PYPROJECT["dependency-groups"]["dev"], *PYPROJECT["build-system"]["requires"]]


def lock_text(name: str) -> str:
    return (ROOT / name).read_text()


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", lock_text(name), flags=re.MULTILINE))


@pytest.mark.parametrize(("lock", "wanted"), [("requirements.lock", RUNTIME), ("requirements-dev.lock", DEV)])
def test_the_lock_pins_all_that_pyproject_asks_for_within_its_ranges(lock: str, wanted: list[str]):
    pinned = pins(lock)

    wrong = [each for each in map(Requirement, wanted) if pinned.get(each.name, "none") not in each.specifier]

    assert wrong == []


def test_the_tools_run_against_the_same_releases_that_users_get():
    runtime, dev = pins("requirements.lock"), pins("requirements-dev.lock")

    assert {name: dev.get(name) for name in runtime} == runtime


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_the_lock_names_no_place_to_download_from(lock: str):
    assert not re.search(r"://|^-|^ +--(?!hash=sha256:)", lock_text(lock), flags=re.MULTILINE)


def test_the_wheel_from_the_sdist_has_every_file_of_the_package_and_of_the_migrations(tmp_path: Path):
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)

    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        shipped = {name for name in wheel.namelist() if not name.startswith("pgmem_mage-")}

    migrations = {f"pgmem/{path}" for path in files_of("migrations")}
    assert shipped == files_of("pgmem") | migrations
    assert "pgmem/py.typed" in shipped


def files_of(folder: str) -> set[str]:
    paths = (ROOT / folder).rglob("*")
    return {str(path.relative_to(ROOT)) for path in paths if path.is_file() and "__pycache__" not in path.parts}
