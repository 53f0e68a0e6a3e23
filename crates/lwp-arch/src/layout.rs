//! The `layout!` macro: memory images whose offsets the compiler checks.

/// Declares a little-endian memory image with the offsets that the document gives. The compiler
/// checks them against the ones that it computes: with a wrong offset, the build fails and names
/// the field.
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
/// Output: the `#[repr(C)]` struct `Pair` with zerocopy's byte conversions, the table
/// `Pair::FIELDS` of `(name, offset, length)`, `Pair::SIZE`, conversions from and to bytes, and one
/// constant assertion per field plus one for the size. All field types are unaligned, so an image
/// may lie at any address.
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

            /// Returns the image with these bytes. Every bit pattern is valid.
            pub fn from_bytes(bytes: &[u8; $size]) -> Self {
                // The length is right by type, so the read succeeds.
                zerocopy::FromBytes::read_from_bytes(bytes).unwrap_or_default()
            }

            /// Returns the image at the start of `bytes`, or `None` if there are too few.
            pub fn from_prefix(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(Self::from_bytes)
            }

            /// The bytes of this image.
            pub fn to_bytes(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                bytes.copy_from_slice(zerocopy::IntoBytes::as_bytes(self));
                bytes
            }
        }

        impl Default for $Name {
            /// An image of zero bytes.
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
