//! Chunks with correct checksums and invalid contents, as only a forger writes them.

use addr::Kind;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::chunk::{STREAMS, STREAMS_ALONE};
use super::compression::{Compressor, Decompressor};
use super::*;
use crate::shape::Rows;
use crate::{
    Address, Batch, Batcher, Event, KnownSizes, Op, Seen, Shape, Sink, Translation, WORD_BLOCK,
    WORD_COUNT_SHIFT, WORD_FIXED, WORD_SHIFT, When,
};

const SEED: u64 = 0x7761_6c6b;

/// `many`, or a hundredth of it under Miri, which is a thousand times slower.
fn few(many: usize) -> usize {
    if cfg!(miri) { many.div_ceil(100) } else { many }
}

/// The sources of the addresses of `ops` operations: about half of them are derived from others.
fn addresses(random: &mut Xoshiro256PlusPlus, ops: usize) -> Vec<Address> {
    let mut all: Vec<Address> = Vec::new();
    for index in 0..ops {
        let distance = (random.next_u64() as i64 >> (random.next_u64() % 64)) as u64;
        let op = random.next_u64() as usize % (index + 1);
        all.push(match random.next_u64() % 6 {
            0 => Address::BehindStart(distance),
            1 | 2 if all.get(op) == Some(&Address::Said) => {
                Address::Behind { op: op as u16, distance }
            }
            _ => Address::Said,
        });
    }
    all
}

/// A shape at `pc` with operations whose addresses have the sources `addresses`.
fn shape(pc: u64, fetch: bool, addresses: &[Address]) -> Shape {
    let op = |(index, &address): (usize, &Address)| {
        let kind = if index % 3 == 0 { Kind::Store } else { Kind::Load };
        Op { instruction: index as u16, kind, size: 1 + index as u32, address }
    };
    let ops: Vec<Op> = addresses.iter().enumerate().map(op).collect();
    let instructions = ops.len().max(fetch.into()) as u32 + 3;
    let shape = Shape { pc, bytes: 9, instructions, fetch, ops };
    shape.check().unwrap();
    shape
}

/// `addrs`, with the derived addresses computed from their sources.
fn followed(pc: u64, addresses: &[Address], mut addrs: Vec<u64>) -> Vec<u64> {
    for index in 0..addrs.len() {
        addrs[index] = match addresses[index] {
            Address::Said => addrs[index],
            Address::Behind { op, distance } => addrs[usize::from(op)].wrapping_add(distance),
            Address::BehindStart(distance) => pc.wrapping_add(distance),
        };
    }
    addrs
}

/// The addresses that are coded.
fn said(addresses: &[Address], addrs: &[u64]) -> Vec<u64> {
    let all = addresses.iter().zip(addrs);
    all.filter(|(address, _)| **address == Address::Said).map(|(_, &addr)| addr).collect()
}

/// A chunk of random executions by several threads.
fn chunk(random: &mut Xoshiro256PlusPlus, executions: usize, linked: bool) -> Vec<u8> {
    chunk_with(random, executions, linked, false)
}

/// Such a chunk, with translations if it is `translated`.
fn chunk_with(
    random: &mut Xoshiro256PlusPlus,
    executions: usize,
    linked: bool,
    translated: bool,
) -> Vec<u8> {
    let mut encoder = Encoder::new(1 << 20);
    let shapes: Vec<_> = (0..1 + random.next_u64() % 6)
        .map(|number| {
            let fetch = !random.next_u64().is_multiple_of(4);
            let ops = (random.next_u64() % 12) as usize;
            let addresses = match linked {
                true => addresses(random, ops),
                false => vec![Address::Said; ops],
            };
            let shape = shape(64 * number, fetch, &addresses);
            let rows = ops + usize::from(fetch);
            (encoder.shape(Rows::from(&shape)), shape.pc, addresses, rows)
        })
        .collect();
    for _ in 0..executions {
        let (shape, pc, addresses, rows) = &shapes[random.next_u64() as usize % shapes.len()];
        let (shape, rows) = (*shape, *rows);
        let mut addr = |_: &Address| random.next_u64() >> (random.next_u64() % 64);
        let addrs = followed(*pc, addresses, addresses.iter().map(&mut addr).collect());
        match random.next_u64() % 40 {
            0 => encoder.thread(random.next_u64() as u32 % 20),
            1 => encoder.event(1, &Event::Fork { result: 7, flags: 17 }).unwrap(),
            2 => encoder.advance(random.next_u64() % 100_000),
            3 | 4 if translated => {
                encoder.event(random.next_u64() as u32 % 3, &recorded(random)).unwrap()
            }
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

/// An event of the stream of translations.
fn recorded(random: &mut Xoshiro256PlusPlus) -> Event {
    let paddr = random.next_u64() >> (random.next_u64() % 64);
    let value = random.next_u64() >> (random.next_u64() % 64);
    match random.next_u64() % 5 {
        0 => Event::Table { paddr: paddr & !0xfff, level: (random.next_u64() % 6) as u8 },
        1 => Event::Entry { paddr: paddr & !7, value, stored: true },
        2 => Event::Entry { paddr: paddr & !7, value, stored: false },
        _ => translation(random),
    }
}

/// A translation as a walk or a snapshot may find it: near zero, near the last address, or anywhere.
fn translation(random: &mut Xoshiro256PlusPlus) -> Event {
    let shift = [12, 12, 16, 21, 30, 51][random.next_u64() as usize % 6];
    let pages_max = (u64::MAX >> shift) + u64::from(shift > 12);
    let pages = if random.next_u64().is_multiple_of(2) { 1 } else { 1 + random.next_u64() % 1000 };
    let pages = pages.min(pages_max);
    let mut place = || {
        let last = u64::MAX - ((pages << shift) - 1);
        let addr = random.next_u64() >> (random.next_u64() % 64);
        (if addr.is_multiple_of(8) { last } else { addr.min(last) }) & (u64::MAX << shift)
    };
    let (addr, paddr) = (place(), place());
    let entries = if random.next_u64().is_multiple_of(3) { 0 } else { random.next_u64() % 36 };
    let found = Translation {
        seen: if random.next_u64().is_multiple_of(2) { Seen::Walk } else { Seen::Snapshot },
        addr,
        page_bytes: 1 << shift,
        pages,
        paddr: Some(paddr).filter(|paddr| paddr >> shift & 1 == 0),
        rights: Some(random.next_u64() as u8 & 0x7f).filter(|rights| rights & 1 != 0),
        entries: (0..entries).map(|_| random.next_u64() >> 20).collect(),
    };
    found.check().unwrap();
    Event::Translation(Box::new(found))
}

/// Translations come back in their order among other events, whatever the batches are; and nothing
/// that no page table can have is stored.
#[test]
fn translations_come_back_among_the_events() {
    println!("seed {SEED:#x}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    for _ in 0..few(300) {
        let mut encoder = Encoder::new(1 << 20);
        let id = encoder.shape(Rows::from(&shape(64, true, &[Address::Said; 2])));
        let (mut expected, mut rows) = (Vec::new(), 0);
        for _ in 0..random.next_u64() % 60 {
            let thread = random.next_u64() as u32 % 5;
            let event = match random.next_u64() % 4 {
                0 => Event::Snapshot { when: When::Growth, sizes: KnownSizes::All },
                1 => Event::Marker { number: random.next_u64() },
                _ => recorded(&mut random),
            };
            encoder.event(thread, &event).unwrap();
            expected.push((rows, thread, event));
            for _ in 0..random.next_u64() % 3 {
                encoder.execute(id, &[random.next_u64(), 8]).unwrap();
                rows += 3;
            }
        }
        let mut body = Vec::new();
        encoder.close(0, &mut Compressor::new(1).unwrap(), &mut body).unwrap();
        for rows_max in [3, 100] {
            let (mut decoder, mut batch) = (Decoder::new(), Batch::default());
            decoder.open(&body, &mut Decompressor::new().unwrap()).unwrap();
            let (mut found, mut first) = (Vec::new(), 0);
            loop {
                decoder.fill(&mut batch, rows_max).unwrap();
                let placed = batch.events.drain(..);
                found.extend(placed.map(|placed| (first + placed.at, placed.thread, placed.event)));
                first += batch.len() as u32;
                if decoder.left() == 0 {
                    break;
                }
            }
            assert!(found == expected, "batches of {rows_max}");
        }
    }
    let mut encoder = Encoder::new(1 << 20);
    let page = Translation::base(Seen::Walk, 1 << 21);
    let wrong: [fn(&mut Translation); 9] = [
        |page| page.addr += 1,
        |page| page.page_bytes = 0,
        |page| page.page_bytes = 2048,
        |page| page.page_bytes += 4096 * 2,
        |page| page.pages = 0,
        |page| page.pages = 1 << 52,
        |page| page.paddr = Some(12),
        |page| page.rights = Some(128),
        |page| page.entries = vec![0; 36],
    ];
    for wrong in wrong {
        let mut page = page.clone();
        wrong(&mut page);
        assert!(encoder.event(0, &Event::Translation(Box::new(page))).is_err());
    }
    assert!(encoder.is_empty());
}

/// Decodes all of `body`, checking only the properties that every batch must have. Some executions
/// have more rows than a batch should have.
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

/// Addresses that are mostly predicted: for each number of operations of short and long shapes,
/// with and without a fetch, with none, one or all addresses mispredicted.
#[test]
fn predicted_and_mispredicted_addresses_come_back() {
    println!("seed {SEED:#x}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut encoder = Encoder::new(1 << 20);
    let mut shapes: Vec<_> = (0..80)
        .map(|number| {
            let (pc, fetch, ops) = (64 * number, number % 2 == 0, number as usize / 2 % 20);
            let addresses = match number < 40 {
                true => vec![Address::Said; ops],
                false => addresses(&mut random, ops),
            };
            let rows = Rows::from(&shape(pc, fetch, &addresses));
            let (metas, addrs) = (rows.metas.clone(), vec![random.next_u64() >> 16; ops]);
            (encoder.shape(rows), pc, metas, addresses, addrs, 8 * (number % 40))
        })
        .collect();
    let (mut expected, mut carry) = (Vec::new(), 0);
    for _ in 0..few(40_000) {
        let (shape, pc, metas, addresses, addrs, step) =
            &mut shapes[random.next_u64() as usize % 80];
        let ops = addrs.len();
        addrs.iter_mut().for_each(|addr| *addr += *step);
        match random.next_u64() % 8 {
            0 => addrs.iter_mut().for_each(|addr| *addr = random.next_u64()),
            1..4 if ops > 0 => addrs[random.next_u64() as usize % ops] ^= random.next_u64() >> 40,
            _ => {}
        }
        *addrs = followed(*pc, addresses, std::mem::take(addrs));
        match random.next_u64() % 2 {
            0 => encoder.execute(*shape, addrs).unwrap(),
            _ => encoder.execute(*shape, &said(addresses, addrs)).unwrap(),
        }
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

/// A body with the same streams, each stored uncompressed, so that forging reaches their contents.
fn uncompressed(body: &[u8]) -> Vec<u8> {
    let mut streams: [Vec<u8>; STREAMS] = Default::default();
    let head = Head::open(body, &mut Decompressor::new().unwrap(), &mut streams).unwrap();
    let streams: Vec<&Vec<u8>> = head.streams().map(|index| &streams[index]).collect();
    let mut out = body[..44 + if head.translations == 0 { 0 } else { 4 }].to_vec();
    for stream in &streams {
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
        let body = chunk_with(&mut random, 1 + round % 150, round % 3 != 0, round % 2 == 0);
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

/// If only the shapes of executions are replaced, a shape may come before its first execution or
/// have more or fewer operations than expected.
#[test]
fn executions_of_other_shapes_are_refused_or_read() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    let (mut refused, mut read) = (0, 0);
    for round in 0..few(40) {
        let body = uncompressed(&chunk(&mut random, few(1200).min(60), round % 2 == 0));
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

/// Chunks with one single-byte error each, of kinds that random changes rarely hit.
#[test]
fn counts_that_do_not_fit_together_are_refused() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let body = uncompressed(&chunk_with(&mut random, few(2000).min(100), true, true));
    assert!(decode(&body).is_ok());
    for field in (16..44 + 4 + 8 * 8).step_by(4) {
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

/// A recorder's words, processed in pieces of any length, give the executions that they stand for,
/// with the batcher and with the encoder. Blocks have up to six operations, are fixed or tagged,
/// fetched or not, and continue as before, jump, or are unusual. In half of them some addresses are
/// derived from others and have no words; a block may have many more rows than words.
#[test]
fn words_are_the_executions_that_they_stand_for() {
    println!("seed {SEED:#x}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let (mut plain, mut batcher, mut encoder) =
        (Batcher::new(), Batcher::new(), Encoder::new(1 << 20));
    let mut blocks = Vec::new();
    for number in 0..57u64 {
        let (ops, fixed, fetch) = (number as usize % 7, number % 14 < 7, number % 28 < 14);
        let addresses = match number {
            56 => vec![Address::BehindStart(32); 50],
            28.. => addresses(&mut random, ops),
            _ => vec![Address::Said; ops],
        };
        let (fixed, fetch) = (fixed || number == 56, fetch || number == 56);
        let shape = shape(0x1000 + 64 * number, fetch, &addresses);
        let tags: Vec<u16> =
            (0..said(&addresses, &vec![0; addresses.len()]).len() as u16).collect();
        let ids = (plain.shape(&shape), batcher.shape(&shape), encoder.shape(Rows::from(&shape)));
        batcher.usual(number as usize, ids.1, &tags);
        encoder.usual(number as usize, ids.2, &tags);
        let addrs = vec![random.next_u64() >> 20; tags.len()];
        blocks.push((fixed, ids, tags, addrs, shape.pc, addresses));
    }
    let (mut words, mut taken) = (Vec::new(), 0);
    let rounds = few(20_000);
    for round in 1..=rounds {
        let number = random.next_u64() as usize % blocks.len();
        let (fixed, ids, tags, addrs, pc, addresses) = &mut blocks[number];
        let moved = if random.next_u64().is_multiple_of(8) { random.next_u64() >> 20 } else { 8 };
        // Canonical: bits 48 to 63 equal bit 47.
        addrs
            .iter_mut()
            .for_each(|addr| *addr = ((addr.wrapping_add(moved) << 16) as i64 >> 16) as u64);
        let mut words_of = addrs.iter();
        let all = addresses.iter().map(|address| match address {
            Address::Said => *words_of.next().unwrap(),
            _ => 0,
        });
        plain.execute(ids.0, &followed(*pc, addresses, all.collect())).unwrap();
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

/// Addresses that differ from what their shape derives are refused, and so are shapes that derive
/// an address from none.
#[test]
fn addresses_that_do_not_follow_are_refused() {
    let addresses =
        [Address::Said, Address::Behind { op: 0, distance: 8 }, Address::BehindStart(1)];
    let shape = shape(64, true, &addresses);
    let mut encoder = Encoder::new(100);
    let id = encoder.shape(Rows::from(&shape));
    for addrs in [&[8, 16, 65][..], &[8], &[9, 17, 65]] {
        encoder.execute(id, addrs).unwrap();
    }
    for addrs in [&[8, 17, 65][..], &[8, 16, 64], &[8, 16], &[]] {
        assert!(encoder.execute(id, addrs).is_err(), "{addrs:?}");
    }
    for (index, op) in [(0, 0), (1, 1), (2, 1), (2, 7)] {
        let mut wrong = shape.clone();
        wrong.ops[index].address = Address::Behind { op, distance: 8 };
        assert!(wrong.check().is_err(), "operation {index} behind {op}");
    }
}
