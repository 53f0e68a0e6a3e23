//! System calls that move bytes or messages, and that no signal ends which is ignored.
//!
//! A stop of the tracer ends them with what has been moved by then. The rest is asked for by the
//! same call with other arguments:
//!
//! | call | arguments for the rest |
//! | --- | --- |
//! | write, send, recv with MSG_WAITALL, getrandom | the rest of the buffer |
//! | read, readv of a device that never runs dry | the same |
//! | writev, pwritev2 | a copy of the vector, without what has been moved |
//! | sendmsg, recvmsg with MSG_WAITALL | a message with such a vector; descriptors are sent once |
//! | sendmmsg, recvmmsg | the messages behind those that have been moved |
//! | sendfile to a socket | fewer bytes: the kernel keeps the place in the file |
//! | io_uring_enter | nothing to submit, as much to wait for |
//!
//! splice(2), tee(2) and vmsplice(2) return after a part natively too, as sendfile(2) to a pipe
//! does.

use lwp_mailbox::contexts::Context;
use lwp_process::descriptors::known_of;
use lwp_process::regs::Regs;
use lwp_process::{Tid, memory};
use rustix::fs::FileType;

use super::nr::{GETRANDOM, PREAD64, WRITE, WRITEV};

const READ: u64 = 0;
const READV: u64 = 19;
const SENDFILE: u64 = 40;
const SENDTO: u64 = 44;
const RECVFROM: u64 = 45;
const SENDMSG: u64 = 46;
const RECVMSG: u64 = 47;
const RECVMMSG: u64 = 299;
const SENDMMSG: u64 = 307;
const PWRITEV2: u64 = 328;
const IO_URING_ENTER: u64 = 426;

const MSG_PEEK: u64 = 2;
const MSG_WAITALL: u64 = 0x100;
const MSG_WAITFORONE: u64 = 0x1_0000;
const IORING_ENTER_GETEVENTS: u64 = 1;
/// Most bytes that a call moves (MAX_RW_COUNT).
const MOST_BYTES: u64 = 0x7fff_f000;
/// Most buffers of a vector, and messages of sendmmsg(2) (UIO_MAXIOV).
const MOST: u64 = 1024;
/// Most bytes of ancillary data that are sent again.
const MOST_CONTROL: u64 = 4096;

/// Sizes, and places in `struct mmsghdr`, which begins with a `struct msghdr`.
const IOVEC: u64 = 16;
const MSGHDR: usize = 56;
const MMSGHDR: u64 = 64;
const NAME: usize = 0;
const VECTOR: usize = 16;
const VECTOR_LENGTH: usize = 24;
const CONTROL: usize = 32;
const CONTROL_LENGTH: usize = 40;
const FLAGS: u64 = 48;
const SENT: u64 = 56;

/// The first four arguments of a call: rdi, rsi, rdx, r10.
type Arguments = [u64; 4];
/// A buffer: its address and its bytes.
type Part = (u64, u64);

/// A call that moves bytes and does not return before all are moved, unless it is interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Its number.
    number: u64,
    /// The number of bytes, or messages, that were moved before it was interrupted.
    done: u64,
    /// The arguments that it was made with.
    own: Arguments,
    /// The arguments for the rest.
    rest: Arguments,
}

impl Transfer {
    /// Returns the call at whose end a thread is, if it has moved a part of its bytes. The rest of
    /// a vector is put into its context.
    pub fn interrupted(context: Context<'_>, tid: Tid, regs: &Regs) -> Option<Self> {
        let regs = &regs.0;
        let (number, done) = (regs.orig_rax, regs.rax);
        if done == 0 || done > MOST_BYTES {
            return None;
        }
        let own = [regs.rdi, regs.rsi, regs.rdx, regs.r10];
        let rest = rest_in_registers(number, own, done)
            .filter(|_| moves_all(tid, number, own[0]))
            .or_else(|| rest_in_memory(context, tid, (number, own, regs.r8), done))?;
        Some(Self { number, done, own, rest })
    }

    /// Leads the arguments to the rest.
    pub fn pass_on(self, regs: &mut Regs) {
        set_arguments(regs, self.rest);
    }

    /// Puts the arguments back, and the result of both parts in the place of that of the second.
    pub fn put_back(self, tid: Tid, regs: &mut Regs, second: i64) {
        set_arguments(regs, self.own);
        regs.0.rax = self.done + u64::try_from(second).unwrap_or(0);
        if self.number == RECVMSG {
            let flags = memory::read_array::<4>(tid, self.rest[1] + FLAGS);
            let _ = flags.and_then(|it| memory::write_exact(tid, self.own[1] + FLAGS, &it));
        }
    }
}

fn set_arguments(regs: &mut Regs, arguments: Arguments) {
    [regs.0.rdi, regs.0.rsi, regs.0.rdx, regs.0.r10] = arguments;
}

/// Returns the arguments for the rest of a call, where registers say all.
fn rest_in_registers(number: u64, own: Arguments, done: u64) -> Option<Arguments> {
    let [first, second, third, fourth] = own;
    let bytes = match number {
        GETRANDOM => second,
        SENDFILE => fourth,
        _ => third,
    };
    let left = bytes.min(MOST_BYTES).checked_sub(done).filter(|left| *left > 0)?;
    match number {
        READ | WRITE | SENDTO | PREAD64 => Some([first, second + done, left, fourth]),
        RECVFROM if waits_for_all(fourth) => Some([first, second + done, left, fourth]),
        GETRANDOM => Some([first + done, left, third, fourth]),
        SENDFILE => Some([first, second, third, left]),
        _ => None,
    }
}

/// Returns whether a receiving call with these flags waits for all of its bytes.
fn waits_for_all(flags: u64) -> bool {
    flags & (MSG_WAITALL | MSG_PEEK) == MSG_WAITALL
}

/// Returns whether a call moves all of its bytes if no signal comes, given its first argument.
fn moves_all(tid: Tid, number: u64, descriptor: u64) -> bool {
    /// Major number of the devices of memory, and minor numbers of zero, random and urandom.
    const MEMORY: u32 = 1;
    const ENDLESS: [u32; 3] = [5, 8, 9];
    let about = || known_of(tid, descriptor as i32);
    let kind = || about().map(|about| FileType::from_raw_mode(about.stx_mode.into()));
    match number {
        // A file takes all, or as much as there is room for.
        WRITE | WRITEV | PWRITEV2 => {
            kind().is_some_and(|kind| kind.is_fifo() || kind.is_socket() || kind.is_char_device())
        }
        SENDFILE => kind().is_some_and(|kind| kind.is_socket() || kind.is_char_device()),
        READ | READV | PREAD64 => about().is_some_and(|about| {
            let is_device = FileType::from_raw_mode(about.stx_mode.into()).is_char_device();
            let (major, minor) = (about.stx_rdev_major, about.stx_rdev_minor);
            is_device && major == MEMORY && ENDLESS.contains(&minor)
        }),
        _ => true,
    }
}

/// Returns the arguments for the rest of a call, where they lead to more in memory.
fn rest_in_memory(
    context: Context<'_>,
    tid: Tid,
    (number, own, fifth): (u64, Arguments, u64),
    done: u64,
) -> Option<Arguments> {
    let [first, second, third, fourth] = own;
    match number {
        READV | WRITEV | PWRITEV2 => {
            let parts = parts_left(&parts_at(tid, second, third)?, done)?;
            moves_all(tid, number, first).then_some(())?;
            context.write_vector(&bytes_of(&parts));
            Some([first, context.vector_address(), parts.len() as u64, fourth])
        }
        SENDMSG => rest_of_message(context, tid, (own, true), done),
        RECVMSG if waits_for_all(third) => rest_of_message(context, tid, (own, false), done),
        SENDMMSG => {
            let left = (third as u32 as u64).min(MOST).checked_sub(done).filter(|it| *it > 0)?;
            let next = second.wrapping_add(done * MMSGHDR);
            is_sent_whole(tid, next.wrapping_sub(MMSGHDR))?;
            Some([first, next, left, fourth])
        }
        RECVMMSG if fourth & (MSG_PEEK | MSG_WAITFORONE) == 0 => {
            let left = (third as u32 as u64).checked_sub(done).filter(|it| *it > 0)?;
            // The kernel leaves the rest of the time there.
            let time = if fifth == 0 { [1; 16] } else { memory::read_array(tid, fifth).ok()? };
            (time != [0; 16]).then_some([first, second + done * MMSGHDR, left, fourth])
        }
        IO_URING_ENTER => {
            let waits = fourth & IORING_ENTER_GETEVENTS != 0 && third as u32 != 0;
            (waits && done == second as u32 as u64).then_some([first, 0, third, fourth])
        }
        _ => None,
    }
}

/// The buffers of a vector.
fn parts_at(tid: Tid, address: u64, count: u64) -> Option<Vec<Part>> {
    let mut bytes = vec![0; (count.min(MOST) * IOVEC) as usize];
    memory::read_exact(tid, address, &mut bytes).ok()?;
    let words = bytes.chunks_exact(16);
    Some(words.map(|it| (word(it, 0), word(it, 8))).collect())
}

/// A word of bytes.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |it| u64::from_le_bytes(it.try_into().unwrap_or_default()))
}

/// The buffers that are left where `done` bytes have been moved; `None` where that is all.
fn parts_left(parts: &[Part], mut done: u64) -> Option<Vec<Part>> {
    let mut room = MOST_BYTES.checked_sub(done)?;
    let mut left = Vec::with_capacity(parts.len());
    for &(address, bytes) in parts {
        let skipped = bytes.min(done);
        done -= skipped;
        let bytes = (bytes - skipped).min(room);
        room -= bytes;
        if bytes > 0 {
            left.push((address.wrapping_add(skipped), bytes));
        }
    }
    (!left.is_empty()).then_some(left)
}

fn bytes_of(parts: &[Part]) -> Vec<u8> {
    parts.iter().flat_map(|part| [part.0, part.1]).flat_map(u64::to_le_bytes).collect()
}

/// Returns the arguments for the rest of a message, which is put into the context: header, vector
/// and ancillary data.
fn rest_of_message(
    context: Context<'_>,
    tid: Tid,
    ([socket, at, third, fourth], sends): (Arguments, bool),
    done: u64,
) -> Option<Arguments> {
    let header = memory::read_array::<MSGHDR>(tid, at).ok()?;
    let parts = parts_at(tid, word(&header, VECTOR), word(&header, VECTOR_LENGTH))?;
    let parts = bytes_of(&parts_left(&parts, done)?);
    let control = (word(&header, CONTROL), word(&header, CONTROL_LENGTH));
    let place = context.vector_address();
    let mut message = header;
    let mut set = |at: usize, value: u64| message[at..at + 8].copy_from_slice(&value.to_le_bytes());
    set(VECTOR, place + MSGHDR as u64);
    set(VECTOR_LENGTH, parts.len() as u64 / IOVEC);
    let sent_again = match sends {
        true => {
            let mut bytes = vec![0; usize::try_from(control.1).ok()?];
            (control.1 <= MOST_CONTROL).then_some(())?;
            memory::read_exact(tid, control.0, &mut bytes).ok()?;
            without_descriptors(&bytes)
        }
        false => {
            // The room that there was for ancillary data is not known any more.
            (control == (0, 0)).then_some(())?;
            set(NAME, 0);
            Vec::new()
        }
    };
    set(CONTROL, place + (MSGHDR + parts.len()) as u64);
    set(CONTROL_LENGTH, sent_again.len() as u64);
    context.write_vector(&[&message[..], &parts, &sent_again].concat());
    Some([socket, place, third, fourth])
}

/// Ancillary data without the descriptors among them (SCM_RIGHTS), which have been sent.
fn without_descriptors(control: &[u8]) -> Vec<u8> {
    const HEADER: usize = 16;
    /// Level SOL_SOCKET and type SCM_RIGHTS, of 32 bits each.
    const DESCRIPTORS: u64 = 1 | 1 << 32;
    let mut left = Vec::with_capacity(control.len());
    let mut rest = control;
    while rest.len() >= HEADER {
        let length = usize::try_from(word(rest, 0)).unwrap_or(usize::MAX);
        let length = length.clamp(HEADER, rest.len()).next_multiple_of(8).min(rest.len());
        let (one, others) = rest.split_at(length);
        if word(one, 8) != DESCRIPTORS {
            left.extend_from_slice(one);
        }
        rest = others;
    }
    left
}

/// `Some` if all of a message of sendmmsg(2) has been sent.
fn is_sent_whole(tid: Tid, at: u64) -> Option<()> {
    let header = memory::read_array::<{ MSGHDR + 8 }>(tid, at).ok()?;
    let parts = parts_at(tid, word(&header, VECTOR), word(&header, VECTOR_LENGTH))?;
    let bytes = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.1));
    (word(&header, SENT as usize) & 0xffff_ffff == bytes).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_begins_where_the_first_part_ends() {
        let own = [1, 0x1000, 100, MSG_WAITALL];
        for (number, want) in [
            (WRITE, Some([1, 0x1000 + 30, 70, MSG_WAITALL])),
            (RECVFROM, Some([1, 0x1000 + 30, 70, MSG_WAITALL])),
            (GETRANDOM, Some([31, 0x1000 - 30, 100, MSG_WAITALL])),
            (SENDFILE, Some([1, 0x1000, 100, MSG_WAITALL - 30])),
            (WRITEV, None),
        ] {
            assert_eq!(rest_in_registers(number, own, 30), want, "{number}");
        }
        assert_eq!(rest_in_registers(WRITE, own, 100), None);
        assert_eq!(rest_in_registers(WRITE, [1, 0x1000, u64::MAX, 0], MOST_BYTES), None);
        let peeks = [1, 0x1000, 100, MSG_WAITALL | MSG_PEEK];
        assert_eq!(rest_in_registers(RECVFROM, peeks, 30), None);
        assert_eq!(rest_in_registers(RECVFROM, [1, 0x1000, 100, 0], 30), None);
    }

    #[test]
    fn both_parts_make_one_result() {
        let (own, rest) = ([1, 0x1000, 100, 0], [1, 0x1000 + 30, 70, 0]);
        let transfer = Transfer { number: WRITE, done: 30, own, rest };
        for (second, sum) in [(70, 100), (5, 35), (-32, 30), (-4, 30)] {
            let mut regs = Regs::default();
            transfer.pass_on(&mut regs);
            assert_eq!((regs.0.rsi, regs.0.rdx), (0x1000 + 30, 70));
            transfer.put_back(0, &mut regs, second);
            assert_eq!((regs.0.rsi, regs.0.rdx, regs.0.rax), (0x1000, 100, sum));
        }
    }

    #[test]
    fn vectors_are_cut_anywhere() {
        let parts = [(0x1000, 10), (0x2000, 0), (0x3000, 20)];
        assert_eq!(parts_left(&parts, 0).unwrap(), [(0x1000, 10), (0x3000, 20)]);
        assert_eq!(parts_left(&parts, 4).unwrap(), [(0x1004, 6), (0x3000, 20)]);
        assert_eq!(parts_left(&parts, 10).unwrap(), [(0x3000, 20)]);
        assert_eq!(parts_left(&parts, 11).unwrap(), [(0x3001, 19)]);
        assert_eq!(parts_left(&parts, 30), None);
        let large = [(0, u64::MAX), (0, 5)];
        assert_eq!(parts_left(&large, 4096).unwrap(), [(4096, MOST_BYTES - 4096)]);
        assert_eq!(parts_left(&large, MOST_BYTES), None);
    }

    /// Ancillary data of this type, with so many bytes.
    fn ancillary(kind: u32, bytes: usize) -> Vec<u8> {
        let mut out = (16 + bytes as u64).to_le_bytes().to_vec();
        out.extend([1_u32.to_le_bytes(), kind.to_le_bytes()].concat());
        out.resize((16 + bytes).next_multiple_of(8), 0xaa);
        out
    }

    #[test]
    fn descriptors_are_sent_once() {
        let (rights, credentials) = (ancillary(1, 4), ancillary(2, 12));
        let both = [&rights[..], &credentials].concat();
        assert_eq!(without_descriptors(&both), credentials);
        assert_eq!(without_descriptors(&rights), []);
        for end in 0..both.len() {
            assert!(without_descriptors(&both[..end]).len() <= end, "cut at {end}");
        }
        let endless = [&u64::MAX.to_le_bytes()[..], &credentials[8..]].concat();
        assert_eq!(without_descriptors(&endless), endless);
    }
}
