"""`python -m drills.writers`: runs the `wng` commands of its input, one by one, when told."""

import json
import sys

from drills.runs import command
from wng.runs import record

if __name__ == "__main__":
    record.CHECKPOINT_SECONDS = 0.0
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(command(*json.loads(line))), flush=True)
