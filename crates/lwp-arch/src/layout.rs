//! The `layout!` macro: a memory image written down twice and compared by the compiler.

/// Declares a little-endian memory image whose offsets come from the document and are checked
/// against the ones the compiler computes. A build with a wrong offset stops and names the field.
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

            /// The image these bytes are. Any bit pattern is one.
            pub fn from_bytes(bytes: &[u8; $size]) -> Self {
                // The length is right by type, so the read succeeds.
                zerocopy::FromBytes::read_from_bytes(bytes).unwrap_or_default()
            }

            /// The image at the start of `bytes`, or `None` if they are too few.
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
