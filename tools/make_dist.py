"""What `make dist` makes in dist/, all of it from pyproject.toml and the source:

- `notewright-VERSION-py3-none-any.whl`, which `uvx notewright` and `pipx run notewright` run;
- `notewright-VERSION.mcpb`, a bundle that a desktop client installs by a click (MCPB manifest 0.4, run by uv);
- `server.json`, the entry for the MCP registry.

    python tools/make_dist.py [FOLDER]
"""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from notewright.surfaces.notes.tools import SURFACE

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src/notewright")
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
FOLDERS = {"title": "Notes", "description": "Folders of Markdown notes; each becomes a workspace of its own name"}
READ_ONLY = {"title": "Read only", "description": "Agents may read and search, and change nothing"}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    name, version = project["project"]["name"], project["project"]["version"]
    with tempfile.TemporaryDirectory() as staged:
        stage(Path(staged))
        write_bundle(Path(staged), manifest(project["project"]), folder / f"{name}-{version}.mcpb")
        build_wheel(Path(staged), folder)
    write_json(folder / "server.json", registry_entry(project))
    print("\n".join(str(file) for file in sorted(folder.iterdir())))


def stage(place: Path) -> None:
    """A copy of what is distributed, so that building leaves nothing in the checkout."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy(ROOT / name, place / name)


def build_wheel(staged: Path, folder: Path) -> None:
    words = ["wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(staged)], check=True)


def write_bundle(staged: Path, described: dict[str, Any], file: Path) -> None:
    """The same source gives the same bytes: names in order, one date for all."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr(zipfile.ZipInfo("manifest.json"), json.dumps(described, indent=2) + "\n")
        for place in sorted(path for path in staged.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(str(place.relative_to(staged)))
            bundle.writestr(entry, place.read_bytes(), zipfile.ZIP_DEFLATED)


def manifest(project: dict[str, Any]) -> dict[str, Any]:
    """The dependencies are compiled for each machine, so uv fetches them where the bundle is installed."""
    arguments = ["run", "--directory", "${__dirname}", project["name"], "serve", "${user_config.folders}"]
    environment = {"NOTEWRIGHT_READ_ONLY": "${user_config.read_only}"}
    started = {"command": "uv", "args": arguments, "env": environment}
    return {
        "manifest_version": "0.4",
        "name": project["name"],
        "display_name": project["name"].title(),
        "version": project["version"],
        "description": project["description"],
        "author": {"name": project["authors"][0]["name"]},
        "license": project["license"],
        "keywords": project["keywords"],
        "server": {"type": "uv", "entry_point": "src/notewright/cli/__main__.py", "mcp_config": started},
        "tools": [{"name": tool.name, "description": tool.description} for tool in SURFACE.tools],
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": project["requires-python"]}},
        "user_config": {
            "folders": {"type": "directory", "multiple": True, "required": True, **FOLDERS},
            "read_only": {"type": "boolean", "required": False, "default": False, **READ_ONLY},
        },
    }


def registry_entry(data: dict[str, Any]) -> dict[str, Any]:
    """The registry asks the published README for the same name: see `mcp-name` there."""
    project = data["project"]
    folders = {
        "type": "positional",
        "valueHint": "folder",
        "format": "filepath",
        "isRequired": True,
        "isRepeated": True,
    }
    read_only = {"name": "NOTEWRIGHT_READ_ONLY", "format": "boolean", "default": "false"}
    package = {
        "registryType": "pypi",
        "identifier": project["name"],
        "version": project["version"],
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [
            {"type": "positional", "value": "serve"},
            folders | {"isRepeated": True, "description": FOLDERS["description"]},
        ],
        "environmentVariables": [read_only | {"description": READ_ONLY["description"]}],
    }
    return {
        "$schema": SCHEMA,
        "name": data["tool"]["notewright"]["mcp-name"],
        "title": project["name"].title(),
        "description": project["description"],
        "version": project["version"],
        "packages": [package],
    }


def write_json(file: Path, document: dict[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist")
