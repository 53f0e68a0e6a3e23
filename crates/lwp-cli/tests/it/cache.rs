//! The cache of translations: it changes how long a run takes and nothing else.
//!
//! Promise: K8: whose runs wait for the lock
#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lwp_testkit::files::{copy_program, write_program};
use serde_json::Value;

const LWP: &str = env!("CARGO_BIN_EXE_lwp");
const EVENTS: &str = "instructions,branches,conditional-branches,branches-taken,calls,returns";

/// A directory of a test's own.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cache-{name}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a directory");
        Self(dir)
    }

    fn units(&self) -> PathBuf {
        self.0.join("lwp/units")
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.units()).into_iter().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        files
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "300", LWP]).args(arguments).stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", &self.0).env_remove("LWP_CACHE_LIMIT");
        command
    }

    fn lwp(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().expect("lwp starts");
        // What takes long is written by a process left behind.
        if self.units().exists() {
            let mut settle = Command::new("flock");
            settle.arg(self.units()).arg("true").status().expect("flock starts");
        }
        output
    }

    /// `lwp cache COMMAND`: what it prints.
    fn cache(&self, command: &str) -> String {
        let output = self.lwp(&["cache", command]);
        assert!(output.status.success(), "{command}: {}", text(&output.stdout));
        text(&output.stdout)
    }

    /// Counts `program`: what it prints, and each event's count.
    fn count(&self, options: &[&str], program: &[&str]) -> (Output, Vec<(String, String)>) {
        let report = self.0.join(format!("report-{:?}", thread::current().id()));
        let mut arguments = vec!["stat", "-j", "-e", EVENTS, "-o", report.to_str().expect("text")];
        arguments.extend(options);
        arguments.extend(program);
        let output = self.lwp(&arguments);
        let text = fs::read_to_string(&report).unwrap_or_default();
        let counts = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
            .map(|row| (row["event"].to_string(), row["counter-value"].to_string()))
            .collect();
        (output, counts)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A loop in one process that is counted the same every time. A shell would not do: it turns its
/// parent's process id into text, and counts by its digits.
const LOOP: [&str; 4] = [
    "/bin/sed",
    "-n",
    r"1{:a;s/$/x/;/x\{200\}/!ba;s/.*/done/;p;q7}",
    concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
];

/// Forks, execs, pipes, signals: prints the same every time; a shell's own counts depend on process
/// ids and on when its children end.
const SCRIPT: &str = "i=0; while [ $i -lt 8 ]; do (exit 3); x=$(echo $i); /bin/true; \
                      i=$((i + 1)); done; trap 'echo caught' USR1; kill -USR1 $$; \
                      echo done | cat; exit 7";

/// Promise: K1
#[test]
fn counts_and_output_are_the_same_from_the_cache() {
    let dir = Dir::new("same");
    for program in [&["true"][..], &["seq", "3000"], &LOOP, &["sh", "-c", SCRIPT]] {
        // A shell turns its parent's process id into text: the counts depend on its digits.
        let exact = program[0] != "sh";
        let (cold, cold_counts) = dir.count(&["--no-cache"], program);
        let before = dir.files().len();
        assert_eq!(cold_counts.len(), 6, "{program:?}: {}", text(&cold.stderr));
        for run in 0..3 {
            let (warm, counts) = dir.count(&[], program);
            assert_eq!(warm.status, cold.status, "{program:?}, run {run}");
            assert_eq!(text(&warm.stdout), text(&cold.stdout), "{program:?}, run {run}");
            assert!(!exact || counts == cold_counts, "{program:?}: {counts:?} {cold_counts:?}");
        }
        assert!(dir.files().len() > before, "{program:?}: nothing was kept");
    }
    assert!(dir.cache("list").contains("/ld-linux"), "{}", dir.cache("list"));
    assert!(dir.cache("verify").contains(" 0 faulty"));
    // The plain plan keeps its own translations.
    let counted = dir.files().len();
    let run = dir.lwp(&["run", "ls", "-d", "/"]);
    assert_eq!(text(&run.stdout), "/\n");
    assert!(dir.files().len() >= counted + 2, "translations without counters were not kept");
    let again = dir.lwp(&["run", "ls", "-d", "/"]);
    assert_eq!(text(&again.stdout), "/\n");
    assert!(dir.cache("clear").contains("files removed"));
    assert_eq!(dir.files(), [] as [PathBuf; 0]);
}

/// Everything that a recording says, in lines without order.
fn said_by(dir: &Dir, options: &[&str]) -> Vec<String> {
    let [data, lines] = ["recording", "lines"].map(|name| dir.0.join(name));
    let [data, lines] = [&data, &lines].map(|path| path.to_str().expect("text"));
    let mut arguments = vec!["record", "-q", "--deterministic", "-o", data];
    arguments.extend(options);
    arguments.extend(["--", "gzip", "-9", "-c", "/bin/sh"]);
    let recorded = dir.lwp(&arguments);
    assert!(recorded.status.success(), "{options:?}: {}", text(&recorded.stderr));
    let exported = dir.lwp(&["export", "--format", "jsonl", "-i", data, "-o", lines]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let mut lines: Vec<_> =
        fs::read_to_string(lines).expect("lines").lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Promise: K11
#[test]
fn recordings_say_the_same_from_the_cache() {
    let dir = Dir::new("recordings");
    for how in [&[][..], &["-c", "10007"], &["-e", "dcache-misses:c=997"]] {
        let cold = said_by(&dir, &[&["--no-cache"], how].concat());
        assert!(cold.len() > 5, "{how:?}: {cold:?}");
        let before = dir.files().len();
        for run in 0..3 {
            let warm = said_by(&dir, how);
            assert!(warm == cold, "{how:?}, run {run}: {} lines, {}", warm.len(), cold.len());
            assert!(dir.files().len() > before, "{how:?}: nothing was kept");
        }
    }
}

/// Promise: K11
#[test]
fn records_are_the_same_from_the_cache() {
    let dir = Dir::new("profiled");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = dir.0.join("branches");
    let built = Command::new("gcc")
        .args(["-std=c99", "-O1", "-I"])
        .args([root.join("include"), root.join("examples/branches.c")])
        .args([Path::new("-o"), &program])
        .status();
    assert!(built.expect("gcc starts").success());
    let path = program.to_str().expect("text");
    let cold = dir.lwp(&["run", "--no-cache", path]);
    assert!(text(&cold.stdout).contains(" records, "), "{}", text(&cold.stderr));
    let again = || {
        let warm = dir.lwp(&["run", path]);
        assert_eq!(text(&warm.stdout), text(&cold.stdout));
    };
    // Once for threads without a profile, once for those with this one; what changed a moment ago
    // is not kept.
    let deadline = Instant::now() + Duration::from_secs(60);
    while dir.cache("list").lines().filter(|line| line.ends_with(path)).count() < 2 {
        assert!(Instant::now() < deadline, "never kept: {}", dir.cache("list"));
        again();
        thread::sleep(Duration::from_millis(50));
    }
    again();
    again();
}

/// Promise: K5
#[test]
fn runs_without_a_place_do_without() {
    let dir = Dir::new("none");
    // A file in its place, a directory of others, no home, a relative one, a limit that nothing
    // fits.
    let file = dir.0.join("file");
    fs::write(&file, "").unwrap();
    let open = dir.0.join("open");
    fs::create_dir_all(open.join("lwp")).unwrap();
    fs::set_permissions(open.join("lwp"), Permissions::from_mode(0o777)).unwrap();
    let small = dir.0.join("small");
    fs::create_dir(&small).unwrap();
    let places = [Some(&file), Some(&open), None, Some(&small)];
    for (number, place) in places.into_iter().enumerate() {
        for _ in 0..2 {
            let mut command = dir.command(&["stat", "-x,", "-e", "instructions", "true"]);
            command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
            command.env("LWP_CACHE_LIMIT", if number == 3 { "1K" } else { "1G" });
            if let Some(place) = place {
                command.env("XDG_CACHE_HOME", place);
            }
            let output = command.output().expect("lwp starts");
            assert!(output.status.success(), "{place:?}: {}", text(&output.stderr));
            let line = text(&output.stderr);
            let count = line.split(',').next().expect("a count").parse::<u64>();
            assert!(count.is_ok_and(|count| count > 10_000), "{place:?}: {line}");
        }
    }
    assert_eq!(fs::read_dir(open.join("lwp")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(small.join("lwp/units")).unwrap().count(), 0);
    let mut refused = dir.command(&["cache", "list"]);
    let refused = refused.env("XDG_CACHE_HOME", &open).output().unwrap();
    assert_eq!(refused.status.code(), Some(125), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("help:"));
}

/// Promise: K2
#[test]
fn damaged_files_are_replaced_and_never_executed() {
    let dir = Dir::new("damage");
    let program = ["seq", "3000"];
    let (cold, expected) = dir.count(&[], &program);
    let files = dir.files();
    assert!(files.len() >= 3, "{files:?}");
    let good: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    // Header fields, the path, the hash, and all over the image, code included.
    let mut runs = 0;
    for step in 0..24usize {
        for (file, good) in files.iter().zip(&good) {
            let mut bad = good.clone();
            let at = match step {
                0..8 => step * 20,
                8..10 => 4096 - 16 * (step - 7),
                _ => 4096 + (good.len() - 4096) * (step - 10) / 14,
            };
            match step {
                22 => bad.truncate(at),
                23 => bad.clear(),
                _ => bad[at] = !bad[at],
            }
            fs::write(file, bad).unwrap();
        }
        let (run, counts) = dir.count(&[], &program);
        assert_eq!((run.status, &run.stdout), (cold.status, &cold.stdout), "step {step}");
        assert_eq!(counts, expected, "step {step}");
        assert!(dir.cache("verify").contains(" 0 faulty"), "step {step}");
        assert_eq!(dir.files(), files, "step {step}: not replaced");
        runs += 1;
    }
    assert_eq!(runs, 24);
    fs::write(&files[0], "nonsense").unwrap();
    let verify = dir.lwp(&["cache", "verify"]);
    assert_eq!(verify.status.code(), Some(1));
    assert!(text(&verify.stdout).contains("1 faulty"), "{}", text(&verify.stdout));
    assert!(!files[0].exists());
}

/// A program without anything: exits with `code`. No build id tells one from another.
fn tiny(code: u8) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    out.extend([2, 0, 62, 0, 1, 0, 0, 0]); // executable, x86-64
    out.extend((BASE + 120).to_le_bytes()); // entry
    out.extend(64u64.to_le_bytes()); // program headers
    out.extend([0; 12]);
    out.extend([64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    out.extend([1, 0, 0, 0, 5, 0, 0, 0]); // PT_LOAD, readable and executable
    for word in [0, BASE, BASE, 136, 136, 0x1000] {
        out.extend(u64::to_le_bytes(word));
    }
    out.extend([0xbf, code, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]); // edi, eax, syscall
    out.resize(136, 0);
    out
}

/// Promise: K3
#[test]
fn a_changed_file_is_translated_anew() {
    let dir = Dir::new("changed");
    let program = dir.0.join("tiny");
    let path = program.to_str().unwrap();
    let run = || dir.count(&[], &[path]).0.status.code();
    for code in [3u8, 9, 4] {
        // In place: the same inode, the same size, the same path.
        write_program(&program, &tiny(code));
        assert_eq!(run(), Some(i32::from(code)), "at once");
        // Long enough ago for the file's times to tell that it has not changed again.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !dir.cache("list").contains(path) {
            assert!(Instant::now() < deadline, "never kept");
            thread::sleep(Duration::from_millis(50));
            assert_eq!(run(), Some(i32::from(code)));
        }
        assert_eq!(run(), Some(i32::from(code)), "from the cache");
        // Its modification time can be forged, the inode's cannot.
        let times = fs::metadata(&program).unwrap().modified().unwrap();
        write_program(&program, &tiny(code + 1));
        fs::File::open(&program).unwrap().set_modified(times).unwrap();
        assert_eq!(run(), Some(i32::from(code + 1)), "with its old time");
    }
    // The same content with new times is still the same.
    thread::sleep(Duration::from_millis(200));
    assert_eq!(run(), Some(5));
    let file = fs::File::options().write(true).open(&program).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(1000)).unwrap();
    drop(file);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(run(), Some(5), "touched");
    assert!(dir.cache("list").contains(path));
}

/// Promise: K10
#[test]
fn a_module_is_kept_once_wherever_it_is_mapped() {
    let dir = Dir::new("aslr");
    // How often the loader runs through its loops depends on the addresses; the program's own loop
    // does not.
    let (_, counts) = dir.count(&["--no-cache"], &LOOP);
    for run in 0..4 {
        let (again, random) = dir.count(&["--aslr"], &LOOP);
        assert_eq!(again.status.code(), Some(7), "run {run}: {}", text(&again.stderr));
        let [usual, random] = [&counts, &random].map(|counts| {
            let count = counts[0].1.trim_matches('"').parse::<f64>();
            count.expect("a count")
        });
        assert!((random / usual - 1.0).abs() < 0.02, "run {run}: {random}, else {usual}");
    }
    let kept = dir.cache("list");
    for module in ["libc.so.6", "ld-linux-x86-64.so.2", "sed"] {
        let times = kept.lines().filter(|line| line.ends_with(&format!("/{module}"))).count();
        assert!(times <= 1, "{module}:\n{kept}");
    }
    assert!(kept.contains("/libc.so.6"), "{kept}");
    // What was kept at random addresses serves at others.
    let before = dir.files().len();
    let (usual, again) = dir.count(&[], &LOOP);
    assert_eq!((usual.status.code(), again), (Some(7), counts));
    assert_eq!(dir.files().len(), before);
}

/// What the runs of the next test execute: different programs, which share libraries.
const SHORT: [&[&str]; 4] =
    [&["true"], &["sh", "-c", "exit 0"], &["ls", "-d", "/"], &["sh", "-c", "(exit 1); true"]];

/// Promise: K4
#[test]
fn a_thousand_runs_share_one_cache() {
    let dir = Dir::new("crowd");
    const LIMIT: u64 = 3 << 20;
    thread::scope(|scope| {
        for worker in 0..4usize {
            let dir = &dir;
            scope.spawn(move || {
                for round in 0..250 {
                    let program = SHORT[(worker + round) % SHORT.len()];
                    let mut arguments = vec!["run", "--"];
                    arguments.extend(program);
                    let mut command = dir.command(&arguments);
                    command.env("LWP_CACHE_LIMIT", LIMIT.to_string());
                    // Some die, anywhere.
                    if round % 25 == 24 {
                        let mut child = command.stdout(Stdio::null()).spawn().expect("lwp starts");
                        thread::sleep(Duration::from_millis(round as u64 % 17));
                        let _ = child.kill();
                        let _ = child.wait();
                        continue;
                    }
                    // And one empties the cache under the others' hands.
                    if round % 60 == 59 {
                        dir.cache("clear");
                    }
                    let output = command.output().expect("lwp starts");
                    assert!(output.status.success(), "{program:?}: {}", text(&output.stderr));
                    assert_eq!(text(&output.stderr), "", "{program:?}");
                }
            });
        }
    });
    assert!(dir.cache("verify").contains(" 0 faulty"));
    let (run, _) = dir.count(&[], &["ls", "-d", "/"]);
    assert!(run.status.success());
    let mut prune = dir.command(&["cache", "prune"]);
    assert!(prune.env("LWP_CACHE_LIMIT", LIMIT.to_string()).output().unwrap().status.success());
    let bytes: u64 = dir.files().iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(bytes > 0 && bytes <= LIMIT, "{bytes}");
}

/// Promise: K9, K17, O6
#[test]
fn programs_are_translated_ahead_of_time_and_not_run() {
    let dir = Dir::new("warm");
    let warm = dir.lwp(&["cache", "warm", "touch", "true"]);
    assert!(warm.status.success(), "{}", text(&warm.stderr));
    assert_eq!(text(&warm.stdout) + &text(&warm.stderr), "");
    let fragments = |list: &str, path: &str| -> Vec<u64> {
        let lines = list.lines().filter(|line| line.ends_with(path));
        lines.filter_map(|line| line.split_whitespace().rev().nth(5)?.parse().ok()).collect()
    };
    let list = dir.cache("list");
    let libc = fragments(&list, "/libc.so.6");
    assert!(libc.iter().filter(|&&count| count > 20_000).count() >= 2, "{list}");
    assert!(!fragments(&list, "/touch").is_empty(), "{list}");
    // Translated code takes at most four times the bytes that it translates.
    let growth = |line: &str| line.split_whitespace().rev().nth(3)?.strip_suffix('x')?.parse().ok();
    let growth: Vec<f64> =
        list.lines().filter(|line| line.contains("libc.so")).filter_map(growth).collect();
    assert!(growth.len() >= 2 && growth.iter().all(|&times| 1.0 < times && times <= 4.0), "{list}");
    // What is kept takes at most one and a half times the bytes of that.
    let sum = list.lines().find_map(|line| line.strip_suffix(" times the code in them"));
    let kept = sum.and_then(|sum| sum.rsplit(' ').next());
    let kept: f64 = kept.and_then(|kept| kept.parse().ok()).expect("a sum");
    assert!(1.0 < kept && kept <= 1.5, "{list}");
    let (cold, expected) = dir.count(&["--no-cache"], &["true"]);
    let (run, counts) = dir.count(&[], &["true"]);
    assert_eq!((run.status, counts), (cold.status, expected));
    // What cannot be stopped before its own code is refused.
    for refused in ["/dev/null", "/etc/passwd"] {
        assert_ne!(dir.lwp(&["cache", "warm", refused]).status.code(), Some(0), "{refused}");
    }
    let program = dir.0.join("tiny");
    write_program(&program, &tiny(0));
    let refused = dir.lwp(&["cache", "warm", program.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("help:"), "{}", text(&refused.stderr));
}

/// The second column of `lwp cache list`'s numbers: fragments kept of the file that ends so.
fn fragments_of(list: &str, end: &str) -> u64 {
    let line = list.lines().filter(|line| line.ends_with(end));
    let words = line.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let at = |words: Vec<&str>| {
        let word = words.iter().position(|word| *word == "fragments,").expect("fragments");
        words[word - 1].parse::<u64>().expect("a number")
    };
    words.map(at).max().unwrap_or(0)
}

/// Promise: K12
#[test]
fn what_was_recorded_is_translated_ahead_of_time() {
    let dir = Dir::new("learnt");
    let data = dir.0.join("learnt.data");
    let data = data.to_str().expect("text");
    let recorded =
        dir.lwp(&[&["record", "-q", "--no-cache", "-o", data, "--"][..], &LOOP].concat());
    assert_eq!(recorded.status.code(), Some(7), "{}", text(&recorded.stderr));
    assert_eq!(dir.files(), [] as [PathBuf; 0]);
    let (_, cold) = dir.count(&["--no-cache"], &LOOP);

    let warmed = dir.lwp(&["cache", "warm", "--from", data, "/bin/sed"]);
    assert!(warmed.status.success(), "{}", text(&warmed.stderr));
    let learnt = fragments_of(&dir.cache("list"), "/libc.so.6");
    let (_, counts) = dir.count(&[], &LOOP);
    assert_eq!(counts, cold);
    let grown = fragments_of(&dir.cache("list"), "/libc.so.6");
    assert!(learnt > 200 && grown < learnt * 3 / 2, "{learnt} were learnt, then {grown}");

    dir.cache("clear");
    let warmed = dir.lwp(&["cache", "warm", "/bin/sed"]);
    assert!(warmed.status.success(), "{}", text(&warmed.stderr));
    let all = fragments_of(&dir.cache("list"), "/libc.so.6");
    assert!(learnt < all / 5, "{learnt} were learnt of {all}");

    let sampled = [&["record", "-q", "-c", "100003", "-o", data, "--"][..], &LOOP].concat();
    assert_eq!(dir.lwp(&sampled).status.code(), Some(7));
    let refused = dir.lwp(&["cache", "warm", "--from", data, "/bin/sed"]);
    assert!(text(&refused.stderr).contains("an exact recording"), "{}", text(&refused.stderr));
    assert_eq!(refused.status.code(), Some(125));
}

/// Promise: K6
#[test]
fn a_killed_run_has_kept_what_it_had() {
    let dir = Dir::new("killed");
    let mut lwp = Command::new(LWP);
    lwp.args(["run", "--", "sh", "-c", "ls / >/dev/null; sleep 100; :"]);
    lwp.env("XDG_CACHE_HOME", &dir.0).env_remove("LWP_CACHE_LIMIT").stdin(Stdio::null());
    let mut lwp = lwp.spawn().expect("lwp starts");
    let end = Instant::now() + Duration::from_secs(100);
    let kept = || dir.files().iter().any(|file| !file.to_string_lossy().contains("/.new-"));
    while !kept() && Instant::now() < end {
        thread::sleep(Duration::from_millis(50));
    }
    lwp.kill().expect("lwp runs");
    lwp.wait().expect("lwp ends");
    assert!(kept(), "nothing was written in {} s", 100);
    let verified = dir.cache("verify");
    assert!(verified.contains(" 0 faulty"), "{verified}");
    let (cold, expected) = dir.count(&["--no-cache"], &["ls", "-d", "/"]);
    let (run, counts) = dir.count(&[], &["ls", "-d", "/"]);
    assert_eq!((run.stdout, counts), (cold.stdout, expected));
}

/// Runs `script` where `full` is a file system of 200 KiB; `None` where none can be mounted.
fn with_little_room(dir: &Dir, script: &str) -> Option<Output> {
    let full = dir.0.join("full");
    fs::create_dir_all(&full).expect("a directory");
    let mount = format!("mount -t tmpfs -o size=200k none {}", full.display());
    for options in ["-m", "-rm"] {
        let unshare = |script: &str| {
            let mut command = Command::new("timeout");
            command.args(["-k", "1", "300", "unshare", options, "sh", "-c", script]);
            command.env("XDG_CACHE_HOME", &full).stdin(Stdio::null());
            command.output().ok()
        };
        if unshare(&mount).is_some_and(|output| output.status.success()) {
            return unshare(&format!("{mount} && {script}"));
        }
    }
    None
}

/// Promise: K7
#[test]
fn a_full_disk_costs_nothing_but_time() {
    let dir = Dir::new("full");
    let script = format!(
        "for i in 1 2 3; do {LWP} stat -o /dev/null ls -d / || exit 9; done; \
         flock $XDG_CACHE_HOME/lwp/units true; ls -A $XDG_CACHE_HOME/lwp/units; {LWP} cache verify"
    );
    let Some(output) = with_little_room(&dir, &script) else {
        eprintln!("skipped: this user may not mount a file system");
        return;
    };
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    assert!(printed.starts_with("/\n/\n/\n"), "{printed}");
    assert!(printed.contains(" 0 faulty") && !printed.contains(".new-"), "{printed}");
    assert_eq!(text(&output.stderr), "");
}

/// Runs `lwp cache import` of `archive` with `options`: its output.
fn import(dir: &Dir, archive: &str, options: &[&str]) -> Output {
    dir.lwp(&[&["cache", "import"][..], options, &[archive]].concat())
}

/// Promise: K14
#[test]
fn an_archive_makes_a_first_run_a_later_one() {
    // As long as each other: the counts depend on the environment.
    let (there, here) = (Dir::new("travel-1"), Dir::new("travel-2"));
    let archive = there.0.join("archive");
    let archive = archive.to_str().expect("text");
    let programs = [&["seq", "3000"][..], &LOOP];
    let mut expected = Vec::new();
    for program in programs {
        let (_, cold) = there.count(&["--no-cache"], program);
        for _ in 0..3 {
            assert_eq!(there.count(&[], program).1, cold);
        }
        expected.push(cold);
    }
    let exported = there.lwp(&["cache", "export", archive]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let kept = there.files().len();
    assert!(text(&exported.stderr).contains(&format!("wrote {kept} files")));
    let imported = import(&here, archive, &[]);
    let said = text(&imported.stdout);
    assert!(imported.status.success() && said.contains(" 0 known, 0 left"), "{said}");
    assert!(said.starts_with(&format!("{kept} files taken")), "{said}");
    assert!(here.cache("verify").contains(" 0 faulty"));
    // The same bytes, and the rights of the store's own files.
    let [lines, again] = [&there, &here].map(|dir| dir.lwp(&["cache", "export", "-"]).stdout);
    assert!(lines == fs::read(archive).expect("an archive") && lines == again);
    for file in here.files() {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    }
    let before: Vec<_> = here.files().iter().map(|file| fs::read(file).unwrap()).collect();
    for (program, cold) in programs.iter().zip(&expected) {
        for run in 0..100 {
            assert_eq!(&here.count(&[], program).1, cold, "{program:?}, run {run}");
            // The first has found everything: it has nothing to write.
            if run == 0 {
                let now: Vec<_> = here.files().iter().map(|file| fs::read(file).unwrap()).collect();
                assert!(now == before, "{program:?}: translated anew");
            } else if run == 3 {
                break;
            }
        }
    }
    let known = import(&here, archive, &[]);
    assert!(text(&known.stdout).contains(&format!("{kept} known, 0 left")));
}

/// Promise: K14
#[test]
fn exports_and_imports_choose() {
    let (there, here) = (Dir::new("chosen-there"), Dir::new("chosen-here"));
    there.count(&[], &["ls", "-d", "/"]);
    let exported = |options: &[&str]| {
        let output = there.lwp(&[&["cache", "export", "-"][..], options].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let words = text(&output.stderr);
        let count = words.split_whitespace().nth(2).and_then(|word| word.parse::<usize>().ok());
        (count.expect("a number"), output.stdout)
    };
    let all = exported(&[]).0;
    let (libc, _) = exported(&["--module", "libc.so.6"]);
    assert!(0 < libc && libc < all, "{libc} of {all}");
    let (two, bytes) = exported(&["--module", "libc.*", "--module", "*/ls"]);
    assert!(libc < two && two < all, "{two} of {all}");
    // By the time of the last use.
    assert_eq!(exported(&["--since", "1h"]).0, all);
    for file in there.files() {
        let file = fs::File::options().write(true).open(file).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(7200)).unwrap();
    }
    assert_eq!((exported(&["--since", "1h"]).0, exported(&["--since", "1d"]).0), (0, all));

    let mut taking = here.command(&["cache", "import", "-", "--module", "libc.so.6"]);
    let mut taking = taking.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("lwp");
    std::io::Write::write_all(&mut taking.stdin.take().unwrap(), &bytes).expect("it reads");
    assert!(taking.wait_with_output().expect("it ends").status.success());
    assert_eq!(here.files().len(), libc);
    let refused = there.lwp(&["cache", "export", "--since", "soon", "-"]);
    assert_eq!(refused.status.code(), Some(125), "{}", text(&refused.stderr));
}

/// Promise: K15
#[test]
fn an_import_says_what_it_leaves() {
    let (there, here) = (Dir::new("left-there"), Dir::new("left-here"));
    let program = there.0.join("copy");
    let path = program.to_str().expect("text");
    copy_program("/bin/ls".as_ref(), &program);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !there.cache("list").contains(path) {
        assert!(Instant::now() < deadline, "never kept");
        thread::sleep(Duration::from_millis(50));
        there.count(&[], &[path, "-d", "/"]);
    }
    let archive = there.0.join("archive");
    let name = archive.to_str().expect("text");
    assert!(there.lwp(&["cache", "export", name]).status.success());
    let left = |options: &[&str]| {
        here.cache("clear");
        let output = import(&here, name, options);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        said.lines().find(|line| line.contains(path)).map(str::to_owned)
    };
    assert_eq!(left(&[]), None, "it is here");
    fs::remove_file(&program).unwrap();
    assert!(left(&[]).is_some_and(|line| line.ends_with(": not here")));
    assert_eq!(left(&["--all"]), None);
    copy_program("/bin/cat".as_ref(), &program);
    assert!(left(&[]).is_some_and(|line| line.ends_with(": another build is here")));
    // What was taken all the same is not used for it.
    assert_eq!(left(&["--all"]), None);
    thread::sleep(Duration::from_millis(200));
    let (run, _) = here.count(&[], &[path, "/proc/version"]);
    assert_eq!(run.stdout, fs::read("/proc/version").unwrap());
    // Damaged archives end with an error, having done what they could.
    let good = fs::read(&archive).unwrap();
    let whole = text(&import(&here, name, &["--all"]).stdout);
    for (bytes, code, words) in [
        (&good[..good.len() * 2 / 3], 125, "cut off"),
        (&b"\x7fELF"[..], 125, "not an archive"),
        (&[&good[..8], &[9, 0, 0, 0]].concat(), 125, "version 9"),
    ] {
        fs::write(&archive, bytes).unwrap();
        let output = import(&here, name, &[]);
        assert_eq!(output.status.code(), Some(code), "{words}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
        assert!(here.cache("verify").contains(" 0 faulty"), "{words}");
    }
    assert!(whole.contains(" known, "), "{whole}");
}

/// Promise: K15
#[test]
fn a_killed_import_leaves_a_whole_store() {
    let (there, here) = (Dir::new("torn-1"), Dir::new("torn-2"));
    there.count(&[], &["ls", "-d", "/"]);
    let archive = there.0.join("archive");
    let archive = archive.to_str().expect("text");
    assert!(there.lwp(&["cache", "export", archive]).status.success());
    let bytes = fs::read(archive).expect("an archive");
    for part in 1..12 {
        // It has read so much of the archive, and waits for more, when it is killed.
        let mut command = Command::new(LWP);
        command.args(["cache", "import", "-"]).env("XDG_CACHE_HOME", &here.0);
        let mut taking = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("lwp");
        let mut to = taking.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut to, &bytes[..bytes.len() * part / 12]).expect("it reads");
        taking.kill().expect("it runs");
        taking.wait().expect("it ends");
        assert!(here.cache("verify").contains(" 0 faulty"), "part {part}");
    }
    let (run, counts) = here.count(&[], &["ls", "-d", "/"]);
    assert_eq!((text(&run.stdout), counts), ("/\n".into(), there.count(&[], &["ls", "-d", "/"]).1));
}

/// Promise: K16
#[test]
fn execution_profiles_are_listed_verified_and_cleared() {
    let dir = Dir::new("profiles");
    dir.count(&[], &["ls", "-d", "/"]);
    let profiles = |dir: &Dir| {
        let list = dir.cache("list");
        list.lines().filter(|line| line.ends_with("(how often they were executed)")).count()
    };
    let before = profiles(&dir);
    assert!(before >= 3, "{}", dir.cache("list"));
    let all = dir.files();
    assert!(dir.cache("verify").contains(&format!("{} files, 0 faulty", all.len())));
    // A profile has no code, and its file says so: eighty bytes of numbers before that.
    let is_profile = |file: &&PathBuf| fs::read(file).unwrap()[128..144] == [0; 16];
    let damaged = all.iter().find(is_profile).expect("a profile");
    let mut bytes = fs::read(damaged).unwrap();
    *bytes.last_mut().expect("blocks") ^= 1;
    fs::write(damaged, bytes).unwrap();
    let verify = dir.lwp(&["cache", "verify"]);
    assert_eq!(verify.status.code(), Some(1), "{}", text(&verify.stdout));
    assert_eq!((profiles(&dir), dir.files().len()), (before - 1, all.len() - 1));
    dir.cache("clear");
    assert_eq!((profiles(&dir), dir.files().len()), (0, 0));
}

/// Promise: K17
#[test]
fn what_execution_profiles_know_is_translated_ahead_of_time() {
    let (there, here) = (Dir::new("known-1"), Dir::new("known-2"));
    // Not the loop: regular expressions are much of the C library.
    let program = ["/bin/seq", "3000"];
    let (_, cold) = there.count(&[], &program);
    let archive = there.0.join("profiles");
    let archive = archive.to_str().expect("text");
    assert!(there.lwp(&["cache", "export", "--profiles", archive]).status.success());
    assert!(import(&here, archive, &[]).status.success());
    let list = here.cache("list");
    assert!(!list.contains(" fragments, ") && list.contains(" blocks of "), "{list}");

    // With counters and without, and as little as was executed.
    let warmed = here.lwp(&["cache", "warm", "/bin/seq"]);
    assert!(warmed.status.success(), "{}", text(&warmed.stderr));
    let list = here.cache("list");
    let translated = |list: &str, end: &str| {
        list.lines().filter(|line| line.contains(" fragments, ") && line.ends_with(end)).count()
    };
    assert!(translated(&list, "/libc.so.6") == 2 && translated(&list, "seq") == 2, "{list}");
    let known = fragments_of(&list, "/libc.so.6");
    assert!((200..5000).contains(&known), "{list}");
    assert_eq!(here.count(&[], &program).1, cold);
    let after = here.cache("list");
    let grown = fragments_of(&after, "/libc.so.6");
    assert!(grown < known * 5 / 4, "{known} were known, then {grown}:\n{list}\n{after}");

    // All of them on demand, and where nothing is known of the program.
    let warmed = here.lwp(&["cache", "warm", "--functions", "/bin/seq"]);
    assert!(warmed.status.success(), "{}", text(&warmed.stderr));
    assert!(fragments_of(&here.cache("list"), "/libc.so.6") > 20_000);
    assert_eq!(here.count(&[], &program).1, cold);
}

/// Promise: K17
#[test]
fn libraries_that_a_program_opens_are_translated_ahead_of_time_too() {
    let dir = Dir::new("opened");
    // A converter is a library that the program itself opens.
    let program = ["iconv", "-f", "KOI8-R", "-t", "UTF-8", "/dev/null"];
    let (run, cold) = dir.count(&[], &program);
    let opened = |dir: &Dir| {
        let list = dir.cache("list");
        list.lines().filter(|it| it.contains(" fragments, ") && it.ends_with("KOI8-R.so")).count()
    };
    if !run.status.success() || opened(&dir) == 0 {
        eprintln!("skipped: this C library has no converters of their own");
        return;
    }
    let archive = dir.0.join("profiles");
    let archive = archive.to_str().expect("text");
    assert!(dir.lwp(&["cache", "export", "--profiles", archive]).status.success());
    dir.cache("clear");
    assert!(import(&dir, archive, &[]).status.success());
    let warmed = dir.lwp(&["cache", "warm", "iconv"]);
    assert!(warmed.status.success(), "{}", text(&warmed.stderr));
    assert_eq!(opened(&dir), 2, "{}", dir.cache("list"));
    assert_eq!(dir.count(&[], &program).1, cold);
}
