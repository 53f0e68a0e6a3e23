//! Names of generated code, by process and address.

use std::collections::BTreeMap;

use lwp_profile::RecordedSymbol;

/// A lookup of names of generated code. Where ranges overlap, the later name counts.
#[derive(Clone, Debug, Default)]
pub struct Generated {
    by_start: BTreeMap<u64, RecordedSymbol>,
}

impl Generated {
    /// Names of one recording. Addresses of different processes are told apart only by what was
    /// mapped where; the last one to name an address wins.
    pub fn new(symbols: &[RecordedSymbol]) -> Self {
        let by_start = symbols.iter().map(|symbol| (symbol.address, symbol.clone())).collect();
        Self { by_start }
    }

    /// The name at `address`.
    pub fn at(&self, address: u64) -> Option<&RecordedSymbol> {
        let mut before = self.by_start.range(..=address).rev().take(4);
        before.find_map(|(start, symbol)| (address - start < symbol.size).then_some(symbol))
    }
}
