"""Programs of Debian's packages, alone and recorded natively: the same output, and none in QEMU.

    python tests/engine/programs.py [--only NAME ...] [--json FILE]

Each runs alone and recorded, in folders of its own with the same texts. What must be equal is its status, its standard
output and the files that it leaves. A line says how it went: equal, other (a wrong output), qemu (it was recorded in QEMU),
part (a process of it ran unrecorded), or missing (it is not installed). The status is 1 if any output is wrong, or if more
than a twentieth fell back to QEMU.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

TEXT = "".join(f"{n * 7919 % 10007} word{n % 97} {'x' * (n % 13)}\n" for n in range(900))

C = """#include <pthread.h>
#include <stdio.h>
static void *work(void *n) { long s = 0; for (long i = 0; i < (long)n; i++) s += i * i; return (void *)s; }
int main(void) {
    pthread_t t[4]; void *r; long s = 0;
    for (long i = 0; i < 4; i++) pthread_create(t + i, 0, work, (void *)(9999 + i));
    for (int i = 0; i < 4; i++) { pthread_join(t[i], &r); s += (long)r; }
    printf("%ld\\n", s);
}
"""
CXX = """#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
int main() {
    std::map<std::string, int> m;
    for (int i = 0; i < 500; i++) m["k" + std::to_string(i * 7919 % 1000)] += i;
    try { m.at("none"); } catch (const std::out_of_range &) { std::cout << m.size() << std::endl; }
}
"""
GO = """package main
import ("fmt"; "net/http"; "net/http/httptest"; "io"; "sync")
func main() {
    s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, len(r.URL.Path)) }))
    defer s.Close()
    var wait sync.WaitGroup
    var mutex sync.Mutex
    sum := 0
    for i := 0; i < 40; i++ {
        wait.Add(1)
        go func(i int) {
            defer wait.Done()
            r, err := http.Get(fmt.Sprintf("%s/%d", s.URL, i))
            if err != nil { panic(err) }
            b, _ := io.ReadAll(r.Body)
            r.Body.Close()
            mutex.Lock(); sum += len(b); mutex.Unlock()
        }(i)
    }
    wait.Wait()
    fmt.Println(sum)
}
"""
RUST = """use std::collections::HashMap;
use std::thread;
fn main() {
    let sums: u64 = (0..4u64).map(|n| thread::spawn(move || {
        let mut m = HashMap::new();
        for i in 0..2000u64 { *m.entry(i * 7919 % 997).or_insert(0u64) += i ^ n; }
        m.values().sum::<u64>()
    })).collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).sum();
    println!("{sums}");
}
"""
JAVA = """import java.util.*;
import java.util.stream.*;
public class Main {
    public static void main(String[] a) throws Exception {
        long s = IntStream.range(0, 300000).parallel().mapToLong(i -> (long) i * i % 97).sum();
        Map<String, Integer> m = new TreeMap<>();
        for (int i = 0; i < 20000; i++) m.merge("k" + i % 777, i, Integer::sum);
        try { Object o = null; o.hashCode(); } catch (NullPointerException e) { s++; }
        System.out.println(s + " " + m.get("k5"));
    }
}
"""
JS = """const { Worker } = require('worker_threads');
let s = 0; for (let i = 0; i < 300000; i++) s = (s + i * i) % 1000003;
const w = new Worker("require('worker_threads').parentPort.postMessage([...Array(5000).keys()].reduce((a, b) => a + b))", { eval: true });
w.on('message', m => console.log(s, m, JSON.stringify([...'text'].sort())));
"""
GHC = 'import Data.List\nmain = print (foldl\' (+) 0 [x * x `mod` 7 | x <- [1 .. 20000 :: Int]])\n'
OCAML = 'let () = print_int (List.fold_left (+) 0 (List.init 5000 (fun i -> i * i mod 7)))\n'
LISP = '(print (loop for i below 20000 sum (mod (* i i) 7)))\n'
PROLOG = ":- X is 6 * 7, write(X), nl, halt.\n"
ERLANG = 'Self = self(), [spawn(fun() -> Self ! N * N end) || N <- lists:seq(1, 50)], io:format("~p~n", [lists:sum([receive M -> M end || _ <- lists:seq(1, 50)])]), halt().'
MAKE = "all: a.o b.o\n\tcat a.o b.o\n%.o:\n\techo $@ > $@\n"
CMAKE = "cmake_minimum_required(VERSION 3.10)\nproject(t C)\nadd_executable(t c.c)\nfind_package(Threads)\ntarget_link_libraries(t Threads::Threads)\n"
PAGE = "<html><body><script>document.write([...Array(2000).keys()].reduce((a, b) => a + b * b % 7))</script></body></html>"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><circle cx="20" cy="20" r="15"/></svg>'
DOT = "digraph { a -> b -> c; a -> c }\n"
FILES = {
    "text": TEXT, "other": TEXT.replace("7", "8"), "c.c": C, "x.cc": CXX, "g.go": GO, "r.rs": RUST, "Main.java": JAVA,
    "j.js": JS, "h.hs": GHC, "o.ml": OCAML, "l.lisp": LISP, "p.pl": PROLOG, "Makefile": MAKE, "CMakeLists.txt": CMAKE,
    "page.html": PAGE, "s.svg": SVG, "d.dot": DOT,
    "e.asm": "global _start\n_start: mov eax, 60\nxor edi, edi\nsyscall\n",
}  # fmt: skip
"""What lies in the folder of a program."""

POSTGRES = """set -e; export PATH=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1):/usr/local/bin:$PATH
u=; [ $(id -u) = 0 ] && { chown postgres . && u='setpriv --reuid=postgres --clear-groups'; }
$u initdb -D db >/dev/null 2>&1; $u pg_ctl -D db -o "-k $PWD -h ''" -l /dev/null -w start >/dev/null
$u psql -h $PWD -d postgres -Atc 'select sum(i * i % 7) from generate_series(1, 20000) i'
$u psql -h $PWD -d postgres -Atc "create table t as select md5(i::text) m from generate_series(1, 3000) i; create index on t(m); select count(distinct m) from t"
$u pg_ctl -D db -m fast -w stop >/dev/null; rm -rf db"""
MARIADB = """set -e; mkdir db; mariadb-install-db --no-defaults --user=$(id -un) --datadir=$PWD/db --auth-root-authentication-method=normal >/dev/null 2>&1
mariadbd --no-defaults --user=$(id -un) --datadir=$PWD/db --socket=$PWD/s --skip-networking >/dev/null 2>&1 &
for i in $(seq 300); do mariadb-admin -S $PWD/s ping >/dev/null 2>&1 && break; sleep 0.2; done
mariadb -S $PWD/s -uroot -Ne 'select sum(seq * seq % 7) from seq_1_to_20000'; mariadb-admin -S $PWD/s -uroot shutdown; wait; rm -rf db s"""
REDIS = """redis-server --port 0 --unixsocket $PWD/s --save '' >/dev/null & for i in $(seq 100); do redis-cli -s $PWD/s ping >/dev/null 2>&1 && break; sleep 0.1; done
redis-benchmark -s $PWD/s -n 2000 -c 10 -q -t set,get >/dev/null; redis-cli -s $PWD/s eval 'return redis.call("dbsize")' 0; redis-cli -s $PWD/s shutdown nosave; wait"""
NGINX = """mkdir -p n/logs; printf 'daemon off; pid n/pid; error_log n/e; worker_processes 2; events {} http { access_log off; server { listen unix:%s/n/s; root %s; } }' $PWD $PWD > n/conf
nginx -p $PWD -c n/conf -e n/e & for i in $(seq 100); do [ -S n/s ] && break; sleep 0.1; done
for i in 1 2 3 4 5; do curl -s --unix-socket n/s http://x/text | md5sum; done; kill -QUIT $!; wait; rm -rf n"""
MEMCACHED = """memcached -u $(id -un) -s $PWD/s & for i in $(seq 100); do [ -S s ] && break; sleep 0.1; done
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('s'); s.sendall(b'set a 0 0 3\\r\\nxyz\\r\\nget a\\r\\n'); print(s.recv(100), s.recv(100))"; kill $!; wait 2>/dev/null; rm -f s"""


class Tried(NamedTuple):
    """A program that is tried."""

    name: str
    command: list[str]
    kind: str = ""
    """Of a program with a JIT or with threads: which of both."""


def shell(name: str, script: str, kind: str = "") -> Tried:
    """A program that is started by a shell's script."""
    return Tried(name, ["/bin/sh", "-c", script], kind)


PROGRAMS = [
    Tried("node", ["node", "j.js"], "JIT, threads"),
    shell("java", "javac Main.java && java -Xmx256m Main && rm Main.class", "JIT, threads"),
    shell("java, serial", "javac Main.java && java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 Main && rm Main.class", "JIT, threads"),
    shell("go, a server and its clients", "export HOME=$PWD/h GOFLAGS=-mod=mod; go build -o g g.go && ./g; chmod -R u+w h; rm -rf h g", "threads"),
    shell("rust", "rustc -O r.rs && ./r && rm r", "threads"),
    Tried("luajit", ["luajit", "-e", "local s = 0 for i = 1, 3e6 do s = (s + i * i) % 1000003 end print(s)"], "JIT"),
    Tried("pypy", ["pypy3", "-c", "print(sum(i * i % 7 for i in range(300000)))"], "JIT"),
    Tried("php", ["php", "-d", "opcache.enable_cli=1", "-d", "opcache.jit=tracing", "-d", "opcache.jit_buffer_size=16M", "-r", "$s = 0; for ($i = 0; $i < 300000; $i++) $s = ($s + $i * $i) % 1000003; echo $s;"], "JIT"),
    Tried("ruby", ["ruby", "-e", "t = 4.times.map { |n| Thread.new { (1..3000).sum { |i| i * i % (7 + n) } } }; puts t.sum(&:value); puts `echo child`"], "threads"),
    Tried("python, threads", ["python3", "-c", "import concurrent.futures as f; print(sum(f.ThreadPoolExecutor(4).map(lambda n: sum(i * i % n for i in range(3000)), range(1, 9))))"], "threads"),
    Tried("python, processes", ["python3", "-c", "import multiprocessing as m\nif __name__ == '__main__':\n    print(m.get_context('fork').Pool(3).map(len, ['a', 'bb', 'ccc']))"], "threads"),
    Tried("perl", ["perl", "-e", "my %h; $h{$_ % 97} += $_ for 1 .. 20000; print join(',', map { \"$_=$h{$_}\" } sort { $a <=> $b } keys %h), `echo child`"]),
    shell("chromium", "chromium --headless --no-sandbox --disable-gpu --user-data-dir=$PWD/u --dump-dom file://$PWD/page.html 2>/dev/null; rm -rf u", "JIT, threads"),
    shell("postgres", POSTGRES),
    shell("mariadb", MARIADB, "threads"),
    shell("redis", REDIS, "threads"),
    shell("nginx", NGINX),
    shell("memcached", MEMCACHED, "threads"),
    shell("gcc", "gcc -O2 -pthread c.c -o c && ./c && rm c", "threads"),
    shell("g++", "g++ -O1 x.cc -o x && ./x && rm x"),
    shell("clang", "clang -O2 -pthread c.c -o c && ./c && rm c", "threads"),
    shell("make", "make -s -j4 && rm *.o"),
    shell("cmake, ninja", "cmake -G Ninja -S . -B b >/dev/null && ninja -C b >/dev/null && b/t && rm -rf b", "threads"),
    Tried("R", ["Rscript", "--vanilla", "-e", "x <- sapply(1:2000, function(i) i * i %% 7); print(sum(x)); print(solve(matrix(c(2, 1, 1, 3), 2)))"]),
    Tried("octave", ["octave-cli", "--no-history", "--norc", "--eval", "A = magic(60); disp(sum((A * A)(:))); disp(rank(A))"], "threads"),
    Tried("emacs", ["emacs", "--batch", "--eval", "(message \"%d\" (apply #'+ (mapcar (lambda (i) (% (* i i) 7)) (number-sequence 1 5000))))"]),
    Tried("sbcl", ["sbcl", "--script", "l.lisp"], "JIT"),
    shell("ghc", "ghc -O -v0 h.hs -o h && ./h && rm h h.hi h.o"),
    Tried("ocaml", ["ocaml", "o.ml"]),
    Tried("erlang", ["erl", "-noshell", "-eval", ERLANG], "JIT, threads"),
    Tried("julia", ["julia", "-e", "println(sum(i * i % 7 for i in 1:100000))"], "JIT, threads"),
    Tried("racket", ["racket", "-e", "(displayln (for/sum ([i 20000]) (modulo (* i i) 7)))"], "JIT"),
    Tried("guile", ["guile", "--no-auto-compile", "-c", "(display (let f ((i 0) (s 0)) (if (= i 20000) s (f (+ i 1) (+ s (modulo (* i i) 7))))))"], "JIT, threads"),
    Tried("lua", ["lua5.4", "-e", "local s = 0 for i = 1, 100000 do s = (s + i * i) % 1000003 end print(s)"]),
    shell("tcl", "echo 'set s 0; for {set i 0} {$i < 9000} {incr i} {incr s [expr {$i * $i % 7}]}; puts $s' | tclsh"),
    Tried("prolog", ["swipl", "-q", "p.pl"], "threads"),
    Tried("git", ["/bin/sh", "-c", "export GIT_AUTHOR_DATE=@0 GIT_COMMITTER_DATE=@0 HOME=$PWD; git init -q r && cp text r && git -C r add text && git -C r -c user.name=a -c user.email=b commit -qm x && git clone -q r s && git -C s log --format=%H && git -C s grep -c word5; rm -rf r s"]),
    shell("sqlite3", "sqlite3 d 'create table t as with recursive c(i) as (select 1 union all select i + 1 from c where i < 5000) select i, hex(i * 7919 % 10007) h from c; create index x on t(h); select sum(i), count(distinct h) from t'; rm d"),
    shell("openssl", "openssl enc -aes-256-ctr -pbkdf2 -S 0102030405060708 -k x -in text | openssl dgst -sha512; openssl speed -seconds 1 sha256 >/dev/null 2>&1"),
    shell("ssh-keygen", "ssh-keygen -q -t ed25519 -N '' -f k && ssh-keygen -l -f k.pub | cut -d' ' -f1; rm k k.pub"),
    shell("curl", "curl -s file://$PWD/text | md5sum"),
    shell("ffmpeg", "ffmpeg -v error -f lavfi -i testsrc=d=1:s=160x120:r=10 -c:v mpeg4 -threads 4 -f avi - | md5sum; ffmpeg -v error -f lavfi -i sine=d=1 -f wav - | md5sum", "threads"),
    shell("gzip, pigz", "gzip -9 -n -c text | gunzip | md5sum; command -v pigz >/dev/null && pigz -n -p 4 -c text | md5sum", "threads"),
    shell("xz", "xz -T4 --block-size=4096 -c text | md5sum", "threads"),
    shell("zstd", "zstd -q -T4 -c text | md5sum; zstd -q -19 -c text | zstd -dc | md5sum", "threads"),
    shell("bzip2, lz4, brotli", "bzip2 -c text | md5sum; lz4 -q -c text | md5sum; brotli -c text | md5sum"),
    shell("tar", "tar --mtime=@0 --owner=0 --group=0 --sort=name -czf - text other | md5sum"),
    shell("sort, xargs", "sort --parallel=4 -n text | md5sum; ls | xargs -n 1 -P 4 -I{} sh -c 'echo {}' | sort", "threads"),
    shell("sed, grep, tr, cut", "sed s/word/xyz/g text | grep -E 'xyz[0-9]1' | tr a-z A-Z | cut -c3-9"),
    shell("find, diff, cmp", "find . -name '*.c*' | sort; diff text other | md5sum; cmp text other"),
    shell("awk", "awk '{ n[$2] += $1 } END { for (k in n) print k, n[k] }' text | sort | md5sum"),
    shell("jq", "jq -n '[range(3000) | . * . % 7] | add'"),
    shell("bc", "echo 'scale=200; 4 * a(1)' | bc -l"),
    shell("vim", "printf 'sort n\\nw out\\nq\\n' | vim -u NONE -e -s text; vim.tiny -u NONE -es -c '%s/word/x/' -c 'w! out' -c q text; md5sum out"),
    Tried("dash", ["dash", "-c", "for i in 1 2 3; do echo $i | sed s/1/x/ | tr 2 y; done; (exit 5); echo $?"]),
    Tried("bash", ["bash", "-c", "coproc cat; echo x >&${COPROC[1]}; read l <&${COPROC[0]}; echo $l; trap 'echo trapped' USR1; kill -USR1 $$; (sleep 0.1; echo j) & wait; echo ${BASH_VERSINFO[0]}"]),
    Tried("zsh", ["zsh", "-fc", "for i in {1..5}; do echo $i | sed s/1/x/; done; print ${(j:,:)${(s: :)${:-a b c}}}"]),
    Tried("ksh", ["ksh93", "-c", "typeset -i s=0; for ((i = 0; i < 2000; i++)); do ((s += i * i % 7)); done; echo $s | cat"]),
    Tried("fish", ["fish", "--no-config", "-c", "for i in (seq 5); echo $i | sed s/1/x/; end; math 6 x 7"], "threads"),
    Tried("busybox", ["busybox", "sh", "-c", "busybox seq 500 | busybox sort -r | busybox md5sum; busybox gzip -c text | busybox zcat | busybox wc"]),
    shell("gdb", "gdb -nx -batch -ex 'print 6 * 7' -ex 'info functions ^main$' /bin/true 2>/dev/null"),
    shell("valgrind", "valgrind -q --tool=none /bin/echo x"),
    shell("nasm, ld", "nasm -f elf64 e.asm && ld e.o -o e && ./e; echo $?; objdump -d e | md5sum; rm e e.o"),
    shell("imagemagick", "convert -size 60x60 gradient:red-blue -rotate 30 -depth 8 rgb:- | md5sum", "threads"),
    shell("graphviz", "dot -Tplain d.dot"),
    shell("gnuplot", "gnuplot -e 'set terminal dumb; plot sin(x)'"),
    shell("ghostscript", "gs -q -dBATCH -dNOPAUSE -sDEVICE=nullpage -c '6 7 mul == quit'"),
    shell("pandoc", "printf '# a\\n\\n* b\\n' | pandoc -t html", "threads"),
    shell("rsvg", "rsvg-convert s.svg | md5sum", "threads"),
    shell("sox, flac, lame", "sox -n -r 8000 -b 16 w.wav synth 1 sine 440; flac -s -c w.wav | flac -s -d -c - | md5sum; lame --quiet w.wav - | md5sum; rm w.wav"),
    shell("rsync", "rsync -a text copy && cmp text copy && rm copy"),
    shell("tmux", "tmux -S $PWD/s -f /dev/null new-session -d 'echo x > y' && for i in $(seq 50); do [ -s y ] && break; sleep 0.1; done; cat y; rm -f y s"),
    Tried("man", ["/bin/sh", "-c", "MANPAGER=cat man -P cat man 2>/dev/null | head -3 | md5sum"]),
    Tried("strace", ["/bin/sh", "-c", "strace -f -o /dev/null sh -c 'echo a | cat'"]),
]  # fmt: skip


def needed(tried: Tried) -> str | None:
    """What the program needs and is not here."""
    front = tried.command[0]
    names = [front] if front != "/bin/sh" else [tried.name.split(",")[0].split(" ")[0]]
    alias = {
        "java": "javac", "rust": "rustc", "postgres": "psql", "mariadb": "mariadb", "redis": "redis-server", "tcl": "tclsh",
        "imagemagick": "convert", "graphviz": "dot", "ghostscript": "gs", "rsvg": "rsvg-convert",
    }  # fmt: skip
    path = os.environ["PATH"] + ":/usr/sbin"
    missing = [n for n in names if shutil.which(alias.get(n, n), path=path) is None]
    return missing[0] if missing else None


def run(tried: Tried, folder: Path, front: list[str], seconds: float) -> tuple[Any, float, str]:
    """Status, output and files of a program; its time; and what it said."""
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    env = {
        **os.environ, "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"] + ":/usr/sbin",
    }  # fmt: skip
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*front, *tried.command], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=seconds
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ("no end", b"", {}), seconds, ""
    took = time.monotonic() - began
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - FILES.keys()
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    said = done.stderr.decode(errors="replace")
    # Both runs are in folders of other names.
    output = done.stdout.replace(str(folder).encode(), b"FOLDER")
    return (status, output, left), took, said


def tried_once(tried: Tried, seconds: float) -> dict[str, Any]:
    """How it went."""
    found: dict[str, Any] = {"name": tried.name, "kind": tried.kind, "command": tried.command}
    missing = needed(tried)
    if missing is not None:
        return {**found, "result": "missing", "why": missing}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        alone, took, said = run(tried, folder / "alone", [], seconds)
        outcome = folder / "outcome.json"
        front = [sys.executable, "-m", "pagewalk", "record", "-q", "-o", str(folder / "t.pwt"), "--json", str(outcome), "--"]
        recorded, long, told = run(tried, folder / "other", front, 60 + 60 * seconds)
        document = json.loads(outcome.read_text()) if outcome.exists() else {}
    found |= {"status": alone[0], "alone_seconds": took, "seconds": long}
    if document:
        found |= {key: document[key] for key in ("engine", "accesses", "notes", "lost")}
        found["processes"] = len(document["processes"])
    if alone != recorded:
        differ = [str(part)[:300] for part in (*alone, said, *recorded, told)]
        return {**found, "result": "other", "why": differ}
    notes = document["notes"] + document["lost"]
    if document["engine"] != "native":
        return {**found, "result": "qemu", "why": notes}
    unrecorded = [note for note in notes if "unrecorded" in note or note in document["lost"]]
    return {**found, "result": "part" if unrecorded else "equal", "why": unrecorded}


def main() -> int:
    """Tries all, prints a line for each; the status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="the names of programs")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument("--seconds", type=float, default=60, help="the most that a program may take alone")
    options = parser.parse_args()
    found = []
    for tried in PROGRAMS:
        if options.only and tried.name not in options.only:
            continue
        found.append(tried_once(tried, options.seconds))
        one = found[-1]
        print(
            f"{one['result']:8} {one['name']:30} {one.get('processes', ''):>4} {one.get('alone_seconds', 0):6.2f} s"
            f" {one.get('seconds', 0):7.2f} s  {one.get('why') or ''}",
            flush=True,
        )
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    counts = {kind: sum(one["result"] == kind for one in found) for kind in ("equal", "part", "qemu", "other", "missing")}
    print(counts)
    ran = len(found) - counts["missing"]
    return 1 if counts["other"] or 20 * counts["qemu"] > ran else 0


if __name__ == "__main__":
    sys.exit(main())
