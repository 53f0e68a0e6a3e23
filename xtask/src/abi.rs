//! The C libraries export what their lists say: every symbol with its version, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// A library: its package, the file cargo makes, its name for the loader.
struct Library {
    package: &'static str,
    file: &'static str,
    soname: &'static str,
}

#[rustfmt::skip] // A table: one library a line.
const LIBRARIES: &[Library] = &[
    Library { package: "lwp-capi", file: "liblwp_capi.so", soname: "liblwp.so.1" },
    Library { package: "lwp-cpc",  file: "liblwp_cpc.so",  soname: "libcpc.so.1" },
    Library { package: "lwp-pctx", file: "liblwp_pctx.so", soname: "libpctx.so.1" },
];

/// Builds the workspace and compares every library of it with the list in `abi/` of its crate.
pub fn check() -> Result<()> {
    let mut faults = Vec::new();
    workspace::build()?;
    for library in LIBRARIES {
        let file = workspace::target().join("debug").join(library.file);
        let symbols = readelf("--dyn-syms", &file)?;
        let list = library.soname.replace(".so.1", ".syms");
        let list = workspace::root().join("crates").join(library.package).join("abi").join(list);
        let list =
            fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
        faults.extend(differences(library.soname, &exported(&symbols), &list));
        if !readelf("-d", &file)?.contains(&format!("[{}]", library.soname)) {
            faults.push(format!("{}: another soname", library.soname));
        }
    }
    if !faults.is_empty() {
        bail!("{}\n  (a list changes only together with the interface)", faults.join("\n  "));
    }
    Ok(())
}

fn readelf(option: &str, file: &Path) -> Result<String> {
    let output = Command::new("readelf").args(["-W", option]).arg(file).output();
    let output = output.context("cannot run readelf")?;
    if !output.status.success() {
        bail!("readelf {option} {}: {}", file.display(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The symbols that a table of readelf defines, names of versions left out.
fn exported(table: &str) -> BTreeSet<&str> {
    let defined = table.lines().filter(|line| line.contains(" GLOBAL "));
    let defined = defined.filter(|line| !line.contains(" UND ") && !line.contains(" OBJECT "));
    defined.filter_map(|line| line.split_whitespace().nth(7)).collect()
}

/// Returns the names that only `exported` or only the list has.
fn differences(library: &str, exported: &BTreeSet<&str>, list: &str) -> Vec<String> {
    let list: BTreeSet<&str> = list.lines().collect();
    let missing = list.difference(exported).map(|name| format!("{library}: no {name}"));
    let added = exported.difference(&list).map(|name| format!("{library}: {name} is not listed"));
    missing.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND malloc@GLIBC_2.2.5 (2)
     2: 0000000000001000    10 FUNC    GLOBAL DEFAULT   12 cpc_open@@SUNW_1.2
     3: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  ABS SUNW_1.2
     4: 0000000000001100    10 FUNC    LOCAL  DEFAULT   12 hidden
";

    #[test]
    fn only_defined_global_functions_are_exported() {
        assert_eq!(exported(TABLE), BTreeSet::from(["cpc_open@@SUNW_1.2"]));
    }

    #[test]
    fn both_kinds_of_difference_are_found() {
        let exported = exported(TABLE);
        assert!(differences("x", &exported, "cpc_open@@SUNW_1.2\n").is_empty());
        let faults = differences("x", &exported, "cpc_open@@SUNW_1.3\n");
        assert_eq!(faults, ["x: no cpc_open@@SUNW_1.3", "x: cpc_open@@SUNW_1.2 is not listed"]);
    }
}
