//! Two recordings side by side: what diff, gate and flame graphs with a baseline have in common.

use std::path::Path;

use clap::Args;
use lwp_profile::diff::Matched;
use lwp_profile::{Difference, Mode, Profile};
use lwp_report::escape::printable;
use lwp_symbols::ModulePair;

use crate::args::usage_error;
use crate::compilers;
use crate::failure::{Failure, OWN_FAILURE};
use crate::profiles::{self, NameArgs};

/// Pairs of files to compare with each other.
#[derive(Args, Clone, Debug, Default)]
pub struct MapArgs {
    /// Compare the program or library OLD of the older recording with NEW; each is a path or the
    /// end of one
    #[arg(long = "map", value_name = "OLD=NEW")]
    pub maps: Vec<String>,
}

impl MapArgs {
    /// The pairs that were asked for.
    pub fn pairs(&self) -> Result<Vec<ModulePair>, Failure> {
        let pair = |text: &String| {
            let (old, new) =
                text.split_once('=').filter(|(a, b)| !a.is_empty() && !b.is_empty())?;
            Some((old.to_owned(), new.to_owned()))
        };
        let pairs = self.maps.iter().map(|text| {
            pair(text).ok_or_else(|| {
                usage_error(format!("'{text}' names no two files"), "write --map OLD=NEW")
            })
        });
        pairs.collect()
    }

    /// Finds what is the same in two profiles.
    pub fn matched(&self, before: &Profile, after: &Profile) -> Result<Matched, Failure> {
        let pairs = self.pairs()?;
        for (old, new) in &pairs {
            for (profile, name) in [(before, old), (after, new)] {
                if !lwp_symbols::has_module(profile, name) {
                    let known: Vec<&str> =
                        profile.modules.iter().map(lwp_profile::Module::name).collect();
                    let cause = format!("--map {old}={new}: nothing called '{name}' was recorded");
                    return Err(usage_error(cause, format!("there are: {}", known.join(", "))));
                }
            }
        }
        Ok(lwp_symbols::matched(before, after, &pairs))
    }
}

/// Opens a recording that is to be compared. Renamed functions are known by their code: that of
/// samples is wanted as a whole.
pub fn open(path: &Path, names: &NameArgs) -> Result<Profile, Failure> {
    let recording = profiles::read(path)?;
    names.check(&recording)?;
    Ok(profiles::resolve_whole(path, &recording, names))
}

/// Says on standard error why two profiles can hardly be compared.
pub fn warn(before: &Profile, after: &Profile) {
    for difference in Difference::between(before, after) {
        lwp_terminal::say!("lwp: these are different runs: {}", printable(&difference.to_string()));
    }
    if let Some(difference) = compilers::difference(before, after) {
        lwp_terminal::say!("lwp: {difference}");
    }
    let random = |it: &Profile| it.mode == Mode::Exact && it.info("deterministic") == "false";
    if random(before) && random(after) && before.total() != after.total() {
        lwp_terminal::say!(
            "lwp: neither recording is deterministic: random numbers, time and environment may \
             have changed counts too; `lwp record --deterministic` keeps them the same"
        );
    }
}

/// Fails where two profiles differ in something that is not in `allowed`.
pub fn refuse(before: &Profile, after: &Profile, allowed: &[String]) -> Result<(), Failure> {
    if let Some(unknown) = allowed.iter().find(|it| !Difference::NAMES.contains(&it.as_str())) {
        let known = Difference::NAMES.join(", ");
        return Err(usage_error(
            format!("--allow-different: '{unknown}' is no difference that is looked for"),
            format!("there are: {known}"),
        ));
    }
    let mut left = Difference::between(before, after);
    left.retain(|difference| !allowed.iter().any(|allowed| allowed == difference.name()));
    if left.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = left.iter().map(Difference::name).collect();
    let causes: Vec<String> =
        left.iter().map(|difference| printable(&difference.to_string())).collect();
    Err(Failure::new(
        OWN_FAILURE,
        format!("baseline and recording cannot be compared: {}", causes.join("; ")),
    )
    .with_help(format!(
        "record the baseline anew in the same way, or compare all the same: --allow-different {}",
        names.join(",")
    )))
}
