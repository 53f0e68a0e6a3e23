//! Processes that were not counted: a verdict on them would be one on nothing.

use std::path::Path;

use lwp_profile::{Image, Recording};

use crate::failure::{Failure, OWN_FAILURE};

/// Advice for a recording in which processes were not counted.
const HELP: &str =
    "remove the reason and record again; `lwp doctor` shows what this machine allows";

/// Fails if no process of the recording at `path` was counted.
pub fn refuse_uncounted(path: &Path, recording: &Recording) -> Result<(), Failure> {
    if !recording.is_uncounted() {
        return Ok(());
    }
    let reasons: Vec<String> = uncounted(recording).map(words).collect();
    let cause = format!("{}: there is nothing to compare: {}", path.display(), reasons.join("; "));
    Err(Failure::new(OWN_FAILURE, cause).with_help(HELP))
}

/// Fails if a process was not counted whose program was counted in the baseline.
pub fn refuse_fewer(before: &Recording, after: &Recording) -> Result<(), Failure> {
    let known = |image: &&Image| uncounted(before).any(|other| other.comm == image.comm);
    let Some(image) = uncounted(after).find(|image| !known(image)) else { return Ok(()) };
    let cause = format!("baseline and recording cannot be compared: {}", words(image));
    Err(Failure::new(OWN_FAILURE, cause).with_help(HELP))
}

fn uncounted(recording: &Recording) -> impl Iterator<Item = &Image> {
    recording.images.values().filter(|image| image.uncounted.is_some())
}

fn words(image: &Image) -> String {
    let reason = image.uncounted.as_deref().unwrap_or_default();
    format!("{} was not counted: {reason}", image.comm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(images: &[(&str, bool)]) -> Recording {
        let image = |(id, &(comm, counted)): (usize, &(&str, bool))| {
            let uncounted = (!counted).then(|| "no memory".to_owned());
            let id = id as u32;
            (id, Image { id, comm: comm.into(), uncounted, ..Image::default() })
        };
        let images = images.iter().enumerate().map(image).collect();
        Recording { images, ..Recording::default() }
    }

    #[test]
    fn what_was_not_counted_is_not_compared() {
        let path = Path::new("lwp.data");
        let nothing = recording(&[("sh", false), ("work", false)]);
        let refused = refuse_uncounted(path, &nothing).expect_err("nothing was counted");
        let cause = "lwp.data: there is nothing to compare: sh was not counted: no memory; \
                     work was not counted: no memory";
        assert_eq!(refused, Failure::new(OWN_FAILURE, cause).with_help(HELP));
        let (whole, part) =
            (recording(&[("sh", true), ("sudo", true)]), [("sh", true), ("sudo", false)]);
        let part = recording(&part);
        for counted in [&whole, &part, &Recording::default()] {
            assert!(refuse_uncounted(path, counted).is_ok());
        }
        assert!(refuse_fewer(&whole, &part).is_err());
        for (before, after) in [(&part, &part), (&part, &whole), (&whole, &whole)] {
            assert!(refuse_fewer(before, after).is_ok());
        }
    }
}
