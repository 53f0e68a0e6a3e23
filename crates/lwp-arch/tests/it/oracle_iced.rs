//! The decoder and the encoder against iced-x86.
//!
//! Blind spots of this oracle, covered elsewhere: iced reports every undefined form as "invalid"
//! without saying why (`insn::decode` has a case per reason), and it does not tell an instruction
//! of more than 15 bytes from an undefined one.

use iced_x86::CodeSize::Code64 as CodeSize64;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction as Iced, OpKind, Register};
use lwp_arch::insn::{
    AddressSize, Base, CodeSize, DecodeError, Instruction, Memory, Mnemonic, Operands, Rm, Segment,
    Width, decode,
};
use proptest::prelude::*;

const MODES: [(CodeSize, u32); 3] =
    [(CodeSize::Bits16, 16), (CodeSize::Bits32, 32), (CodeSize::Bits64, 64)];

/// What iced says, in our words; `None` for anything but a valid LWP instruction.
fn foreign(bytes: &[u8], bitness: u32) -> Option<Iced> {
    let instruction = Decoder::with_ip(bitness, bytes, 0x1000, DecoderOptions::NONE).decode();
    mnemonic(instruction.code()).map(|_| instruction)
}

fn mnemonic(code: Code) -> Option<(Mnemonic, Width)> {
    Some(match code {
        Code::XOP_Llwpcb_r32 => (Mnemonic::Llwpcb, Width::W32),
        Code::XOP_Llwpcb_r64 => (Mnemonic::Llwpcb, Width::W64),
        Code::XOP_Slwpcb_r32 => (Mnemonic::Slwpcb, Width::W32),
        Code::XOP_Slwpcb_r64 => (Mnemonic::Slwpcb, Width::W64),
        Code::XOP_Lwpins_r32_rm32_imm32 => (Mnemonic::Lwpins, Width::W32),
        Code::XOP_Lwpins_r64_rm32_imm32 => (Mnemonic::Lwpins, Width::W64),
        Code::XOP_Lwpval_r32_rm32_imm32 => (Mnemonic::Lwpval, Width::W32),
        Code::XOP_Lwpval_r64_rm32_imm32 => (Mnemonic::Lwpval, Width::W64),
        _ => return None,
    })
}

/// Number of a general register in iced's list, which numbers them as the hardware does.
fn number(register: Register) -> Option<u8> {
    (register != Register::None).then(|| register.number() as u8)
}

fn assert_same(ours: &Instruction, theirs: &Iced, bytes: &[u8]) {
    assert_eq!(Some((ours.mnemonic, ours.width)), mnemonic(theirs.code()), "{bytes:02x?}");
    assert_eq!(usize::from(ours.length), theirs.len(), "{bytes:02x?}");
    match ours.operands {
        Operands::Block(register) => {
            assert_eq!(Some(register.number()), number(theirs.op0_register()), "{bytes:02x?}");
        }
        Operands::Insert { data2, data1, flags } => {
            assert_eq!(Some(data2.number()), number(theirs.op0_register()), "{bytes:02x?}");
            assert_eq!(flags, theirs.immediate32(), "{bytes:02x?}");
            match data1 {
                Rm::Register(register) => {
                    assert_eq!(Some(register.number()), number(theirs.op1_register()));
                }
                Rm::Memory(memory) => assert_same_memory(&memory, theirs, bytes),
            }
        }
    }
}

fn assert_same_memory(ours: &Memory, theirs: &Iced, bytes: &[u8]) {
    assert_eq!(theirs.op1_kind(), OpKind::Memory, "{bytes:02x?}");
    let segment = match theirs.segment_prefix() {
        // iced keeps the overrides that 64-bit mode ignores; we drop them.
        Register::ES | Register::CS | Register::SS | Register::DS
            if theirs.code_size() == CodeSize64 =>
        {
            None
        }
        Register::ES => Some(Segment::Es),
        Register::CS => Some(Segment::Cs),
        Register::SS => Some(Segment::Ss),
        Register::DS => Some(Segment::Ds),
        Register::FS => Some(Segment::Fs),
        Register::GS => Some(Segment::Gs),
        _ => None,
    };
    assert_eq!(ours.segment, segment, "{bytes:02x?}");
    let index = ours.index.map(|i| i.register.number());
    assert_eq!(index, number(theirs.memory_index()), "{bytes:02x?}");
    if let Some(index) = ours.index {
        assert_eq!(1 << index.scale_log2, theirs.memory_index_scale(), "{bytes:02x?}");
    }
    // iced resolves RIP-relative displacements to the target.
    let displacement = match ours.base {
        Some(Base::NextIp) => {
            assert!(theirs.is_ip_rel_memory_operand(), "{bytes:02x?}");
            let target = theirs.next_ip().wrapping_add_signed(i64::from(ours.displacement));
            ours.address_size.truncate(target)
        }
        Some(Base::Register(base)) => {
            assert_eq!(Some(base.number()), number(theirs.memory_base()), "{bytes:02x?}");
            i64::from(ours.displacement) as u64
        }
        None => {
            assert_eq!(theirs.memory_base(), Register::None, "{bytes:02x?}");
            i64::from(ours.displacement) as u64
        }
    };
    let cut = |value| ours.address_size.truncate(value);
    assert_eq!(cut(displacement), cut(theirs.memory_displacement64()), "{bytes:02x?}");
    let width = theirs.memory_base().max(theirs.memory_index()).size();
    let expected = match ours.address_size {
        AddressSize::Bits16 => 2,
        AddressSize::Bits32 => 4,
        AddressSize::Bits64 => 8,
    };
    assert!(width == 0 || width == expected, "{bytes:02x?}");
}

fn compare(bytes: &[u8], code: CodeSize, bitness: u32) -> bool {
    match (decode(bytes, code), foreign(bytes, bitness)) {
        (Ok(ours), Some(theirs)) => {
            assert_same(&ours, &theirs, bytes);
            true
        }
        (Err(_), None) => false,
        (ours, theirs) => panic!("{code:?} {bytes:02x?}: we say {ours:?}, iced says {theirs:?}"),
    }
}

/// Bytes after ModRM; they differ from case to case so that SIB and displacement take many values.
fn tail(seed: u32) -> [u8; 9] {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    })
}

/// Every XOP byte pair with map 8, 9 or A, opcode 12h, and every ModRM byte, in all three modes.
///
/// Spec: LWP §5.1
#[test]
fn lwp_spec_5_1_decoder_agrees_with_iced_on_all_forms() {
    let mut valid = 0;
    for (code, bitness) in MODES {
        for first in (0..=255u8).filter(|first| matches!(first & 0x1F, 8..=10)) {
            for second in 0..=255u8 {
                for modrm in 0..=255u8 {
                    let seed = u32::from_le_bytes([first, second, modrm, bitness as u8]);
                    let mut bytes = [0; 14];
                    bytes[..5].copy_from_slice(&[0x8F, first, second, 0x12, modrm]);
                    bytes[5..].copy_from_slice(&tail(seed));
                    valid += u32::from(compare(&bytes, code, bitness));
                }
            }
        }
    }
    // Per mode: 8 RXB values × 2 W × (2 digits × 8 registers with vvvv fixed
    // + 16 vvvv × 2 digits × 32 forms of mod and rm).
    assert_eq!(valid, 3 * 8 * 2 * (16 + 16 * 2 * 32));
}

/// Spec: LWP §5.1
#[test]
fn lwp_spec_5_1_prefixes_are_judged_as_iced_judges_them() {
    let forms: [&[u8]; 3] = [
        &[0x8F, 0xE9, 0x78, 0x12, 0xC3],
        &[0x8F, 0xEA, 0x78, 0x12, 0x46, 0x10, 1, 2, 3, 4],
        &[0x8F, 0xEA, 0x78, 0x12, 0x84, 0x8B, 1, 2, 3, 4, 5, 6, 7, 8],
    ];
    let prefixes =
        [0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3, 0x40, 0x48, 0x4F];
    let mut valid = 0;
    for (code, bitness) in MODES {
        for form in forms {
            for first in prefixes {
                let one: Vec<u8> = [&[first], form].concat();
                valid += u32::from(compare(&one, code, bitness));
                for second in prefixes {
                    let two: Vec<u8> = [&[second, first], form].concat();
                    valid += u32::from(compare(&two, code, bitness));
                }
            }
        }
    }
    assert!(valid > 100, "only {valid} valid forms seen");
}

/// What iced writes for every register form, we write too, byte for byte.
///
/// Spec: LWP §5.1
#[test]
fn lwp_spec_5_1_encoder_agrees_with_iced_on_registers() {
    use iced_x86::Encoder;
    for digit in 0..2u8 {
        for w in [0, 0x80u8] {
            for register in 0..16u8 {
                for vvvv in 0..16u8 {
                    let b = if register < 8 { 0xE0 } else { 0xC0 };
                    let bytes = [
                        0x8F,
                        b | 0x0A,
                        w | (!vvvv & 0xF) << 3,
                        0x12,
                        0xC0 | digit << 3 | register & 7,
                        0x21,
                        0x43,
                        0x65,
                        0x87,
                    ];
                    let theirs = foreign(&bytes, 64).expect("a register form is valid");
                    let mut encoder = Encoder::new(64);
                    encoder.encode(&theirs, 0x1000).unwrap();
                    let ours = decode(&bytes, CodeSize::Bits64).unwrap();
                    let encoded = ours.encode(CodeSize::Bits64).unwrap();
                    assert_eq!(encoded.as_bytes(), encoder.take_buffer());
                }
            }
        }
    }
}

proptest! {
    /// Whatever decodes can be encoded, and means the same again, to us and to iced.
    ///
    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_encode_is_the_inverse_of_decode(
        mode in 0..3usize, map in 9..=10u8, rxb in 0..8u8, w in any::<bool>(), vvvv in 0..16u8,
        modrm in any::<u8>(), rest: [u8; 9], prefix in prop::sample::select(&[0u8, 0x64, 0x65, 0x67]),
    ) {
        let (code, bitness) = MODES[mode];
        let mut bytes = Vec::new();
        bytes.extend((prefix != 0).then_some(prefix));
        let vvvv = if map == 9 { 0 } else { vvvv };
        bytes.extend([0x8F, rxb << 5 | map, u8::from(w) << 7 | (!vvvv & 0xF) << 3, 0x12]);
        bytes.push(modrm & 0xCF | modrm & 8);
        bytes.extend(rest);
        if let Ok(instruction) = decode(&bytes, code) {
            let encoded = instruction.encode(code).unwrap();
            let again = decode(encoded.as_bytes(), code).unwrap();
            prop_assert_eq!(again.operands, instruction.operands);
            prop_assert_eq!(again.mnemonic, instruction.mnemonic);
            prop_assert_eq!(again.width, instruction.width);
            prop_assert_eq!(usize::from(again.length), encoded.as_bytes().len());
            prop_assert!(compare(encoded.as_bytes(), code, bitness));
        } else {
            prop_assert!(foreign(&bytes, bitness).is_none());
        }
    }

    /// Arbitrary bytes never make the decoder panic, and it never claims more than it was given.
    ///
    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_decoder_is_total(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
        for (code, _) in MODES {
            match decode(&bytes, code) {
                Ok(instruction) => prop_assert!(usize::from(instruction.length) <= bytes.len()),
                Err(DecodeError::Truncated(given)) => prop_assert_eq!(given, bytes.len()),
                Err(_) => {}
            }
        }
    }
}
