//! Specifications of events, as both commands take them after `-c`:
//! `[picN=]event[,attribute[N][=value]]...[,[picN=]event...]...`
//!
//! Attributes, `sys` and `nouser` belong to all events of the specification, or, with a number
//! behind the name, to the one on that counter. Commas inside `pmu/terms/` are part of the event's
//! name.

use crate::failure::Failure;

/// One event of a specification, before it has a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The counter asked for by `picN=`.
    pub pic: Option<u32>,
    /// Its name.
    pub event: String,
}

/// Something that changes how events are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modifier {
    /// `sys`, `nouser`, or an attribute.
    pub name: String,
    /// Its value; 1 where none was given.
    pub value: u64,
    /// The only counter it is for.
    pub pic: Option<u32>,
}

/// A specification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// As it was written.
    pub text: String,
    /// The events, in order.
    pub events: Vec<Wanted>,
    /// Modifiers of the events.
    pub modifiers: Vec<Modifier>,
}

impl Spec {
    /// Parses `text`. `attributes` are the names that are attributes, not events.
    ///
    /// # Errors
    ///
    /// The text is no specification.
    pub fn parse(text: &str, attributes: &[&str]) -> Result<Self, Failure> {
        let mut spec = Self { text: text.to_owned(), ..Self::default() };
        for token in tokens(text) {
            spec.token(token, attributes)?;
        }
        if spec.events.is_empty() {
            return Err(Failure::Usage(format!("no event in '{text}'")));
        }
        Ok(spec)
    }

    fn token(&mut self, token: &str, attributes: &[&str]) -> Result<(), Failure> {
        // A name with a slash is an event whatever stands in it.
        let slash = token.find('/').unwrap_or(token.len());
        let (name, value) = match token.find('=') {
            Some(at) if at < slash => (&token[..at], Some(&token[at + 1..])),
            _ => (token, None),
        };
        if let (Some(pic), Some(event)) = (pic_number(name), value) {
            if event.is_empty() {
                return Err(Failure::Usage(format!("no event behind '{token}'")));
            }
            self.events.push(Wanted { pic: Some(pic), event: event.to_owned() });
            return Ok(());
        }
        if let Some((name, pic)) = modifier(name, attributes) {
            let value = match value {
                None => 1,
                Some(text) => number(text)
                    .ok_or_else(|| Failure::Usage(format!("'{text}' is no number for '{name}'")))?,
            };
            self.modifiers.push(Modifier { name: name.to_owned(), value, pic });
            return Ok(());
        }
        match value {
            Some(_) => Err(Failure::Usage(format!("unknown attribute '{name}'"))),
            None if token.is_empty() => Err(Failure::Usage("an event is missing".into())),
            None => {
                self.events.push(Wanted { pic: None, event: token.to_owned() });
                Ok(())
            }
        }
    }

    /// Returns the modifiers of the event on counter `pic`, in the order in which they were
    /// written.
    pub fn modifiers_of(&self, pic: u32) -> impl Iterator<Item = &Modifier> {
        self.modifiers.iter().filter(move |modifier| modifier.pic.is_none_or(|only| only == pic))
    }
}

/// Splits at commas outside of slashes.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '/' => inside = !inside,
            ',' if !inside => {
                tokens.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    tokens.push(text[start..].trim());
    tokens
}

/// The number of `picN`.
fn pic_number(name: &str) -> Option<u32> {
    name.strip_prefix("pic")?.parse().ok()
}

/// The modifier that `name` is, and the counter whose number stands behind it.
fn modifier<'a>(name: &'a str, attributes: &[&str]) -> Option<(&'a str, Option<u32>)> {
    let known = |name: &str| name == "sys" || name == "nouser" || attributes.contains(&name);
    if known(name) {
        return Some((name, None));
    }
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let pic = name[bare.len()..].parse().ok()?;
    known(bare).then_some((bare, Some(pic)))
}

/// A number in decimal, hexadecimal or octal; negative ones wrap, as the original's did.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix('-') {
        Some(positive) => cpc::parse_number(positive).map(u64::wrapping_neg),
        None => cpc::parse_number(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTRIBUTES: &[&str] = &["umask", "cmask", "picnum"];

    fn parse(text: &str) -> Spec {
        Spec::parse(text, ATTRIBUTES).unwrap()
    }

    fn refused(text: &str) -> String {
        match Spec::parse(text, ATTRIBUTES) {
            Err(Failure::Usage(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    fn events(spec: &Spec) -> Vec<(Option<u32>, &str)> {
        spec.events.iter().map(|wanted| (wanted.pic, &*wanted.event)).collect()
    }

    #[test]
    fn events_with_and_without_a_counter() {
        let spec = parse("pic1=cycles,instructions,pic0=0xc0");
        let expected = [(Some(1), "cycles"), (None, "instructions"), (Some(0), "0xc0")];
        assert_eq!(events(&spec), expected);
        assert!(spec.modifiers.is_empty());
    }

    #[test]
    fn modifiers_are_for_all_or_for_one() {
        let spec = parse("cycles,sys,umask=0x1f,instructions,nouser1,cmask0=2,sys0");
        let of = |pic| {
            let names = spec.modifiers_of(pic).map(|m| (&*m.name, m.value));
            names.collect::<Vec<_>>()
        };
        assert_eq!(of(0), [("sys", 1), ("umask", 31), ("cmask", 2), ("sys", 1)]);
        assert_eq!(of(1), [("sys", 1), ("umask", 31), ("nouser", 1)]);
        assert_eq!(events(&spec).len(), 2);
        assert_eq!(parse("cycles,umask=-1").modifiers[0].value, u64::MAX);
    }

    #[test]
    fn terms_of_a_pmu_are_one_name() {
        let spec = parse("cpu/event=0xc0,umask=1/u,pic1=msr/tsc/,sys");
        assert_eq!(events(&spec), [(None, "cpu/event=0xc0,umask=1/u"), (Some(1), "msr/tsc/")]);
        assert_eq!(spec.modifiers.len(), 1);
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(refused("sys"), "no event in 'sys'");
        assert_eq!(refused("pic0="), "no event behind 'pic0='");
        assert_eq!(refused("cycles,edge=1"), "unknown attribute 'edge'");
        assert_eq!(refused("cycles,umask=x"), "'x' is no number for 'umask'");
        assert_eq!(refused("cycles,,sys"), "an event is missing");
    }

    #[test]
    fn an_event_may_end_with_a_digit() {
        assert_eq!(events(&parse("PAPI_l1_dcm,umask_x1")).len(), 2);
    }
}
