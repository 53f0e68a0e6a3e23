//! A cluster of a store in a bucket: it answers as one machine does, and the bucket's secret stays
//! with each machine. Skipped with a message where there is no moto_server (PyPI: `moto[server]`).
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

use crate::shared::bucket;
use crate::shared::cluster;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use bucket::Buckets;
use cluster::{Cluster, Stored, text};

const SECRET: &str = "secret-of-a-cluster";

/// All bytes that went through a port.
type Heard = Arc<Mutex<Vec<u8>>>;

/// A port that leads to `to`, and what goes through it in either direction.
fn tapped(to: String) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heard = Heard::default();
    let all = Arc::clone(&heard);
    std::thread::spawn(move || {
        for from in listener.incoming().map_while(Result::ok) {
            let Ok(to) = TcpStream::connect(&to) else { continue };
            for (from, to) in [(&from, &to), (&to, &from)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let all = Arc::clone(&all);
                std::thread::spawn(move || pass(from, to, &all));
            }
        }
    });
    (address, heard)
}

fn pass(mut from: TcpStream, mut to: TcpStream, heard: &Heard) {
    let mut bytes = [0; 65536];
    while let Ok(many @ 1..) = from.read(&mut bytes) {
        heard.lock().unwrap().extend_from_slice(&bytes[..many]);
        if to.write_all(&bytes[..many]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// All files below a directory.
fn files(directory: &Path, all: &mut Vec<Vec<u8>>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, all),
            false => all.push(std::fs::read(path).unwrap_or_default()),
        }
    }
}

#[test]
fn a_cluster_reads_a_bucket_and_its_secret_is_neither_sent_nor_said() {
    let Some(buckets) = Buckets::start() else { return };
    let mut stored = Stored::new(6);
    buckets.copy(&stored.path(), "some/store");
    let words = ["report", "-s", "function"];
    let alone = stored.embedded(&words);
    std::fs::remove_dir_all(stored.path()).unwrap();
    stored.variables = vec![
        ("LWP_FLEET_STORE", "s3://bucket/some/store".to_owned()),
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", buckets.port)),
        ("AWS_ACCESS_KEY_ID", "key-of-a-cluster".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("RUST_LOG", "trace".to_owned()),
    ];
    let mut scheduler = stored.start(&["scheduler", "--listen", "127.0.0.1:0", "--parts", "4"]);
    // Whoever asks and whoever works goes through a port that listens.
    let (address, heard) = tapped(scheduler.address.clone());
    scheduler.address = address;
    let mut cluster = Cluster { stored: &stored, scheduler, executors: Vec::new() };
    (0..2).for_each(|_| cluster.add_executor());
    assert_eq!(cluster.ask(&words), alone);
    let plan = cluster.ask(&["sql", "explain verbose select sum(instructions) from functions"]);
    assert!(plan.contains("functions"), "{plan}");
    let wrong = ["sql", "select cast(function as int) from functions"];
    let output = cluster.asking(&wrong, &stored.reader).output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    // The plans went through, and they name the store.
    let heard = heard.lock().unwrap().clone();
    assert!(holds(&heard, &hex("s3://bucket/some/store")), "{} bytes", heard.len());
    let said = stored.said.lock().unwrap().clone();
    let mut all = vec![heard, said.into_bytes(), error.into_bytes(), plan.into_bytes()];
    files(stored.dir.path(), &mut all);
    for bytes in all {
        assert!(!holds(&bytes, SECRET) && !holds(&bytes, &hex(SECRET)));
        assert!(!holds(&bytes, "key-of-a-cluster"));
    }
    assert!(text(stored.command(&words, "").output().unwrap(), &words) == alone);
}
