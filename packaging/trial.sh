#!/usr/bin/env bash
# What a user does with the wheel in a clean system without a network: installs it, has the README's questions answered,
# asks for what cannot be had, and removes it. packaging/roots.py runs this.
set -euo pipefail
cd
artefacts=/artefacts
offline=(--quiet --no-index --find-links "$artefacts")

step() { echo; echo "--- $*"; }

# refused WORDS COMMAND...: it fails with one line, in which the words are.
refused() {
    local words=$1 said
    shift
    echo "\$ $*"
    if said=$("$@" 2>&1 >/dev/null); then
        echo "it should have been refused"
        return 1
    fi
    echo "$said"
    if [ "$(wc -l <<<"$said")" != 1 ] || ! grep -q -- "$words" <<<"$said"; then
        echo "it should have been one line with: $words"
        return 1
    fi
}

# Folders that the user may not read are as they were.
files() { { find / -xdev -path /proc -prune -o -type f -print 2>/dev/null || true; } | LC_ALL=C sort; }

step "$(. /etc/os-release && echo "$PRETTY_NAME"), $(python3 --version), kernel $(uname -r)"
for tool in cc gcc rustc cargo; do
    ! command -v "$tool" || exit 1
done
python3 -m venv venv
touch before after
files >before
venv/bin/pip install "${offline[@]}" pagewalk
PATH=$HOME/venv/bin:$PATH
pagewalk version

cat >join.py <<'PYTHON'
table = {number * 7919 % 1000003: number for number in range(20_000)}
print(sum(table.get(number * 104729 % 1000003, 0) for number in range(20_000)))
PYTHON
program=(python3 -IS join.py)

step "A program is recorded, in QEMU and natively"
pagewalk record -o join.pwt -- "${program[@]}"
pagewalk record --engine native --force -o native.pwt -- "${program[@]}"
pagewalk info join.pwt

step "How often do my accesses miss the TLB, on this machine or on that one, and in which of my data?"
pagewalk run join.pwt --machine opteron-2008 --machine epyc-9005 --html join.html --json join.json
test -s join.html -a -s join.json

step "What does a miss cost?"
pagewalk stat join.pwt -m epyc-9005

step "What would 2M pages, a larger TLB, an MMU cache, another page table, another replacement policy change?"
pagewalk run join.pwt -m epyc-9005 --set os.page_size=2M --set tlb.l1d.replacement=fifo --set page_table.format=guarded
pagewalk sweep join.pwt -m opteron-2008 --vary tlb.l2d.entries=2^9..2^11 --html sweep.html
test -s sweep.html

step "Under nested paging too?"
pagewalk run join.pwt -m epyc-9005 --set nested.page_size=2M

step "Which page sizes would Linux, FreeBSD, IRIX or a proposal of research give my data?"
pagewalk managers join.pwt --memory 80%
pagewalk advise join.pwt -m epyc-9005

step "Do the papers' findings hold on programs of today?"
pagewalk reproduce B10/table4.2 --cache reproduced

step "Bad input: a line each"
python3 - <<'PYTHON'
import pathlib

trace = bytearray(pathlib.Path("join.pwt").read_bytes())
trace[8] = 99
pathlib.Path("new.pwt").write_bytes(trace)
PYTHON
refused "version 99" pagewalk info new.pwt
refused "version 99" pagewalk run new.pwt
for home in /readonly /full; do
    refused "$home" env HOME="$home" pagewalk record -o "$home/a.pwt" -- "${program[@]}"
    refused "$home" env HOME="$home" pagewalk run join.pwt --json "$home/a.json" --html "$home/a.html"
    refused "$home" env HOME="$home" pagewalk export csv join.pwt -o "$home/a.csv"
    refused "$home" env HOME="$home" pagewalk reproduce B10/table4.2
done
# Nothing that asks for no file minds.
env HOME=/readonly TMPDIR=/readonly pagewalk stat join.pwt -m tlb-only >/dev/null
# What a recording had kept is all that is left on the full disk.
[ "$(find /full -type f)" = /full/a.pwt.part ]

step "Uninstalling leaves nothing"
rm -rf ./*.pwt ./*.html ./*.json join.py reproduced
venv/bin/pip uninstall --quiet --yes pagewalk
venv/bin/pip uninstall --quiet --yes $(venv/bin/pip list --format freeze | sed 's/==.*//' | grep -vxE 'pip|setuptools|wheel')
files >after
diff before after

step "pipx"
pipx install --pip-args "${offline[*]}" pagewalk
.local/bin/pagewalk --version
.local/bin/pagewalk run generate:uniform,size=8M,accesses=100k --machine tlb-only
pipx uninstall pagewalk

step "uv tool"
venv/bin/pip install "${offline[@]}" uv
venv/bin/uv tool install --no-index --find-links "$artefacts" pagewalk
.local/bin/pagewalk --version
venv/bin/uv tool uninstall pagewalk
step "done"
