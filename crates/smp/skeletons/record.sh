#!/bin/sh
# Records the commands of `pagewalk hat --work kenbus` and makes their skeletons, here.
# Sizes are small: a user's commands of a shell, and the compile of a few lines.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cd "$work"
trap 'rm -r "$work"' EXIT
cat > x.c <<'C'
#include <stdio.h>
int main(int argc, char **argv) { for (int i = 0; i < argc; i++) puts(argv[i]); return 0; }
C
seq 1 2000 > numbers
seq 3 2003 > others
mkdir -p d/e
cp numbers d/
cp others d/e/
cc -S x.c
while IFS='|' read -r name command; do
    pagewalk record --force -o trace.pwt -- sh -c "$command" > /dev/null
    pagewalk skeleton trace.pwt --force -o "$here/$name.skeleton"
done <<'COMMANDS'
sh|i=0; while [ $i -lt 200 ]; do i=$((i+1)); done
ls|ls -l d; :
cat|cat numbers; :
cp|cp numbers copy; :
mv|mv copy moved; :
rm|rm -f moved; :
mkdir|mkdir -p f/g; :
chmod|chmod 600 others; :
touch|touch new; :
date|date; :
grep|grep 99 numbers; :
sed|sed s/9/8/ numbers; :
sort|sort -r numbers; :
wc|wc numbers; :
diff|diff numbers others; :
find|find d -name others; :
cc|gcc -c x.c; :
as|as x.s -o x.o; :
COMMANDS
