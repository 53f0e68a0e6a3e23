//! Links the commands at a fixed address: they are started once for each program that is measured, and some
//! hundred pages of pointers would have to be relocated every time.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-no-pie");
}
