//! Groups of processes with memory limits (`[[os.linux.group]]`): the members of each group, and
//! the counts of the groups.

use addr::PageSize;
use description::{Os, Refusal, managers::linux};
use hat::HatSpace;
use os::Platform;
use ram::Failure;
use results::GroupCounts;
use trace::Process;
use vm::Limits;

use super::Base;

/// The groups of a machine.
pub(super) struct Groups {
    /// The name and the members of each group.
    all: Vec<(String, Vec<String>)>,
    /// The number of each process, with the programs that it runs.
    programs: Vec<(u32, Vec<String>)>,
}

/// The limits of the groups of `os`, in base pages. The error has the key that is wrong.
pub(super) fn limits(os: &Os, base: PageSize) -> Result<Vec<Limits>, Refusal> {
    let Some(asked) = linux(os) else { return Ok(Vec::new()) };
    let refuse = |key: String, what: &str| Err(Refusal::new(key, what.to_owned()));
    if asked.group.len() > 255 {
        return refuse("os.linux.group".to_owned(), "there are more than 255 groups: remove some");
    }
    let pages = |bytes: Option<description::units::Bytes>| {
        bytes.map_or(u64::MAX, |bytes| bytes.0 >> base.shift())
    };
    let mut limits = Vec::new();
    for (place, group) in asked.group.iter().enumerate() {
        if group.members.is_empty() {
            let key = format!("os.linux.group.{place}.members");
            let what = "a group without members limits nothing: name programs, or numbers of address spaces, \
                        or \"*\" for all processes that are in no other group";
            return refuse(key, what);
        }
        let of = Limits {
            max: pages(group.memory_max),
            high: pages(group.memory_high),
            swap_max: pages(group.swap_max),
        };
        if of.max == 0 {
            let what = "the limit is smaller than a page: write a size of 4K or more";
            return refuse(format!("os.linux.group.{place}.memory_max"), what);
        }
        limits.push(of);
    }
    Ok(limits)
}

impl Groups {
    pub(super) fn of(os: &Os) -> Option<Box<Groups>> {
        let asked = linux(os).map(|asked| asked.group).filter(|all| !all.is_empty())?;
        let named = |(place, group): (usize, description::Group)| {
            let name = if group.name.is_empty() { format!("{}", place + 1) } else { group.name };
            (name, group.members)
        };
        let all = asked.into_iter().enumerate().map(named).collect();
        Some(Box::new(Groups { all, programs: Vec::new() }))
    }

    pub(super) fn begin(&mut self, processes: &[Process]) {
        let programs = |process: &Process| {
            let name = |command: &String| command.rsplit('/').next().unwrap_or_default().to_owned();
            let commands = process.programs.iter().filter_map(|program| program.command.first());
            (process.number, commands.map(name).collect())
        };
        self.programs = processes.iter().map(programs).collect();
    }

    /// The number of the group to which the space `number` belongs, from 1; `None` if it belongs to
    /// no group.
    fn group_of(&self, number: u32) -> Option<u8> {
        let text = number.to_string();
        let programs = self.programs.iter().find(|(of, _)| *of == number);
        let programs = programs.map_or(&[][..], |(_, programs)| programs);
        let has = |members: &Vec<String>| {
            members.iter().any(|member| *member == text || programs.contains(member))
        };
        let named = self.all.iter().position(|(_, members)| has(members));
        let any = || self.all.iter().position(|(_, members)| members.iter().any(|of| of == "*"));
        named.or_else(any).map(|place| place as u8 + 1)
    }
}

impl Base {
    /// Puts a space into its group, when it is first seen.
    pub(super) fn join_group(
        &mut self,
        number: u32,
        space: HatSpace,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let group = self.groups.as_ref().and_then(|groups| groups.group_of(number));
        match group {
            Some(group) => self.with(platform, |kernel| kernel.set_group(space, group)),
            None => Ok(()),
        }
    }

    pub(super) fn group_counts(&self) -> Option<Vec<GroupCounts>> {
        let groups = self.groups.as_ref()?;
        let shift = self.vm.base().shift();
        let of_rest = ("no group".to_owned(), Vec::new());
        let names = [&of_rest].into_iter().chain(&groups.all);
        let counts = |((name, _), of): (&(String, Vec<String>), vm::GroupCounts)| GroupCounts {
            name: name.clone(),
            current: of.current << shift,
            peak: of.peak << shift,
            swap_current: of.swap_current << shift,
            high: of.high,
            max: of.max,
            oom: of.oom,
            pgsteal: of.pgsteal,
            pswpin: of.pswpin,
            pswpout: of.pswpout,
        };
        Some(names.zip(self.vm.groups()).map(counts).collect())
    }
}
