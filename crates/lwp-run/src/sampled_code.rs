//! The code that is sampled: the IP filter of sampled recordings.
//!
//! Addresses are compared as LWP's own filter compares them. Code of a file is named by its place
//! in the file: where the file is mapped, in whichever process, there are the addresses. So the
//! filter is a matter of every unit of translation ([`lwp_dbt::Unit::filter`]), and code of other
//! files knows nothing of it.

use std::os::unix::fs::MetadataExt;

use lwp_dbt::IpFilter;
use lwp_process::Tid;
use lwp_process::maps::Mapping;

/// The code that is sampled.
///
/// Spec: LWP §3.3, BaseIP, LimitIP, IPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledCode {
    /// Its place.
    pub place: CodePlace,
    /// All other code is sampled instead.
    pub inverted: bool,
}

/// A range of code; both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodePlace {
    /// These addresses in every process.
    Addresses {
        /// BaseIP.
        base: u64,
        /// LimitIP.
        limit: u64,
    },
    /// Bytes of a file, wherever a process has it mapped.
    File {
        /// The file's device, as [`std::fs::Metadata`] has it.
        device: u64,
        /// Its inode.
        inode: u64,
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte.
        last: u64,
    },
}

impl SampledCode {
    /// The filter of all code, where that can be said.
    pub fn everywhere(&self) -> Option<IpFilter> {
        match self.place {
            CodePlace::Addresses { base, limit } => {
                Some(IpFilter { base, limit, inverted: self.inverted })
            }
            CodePlace::File { .. } => None,
        }
    }

    /// The filter of code that does not belong to the file.
    pub fn elsewhere(&self) -> IpFilter {
        // No address lies in it.
        self.everywhere().unwrap_or(IpFilter { base: 1, limit: 0, inverted: self.inverted })
    }

    /// The filter of code of `mapping`, one of thread `tid`'s, if what is sampled begins in it.
    pub fn in_mapping(&self, tid: Tid, mapping: &Mapping) -> Option<IpFilter> {
        let CodePlace::File { device, inode, first, last } = self.place else { return None };
        let offsets = mapping.offset..mapping.offset + (mapping.end - mapping.start);
        if mapping.inode != inode || !offsets.contains(&first) {
            return None;
        }
        // The mapping's own device number is not always that of the file's metadata.
        let file = mapping.open(tid)?.metadata().ok()?;
        let address = |offset: u64| mapping.start.wrapping_sub(mapping.offset).wrapping_add(offset);
        let filter =
            IpFilter { base: address(first), limit: address(last), inverted: self.inverted };
        ((file.dev(), file.ino()) == (device, inode)).then_some(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_a_file_is_found_where_it_is_mapped() {
        let exe = std::env::current_exe().expect("a path");
        let file = std::fs::metadata(&exe).expect("a file");
        let own = std::process::id() as Tid;
        let mappings = lwp_process::maps::read(own);
        let mapping = mappings.iter().find(|it| it.execute && it.inode == file.ino());
        let mapping = mapping.expect("the program is mapped");
        let place = CodePlace::File {
            device: file.dev(),
            inode: file.ino(),
            first: mapping.offset + 0x234,
            last: mapping.offset + 0x240,
        };
        let code = SampledCode { place, inverted: false };
        let filter = code.in_mapping(own, mapping).expect("it is the file");
        let start = mapping.start;
        assert_eq!((filter.base, filter.limit), (start + 0x234, start + 0x240));
        // Other files, and other parts of this one.
        for other in mappings.iter().filter(|it| it.execute && **it != *mapping) {
            assert_eq!(code.in_mapping(own, other), None);
        }
    }

    #[test]
    fn what_belongs_to_no_file_is_sampled_only_if_inverted() {
        let place = CodePlace::File { device: 1, inode: 2, first: 0, last: u64::MAX };
        let at = |inverted| SampledCode { place, inverted }.elsewhere();
        for ip in [0, 1, 0x40_0000, u64::MAX] {
            assert!(!at(false).admits(ip) && at(true).admits(ip));
        }
        let place = CodePlace::Addresses { base: 5, limit: 9 };
        let filter = SampledCode { place, inverted: false }.elsewhere();
        assert!(filter.admits(5) && filter.admits(9) && !filter.admits(10));
    }
}
