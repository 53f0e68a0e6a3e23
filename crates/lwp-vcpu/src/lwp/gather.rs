//! Memory that a thread copies with a sample: the steps of an interpreter's reader
//! ([`lwp_languages::gather`]), as routines follow them.

use lwp_dbt::context::gather::{MOST_STEPS, Op};
use lwp_languages::gather::{Fact, Label, Step, Steps, Value};
use lwp_mailbox::contexts::Context;

/// The memory that is read of a thread's interpreter, as steps, and the facts of the functions that
/// its stack has.
#[derive(Clone, Debug)]
pub struct Gather {
    /// The steps.
    pub steps: Steps,
    /// The facts.
    pub facts: Vec<Fact>,
}

/// Lets a thread copy `gather` with each sample that it keeps, or nothing. Returns whether it can.
pub(super) fn publish(context: Context<'_>, gather: Option<&Gather>) -> bool {
    let words = context.gather();
    words.enable(false);
    let Some(gather) = gather else { return true };
    let Some(encoded) = encode(&gather.steps) else { return false };
    if !words.has_steps(&encoded) {
        words.forget_facts();
        words.set_steps(&encoded);
    }
    gather.facts.iter().for_each(|fact| words.add_fact(fact));
    words.enable(true);
    true
}

/// The steps as they lie in a context; `None` where there are too many.
fn encode(steps: &Steps) -> Option<Vec<[u64; 2]>> {
    let all = steps.all();
    let encoded = all.iter().enumerate().map(|(at, step)| encode_step(steps, at, step));
    (all.len() <= MOST_STEPS).then(|| encoded.collect())
}

fn encode_step(steps: &Steps, at: usize, step: &Step) -> [u64; 2] {
    let to = |label: Label| (steps.index(label) as i64 - at as i64) as i32;
    match *step {
        Step::Ask => words(Op::Ask, [0; 3], 0, 0),
        Step::End => words(Op::End, [0; 3], 0, 0),
        Step::Word(a, b, offset) => words(Op::Word, [a, b, 0], offset, 0),
        Step::Half(a, b, offset) => words(Op::Half, [a, b, 0], offset, 0),
        Step::Byte(a, b, offset) => words(Op::Byte, [a, b, 0], offset, 0),
        Step::Copy(b, offset, bytes) => words(Op::Copy, [0, b, 0], offset, bytes),
        Step::Text(b) => words(Op::Text, [0, b, 0], 0, 0),
        Step::Set(a, number) => words(Op::Set, [a, 0, 0], 0, number),
        Step::Add(a, b, offset) => words(Op::Add, [a, b, 0], offset, 0),
        Step::Index(a, b, c, size) => words(Op::Index, [a, b, c], 0, size),
        Step::And(a, b, bits) => words(Op::And, [a, b, 0], 0, bits),
        Step::IfEqual(b, number, label) => words(Op::IfEqual, [0, b, 0], to(label), number),
        Step::IfLess(b, number, label) => words(Op::IfLess, [0, b, 0], to(label), number),
        Step::Jump(label) => words(Op::Jump, [0; 3], to(label), 0),
        Step::Know => words(Op::Know, [0; 3], 0, 0),
    }
}

fn words(op: Op, [a, b, c]: [Value; 3], offset: i32, number: u64) -> [u64; 2] {
    let numbers = u32::from_le_bytes([op as u8, a, b, c]);
    [u64::from(numbers) | u64::from(offset.cast_unsigned()) << 32, number]
}

/// Takes what a thread has copied apart: address and bytes of each piece, as far as they lie within
/// it. The program may have written there.
pub(super) fn pieces(mut gathered: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut pieces = Vec::new();
    while let Some((head, rest)) = gathered.split_first_chunk::<16>() {
        let [address, length] =
            [0, 8].map(|at| head[at..at + 8].try_into().map_or(0, u64::from_le_bytes));
        let Some((bytes, behind)) =
            usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length))
        else {
            break;
        };
        pieces.push((address, bytes.to_vec()));
        gathered = behind;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use lwp_dbt::context::gather::{FACT_VALUE, FACT_WORDS};
    use lwp_languages::gather::FACT;

    use super::*;

    #[test]
    fn facts_stand_in_the_values_that_routines_compare() {
        assert_eq!(FACT.len(), FACT_WORDS);
        assert!(FACT.into_iter().eq(FACT_VALUE..FACT_VALUE + FACT_WORDS as Value));
    }

    #[test]
    fn steps_lead_to_others_by_their_distance() {
        let mut steps = Steps::default();
        let end = steps.label();
        let each = steps.here();
        steps.add([Step::IfEqual(3, 7, end), Step::Add(3, 4, -1), Step::Jump(each)]);
        steps.place(end);
        steps.add([Step::End]);
        let encoded = encode(&steps).expect("few steps");
        assert_eq!(encoded[0], [11 | 3 << 16 | 3 << 32, 7]);
        assert_eq!(encoded[1], [8 | 3 << 8 | 4 << 16 | 0xffff_ffff << 32, 0]);
        assert_eq!(encoded[2], [13 | 0xffff_fffe << 32, 0]);
        assert_eq!(encoded[3], [1, 0]);
        steps.add(vec![Step::Ask; MOST_STEPS]);
        assert!(encode(&steps).is_none());
    }

    #[test]
    fn pieces_end_where_their_bytes_do() {
        let words = |words: &[u64]| words.iter().flat_map(|it| it.to_le_bytes()).collect();
        let all: Vec<u8> = words(&[0x1000, 8, 5, 0x2000, 16, 6, 7]);
        let of_words = |it: &[u64]| words(it);
        assert_eq!(pieces(&all), [(0x1000, of_words(&[5])), (0x2000, of_words(&[6, 7]))]);
        assert_eq!(pieces(&all[..all.len() - 8]), [(0x1000, of_words(&[5]))]);
        assert_eq!(pieces(&of_words(&[0x1000, u64::MAX, 5])), []);
        assert_eq!(pieces(&of_words(&[0x1000])), []);
    }
}
