//! Frames that have not returned, on the stacks that a thread has used.

/// Bytes between two frames of one stack, at most. Stacks further apart are two.
pub const REACH: u64 = 1 << 26;

/// Most stacks that are kept beside the one in use.
const MOST_STACKS: usize = 1 << 16;

/// Most frames of a stack. A program has no room for so many, unless it lies about its stack.
const MOST_FRAMES: usize = 1 << 24;

/// A context that has been entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The context.
    pub context: u32,
    /// That which a return leads to; `None` if none is known of.
    pub within: Option<u32>,
}

/// A function that has been entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where its return address lies.
    pub stack: u64,
    /// Its caller.
    pub caller: Place,
    /// True if it is that of a signal's handler, which the call that ends it leaves, with this stack
    /// pointer. Within it there is one for the handler's own return, to what makes that call.
    pub handler: bool,
}

impl Frame {
    /// Returns whether the stack pointer may be `stack` while this frame is the innermost one.
    fn reaches(&self, stack: u64) -> bool {
        self.stack >= stack && self.stack - stack < REACH
    }
}

/// A stack, and where the thread is on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The frames that will return, the innermost last.
    pub frames: Vec<Frame>,
    /// Where the thread is.
    pub present: Place,
}

impl Stack {
    /// A function has been entered.
    pub fn push(&mut self, frame: Frame) {
        if self.frames.len() < MOST_FRAMES {
            self.frames.push(frame);
        }
    }

    /// A signal's handler has been entered: `stack` is where its return address lies, which leads to
    /// `ends`, and from there back to where the thread is.
    pub fn interrupt(&mut self, stack: u64, ends: Place) {
        self.push(Frame { stack: stack.wrapping_add(8), caller: self.present, handler: true });
        self.push(Frame { stack, caller: ends, handler: false });
    }

    /// The contexts that handlers will return to that have not returned.
    pub fn awaited(&self) -> impl Iterator<Item = u32> {
        awaited(&self.frames)
    }

    /// Leaves the frames from `index` on. Handlers that are left without a return are added to
    /// `unreturned`, by what they would have returned to.
    fn leave(&mut self, index: usize, unreturned: &mut Vec<u32>) {
        if let Some(outermost) = self.frames.get(index) {
            unreturned.extend(awaited(&self.frames[index.saturating_sub(1)..]));
            self.present = outermost.caller;
            self.frames.truncate(index);
        }
    }

    /// Returns whether a stack pointer tells that all frames are gone: it is not far above the
    /// outermost one.
    fn is_left_at(&self, stack: u64) -> bool {
        let outermost = self.frames.first().map_or(0, |frame| frame.stack);
        stack > outermost && stack - outermost <= REACH
    }
}

/// The contexts that handlers will return to whose frames these are.
fn awaited(frames: &[Frame]) -> impl Iterator<Item = u32> {
    let pairs = frames.array_windows();
    let waits = |[handler, own]: &&[Frame; 2]| {
        handler.handler && own.stack.wrapping_add(8) == handler.stack
    };
    pairs.filter(waits).map(|[_, own]| own.caller.context)
}

/// The stacks of a thread.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    /// The stack in use.
    pub current: Stack,
    /// Stacks that the thread has left and may come back to.
    others: Vec<Stack>,
    unreturned: Vec<u32>,
}

impl Stacks {
    /// One stack, in a context that is never returned from.
    pub fn new(context: u32) -> Self {
        let present = Place { context, within: None };
        let current = Stack { frames: Vec::new(), present };
        Self { current, ..Self::default() }
    }

    /// The places of all frames, those of stacks that are not in use too.
    pub fn places(&mut self) -> impl Iterator<Item = &mut Place> {
        let stacks = self.others.iter_mut().chain([&mut self.current]);
        stacks.flat_map(|stack| {
            let callers = stack.frames.iter_mut().map(|frame| &mut frame.caller);
            callers.chain([&mut stack.present])
        })
    }

    /// Stacks that are not in use.
    pub fn others(&self) -> &[Stack] {
        &self.others
    }

    /// The contexts that handlers would have returned to that have been left in another way.
    pub fn take_unreturned(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unreturned)
    }

    /// A return takes its address from `stack`: leaves the frames within the one that is returned
    /// from. Returns false if no frame is known whose return address lies there.
    pub fn return_from(&mut self, stack: u64) -> bool {
        let is_it = |frame: &Frame| frame.stack == stack && !frame.handler;
        if let Some(index) = self.current.frames.iter().rposition(is_it) {
            self.current.leave(index + 1, &mut self.unreturned);
            return true;
        }
        self.resume(is_it)
    }

    /// The innermost signal's handler is about to end, and everything that it has entered has: the
    /// stack pointer is `stack`. Returns false if there is none.
    pub fn return_from_handler(&mut self, stack: u64) -> bool {
        let frames = &self.current.frames;
        let Some(index) = frames.iter().rposition(|frame| frame.handler) else { return false };
        self.current.leave(index + 1, &mut self.unreturned);
        self.current.frames[index].stack = stack;
        true
    }

    /// The stack pointer is `stack`: leaves the frames that this tells are gone, or this stack for
    /// another one.
    pub fn settle(&mut self, stack: u64) {
        let reaches = |frame: &Frame| frame.reaches(stack);
        let Some(top) = self.current.frames.last() else {
            self.resume(reaches);
            return;
        };
        if reaches(top) || self.resume(reaches) {
            return;
        }
        if let Some(index) = self.current.frames.iter().rposition(reaches) {
            return self.current.leave(index + 1, &mut self.unreturned);
        }
        if self.current.is_left_at(stack) {
            return self.current.leave(0, &mut self.unreturned);
        }
        let begun = Stack { frames: Vec::new(), present: self.current.present };
        self.leave_for(begun);
    }

    /// Goes on with the stack left last whose innermost frame is `wanted`. Returns false if there is
    /// none.
    fn resume(&mut self, wanted: impl Fn(&Frame) -> bool) -> bool {
        let is_wanted = |stack: &Stack| stack.frames.last().is_some_and(&wanted);
        let Some(index) = self.others.iter().rposition(is_wanted) else { return false };
        let resumed = self.others.swap_remove(index);
        self.leave_for(resumed);
        true
    }

    fn leave_for(&mut self, stack: Stack) {
        let left = std::mem::replace(&mut self.current, stack);
        if self.others.len() < MOST_STACKS {
            self.others.push(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(context: u32) -> Place {
        Place { context, within: None }
    }

    /// Frames whose return addresses lie there, of contexts 1 and up. That at 0x8000 is a handler's.
    fn frames(stacks: &[u64]) -> Stacks {
        let mut all = Stacks::new(0);
        for (context, &stack) in (1..).zip(stacks) {
            let caller = all.current.present;
            all.current.push(Frame { stack, caller, handler: stack == 0x8000 });
            all.current.present = place(context);
        }
        all
    }

    fn present(all: &Stacks) -> u32 {
        all.current.present.context
    }

    #[test]
    fn a_return_leaves_the_frames_within() {
        let mut all = frames(&[0x9000, 0x7f00, 0x7000]);
        assert!(all.return_from(0x7f00));
        assert_eq!(present(&all), 2);
        assert!(!all.return_from(0x6000));
        assert!(!all.return_from(0xa000));
        assert!(all.return_from(0x9000));
        assert_eq!((present(&all), all.current.frames.len()), (1, 1));
    }

    #[test]
    fn frames_below_the_stack_pointer_are_gone() {
        let mut all = frames(&[0x9000, 0x8800, 0x7000]);
        all.settle(0x6f00);
        assert_eq!(present(&all), 3);
        all.settle(0x8000);
        assert_eq!(present(&all), 2);
        all.settle(0x9800);
        assert_eq!((present(&all), all.current.frames.len()), (0, 0));
    }

    #[test]
    fn stacks_are_gone_back_to() {
        const OTHER: u64 = 0x7f00_0000_0000;
        let mut all = frames(&[0x9000, 0x7800]);
        all.settle(OTHER);
        // What called the new stack stands for it until something is called there.
        assert_eq!((present(&all), all.current.frames.len()), (2, 0));
        all.current.push(Frame { stack: OTHER - 0x100, caller: place(2), handler: false });
        all.current.present = place(7);
        all.settle(0x7700);
        assert_eq!(present(&all), 2);
        all.settle(OTHER - 0x180);
        assert_eq!(present(&all), 7);
        // By a return to where it was left.
        assert!(all.return_from(0x7800));
        assert_eq!(present(&all), 2);
        assert!(all.return_from(OTHER - 0x100));
        assert_eq!(present(&all), 7);
        assert_eq!(all.places().count(), 5);
    }

    #[test]
    fn a_handler_is_left_with_all_that_it_entered() {
        let mut all = frames(&[0x9000, 0x8000, 0x7000]);
        assert!(!all.return_from(0x8000));
        assert!(all.return_from_handler(0x8008));
        assert_eq!(present(&all), 2);
        assert_eq!(all.current.frames[1].stack, 0x8008);
        assert!(!all.return_from(0x8008));
        all.current.leave(1, &mut Vec::new());
        assert!(!all.return_from_handler(0x8008));
    }

    #[test]
    fn handlers_that_do_not_return_are_known() {
        let mut all = frames(&[0x9000]);
        all.current.interrupt(0x7000, place(5));
        all.current.interrupt(0x6000, place(6));
        assert_eq!(all.current.awaited().collect::<Vec<_>>(), [5, 6]);
        // The inner one returns, and ends.
        assert!(all.return_from(0x6000));
        all.current.frames.truncate(4);
        assert_eq!(all.current.awaited().collect::<Vec<_>>(), [5]);
        assert!(all.return_from_handler(0x6008));
        all.current.frames.truncate(3);
        assert_eq!(all.take_unreturned(), []);
        // The outer one is left.
        all.settle(0x8000);
        assert_eq!((present(&all), all.take_unreturned()), (1, vec![5]));
    }

    #[test]
    fn a_program_may_do_anything_with_its_stack() {
        use proptest::prelude::*;
        let word = || prop_oneof![Just(0u64), Just(u64::MAX), Just(0x9000), any::<u64>()];
        let steps = prop::collection::vec((0..4, word()), 0..200);
        let mut runner = proptest::test_runner::TestRunner::default();
        runner
            .run(&steps, |steps| {
                let mut all = Stacks::new(0);
                for (step, stack) in steps {
                    match step {
                        0 => all.settle(stack),
                        1 => drop(all.return_from(stack)),
                        2 => drop(all.return_from_handler(stack)),
                        _ => {
                            let caller = all.current.present;
                            let handler = stack & 1 == 1;
                            all.current.push(Frame { stack, caller, handler });
                        }
                    }
                }
                prop_assert!(all.places().all(|it| it.context == 0));
                Ok(())
            })
            .unwrap();
    }
}
