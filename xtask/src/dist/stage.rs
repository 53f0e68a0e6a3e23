//! Files where they are installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::Release;
use crate::workspace::{self, root};

/// The commands.
const COMMANDS: [&str; 4] = ["lwp", "cargo-lwp", "cputrack", "cpustat"];
/// Shells, where each looks for completions, and the name that it expects.
const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "share/bash-completion/completions", "lwp"),
    ("zsh", "share/zsh/site-functions", "_lwp"),
    ("fish", "share/fish/vendor_completions.d", "lwp.fish"),
];

/// Puts a release's files below `prefix` in `destination`; libraries go to `libdir` below that.
pub fn install(release: &Release, destination: &Path, prefix: &str, libdir: &str) -> Result<()> {
    let place = destination.join(prefix.trim_start_matches('/'));
    fs::create_dir_all(place.join("bin"))?;
    for command in COMMANDS {
        let to = place.join("bin").join(command);
        let from = release.commands.join(command);
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    }
    let lwp = place.join("bin/lwp");
    let pages = place.join("share/man/man1");
    fs::create_dir_all(&pages)?;
    let mut man = Command::new(&lwp);
    man.arg("man").arg(&pages);
    workspace::run(man)?;
    for page in ["cputrack.1", "cpustat.1"] {
        fs::copy(root().join("crates/cpc-tools/man").join(page), pages.join(page))?;
    }
    for (shell, folder, name) in SHELLS {
        let mut completions = Command::new(&lwp);
        completions.args(["completions", shell]);
        let folder = place.join(folder);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), workspace::output(completions)?)?;
    }
    let mut script = Command::new("sh");
    script.arg(root().join("crates/lwp-cpc/install.sh")).arg(&release.libraries);
    script.env("DESTDIR", destination).env("PREFIX", prefix);
    script.env("LIBDIR", format!("{prefix}/{libdir}")).env("COMMANDS", "");
    workspace::run(script)?;
    let papers = place.join("share/doc/lwp");
    fs::create_dir_all(&papers)?;
    for paper in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root().join(paper), papers.join(paper))?;
    }
    Ok(())
}

/// Packs a tree that can be unpacked anywhere.
pub fn tarball(release: &Release) -> Result<()> {
    let name = release.name();
    let stage = release.out.join("stage");
    install(release, &stage, &format!("/{name}"), "lib")?;
    for file in fs::read_dir(stage.join(&name).join("lib/pkgconfig"))? {
        let file = file?.path();
        fs::write(&file, relocatable(&fs::read_to_string(&file)?))?;
    }
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--sort=name", "-C"]).arg(&stage).arg("-czf");
    tar.arg(release.out.join(format!("{name}.tar.gz"))).arg(&name);
    workspace::run(tar)?;
    fs::remove_dir_all(stage)?;
    Ok(())
}

/// A pkg-config file that says where it is by itself.
fn relocatable(text: &str) -> String {
    let line = |line: &str| match line.split_once('=').map(|(name, _)| name) {
        Some("prefix") => "prefix=${pcfiledir}/../..\n".to_owned(),
        Some("libdir") => "libdir=${prefix}/lib\n".to_owned(),
        Some("includedir") => "includedir=${prefix}/include\n".to_owned(),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The root directory of a container's image, as `packaging/Dockerfile` copies it.
pub fn image(release: &Release) -> Result<()> {
    let image = release.out.join("image");
    fs::create_dir_all(image.join("usr/bin"))?;
    for command in COMMANDS {
        fs::copy(release.commands.join(command), image.join("usr/bin").join(command))?;
    }
    for folder in ["proc", "tmp", "work"] {
        fs::create_dir_all(image.join(folder))?;
    }
    fs::set_permissions(image.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    fs::copy(root().join("packaging/Dockerfile"), release.out.join("Dockerfile"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_config_files_move_with_their_tree() {
        let text = "prefix=/x\nlibdir=/x/lib\nincludedir=/x/include\n\nName: lwp\nLibs: -L${libdir} -llwp\n";
        let moved = relocatable(text);
        assert!(moved.starts_with("prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\n"), "{moved}");
        assert!(moved.ends_with("\nName: lwp\nLibs: -L${libdir} -llwp\n"), "{moved}");
        assert!(!moved.contains("/x"), "{moved}");
    }
}
