//! Executes random instructions natively and translated, and compares registers, flags and memory
//! at the end.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::common::{directory, native, record};

const NAMES: [[&str; 4]; 15] = [
    ["rax", "eax", "ax", "al"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rbx", "ebx", "bx", "bl"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    ["r8", "r8d", "r8w", "r8b"],
    ["r9", "r9d", "r9w", "r9b"],
    ["r10", "r10d", "r10w", "r10b"],
    ["r11", "r11d", "r11w", "r11b"],
    ["r12", "r12d", "r12w", "r12b"],
    ["r13", "r13d", "r13w", "r13b"],
    ["r14", "r14d", "r14w", "r14b"],
    ["r15", "r15d", "r15w", "r15b"],
];
const SUFFIXES: [&str; 4] = ["q", "l", "w", "b"];
const CONDITIONS: [&str; 16] =
    ["o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g"];
/// The number of sequences, unless the environment variable `PAGEWALK_SEQUENCES` gives another one
/// (`make torture` sets it to a million); the largest number of sequences in one program; and the
/// number of instructions in a sequence.
const SEQUENCES: usize = 1000;
const SEQUENCES_MAX: usize = 10_000;
const INSTRUCTIONS: u64 = 24;
/// The least number of sequences that a program executes. To reach this number, a program repeats
/// its sequences with other register values.
const RUNS: usize = 20_000;

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.next(list.len() as u64) as usize]
    }

    fn register(&mut self) -> usize {
        self.next(15) as usize
    }
}

/// One to four instructions. The label `label` is used by no other instruction.
fn instruction(random: &mut Random, label: usize) -> String {
    let size = random.next(4) as usize;
    let (suffix, wide) = (SUFFIXES[size], SUFFIXES[size.min(2)]);
    let (a, b) = (random.register(), random.register());
    let (to, from) = (NAMES[a][size], NAMES[b][size]);
    let (to_wide, from_wide) = (NAMES[a][size.min(2)], NAMES[b][size.min(2)]);
    let condition = random.of(&CONDITIONS);
    let two = random.of(&["add", "sub", "and", "or", "xor", "adc", "sbb", "cmp", "test", "mov"]);
    // Returns an operand in the buffer, and the instructions that set its registers.
    let memory = |random: &mut Random| {
        let base = random.register();
        let index = (base + 1 + random.next(14) as usize) % 15;
        let scale = 1 << random.next(4);
        let disp = random.next(300);
        let ready = format!(
            "leaq buffer(%rip), %{}\n movzbl %{}, %{}\n ",
            NAMES[base][0], NAMES[index][3], NAMES[index][1]
        );
        match random.next(4) {
            0 => (String::new(), format!("buffer+{disp}(%rip)")),
            1 => (ready, format!("(%{})", NAMES[base][0])),
            2 => (ready, format!("{disp}(%{})", NAMES[base][0])),
            _ => (ready, format!("{disp}(%{},%{},{scale})", NAMES[base][0], NAMES[index][0])),
        }
    };
    match random.next(22) {
        0..3 => format!("{two}{suffix} %{from}, %{to}"),
        3..6 => {
            let (ready, place) = memory(random);
            let two = if two == "test" { "cmp" } else { two };
            format!("{ready}{two}{suffix} {place}, %{to}")
        }
        6..9 => {
            let (ready, place) = memory(random);
            format!("{ready}{two}{suffix} %{from}, {place}")
        }
        9 => {
            let (ready, place) = memory(random);
            let one = random.of(&["inc", "dec", "not", "neg", "lock inc"]);
            format!("{ready}{one}{suffix} {place}")
        }
        10 => format!("set{condition} %{}", NAMES[a][3]),
        11 => format!("cmov{condition}{wide} %{from_wide}, %{to_wide}"),
        12 => format!(
            "lea {}(%{},%{},2), %{}",
            random.next(90),
            NAMES[a][0],
            NAMES[b][0],
            NAMES[b][0]
        ),
        13 => {
            let shift = random.of(&["shl", "shr", "sar", "rol", "ror", "rcl", "rcr"]);
            format!("{shift}{suffix} ${}, %{to}", random.next(31))
        }
        14 => format!("imul{wide} %{from_wide}, %{to_wide}"),
        15 => {
            format!("pushq %{}\n {two}{suffix} %{from}, %{to}\n popq %{}", NAMES[b][0], NAMES[a][0])
        }
        16 => {
            let (ready, place) = memory(random);
            format!("{ready}pushq {place}\n popq %{}", NAMES[b][0])
        }
        17 => format!("j{condition} 7{label}f\n {two}{suffix} %{from}, %{to}\n 7{label}:"),
        18 => format!(
            "call 8{label}f\n jmp 9{label}f\n 8{label}: {two}{suffix} %{from}, %{to}\n ret\n 9{label}:"
        ),
        19 => {
            let (ready, place) = memory(random);
            format!(
                "{ready}movdqu {place}, %xmm1\n paddq %xmm1, %xmm2\n movq %xmm2, %{}",
                NAMES[b][0]
            )
        }
        20 => format!(
            "leaq 6{label}f(%rip), %{0}\n jmp *%{0}\n ud2\n 6{label}: xorl %{1}, %{1}",
            NAMES[a][0], NAMES[a][1]
        ),
        _ => {
            let (ready, place) = memory(random);
            format!("{ready}xchg{suffix} %{from}, {place}\n movb $5, %cl\n cld")
        }
    }
}

#[test]
fn random_instructions_end_as_by_themselves() {
    let number = |name: &str, default: usize| {
        std::env::var(name).ok().and_then(|said| said.parse().ok()).unwrap_or(default)
    };
    let seed = number("PAGEWALK_SEED", 7);
    let mut left = number("PAGEWALK_SEQUENCES", SEQUENCES);
    for seed in seed.. {
        let sequences = left.min(SEQUENCES_MAX);
        println!("PAGEWALK_SEED={seed} PAGEWALK_SEQUENCES={sequences}");
        run(seed as u64, sequences);
        left -= sequences;
        if left == 0 {
            break;
        }
    }
}

/// Runs a program with `sequences` random sequences natively and translated.
fn run(seed: u64, sequences: usize) {
    let rounds = RUNS.div_ceil(sequences);
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    let mut code = String::from(" .text\n .globl run\nrun:\n");
    let saved = ["rbx", "rbp", "r12", "r13", "r14", "r15"];
    saved.iter().for_each(|name| writeln!(code, " push %{name}").unwrap());
    for sequence in 0..sequences {
        for (at, names) in NAMES.iter().enumerate() {
            writeln!(code, " movq state+{}(%rip), %{}", 8 * at, names[0]).unwrap();
        }
        code.push_str(" andq $0x8d5, state+120(%rip)\n orq $0x202, state+120(%rip)\n pushq state+120(%rip)\n popfq\n");
        for at in 0..INSTRUCTIONS {
            let label = sequence * INSTRUCTIONS as usize + at as usize;
            writeln!(code, " {}", instruction(&mut random, label)).unwrap();
        }
        code.push_str(" pushfq\n popq state+120(%rip)\n");
        for (at, names) in NAMES.iter().enumerate() {
            writeln!(code, " movq %{}, state+{}(%rip)", names[0], 8 * at).unwrap();
        }
    }
    saved.iter().rev().for_each(|name| writeln!(code, " pop %{name}").unwrap());
    code.push_str(
        " ret\n .bss\n .balign 64\n .globl state, buffer\nstate: .skip 128\nbuffer: .skip 8192\n",
    );
    code.push_str(" .section .note.GNU-stack\n");
    let main = format!(
        "#include <stdio.h>\nextern void run(void); extern unsigned long state[16]; extern char buffer[8192];\n\
         int main(int c, char **v) {{ for (int i = 0; i < 16; i++) state[i] = i * 0x123456789abcdefUL;\n\
         unsigned long sum = 0; FILE *f = fopen(v[1], \"w\");\n\
         for (int r = 0; r < {rounds}; r++) {{ run(); for (int i = 0; i < 16; i++) {{ sum = sum * 31 + state[i]; fprintf(f, \"%lx \", state[i]); state[i] ^= sum; }} fprintf(f, \"\\n\"); }}\n\
         fwrite(buffer, 1, sizeof buffer, f); return fclose(f); }}\n"
    );
    let directory = directory("random");
    let [source, assembly, program] =
        ["main.c", "run.s", "program"].map(|name| directory.join(name));
    fs::write(&source, main).unwrap();
    fs::write(&assembly, code).unwrap();
    let compiled = Command::new("gcc")
        .args(["-O1", "-no-pie", "-o"])
        .args([&program, &source, &assembly])
        .status();
    assert!(compiled.expect("gcc runs").success(), "the instructions do not assemble");
    let said = [directory.join("alone"), directory.join("translated")];
    assert!(Command::new(&program).arg(&said[0]).status().unwrap().success());
    let outcome = record(&directory, &native(&program, &[said[1].to_str().unwrap()]));
    assert_eq!(outcome.status, 0);
    let [alone, translated] = said.map(|path| fs::read(path).unwrap());
    let differ = alone.iter().zip(&translated).position(|(one, other)| one != other);
    let line = differ.map(|at| alone[..at].iter().filter(|&&byte| byte == b'\n').count());
    assert_eq!(line, None, "the round after which they differ");
    assert_eq!(alone.len(), translated.len());
    assert!(outcome.summary.instructions > sequences as u64 * INSTRUCTIONS * rounds as u64);
}
