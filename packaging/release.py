"""Makes a release, up to the steps that cannot be undone: `make release`.

```
 CHANGELOG.md        "Unreleased" becomes the version's section     | to be committed
 packaging/api       the interface of the crates, as it is now      | and tagged
 dist/               artefacts.py: source distribution, wheels, source of QEMU, crates
                     audit.py: the wheels keep what their names promise
                     roots.py: the wheel for x86-64 works in clean systems
                     SHA256SUMS, and SHA256SUMS.asc if KEY names a key of GnuPG
```

Running it again gives equal bytes. Nothing is uploaded, and no secret is needed; at its end it says
what is left to do.
"""

import argparse
import datetime
import hashlib
import re
from pathlib import Path

import api
import artefacts
import audit
import roots

CHANGELOG = artefacts.ROOT / "CHANGELOG.md"
LEFT = """\
Version {version} is in {dist}. What is left to do:
  git commit -m 'release: {version}' CHANGELOG.md packaging/api && git tag {sign} v{version}
  twine upload {dist}/*.whl {dist}/pagewalk-{version}.tar.gz
  {crates}
  publish {dist}/pagewalk-{version}-sources.tar, which the GPL asks for, and SHA256SUMS*"""


def changelog(text: str, version: str, day: str) -> str:
    """The changelog with a section for the version; one that is there stays as it is."""
    if re.search(rf"^## {re.escape(version)} \(", text, re.MULTILINE):
        return text
    found = re.search(r"^## Unreleased\n+(?P<what>.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None or not found["what"].strip():
        artefacts.fail(
            f"CHANGELOG.md has neither a section `## {version} (DATE)` nor anything under "
            "`## Unreleased`: write there what users will notice"
        )
    return text.replace("## Unreleased\n", f"## Unreleased\n\n## {version} ({day})\n", 1)


def check() -> None:
    """Refuses a tree whose version cannot be released."""
    version = artefacts.version()
    changed = [line[3:] for line in artefacts.run("git", "status", "--porcelain").splitlines()]
    others = [
        path for path in changed if path != "CHANGELOG.md" and not path.startswith("packaging/api/")
    ]
    if others:
        artefacts.fail(f"{others[0]} is not committed: commit it or put it away, then try again")
    tagged = artefacts.run("git", "tag", "--list", f"v{version}")
    head, of_tag = "", ""
    if tagged:
        head = artefacts.run("git", "rev-parse", "HEAD")
        of_tag = artefacts.run("git", "rev-parse", f"v{version}^{{commit}}")
    if head != of_tag:
        artefacts.fail(f"{version} has been released already: set another version in Cargo.toml")


def checksums(dist: Path, key: str | None) -> None:
    """Writes the SHA-256 of each artefact, and signs them."""
    lines = []
    for path in sorted(dist.glob("pagewalk-*")):
        lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    sums = dist / "SHA256SUMS"
    sums.write_text("".join(lines), encoding="utf-8")
    sums.with_suffix(".asc").unlink(missing_ok=True)
    if key:
        artefacts.run(
            "gpg", "--batch", "--yes", "--local-user", key, "--armor", "--detach-sign", sums
        )


def main() -> None:
    """Does all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--key", help="the key of GnuPG that signs the checksums")
    parser.add_argument("--dist", type=Path, default=artefacts.ROOT / "dist")
    options = parser.parse_args()
    dist, version = options.dist.absolute(), artefacts.version()
    check()
    api.main(is_written=False)
    api.main(is_written=True)
    day = datetime.datetime.fromtimestamp(artefacts.date(), datetime.timezone.utc).date()
    text = CHANGELOG.read_text(encoding="utf-8")
    CHANGELOG.write_text(changelog(text, version, str(day)), encoding="utf-8")
    artefacts.build(dist, list(artefacts.WHEELS))
    artefacts.crates(dist)
    wrong = [f"{wheel.name}: {each}" for wheel in dist.glob("*.whl") for each in audit.audit(wheel)]
    if wrong:
        artefacts.fail("\npackaging: ".join(wrong))
    roots.trials(dist)
    checksums(dist, options.key)
    publish = " && ".join(f"cargo publish -p pagewalk-{name}" for name in artefacts.CRATES)
    sign = "-s" if options.key else "-a"
    print(LEFT.format(version=version, dist=dist, sign=sign, crates=publish))


if __name__ == "__main__":
    main()
