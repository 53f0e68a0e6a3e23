//! Gives the shared library its name and its version node.

use std::env;

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:rerun-if-changed=abi/liblwp.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblwp.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={root}/abi/liblwp.map");
}
