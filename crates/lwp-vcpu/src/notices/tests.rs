//! Tests of bursts, of pauses, and of who waits for writes.

use super::*;
use crate::config::{Plan, Sampled, Sampling};

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

#[test]
fn somebody_waits_for_all_notices_until_the_end() {
    let mut board = Board::reaching(Some(Way::Protection));
    board.note_pause();
    board.end();
    assert!(board.new_waiting().is_none(), "there is nothing to wait for");
    let means = || Means::Protection(Protection::default());
    let first = board.add(means(), Unasked::default()).expect("descriptors");
    let waiting = board.new_waiting().expect("somebody is to wait");
    let second = board.add(means(), Unasked::default()).expect("descriptors");
    assert!(board.new_waiting().is_none() && first.key != second.key);
    assert_eq!(waiting.all().len(), 2);
    assert_eq!(waiting.with_key(second.key).map(|it| it.key), Some(second.key));
    drop(first);
    assert_eq!(waiting.all().iter().map(|it| it.key).collect::<Vec<_>>(), [second.key]);
    board.note_pause();
    assert_eq!(waiting.writes.wait(Some(Duration::from_secs(60))), [PAUSED]);
    board.end();
    assert!(waiting.writes.wait(Some(Duration::from_secs(60))).contains(&END));
}

#[test]
fn only_a_program_that_is_known_from_its_beginning_is_guarded_against_itself_alone() {
    let config = |guards| {
        let mut config = Config::launch("test".into(), Vec::new(), Plan::Exact);
        config.trials.guards = guards;
        config
    };
    let user = Some(Way::Userfault(Reach::UserMode));
    assert_eq!(way(&config(Guards::Off)), None);
    assert_eq!(way(&config(Guards::UserMode)), user);
    assert_eq!(way(&config(Guards::Protection)), Some(Way::Protection));
    assert!(user.is_some_and(Way::looks_at_calls) && Way::Protection.looks_at_calls());
    let mut sampling = config(Guards::Protection);
    sampling.sampling.events = vec![Sampling { what: Sampled::Instructions, interval: 100 }];
    assert_eq!(way(&sampling), None);
    let mut attached = config(Guards::UserMode);
    attached.target = Target::Attach { pid: 1 };
    assert_eq!(way(&attached), None);
}
