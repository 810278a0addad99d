//! The reference model of an allocator: the set of frames in use.

use alloc::{collections::BTreeMap, vec::Vec};

use physmem::{Allocator, Color, FrameId, FreeError, Home, Physmem, Rather, Request, State};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The base frames in use.
pub(crate) struct Model {
    pub(crate) first: u32,
    pub(crate) end: u32,
    pub(crate) used: BTreeMap<u32, State>,
}

impl Model {
    pub(crate) fn is_free(&self, first: u32, order: u32) -> bool {
        let end = u64::from(first) + (1 << order);
        first >= self.first
            && end <= u64::from(self.end)
            && self.used.range(first..end as u32).next().is_none()
    }

    /// Whether any aligned block of `order` is free.
    fn has(&self, order: u32) -> bool {
        let blocks = self.first >> order..=self.end >> order;
        blocks.into_iter().any(|block| self.is_free(block << order, order))
    }
}

/// The properties that one allocator guarantees and others need not: a property of its free blocks,
/// and the orders for which it always finds a free block if there is one.
pub(crate) struct Rule<A> {
    pub(crate) holds: fn(&Physmem<A>, &Model),
    pub(crate) finds: fn(u32) -> bool,
}

/// Makes random requests to `memory`, with nodes and colours, for blocks of up to half of all
/// frames. Each answer must be one that the model allows. Returns a digest of all answers.
pub(crate) fn check<A: Allocator>(seed: u64, mut memory: Physmem<A>, rule: Rule<A>) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let frames = memory.table().frames();
    let mut model = Model { first: frames.start, end: frames.end, used: BTreeMap::new() };
    let mut out: Vec<(u32, u32)> = Vec::new();
    for step in 0..4000 {
        let order = match rng.random_bool(0.1) {
            true => rng.random_range(5..32),
            false => rng.random_range(0..8u32).saturating_sub(3),
        };
        let states = [State::Movable, State::Kernel, State::Table, State::Reclaimable];
        let state = states[rng.random_range(0..states.len())];
        let strict = rng.random_bool(0.2);
        let node = rng.random_bool(0.5).then(|| Home { node: rng.random_range(0..3), strict });
        if step % 500 < 300 && rng.random_bool(0.6) {
            let of = [1, 3, 4, 8, 64][rng.random_range(0..5)];
            let value = rng.random_range(0..2 * of);
            let color = rng.random_bool(0.4).then_some(Color { value, of });
            let rather =
                [Rather::Near, Rather::Colored, Rather::ColoredOnly][rng.random_range(0..3)];
            let request = Request { node, color, rather, ..Request::new(order, state) };
            let color = color.filter(|_| rather == Rather::ColoredOnly);
            match memory.allocate(&request) {
                Ok(first) => {
                    let (last, is_on) = (FrameId(first.0 + (1 << order) - 1), |home: Home| {
                        [first, FrameId(first.0 + (1 << order) - 1)]
                            .map(|frame| memory.table().get(frame).node())
                            == [home.node; 2]
                    });
                    assert!(last.0 < frames.end, "step {step}: beyond memory");
                    let has_node = node.is_none_or(|home| !home.strict || is_on(home));
                    let nodes = memory.table().nodes();
                    assert!(nodes < 2 || has_node, "step {step}: another node");
                    let has_color = color.is_none_or(|color| first.0 % of == color.value % of);
                    assert!(has_color, "step {step}: frame {} for {color:?}", first.0);
                    assert!(model.is_free(first.0, order), "step {step}: two owners");
                    assert_eq!(first.0 % (1 << order), 0, "step {step}: alignment");
                    model.used.extend((first.0..first.0 + (1 << order)).map(|at| (at, state)));
                    out.push((first.0, order));
                    digest = (digest ^ u64::from(first.0)).wrapping_mul(0x0000_0100_0000_01b3);
                }
                Err(_) if node.is_some_and(|home| home.strict) || color.is_some() => {}
                Err(_) if !(rule.finds)(order) => {}
                Err(_) => assert!(!model.has(order), "step {step}: there is a block"),
            }
        } else if rng.random_bool(0.1) {
            let first = rng.random_range(frames.clone()) >> order << order;
            let crosses = |table: &physmem::FrameTable| {
                let last = FrameId(first.saturating_add((1 << order) - 1));
                first >= frames.start
                    && last.0 < frames.end
                    && table.get(FrameId(first)).node() != table.get(last).node()
            };
            let crosses = crosses(memory.table());
            let taken = memory.take(FrameId(first), order, state);
            assert_eq!(taken, model.is_free(first, order) && !crosses, "step {step}");
            if taken {
                model.used.extend((first..first + (1 << order)).map(|at| (at, state)));
                out.push((first, order));
            }
        } else if !out.is_empty() {
            let (first, order) = out.swap_remove(rng.random_range(0..out.len()));
            // Sometimes a part of the block is freed first.
            if order > 0 && rng.random_bool(0.3) {
                let half = 1 << (order - 1);
                out.extend([(first, order - 1), (first + half, order - 1)]);
                continue;
            }
            memory.try_free(FrameId(first), order).unwrap();
            for at in first..first + (1 << order) {
                model.used.remove(&at);
            }
            let twice = memory.try_free(FrameId(first), order);
            assert!(matches!(twice, Err(FreeError::NotOut { .. })), "step {step}");
        }
        compare(&memory, &model);
        if step % 16 == 0 {
            (rule.holds)(&memory, &model);
        }
    }
    for (first, order) in out {
        memory.try_free(FrameId(first), order).unwrap();
    }
    assert_eq!(memory.used_bytes(), 0);
    (rule.holds)(&memory, &Model { used: BTreeMap::new(), ..model });
    digest
}

fn compare<A: Allocator>(memory: &Physmem<A>, model: &Model) {
    let frames = u64::from(model.end - model.first);
    let listed: u64 = (0..32).map(|order| memory.allocator().free_blocks(order) << order).sum();
    assert_eq!(listed, frames - model.used.len() as u64, "frames in free blocks");
    for state in State::ALL {
        let used = model.used.values().filter(|&&of| of == state).count() as u64;
        let expected = if state == State::Free { frames - model.used.len() as u64 } else { used };
        assert_eq!(memory.table().count(state), expected, "{state} frames");
    }
}
