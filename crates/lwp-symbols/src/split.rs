//! Split DWARF: the linked file has lines and addresses, the names and inlined functions of each
//! compilation unit lie in a `.dwo` file beside its object, or all of them in a `.dwp` package
//! beside the program.
//!
//! Spec: DWARF 5, 7.3.2 and appendix F; the GNU extension to DWARF 4 is read too.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::SplitDwarfLoad;
use gimli::{DwarfPackage, Reader as _};

use crate::dwarf::{Reader, Sections};
use crate::files::Files;

/// The split part of a file's debug information, of which each unit is read when it is asked for.
#[derive(Default)]
pub struct Split {
    /// The file with the other part, and the program, if that is another one.
    places: Vec<PathBuf>,
    package: OnceCell<Option<DwarfPackage<Reader>>>,
    missing: RefCell<BTreeSet<PathBuf>>,
}

impl Split {
    /// Returns the split files of the file at `path`, which has the debug information of `program`.
    pub fn of(path: &Path, program: &Path) -> Self {
        let mut places = vec![path.to_owned()];
        if program != path {
            places.push(program.to_owned());
        }
        let real: Vec<PathBuf> = places.iter().filter_map(|it| it.canonicalize().ok()).collect();
        for path in real {
            if !places.contains(&path) {
                places.push(path);
            }
        }
        Self { places, ..Self::default() }
    }

    /// The unit that is asked for; `None` where it is not to be had, which [`Self::missing`] tells.
    pub fn load(
        &self,
        wanted: SplitDwarfLoad<Reader>,
        files: &Files<'_>,
    ) -> Option<Arc<gimli::Dwarf<Reader>>> {
        let package = self.package.get_or_init(|| self.package(files));
        let packed =
            package.as_ref().and_then(|it| it.find_cu(wanted.dwo_id, &wanted.parent).ok()?);
        if let Some(unit) = packed {
            return Some(Arc::new(unit));
        }
        let path = text(wanted.path.as_ref()?)?;
        let dir = wanted.comp_dir.as_ref().and_then(text).unwrap_or_default();
        let found = files.first(&self.objects(&dir, &path, files.debug_roots), |_, bytes| {
            let sections = Sections::of(bytes)?;
            let mut unit = gimli::Dwarf::load(|id| sections.section(id.dwo_name())).ok()?;
            let header = unit.units().next().ok()??;
            let same = unit.unit(header).ok()?.dwo_id == Some(wanted.dwo_id);
            unit.make_dwo(&wanted.parent);
            same.then(|| Arc::new(unit))
        });
        if found.is_none() {
            self.missing.borrow_mut().insert(path);
        }
        found
    }

    /// Files that were looked for in vain.
    pub fn missing(&self) -> BTreeSet<PathBuf> {
        self.missing.borrow().clone()
    }

    fn package(&self, files: &Files<'_>) -> Option<DwarfPackage<Reader>> {
        files.first(&self.packages(files.debug_roots), |_, bytes| {
            let sections = Sections::of(bytes)?;
            let load = |id: gimli::SectionId| sections.section(id.dwo_name());
            let package = DwarfPackage::load(load, Sections::empty()).ok()?;
            (package.cu_index.unit_count() > 0).then_some(package)
        })
    }

    /// Returns the places where a package may be.
    fn packages(&self, roots: &[PathBuf]) -> Vec<PathBuf> {
        let mut out = Vec::new();
        for path in &self.places {
            out.push(with_suffix(path));
            // What was stripped into program.debug was linked as program.
            if path.extension().is_some_and(|extension| extension == "debug") {
                out.push(with_suffix(&path.with_extension("")));
            }
        }
        for path in &self.places {
            let inside = path.strip_prefix("/").unwrap_or(path);
            out.extend(roots.iter().map(|root| with_suffix(&root.join(inside))));
        }
        out
    }

    /// Returns the places of the unit called `path`, which was compiled in `dir`: there, or where
    /// the program has been taken to together with it.
    fn objects(&self, dir: &Path, path: &Path, roots: &[PathBuf]) -> Vec<PathBuf> {
        let there = dir.join(path);
        let inside = there.strip_prefix("/").unwrap_or(&there).to_owned();
        let mut out = vec![there];
        for beside in self.places.iter().filter_map(|place| place.parent()) {
            out.push(beside.join(path));
            out.extend(path.file_name().map(|name| beside.join(name)));
        }
        out.extend(roots.iter().map(|root| root.join(&inside)));
        out
    }
}

fn with_suffix(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".dwp");
    name.into()
}

fn text(reader: &Reader) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = reader.to_slice().ok()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_looked_for_where_they_were_compiled_and_beside_the_program() {
        let split = Split::of(Path::new("/p/a.debug"), Path::new("/q/a"));
        let paths = split.objects(Path::new("/src"), Path::new("o/x.dwo"), &["/r".into()]);
        let expected =
            ["/src/o/x.dwo", "/p/o/x.dwo", "/p/x.dwo", "/q/o/x.dwo", "/q/x.dwo", "/r/src/o/x.dwo"];
        assert_eq!(paths, expected.map(PathBuf::from));
        let packages = split.packages(&["/r".into()]);
        let expected = ["/p/a.debug.dwp", "/p/a.dwp", "/q/a.dwp", "/r/p/a.debug.dwp", "/r/q/a.dwp"];
        assert_eq!(packages, expected.map(PathBuf::from));
    }
}
