//! Places of what is read of Lua's objects, by release.

/// Distances in bytes, kinds, and the form of instructions, from the sources of a release.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// `lua_State`: whether it has been left, what all states share.
    pub status: u64,
    pub shared: u64,
    /// The form of a state's calls.
    pub calls: Calls,
    /// `CallInfo`: the place of the function, the next instruction.
    pub function: u64,
    pub instruction: u64,
    /// The kind of a value that is a function in Lua, and where its closure says so once more,
    /// where it does; the place of the closure's prototype.
    pub lua_function: u8,
    pub in_c: Option<u64>,
    pub closure: u64,
    /// The type of a `Proto`.
    pub prototype: u8,
    /// `Proto`: how many instructions, lines, upvalues, constants and local variables.
    pub code_count: u64,
    pub line_count: u64,
    pub upvalue_count: u64,
    pub constant_count: u64,
    pub local_count: u64,
    /// Bytes of what says an upvalue's name.
    pub upvalue_size: u64,
    /// Strings that say how many bytes they have in one.
    pub short_strings: bool,
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
    /// The operation for a global variable has its name as one long operand.
    pub long_global: bool,
    /// Bits of an operation; first bits of the operands B and C, and how many each has; the bit of
    /// C without which it is a register.
    pub operation_bits: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    pub operand_bits: u32,
    pub constant: u32,
}

/// The form of the calls that have not returned.
#[derive(Debug, PartialEq, Eq)]
pub enum Calls {
    /// Each leads to its caller, and has flags. The outermost is a part of the state.
    Chain {
        /// `CallInfo`: flags.
        flags: u64,
        /// Flags: the function is in Lua, where it has this bit as the other says; the evaluator
        /// was called for it.
        kind: u16,
        kind_of_lua: u16,
        fresh: u16,
    },
    /// They lie one behind another, the outermost first.
    List {
        /// `lua_State`: the innermost, the instruction that was saved last, the stack, the
        /// outermost.
        innermost: u64,
        instruction: u64,
        stack: u64,
        outermost: u64,
        /// Bytes of each.
        size: u64,
    },
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

/// Lua 5.3.3 and later. The others say in what they differ.
const BASE: Layout = Layout {
    status: 12,
    shared: 24,
    calls: Calls::Chain { flags: 66, kind: 1 << 1, kind_of_lua: 1 << 1, fresh: 1 << 3 },
    function: 0,
    instruction: 40,
    lua_function: 0x46,
    in_c: None,
    closure: 24,
    prototype: 9,
    code_count: 24,
    line_count: 28,
    upvalue_count: 16,
    constant_count: 20,
    local_count: 36,
    upvalue_size: 16,
    short_strings: true,
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
    long_global: false,
    operation_bits: 6,
    a: 6,
    b: 23,
    c: 14,
    operand_bits: 9,
    constant: 1 << 8,
};

/// Lua 5.3.3 and later.
pub static LUA_5_3: Layout = BASE;

/// Lua 5.4: lines are differences, and instructions have another form.
pub static LUA_5_4: Layout = Layout {
    status: 10,
    calls: Calls::Chain { flags: 62, kind: 1 << 1, kind_of_lua: 0, fresh: 1 << 2 },
    instruction: 32,
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
        get_upvalue: 9,
        get_global: 11,
        get_field: 14,
        get_method: 20,
        call: 68,
        tail_call: 69,
        ..BASE.operations
    },
    operation_bits: 7,
    a: 7,
    b: 16,
    c: 24,
    operand_bits: 8,
    constant: 0,
    ..BASE
};

/// Lua 5.1.4 and later: calls are a list, and a `Proto` has its counts last.
pub static LUA_5_1: Layout = Layout {
    status: 10,
    shared: 32,
    calls: Calls::List { innermost: 40, instruction: 48, stack: 64, outermost: 80, size: 40 },
    function: 8,
    instruction: 24,
    lua_function: 6,
    in_c: Some(10),
    closure: 32,
    code_count: 80,
    line_count: 84,
    upvalue_count: 72,
    constant_count: 76,
    local_count: 92,
    upvalue_size: 8,
    short_strings: false,
    line: 96,
    constants: 16,
    code: 24,
    lines: 40,
    locals: 48,
    upvalues: 56,
    source: 64,
    operations: Operations {
        get_upvalue: 4,
        get_global: 5,
        get_field: 6,
        get_method: 11,
        call: 28,
        tail_call: 29,
        ..BASE.operations
    },
    long_global: true,
    ..BASE
};
