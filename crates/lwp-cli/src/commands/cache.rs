//! `lwp cache`: the translations kept from run to run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lwp_terminal::escape::printable;
use lwp_vcpu::store::{Item, Store};
use lwp_vcpu::{Config, Plan, Target, Warm};
use rustc_hash::FxHashMap;

use super::print;
use crate::args::CacheCommand;
use crate::builds;
use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};
use crate::program;

pub mod travel;

/// Carries out one of the cache's commands.
pub fn execute(command: &CacheCommand) -> Result<Ending, Failure> {
    let store = open()?;
    let builds = builds::Store::of_user(false);
    // Runs that have just ended may still be writing.
    store.settle();
    match command {
        CacheCommand::List => print(&(list(&items(&store)?) + &list_of_builds(builds.as_ref())?))?,
        CacheCommand::Verify => return verify(&store),
        CacheCommand::Export(args) => return travel::export(&store, args),
        CacheCommand::Import(args) => return travel::import(&store, args),
        CacheCommand::Prune => {
            let more = builds.map_or(Ok((0, 0)), |builds| builds.prune()).map_err(failed)?;
            removed(store.prune().map_err(failed)?, more)?;
        }
        CacheCommand::Clear => {
            let more = builds.map_or(Ok((0, 0)), |builds| builds.clear()).map_err(failed)?;
            removed(store.clear().map_err(failed)?, more)?;
        }
        CacheCommand::Warm { files, functions, from } => {
            let what = from.as_deref().map(executed_in).transpose()?;
            let what = what.or_else(|| functions.then_some(Warm::Functions));
            // One program maps them for all, since it does not matter where they are mapped.
            let mut libraries = match what {
                None => profiled_libraries(&items(&store)?),
                Some(_) => String::new(),
            };
            for file in files {
                warm(file, &libraries, what.as_ref())?;
                libraries.clear();
            }
        }
    }
    Ok(Ending::SUCCESS)
}

fn open() -> Result<Store, Failure> {
    let help = "set XDG_CACHE_HOME to a directory of your own; runs work without a cache";
    let config = crate::args::cache(None).ok_or_else(|| {
        let cause = "there is no directory for a cache: neither XDG_CACHE_HOME nor HOME is set";
        Failure::new(OWN_FAILURE, cause).with_help(help)
    })?;
    Store::open(&config.place, config.limit)
        .map_err(|error| Failure::new(OWN_FAILURE, error.to_string()).with_help(help))
}

fn failed(error: std::io::Error) -> Failure {
    Failure::io("the cache", &error)
}

fn items(store: &Store) -> Result<Vec<Item>, Failure> {
    store.items().map_err(failed)
}

/// One line for each kept translation, last used first, and a sum.
fn list(items: &[Item]) -> String {
    let mut text = String::new();
    for item in items {
        let age = SystemTime::now().duration_since(item.used).unwrap_or_default();
        let _ = write!(text, "{:>9}  {:>5}", size(item.bytes), ago(age.as_secs()));
        let _ = match &item.header {
            Ok(header) if header.is_profile() => writeln!(
                text,
                "  {:>7} blocks of {} (how often they were executed)",
                header.fragments,
                printable(&header.path)
            ),
            Ok(header) => writeln!(
                text,
                "  {:>7} fragments, {:.1}x  at {:#014x}  {}",
                header.fragments,
                header.code_bytes.1 as f64 / header.code_bytes.0.max(1) as f64,
                header.address,
                printable(&header.path)
            ),
            Err(fault) => writeln!(text, "  {fault}: {}", item.name.to_string_lossy()),
        };
    }
    let bytes = items.iter().map(|item| item.bytes).sum();
    let _ = write!(text, "{:>9}  in {} files", size(bytes), items.len());
    let code: u64 =
        items.iter().filter_map(|item| Some(item.header.as_ref().ok()?.code_bytes.1)).sum();
    if code > 0 {
        let _ = write!(text, ", {:.2} times the code in them", bytes as f64 / code as f64);
    }
    text.push('\n');
    text
}

/// Checks every file; the exit code is 1 if one was faulty.
fn verify(store: &Store) -> Result<Ending, Failure> {
    let items = items(store)?;
    let mut text = String::new();
    let mut faulty = 0;
    for item in &items {
        if let Err(fault) = store.verify(item) {
            faulty += 1;
            let name = item.name.to_string_lossy();
            let what = item.header.as_ref().map_or(&*name, |header| &header.path);
            let _ = writeln!(text, "{}: {fault}; removed", printable(what));
        }
    }
    let _ = writeln!(text, "{} files, {faulty} faulty", items.len());
    print(&text)?;
    Ok(Ending::Code(u8::from(faulty > 0)))
}

/// Has the dynamic linker map `file` and its libraries, and translates them, with counters and
/// without.
fn warm(file: &Path, libraries: &str, what: Option<&Warm>) -> Result<(), Failure> {
    let command = [file.as_os_str().to_owned()];
    let Target::Launch { program, .. } = program::launch(&command)? else { return Ok(()) };
    let text = program.display().to_string();
    let refused = |why: &str| {
        Failure::new(OWN_FAILURE, format!("{text}: {why}"))
            .with_help("run it once; lwp then keeps its translations")
    };
    let bytes = std::fs::read(&program).map_err(|error| Failure::io(&text, &error))?;
    let mode = std::fs::metadata(&program).map_err(|error| Failure::io(&text, &error))?.mode();
    // Only this linker is known to stop before the program's own code.
    match program::interpreter(&bytes) {
        Some(linker) if linker.contains("/ld-linux") && mode & 0o6000 == 0 => {}
        _ => return Err(refused("not an ordinary program that glibc's dynamic linker loads")),
    }
    // As the kernel names the file in the memory map.
    let mapped = program.canonicalize().map_err(|error| Failure::io(&text, &error))?;
    let what = what.cloned().unwrap_or(Warm::Known(mapped));
    const SCRIPT: &str = "LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=\"$1\" exec \"$0\" >/dev/null 2>&1";
    let words =
        ["sh".into(), "-c".into(), SCRIPT.into(), program.into_os_string(), libraries.into()];
    for plan in [Plan::Exact, Plan::Plain] {
        let target = Target::Launch { program: "/bin/sh".into(), argv: words.to_vec() };
        let mut config = Config::launch(PathBuf::new(), Vec::new(), plan);
        config.target = target;
        config.kept.cache = crate::args::cache(None);
        config.kept.warm = Some(what.clone());
        lwp_vcpu::run(&config, None)?;
    }
    Ok(())
}

/// Libraries that there are execution profiles of, as the dynamic linker takes them: programs load
/// many of them only while they run, so that their linker does not name those.
fn profiled_libraries(items: &[Item]) -> String {
    const MOST: usize = 256;
    let headers = items.iter().filter_map(|item| item.header.as_ref().ok());
    let profiles = headers.filter(|header| header.is_profile());
    let paths = profiles.map(|header| &*header.path).filter(|path| is_library(path));
    paths.take(MOST).collect::<Vec<_>>().join(":")
}

/// Returns whether the dynamic linker can be asked to load the file at `path` as a library.
fn is_library(path: &str) -> bool {
    const MOST_HEADERS: u64 = 64 << 10;
    let nameable = path.starts_with('/') && !path.contains([':', ' ', '$']);
    // An ordinary file of ours has been executed there before: no pipe, and no device.
    if !nameable || !std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return false;
    }
    let mut head = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MOST_HEADERS).read_to_end(&mut head));
    let name = path.rsplit('/').next().unwrap_or_default();
    read.is_ok()
        && head.starts_with(b"\x7fELF\x02")
        && program::interpreter(&head).is_none()
        && !name.starts_with("ld-linux")
}

/// Returns the code that an exact recording has executed, by file, most executed first.
fn executed_in(recording: &Path) -> Result<Warm, Failure> {
    let recorded = crate::profiles::read(recording)?;
    let mut runs: FxHashMap<u32, u64> = FxHashMap::default();
    for count in recorded.threads.values().flat_map(|thread| &thread.blocks) {
        *runs.entry(count.block).or_default() += count.runs;
    }
    let mut blocks: Vec<_> = recorded
        .blocks
        .values()
        .filter_map(|block| Some((*runs.get(&block.id)?, block)))
        .filter(|(runs, _)| *runs > 0)
        .collect();
    blocks.sort_by_key(|(runs, block)| (std::cmp::Reverse(*runs), block.id));
    let mut files: BTreeMap<PathBuf, Vec<u64>> = BTreeMap::new();
    for (_, block) in blocks {
        if let Some(module) = recorded.modules.get(&block.module).filter(|it| !it.is_anonymous()) {
            let offsets = files.entry(PathBuf::from(&module.path)).or_default();
            offsets.push(module.offset_of(block.address));
        }
    }
    if files.is_empty() {
        let why = format!("{}: it says nothing of executed code", recording.display());
        return Err(Failure::new(OWN_FAILURE, why)
            .with_help("an exact recording is wanted: lwp record -- PROGRAM"));
    }
    Ok(Warm::Executed(files.into_iter().collect()))
}

fn removed(units: (usize, u64), builds: (usize, u64)) -> Result<(), Failure> {
    let (files, bytes) = (units.0 + builds.0, units.1 + builds.1);
    print(&format!("{files} files removed, {}\n", size(bytes)))
}

/// A sum of what is kept of programs and libraries themselves.
fn list_of_builds(store: Option<&builds::Store>) -> Result<String, Failure> {
    let items = store.map_or(Ok(Vec::new()), builds::Store::items).map_err(failed)?;
    let bytes = items.iter().map(|(_, bytes, _)| bytes).sum();
    Ok(format!(
        "{:>9}  in {} programs, libraries and their debug information\n",
        size(bytes),
        items.len()
    ))
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let step = (bytes.max(1).ilog2() / 10).min(3);
    let whole = bytes >> (10 * step);
    let tenth = if step == 0 { 0 } else { (bytes >> (10 * (step - 1))) % 1024 * 10 / 1024 };
    match step {
        0 => format!("{whole} B"),
        _ => format!("{whole}.{tenth} {}", UNITS[step as usize]),
    }
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..600 => "now".into(),
        600..7200 => format!("{} m", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_short() {
        let sizes = [0, 1023, 1024, 1536, 22_498_332, 3 << 30].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "21.4 MiB", "3.0 GiB"]);
        assert_eq!([0, 600, 7200, 200_000].map(ago), ["now", "10 m", "2 h", "2 d"]);
    }
}
