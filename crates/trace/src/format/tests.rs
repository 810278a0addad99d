//! Chunks whose checksums would be right and whose contents are not: what only a forger writes.

use addr::Kind;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::chunk::{STREAMS, STREAMS_ALONE};
use super::compression::{Compressor, Decompressor};
use super::*;
use crate::shape::Rows;
use crate::{
    Batch, Batcher, Event, Meta, Op, Shape, Sink, WORD_BLOCK, WORD_COUNT_SHIFT, WORD_FIXED,
    WORD_SHIFT,
};

const SEED: u64 = 0x7761_6c6b;

/// So many; under Miri, which takes a thousand times as long, a hundredth.
fn few(many: usize) -> usize {
    if cfg!(miri) { many.div_ceil(100) } else { many }
}

/// A chunk of random executions by several threads.
fn chunk(random: &mut Xoshiro256PlusPlus, executions: usize) -> Vec<u8> {
    let mut encoder = Encoder::new(1 << 20);
    let shapes: Vec<_> = (0..1 + random.next_u64() % 6)
        .map(|number| {
            let fetch = !random.next_u64().is_multiple_of(4);
            let ops = (random.next_u64() % 12) as usize;
            let mut metas = vec![Meta::new(Kind::Fetch, 9, 1); usize::from(fetch)];
            metas.resize(metas.len() + ops, Meta::new(Kind::Store, 8, 2));
            let rows = metas.len();
            (encoder.shape(Rows { pc: 64 * number, fetch, metas, trailing: 3 }), ops, rows)
        })
        .collect();
    for _ in 0..executions {
        let (shape, ops, rows) = shapes[random.next_u64() as usize % shapes.len()];
        let addrs: Vec<u64> =
            (0..ops).map(|_| random.next_u64() >> (random.next_u64() % 64)).collect();
        match random.next_u64() % 40 {
            0 => encoder.thread(random.next_u64() as u32 % 20),
            1 => encoder.event(1, &Event::Fork { result: 7, flags: 17 }).unwrap(),
            2 => encoder.advance(random.next_u64() % 100_000),
            _ => {}
        }
        match random.next_u64() % 200 {
            0 => encoder.execute_physical(shape, &addrs, &vec![8192; rows]).unwrap(),
            _ => encoder.execute(shape, &addrs).unwrap(),
        }
    }
    let mut body = Vec::new();
    encoder.close(5, &mut Compressor::new(1).unwrap(), &mut body).unwrap();
    body
}

/// Decodes all of `body`, checking only what a batch must always be. Some executions have more
/// rows than a batch is to have.
fn decode(body: &[u8]) -> Result<u64, Damage> {
    let mut decoder = Decoder::new();
    let head = decoder.open(body, &mut Decompressor::new().unwrap())?;
    let mut batch = Batch::default();
    let mut rows = 0;
    loop {
        decoder.fill(&mut batch, 10)?;
        assert_eq!(batch.addr.len(), batch.meta.len());
        assert!(batch.paddr.is_empty() || batch.paddr.len() == batch.addr.len());
        assert!(batch.segments.iter().all(|segment| (segment.start as usize) < batch.len()));
        assert!(batch.events.iter().all(|event| event.at as usize <= batch.len()));
        rows += batch.len() as u64;
        if decoder.left() == 0 {
            assert_eq!(rows, u64::from(head.accesses));
            return Ok(rows);
        }
        assert!(!batch.is_empty());
    }
}

/// Accesses that mostly go on as before: for each number of operations that short and long shapes
/// have, with and without a fetch, none of them, one or all mispredicted.
#[test]
fn predicted_and_mispredicted_addresses_come_back() {
    println!("seed {SEED:#x}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut encoder = Encoder::new(1 << 20);
    let mut shapes: Vec<_> = (0..40)
        .map(|number| {
            let (pc, fetch, ops) = (64 * number, number % 2 == 0, number as usize / 2);
            let mut metas = vec![Meta::new(Kind::Fetch, 9, 1); usize::from(fetch)];
            metas.extend((0..ops as u32).map(|op| Meta::new(Kind::Load, 1 + op, 1)));
            let rows = Rows { pc, fetch, metas: metas.clone(), trailing: 3 };
            (encoder.shape(rows), pc, metas, vec![random.next_u64() >> 16; ops], 8 * number)
        })
        .collect();
    let (mut expected, mut carry) = (Vec::new(), 0);
    for _ in 0..few(20_000) {
        let (shape, pc, metas, addrs, step) = &mut shapes[random.next_u64() as usize % 40];
        let ops = addrs.len();
        addrs.iter_mut().for_each(|addr| *addr += *step);
        match random.next_u64() % 8 {
            0 => addrs.iter_mut().for_each(|addr| *addr = random.next_u64()),
            1..4 if ops > 0 => addrs[random.next_u64() as usize % ops] ^= random.next_u64() >> 40,
            _ => {}
        }
        encoder.execute(*shape, addrs).unwrap();
        let fetched = (metas.len() > ops).then_some(*pc);
        let first = expected.len();
        expected.extend(fetched.iter().chain(addrs.iter()).copied().zip(metas.iter().copied()));
        match expected.get_mut(first) {
            Some((_, meta)) => *meta = meta.plus_instructions(std::mem::replace(&mut carry, 3)),
            None => carry += 3,
        }
    }
    let mut body = Vec::new();
    encoder.close(0, &mut Compressor::new(1).unwrap(), &mut body).unwrap();
    for rows_max in [1, 7, 100, 1 << 20] {
        let (mut decoder, mut batch) = (Decoder::new(), Batch::default());
        decoder.open(&body, &mut Decompressor::new().unwrap()).unwrap();
        let mut decoded = Vec::new();
        while decoder.left() > 0 {
            decoder.fill(&mut batch, rows_max).unwrap();
            decoded.extend(batch.addr.iter().copied().zip(batch.meta.iter().copied()));
        }
        assert!(decoded == expected, "batches of {rows_max}");
    }
}

/// A body of the same streams, each stored as it is, so that forging reaches what is in them.
fn uncompressed(body: &[u8]) -> Vec<u8> {
    let mut streams: [Vec<u8>; STREAMS] = Default::default();
    let head = Head::open(body, &mut Decompressor::new().unwrap(), &mut streams).unwrap();
    let streams = &streams[..STREAMS_ALONE];
    let mut out = body[..44].to_vec();
    for stream in streams {
        out.extend_from_slice(&(stream.len() as u32).to_le_bytes());
        out.extend_from_slice(&(stream.len() as u32).to_le_bytes());
    }
    streams.iter().for_each(|stream| out.extend_from_slice(stream));
    assert_eq!(Head::parse(&out).unwrap(), head);
    out
}

#[test]
fn nothing_in_a_chunk_is_trusted() {
    println!("seed {SEED:#x}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let (mut refused, mut read) = (0, 0);
    let (forgeries, enough) = if cfg!(miri) { (10, 4) } else { (40, 1000) };
    for round in 0..few(300) {
        let body = chunk(&mut random, 1 + round % 150);
        let stored = uncompressed(&body);
        let rows = decode(&body).unwrap();
        assert_eq!(decode(&stored).unwrap(), rows);
        for _ in 0..forgeries {
            let mut forged =
                if random.next_u64().is_multiple_of(4) { body.clone() } else { stored.clone() };
            for _ in 0..1 + random.next_u64() % 3 {
                let at = random.next_u64() as usize % forged.len();
                forged[at] = random.next_u64() as u8;
            }
            if random.next_u64().is_multiple_of(8) {
                forged.truncate(random.next_u64() as usize % forged.len());
            }
            match decode(&forged) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > enough && read > enough, "{refused} refused, {read} read");
}

/// The shape of each execution alone is another one: a shape may come before its first execution
/// or have more or fewer operations than there are.
#[test]
fn executions_of_other_shapes_are_refused_or_read() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    let (mut refused, mut read) = (0, 0);
    for _ in 0..few(40) {
        let body = uncompressed(&chunk(&mut random, few(1200).min(60)));
        let bytes = |stream: usize| {
            let at = 44 + 8 * stream;
            u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]) as usize
        };
        let sequence = 44 + 8 * STREAMS_ALONE + bytes(0) + bytes(1);
        for place in sequence..sequence + bytes(2) {
            for shape in 0..6 {
                let mut forged = body.clone();
                forged[place] = shape;
                match decode(&forged) {
                    Ok(_) => read += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(refused > few(1000) && read > few(1000), "{refused} refused, {read} read");
}

/// Chunks of one byte per way of being wrong that a random change seldom hits.
#[test]
fn counts_that_do_not_fit_together_are_refused() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let body = uncompressed(&chunk(&mut random, few(2000).min(100)));
    assert!(decode(&body).is_ok());
    for field in (16..44 + 7 * 8).step_by(4) {
        let value =
            u32::from_le_bytes([body[field], body[field + 1], body[field + 2], body[field + 3]]);
        for other in [value.wrapping_add(1), value.wrapping_sub(1), 0, u32::MAX] {
            let mut forged = body.clone();
            forged[field..field + 4].copy_from_slice(&other.to_le_bytes());
            let same = other == value;
            assert_eq!(decode(&forged).is_ok(), same, "field at {field}: {other} for {value}");
        }
    }
}

/// A recorder's words, taken as they come in pieces of any length, are the executions that they
/// stand for: for the batcher as for the encoder. Blocks have none to six operations, are fixed or
/// tagged, fetched or not, and go on as before, jump, or are not usual.
#[test]
fn words_are_the_executions_that_they_stand_for() {
    println!("seed {SEED:#x}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let (mut plain, mut batcher, mut encoder) =
        (Batcher::new(), Batcher::new(), Encoder::new(1 << 20));
    let mut blocks = Vec::new();
    for number in 0..28u64 {
        let (ops, fixed, fetch) = (number as usize % 7, number % 14 < 7, number < 14);
        let op = |op| Op { instruction: op as u16, kind: Kind::Load, size: 8 };
        let ops: Vec<Op> = (0..ops).map(op).collect();
        let shape = Shape { pc: 0x1000 + 64 * number, bytes: 9, instructions: 8, fetch, ops };
        let tags: Vec<u16> = (0..shape.ops.len() as u16).collect();
        let ids = (plain.shape(&shape), batcher.shape(&shape), encoder.shape(Rows::from(&shape)));
        batcher.usual(number as usize, ids.1, &tags);
        encoder.usual(number as usize, ids.2, &tags);
        let addrs = vec![random.next_u64() >> 20; tags.len()];
        blocks.push((fixed, ids, tags, addrs));
    }
    let (mut words, mut taken) = (Vec::new(), 0);
    let rounds = few(20_000);
    for round in 1..=rounds {
        let number = random.next_u64() as usize % blocks.len();
        let (fixed, ids, tags, addrs) = &mut blocks[number];
        let moved = if random.next_u64().is_multiple_of(8) { random.next_u64() >> 20 } else { 8 };
        addrs.iter_mut().for_each(|addr| *addr = (*addr + moved) & (u64::MAX >> 16));
        plain.execute(ids.0, addrs).unwrap();
        let block = (number as u64) << WORD_SHIFT;
        if *fixed {
            words.push(block | u64::from(WORD_FIXED) | (addrs.len() as u64) << WORD_COUNT_SHIFT);
            words.extend_from_slice(addrs);
        } else {
            words.push(block | u64::from(WORD_BLOCK));
            let tagged =
                addrs.iter().zip(tags).map(|(addr, tag)| addr << WORD_SHIFT | u64::from(*tag));
            words.extend(tagged);
        }
        if random.next_u64().is_multiple_of(5) || round == rounds {
            let piece = words[taken..].to_vec();
            let by_batcher = batcher.execute_words(&piece).unwrap().words;
            let mut by_encoder = 0;
            loop {
                by_encoder += encoder.execute_words(&piece[by_encoder..]);
                match encoder.execute_first(&piece[by_encoder..]).unwrap() {
                    0 => break,
                    more => by_encoder += more,
                }
            }
            assert_eq!(by_batcher, by_encoder);
            taken += by_batcher;
        }
    }
    let (mut expected, mut batched) = (Batch::default(), Batch::default());
    plain.take(&mut expected);
    batcher.take(&mut batched);
    assert!(taken > 0 && words.len() - taken < 16, "{taken} of {} words", words.len());
    let rows = batched.len();
    assert!(batched.addr == expected.addr[..rows] && batched.meta == expected.meta[..rows]);
    let mut body = Vec::new();
    encoder.close(0, &mut Compressor::new(1).unwrap(), &mut body).unwrap();
    let (mut decoder, mut decoded) = (Decoder::new(), Batch::default());
    decoder.open(&body, &mut Decompressor::new().unwrap()).unwrap();
    decoder.fill(&mut decoded, rows).unwrap();
    assert!(decoded.addr == batched.addr && decoded.meta == batched.meta);
}
