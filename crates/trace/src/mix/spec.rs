use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::Error;
use crate::import::is_pipe;
use crate::units::with_unit;

/// The rules for the order in which programs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// A program runs until its quantum ends, or until it makes a recorded call that must wait for
    /// something that other programs have not done yet ([`super::calls`]).
    #[default]
    Blocking,
    /// Programs take turns of one quantum, and do not wait for each other.
    Turns,
    /// The processes of a recording run in the recorded order; recordings take turns.
    Stamps,
}

impl Order {
    /// All orders.
    pub const ALL: [Order; 3] = [Order::Blocking, Order::Turns, Order::Stamps];

    /// The name in descriptions and results.
    pub const fn name(self) -> &'static str {
        match self {
            Order::Blocking => "blocking",
            Order::Turns => "turns",
            Order::Stamps => "stamps",
        }
    }
}

/// The description of a mix, as in `quantum=30M,cpus=2,a.pwt*3,b.pwt`: settings and traces in any
/// order.
///
/// A trace may be repeated, as `a.pwt*3`. A trace whose name contains a comma, such as a
/// generator's, must be in brackets: `[generate:uniform,size=4M]*2`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// `order`: what determines the order in which programs run.
    pub order: Order,
    /// `quantum`: instructions per turn. Default 30M: 10 ms of a processor that completes 3
    /// instructions per ns [assumption].
    pub quantum: u64,
    /// `slice`: the number of instructions that one processor runs before the next processor runs.
    /// Real processors run at the same time; the length of slices influences only hardware that
    /// processors share. Default 1M [assumption].
    pub slice: u64,
    /// `cpus`: the number of processors.
    pub cpus: u32,
    /// `pipe`: the number of bytes that a pipe holds before its writer waits. Default 64K, as in
    /// Linux since 2.6.11 (pipe(7)).
    pub pipe_bytes: u64,
    /// The traces, each with its number of repetitions.
    pub traces: Vec<(String, u32)>,
}

/// The largest number of processors. A larger number is assumed to be a typing error.
const CPUS_MAX: u64 = 1024;
/// The largest number of programs. Each program has a decoder, which takes memory.
const PROGRAMS_MAX: u64 = 4096;

impl Default for Spec {
    fn default() -> Spec {
        let order = Order::default();
        Spec {
            order,
            quantum: 30_000_000,
            slice: 1_000_000,
            cpus: 1,
            pipe_bytes: 64 << 10,
            traces: Vec::new(),
        }
    }
}

impl Spec {
    const KEYS: [&'static str; 5] = ["order", "quantum", "slice", "cpus", "pipe"];

    /// The processes of the recording at `path`, in the default order on one processor.
    pub fn of_recording(path: &str) -> Spec {
        Spec { traces: vec![(path.to_owned(), 1)], ..Spec::default() }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let count = |max: u64| {
            let count = with_unit(value, &["", "k", "M", "G", "T"], 1000);
            count.filter(|count| (1..=max).contains(count)).ok_or_else(|| {
                format!("{key}={value}: write a number from 1 to {max}, as in 4 or 30M")
            })
        };
        match key {
            "order" => {
                let found = Order::ALL.into_iter().find(|order| order.name() == value);
                let names = Order::ALL.map(Order::name).join(", ");
                self.order =
                    found.ok_or_else(|| format!("order={value}: choose one of {names}"))?;
            }
            "quantum" => self.quantum = count(1 << 60)?,
            "slice" => self.slice = count(1 << 60)?,
            "cpus" => self.cpus = count(CPUS_MAX)? as u32,
            "pipe" => {
                let bytes =
                    with_unit(value, &["B", "K", "M", "G"], 1024).filter(|bytes| *bytes > 0);
                self.pipe_bytes = bytes.ok_or_else(|| {
                    format!("pipe={value}: write bytes with a unit, as in 4K or 64K")
                })?;
            }
            _ => {
                let keys = Spec::KEYS.join(", ");
                return Err(format!(
                    "`{key}={value}` is neither a file nor a setting; settings are {keys}"
                ));
            }
        }
        Ok(())
    }

    /// Adds `part`: a setting, or a trace with its number of repetitions.
    fn add(&mut self, part: &str) -> Result<(), String> {
        if part.is_empty() {
            return Err("an empty part between two commas".to_owned());
        }
        let bracketed = part.starts_with('[');
        if !bracketed
            && !Path::new(part).exists()
            && let Some((key, value)) = part.split_once('=')
        {
            return self.set(key, value);
        }
        let (name, times) = match part.rsplit_once('*') {
            Some((name, times)) if bracketed || !Path::new(part).exists() => (name, times),
            _ => (part, "1"),
        };
        let times = times.parse().ok().filter(|times| (1..=PROGRAMS_MAX).contains(times));
        let times = times.ok_or_else(|| {
            format!("{part}: write a number of copies after the *, as in a.pwt*3")
        })?;
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        if name.starts_with(super::MIX) {
            return Err(format!(
                "{name}: a mix cannot contain a mix; name the traces of the inner mix instead"
            ));
        }
        if name.ends_with(":-") || is_pipe(Path::new(name)) {
            return Err(format!(
                "{name}: a pipe cannot be part of a mix: store it in a file with `pagewalk \
                 import` first"
            ));
        }
        self.traces.push((name.to_owned(), times as u32));
        Ok(())
    }
}

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Spec, Error> {
        let refuse = |what: String| Error::Parameters(format!("{}{text}: {what}", super::MIX));
        let mut spec = Spec::default();
        for part in parts(text).map_err(refuse)? {
            spec.add(part).map_err(refuse)?;
        }
        let programs: u64 = spec.traces.iter().map(|(_, times)| u64::from(*times)).sum();
        match programs {
            0 => Err(refuse("no trace is named; write mix:cpus=2,a.pwt,b.pwt".to_owned())),
            1..=PROGRAMS_MAX => Ok(spec),
            _ => Err(refuse(format!("{programs} programs; at most {PROGRAMS_MAX} can be mixed"))),
        }
    }
}

/// The parts of `text` between commas that are not in brackets.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0u32);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.checked_sub(1).ok_or("a ] without its [")?,
            b',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("a [ without its ]".to_owned());
    }
    parts.push(&text[from..]);
    Ok(parts)
}

impl fmt::Display for Spec {
    /// Writes all settings and traces, so that parsing the text gives an equal description.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order={},quantum={}", self.order.name(), self.quantum)?;
        write!(f, ",slice={},cpus={},pipe={}B", self.slice, self.cpus, self.pipe_bytes)?;
        for (name, times) in &self.traces {
            match name.contains([',', '=', '*']) {
                true => write!(f, ",[{name}]")?,
                false => write!(f, ",{name}")?,
            }
            if *times > 1 {
                write!(f, "*{times}")?;
            }
        }
        Ok(())
    }
}
