//! Steps that copy what [`Reader::stack`](crate::interpreter::Reader::stack) reads of a thread.
//!
//! A sampled thread that follows them itself, without knowing the interpreter, has copied all that
//! is read of its frames, and need not wait until that has been read. The names of functions are
//! left out: at each function the steps compare what tells it from others with the functions that
//! have been read before, and give up if it is a new one.

/// The number of a value that steps work on.
pub type Value = u8;

/// The values that a [fact](Fact) is compared with.
pub const FACT: [Value; 6] = [10, 11, 12, 13, 14, 15];

/// The words that tell a function from others; the first one is not 0.
pub type Fact = [u64; FACT.len()];

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Gives up.
    Ask,
    /// Everything is copied.
    End,
    /// The value becomes the eight bytes at another value and an offset.
    Word(Value, Value, i32),
    /// The four bytes there, signed.
    Half(Value, Value, i32),
    /// The byte there.
    Byte(Value, Value, i32),
    /// Copies so many bytes, a multiple of 8, at a value and an offset.
    Copy(Value, i32, u64),
    /// Copies a text up to its zero.
    Text(Value),
    /// The value becomes a number.
    Set(Value, u64),
    /// It becomes another value and an offset.
    Add(Value, Value, i32),
    /// It becomes another value and a third one times a number.
    Index(Value, Value, Value, u64),
    /// It becomes these bits of another value.
    And(Value, Value, u64),
    /// Goes on at a label if a value is a number.
    IfEqual(Value, u64, Label),
    /// Goes on there if it is less, both signed.
    IfLess(Value, u64, Label),
    /// Goes on there.
    Jump(Label),
    /// Gives up unless the values of a [`Fact`] are known.
    Know,
}

/// A place among steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Steps, as they are put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    steps: Vec<Step>,
    /// The step that each label stands before.
    labels: Vec<usize>,
}

impl Steps {
    /// Adds steps.
    pub fn add(&mut self, steps: impl IntoIterator<Item = Step>) {
        self.steps.extend(steps);
    }

    /// A label that stands nowhere yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(usize::MAX);
        Label(self.labels.len() - 1)
    }

    /// Lets a label stand before the step that is added next.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = self.steps.len();
    }

    /// A label before the step that is added next.
    pub fn here(&mut self) -> Label {
        let label = self.label();
        self.place(label);
        label
    }

    /// All steps.
    pub fn all(&self) -> &[Step] {
        &self.steps
    }

    /// The index of the step that a label stands before.
    pub fn index(&self, label: Label) -> usize {
        self.labels[label.0]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Memory;

    /// Pieces of memory: address and bytes.
    pub type Pieces = Vec<(u64, Vec<u8>)>;

    /// Follows `steps` as a thread does. `None` where it gives up, or would meet a fault.
    pub fn follow(steps: &Steps, facts: &[Fact], memory: &mut dyn Memory) -> Option<Pieces> {
        let mut values = [0_u64; 16];
        let mut pieces = Pieces::new();
        let mut at = 0;
        for _ in 0..8192 {
            let value = |value: Value| values[usize::from(value)];
            let place = |base: Value, offset: i32| value(base).wrapping_add_signed(offset.into());
            let mut next = at + 1;
            let set = match steps.all()[at] {
                Step::Ask => return None,
                Step::End => return Some(pieces),
                Step::Word(to, base, offset) => Some((to, memory.word(place(base, offset))?)),
                Step::Half(to, base, offset) => {
                    let half = memory.half(place(base, offset))?.cast_signed();
                    Some((to, i64::from(half).cast_unsigned()))
                }
                Step::Byte(to, base, offset) => {
                    Some((to, u64::from(memory.byte(place(base, offset))?)))
                }
                Step::Copy(base, offset, length) => {
                    assert_eq!(length % 8, 0);
                    let mut bytes = vec![0; length as usize];
                    let address = place(base, offset);
                    memory.read(address, &mut bytes).then_some(())?;
                    pieces.push((address, bytes));
                    None
                }
                Step::Text(base) => {
                    let mut bytes = Vec::new();
                    loop {
                        let byte = memory.byte(value(base).checked_add(bytes.len() as u64)?)?;
                        bytes.push(byte);
                        if byte == 0 {
                            break;
                        }
                        (bytes.len() < 0x400).then_some(())?;
                    }
                    pieces.push((value(base), bytes));
                    None
                }
                Step::Set(to, number) => Some((to, number)),
                Step::Add(to, base, offset) => Some((to, place(base, offset))),
                Step::Index(to, base, index, size) => {
                    Some((to, value(base).wrapping_add(value(index).wrapping_mul(size))))
                }
                Step::And(to, from, bits) => Some((to, value(from) & bits)),
                Step::IfEqual(what, number, label) => {
                    next = if value(what) == number { steps.index(label) } else { next };
                    None
                }
                Step::IfLess(what, number, label) => {
                    let less = value(what).cast_signed() < number.cast_signed();
                    next = if less { steps.index(label) } else { next };
                    None
                }
                Step::Jump(label) => {
                    next = steps.index(label);
                    None
                }
                Step::Know => {
                    let fact = FACT.map(value);
                    facts.contains(&fact).then_some(())?;
                    None
                }
            };
            if let Some((to, value)) = set {
                values[usize::from(to)] = value;
            }
            at = next;
        }
        None
    }

    /// The memory that pieces hold, and no other.
    #[derive(Debug)]
    pub struct Copied(pub Pieces);

    impl Memory for Copied {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            bytes.iter_mut().zip(address..).all(|(byte, at)| {
                let within = |(start, piece): &(u64, Vec<u8>)| {
                    piece.get(usize::try_from(at.checked_sub(*start)?).ok()?).copied()
                };
                self.0.iter().find_map(within).map(|found| *byte = found).is_some()
            })
        }
    }
}
