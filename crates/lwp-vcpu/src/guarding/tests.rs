//! Tests of who waits for writes.

use std::time::Duration;

use lwp_run::config::{Plan, Sampled, Sampling};

use super::*;

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
