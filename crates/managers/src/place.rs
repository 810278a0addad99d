//! Place rules: the page size requested for each part of a program, in the style of IRIX's
//! `dplace`.
//!
//! ```text
//!   data = 64K                  what the program writes to: its file's data, bss, heap, mmap
//!   stack = 16K wait 100ms      the same rule as `stack=16K wait 100ms`
//!   lib libc.so.6 = 64K         # a comment
//!   range 0x10000000..0x20000000 = 1M
//! ```
//!
//! A more specific rule takes precedence: `range` over `site`, then `region`, `lib`, `text`, `bss`,
//! `heap`, `stack`, `mmap`, and `data` last. Two rules for the same memory are an error, and so is
//! a rule that has matched no mapping at the end of a run.

use std::fmt;

use addr::{Page, PageSize, Rights, VirtRange};
use description::{NodeFallback, Placement, Rather};
use os::{events::Gone, names::Names};
use results::{FrameName, count::labels::Layout};
use trace::{Event, Region};

use super::{sites::Sites, wish::Wish};

/// All rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    /// Allocations at sites that a rule names.
    sites: Sites,
}

/// One rule.
#[derive(Clone, Debug)]
struct Rule {
    line: usize,
    what: Thing,
    wish: Wish,
    /// Whether the rule has matched a mapping.
    was_used: bool,
}

/// A rule as plain data, for placing a running program instead of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenRule {
    /// The line of the rule, from 1.
    pub line: usize,
    /// The first word of the rule's object: `data`, `lib`, `range`, ...
    pub what: &'static str,
    /// The name of a library or a region, or the file of a site; otherwise empty.
    pub name: String,
    /// The source line of a site; otherwise 0.
    pub source_line: u32,
    /// The first byte of a range, and the byte after its last; otherwise 0.
    pub range: (u64, u64),
    /// The page size in bytes.
    pub size: u64,
    /// Whether a fault must wait until a page of the size `size` is free.
    pub waits: bool,
    /// Whether the rule has NUMA settings.
    pub has_nodes: bool,
}

/// The rules in `text`, the most specific first; sizes may be any power of two from 4K to 1G. An error names
/// the line.
pub fn written_rules(text: &str) -> Result<Vec<WrittenRule>, String> {
    let sizes: Vec<PageSize> = (12..=30).filter_map(PageSize::from_shift).collect();
    let rules = Rules::parse(text, &sizes)?.rules;
    Ok(rules.into_iter().map(Rule::written).collect())
}

/// The memory to which a rule applies, from the most general to the most specific.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Thing {
    Data,
    Mmap,
    Stack,
    Heap,
    Bss,
    Text,
    Lib(String),
    Region(String),
    /// Allocations by a call at this line of this file, directly or in a function that it called.
    Site(String, u32),
    Range(u64, u64),
}

/// A mapping, as a trace reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped<'a> {
    pub range: VirtRange,
    pub kind: Kind,
    /// The name of the mapping's region in results.
    pub name: &'a str,
}

/// The kind of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A mapping of a file that is executable or not writable.
    Text,
    /// A mapping of a file that is writable.
    Data,
    Bss,
    Heap,
    Stack,
    /// Memory without a file that a call of mmap made.
    Mmap,
    /// Any other mapping, to which only range rules apply.
    Other,
}

impl Kind {
    /// The kind of a region of a trace; `is_file` says whether a file backs the region.
    pub(crate) fn of_region(region: &Region, is_file: bool) -> Kind {
        match (is_file, region.name.as_str()) {
            (true, _) if region.rights.contains(Rights::WRITE) => Kind::Data,
            (true, _) => Kind::Text,
            (false, "stack") => Kind::Stack,
            (false, "heap") => Kind::Heap,
            (false, name) if name.split(' ').next() == Some("bss") => Kind::Bss,
            (false, _) => Kind::Mmap,
        }
    }
}

impl Rules {
    /// The rules in `text`, one per line or separated by commas. An error names the line.
    pub(crate) fn parse(text: &str, sizes: &[PageSize]) -> Result<Rules, String> {
        let mut rules: Vec<Rule> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line_number = number + 1;
            let at = |what: String| format!("line {line_number}: {what}");
            let line = line.split('#').next().unwrap_or_default();
            for part in line.split(',').map(str::trim).filter(|part| !part.is_empty()) {
                let rule = parse(part, sizes, line_number).map_err(at)?;
                if let Some(other) = rules.iter().find(|other| other.what.overlaps(&rule.what)) {
                    return Err(at(format!(
                        "`{part}` overlaps with the rule of line {} for {}: leave one of them out",
                        other.line, other.what
                    )));
                }
                rules.push(rule);
            }
        }
        // The most specific rule comes first.
        rules.sort_by(|one, other| other.what.cmp(&one.what));
        Ok(Rules { rules, sites: Sites::default() })
    }

    /// Sets the function that finds the names of places in a program that allocate memory.
    pub(crate) fn find_by(&mut self, names: Names) {
        self.sites.find_by(names);
    }

    /// Whether a rule applies to a place in a program that allocates memory.
    pub(crate) fn has_sites(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.what, Thing::Site(..)))
    }

    /// The request for the memory that `event` allocates in the space `number`. The request is
    /// recorded until this memory is unmapped.
    pub(crate) fn allocated(
        &mut self,
        number: u32,
        event: &Event,
        layout: &Layout,
    ) -> Option<(VirtRange, Wish)> {
        let Rules { rules, sites } = self;
        let rule = |frame: &FrameName| {
            let place = rules.iter().position(|rule| rule.what.is_at(frame))?;
            Some((place, rules[place].wish))
        };
        if let Some((range, place, wish)) = sites.hear(number, event, layout, rule) {
            sites.keep(number, range, wish);
            rules[place].was_used = true;
            return Some((range, wish));
        }
        let before = layout.regions(number).and_then(|regions| regions.program_break());
        match Gone::by(event, before) {
            Some(Gone::Bytes(start, bytes)) => sites.forget(number, start, bytes),
            Some(Gone::All) => sites.forget_space(number),
            None => {}
        }
        None
    }

    /// The requests for parts of a mapping, the most general first; later requests take precedence.
    pub(crate) fn wishes(&mut self, mapped: &Mapped<'_>) -> Vec<(VirtRange, Wish)> {
        let mut wishes = self.of_kinds(mapped, false);
        wishes.extend(self.of_kinds(mapped, true));
        wishes
    }

    /// The requests for parts of a mapping, the most general first. With `ranges`, only the
    /// requests of rules for address ranges, which take precedence over all other rules; otherwise
    /// only the requests of the other rules.
    pub(crate) fn of_kinds(&mut self, mapped: &Mapped<'_>, ranges: bool) -> Vec<(VirtRange, Wish)> {
        let mut wishes = Vec::new();
        let own = |rule: &&mut Rule| matches!(rule.what, Thing::Range(..)) == ranges;
        for rule in self.rules.iter_mut().rev().filter(own) {
            if let Some(part) = rule.what.part_of(mapped) {
                rule.was_used = true;
                wishes.push((part, rule.wish));
            }
        }
        wishes
    }

    /// Whether there are no rules.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The size that rules request for `page`, a part of the mapping `mapped` in the space
    /// `number`. It is `unless` if no rule applies, and `None` if parts of the page have different
    /// requests.
    pub(crate) fn wish_for(
        &mut self,
        (number, page): (u32, Page),
        mapped: &Mapped<'_>,
        unless: PageSize,
    ) -> Option<PageSize> {
        let all = VirtRange::of_page(page);
        let mapped = Mapped { range: all, ..*mapped };
        let mut wanted = Some(unless);
        let mut wishes = self.of_kinds(&mapped, false);
        wishes.extend(self.sites.within(number, all));
        wishes.extend(self.of_kinds(&mapped, true));
        for (part, wish) in wishes {
            let is_same = part == all || wanted == Some(wish.size);
            wanted = Some(wish.size).filter(|_| is_same);
        }
        wanted
    }

    /// The line of the first rule that makes a fault wait.
    pub(crate) fn waits(&self) -> Option<usize> {
        let waiting = self.rules.iter().filter(|rule| rule.wish.wait_us.is_some());
        waiting.map(|rule| rule.line).min()
    }

    /// The line of the first rule with NUMA settings, and the highest node that a rule names.
    pub(crate) fn nodes(&self) -> (Option<usize>, Option<(usize, u8)>) {
        let with_nodes = self.rules.iter().filter(|rule| rule.wish.has_nodes());
        let named = self.rules.iter().filter_map(|rule| match rule.wish.placement {
            Some(Placement::Node(node)) => Some((rule.line, node)),
            Some(Placement::Local | Placement::InTurn) | None => None,
        });
        (with_nodes.map(|rule| rule.line).min(), named.max_by_key(|(_, node)| *node))
    }

    /// The line of the first rule that migrates pages between nodes.
    pub(crate) fn migrates(&self) -> Option<usize> {
        let moving = self.rules.iter().filter(|rule| rule.wish.migrate_after.flatten().is_some());
        moving.map(|rule| rule.line).min()
    }

    /// The first rule that has matched no mapping.
    pub(crate) fn unused(&self) -> Option<String> {
        let unused =
            self.rules.iter().filter(|rule| !rule.was_used).min_by_key(|rule| rule.line)?;
        Some(format!("line {}: no mapping is {}", unused.line, unused.what))
    }
}

impl Rule {
    fn written(self) -> WrittenRule {
        let (mut name, mut source_line, mut range) = (String::new(), 0, (0, 0));
        let what = match self.what {
            Thing::Data => "data",
            Thing::Mmap => "mmap",
            Thing::Stack => "stack",
            Thing::Heap => "heap",
            Thing::Bss => "bss",
            Thing::Text => "text",
            Thing::Lib(lib) => {
                name = lib;
                "lib"
            }
            Thing::Region(region) => {
                name = region;
                "region"
            }
            Thing::Site(file, line) => {
                (name, source_line) = (file, line);
                "site"
            }
            Thing::Range(start, end) => {
                range = (start, end);
                "range"
            }
        };
        WrittenRule {
            line: self.line,
            what,
            name,
            source_line,
            range,
            size: self.wish.size.bytes(),
            waits: self.wish.wait_us.is_some(),
            has_nodes: self.wish.has_nodes(),
        }
    }
}

impl Thing {
    fn overlaps(&self, other: &Thing) -> bool {
        match (self, other) {
            (Thing::Range(start, end), Thing::Range(from, to)) => start < to && from < end,
            _ => self == other,
        }
    }

    /// Whether this rule names a site, and `frame` is a call at that site.
    fn is_at(&self, frame: &FrameName) -> bool {
        let Thing::Site(wanted, line) = self else { return false };
        let Some(file) = frame.file.as_deref().filter(|_| frame.line == Some(*line)) else {
            return false;
        };
        // The name in a rule may be the end of a path: it matches the file in every folder whose
        // path ends with it.
        file.strip_suffix(wanted.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    }

    /// The part of `mapped` to which this rule applies.
    fn part_of(&self, mapped: &Mapped<'_>) -> Option<VirtRange> {
        let Mapped { range, kind, name } = *mapped;
        let file = name.rsplit('/').next().unwrap_or(name);
        let is = match self {
            Thing::Data => {
                matches!(kind, Kind::Data | Kind::Bss | Kind::Heap | Kind::Mmap)
            }
            Thing::Mmap => kind == Kind::Mmap,
            Thing::Stack => kind == Kind::Stack,
            Thing::Heap => kind == Kind::Heap,
            Thing::Bss => kind == Kind::Bss,
            Thing::Text => kind == Kind::Text,
            Thing::Lib(lib) => file == lib && matches!(kind, Kind::Text | Kind::Data),
            Thing::Region(region) => name == region || file == region,
            // Rules for sites apply to allocations, not to mappings.
            Thing::Site(..) => false,
            Thing::Range(start, end) => {
                let range_end = range.last().get().checked_add(1)?;
                let (from, to) = (range.start().get().max(*start), range_end.min(*end));
                return (from < to)
                    .then(|| VirtRange::new(addr::VirtAddr::new(from), to - from).ok())
                    .flatten();
            }
        };
        is.then_some(range)
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thing::Data => f.write_str("data (a program's data, bss, heap, mmap)"),
            Thing::Mmap => f.write_str("mmap (memory without a file)"),
            Thing::Stack => f.write_str("stack"),
            Thing::Heap => f.write_str("heap"),
            Thing::Bss => f.write_str("bss"),
            Thing::Text => f.write_str("text"),
            Thing::Lib(name) => write!(f, "the library {name}"),
            Thing::Region(name) => write!(f, "the region {name}"),
            Thing::Site(file, line) => {
                write!(f, "allocated at {file}:{line} (recorded only with --allocations)")
            }
            Thing::Range(start, end) => write!(f, "{start:#x}..{end:#x}"),
        }
    }
}

fn parse(text: &str, sizes: &[PageSize], line: usize) -> Result<Rule, String> {
    let Some((what, wished)) = text.rsplit_once('=') else {
        return Err(format!("`{text}` is not a rule: write it as in `data=64K`"));
    };
    let what = thing(what.trim())?;
    let mut words = wished.split_whitespace();
    let size = words.next().unwrap_or_default();
    let size: PageSize = size.parse().map_err(|error| format!("{error}"))?;
    if !sizes.contains(&size) {
        let known: Vec<String> = sizes.iter().map(PageSize::to_string).collect();
        return Err(format!(
            "this machine has no pages of {size}: write one of {}",
            known.join(", ")
        ));
    }
    let wish = wish(size, &words.collect::<Vec<_>>(), text)?;
    Ok(Rule { line, what, wish, was_used: false })
}

/// The request after the size in the rule `text`.
fn wish(size: PageSize, words: &[&str], text: &str) -> Result<Wish, String> {
    let mut wish = Wish::of(size);
    let (mut words, mut waits) = (words, None);
    let twice = |is: bool, word: &str| match is {
        true => Err(format!("`{word}` repeats or contradicts an earlier word: `{text}`")),
        false => Ok(()),
    };
    while let [word, rest @ ..] = words {
        let is_time = |next: &&&str| next.starts_with(|first: char| first.is_ascii_digit());
        let next = rest.first().filter(is_time);
        let mut taken = 1;
        match *word {
            "fallback" | "wait" => {
                twice(waits.is_some(), word)?;
                waits = Some(());
                wish.wait_us = match (*word, next) {
                    ("fallback", _) => None,
                    // Like `dplace`, which waits up to a second for each fault.
                    (_, None) => Some(1_000_000),
                    (_, Some(time)) => {
                        taken = 2;
                        Some(microseconds(time)?)
                    }
                };
            }
            "local" | "in-turn" | "node" => {
                twice(wish.placement.is_some(), word)?;
                let place = match (*word, next) {
                    ("node", Some(node)) => {
                        taken = 2;
                        format!("node {node}")
                    }
                    _ => (*word).to_owned(),
                };
                wish.placement = Some(place.parse()?);
            }
            "borrow" | "stay" => {
                twice(wish.fallback.is_some(), word)?;
                let stays = *word == "stay";
                wish.fallback = Some(if stays { NodeFallback::Stay } else { NodeFallback::Borrow });
            }
            "near" | "colored" => {
                twice(wish.rather.is_some(), word)?;
                wish.rather = Some(if *word == "near" { Rather::Near } else { Rather::Colored });
            }
            "migrate" => {
                twice(wish.migrate_after.is_some(), word)?;
                taken = 2;
                wish.migrate_after = Some(match rest.first().copied() {
                    Some("never") => None,
                    Some(count) => match count.parse() {
                        Ok(count @ 1..) => Some(count),
                        _ => return Err(format!("`migrate {count}` is not possible: {MIGRATE}")),
                    },
                    None => return Err(format!("`migrate` needs a number: {MIGRATE}")),
                });
            }
            other => {
                return Err(format!(
                    "`{text}`: the word `{other}` after the size is unknown: write `fallback`, `wait` \
                     or `wait 100ms`; on a machine with memory nodes also `local`, `in-turn` or \
                     `node 1`, `borrow` or `stay`, `near` or `colored`, and `migrate 64`"
                ));
            }
        }
        words = &words[taken..];
    }
    Ok(wish)
}

/// The hint in errors about the syntax of `migrate`.
const MIGRATE: &str = "write after how many references a page moves, as in `migrate 64`, or \
                       `migrate never`";

fn thing(text: &str) -> Result<Thing, String> {
    let split = text.split_once(|at: char| at.is_whitespace() || at == '=');
    let (word, rest) = split.map_or((text, ""), |(word, rest)| (word, rest.trim()));
    let named = |make: fn(String) -> Thing| match rest {
        "" => Err(format!("`{word}` needs a name, as in `{word} NAME=64K`")),
        name => Ok(make(name.to_owned())),
    };
    match (word, rest) {
        ("data", "") => Ok(Thing::Data),
        ("mmap", "") => Ok(Thing::Mmap),
        ("stack", "") => Ok(Thing::Stack),
        ("heap", "") => Ok(Thing::Heap),
        ("bss", "") => Ok(Thing::Bss),
        ("text", "") => Ok(Thing::Text),
        ("lib", _) => named(Thing::Lib),
        ("region", _) => named(Thing::Region),
        ("site", place) => {
            let parts = place.rsplit_once(':');
            let found =
                parts.and_then(|(file, line)| Some((file.trim(), line.trim().parse().ok()?)));
            match found.filter(|(file, line)| !file.is_empty() && *line > 0) {
                Some((file, line)) => Ok(Thing::Site(file.to_owned(), line)),
                None => Err(format!(
                    "`{place}` is not a place in a program: write it as in site table.c:12"
                )),
            }
        }
        ("range", range) => {
            let ends = range
                .split_once("..")
                .and_then(|(start, end)| Some((number(start.trim())?, number(end.trim())?)));
            match ends.filter(|(start, end)| start < end) {
                Some((start, end)) => Ok(Thing::Range(start, end)),
                None => Err(format!("`{range}` is not a range: write it as in 0x1000..0x9000")),
            }
        }
        _ => Err(format!(
            "`{text}` is not a part of memory: write data, bss, heap, stack, text, mmap, lib NAME, \
             region NAME, site FILE:LINE or range A..B"
        )),
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn microseconds(text: &str) -> Result<u64, String> {
    let units = [("us", 1), ("ms", 1000), ("s", 1_000_000)];
    let parsed = units.iter().find_map(|(unit, factor)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*factor)
    });
    parsed.ok_or_else(|| format!("`{text}` is not a time: write it as in 500us, 100ms or 1s"))
}

#[cfg(test)]
mod tests {
    use addr::VirtAddr;

    use super::*;

    fn sizes() -> Vec<PageSize> {
        [12, 14, 16, 18].into_iter().filter_map(PageSize::from_shift).collect()
    }

    #[test]
    fn written_rules_are_plain_data_and_the_most_special_first() {
        let text =
            "data=2M\nlib c.so.6 = 4K # text\nrange 4096..0x3000=1G wait, site a.c:7=64K node 1";
        let told: Vec<String> = written_rules(text)
            .unwrap()
            .into_iter()
            .map(|rule| {
                let WrittenRule { line, what, name, source_line, range, size, waits, has_nodes } =
                    rule;
                format!("{line} {what} {name:?} {source_line} {range:?} {size} {waits} {has_nodes}")
            })
            .collect();
        let expected = [
            "3 range \"\" 0 (4096, 12288) 1073741824 true false",
            "3 site \"a.c\" 7 (0, 0) 65536 false true",
            "2 lib \"c.so.6\" 0 (0, 0) 4096 false false",
            "1 data \"\" 0 (0, 0) 2097152 false false",
        ];
        assert_eq!(told, expected);
        assert_eq!(written_rules("").unwrap(), []);
        assert!(written_rules("heap=2M\nheap=8K, heap=4K").unwrap_err().starts_with("line 2: "));
    }

    #[test]
    fn the_most_special_rule_wins() {
        let text =
            "data=16K\nheap=64K wait # the heap\nrange 0x2000..0x4000=256K wait 5ms, lib=c.so=64K";
        let mut rules = Rules::parse(text, &sizes()).unwrap();
        let range = VirtRange::new(VirtAddr::new(0x1000), 0x2000).unwrap();
        let mut sizes = |kind, name| -> Vec<(u64, String, Option<u64>)> {
            let wishes = rules.wishes(&Mapped { range, kind, name });
            let one = |(range, wish): &(VirtRange, Wish)| {
                (range.start().get(), wish.size.to_string(), wish.wait_us)
            };
            wishes.iter().map(one).collect()
        };
        let inside = (0x2000, "256K".to_owned(), Some(5000));
        assert_eq!(
            sizes(Kind::Heap, "heap"),
            [
                (0x1000, "16K".to_owned(), None),
                (0x1000, "64K".to_owned(), Some(1_000_000)),
                inside.clone()
            ]
        );
        assert_eq!(
            sizes(Kind::Text, "/lib/c.so"),
            [(0x1000, "64K".to_owned(), None), inside.clone()]
        );
        assert_eq!(sizes(Kind::Text, "/lib/d.so"), [inside]);
        assert_eq!(rules.unused(), None);
    }

    #[test]
    fn errors_say_where_and_what_to_do() {
        for (text, expected) in [
            ("data=64K\nheap=64K\ndata=16K", "line 3: `data=16K` overlaps with the rule of line 1"),
            ("range 0x10..0x30=4K,range 0x20..0x40=4K", "line 1: `range 0x20..0x40=4K` overlaps"),
            ("\ntext=2M", "line 2: this machine has no pages of 2M: write one of 4K, 16K"),
            ("text=7K", "is not a page size"),
            ("code=4K", "line 1: `code` is not a part of memory"),
            ("lib=4K", "line 1: `lib` needs a name"),
            (
                "site table.c=4K",
                "line 1: `table.c` is not a place in a program: write it as in site table.c:12",
            ),
            ("range 9..3=4K", "line 1: `9..3` is not a range"),
            ("heap", "line 1: `heap` is not a rule"),
            ("heap=4K soon", "line 1: `heap=4K soon`: the word `soon` after the size is unknown"),
            ("heap=4K wait 5", "`5` is not a time"),
            ("heap=4K node", "`node` is not a placement"),
            ("heap=4K node 1 local", "`local` repeats or contradicts"),
            ("heap=4K stay borrow", "`borrow` repeats or contradicts"),
            ("heap=4K wait fallback", "`fallback` repeats or contradicts"),
            ("heap=4K migrate", "`migrate` needs a number: write after how many references"),
            ("heap=4K migrate 0", "`migrate 0` is not possible"),
        ] {
            let error = Rules::parse(text, &sizes()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let text = "heap=4K in-turn stay\ndata=4K wait 1ms colored migrate 64, text=4K node 3";
        let rules = Rules::parse(text, &sizes()).unwrap();
        assert_eq!((rules.nodes(), rules.migrates()), ((Some(1), Some((2, 3))), Some(2)));
        let rules = Rules::parse("heap=4K\nregion x=4K", &sizes()).unwrap();
        assert_eq!((rules.nodes(), rules.migrates()), ((None, None), None));
        assert_eq!(rules.unused().unwrap(), "line 1: no mapping is heap");
    }
}
