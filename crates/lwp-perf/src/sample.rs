//! The content of a record in the ring.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::ring::RawRecord;

bitflags::bitflags! {
    /// The parts of a sample, in the order in which it lies in the record, save that
    /// `IDENTIFIER` is first.
    ///
    /// Spec: perf_event_open(2), "sample_type".
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct SampleFormat: u64 {
        /// Instruction pointer.
        const IP = 1 << 0;
        /// Process and thread.
        const TID = 1 << 1;
        /// Time stamp.
        const TIME = 1 << 2;
        /// Data address.
        const ADDR = 1 << 3;
        /// Call chain.
        const CALLCHAIN = 1 << 5;
        /// The event's id.
        const ID = 1 << 6;
        /// Processor.
        const CPU = 1 << 7;
        /// Period of this sample.
        const PERIOD = 1 << 8;
        /// Id of the event's own instance.
        const STREAM_ID = 1 << 9;
        /// The PMU's data beyond perf's fields: the IBS registers.
        const RAW = 1 << 10;
        /// The registers of user mode that [`USER_REGISTERS`] names.
        const REGS_USER = 1 << 12;
        /// The top of the user stack.
        const STACK_USER = 1 << 13;
        /// Cost of the sampled access.
        const WEIGHT = 1 << 14;
        /// The source of the data.
        const DATA_SRC = 1 << 15;
        /// The event's id, at a fixed place.
        const IDENTIFIER = 1 << 16;
        /// Transaction state.
        const TRANSACTION = 1 << 17;
        /// Physical data address.
        const PHYS_ADDR = 1 << 19;
        /// Cost of the sampled access, in three parts.
        const WEIGHT_STRUCT = 1 << 24;
    }
}

/// The user registers that a sample has with [`SampleFormat::REGS_USER`]: rax, rbx, rcx, rdx, rsi,
/// rdi, rbp, rsp, rip, and r8 to r15.
///
/// Spec: arch/x86/include/uapi/asm/perf_regs.h, `enum perf_event_x86_regs`.
pub const USER_REGISTERS: u64 = 0x00ff_01ff;

/// The number of [`USER_REGISTERS`].
const REGISTERS: usize = USER_REGISTERS.count_ones() as usize;

/// `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;

/// One sample. Fields that were not asked for are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Id of the event.
    pub id: Option<u64>,
    /// Instruction pointer.
    pub ip: Option<u64>,
    /// True if the pointer is the instruction that caused the sample, without skid.
    pub exact_ip: bool,
    /// True if the processor was in user mode.
    pub user_mode: bool,
    /// Process and thread.
    pub pid_tid: Option<(u32, u32)>,
    /// Time stamp, ns.
    pub time_ns: Option<u64>,
    /// Data address.
    pub address: Option<u64>,
    /// Processor.
    pub cpu: Option<u32>,
    /// Events since the sample before.
    pub period: Option<u64>,
    /// Call chain, innermost first, context markers included.
    pub callchain: Vec<u64>,
    /// Raw data of the PMU.
    pub raw: Vec<u8>,
    /// The user registers, in the order of [`USER_REGISTERS`]. `None` of a thread of the kernel,
    /// and of a 32-bit program.
    pub user_registers: Option<[u64; REGISTERS]>,
    /// The bytes from the user stack pointer up.
    pub user_stack: Vec<u8>,
    /// Cost of the access, in cycles; of the structured form its first part.
    pub weight: Option<u64>,
    /// The source of the data, as `union perf_mem_data_src`.
    pub data_source: Option<u64>,
    /// Transaction state.
    pub transaction: Option<u64>,
    /// Physical data address.
    pub physical_address: Option<u64>,
}

/// A record, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A sample.
    Sample(Box<Sample>),
    /// The ring was full, and this many records of the event were lost.
    Lost {
        /// Id of the event.
        id: u64,
        /// The number of them.
        records: u64,
    },
    /// This many samples were lost by the PMU itself.
    LostSamples {
        /// The number of them.
        samples: u64,
    },
    /// Too many interrupts: the kernel has stopped sampling for a while.
    Throttled {
        /// The time in ns.
        time_ns: u64,
    },
    /// It goes on.
    Unthrottled {
        /// The time in ns.
        time_ns: u64,
    },
    /// A process or thread was made.
    Fork {
        /// The new process and thread.
        pid_tid: (u32, u32),
        /// Its maker's process and thread.
        parent: (u32, u32),
    },
    /// A process or thread has ended.
    Exit {
        /// The process and thread.
        pid_tid: (u32, u32),
    },
    /// A thread has a name.
    Comm {
        /// The process and thread.
        pid_tid: (u32, u32),
        /// The name.
        name: OsString,
        /// The process executes another program.
        exec: bool,
    },
    /// A thread has got a processor, or lost it.
    Switch {
        /// The process and thread.
        pid_tid: (u32, u32),
        /// The processor is gone.
        out: bool,
        /// It was taken away: the thread could have gone on. Linux 4.17 and later say so.
        preempted: bool,
    },
    /// Memory was mapped.
    Mmap(Box<Mmap>),
    /// A kind that is not read here.
    Other {
        /// `PERF_RECORD_*`.
        kind: u32,
    },
}

/// A mapping of memory, with [`Flags::MMAP2`](crate::attr::Flags::MMAP2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mmap {
    /// The process and thread.
    pub pid_tid: (u32, u32),
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The file's device, major and minor.
    pub device: (u32, u32),
    /// The file's inode; 0 if there is no file.
    pub inode: u64,
    /// `PROT_*`.
    pub protection: u32,
    /// The file as the process sees it, `//anon`, or a name in brackets.
    pub path: OsString,
}

/// `PERF_RECORD_*`.
///
/// Spec: perf_event_open(2), "MMAP layout".
mod record {
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const THROTTLE: u32 = 5;
    pub const UNTHROTTLE: u32 = 6;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const LOST_SAMPLES: u32 = 13;
    pub const SWITCH: u32 = 14;
}

/// Low bits of `misc`: the mode of the processor.
const MISC_MODE: u16 = 7;
const MISC_USER: u16 = 2;
const MISC_GUEST_USER: u16 = 5;
const MISC_EXACT_IP: u16 = 1 << 14;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;

/// A record that is shorter than its kind and the sample format say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record of kind {kind} is too short: {bytes} bytes")]
pub struct Truncated {
    /// `PERF_RECORD_*`.
    pub kind: u32,
    /// Length of its body.
    pub bytes: usize,
}

/// Reads a body from the front.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }

    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn pair(&mut self) -> Option<(u32, u32)> {
        Some((self.u32()?, self.u32()?))
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

impl<'a> Cursor<'a> {
    /// A text that a zero ends.
    fn text(&self) -> OsString {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        OsString::from_vec(self.0[..length].to_vec())
    }
}

/// The time of a record, in ns; `None` if its `format` has none, or it is too short.
///
/// Spec: perf_event_open(2), "sample_id": with [`Flags::SAMPLE_ID_ALL`], records that are no
/// samples end with thread, time, id, stream, processor and identifier, as far as the format has
/// them.
///
/// [`Flags::SAMPLE_ID_ALL`]: crate::attr::Flags::SAMPLE_ID_ALL
pub fn time_of(raw: RawRecord<'_>, format: SampleFormat) -> Option<u64> {
    use SampleFormat as F;
    if !format.contains(F::TIME) {
        return None;
    }
    let words = |fields: &[F]| fields.iter().filter(|field| format.contains(**field)).count();
    let at = match raw.kind {
        record::SAMPLE => 8 * words(&[F::IDENTIFIER, F::IP, F::TID]),
        _ => {
            let behind = words(&[F::TIME, F::ID, F::STREAM_ID, F::CPU, F::IDENTIFIER]);
            raw.body.len().checked_sub(8 * behind)?
        }
    };
    Cursor(raw.body.get(at..)?).u64()
}

impl Record {
    /// Understands `raw`, whose samples have `format`.
    ///
    /// # Errors
    ///
    /// The record is shorter than its format says.
    pub fn parse(raw: RawRecord<'_>, format: SampleFormat) -> Result<Self, Truncated> {
        let truncated = Truncated { kind: raw.kind, bytes: raw.body.len() };
        Self::read(raw, format).ok_or(truncated)
    }

    fn read(raw: RawRecord<'_>, format: SampleFormat) -> Option<Self> {
        let mut body = Cursor(raw.body);
        Some(match raw.kind {
            record::SAMPLE => Self::Sample(Box::new(Sample::read(raw, format)?)),
            record::LOST => Self::Lost { id: body.u64()?, records: body.u64()? },
            record::LOST_SAMPLES => Self::LostSamples { samples: body.u64()? },
            record::THROTTLE => Self::Throttled { time_ns: body.u64()? },
            record::UNTHROTTLE => Self::Unthrottled { time_ns: body.u64()? },
            record::COMM => Self::Comm {
                pid_tid: body.pair()?,
                name: body.text(),
                exec: raw.misc & MISC_COMM_EXEC != 0,
            },
            record::MMAP2 => Self::Mmap(Box::new(Mmap::read(body)?)),
            // Its thread stands where those of all records do, at its end.
            record::SWITCH if format.contains(SampleFormat::TID) => Self::Switch {
                pid_tid: body.pair()?,
                out: raw.misc & MISC_SWITCH_OUT != 0,
                preempted: raw.misc & MISC_SWITCH_OUT_PREEMPT != 0,
            },
            record::FORK | record::EXIT => {
                let (pid, parent_pid) = body.pair()?;
                let (tid, parent_tid) = body.pair()?;
                match raw.kind {
                    record::FORK => {
                        Self::Fork { pid_tid: (pid, tid), parent: (parent_pid, parent_tid) }
                    }
                    _ => Self::Exit { pid_tid: (pid, tid) },
                }
            }
            kind => Self::Other { kind },
        })
    }
}

impl Mmap {
    /// Reads the fields in the kernel's order.
    ///
    /// Spec: perf_event_open(2), "PERF_RECORD_MMAP2".
    fn read(mut body: Cursor<'_>) -> Option<Self> {
        let pid_tid = body.pair()?;
        let (address, length, offset) = (body.u64()?, body.u64()?, body.u64()?);
        let (device, inode) = (body.pair()?, body.u64()?);
        body.u64()?;
        let (protection, _flags) = body.pair()?;
        Some(Self {
            pid_tid,
            address,
            length,
            offset,
            device,
            inode,
            protection,
            path: body.text(),
        })
    }
}

impl Sample {
    /// Reads the fields in the kernel's order.
    ///
    /// Spec: perf_event_open(2), "PERF_RECORD_SAMPLE".
    fn read(raw: RawRecord<'_>, format: SampleFormat) -> Option<Self> {
        use SampleFormat as F;
        let mut body = Cursor(raw.body);
        let mut sample = Self {
            exact_ip: raw.misc & MISC_EXACT_IP != 0,
            user_mode: matches!(raw.misc & MISC_MODE, MISC_USER | MISC_GUEST_USER),
            ..Self::default()
        };
        let has = |field| format.contains(field);
        if has(F::IDENTIFIER) {
            sample.id = Some(body.u64()?);
        }
        if has(F::IP) {
            sample.ip = Some(body.u64()?);
        }
        if has(F::TID) {
            sample.pid_tid = Some(body.pair()?);
        }
        if has(F::TIME) {
            sample.time_ns = Some(body.u64()?);
        }
        if has(F::ADDR) {
            sample.address = Some(body.u64()?);
        }
        if has(F::ID) {
            sample.id = Some(body.u64()?);
        }
        if has(F::STREAM_ID) {
            body.u64()?;
        }
        if has(F::CPU) {
            sample.cpu = Some(body.pair()?.0);
        }
        if has(F::PERIOD) {
            sample.period = Some(body.u64()?);
        }
        sample.read_tail(&mut body, format)?;
        Some(sample)
    }

    /// The fields of variable length and what follows them.
    fn read_tail(&mut self, body: &mut Cursor<'_>, format: SampleFormat) -> Option<()> {
        use SampleFormat as F;
        if format.contains(F::CALLCHAIN) {
            let length = usize::try_from(body.u64()?).ok()?;
            let words = body.bytes(length.checked_mul(8)?)?;
            let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
            self.callchain = words.chunks_exact(8).map(word).collect();
        }
        if format.contains(F::RAW) {
            let length = usize::try_from(body.u32()?).ok()?;
            self.raw = body.bytes(length)?.to_vec();
        }
        if format.contains(F::REGS_USER) {
            self.user_registers = registers(body)?;
        }
        if format.contains(F::STACK_USER) {
            self.user_stack = stack(body)?;
        }
        if format.contains(F::WEIGHT) {
            self.weight = Some(body.u64()?);
        }
        if format.contains(F::WEIGHT_STRUCT) {
            // var1_dw, var2_w, var3_w: the whole latency is in the first.
            self.weight = Some(body.u64()? & 0xffff_ffff);
        }
        if format.contains(F::DATA_SRC) {
            self.data_source = Some(body.u64()?);
        }
        if format.contains(F::TRANSACTION) {
            self.transaction = Some(body.u64()?);
        }
        if format.contains(F::PHYS_ADDR) {
            self.physical_address = Some(body.u64()?);
        }
        Some(())
    }
}

/// The user registers: how they are laid out, then each, if there are any.
fn registers(body: &mut Cursor<'_>) -> Option<Option<[u64; REGISTERS]>> {
    let abi = body.u64()?;
    if abi == 0 {
        return Some(None);
    }
    let mut all = [0; REGISTERS];
    for register in &mut all {
        *register = body.u64()?;
    }
    Some((abi == ABI_64).then_some(all))
}

/// The user stack: the room that was asked for, its bytes, and how many of them are the stack's.
fn stack(body: &mut Cursor<'_>) -> Option<Vec<u8>> {
    let room = usize::try_from(body.u64()?).ok()?;
    if room == 0 {
        return Some(Vec::new());
    }
    let bytes = body.bytes(room)?;
    let valid = usize::try_from(body.u64()?).ok()?;
    Some(bytes[..valid.min(room)].to_vec())
}
