"""Known vulnerabilities of the packages in requirements/, found by pip-audit (`make audit`).

The exit status is 0 if none is known, 1 if one is, and 2 if a look-up failed,
for example without a network or without pip-audit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).parent.parent / "requirements"


def main() -> int:
    """See the module."""
    lists = [f"--requirement={path}" for path in sorted(REQUIREMENTS.glob("*.txt"))]
    options = ("--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json")
    done = subprocess.run([sys.executable, "-m", "pip_audit", *options, *lists], capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        print(done.stderr.strip()[-1000:], file=sys.stderr)
        packages = []
    # With an index that has no advisories, pip-audit skips every package and still reports success.
    audited = [package for package in packages if "vulns" in package]
    found = [(package, fault) for package in audited for fault in package["vulns"]]
    for package, fault in found:
        print(f"{package['name']} {package['version']}: {fault['id']}, mended in {', '.join(fault['fix_versions'])}")
    for package in packages:
        if "vulns" not in package:
            print(f"not audited: {package['name']}: {package.get('skip_reason', '')}", file=sys.stderr)
    print(f"{len(audited)} of {len(packages)} packages audited, {len(found)} vulnerabilities known")
    if found:
        return 1
    if not audited:
        print("NOT AUDITED: the database of vulnerabilities could not be asked.", file=sys.stderr)
    return 0 if packages and len(audited) == len(packages) else 2


if __name__ == "__main__":
    sys.exit(main())
