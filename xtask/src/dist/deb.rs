//! A Debian package, by dpkg-deb.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Release, stage};
use crate::workspace;

const LIBDIR: &str = "lib/x86_64-linux-gnu";

/// Makes `lwp_VERSION_amd64.deb`.
pub fn package(release: &Release) -> Result<()> {
    let tree = release.out.join("deb");
    stage::install(release, &tree, "/usr", LIBDIR)?;
    // As policy has them: pages compressed, the copyright beside the papers.
    let papers = tree.join("usr/share/doc/lwp");
    fs::write(papers.join("copyright"), copyright(&papers)?)?;
    let mut gzip = Command::new("sh");
    gzip.current_dir(tree.join("usr/share/man"));
    gzip.args(["-c", "find . -type f -name '*.[0-9]*' -exec gzip -9n {} +"]);
    workspace::run(gzip)?;
    let control = tree.join("DEBIAN");
    fs::create_dir_all(&control)?;
    let libraries = ["liblwp.so.1", "libcpc.so.1", "libpctx.so.1"];
    let mut newest = (2, 17);
    for library in libraries {
        newest = newest.max(glibc(&tree.join("usr").join(LIBDIR).join(library))?);
    }
    let size = kibibytes(&tree)?;
    fs::write(control.join("control"), fields(&release.version, newest, size))?;
    fs::write(control.join("triggers"), "activate-noawait ldconfig\n")?;
    fs::write(control.join("shlibs"), "liblwp 1 lwp\nlibcpc 1 lwp\nlibpctx 1 lwp\n")?;
    let mut sums = Command::new("sh");
    sums.current_dir(&tree);
    sums.args(["-c", "find usr -type f -print0 | sort -z | xargs -0 md5sum"]);
    fs::write(control.join("md5sums"), workspace::output(sums)?)?;
    let file = release.out.join(format!("lwp_{}_amd64.deb", release.version));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "--build"]).arg(&tree).arg(file);
    workspace::run(build)?;
    fs::remove_dir_all(tree)?;
    Ok(())
}

fn fields(version: &str, (major, minor): (u32, u32), size: u64) -> String {
    format!(
        "Package: lwp\n\
         Version: {version}\n\
         Architecture: amd64\n\
         Maintainer: the lwp project <lwp@users.noreply.github.com>\n\
         Installed-Size: {size}\n\
         Depends: libc6 (>= {major}.{minor})\n\
         Section: devel\n\
         Priority: optional\n\
         Homepage: https://github.com/lwp-rs/lwp\n\
         Description: exact counts of instructions and branches, and where they arise\n\
         \x20lwp runs unmodified x86-64 programs on a virtual CPU and counts what they\n\
         \x20execute: without hardware counters, also in virtual machines, containers and\n\
         \x20CI jobs. With it come cputrack and cpustat, and the libraries liblwp, libcpc\n\
         \x20and libpctx with headers and manual pages.\n"
    )
}

fn copyright(papers: &Path) -> Result<String> {
    let mit = fs::read_to_string(papers.join("LICENSE-MIT"))?;
    Ok(format!(
        "lwp is distributed under the terms of either the MIT licence or the Apache licence,\n\
         version 2.0, at the user's choice. The latter is in LICENSE-APACHE beside this file.\n\n{mit}"
    ))
}

/// The newest version of the C library that a library asks for.
fn glibc(library: &Path) -> Result<(u32, u32)> {
    let mut readelf = Command::new("readelf");
    readelf.args(["-W", "--version-info"]).arg(library);
    let text = String::from_utf8_lossy(&workspace::output(readelf)?).into_owned();
    Ok(newest_in(&text))
}

fn newest_in(text: &str) -> (u32, u32) {
    let versions = text.split("Name: GLIBC_").skip(1).filter_map(|rest| {
        let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    });
    versions.max().unwrap_or((2, 17))
}

fn kibibytes(tree: &Path) -> Result<u64> {
    let mut du = Command::new("du");
    du.args(["-sk"]).arg(tree);
    let text = String::from_utf8_lossy(&workspace::output(du)?).into_owned();
    Ok(text.split_whitespace().next().and_then(|size| size.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_depended_on() {
        let text =
            "  0x0010:   Name: GLIBC_2.3.4  Flags: none\n  Name: GLIBC_2.34  Flags\n Name: GCC_3.0";
        assert_eq!(newest_in(text), (2, 34));
        assert_eq!(newest_in(""), (2, 17));
        let fields = fields("0.1.0", (2, 34), 9);
        assert!(fields.contains("Depends: libc6 (>= 2.34)\n"));
        // Continued lines begin with a blank.
        let description = fields.split("Description: ").nth(1).unwrap();
        assert!(description.lines().skip(1).all(|line| line.starts_with(' ')), "{description}");
    }
}
