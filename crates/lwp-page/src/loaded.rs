//! A recording on disk becomes a subject.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lwp_profile::{Course, Forest, ReadError, RecordedFile, Recording};
use lwp_report::annotate::Sources;
use lwp_symbols::{Options, Origins, read_source};

use crate::behind::{Behind, From};
use crate::selection::Selection;
use crate::subject::{Material, Subject, facts, lanes};

/// Names that stand for others.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    /// A source file whose name starts with the first of a pair is looked for below the second.
    pub sources: Vec<(String, PathBuf)>,
    /// A module that the first of a pair is the path of, or the end of it, is compared with that of
    /// the second.
    pub modules: Vec<(String, String)>,
}

/// Reads the recording in `file`, which `path` is the name of. Names are looked for as `options`
/// say. The recording is also given to `say`, without stacks.
///
/// # Errors
///
/// If the file is no recording, or cannot be read again: the order of samples is read by itself.
pub fn load(
    (path, file): (&Path, File),
    options: &Options,
    maps: Maps,
    say: impl FnOnce(&Recording),
) -> Result<Subject, ReadError> {
    let (recording, stacks) = read(file)?;
    say(&recording);
    let options = Options { whole_functions: Some(u64::MAX), ..options.clone() };
    let mut notes = Vec::new();
    for image in recording.images.values() {
        if let Some(reason) = &image.uncounted {
            notes.push(format!("{}-{} was not counted: {reason}", image.comm, image.pid));
        }
    }
    let mut sources = SourceFiles::new(maps.sources, &recording.files);
    sources.origins = Origins::new(&recording, &options.debug_roots);
    let mut material = Material {
        name: path.display().to_string(),
        facts: facts(&recording),
        modules: maps.modules,
        ..Material::default()
    };
    if recording.events.is_empty() {
        let resolved = lwp_symbols::profile(&recording, &options);
        notes.splice(0..0, resolved.warnings);
        material.profile = resolved.profile;
        material.behind = Some(Behind::Memory(Arc::new(recording), options));
    } else {
        let warnings = set_samples(&mut material, stacks, recording, options)?;
        notes.splice(0..0, warnings);
    }
    material.notes = notes;
    sources.origins.learn(&material.profile);
    material.sources = Mutex::new(Some(Box::new(sources)));
    let subject = Subject::new(material);
    // What the first page shows of a large recording takes longer than a page should.
    subject.pick(&Selection::default()).tree(&subject);
    Ok(subject)
}

/// Stacks of a recording.
enum Stacks {
    /// Apart from it, and the file that they can be read from again.
    Apart(Forest, Arc<File>),
    /// In it: what came through a pipe cannot be read twice.
    Within,
}

/// Reads a recording. Stacks stay in it only if the file cannot be read twice.
fn read(file: File) -> Result<(Recording, Stacks), ReadError> {
    let unreadable = |error: std::io::Error| ReadError::Unreadable(error.to_string());
    if !file.metadata().map_err(unreadable)?.is_file() {
        let reader = BufReader::with_capacity(1 << 20, file);
        return Ok((Recording::read(reader)?, Stacks::Within));
    }
    let file = Arc::new(file);
    let reader = BufReader::with_capacity(1 << 20, From::start(&file));
    let (recording, forest) = Recording::read_apart(reader)?;
    Ok((recording, Stacks::Apart(forest, file)))
}

/// Finds samples and their order. Returns remarks on what is missing.
fn set_samples(
    material: &mut Material,
    stacks: Stacks,
    recording: Recording,
    options: Options,
) -> Result<Vec<String>, ReadError> {
    let (forest, file) = match stacks {
        Stacks::Apart(forest, file) => (forest, Some(file)),
        Stacks::Within => (Forest::of(&recording), None),
    };
    let mut found = lwp_symbols::samples(&recording, forest, &options).finish();
    material.profile = std::mem::take(&mut found.resolved.profile);
    material.samples = Some(std::mem::take(&mut found.samples));
    if let Some(file) = file {
        let reader = BufReader::with_capacity(1 << 20, From::start(&file));
        material.lanes = lanes(Course::read(reader)?, &recording, &found);
        material.behind = Some(Behind::File(file, options));
    } else {
        material.behind = Some(Behind::Memory(Arc::new(recording), options));
    }
    Ok(found.resolved.warnings)
}

/// Lines of a file, shared with whoever shows them.
type Lines = Option<Arc<[String]>>;

/// Source files, of the recording or of this machine, each read once.
#[derive(Debug)]
struct SourceFiles {
    maps: Vec<(String, PathBuf)>,
    kept: HashMap<String, Vec<u8>>,
    lines: HashMap<String, Lines>,
    /// The builds that the files are of.
    origins: Origins,
    /// Remarks on files that are of no build.
    doubts: HashMap<String, String>,
}

impl SourceFiles {
    fn new(maps: Vec<(String, PathBuf)>, files: &[RecordedFile]) -> Self {
        // Programs and libraries are kept too.
        let texts = files.iter().filter(|file| !file.bytes.starts_with(b"\x7fELF"));
        let kept = texts.map(|file| (file.path.clone(), file.bytes.clone())).collect();
        let (origins, doubts) = (Origins::default(), HashMap::new());
        Self { maps, kept, lines: HashMap::new(), origins, doubts }
    }

    fn read(&mut self, name: &str) -> Option<Vec<u8>> {
        if let Some(bytes) = self.kept.get(name) {
            return Some(bytes.clone());
        }
        let mapped = self.maps.iter().filter_map(|(prefix, path)| {
            let rest = name.strip_prefix(prefix.as_str())?;
            Some(path.join(rest.trim_start_matches('/')))
        });
        let readable = |path: PathBuf| Some((read_source(&path).ok()?, path));
        let (bytes, path) = mapped.chain([PathBuf::from(name)]).find_map(readable)?;
        if let Some(doubt) = self.origins.doubt(name, &path, &bytes) {
            self.doubts.insert(name.to_owned(), doubt);
        }
        Some(bytes)
    }
}

impl Sources for SourceFiles {
    fn line(&mut self, file: &str, line: u32) -> Option<String> {
        if !self.lines.contains_key(file) {
            let text = self.read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let lines = text.map(|text| text.lines().map(str::to_owned).collect());
            self.lines.insert(file.to_owned(), lines);
        }
        let lines = self.lines.get(file)?.as_ref()?;
        lines.get((line as usize).checked_sub(1)?).cloned()
    }

    fn doubt(&mut self, file: &str) -> Option<String> {
        self.doubts.get(file).cloned()
    }
}
