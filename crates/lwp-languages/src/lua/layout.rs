//! Places of what is read of Lua's objects, by release.

/// Distances in bytes, kinds, and the form of instructions, from the sources of a release.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// `lua_State`: whether it has been left.
    pub status: u64,
    /// `CallInfo`: the next instruction, flags.
    pub instruction: u64,
    pub flags: u64,
    /// Flags: the function is in Lua, where it has this bit as the other says; the evaluator was
    /// called for it.
    pub kind: u16,
    pub kind_of_lua: u16,
    pub fresh: u16,
    /// The type of a `Proto`.
    pub prototype: u8,
    /// `Proto`: the line, constants, instructions, lines, local variables, upvalues, source.
    pub line: u64,
    pub constants: u64,
    pub code: u64,
    pub lines: u64,
    pub locals: u64,
    pub upvalues: u64,
    pub source: u64,
    /// Lines are differences to those before, with a list of absolute ones, here.
    pub absolutes: Option<Absolutes>,
    /// Operations.
    pub operations: Operations,
    /// Bits of an operation; first bits of the operands B and C, and how many each has; the bit of
    /// C without which it is a register.
    pub operation_bits: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    pub operand_bits: u32,
    pub constant: u32,
}

/// `Proto`: how many absolute lines, and those.
#[derive(Debug, PartialEq, Eq)]
pub struct Absolutes {
    pub count: u64,
    pub list: u64,
}

/// Numbers of operations.
#[derive(Debug, PartialEq, Eq)]
pub struct Operations {
    pub copy: u32,
    pub get_upvalue: u32,
    pub get_global: u32,
    /// With a field's name.
    pub get_field: u32,
    pub get_method: u32,
    pub call: u32,
    pub tail_call: u32,
}

/// Lua 5.4.
pub static LUA_5_4: Layout = Layout {
    status: 10,
    instruction: 32,
    flags: 62,
    kind: 1 << 1,
    kind_of_lua: 0,
    fresh: 1 << 2,
    prototype: 10,
    line: 44,
    constants: 56,
    code: 64,
    upvalues: 80,
    lines: 88,
    locals: 104,
    source: 112,
    absolutes: Some(Absolutes { count: 40, list: 96 }),
    operations: Operations {
        copy: 0,
        get_upvalue: 9,
        get_global: 11,
        get_field: 14,
        get_method: 20,
        call: 68,
        tail_call: 69,
    },
    operation_bits: 7,
    a: 7,
    b: 16,
    c: 24,
    operand_bits: 8,
    constant: 0,
};

/// Lua 5.3.3 and later.
pub static LUA_5_3: Layout = Layout {
    status: 12,
    instruction: 40,
    flags: 66,
    kind: 1 << 1,
    kind_of_lua: 1 << 1,
    fresh: 1 << 3,
    prototype: 9,
    line: 40,
    constants: 48,
    code: 56,
    lines: 72,
    locals: 80,
    upvalues: 88,
    source: 104,
    absolutes: None,
    operations: Operations {
        copy: 0,
        get_upvalue: 5,
        get_global: 6,
        get_field: 7,
        get_method: 12,
        call: 36,
        tail_call: 37,
    },
    operation_bits: 6,
    a: 6,
    b: 23,
    c: 14,
    operand_bits: 9,
    constant: 1 << 8,
};
