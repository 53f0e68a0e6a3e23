//! HotSpot's description of its own layout.
//!
//! Each table is a list of rows of one size, up to a row without a name. Where the rows have what,
//! variables beside the table tell. All of it is read from the memory of the process: the dynamic
//! linker has put addresses there.

use object::read::ReadRef;

use crate::Memory;
use crate::file::File;
use crate::functions::text_to_zero;

/// Symbols that are looked for: three tables, and where their rows have what.
pub const NAMES: [&str; 14] = [
    "gHotSpotVMStructs",
    "gHotSpotVMStructEntryArrayStride",
    "gHotSpotVMStructEntryTypeNameOffset",
    "gHotSpotVMStructEntryFieldNameOffset",
    "gHotSpotVMStructEntryOffsetOffset",
    "gHotSpotVMStructEntryAddressOffset",
    "gHotSpotVMTypes",
    "gHotSpotVMTypeEntryArrayStride",
    "gHotSpotVMTypeEntryTypeNameOffset",
    "gHotSpotVMTypeEntrySizeOffset",
    "gHotSpotVMIntConstants",
    "gHotSpotVMIntConstantEntryArrayStride",
    "gHotSpotVMIntConstantEntryNameOffset",
    "gHotSpotVMIntConstantEntryValueOffset",
];

/// Most rows of a table, and most bytes of a row.
const ROWS: u64 = 1 << 13;
const ROW: u64 = 1 << 10;

/// The file's addresses of [`NAMES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exports([u64; NAMES.len()]);

impl Exports {
    /// The addresses that `file` exports; `None` unless it exports all of them.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        let mut addresses = [0; NAMES.len()];
        for (address, name) in addresses.iter_mut().zip(NAMES) {
            *address = file.at(name)?;
        }
        Some(Self(addresses))
    }

    /// Addresses of no file.
    #[cfg(test)]
    pub fn nowhere() -> Self {
        Self(std::array::from_fn(|at| 0x100 + 8 * at as u64))
    }

    /// The value of the variable with this index among [`NAMES`].
    fn value(&self, index: usize, bias: u64, memory: &mut dyn Memory) -> Option<u64> {
        memory.word(self.0[index].wrapping_add(bias))
    }
}

/// Distances in bytes of everything that is read of HotSpot's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The address of `AbstractInterpreter::_code`.
    pub code: u64,
    /// `StubQueue`: where its code begins, and how much it is.
    pub buffer: u64,
    pub buffer_size: u64,
    /// `Method`: what does not change about it.
    pub constant: u64,
    /// `ConstMethod`: constants, flags, bytes of code, the index of the name; its size, behind which
    /// the code is.
    pub pool: u64,
    pub flags: u64,
    pub code_size: u64,
    pub name: u64,
    pub constant_size: u64,
    /// The flag that a table of lines follows the code.
    pub has_lines: u32,
    /// `ConstantPool`: the class, the number of constants, the index of the source file's name; its
    /// size, behind which the constants are.
    pub holder: u64,
    pub pool_length: u64,
    pub source: u64,
    pub pool_size: u64,
    /// `InstanceKlass`: constants, name.
    pub holder_pool: u64,
    pub class_name: u64,
    /// `Symbol`: bytes, and where they begin.
    pub symbol_length: u64,
    pub symbol_text: u64,
    /// The release.
    pub release: u32,
}

impl Layout {
    /// Reads the description of a file whose addresses are `bias` less than those of the process;
    /// `None` where it is not complete.
    pub fn read(exports: &Exports, bias: u64, memory: &mut dyn Memory) -> Option<Self> {
        let mut layout = Self::default();
        let release = layout.fields(exports, bias, memory)?;
        layout.release = memory.half(release)?;
        layout.sizes(exports, bias, memory)?;
        layout.has_lines = flag(exports, bias, memory)?;
        Some(layout)
    }

    /// The place for the distance of a field.
    fn field(&mut self, class: &str, field: &str) -> Option<&mut u64> {
        Some(match (class, field) {
            ("StubQueue", "_stub_buffer") => &mut self.buffer,
            ("StubQueue", "_buffer_limit") => &mut self.buffer_size,
            ("Method", "_constMethod") => &mut self.constant,
            ("ConstMethod", "_constants") => &mut self.pool,
            ("ConstMethod", "_flags" | "_flags._flags") => &mut self.flags,
            ("ConstMethod", "_code_size") => &mut self.code_size,
            ("ConstMethod", "_name_index") => &mut self.name,
            ("ConstantPool", "_pool_holder") => &mut self.holder,
            ("ConstantPool", "_length") => &mut self.pool_length,
            ("ConstantPool", "_source_file_name_index") => &mut self.source,
            ("InstanceKlass", "_constants") => &mut self.holder_pool,
            ("Klass", "_name") => &mut self.class_name,
            ("Symbol", "_length") => &mut self.symbol_length,
            ("Symbol", "_body" | "_body[0]") => &mut self.symbol_text,
            _ => return None,
        })
    }

    /// Distances of fields, and the address of the interpreter; returns that of the release.
    fn fields(&mut self, exports: &Exports, bias: u64, memory: &mut dyn Memory) -> Option<u64> {
        let [class_at, field_at, offset_at, address_at] =
            places([2, 3, 4, 5], exports, bias, memory)?;
        let (mut missing, mut release) = (14, 0);
        for row in rows(0, class_at, (exports, bias), memory)? {
            let class = name(row.checked_add(class_at)?, memory)?;
            // Statics have an address of their own.
            match class.as_str() {
                "AbstractInterpreter" if name(row.checked_add(field_at)?, memory)? == "_code" => {
                    self.code = memory.pointer(row.checked_add(address_at)?)?;
                }
                "Abstract_VM_Version"
                    if name(row.checked_add(field_at)?, memory)? == "_vm_major_version" =>
                {
                    release = memory.pointer(row.checked_add(address_at)?)?;
                }
                "StubQueue" | "Method" | "ConstMethod" | "ConstantPool" | "InstanceKlass"
                | "Klass" | "Symbol" => {
                    let field = name(row.checked_add(field_at)?, memory)?;
                    let offset = memory.word(row.checked_add(offset_at)?)?;
                    let Some(place) = self.field(&class, &field) else { continue };
                    *place = offset;
                    // The same place has two names in some releases.
                    missing -= i32::from(field != "_body");
                }
                _ => {}
            }
        }
        (missing == 0 && self.code != 0 && release != 0).then_some(release)
    }

    /// Sizes of what others lie behind.
    fn sizes(&mut self, exports: &Exports, bias: u64, memory: &mut dyn Memory) -> Option<()> {
        let [name_at, size_at] = places([8, 9], exports, bias, memory)?;
        for row in rows(6, name_at, (exports, bias), memory)? {
            let place = match name(row.checked_add(name_at)?, memory)?.as_str() {
                "ConstMethod" => &mut self.constant_size,
                "ConstantPool" => &mut self.pool_size,
                _ => continue,
            };
            *place = memory.word(row.checked_add(size_at)?)?;
        }
        (self.constant_size != 0 && self.pool_size != 0).then_some(())
    }
}

/// The flag of a `ConstMethod` that has a table of lines.
fn flag(exports: &Exports, bias: u64, memory: &mut dyn Memory) -> Option<u32> {
    let [name_at, value_at] = places([12, 13], exports, bias, memory)?;
    let flags =
        ["ConstMethod::_has_linenumber_table", "ConstMethodFlags::_misc_has_linenumber_table"];
    for row in rows(10, name_at, (exports, bias), memory)? {
        if flags.contains(&name(row.checked_add(name_at)?, memory)?.as_str()) {
            return memory.half(row.checked_add(value_at)?);
        }
    }
    None
}

/// The places in a row that these variables tell.
fn places<const N: usize>(
    indexes: [usize; N],
    exports: &Exports,
    bias: u64,
    memory: &mut dyn Memory,
) -> Option<[u64; N]> {
    let mut places = [0; N];
    for (place, index) in places.iter_mut().zip(indexes) {
        *place = exports.value(index, bias, memory).filter(|it| *it < ROW)?;
    }
    Some(places)
}

/// Addresses of the rows of the table that these variables have: the first, and how far apart they
/// are. A row without a name ends it.
fn rows(
    table: usize,
    name_at: u64,
    (exports, bias): (&Exports, u64),
    memory: &mut dyn Memory,
) -> Option<Vec<u64>> {
    let first = exports.value(table, bias, memory).filter(|it| *it != 0)?;
    let stride = exports.value(table + 1, bias, memory).filter(|it| (8..ROW).contains(it))?;
    let mut rows = Vec::new();
    for index in 0..ROWS {
        let row = first.checked_add(index * stride)?;
        if memory.word(row.checked_add(name_at)?)? == 0 {
            return Some(rows);
        }
        rows.push(row);
    }
    None
}

/// The text that the address at `at` leads to.
fn name(at: u64, memory: &mut dyn Memory) -> Option<String> {
    text_to_zero(memory.pointer(at)?, memory)
}
