//! The kernel's own shared object, which no file holds: every process has the same.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// The vdso of this process, which is every process's as long as the kernel is the same.
pub fn vdso_bytes() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let mut memory = File::open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = vec![0; usize::try_from(end - start).ok()?];
    memory.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_vdso_is_an_elf_file_with_functions() {
        // Some sandboxes have none.
        let Some(bytes) = super::vdso_bytes() else { return };
        let elf = crate::Elf::parse(&bytes).expect("ELF");
        assert!(elf.export("__vdso_clock_gettime").is_some());
    }
}
