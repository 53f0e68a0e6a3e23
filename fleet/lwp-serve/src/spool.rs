//! The spool: recordings on this machine's disk, until the store has them.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lwp_facts::{Facts, Limits};
use tokio::task::JoinSet;

use crate::refusal::Refusal;
use crate::writer::Writer;

/// Recordings that it holds, at most.
const MOST: usize = 10_000;
/// Recordings that are brought at once, at most.
const TOGETHER: usize = 32;
/// Bytes of recordings that are brought at once, about: they are in memory.
const TOGETHER_BYTES: u64 = 64 << 20;
/// The time between two attempts.
const PAUSE: Duration = Duration::from_secs(2);

/// Files in groups that are brought at once.
fn together(files: Vec<PathBuf>) -> Vec<Vec<PathBuf>> {
    let mut groups: Vec<Vec<PathBuf>> = Vec::new();
    let mut bytes = 0_u64;
    for file in files {
        let size = fs::metadata(&file).map_or(0, |about| about.len());
        match groups.last_mut() {
            Some(group)
                if group.len() < TOGETHER && bytes.saturating_add(size) < TOGETHER_BYTES =>
            {
                bytes += size;
                group.push(file);
            }
            _ => {
                bytes = size;
                groups.push(vec![file]);
            }
        }
    }
    groups
}

/// A directory of recordings.
#[derive(Clone, Debug)]
pub struct Spool(PathBuf);

impl Spool {
    /// The spool in a directory, which is made where it is missing.
    pub fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        Ok(Self(directory.to_owned()))
    }

    /// The files of recordings that wait.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "facts"))
            .collect();
        files.sort();
        files
    }

    /// Keeps a recording; when this returns, it is on the disk.
    pub fn keep(&self, facts: &Facts) -> Result<(), Refusal> {
        if self.files().len() >= MOST {
            return Err(Refusal::busy("the spool is full"));
        }
        self.write(facts).map_err(|error| Refusal::failed(&format!("spool: {error}")))
    }

    fn write(&self, facts: &Facts) -> io::Result<()> {
        // The same recording has the same name: sent twice, it is there once.
        let id = facts.id();
        let unfinished = self.0.join(format!("{id}-{}.part", std::process::id()));
        let mut file = File::create(&unfinished)?;
        file.write_all(facts.write().as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, self.0.join(format!("{id}.facts")))?;
        File::open(&self.0)?.sync_all()
    }

    /// Brings recordings to the store, again and again, for ever; some at once, so that they share
    /// commits.
    pub async fn drain(self, writer: Arc<Writer>) {
        loop {
            for files in together(self.files()) {
                let mut bringing = JoinSet::new();
                for file in files {
                    let (spool, writer) = (self.clone(), Arc::clone(&writer));
                    bringing.spawn(async move { spool.bring(&file, &writer).await });
                }
                if !bringing.join_all().await.into_iter().all(|taken| taken) {
                    break;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Brings one recording to the store. Returns whether the store takes any.
    async fn bring(&self, path: &Path, writer: &Writer) -> bool {
        let read = File::open(path).map_err(|error| error.to_string()).and_then(|file| {
            let limits = Limits { line_bytes: 64 << 20, ..Limits::default() };
            Facts::read(BufReader::new(file), &limits).map_err(|error| error.to_string())
        });
        match read {
            Ok(facts) => {
                let is_there = writer.add(facts).await.is_ok();
                is_there && fs::remove_file(path).is_ok()
            }
            Err(error) => {
                // Nobody can do anything with it but the one who looks at it.
                lwp_terminal::say!("lwp-fleet: {}: {error}", path.display());
                let _ = fs::rename(path, path.with_extension("refused"));
                true
            }
        }
    }
}
