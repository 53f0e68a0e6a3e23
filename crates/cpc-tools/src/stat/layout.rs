//! Specifications and processors that the columns and rows of a run stand for. A recording begins
//! with them.
//!
//! Promise: T10

use std::path::Path;

use crate::sets::Template;

/// The directory in which Linux describes processors.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The columns of one specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columned {
    /// The specification as written.
    pub text: String,
    /// The numbers of its counters, in the order of the columns.
    pub pics: Vec<u32>,
}

/// A processor, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub cpu: u32,
    /// Its core, numbered through all sockets.
    pub core: u32,
    /// Its socket.
    pub socket: u32,
}

/// Specifications and processors of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// In the order of the command line.
    pub specs: Vec<Columned>,
    /// In the order of their numbers.
    pub cpus: Vec<Place>,
}

impl Layout {
    /// The layout of a run on this machine.
    pub fn new(templates: &[Template], cpus: &[u32]) -> Self {
        let spec = |template: &Template| Columned {
            text: template.text().to_owned(),
            pics: template.pics().to_vec(),
        };
        Self {
            specs: templates.iter().map(spec).collect(),
            cpus: places(Path::new(PROCESSORS), cpus),
        }
    }

    /// The counters of the widest specification, for the title.
    pub fn widest(&self) -> &[u32] {
        let widest = self.specs.iter().max_by_key(|spec| spec.pics.len());
        widest.map_or(&[], |spec| &spec.pics)
    }
}

/// Returns the core and socket of each of `cpus`, as described below `root`. A processor that is
/// not described there is the core of its own number, in socket 0.
///
/// Spec: Linux, Documentation/admin-guide/cputopology.rst: core_id is unique only within a package.
fn places(root: &Path, cpus: &[u32]) -> Vec<Place> {
    let told = |cpu: u32, name: &str| -> Option<u32> {
        let path = root.join(format!("cpu{cpu}/topology/{name}"));
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let where_is = |cpu: &u32| {
        let socket = told(*cpu, "physical_package_id").unwrap_or(0);
        (socket, told(*cpu, "core_id").unwrap_or(*cpu))
    };
    let mut cores: Vec<(u32, u32)> = cpus.iter().map(where_is).collect();
    cores.sort_unstable();
    cores.dedup();
    let place = |cpu: &u32| {
        let at = where_is(cpu);
        let core = cores.binary_search(&at).map_or(0, |core| core as u32);
        Place { cpu: *cpu, core, socket: at.0 }
    };
    cpus.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_numbered_through_all_sockets() {
        let root = std::env::temp_dir().join(format!("cpustat-topology-{}", std::process::id()));
        for (cpu, (socket, core)) in [(0, 0), (0, 4), (0, 0), (1, 0)].into_iter().enumerate() {
            let folder = root.join(format!("cpu{cpu}/topology"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("physical_package_id"), format!("{socket}\n")).unwrap();
            std::fs::write(folder.join("core_id"), format!("{core}\n")).unwrap();
        }
        let places = places(&root, &[0, 1, 2, 3, 9]);
        std::fs::remove_dir_all(&root).unwrap();
        let found: Vec<_> = places.iter().map(|place| (place.core, place.socket)).collect();
        assert_eq!(found, [(0, 0), (1, 0), (0, 0), (3, 1), (2, 0)]);
    }
}
