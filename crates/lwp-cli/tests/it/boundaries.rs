//! What a process on the virtual CPU can do to its host and to its neighbours: no more than
//! without.
//!
//! Promise: B4: forged requests end a process's first thread while the host works in it
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::tools;

use std::path::PathBuf;

use recorded::{LWP, compile, lwp, run};
use tools::text;

fn fresh(name: &str) -> PathBuf {
    tools::fresh("boundaries", name)
}

/// Runs `privileges` in the way `how`; the parent must come to no harm.
fn attacked(how: &str) {
    let dir = fresh(how);
    if !compile(&dir, "privileges.c", &["-O1"]) {
        return;
    }
    for command in ["run", "stat"] {
        let output = run(&dir, &[LWP, command, "--", "./program", how]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(out, "unharmed\n", "{command}: {err}");
        assert!(output.status.success(), "{command}: {}: {err}", output.status);
    }
}

/// Returns whether the test may give up privileges, because it has some.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can give up its privileges");
    }
    root
}

/// Promise: B1
#[test]
fn translated_code_is_nobody_s_to_write() {
    if is_root() {
        attacked("code");
    }
}

/// Promise: B1
#[test]
fn translated_code_is_nobody_s_to_throw_away() {
    if is_root() {
        attacked("remove");
    }
}

/// Promise: B2
#[test]
fn other_processes_contexts_are_out_of_reach() {
    if is_root() {
        attacked("mailbox");
    }
    attacked("sandbox");
}

/// Promise: B2
#[test]
fn contexts_that_somebody_keeps_are_given_to_nobody_else() {
    let dir = fresh("keeper");
    if !compile(&dir, "keeper.c", &["-O1"]) {
        return;
    }
    let native = run(&dir, &["./program"]);
    assert_eq!(text(&native.stdout), "nothing\n");
    let output = run(&dir, &[LWP, "run", "--", "./program"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    // "nothing": it does not even find its own.
    assert!(["nothing\n", "unharmed\n"].contains(&&*out), "{out}{err}");
    assert!(output.status.success(), "{}: {err}", output.status);
}

/// Promise: B1
#[test]
fn the_host_s_files_can_neither_be_shortened_nor_written_to() {
    attacked("files");
}

/// What `program` in `dir` retires, by the report of a run that starts with `before` in its shell.
fn counted(dir: &std::path::Path, before: &str) -> String {
    let script = format!("{before} ./neighbour; wait");
    let stat = ["stat", "--per-thread", "-x,", "-e", "instructions", "-o", "counts.csv"];
    let (_, err) = lwp(dir, &[&stat[..], &["--", "sh", "-c", &script]].concat());
    assert!(!err.contains("panicked"), "{err}");
    let counts = std::fs::read_to_string(dir.join("counts.csv")).expect("a report");
    let line = counts.lines().find(|line| line.starts_with("neighbour-")).expect("its line");
    line.split(',').nth(1).expect("a count").to_owned()
}

/// Promise: B3
#[test]
fn forged_requests_end_their_process_and_leave_the_others_alone() {
    let dir = fresh("forge");
    if !compile(&dir, "sorting.c", &["-O1", "-static"]) {
        return;
    }
    std::fs::rename(dir.join("program"), dir.join("neighbour")).expect("rename");
    compile(&dir, "forge.c", &["-O1", "-pthread"]);
    let alone = counted(&dir, "");
    for seed in 1..=3 {
        assert_eq!(counted(&dir, &format!("./program 40 {seed} & ")), alone, "seed {seed}");
    }
}

/// Promise: B3
#[test]
fn a_first_process_that_forges_requests_ends_with_125_and_a_reason() {
    let dir = fresh("first");
    let source = r#"
        #include <stdint.h>
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        int main(void)
        {
            char line[512];
            /* Under another name the file is not recognised. */
            symlink("/proc/self/maps", "true_maps");
            FILE *maps = fopen("true_maps", "r");
            volatile uint64_t *context = 0;
            while (fgets(line, sizeof line, maps))
                if (strstr(line, "memfd:lwp-contexts"))
                    sscanf(line, "%lx", (unsigned long *)&context);
            for (long i = 0; context && i < 1000000000; i++)
                context[0x58 / 8] = 77, *((volatile char *)context + 0xf00) = 1;
            return 3;
        }"#;
    std::fs::write(dir.join("first.c"), source).expect("writable");
    if !tools::has("gcc") {
        return;
    }
    let built = run(&dir, &["gcc", "-O1", "-w", "-o", "program", "first.c"]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let output = run(&dir, &[LWP, "run", "--", "./program"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{err}");
    assert!(err.contains("it has forged a request to the virtual CPU"), "{err}");
}

/// Compiles `source` as `program` in a fresh directory.
fn program(name: &str, source: &str) -> Option<PathBuf> {
    let dir = fresh(name);
    std::fs::write(dir.join("program.c"), source).expect("writable");
    if !tools::has("gcc") {
        return None;
    }
    let built = run(&dir, &["gcc", "-O1", "-w", "-o", "program", "program.c"]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    Some(dir)
}

/// A process of another user maps a file of its own, and then has a link to somebody's secret in its
/// place.
///
/// Promise: B8
#[test]
fn a_recording_has_no_file_that_the_program_could_not_read() {
    let source = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <grp.h>
        #include <sched.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <sys/mount.h>
        #include <sys/prctl.h>
        #include <unistd.h>
        static void put(const char *path, const char *text)
        {
            int file = open(path, O_WRONLY);
            write(file, text, __builtin_strlen(text));
            close(file);
        }
        int main(int argc, char **argv)
        {
            setgroups(0, NULL);
            setgid(65534);
            setuid(65534);
            prctl(PR_SET_DUMPABLE, 1);
            if (open(argv[1], O_RDONLY) >= 0)
                return 1;
            if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
                return 77;
            put("/proc/self/setgroups", "deny");
            put("/proc/self/uid_map", "0 65534 1");
            put("/proc/self/gid_map", "0 65534 1");
            if (mount("none", "/tmp", "tmpfs", 0, NULL))
                return 77;
            unsigned char code[4096] = {0xb8, 1, 0, 0, 0, 0xc3};
            int file = open("/tmp/x", O_RDWR | O_CREAT, 0755);
            write(file, code, sizeof code);
            close(file);
            file = open("/tmp/x", O_RDONLY);
            int (*one)(void) = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
            long sum = 0;
            for (int i = 0; i < 1000; i++)
                sum += one();
            mount("none", "/tmp", "tmpfs", 0, NULL);
            symlink(argv[1], "/tmp/x");
            return sum != 1000;
        }"#;
    let Some(dir) = program("secret", source).filter(|_| is_root()) else { return };
    let secret = "nobody but root may read this: 2f6c1d0e8b7a49b3";
    let path = dir.join("secret");
    std::fs::write(&path, secret).expect("writable");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("chmod");
    let path = path.to_str().expect("text");
    let native = run(&dir, &["./program", path]);
    if native.status.code() == Some(77) {
        eprintln!("skipped: no user namespace may be made here");
        return;
    }
    assert!(native.status.success(), "{}", native.status);
    let output = run(&dir, &[LWP, "record", "-o", "run.data", "--", "./program", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let recording = std::fs::read(dir.join("run.data")).expect("a recording");
    let found = recording.windows(16).any(|window| secret.as_bytes().starts_with(window));
    assert!(!found, "the recording has the secret");
}

/// The place where lists of generated code are looked for may be anything.
///
/// Promise: B8
#[test]
fn a_fifo_in_the_place_of_tmp_keeps_no_recording_waiting() {
    let source = r#"
        #define _GNU_SOURCE
        #include <sys/mman.h>
        #include <sys/stat.h>
        #include <string.h>
        #include <unistd.h>
        int main(void)
        {
            mkdir("jail", 0755);
            mkfifo("jail/tmp", 0666);
            if (chroot("jail") || chdir("/"))
                return 77;
            unsigned char *code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(code, 0x90, 100);
            code[100] = 0xc3;
            for (int i = 0; i < 100; i++)
                ((void (*)(void))code)();
            write(1, "done", 4);
            return 0;
        }"#;
    let Some(dir) = program("fifo", source).filter(|_| is_root()) else { return };
    let output = run(&dir, &[LWP, "record", "-o", "run.data", "--", "./program"]);
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    assert!(text(&output.stdout).starts_with("done"), "{}", text(&output.stdout));
}

/// Promise: B5
#[test]
fn nine_thousand_threads_at_a_time_run() {
    let Some(dir) = many_threads("many") else { return };
    let native = run(&dir, &["./program", "9000"]);
    let virtual_cpu = run(&dir, &[LWP, "run", "--", "./program", "9000"]);
    assert_eq!(text(&virtual_cpu.stdout), text(&native.stdout), "{}", text(&virtual_cpu.stderr));
}

/// Promise: B5
#[test]
fn a_thread_too_many_cannot_be_made_and_harms_nobody() {
    let Some(dir) = many_threads("too-many") else { return };
    let native = run(&dir, &["./program", "22000"]);
    if text(&native.stdout) != "22000 of 22000: Success\n" {
        return eprintln!("skipped: this machine runs no 22,000 threads: {}", text(&native.stdout));
    }
    let virtual_cpu = run(&dir, &[LWP, "run", "--", "./program", "22000"]);
    let (printed, said) = (text(&virtual_cpu.stdout), text(&virtual_cpu.stderr));
    assert_eq!(printed, "20989 of 20989: Resource temporarily unavailable\n", "{said}");
    assert!(virtual_cpu.status.success() && said.is_empty(), "{said}");
}

/// Builds a program in a directory of its own that has as many threads at a time as it is told, if
/// there is a compiler.
fn many_threads(name: &str) -> Option<std::path::PathBuf> {
    let dir = fresh(name);
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        static int ran, go;
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static pthread_cond_t may_end = PTHREAD_COND_INITIALIZER;
        static void *thread(void *argument)
        {
            pthread_mutex_lock(&lock);
            ran++;
            while (!go)
                pthread_cond_wait(&may_end, &lock);
            pthread_mutex_unlock(&lock);
            return argument;
        }
        int main(int count, char **words)
        {
            int wanted = atoi(words[1]), made = 0, error = 0;
            pthread_t *threads = malloc(wanted * sizeof *threads);
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            pthread_attr_setstacksize(&attributes, 16384);
            while (made < wanted && !error) {
                error = pthread_create(&threads[made], &attributes, thread, 0);
                made += !error;
            }
            pthread_mutex_lock(&lock);
            go = 1;
            pthread_cond_broadcast(&may_end);
            pthread_mutex_unlock(&lock);
            for (int i = 0; i < made; i++)
                pthread_join(threads[i], 0);
            printf("%d of %d: %s\n", ran, made, strerror(error));
            return 0;
        }"#;
    std::fs::write(dir.join("many.c"), source).expect("writable");
    if !tools::has("gcc") {
        return None;
    }
    let built = run(&dir, &["gcc", "-O1", "-pthread", "-o", "program", "many.c"]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    Some(dir)
}
