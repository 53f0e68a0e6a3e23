//! Samples in a file (`-O`), to be printed again later (`-I`).
//!
//! Lines of fields with tabs in between. The first is `cpustat` and the version of the format.
//! `cpu` lines (number, core, socket) and `spec` lines (counters, text) say what was counted where.
//! Each `tick`, or `part` of one that the end cut short, has: number of the sample, seconds since
//! 1970, specification, processor, seconds since the start, clock cycles, counts.
//!
//! Promise: T10

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::layout::{Columned, Layout, Place};
use super::worker::Sampled;
use crate::failure::Failure;

const FIRST_LINE: &str = "cpustat\t1";

/// A recording that is being written.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    path: PathBuf,
}

impl Recorder {
    /// Begins one at `path`, which is emptied.
    pub fn create(path: &Path, layout: &Layout) -> Result<Self, Failure> {
        let file = File::create(path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        let mut recorder = Self { file, path: path.to_owned() };
        let mut text = format!("{FIRST_LINE}\n");
        for Place { cpu, core, socket } in &layout.cpus {
            let _ = writeln!(text, "cpu\t{cpu}\t{core}\t{socket}");
        }
        for spec in &layout.specs {
            let one_line = spec.text.replace(['\t', '\n'], " ");
            let _ = writeln!(text, "spec\t{}\t{one_line}", joined(&spec.pics));
        }
        recorder.write(&text)?;
        Ok(recorder)
    }

    /// Adds samples, taken `at` seconds since 1970.
    pub fn add(&mut self, at: i64, samples: &[Sampled]) -> Result<(), Failure> {
        let mut text = String::new();
        for sampled in samples {
            let kind = if sampled.partial { "part" } else { "tick" };
            let Sampled { slot, cpu, set, seconds, tsc, .. } = sampled;
            let counts = joined(&sampled.counts);
            let _ =
                writeln!(text, "{kind}\t{slot}\t{at}\t{set}\t{cpu}\t{seconds:.9}\t{tsc}\t{counts}");
        }
        self.write(&text)
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.file
            .write_all(text.as_bytes())
            .map_err(|error| Failure::new(format!("{}: {error}", self.path.display())))
    }
}

fn joined<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// A recording that was read.
#[derive(Debug, Default)]
pub struct Recording {
    /// Specifications and processors of the run.
    pub layout: Layout,
    /// Each with its time in seconds since 1970, in the order in which they were written.
    pub samples: Vec<(i64, Sampled)>,
    /// The last line is not whole: writing was cut short.
    pub torn: bool,
}

impl Recording {
    /// Reads the recording at `path`.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let place =
            |reason: &dyn std::fmt::Display| Failure::new(format!("{}: {reason}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| place(&error))?;
        Self::parse(&text).map_err(|reason| place(&reason))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut recording = Self::default();
        let mut lines = text.split_inclusive('\n').enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        if first != format!("{FIRST_LINE}\n") {
            return Err(format!(
                "not a recording of cpustat: it does not begin with '{FIRST_LINE}'"
            ));
        }
        for (number, line) in lines {
            let Some(whole) = line.strip_suffix('\n') else {
                recording.torn = true;
                break;
            };
            let wrong = || format!("line {}: not understood: '{whole}'", number + 1);
            recording.line(whole).ok_or_else(wrong)?;
        }
        Ok(recording)
    }

    /// Takes a line over; `None` if it makes no sense.
    fn line(&mut self, line: &str) -> Option<()> {
        let fields: Vec<&str> = line.split('\t').collect();
        match *fields {
            ["cpu", cpu, core, socket] => {
                let (cpu, core) = (number(cpu)?, number(core)?);
                self.layout.cpus.push(Place { cpu, core, socket: number(socket)? });
            }
            ["spec", pics, text] => {
                let pics = numbers(pics)?;
                self.layout.specs.push(Columned { text: text.to_owned(), pics });
            }
            [kind @ ("tick" | "part"), slot, at, set, cpu, seconds, tsc, counts] => {
                let sampled = Sampled {
                    slot: number(slot)?,
                    cpu: number(cpu)?,
                    set: number(set)?,
                    seconds: number(seconds)?,
                    tsc: number(tsc)?,
                    counts: numbers(counts)?,
                    partial: kind == "part",
                };
                let spec = self.layout.specs.get(sampled.set)?;
                let known = self.layout.cpus.iter().any(|place| place.cpu == sampled.cpu);
                let right = known && spec.pics.len() == sampled.counts.len();
                self.samples.push(right.then_some((number(at)?, sampled))?);
            }
            _ => return None,
        }
        Some(())
    }
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn numbers<T: FromStr>(text: &str) -> Option<Vec<T>> {
    text.split(',').map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(slot: u64, cpu: u32, partial: bool) -> Sampled {
        let counts = vec![slot, u64::MAX];
        Sampled { slot, cpu, set: 0, seconds: 0.25, tsc: 7, counts, partial }
    }

    fn layout() -> Layout {
        let spec = Columned { text: "a,b,sys".to_owned(), pics: vec![0, 3] };
        let place = |cpu| Place { cpu, core: cpu / 2, socket: 0 };
        Layout { specs: vec![spec], cpus: (0..2).map(place).collect() }
    }

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("cpustat-{name}-{}", std::process::id()))
    }

    #[test]
    fn what_is_recorded_is_read_again() {
        let path = file("recorded");
        let mut recorder = Recorder::create(&path, &layout()).unwrap();
        recorder.add(1_000, &[sampled(0, 0, false), sampled(0, 1, false)]).unwrap();
        recorder.add(1_005, &[sampled(1, 1, true)]).unwrap();
        let recording = Recording::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(recording.layout, layout());
        assert!(!recording.torn);
        let found: Vec<_> =
            recording.samples.iter().map(|(at, s)| (*at, s.slot, s.cpu, s.partial)).collect();
        assert_eq!(found, [(1_000, 0, 0, false), (1_000, 0, 1, false), (1_005, 1, 1, true)]);
        assert_eq!(recording.samples[0].1.counts, [0, u64::MAX]);
    }

    #[test]
    fn other_files_are_refused_and_torn_ones_read() {
        let head = "cpustat\t1\ncpu\t0\t0\t0\nspec\t0\ta\n";
        let whole = format!("{head}tick\t0\t9\t0\t0\t0.5\t1\t2\n");
        assert_eq!(Recording::parse(&whole).unwrap().samples.len(), 1);
        let torn = Recording::parse(&format!("{whole}tick\t1\t9\t0\t0\t0.")).unwrap();
        assert!(torn.torn && torn.samples.len() == 1);
        for wrong in [
            "",
            "#!/bin/sh\n",
            "cpustat\t2\n",
            &format!("{head}tick\t0\t9\t1\t0\t0.5\t1\t2\n"), // no such specification
            &format!("{head}tick\t0\t9\t0\t1\t0.5\t1\t2\n"), // no such processor
            &format!("{head}tick\t0\t9\t0\t0\t0.5\t1\t2,3\n"), // no such counter
            &format!("{head}tick\t0\n"),
        ] {
            assert!(Recording::parse(wrong).is_err(), "{wrong}");
        }
        let reason = Recording::parse(&format!("{head}what\n")).unwrap_err();
        assert!(reason.starts_with("line 4: "), "{reason}");
    }
}
