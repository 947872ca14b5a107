"""`vrnet doctor`: is everything installed as it should be?"""

import json
import sys
from dataclasses import dataclass

from vrnet.app.console import print_line
from vrnet.app.endings import FAILED_STATUS


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Say whether everything is as it should be: versions, extras, devices, threads and folders; then register a
    made-up heart whose motion is known, within a few seconds.

    Where something is wrong, the line says what to do, and the exit status is 3.
    """

    json: bool = False
    """Print all of it as JSON, for a program or a bug report."""

    def run(self) -> None:
        from vrnet.app.doctor import as_json, examine

        checks = examine()
        summary = as_json(checks)
        if self.json:
            print(json.dumps(summary, indent=2))
        else:
            for part, found in checks.items():
                print_line(part)
                for check in found:
                    mark = "ok   " if check.is_fine else "WRONG"
                    hint = f" → {check.hint}" if check.hint else ""
                    print_line(f"  {mark} {check.name}: {check.found}{hint}")
            print_line("Everything is as it should be." if summary["is_fine"] else "Not everything is as it should be.")
        if not summary["is_fine"]:
            sys.exit(FAILED_STATUS)
