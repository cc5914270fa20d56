"""Several commands in one process, so that their imports are paid for once.

`python -m paiq.cli.chain '[["train", ...], ["predict", ...]]'`; ends at the first that fails.
"""

import json
import sys
from collections.abc import Sequence

from paiq.cli.main import main


def run_all(commands: Sequence[Sequence[str]]) -> int:
    """The exit code of the first command that fails, or 0."""
    return next((code for words in commands if (code := main(words))), 0)


if __name__ == "__main__":
    sys.exit(run_all(json.loads(sys.argv[1])))
