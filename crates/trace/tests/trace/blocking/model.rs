//! Compares blocking order with a model. After each action, the model asks every process whether it
//! can continue.

use std::collections::{BTreeMap, VecDeque};

use super::{Act, Execve, Fork, Read, Run, Sleep, Wait, Write, order, recorded};
use crate::common::Stream;

/// A process: its actions, its progress, and whether it has begun, waits or has ended.
struct One<'a> {
    acts: &'a [Act],
    at: usize,
    moved: u64,
    begun: bool,
    waits: bool,
}

/// The model of one processor without a quantum.
struct Model<'a> {
    all: Vec<One<'a>>,
    capacity: u64,
    /// For each pipe, the bytes in it, and the processes that have written to it.
    pipes: BTreeMap<u64, (u64, Vec<usize>)>,
    queue: VecDeque<usize>,
}

impl Model<'_> {
    fn has_ended(&self, who: usize) -> bool {
        self.all[who].at == self.all[who].acts.len()
    }

    /// Advances the current action of `who` as far as possible, or only examines it if not `done`.
    /// Returns whether the whole action is possible, and whether a part of it is.
    fn go(&mut self, who: usize, done: bool) -> (bool, bool) {
        let (act, moved) = (self.all[who].acts[self.all[who].at], self.all[who].moved);
        match act {
            Run(_) | Execve | Sleep(_) => (true, true),
            Fork(child, _) => {
                if done {
                    self.all[child as usize].begun = true;
                    self.queue.push_back(child as usize);
                }
                (true, true)
            }
            Wait(child) => (self.has_ended(child as usize), self.has_ended(child as usize)),
            Read(pipe, 0) => {
                let writers = self.pipes.get(&pipe).map_or(&[][..], |pipe| &pipe.1);
                let ended = writers.iter().all(|writer| self.has_ended(*writer));
                (ended, ended)
            }
            Read(pipe, all) => {
                let inside = &mut self.pipes.entry(pipe).or_default().0;
                let now = (all as u64 - moved).min(*inside);
                if done {
                    *inside -= now;
                    self.all[who].moved += now;
                }
                (moved + now == all as u64, now > 0)
            }
            Write(pipe, all) => {
                let (inside, writers) = self.pipes.entry(pipe).or_default();
                let (rest, room) = (all as u64 - moved, self.capacity - *inside);
                // A write of at most PIPE_BUF bytes is made as a whole or not at all.
                let at_once = all as u64 <= self.capacity.min(4096);
                let now = if at_once && room < rest { 0 } else { rest.min(room) };
                if done {
                    *inside += now;
                    writers.push(who);
                    self.all[who].moved += now;
                }
                (now == rest, now > 0)
            }
        }
    }

    /// Moves waiting processes that can continue to the end of the queue.
    fn wake(&mut self) {
        for who in 0..self.all.len() {
            if self.all[who].waits && self.go(who, false).1 {
                self.all[who].waits = false;
                self.queue.push_back(who);
            }
        }
    }

    /// The turns, each with its process and its number of accesses; the number of switches because
    /// a call waited; and the number of switches because a process ended.
    fn run(mut self) -> (Vec<(u64, u64)>, u64, u64) {
        let (mut turns, mut blocked, mut ended) = (Vec::<(u64, u64)>::new(), 0, 0);
        while let Some(who) = self.queue.pop_front() {
            let waits = loop {
                if self.has_ended(who) {
                    self.wake();
                    break false;
                }
                if let Run(accesses) = self.all[who].acts[self.all[who].at] {
                    match turns.last_mut() {
                        Some((last, count)) if *last == who as u64 => *count += accesses,
                        _ => turns.push((who as u64, accesses)),
                    }
                }
                let (all, _) = self.go(who, true);
                if all {
                    self.all[who].at += 1;
                    self.all[who].moved = 0;
                }
                let is_last = self.has_ended(who);
                if !is_last {
                    self.wake();
                }
                if !all {
                    break true;
                }
            };
            self.all[who].waits = waits;
            // The next process to run is a different one, because a waiting process cannot run.
            if !self.queue.is_empty() {
                *(if waits { &mut blocked } else { &mut ended }) += 1;
            }
        }
        assert!(self.all.iter().all(|one| one.begun && one.at == one.acts.len()), "all end");
        (turns, blocked, ended)
    }
}

/// `bytes`, divided into random parts.
fn parts(stream: &mut Stream, mut bytes: u64, most: u64) -> Vec<i64> {
    let mut parts = Vec::new();
    while bytes > 0 {
        let part = if stream.below(4) == 0 { 4096 } else { 1 + stream.below(most) }.min(bytes);
        parts.push(part as i64);
        bytes -= part;
    }
    parts
}

#[test]
fn pipelines_of_all_sorts_switch_as_the_model_does() {
    for seed in 1..=60u64 {
        let mut stream = Stream(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let capacity = [100, 4096, 5000, 16 << 10, 64 << 10][stream.below(5) as usize];
        let stages = 1 + stream.below(4) as usize;
        let mut lists = vec![Vec::new(); stages + 1];
        let children = 1..=stages as u32;
        lists[0] =
            [Run(3)].into_iter().chain(children.clone().map(|child| Fork(child, 0))).collect();
        lists[0].extend(children.flat_map(|child| [Wait(child), Run(1)]));
        for stage in 1..stages {
            let bytes = 1 + stream.below(6 * capacity);
            let mut sizes = |most: u64| {
                let most = 1 + stream.below(most);
                parts(&mut stream, bytes, most)
            };
            let (writes, reads) = (sizes(3 * capacity), sizes(3 * capacity));
            let pipe = stage as u64;
            lists[stage].extend(writes.into_iter().map(|bytes| Write(pipe, bytes)));
            lists[stage + 1].extend(reads.into_iter().map(|bytes| Read(pipe, bytes)));
        }
        for (stage, acts) in lists.iter_mut().enumerate().skip(1) {
            // Reads and writes are shuffled, with a few accesses between them.
            for at in (1..acts.len()).rev() {
                let other = stream.below(at as u64 + 1) as usize;
                acts.swap(at, other);
            }
            let runs = |act| [Run(1 + u64::from(seed % 3 == 0)), act];
            *acts = std::mem::take(acts).into_iter().flat_map(runs).collect();
            if stage > 1 && stream.below(2) == 0 {
                acts.extend([Run(1), Read(stage as u64 - 1, 0)]);
            }
            acts.push(Run(1));
        }
        let processes: Vec<_> = (0..)
            .zip(&lists)
            // The times are so far apart that they do not show when a pipe was closed.
            .map(|(number, acts)| ((number > 0).then_some(0), false, number << 40, &acts[..]))
            .collect();
        let path = recorded("model", &processes);
        let spec = format!("quantum=1G,pipe={capacity}B,{}", path.display());
        let (turns, switches) = order(&spec);
        let all =
            lists.iter().map(|acts| One { acts, at: 0, moved: 0, begun: false, waits: false });
        let mut model = Model {
            all: all.collect(),
            capacity,
            pipes: BTreeMap::new(),
            queue: VecDeque::from([0]),
        };
        model.all[0].begun = true;
        let (expected, blocked, ended) = model.run();
        assert_eq!(turns, expected, "seed {seed}: {spec}");
        assert_eq!(switches.by_cause, super::causes(blocked, ended, 0), "seed {seed}: {spec}");
        assert_eq!(switches.unexplained, 0, "seed {seed}: {spec}");
    }
}
