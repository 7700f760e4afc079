"""Run by `processes.batch` with plain vLLM: the lines that its batch runner can read. (It stops at any other line.)

python batch_script.py FILE      prints RESULT and a list of the lines
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import ValidationError


def main(file: str) -> None:
    """See the module."""
    from vllm.entrypoints.launchers.run_batch import BatchRequestInput

    read = list[str]()
    for line in Path(file).read_text().splitlines():
        try:
            BatchRequestInput.model_validate_json(line)
        except ValidationError:
            continue
        read.append(line)
    print("RESULT " + json.dumps(read))


if __name__ == "__main__":
    main(*sys.argv[1:])
