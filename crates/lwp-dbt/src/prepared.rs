//! The routines as the build script has assembled them. At run time, only the low window's address
//! has to be filled in.

use std::borrow::Cow;

use crate::context::Layout;
use crate::routines::{AskRoutines, LwpRoutines, MoveIn, Routines, TouchRoutines};
use crate::state_map::{AppState, Commit, PcSource, Spills};

/// The routines for a low window at 0.
struct Prepared {
    routines: Routines,
    /// The places in the code where the window's address is to be added to four bytes.
    places: &'static [usize],
}

include!(concat!(env!("OUT_DIR"), "/routines.rs"));

/// The routines for address spaces of this layout.
pub(crate) fn routines(layout: Layout) -> Routines {
    placed(if layout.features.wide_index { &WIDE } else { &NARROW }, layout)
}

fn placed(prepared: &Prepared, layout: Layout) -> Routines {
    let mut routines = prepared.routines.clone();
    let code = routines.code.to_mut();
    for &at in prepared.places {
        let word: &mut [u8; 4] = (&mut code[at..at + 4]).try_into().expect("four bytes");
        *word = u32::from_le_bytes(*word).wrapping_add(layout.low as u32).to_le_bytes();
    }
    routines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::TargetFeatures;

    #[test]
    fn prepared_routines_are_those_that_are_assembled() {
        for low in [0x7000_0000, 0x7200_0000, 0x7e00_0000] {
            for (prepared, wide_index) in [(&NARROW, false), (&WIDE, true)] {
                let features = TargetFeatures { wide_index, bit_extract: wide_index };
                let layout = Layout { low, features };
                let assembled = crate::assembly::assemble(layout).unwrap();
                assert_eq!(placed(prepared, layout), assembled);
                assert!(!prepared.places.is_empty());
            }
        }
    }
}
