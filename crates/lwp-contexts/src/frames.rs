//! Frames that have not returned, on the stacks that a thread has used.

/// The base of a stack, which is not left by a return that is known of.
const BASE: u64 = u64::MAX;

/// Bytes between two frames of one stack, at most. Stacks further apart are two.
const REACH: u64 = 64 << 20;

/// Most frames of a stack. A program has no room for so many, unless it lies about its stack.
const MOST_FRAMES: usize = 1 << 24;

/// Most stacks that are kept beside the one in use.
const MOST_STACKS: usize = 1 << 16;

/// A function that has been entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Where its return address lies.
    pub stack: u64,
    /// Its context.
    pub context: u32,
    /// True if it is that of a signal's handler.
    pub handler: bool,
}

impl Frame {
    /// What a stack begins with.
    fn base(context: u32) -> Self {
        Self { stack: BASE, context, handler: false }
    }

    /// Returns whether the stack pointer may be `stack` while this frame is the innermost one.
    fn reaches(self, stack: u64) -> bool {
        self.stack >= stack && self.stack - stack <= REACH
    }
}

/// The frames of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    /// Those of the stack in use, the innermost last. There is always one.
    frames: Vec<Frame>,
    /// Stacks that the thread has left and may come back to.
    others: Vec<Vec<Frame>>,
}

impl Frames {
    /// One stack, on which `context` is never returned from.
    pub fn new(context: u32) -> Self {
        Self { frames: vec![Frame::base(context)], others: Vec::new() }
    }

    /// The innermost frame.
    pub fn top(&self) -> Frame {
        self.frames[self.frames.len() - 1]
    }

    /// The frames of the stack in use, the outermost first.
    pub fn all(&self) -> &[Frame] {
        &self.frames
    }

    /// The contexts of all frames, those of stacks that are not in use too.
    pub fn contexts(&self) -> impl Iterator<Item = u32> + '_ {
        self.others.iter().chain([&self.frames]).flatten().map(|frame| frame.context)
    }

    /// Contexts have other numbers now.
    pub fn renumber(&mut self, number: impl Fn(u32) -> u32) {
        let stacks = self.others.iter_mut().chain([&mut self.frames]);
        stacks.flatten().for_each(|frame| frame.context = number(frame.context));
    }

    /// A function has been entered.
    pub fn push(&mut self, frame: Frame) {
        if self.frames.len() < MOST_FRAMES {
            self.frames.push(frame);
        }
    }

    /// The innermost frame is of another context now.
    pub fn replace(&mut self, context: u32) {
        let last = self.frames.len() - 1;
        self.frames[last].context = context;
    }

    /// Leaves the frames within that at `index`.
    pub fn leave_to(&mut self, index: usize) {
        self.frames.truncate(index + 1);
    }

    /// Leaves all frames whose return addresses lie at `stack` or below.
    fn leave_through(&mut self, stack: u64) {
        while self.frames.len() > 1 && self.top().stack <= stack {
            self.frames.pop();
        }
    }

    /// A return takes its address from `stack`. Returns false if no frame is known whose return
    /// address lies there.
    pub fn returned(&mut self, stack: u64) -> bool {
        if self.top().stack != stack {
            let is_here = self.frames.iter().rev().any(|frame| frame.stack == stack);
            if !is_here && !self.resume(|top| top.stack == stack) {
                return false;
            }
        }
        self.leave_through(stack);
        true
    }

    /// The stack pointer is `stack`: leaves the frames that this tells are gone, or this stack for
    /// another one.
    pub fn settle(&mut self, stack: u64) {
        let top = self.top();
        if top.reaches(stack) || self.resume(|top| top.reaches(stack)) {
            return;
        }
        let within = |frame: &Frame| frame.reaches(stack);
        if let Some(index) = self.frames.iter().rposition(within) {
            return self.leave_to(index);
        }
        if top.stack == BASE {
            return;
        }
        if self.frames[0].stack == BASE && self.is_beyond(stack) {
            return self.leave_to(0);
        }
        let base = vec![Frame::base(top.context)];
        let left = std::mem::replace(&mut self.frames, base);
        if self.others.len() < MOST_STACKS {
            self.others.push(left);
        }
    }

    /// Returns whether `stack` is not far above the outermost frame that returns.
    fn is_beyond(&self, stack: u64) -> bool {
        let outermost = self.frames.get(1).map_or(0, |frame| frame.stack);
        stack > outermost && stack - outermost <= REACH
    }

    /// Goes on with the stack left last whose innermost frame is `wanted`. Returns false if there is
    /// none.
    fn resume(&mut self, wanted: impl Fn(Frame) -> bool) -> bool {
        let is_wanted = |stack: &Vec<Frame>| stack.last().is_some_and(|top| wanted(*top));
        let Some(index) = self.others.iter().rposition(is_wanted) else { return false };
        let resumed = self.others.swap_remove(index);
        let left = std::mem::replace(&mut self.frames, resumed);
        self.others.push(left);
        true
    }

    /// The innermost signal's handler is over, and everything that it has entered.
    pub fn leave_handler(&mut self) {
        if let Some(index) = self.frames.iter().rposition(|frame| frame.handler) {
            self.frames.truncate(index.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(stacks: &[u64]) -> Frames {
        let mut frames = Frames::new(0);
        for (context, &stack) in (1..).zip(stacks) {
            frames.push(Frame { stack, context, handler: stack == 0x8000 });
        }
        frames
    }

    #[test]
    fn a_return_leaves_the_frame_and_those_within() {
        let mut all = frames(&[0x9000, 0x8000, 0x8000, 0x7000]);
        assert!(all.returned(0x7000));
        assert_eq!(all.top().context, 3);
        assert!(all.returned(0x8000));
        assert_eq!(all.top().context, 1);
        assert!(!all.returned(0x6000));
        assert!(!all.returned(0xa000));
        assert!(all.returned(0x9000));
        assert_eq!(all.top().context, 0);
        assert!(!all.returned(0x9000));
    }

    #[test]
    fn frames_below_the_stack_pointer_are_gone() {
        let mut all = frames(&[0x9000, 0x8000, 0x7000]);
        all.settle(0x6f00);
        assert_eq!(all.top().context, 3);
        all.settle(0x8800);
        assert_eq!(all.top().context, 1);
        all.settle(0x9800);
        assert_eq!(all.top().context, 0);
    }

    #[test]
    fn stacks_are_gone_back_to() {
        const OTHER: u64 = 0x7f00_0000_0000;
        let mut all = frames(&[0x9000, 0x8000]);
        all.settle(OTHER);
        // What called the new stack stands for it until something is called there.
        assert_eq!(all.top(), Frame::base(2));
        all.push(Frame { stack: OTHER - 0x100, context: 7, handler: false });
        all.settle(0x7f80);
        assert_eq!(all.top().context, 2);
        all.settle(OTHER - 0x180);
        assert_eq!(all.top().context, 7);
        // By a return to where it was left.
        assert!(all.returned(0x8000));
        assert_eq!(all.top().context, 1);
        assert!(all.returned(OTHER - 0x100));
        assert_eq!(all.top(), Frame::base(2));
    }

    #[test]
    fn a_handler_is_left_with_all_that_it_entered() {
        let mut all = frames(&[0x9000, 0x8000, 0x7000]);
        all.leave_handler();
        assert_eq!(all.top().context, 1);
        all.leave_handler();
        assert_eq!(all.top().context, 1);
    }
}
