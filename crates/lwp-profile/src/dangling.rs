//! References of a recording to something that it does not have.

use crate::forest::{Forest, FrameSamples};
use crate::recording::{RecordedSample, Recording};

impl Recording {
    /// Leaves out what refers to something that is missing.
    pub(crate) fn drop_dangling(&mut self, forest: Option<&mut Forest>) {
        let mut dropped = 0;
        for thread in self.threads.values_mut() {
            let before = thread.blocks.len() + thread.partial.len();
            thread.blocks.retain(|count| self.blocks.contains_key(&count.block));
            thread.partial.retain(|(block, ..)| self.blocks.contains_key(block));
            dropped += before - thread.blocks.len() - thread.partial.len();
        }
        if dropped > 0 {
            self.lost_counts = true;
            self.warnings.push(format!("{dropped} counts of blocks that are missing are left out"));
        }
        let dropped = match forest {
            Some(forest) => self.drop_apart(forest),
            None => self.drop_samples(),
        };
        if dropped > 0 {
            self.lost_counts = true;
            self.warnings.push(format!(
                "{dropped} samples whose event, stack or thread is missing are left out"
            ));
        }
    }

    /// Drops samples that refer to something that is missing; returns how many.
    fn drop_samples(&mut self) -> u64 {
        let taken = |samples: &[(RecordedSample, u64)]| -> u64 {
            samples.iter().map(|(_, times)| times).sum()
        };
        let before = taken(&self.samples);
        let events = self.events.len();
        let frames = self.frames.len();
        self.samples.retain(|(sample, _)| {
            (sample.event as usize) < events
                && (sample.frame as usize) < frames
                && self.threads.contains_key(&sample.serial)
        });
        before - taken(&self.samples)
    }

    /// Drops samples of `forest` that refer to something that is missing; returns how many.
    fn drop_apart(&self, forest: &mut Forest) -> u64 {
        let len = forest.len();
        let taken = |samples: &[FrameSamples]| -> u64 {
            samples.iter().flat_map(|group| &group.frames).map(|(_, times)| u64::from(*times)).sum()
        };
        let before = taken(&forest.samples);
        for group in &mut forest.samples {
            let known = (group.event as usize) < self.events.len()
                && self.threads.contains_key(&group.serial);
            group.frames.retain(|(frame, _)| known && (*frame as usize) < len);
        }
        forest.samples.retain(|group| !group.frames.is_empty());
        before - taken(&forest.samples)
    }
}
