//! Contexts are put into the order of a tree.

use crate::profile::{Context, FunctionId};
use crate::tree::Shape;

/// The contexts in the order of [`Shape`], and the final number of each. A caller comes before what
/// it calls; the first context is outside all functions.
pub fn arranged(functions: Vec<FunctionId>, callers: Vec<u32>) -> (Shape, Vec<u32>) {
    let count = functions.len();
    let mut sizes = vec![1u32; count];
    for number in (1..count).rev() {
        sizes[callers[number] as usize] += sizes[number];
    }
    let places = places(&functions, &callers, &sizes);
    // Lists go as soon as nobody needs them: there may be tens of millions of contexts.
    let mut ends = vec![0; count];
    for (place, size) in places.iter().zip(&sizes) {
        ends[*place as usize] = place + size;
    }
    drop(sizes);
    let mut in_place = vec![FunctionId(0); count];
    for (place, function) in places.iter().zip(&functions) {
        in_place[*place as usize] = *function;
    }
    drop(functions);
    let mut called_by = vec![0; count];
    for (place, caller) in places.iter().zip(&callers) {
        called_by[*place as usize] = places[*caller as usize];
    }
    (Shape { functions: in_place, callers: called_by, ends }, places)
}

/// The final number of each context: `sizes` are the numbers of contexts below each, with itself.
fn places(functions: &[FunctionId], callers: &[u32], sizes: &[u32]) -> Vec<u32> {
    let count = functions.len();
    // The first of each context's callees in the list of all.
    let mut firsts = vec![0u32; count + 1];
    for caller in callers.iter().skip(1) {
        firsts[*caller as usize + 1] += 1;
    }
    for number in 0..count {
        firsts[number + 1] += firsts[number];
    }
    let mut callees = vec![0u32; count - 1];
    for number in (1..count).rev() {
        // From the end of each list, which its start reaches when it is full.
        let end = &mut firsts[callers[number] as usize + 1];
        *end -= 1;
        callees[*end as usize] = number as u32;
    }
    // The start of a list now stands at the place of its end, and ends where the next starts.
    let start = |number: usize| firsts[number + 1] as usize;
    let end = |number: usize| firsts.get(number + 2).map_or(count - 1, |end| *end as usize);
    let mut places = vec![0u32; count];
    for number in 0..count {
        let callees = &mut callees[start(number)..end(number)];
        callees.sort_unstable_by_key(|callee| functions[*callee as usize]);
        let mut next = places[number] + 1;
        for callee in callees {
            places[*callee as usize] = next;
            next += sizes[*callee as usize];
        }
    }
    places
}

/// Measured contexts, each behind its caller and before whatever the caller did not call, and those
/// of one caller in order. Callers come before what they call.
pub fn contexts(contexts: &[Context]) -> Vec<Context> {
    let caller = |context: &Context| context.caller.map_or(0, |caller| caller as usize + 1);
    let mut order: Vec<u32> = (0..contexts.len() as u32).collect();
    order.sort_unstable_by_key(|number| {
        let context = &contexts[*number as usize];
        let Context { thread, function, site, kind, .. } = *context;
        (caller(context), thread, function, site, kind)
    });
    // What is called from each: from its start in the order up to the start of the next one's.
    let mut starts = vec![0usize; contexts.len() + 2];
    contexts.iter().for_each(|context| starts[caller(context) + 1] += 1);
    for number in 0..=contexts.len() {
        starts[number + 1] += starts[number];
    }
    let called = |place: usize| order[starts[place]..starts[place + 1]].iter().rev();
    let mut arranged: Vec<Context> = Vec::with_capacity(contexts.len());
    let mut waiting: Vec<(u32, Option<u32>)> = called(0).map(|number| (*number, None)).collect();
    while let Some((number, caller)) = waiting.pop() {
        let new = arranged.len() as u32;
        arranged.push(Context { caller, ..contexts[number as usize] });
        waiting.extend(called(number as usize + 1).map(|inner| (*inner, Some(new))));
    }
    arranged
}
