//! The assembly programs of `tests/asm`: what their heads say, and what they show when they ran.
//!
//! Each program ends by writing its control block (192 bytes), its ring (4096 bytes) and its log
//! (64 bytes) to standard output. Expectations stand in `#@` lines at its head;
//! `tests/asm/README.md` lists them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{End, Job, Outcome, lwp_binary};

const BLOCK_BYTES: usize = 192;
const RING_BYTES: usize = 4096;
const LOG_BYTES: usize = 64;
const RECORD_BYTES: usize = 32;
/// What a program shows: block, ring and log.
pub const SHOWN_BYTES: usize = BLOCK_BYTES + RING_BYTES + LOG_BYTES;
/// Bit 30 of Flags: records carry time stamps, which differ from one processor to the next.
const TIME_STAMPS: u32 = 1 << 30;

/// One `#@` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The word before the colon.
    pub key: String,
    /// The rest.
    pub value: String,
}

/// An assembly program.
#[derive(Clone, Debug)]
pub struct AsmProgram {
    /// File name without its ending.
    pub name: String,
    source: PathBuf,
    /// What its head says.
    pub expectations: Vec<Expectation>,
}

/// A built program with the addresses of its symbols.
#[derive(Debug)]
pub struct Built {
    /// The file to run.
    pub path: PathBuf,
    symbols: HashMap<String, u64>,
}

/// Folder of the programs.
pub fn asm_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("asm")
}

/// Every program whose name begins with `prefix`, by name.
///
/// # Panics
///
/// If there is none, or a file cannot be read.
pub fn asm_programs(prefix: &str) -> Vec<AsmProgram> {
    let entries = fs::read_dir(asm_dir()).expect("the folder of assembly programs");
    let files = entries.map(|entry| entry.expect("a folder entry").path());
    let sources = files.filter(|path| path.extension().is_some_and(|ending| ending == "s"));
    let mut programs: Vec<AsmProgram> =
        sources.map(AsmProgram::read).filter(|program| program.name.starts_with(prefix)).collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!programs.is_empty(), "no program {prefix}*");
    programs
}

/// What a program showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    block: Vec<u8>,
    ring: Vec<u8>,
    log: Vec<u8>,
}

impl Shown {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (block, rest) = bytes.split_at_checked(BLOCK_BYTES)?;
        let (ring, log) = rest.split_at_checked(RING_BYTES)?;
        let [block, ring, log] = [block, ring, log].map(<[u8]>::to_vec);
        (log.len() == LOG_BYTES).then_some(Self { block, ring, log })
    }

    fn u32(&self, at: usize) -> u32 {
        number(&self.block[at..at + 4]) as u32
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Replaces time stamps by 1, so that only their presence is compared.
pub fn without_time_stamps(stdout: &[u8]) -> Vec<u8> {
    let mut bytes = stdout.to_vec();
    for shown in bytes.chunks_exact_mut(SHOWN_BYTES) {
        if number(&shown[..4]) as u32 & TIME_STAMPS == 0 {
            continue;
        }
        let ring = &mut shown[BLOCK_BYTES..BLOCK_BYTES + RING_BYTES];
        for record in ring.chunks_exact_mut(RECORD_BYTES) {
            let stamp = u64::from(number(&record[24..]) != 0);
            record[24..].copy_from_slice(&stamp.to_le_bytes());
        }
    }
    bytes
}

impl AsmProgram {
    fn read(source: PathBuf) -> Self {
        let name = source.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&source).expect("a readable program");
        let lines = text.lines().filter_map(|line| line.strip_prefix("#@ "));
        let expectations = lines
            .map(|line| {
                let (key, value) =
                    line.split_once(':').unwrap_or_else(|| panic!("{name}: no colon in {line:?}"));
                Expectation { key: key.trim().to_owned(), value: value.trim().to_owned() }
            })
            .collect();
        Self { name, source, expectations }
    }

    /// The first value of a key.
    pub fn value(&self, key: &str) -> Option<&str> {
        let found = self.expectations.iter().find(|expectation| expectation.key == key);
        found.map(|expectation| expectation.value.as_str())
    }

    /// The processor it wants.
    pub fn cpu(&self) -> &str {
        self.value("cpu").unwrap_or("full")
    }

    /// The options it wants, which both processors know.
    pub fn options(&self) -> impl Iterator<Item = &str> {
        self.value("options").unwrap_or("").split_whitespace()
    }

    /// Assembles and links it into `dir`.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn build(&self, dir: &Path) -> Built {
        let path = dir.join(&self.name);
        assemble(&self.source, &path);
        Built { symbols: symbols(&path), path }
    }

    /// Runs it on the reference and returns what is wrong with the outcome, a line each, and the
    /// outcome.
    pub fn check_on_reference(
        &self,
        built: &Built,
        runner: &Path,
        dir: &Path,
    ) -> (String, Outcome) {
        let mut argv: Vec<OsString> = vec![runner.into(), "--cpu".into(), self.cpu().into()];
        argv.extend(self.options().map(OsString::from));
        argv.extend(["--".into(), built.path.clone().into_os_string()]);
        let outcome = run(argv, dir);
        (self.faults(built, &outcome), outcome)
    }

    /// What differs between `outcome` and the head of the program.
    pub fn faults(&self, built: &Built, outcome: &Outcome) -> String {
        let end = match self.value("end") {
            None => End::Code(0),
            Some(text) => match text.split_once(' ') {
                Some(("signal", number)) => End::Signal(number.parse().expect("a signal number")),
                Some(("code", number)) => End::Code(number.parse().expect("an exit code")),
                _ => panic!("{}: end: {text}", self.name),
            },
        };
        let name = &self.name;
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        if outcome.end != end {
            return format!("{name}: ended with {:?}, not {end:?} {stderr}\n", outcome.end);
        }
        if end != End::Code(0) {
            return String::new();
        }
        let Some(shown) = Shown::parse(&outcome.stdout) else {
            return format!("{name}: showed {} bytes {stderr}\n", outcome.stdout.len());
        };
        let expectations = Expected { program: self, built };
        expectations.faults(&shown).iter().map(|fault| format!("{name}: {fault}\n")).collect()
    }
}

/// The head of a program, with its symbols at hand.
struct Expected<'a> {
    program: &'a AsmProgram,
    built: &'a Built,
}

impl Expected<'_> {
    fn faults(&self, shown: &Shown) -> Vec<String> {
        let mut faults = self.record_faults(shown);
        let mut missed = 0;
        for Expectation { key, value } in &self.program.expectations {
            let (what, wanted, found) = match key.as_str() {
                "spec" | "cpu" | "options" | "record" | "end" | "only" => continue,
                "missed" => {
                    missed = self.number(value);
                    continue;
                }
                "head" => ("head", self.number(value), u64::from(shown.u32(16))),
                "tail" => ("tail", self.number(value), u64::from(shown.u32(64))),
                "flags" => ("flags", self.number(value), u64::from(shown.u32(0))),
                "size" => ("size and random", self.number(value), u64::from(shown.u32(4))),
                "counter" => {
                    let (id, counter) = value.split_once('=').expect("counter: ID = NUMBER");
                    let at = 128 + (self.number(id) as usize - 1) * 8 + 4;
                    ("counter", self.number(counter), u64::from(shown.u32(at)))
                }
                "slot" => {
                    let (slot, rest) = value.split_once(' ').expect("slot: NUMBER RECORD");
                    let at = self.number(slot) as usize * RECORD_BYTES;
                    let found = &shown.ring[at..at + RECORD_BYTES];
                    faults.extend(self.compare(rest, found).map(|f| format!("slot {slot}: {f}")));
                    continue;
                }
                "log" => {
                    faults.extend(self.log_fault(value, &shown.log));
                    continue;
                }
                _ => panic!("{}: unknown key {key}", self.program.name),
            };
            if wanted != found {
                faults.push(format!("{what} is {found:#x}, not {wanted:#x}"));
            }
        }
        let found = number(&shown.block[24..32]);
        if found != missed {
            faults.push(format!("{found} records missed, not {missed}"));
        }
        faults
    }

    /// The records between tail and head against the `record` lines.
    fn record_faults(&self, shown: &Shown) -> Vec<String> {
        let size = (shown.u32(4) & 0x0FFF_FFFF) as usize;
        let size = size.min(RING_BYTES) / RECORD_BYTES * RECORD_BYTES;
        if size == 0 {
            return Vec::new();
        }
        let reduce = |at: u32| match at as usize {
            at if at < size => at / RECORD_BYTES * RECORD_BYTES,
            _ => 0,
        };
        let (head, mut at) = (reduce(shown.u32(16)), reduce(shown.u32(64)));
        let mut faults = Vec::new();
        let mut wanted = self.wanted_records().into_iter();
        while at != head {
            let record = &shown.ring[at..at + RECORD_BYTES];
            match wanted.next() {
                Some(text) => {
                    let place = format!("record {text:?} at {at:#x}");
                    faults.extend(self.compare(&text, record).map(|f| format!("{place}: {f}")));
                }
                None => {
                    faults.push(format!("surplus record at {at:#x}: {}", self.describe(record)))
                }
            }
            at = (at + RECORD_BYTES) % size;
        }
        faults.extend(wanted.map(|text| format!("no record {text:?}")));
        faults
    }

    /// The `record` lines, repetitions (`x3` at the end) written out.
    fn wanted_records(&self) -> Vec<String> {
        let all = self.program.expectations.iter();
        let mut records = Vec::new();
        for expectation in all.filter(|expectation| expectation.key == "record") {
            let (text, times) = match expectation.value.rsplit_once(" x") {
                Some((text, times)) => (text, times.parse().expect("a number of times")),
                None => (expectation.value.as_str(), 1),
            };
            records.extend(std::iter::repeat_n(text.to_owned(), times));
        }
        records
    }

    /// What is wrong with a record, if anything.
    fn compare(&self, text: &str, record: &[u8]) -> Option<String> {
        let mut words = text.split_whitespace();
        let id = words.next().expect("a record has an EventId");
        let ip = words.next().expect("a record has an address");
        let mut wanted = [self.number(id), 0, 0, self.number(ip), 0, 0];
        for word in words {
            let (field, value) = word.split_once('=').unwrap_or_else(|| panic!("{text:?}"));
            let place = ["flags", "data1", "", "data2", "core"].iter().position(|f| *f == field);
            let place = place.unwrap_or_else(|| panic!("unknown field in {text:?}"));
            wanted[[1, 2, 3, 4, 5][place]] = self.number(value);
        }
        let found = [
            number(&record[..1]),
            number(&record[2..4]),
            number(&record[4..8]),
            number(&record[8..16]),
            number(&record[16..24]),
            number(&record[1..2]),
        ];
        (wanted != found).then(|| format!("found {}", self.describe(record)))
    }

    fn describe(&self, record: &[u8]) -> String {
        let ip = number(&record[8..16]);
        let below = self.built.symbols.iter().filter(|(_, at)| **at <= ip);
        let near = below.max_by_key(|(name, at)| (**at, std::cmp::Reverse((*name).clone())));
        let place = near.map_or(format!("{ip:#x}"), |(name, at)| format!("@{name}+{}", ip - at));
        let [flags, data1, data2] = [2..4, 4..8, 16..24].map(|range| number(&record[range]));
        format!("{} {place} flags={flags:#x} data1={data1:#x} data2={data2:#x}", record[0])
    }

    fn log_fault(&self, text: &str, log: &[u8]) -> Option<String> {
        let found: Vec<u64> = log.chunks_exact(8).map(number).collect();
        let mut wanted: Vec<u64> = text.split_whitespace().map(|word| self.number(word)).collect();
        wanted.resize(found.len(), 0);
        (wanted != found).then(|| format!("log is {found:x?}, not {wanted:x?}"))
    }

    /// A number, `0x` for hexadecimal, or `@SYMBOL` with `+NUMBER` or `-NUMBER` behind it.
    fn number(&self, text: &str) -> u64 {
        let text = text.trim();
        if let Some(symbol) = text.strip_prefix('@') {
            let split = symbol.find(['+', '-']).unwrap_or(symbol.len());
            let (name, offset) = symbol.split_at(split);
            let base = self.built.symbols.get(name);
            let base = *base.unwrap_or_else(|| panic!("{}: no symbol {name}", self.program.name));
            return match offset.split_at_checked(1) {
                Some(("+", offset)) => base + self.number(offset),
                Some((_, offset)) => base - self.number(offset),
                None => base,
            };
        }
        let (digits, radix) = match text.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        let value = u64::from_str_radix(digits, radix);
        value.unwrap_or_else(|_| panic!("{}: {text:?} is no number", self.program.name))
    }
}

/// Assembles `source` to a static program without a C library.
///
/// # Panics
///
/// If that fails.
pub fn assemble(source: &Path, path: &Path) {
    let mut include = OsString::from("-Wa,-I");
    include.push(asm_dir());
    let built = Command::new("gcc")
        .args(["-nostdlib", "-static", "-no-pie", "-z", "noexecstack"])
        .arg(&include)
        .arg("-o")
        .args([path, source])
        .output()
        .expect("gcc starts");
    let messages = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{}: {messages}", source.display());
}

fn symbols(path: &Path) -> HashMap<String, u64> {
    let listed = Command::new("nm").arg(path).output().expect("nm starts");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let rows = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let kind = words.next()?;
        (kind != "a" && kind != "A").then_some((words.next()?.to_owned(), address))
    });
    rows.collect()
}

/// Runs a command with an environment that is the same everywhere.
pub fn run(argv: Vec<OsString>, dir: &Path) -> Outcome {
    let mut job = Job::new(argv, Duration::from_secs(240));
    job.bare_env = true;
    job.env = vec![("GLIBC_TUNABLES".to_owned(), "glibc.pthread.rseq=0".into())];
    job.run(dir, dir)
}

/// A second processor to compare with the reference: a command line in which `{cpu}` stands for the
/// name of the processor.
#[derive(Clone, Debug)]
pub struct SecondRunner(Vec<String>);

impl SecondRunner {
    /// The one of `LWP_ASM_RUNNER` (`none` for none); else `lwp run --deterministic --cpu {cpu}
    /// --`, if that has LWP.
    pub fn find(dir: &Path) -> Option<Self> {
        if let Ok(line) = std::env::var("LWP_ASM_RUNNER") {
            let words = line.split_whitespace().map(str::to_owned).collect();
            return (line != "none").then_some(Self(words));
        }
        let lwp = lwp_binary().to_string_lossy().into_owned();
        let words = [&lwp, "run", "--deterministic", "--cpu", "{cpu}", "--"].map(str::to_owned);
        let second = Self(words.to_vec());
        let detect = dir.join("detect");
        assemble(&asm_dir().join("detect.S"), &detect);
        let command = second.command("full", &detect)?;
        let outcome = run(command, dir);
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.end, End::Code(0), "the virtual CPU shows no LWP: {stderr}");
        Some(second)
    }

    /// The command line that runs `program` on `cpu`; `None` if it has only the default one.
    pub fn command(&self, cpu: &str, program: &Path) -> Option<Vec<OsString>> {
        self.command_with(cpu, &[], program)
    }

    /// The command line that runs `program` on `cpu` with further options; `None` also if there is
    /// no `--` to put them before.
    pub fn command_with(
        &self,
        cpu: &str,
        options: &[&str],
        program: &Path,
    ) -> Option<Vec<OsString>> {
        let names_cpu = self.0.iter().any(|word| word.contains("{cpu}"));
        let end = self.0.iter().rposition(|word| word == "--");
        if cpu != "full" && !names_cpu || !options.is_empty() && end.is_none() {
            return None;
        }
        let words = self.0.iter().map(|word| OsString::from(word.replace("{cpu}", cpu)));
        let mut line: Vec<OsString> = words.collect();
        let end = end.unwrap_or(line.len());
        line.splice(end..end, options.iter().map(OsString::from));
        line.push(program.as_os_str().to_owned());
        Some(line)
    }
}
