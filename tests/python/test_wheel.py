"""The package as others install it: a source distribution, the wheel built from it, and that wheel
alone in a fresh environment.

The wheel is compiled in haste (`HASTE`): `make wheel` makes the same from the same files, slowly.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

import audit  # noqa: E402

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
HASTE = {
    # What `cargo test` has compiled of other crates is taken over.
    # And the wheel is named for the glibc of this system.
    "MATURIN_PEP517_ARGS": "--profile dev --compatibility pypi",
    "CARGO_TARGET_DIR": str(TARGET),
}


def ran(*command: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd, env=env)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def apart() -> str:
    """Settings of cargo under which our crates are compiled beside those of this source tree.

    A crate is told by its path in its workspace and by its profile. With one profile for both,
    cargo would take the copies for what `make build` and `cargo test` compiled, and not see what
    is edited here afterwards. What these tests run is so small that optimizing it takes longer.
    """
    listed = ran("cargo", "metadata", "--no-deps", "--format-version", "1", cwd=ROOT)
    names = [package["name"] for package in json.loads(listed)["packages"]]
    profiles = [(profile, name) for profile in ("dev", "release") for name in names]
    return "".join(
        f"[profile.{profile}.package.{name}]\ncodegen-units = 13\nopt-level = 0\ndebug = false\n"
        for profile, name in profiles
    )


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    ran(sys.executable, "-m", "maturin", "sdist", "--out", folder, cwd=ROOT)
    [file] = folder.glob("*.tar.gz")
    return file


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # The folder is always the same, so that cargo reuses its last build. Cargo detects changed
    # files by their dates, and all files in a source distribution have one date.
    sources = TARGET / "wheel"
    shutil.rmtree(sources, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(sources, filter="data")
    for path in sources.rglob("*"):
        os.utime(path)
    [unpacked] = sources.iterdir()
    with (unpacked / ".cargo/config.toml").open("a") as settings:
        settings.write(apart())
    folder = tmp_path_factory.mktemp("wheel")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran(
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder,
        unpacked, env={**os.environ, **HASTE, "PATH": path},
    )  # fmt: skip
    [file] = folder.glob("*.whl")
    return file


def test_the_sdist_holds_all_sources(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    known = set(ran("git", "ls-files", cwd=ROOT).split()) if (ROOT / ".git").exists() else set()
    assert names >= known
    assert names >= {
        "packaging/backend.py", "crates/recorder/src/lib.rs", "crates/recorder/LICENSE-GPL",
        "crates/engine/src/main.rs",
        "qemu/source.toml", "qemu/insertions.toml", "qemu/pagewalk/meson.build",
        "machines/r4700.toml", "experiments/programs.toml", "workloads/join.sql", "Cargo.lock",
    }  # fmt: skip
    assert not [name for name in names if name.endswith((".so", ".pwt"))]


def test_the_wheel_holds_what_recording_and_experiments_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(about).decode()
    assert names >= {
        "pagewalk/plugins/pagewalk-recorder-v1.so", "pagewalk/plugins/pagewalk-recorder-v4.so",
        "pagewalk/plugins/pagewalk-allocations-x86_64.so",
        "pagewalk/data/experiments/programs.toml", "pagewalk/data/workloads/join.sql",
        "pagewalk/py.typed", "pagewalk/report/style.css",
        "pagewalk/qemu/linked", "pagewalk/qemu/COPYING", "pagewalk/qemu/COPYING.LIB",
    }  # fmt: skip
    # The engine is for programs of this host's own processor.
    assert ("pagewalk/plugins/pagewalk-engine" in names) == (platform.machine() == "x86_64")
    programs = {name for name in names if name.startswith("pagewalk/qemu/qemu-")}
    sets = ("x86_64", "i386", "arm", "aarch64", "riscv64")
    assert programs == {f"pagewalk/qemu/qemu-{name}" for name in sets}
    for licence in ("LICENSE-MIT", "LICENSE-APACHE", "LICENSE-GPL"):
        assert any(name.endswith(licence) for name in names), licence
    for line in (
        "License-Expression: (MIT OR Apache-2.0) AND GPL-2.0-or-later AND GPL-2.0-only "
        "AND LGPL-2.1-or-later",
        "Requires-Python: >=3.10",
        "Description-Content-Type: text/markdown",
    ):
        assert line in metadata, line


def test_the_wheel_keeps_what_its_name_promises(wheel: Path, tmp_path: Path) -> None:
    assert audit.audit(wheel) == []
    for wrong, says in (
        (re.sub(r"_2_\d+_", "_2_5_", wheel.name), "_native.abi3.so: needs GLIBC_2."),
        (wheel.name.replace("x86_64", "aarch64"), "_native.abi3.so: is for x86_64"),
        (wheel.name.replace("x86_64", "aarch64"), "qemu-x86_64 is in a wheel for analysis"),
        (wheel.name.replace("abi3", "cp310"), "its name is not that of a wheel of abi3"),
    ):
        shutil.copy(wheel, tmp_path / wrong)
        assert any(says in each for each in audit.audit(tmp_path / wrong)), (wrong, says)


def test_a_fresh_environment_records_runs_reports_and_reproduces(
    wheel: Path, tmp_path: Path
) -> None:
    ran(sys.executable, "-m", "venv", tmp_path / "venv")
    python, pagewalk = tmp_path / "venv/bin/python", tmp_path / "venv/bin/pagewalk"
    ran(python, "-m", "pip", "install", "--quiet", wheel)
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def here(*command: object) -> str:
        return ran(*command, cwd=tmp_path, env=clean)

    where = here(python, "-c", "import pagewalk; print(pagewalk.__file__)")
    assert where.startswith(str(tmp_path))
    found = json.loads(here(pagewalk, "version", "--json"))
    for qemu in found["emulators"].values():
        assert qemu.startswith(str(tmp_path))
        assert "(pagewalk)" in here(qemu, "-version")
    here(pagewalk, "record", "-o", "true.pwt", "--", "true")
    here(pagewalk, "run", "true.pwt", "--html", "true.html", "--json", "true.json")
    document = json.loads((tmp_path / "true.json").read_text())
    assert document["accesses"]["fetch"] > 1000
    assert "vegaEmbed" in (tmp_path / "true.html").read_text()
    assert "r4700" in here(pagewalk, "machines")
    assert "B10/fig4.14" in here(pagewalk, "reproduce", "--list")
    assert "UPTC" in here(pagewalk, "reproduce", "B10/table4.2", "--smoke")
