"""``python -m dotllm``: the ``dotllm`` command of this interpreter, whatever is on the PATH."""

from __future__ import annotations

import sys

from dotllm.cli import main

sys.exit(main())
