//! Tests of bursts and of pauses.

use super::*;

const ADDRESS: u64 = 0x7000;

fn notices() -> Notices {
    Notices::new(1, Means::Protection(Protection::default()), Unasked::default())
}

/// The page is guarded and written to, so long after the time before.
fn written(page: &mut Page, now: &mut Instant, after: Duration) {
    *now += after;
    page.state = State::Guarded;
    page.note_write(*now);
}

#[test]
fn a_page_that_is_written_often_is_left_alone_ever_longer() {
    let (mut page, mut now) = (Page::NEW, Instant::now());
    let near = CLOSE / 2;
    let mut pauses = Vec::new();
    for _ in 0..12 {
        written(&mut page, &mut now, CLOSE);
        for _ in 1..BURST {
            written(&mut page, &mut now, near);
            assert_eq!(page.state, State::Open);
        }
        written(&mut page, &mut now, near);
        let State::Left(Some(until)) = page.state else { panic!("{page:?}") };
        pauses.push(until - now);
    }
    let doubled = |count: u32| FIRST_PAUSE * (1 << count.min(MOST_DOUBLINGS));
    assert_eq!(pauses, (0..12).map(doubled).collect::<Vec<_>>());
    // A write while it is left alone is none that counts.
    page.note_write(now);
    assert!(matches!(page.state, State::Left(_)));
    // One that has been quiet for long is as at the beginning.
    written(&mut page, &mut now, CALM);
    (0..BURST).for_each(|_| written(&mut page, &mut now, near));
    assert_eq!(page.state, State::Left(Some(now + FIRST_PAUSE)));
}

#[test]
fn pages_are_guarded_again_when_their_pause_is_over() {
    let notices = notices();
    let now = Instant::now();
    let states = [
        (ADDRESS, State::Left(Some(now))),
        (ADDRESS + PAGE, State::Left(Some(now + CALM))),
        (ADDRESS + 2 * PAGE, State::Left(None)),
        (ADDRESS + 3 * PAGE, State::Guarded),
    ];
    let pages = states.map(|(at, state)| (at, Page { state, ..Page::NEW }));
    notices.pages().extend(pages);
    assert!(notices.pauses());
    assert_eq!(notices.pauses_over(), [ADDRESS]);
    assert_eq!(notices.pauses_over(), []);
    let mapping = (ADDRESS, ADDRESS + 4 * PAGE);
    let guards = |page: u64| notices.guard((page, page + 1), mapping);
    // Those of a mapping that is gone are forgotten, with their pauses.
    assert!(!guards(ADDRESS + 2 * PAGE));
    notices.forget(mapping);
    assert!(!notices.pauses() && notices.pages().is_empty());
}

fn mapping(pages: std::ops::Range<u64>, write: bool) -> Mapping {
    let perms = if write { "rwxp" } else { "r-xp" };
    let line = format!("{:x}-{:x} {perms} 00000000 00:00 0 ", pages.start << 12, pages.end << 12);
    maps::parse(&line).expect("a mapping")
}

#[test]
fn mappings_are_shown_as_the_program_has_set_them() {
    let own = mapping(9..12, false);
    let mappings = [mapping(1..3, true), mapping(3..4, false), mapping(4..5, true), own.clone()];
    assert_eq!(with_pages(&mappings, &[0x3000]), [mapping(1..5, true), own.clone()]);
    let first = [mapping(1..2, false), mapping(2..9, true), own.clone()];
    assert_eq!(with_pages(&first, &[0x1000]), [mapping(1..9, true), own]);
    // The kernel has joined it with what the program has protected itself.
    let joined = [mapping(1..5, true), mapping(5..9, false)];
    assert_eq!(with_pages(&joined, &[0x5000, 0x6000]), [mapping(1..7, true), mapping(7..9, false)]);
}
