//! Lists of generated code: what is in them, who may write them, and what becomes of older ones.
//!
//! Promise: Y7
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use super::*;

use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

/// A folder of one test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lwp-code-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn list(&self) -> PathBuf {
        self.0.join("list")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn names_that_would_break_a_line_are_refused() {
    for name in ["", "a\nb", "\n", "a\rb", "a\tb", "\0", "\u{7f}"] {
        assert_eq!(register_code(16..32, name), Err(Error::CodeName), "{name:?}");
    }
    assert_eq!(register_code(16..16, "empty"), Err(Error::CodeEmpty));
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    let reversed = 32..16;
    assert_eq!(register_code(reversed, "reversed"), Err(Error::CodeEmpty));
    let line = line(&(0xABC0..0xABD1), "f(int) [17] \u{e9}".as_bytes()).unwrap();
    assert_eq!(line, "abc0 11 f(int) [17] \u{e9}\n".as_bytes());
}

/// Each line of a thread is whole and in its thread's order, whatever others write.
#[test]
fn many_threads_write_whole_lines() {
    let (threads, lines) = (8, 200);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for number in 0..lines {
                    let start = (thread + 1) << 20 | number << 4;
                    register_code(start..start + 16, format!("t{thread} n{number}")).unwrap();
                }
            });
        }
    });
    let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
    let text = read(&path);
    std::fs::remove_file(&path).unwrap();
    for thread in 0..threads {
        let mark = format!(" 10 t{thread} n");
        let own: Vec<&str> = text.lines().filter(|line| line.contains(&mark)).collect();
        assert_eq!(own.len(), lines);
        for (number, line) in own.iter().enumerate() {
            assert_eq!(*line, format!("{:x}{mark}{number}", (thread + 1) << 20 | number << 4));
        }
    }
    assert_eq!(text.lines().count(), threads * lines);
}

#[test]
fn what_is_older_than_the_process_is_dropped() {
    let folder = Folder::new("older");
    let list = folder.list();
    std::fs::write(&list, "10 10 of somebody dead\n").unwrap();
    let old = std::fs::File::options().write(true).open(&list).unwrap();
    let birth = process_start::of_this_process();
    assert!(birth.is_some());
    // What was written after the process began is somebody's of this process.
    append_first(&list, b"20 10 a\n", birth).unwrap();
    assert_eq!(read(&list), "10 10 of somebody dead\n20 10 a\n");
    let day = Duration::from_secs(86_400);
    old.set_modified(SystemTime::now() - day).unwrap();
    // Where nobody says when the process began, nothing is dropped.
    append_first(&list, b"30 10 b\n", None).unwrap();
    assert_eq!(read(&list).lines().count(), 3);
    old.set_modified(SystemTime::now() - day).unwrap();
    append_first(&list, b"40 10 c\n", birth).unwrap();
    assert_eq!(read(&list), "40 10 c\n");
}

#[test]
fn what_somebody_else_has_put_there_is_not_written_to() {
    let folder = Folder::new("foreign");
    let (list, victim) = (folder.list(), folder.0.join("victim"));
    std::fs::write(&victim, "mine").unwrap();
    symlink(&victim, &list).unwrap();
    assert_eq!(append_first(&list, b"10 10 a\n", None), Err(Error::PerfMapNotOwned));
    std::fs::remove_file(&list).unwrap();
    std::fs::hard_link(&victim, &list).unwrap();
    assert_eq!(
        append_first(&list, b"10 10 a\n", process_start::of_this_process()),
        Err(Error::PerfMapNotOwned)
    );
    assert_eq!(read(&victim), "mine");
    std::fs::remove_file(&list).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &list, FileType::Fifo, mode, 0).unwrap();
    assert_eq!(append_first(&list, b"10 10 a\n", None), Err(Error::PerfMapNotOwned));
    std::fs::remove_file(&list).unwrap();
    std::fs::create_dir(&list).unwrap();
    assert_eq!(append_first(&list, b"10 10 a\n", None), Err(Error::PerfMap(Errno::ISDIR)));
}
