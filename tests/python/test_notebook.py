"""The notebook of the handbook, run from its first cell to its last without a network."""

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "start" / "notebook.ipynb"
PYTHON = Path(__file__).parents[2] / "python"


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "clear it before it is stored"
    # The notebook can reach no other machine, because its proxy does not exist.
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("PYTHONPATH", f"{PYTHON}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    client = NotebookClient(
        notebook,
        timeout=240,
        resources={"metadata": {"path": str(tmp_path)}},
        kernel_name="python3",
    )
    client.execute()
    shown: list[Any] = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    data = [output.data for output in shown if output.output_type in ("execute_result",)]
    assert sum("text/html" in one and "<table" in one["text/html"] for one in data) >= 4
    assert sum("image/svg+xml" in one for one in data) == 2
    assert not any("<script" in one.get("text/html", "") for one in data)
