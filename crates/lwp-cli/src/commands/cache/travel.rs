//! `lwp cache export` and `lwp cache import`: kept translations for other machines.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use lwp_terminal::escape::printable;
use lwp_vcpu::store::{ArchiveError, Fate, Header, Reader, Reason, Store};
use wildmatch::WildMatch;

use super::size;
use crate::commands::print;
use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};
use crate::profiles;

/// `lwp cache export`.
#[derive(Args, Clone, Debug)]
pub struct CacheExportArgs {
    /// The archive; - is standard output
    pub file: PathBuf,

    /// The files whose translations are written.
    #[command(flatten)]
    pub modules: ModuleArgs,

    /// Write only what was used so long ago or less, to within ten minutes: 90m, 12h, 30d
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub since: Option<Duration>,
}

/// `lwp cache import`.
#[derive(Args, Clone, Debug)]
pub struct CacheImportArgs {
    /// An archive of `lwp cache export`; - is standard input
    pub file: PathBuf,

    /// The files whose translations are taken.
    #[command(flatten)]
    pub modules: ModuleArgs,

    /// Take also what belongs to programs and libraries that are not here yet
    #[arg(long)]
    pub all: bool,
}

/// A choice of programs and libraries.
#[derive(Args, Clone, Debug, Default)]
pub struct ModuleArgs {
    /// Only this program or library: its path, or the end of it behind a slash, with * and ?; may be
    /// given more than once
    #[arg(long = "module", value_name = "NAME")]
    names: Vec<String>,

    /// Only execution profiles: numbers and no code, which can do no harm. `lwp cache warm`
    /// translates by them
    #[arg(long)]
    profiles: bool,
}

impl ModuleArgs {
    fn wants(&self, header: &Header) -> bool {
        self.has(&header.path) && (!self.profiles || header.is_profile())
    }

    fn has(&self, path: &str) -> bool {
        let matches = |name: &String| {
            WildMatch::new(name).matches(path) || WildMatch::new(&format!("*/{name}")).matches(path)
        };
        self.names.is_empty() || self.names.iter().any(matches)
    }
}

/// Writes the archive.
pub fn export(store: &Store, args: &CacheExportArgs) -> Result<Ending, Failure> {
    let failed = |error: io::Error| Failure::io(args.file.display(), &error);
    let oldest = args.since.and_then(|age| SystemTime::now().checked_sub(age));
    let to = BufWriter::new(profiles::create(&args.file)?);
    let exported = store
        .export(to, &|item, header| {
            args.modules.wants(header) && oldest.is_none_or(|oldest| item.used >= oldest)
        })
        .map_err(failed)?;
    lwp_terminal::say!("lwp: wrote {} files, {}", exported.entries, size(exported.bytes));
    if exported.old > 0 {
        lwp_terminal::say!("lwp: left out {} of other versions of lwp", exported.old);
    }
    Ok(Ending::SUCCESS)
}

/// The outcome of an import, in numbers and lines.
#[derive(Default)]
struct Outcome {
    taken: (usize, u64),
    known: usize,
    left: usize,
    faulty: bool,
    /// By path and reason, how often.
    reasons: BTreeMap<(String, String), usize>,
}

impl Outcome {
    fn note(&mut self, header: &Header, fate: &Fate) {
        match fate {
            Fate::Taken => {
                self.taken.0 += 1;
                self.taken.1 += header.image_bytes();
            }
            Fate::Known => self.known += 1,
            Fate::Left(reason) => {
                self.left += 1;
                self.faulty |= matches!(reason, Reason::Damaged | Reason::NotWritten(_));
                *self.reasons.entry((header.path.clone(), reason.to_string())).or_default() += 1;
            }
            _ => {}
        }
    }

    fn text(&self) -> String {
        let Self { taken: (taken, bytes), known, left, .. } = self;
        let bytes = size(*bytes);
        let mut text = format!("{taken} files taken, {bytes}; {known} known, {left} left\n");
        for ((path, reason), times) in &self.reasons {
            let _ = writeln!(text, "left {times} of {}: {reason}", printable(path));
        }
        text
    }
}

/// Takes what is of use here from the archive.
pub fn import(store: &Store, args: &CacheImportArgs) -> Result<Ending, Failure> {
    let failed = |error: &ArchiveError| {
        Failure::new(OWN_FAILURE, format!("{}: {error}", args.file.display()))
    };
    let from: Box<dyn Read> = match args.file.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(open(&args.file)?),
    };
    let mut archive = Reader::new(BufReader::new(from)).map_err(|error| failed(&error))?;
    // Whoever looks at the store waits until everything is there.
    let _lock = store.lock_shared().map_err(super::failed)?;
    let mut outcome = Outcome::default();
    let wanted = |header: &Header| args.modules.wants(header);
    let end = store.import(&mut archive, args.all, &wanted, &mut |header, fate| {
        outcome.note(header, &fate);
    });
    print(&outcome.text())?;
    store.prune().map_err(super::failed)?;
    end.map_err(|error| failed(&error).with_help("what came before it has been looked at"))?;
    Ok(if outcome.faulty { Ending::Code(1) } else { Ending::SUCCESS })
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| Failure::io(path.display(), &error))
}

/// A time with its unit: seconds, minutes, hours or days.
fn age(text: &str) -> Result<Duration, String> {
    let unit = match text.bytes().last() {
        Some(b's') => 1,
        Some(b'm') => 60,
        Some(b'h') => 3600,
        Some(b'd') => 86_400,
        _ => 0,
    };
    let number = text.get(..text.len().saturating_sub(1)).and_then(|it| it.parse::<u32>().ok());
    match number {
        Some(number) if unit > 0 => Ok(Duration::from_secs(u64::from(number) * unit)),
        _ => Err("a number and s, m, h or d are wanted".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_unit() {
        let seconds = ["30s", "90m", "12h", "7d"].map(|text| age(text).map(|age| age.as_secs()));
        assert_eq!(seconds, [Ok(30), Ok(5400), Ok(43_200), Ok(604_800)]);
        for wrong in ["", "7", "d", "-1d", "7w", "99999999999d", "é"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn modules_are_chosen_by_their_last_names() {
        let chosen = |names: &[&str], path: &str| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            ModuleArgs { names, profiles: false }.has(path)
        };
        assert!(chosen(&[], "/bin/sh"));
        assert!(chosen(&["sh"], "/bin/sh") && !chosen(&["sh"], "/bin/bash"));
        assert!(chosen(&["no", "bin/s?"], "/bin/sh") && chosen(&["/bin/*"], "/bin/sh"));
        assert!(chosen(&["libc.so*"], "/usr/lib/libc.so.6") && !chosen(&["[vdso]"], "/bin/sh"));
        assert!(chosen(&["[vdso]"], "[vdso]"));
    }
}
