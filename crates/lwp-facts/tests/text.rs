//! Facts come back from text as they went in, and hostile text is refused by its line.

use lwp_facts::{CallFact, Facts, FunctionFact, Limits, LineFact, ModuleFact, Run, StackFact};
use lwp_profile::{CallKind, Event, Mode};
use proptest::prelude::*;

fn facts() -> Facts {
    let function = |name: &str, own: u64| FunctionFact {
        name: name.into(),
        own: vec![own, own / 2],
        entered: 3,
        inclusive: Some(30 - own / 4),
        ..FunctionFact::default()
    };
    let event = |name: &str| Event { name: name.into(), ..Event::default() };
    Facts {
        run: Run {
            project: "p".into(),
            benchmark: "b".into(),
            started: 1_700_000_000,
            labels: [("machine".to_owned(), "ci-3".to_owned())].into(),
            ..Run::default()
        },
        mode: Mode::Exact,
        events: vec![event("instructions"), event("branches")],
        total: vec![30, 15],
        modules: vec![ModuleFact { name: "m".into(), ..ModuleFact::default() }],
        functions: vec![function("f", 10), function("g", 20)],
        lines: vec![LineFact { function: 1, file: "a.c".into(), line: 7, own: vec![20, 10] }],
        calls: vec![
            CallFact { caller: Some(0), callee: 1, how: CallKind::Direct, count: 3 },
            CallFact { caller: None, callee: 0, how: CallKind::Indirect, count: 1 },
        ],
        stacks: vec![StackFact { frames: vec![0, 1], own: vec![1, 2] }],
    }
}

fn read(text: &str) -> Result<Facts, String> {
    Facts::read(text.as_bytes(), &Limits::default()).map_err(|error| error.to_string())
}

#[test]
fn text_comes_back_as_it_went_in() {
    let facts = facts();
    assert_eq!(read(&facts.write()), Ok(facts));
}

#[test]
fn compressed_text_is_read_too() {
    use std::io::Write;
    let facts = facts();
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(facts.write().as_bytes()).unwrap();
    let packed = out.finish().unwrap();
    assert_eq!(Facts::read(packed.as_slice(), &Limits::default()).unwrap(), facts);
    let cut = Facts::read(&packed[..packed.len() - 9], &Limits::default());
    assert!(cut.is_err());
}

/// Promise: FL2
#[test]
fn every_cut_is_refused() {
    let text = facts().write();
    for at in 0..text.len() {
        assert!(read(&text[..at]).is_err(), "cut at {at}");
    }
}

/// The text with `old` replaced by `new`, and why it is refused.
#[track_caller]
fn refused(old: &str, new: &str) -> String {
    let text = facts().write();
    assert!(text.contains(old), "{old}\n{text}");
    read(&text.replacen(old, new, 1)).expect_err("refused")
}

/// Promise: FL2
#[test]
fn what_cannot_be_is_refused_by_its_line() {
    let is = |error: String, wanted: &str| assert_eq!(error, wanted);
    is(refused("\"facts\":1", "\"facts\":2"), "line 1: facts of version 2, known is 1");
    is(
        refused("\"facts\":1", "\"fact\":1"),
        "line 1: no facts: the first line has no key \"facts\"",
    );
    is(refused("\"project\":\"p\"", "\"project\":7"), "line 1: key \"project\": a text is wanted");
    is(
        refused("\"project\":\"p\"", "\"project\":\"\""),
        "line 1: key \"project\": a text that is not empty is wanted",
    );
    let when =
        "line 1: key \"started\": seconds since 1970, after 1999 and not in the future is wanted";
    is(refused("1700000000", "9000000000"), when);
    is(refused("1700000000", "0"), when);
    is(
        refused("\"module\":0", "\"module\":1"),
        "line 3: key \"module\": the number of an earlier row is wanted",
    );
    is(refused("[10,5]", "[10]"), "line 3: key \"own\": a number for each event is wanted");
    is(refused("[10,5]", "[-10,5]"), "line 3: key \"own\": a number for each event is wanted");
    is(refused("[10,5]", "[11,5]"), "line 9: functions add up to 31 instructions, the total is 30");
    let wanted =
        "line 9: key \"inclusive\": a number of counted instructions from own to total is wanted";
    is(refused("\"inclusive\":28", "\"inclusive\":31"), wanted);
    is(refused("\"inclusive\":28", "\"inclusive\":9"), wanted);
    is(
        refused("\"inclusive\":28", "\"inclusive\":-1"),
        "line 3: key \"inclusive\": a number is wanted",
    );
    is(refused("\"name\":\"g\"", "\"name\":\"f\""), "line 4: a second row for function 'f'");
    is(refused("\"kind\":\"line\"", "\"kind\":\"lime\""), "line 5: unknown kind 'lime'");
    is(
        refused("\"caller\":0", "\"caller\":9"),
        "line 6: key \"caller\": the number of an earlier row is wanted",
    );
    is(
        refused("\"frames\":[0,1]", "\"frames\":[]"),
        "line 8: key \"frames\": a list of functions is wanted",
    );
    is(refused("{\"end\":8}", "{\"end\":7}"), "line 9: \"end\" counts 7 lines, there are 8");
    is(
        refused("{\"end\":8}", "{\"end\":8}\n{}"),
        "line 9: something follows the line with \"end\"",
    );
    is(
        refused("\"name\":\"f\"", &format!("\"name\":\"{}\"", "f".repeat(5000))),
        "line 3: more than 4096 bytes in a name",
    );
    is(refused("{\"end\":8}", "7"), "line 9: no JSON object: another value");
    let deep = "[".repeat(100_000);
    assert!(refused("{\"end\":8}", &deep).starts_with("line 9: no JSON object: recursion limit"));
}

#[test]
fn bombs_are_refused_without_unpacking_them_whole() {
    use std::io::Write;
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        out.write_all(&[b' '; 1 << 20]).unwrap();
    }
    let packed = out.finish().unwrap();
    let error = Facts::read(packed.as_slice(), &Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "line 1: more than 4194304 bytes in a line");
}

#[test]
fn control_characters_do_not_come_through() {
    let mut hostile = facts();
    hostile.functions[0].name = "a\u{1b}[31m\u{202e}".into();
    let back = read(&hostile.write()).unwrap();
    assert_eq!(back.functions[0].name, "a\u{fffd}[31m\u{fffd}");
}

/// Promise: FL1
#[test]
fn content_is_of_what_was_counted_and_of_nothing_else() {
    let (one, mut other) = (facts(), facts());
    other.run.started += 5;
    other.run.commit = "abc".into();
    other.modules[0].build_id = "ff".into();
    // An earlier lwp did not measure it.
    other.functions[0].inclusive = None;
    other.lines[0].file = "/elsewhere/a.c".into();
    assert_eq!(one.content(), other.content());
    assert_ne!(one.id(), other.id());
    let mut labelled = facts();
    labelled.run.labels.clear();
    assert_eq!(one.id(), labelled.id());
    // Functions in another order are the same functions.
    let mut turned = facts();
    turned.functions.reverse();
    turned.lines[0].function = 0;
    turned.calls[0].caller = Some(1);
    turned.calls[0].callee = 0;
    turned.calls[1].callee = 1;
    turned.stacks[0].frames.reverse();
    assert_eq!(one.content(), turned.content());
    for change in [
        (|facts: &mut Facts| facts.functions[0].entered += 1) as fn(&mut Facts),
        |facts| facts.lines[0].line += 1,
        |facts| facts.calls[0].count += 1,
        |facts| facts.calls[0].caller = None,
        |facts| facts.stacks[0].own[0] += 1,
        |facts| facts.total[0] += 1,
        |facts| facts.functions[1].name.push('x'),
    ] {
        let mut changed = facts();
        change(&mut changed);
        assert_ne!(one.content(), changed.content());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Facts::read(bytes.as_slice(), &Limits::default());
    }

    #[test]
    fn a_changed_byte_is_refused_or_other_facts(at in 0_usize..1000, byte in any::<u8>()) {
        let mut text = facts().write().into_bytes();
        let at = at % text.len();
        text[at] = byte;
        if let Ok(read) = Facts::read(text.as_slice(), &Limits::default()) {
            // What is read can be written and read again.
            let again = Facts::read(read.write().as_bytes(), &Limits::default()).unwrap();
            prop_assert_eq!(again, read);
        }
    }
}
