//! Skeletons as text.
//!
//! ```text
//!   pagewalk-skeleton 1
//!   file 0 /usr/bin/dash
//!   process 0 own sh
//!   m 55554 2 5 f0+0        map: first page, pages, rights; of file 0 from its page 0 on, private
//!   t 55554 1 x             touch: first page, pages, how (r, w, x)
//!   w 5200                  instructions
//!   f 1                     fork of process 1
//!   u 55554 2               unmap       p 55554 2 1  protect     d 55554 2  discard
//!   v 55554 2 7fff0 4       move        e            exec
//!   end 10                  lines before this one
//! ```
//!
//! Page numbers are hexadecimal, all other numbers decimal.

use core::fmt;

use addr::Kind;

use super::{Backing, Process, Skeleton, Step};

const HEAD: &str = "pagewalk-skeleton 1";

const CUT: &str = "the skeleton is truncated: its last line does not say where it ends; make it \
                   anew with `pagewalk skeleton`";

/// The largest number of steps that are read, so that reading a damaged file does not use all
/// memory. No real program has this number of steps.
const STEPS_MAX: usize = 1 << 24;

pub(super) fn write(skeleton: &Skeleton, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{HEAD}")?;
    let mut lines = 1 + skeleton.files.len();
    for (number, file) in skeleton.files.iter().enumerate() {
        writeln!(f, "file {number} {file}")?;
    }
    for (number, Process { name, shares_space, steps }) in skeleton.processes.iter().enumerate() {
        let space = if *shares_space { "parent's" } else { "own" };
        writeln!(f, "process {number} {space} {name}")?;
        steps.iter().try_for_each(|step| write_step(step, f))?;
        lines += 1 + steps.len();
    }
    writeln!(f, "end {lines}")
}

fn write_step(step: &Step, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match *step {
        Step::Map { page, pages, rights, backing } => {
            write!(f, "m {page:x} {pages:x} {rights} ")?;
            match backing {
                Backing::Anonymous => writeln!(f, "a"),
                Backing::Shared => writeln!(f, "s"),
                Backing::File { number, first, shared: false } => {
                    writeln!(f, "f{number}+{first:x}")
                }
                Backing::File { number, first, shared: true } => writeln!(f, "g{number}+{first:x}"),
            }
        }
        Step::Unmap { page, pages } => writeln!(f, "u {page:x} {pages:x}"),
        Step::Protect { page, pages, rights } => writeln!(f, "p {page:x} {pages:x} {rights}"),
        Step::Discard { page, pages } => writeln!(f, "d {page:x} {pages:x}"),
        Step::Move { page, pages, to, to_pages } => {
            writeln!(f, "v {page:x} {pages:x} {to:x} {to_pages:x}")
        }
        Step::Touch { page, pages, kind } => {
            let kind = match kind {
                Kind::Fetch => 'x',
                Kind::Load => 'r',
                Kind::Store => 'w',
            };
            writeln!(f, "t {page:x} {pages:x} {kind}")
        }
        Step::Work(instructions) => writeln!(f, "w {instructions}"),
        Step::Fork(child) => writeln!(f, "f {child}"),
        Step::Exec => writeln!(f, "e"),
    }
}

/// Parses a skeleton. The error names the wrong line, or states that the end is missing.
pub fn parse(text: &str) -> Result<Skeleton, String> {
    if !text.starts_with(HEAD) {
        return Err(format!(
            "not a skeleton: the first line is not `{HEAD}`; make one with `pagewalk skeleton`"
        ));
    }
    let mut skeleton = Skeleton::default();
    let mut steps = 0;
    for (number, line) in text.lines().enumerate().skip(1) {
        let wrong = || {
            // A wrong last line without a newline is usually the last line of a truncated file.
            if text.lines().nth(number + 1).is_none() && !text.ends_with('\n') {
                return CUT.to_owned();
            }
            format!(
                "line {} is not a step of a skeleton: `{line:.40}`; make the skeleton anew",
                number + 1
            )
        };
        if let Some(lines) = line.strip_prefix("end ") {
            return match lines.parse::<usize>() {
                Ok(lines) if lines == number => check(skeleton),
                _ if !text.ends_with('\n') => Err(CUT.to_owned()),
                _ => Err(format!(
                    "the skeleton has {number} lines, but its last line says {lines}: the file was \
                     changed; make the skeleton anew"
                )),
            };
        }
        if let Some(file) = line.strip_prefix("file ") {
            let parts = file.split_once(' ').filter(|_| skeleton.processes.is_empty());
            match parts {
                Some((number, name)) if number.parse() == Ok(skeleton.files.len()) => {
                    skeleton.files.push(name.to_owned());
                    continue;
                }
                _ => return Err(wrong()),
            }
        }
        if let Some(process) = line.strip_prefix("process ") {
            let mut parts = process.splitn(3, ' ');
            let is_next = parts.next().and_then(|number| number.parse().ok())
                == Some(skeleton.processes.len());
            let shares_space = match parts.next().filter(|_| is_next) {
                Some("own") => false,
                Some("parent's") => true,
                _ => return Err(wrong()),
            };
            let name = parts.next().unwrap_or_default().to_owned();
            skeleton.processes.push(Process { name, shares_space, steps: Vec::new() });
            continue;
        }
        let step = step(line).ok_or_else(wrong)?;
        let process = skeleton.processes.last_mut().ok_or_else(wrong)?;
        process.steps.push(step);
        steps += 1;
        if steps > STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} steps: this is too large for a skeleton"));
        }
    }
    Err(CUT.to_owned())
}

fn step(line: &str) -> Option<Step> {
    let mut parts = line.split(' ');
    let letter = parts.next()?;
    let mut hex = || {
        let number = u64::from_str_radix(parts.next()?, 16).ok()?;
        (number < 1 << 52).then_some(number)
    };
    let step = match letter {
        "m" => {
            let (page, pages) = (hex()?, hex()?);
            let rights = parts.next()?.parse().ok().filter(|rights| *rights < 8)?;
            Step::Map { page, pages, rights, backing: backing(parts.next()?)? }
        }
        "u" => Step::Unmap { page: hex()?, pages: hex()? },
        "p" => {
            let (page, pages) = (hex()?, hex()?);
            let rights = parts.next()?.parse().ok().filter(|rights| *rights < 8)?;
            Step::Protect { page, pages, rights }
        }
        "d" => Step::Discard { page: hex()?, pages: hex()? },
        "v" => Step::Move { page: hex()?, pages: hex()?, to: hex()?, to_pages: hex()? },
        "t" => {
            let (page, pages) = (hex()?, hex()?);
            let kind = match parts.next()? {
                "x" => Kind::Fetch,
                "r" => Kind::Load,
                "w" => Kind::Store,
                _ => return None,
            };
            Step::Touch { page, pages, kind }
        }
        "w" => Step::Work(parts.next()?.parse().ok()?),
        "f" => Step::Fork(parts.next()?.parse().ok()?),
        "e" => Step::Exec,
        _ => return None,
    };
    parts.next().is_none().then_some(step)
}

fn backing(text: &str) -> Option<Backing> {
    match text {
        "a" => return Some(Backing::Anonymous),
        "s" => return Some(Backing::Shared),
        _ => {}
    }
    let shared = match text.get(..1)? {
        "f" => false,
        "g" => true,
        _ => return None,
    };
    let (number, first) = text[1..].split_once('+')?;
    let first = u64::from_str_radix(first, 16).ok().filter(|first| *first < 1 << 52)?;
    Some(Backing::File { number: number.parse().ok()?, first, shared })
}

/// Checks that lengths are possible, and that children come after their parents.
fn check(skeleton: Skeleton) -> Result<Skeleton, String> {
    if skeleton.processes.is_empty() {
        return Err("the skeleton has no process".to_owned());
    }
    let count = skeleton.processes.len();
    let files = skeleton.files.len();
    let is_file = |backing: &Backing| match backing {
        Backing::File { number, .. } => (*number as usize) < files,
        Backing::Anonymous | Backing::Shared => true,
    };
    let mut begun = vec![false; count];
    for (number, process) in skeleton.processes.iter().enumerate() {
        for step in &process.steps {
            let fits = match *step {
                Step::Map { page, pages, backing, .. } => fits(page, pages) && is_file(&backing),
                Step::Unmap { page, pages }
                | Step::Protect { page, pages, .. }
                | Step::Discard { page, pages }
                | Step::Touch { page, pages, .. } => fits(page, pages),
                Step::Move { page, pages, to, to_pages } => fits(page, pages) && fits(to, to_pages),
                Step::Fork(child) => {
                    let child = child as usize;
                    let is_new = child > number && child < count && !begun[child];
                    if is_new {
                        begun[child] = true;
                    }
                    is_new
                }
                Step::Work(_) | Step::Exec => true,
            };
            if !fits {
                return Err(format!(
                    "process {number} of the skeleton has a step that is not possible there, \
                     {step:?}: make the skeleton anew"
                ));
            }
        }
    }
    Ok(skeleton)
}

/// Whether there is at least one page and all pages are below 2^51 bytes.
const fn fits(page: u64, pages: u64) -> bool {
    pages > 0 && pages <= 1 << 39 && page <= (1 << 39) - pages
}
