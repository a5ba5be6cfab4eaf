"""`python tests/drills/table.py FILE`: the results of the drills as a Markdown table."""

import json
import sys
from pathlib import Path

HEADER = ("Fault", "Times tried", "Times survived", "Data lost", "How")


def table(lines: list[str]) -> str:
    """One row for each fault, in the order of the drills; repetitions are added up."""
    counts: dict[str, list[int]] = {}
    notes: dict[str, list[str]] = {}
    for line in lines:
        row = json.loads(line)
        total = counts.setdefault(row["fault"], [0, 0, 0])
        for k, name in enumerate(("tried", "survived", "lost")):
            total[k] += row[name]
        said = notes.setdefault(row["fault"], [])
        if row["note"] and row["note"] not in said:
            said.append(row["note"])
    rows = [
        (fault, str(tried), str(survived), str(lost) if lost else "none", "; ".join(notes[fault]))
        for fault, (tried, survived, lost) in counts.items()
    ]
    rules = ("---", "---:", "---:", "---:", "---")
    return "\n".join("| " + " | ".join(row) + " |" for row in (HEADER, rules, *rows))


if __name__ == "__main__":
    print(table(Path(sys.argv[1]).read_text().splitlines()))
