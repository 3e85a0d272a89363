//! What is encoded is decoded again, and blocks that lie are refused.
use super::*;
use crate::{Block, BlockKind, Malformed, RawBlock};

fn read_all(block: &RawBlock) -> Result<Vec<Event>, Malformed> {
    let Block::Events(mut events) = block.decode()? else { return Err(Malformed::Kind) };
    let mut list = Vec::new();
    while let Some(event) = events.read()? {
        list.push(event);
    }
    Ok(list)
}

#[test]
fn every_kind_of_event_comes_back_in_its_place() {
    let mut encoder = EventEncoder::new();
    encoder.image(1);
    encoder.thread(3);
    assert_eq!(encoder.alloc(7), 0);
    assert_eq!(encoder.alloc(0x1234_5678), 1);
    encoder.time(250_000);
    encoder.time(299_999);
    encoder.free(0);
    encoder.unknown_free();
    encoder.thread(3);
    encoder.thread(4);
    encoder.free_by_realloc(1);
    assert_eq!(encoder.alloc(0xfeff), 2);
    encoder.free_implied(2);
    encoder.image(2);
    assert_eq!(
        read_all(&encoder.take()),
        Ok(vec![
            Event::Image(1),
            Event::Thread(3),
            Event::Alloc { sequence: 0, alloc_class: 7 },
            Event::Alloc { sequence: 1, alloc_class: 0x1234_5678 },
            Event::Time(200_000),
            Event::Free { sequence: 0, how: Freed::Call },
            Event::UnknownFree,
            Event::Thread(4),
            Event::Free { sequence: 1, how: Freed::Realloc },
            Event::Alloc { sequence: 2, alloc_class: 0xfeff },
            Event::Free { sequence: 2, how: Freed::Implied },
            Event::Image(2),
        ])
    );
    assert!(encoder.is_empty());
}

#[test]
fn a_block_knows_the_state_it_starts_in() -> Result<(), Malformed> {
    let mut encoder = EventEncoder::new();
    encoder.thread(9);
    encoder.image(2);
    encoder.time(1_000_000);
    encoder.alloc(1);
    encoder.alloc(2);
    encoder.free(1);
    encoder.take();
    encoder.free(0);
    encoder.alloc(3);
    let block = encoder.take();
    let Block::Events(events) = block.decode()? else { return Err(Malformed::Kind) };
    assert_eq!(
        (events.first_sequence(), events.thread(), events.image(), events.time_ns(), events.count()),
        (2, 9, 2, 1_000_000, 2)
    );
    assert_eq!(
        read_all(&block)?,
        [Event::Free { sequence: 0, how: Freed::Call }, Event::Alloc { sequence: 2, alloc_class: 3 }]
    );
    Ok(())
}

#[test]
fn runs_of_every_length_around_the_escape_come_back() {
    for length in [1, 14, 15, 16, 142, 143, 144, 1000] {
        let mut encoder = EventEncoder::new();
        let mut expected = Vec::new();
        for sequence in 0..length {
            encoder.alloc(5);
            expected.push(Event::Alloc { sequence, alloc_class: 5 });
        }
        for sequence in (0..length).rev() {
            encoder.free(sequence);
            expected.push(Event::Free { sequence, how: Freed::Call });
        }
        assert_eq!(read_all(&encoder.take()), Ok(expected));
    }
}

#[test]
fn a_block_without_events_is_no_problem() {
    let mut encoder = EventEncoder::new();
    assert!(encoder.is_empty());
    assert_eq!(read_all(&encoder.take()), Ok(vec![]));
}

#[test]
fn a_turn_beyond_the_count_is_refused() {
    // head, count 1, columns of 1 1 1 0 0 0 0 bytes; the turn claims two allocations
    let payload = vec![0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0x02, 0, 0];
    assert_eq!(read_all(&RawBlock { kind: BlockKind::Events, payload }), Err(Malformed::Count));
}
