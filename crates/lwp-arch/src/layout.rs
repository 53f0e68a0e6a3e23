//! The `layout!` macro: a memory image written down twice and compared by the compiler.

/// Declares a little-endian memory image whose offsets come from the document and are checked against
/// the ones the compiler computes. A build with a wrong offset stops and names the field.
///
/// Input:
///
/// ```text
/// layout! {
///     /// Doc.
///     pub struct Pair: 0x08 {
///         /// Doc.
///         0x00 => pub left: U32,
///         0x04 => right: U32,
///     }
/// }
/// ```
///
/// Output: the `#[repr(C)]` struct `Pair` with zerocopy's byte conversions, the table `Pair::FIELDS`
/// of `(name, offset, length)`, `Pair::SIZE`, and one constant assertion per field plus one for the
/// size. All field types are unaligned, so an image may lie at any address.
macro_rules! layout {
    ($(#[$meta:meta])* $vis:vis struct $Name:ident: $size:literal {
        $( $(#[$fmeta:meta])* $off:literal => $fvis:vis $field:ident: $ty:ty, )*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes,
                 zerocopy::Immutable, zerocopy::KnownLayout, zerocopy::Unaligned)]
        #[repr(C)]
        $vis struct $Name { $( $(#[$fmeta])* $fvis $field: $ty, )* }

        impl $Name {
            /// Length of the image in bytes.
            pub const SIZE: usize = $size;

            /// `(name, byte offset, byte length)` of every field, in order.
            pub const FIELDS: &'static [(&'static str, usize, usize)] =
                &[ $( (stringify!($field), $off, size_of::<$ty>()), )* ];
        }

        impl Default for $Name {
            /// The image of all zero bytes.
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        const _: () = {
            assert!(size_of::<$Name>() == $size);
            $( assert!(core::mem::offset_of!($Name, $field) == $off); )*
        };
    };
}
