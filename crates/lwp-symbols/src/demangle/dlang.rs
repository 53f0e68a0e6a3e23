//! D's names, as the language's specification describes them: a path, with the parameters of
//! functions and the arguments of templates. Types and names that were written before are given by
//! their distance.
//!
//! Promise: R155

/// Steps that one name may take: names refer to what was before, again and again.
const STEPS: usize = 10_000;

/// Types and names may be this deep in each other.
const DEPTH: usize = 64;

/// The longest name that is shown.
const LONGEST: usize = 8 << 10;

/// `app.add(int, int)` for `_D3app3addFiiZi`.
pub fn dlang(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_D") {
        return None;
    }
    let mut reader = Reader { text: symbol, at: 0, steps: 0, depth: 0 };
    let name = reader.mangled()?;
    (reader.at == symbol.len()).then_some(name)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    steps: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// Reads something one level deeper, as long as there are steps left.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.steps += 1;
        if self.steps > STEPS || self.depth == DEPTH {
            return None;
        }
        self.depth += 1;
        let out = read(self);
        self.depth -= 1;
        out
    }

    fn number(&mut self) -> Option<usize> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let number = self.rest().get(..digits)?.parse().ok();
        self.at += digits;
        number
    }

    /// `_D`, a path, and the type of what it names.
    fn mangled(&mut self) -> Option<String> {
        if !self.eat("_D") {
            return None;
        }
        let name = self.path(true)?;
        // Data of the compiler's own have no type.
        if !self.eat("Z") {
            self.type_name()?;
        }
        Some(name)
    }

    /// A path. Only if it `may_end` so, a function's parameters end it: behind a type's name, other
    /// types may follow that look like them.
    fn path(&mut self, may_end: bool) -> Option<String> {
        self.deeper(|it| {
            let mut path = String::new();
            loop {
                let part = it.part()?;
                let is_first = path.is_empty() || part.is_empty();
                path.push_str(if is_first { "" } else { "." });
                path.push_str(&part);
                if path.len() > LONGEST {
                    return None;
                }
                let behind = it.at;
                let parameters = it.method();
                let goes_on = it.is_part();
                match parameters {
                    Some(parameters) if goes_on || may_end => path.push_str(&parameters),
                    _ => it.at = behind,
                }
                if !it.is_part() {
                    return Some(path);
                }
            }
        })
    }

    /// Returns whether a part of a path comes next.
    fn is_part(&self) -> bool {
        let is_template = || self.rest().starts_with("__T") || self.rest().starts_with("__U");
        match self.peek() {
            Some(b'Q') => self.target().is_some_and(|(to, _)| {
                self.text.as_bytes().get(to).is_some_and(u8::is_ascii_digit)
            }),
            Some(byte) => byte.is_ascii_digit() || is_template(),
            None => false,
        }
    }

    /// One part of a path: a name, a template with its arguments, or a name from before.
    fn part(&mut self) -> Option<String> {
        if self.eat("__T") || self.eat("__U") {
            return self.deeper(Self::template);
        }
        if self.peek() == Some(b'Q') {
            let (to, behind) = self.target()?;
            self.at = to;
            let name = self.deeper(Self::name);
            self.at = behind;
            return name;
        }
        self.name()
    }

    fn name(&mut self) -> Option<String> {
        let bytes = self.number()?;
        let start = self.at;
        if bytes > 5 && (self.eat("__T") || self.eat("__U")) {
            // Compilers before 2017 wrote the length of the whole template.
            let template = self.deeper(Self::template)?;
            return (self.at - start == bytes).then_some(template);
        }
        let name = self.text.get(start..start.checked_add(bytes)?)?;
        self.at = start + bytes;
        let of_scope = name.strip_prefix("__S").is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        Some(match name {
            "__ctor" => "this".to_owned(),
            "__dtor" => "~this".to_owned(),
            "__postblit" => "this(this)".to_owned(),
            // It distinguishes functions of one name in different blocks.
            _ if of_scope => String::new(),
            _ => name.to_owned(),
        })
    }

    /// Where something stands that was written before, and where the reference to it ends.
    fn target(&self) -> Option<(usize, usize)> {
        let mut distance: usize = 0;
        for (at, byte) in self.text.bytes().enumerate().skip(self.at + 1) {
            let (digit, is_last) = match byte {
                b'A'..=b'Z' => (byte - b'A', false),
                b'a'..=b'z' => (byte - b'a', true),
                _ => return None,
            };
            distance = distance.checked_mul(26)?.checked_add(usize::from(digit))?;
            if is_last {
                return Some((self.at.checked_sub(distance).filter(|to| *to < self.at)?, at + 1));
            }
        }
        None
    }

    /// A template's name and arguments, behind `__T`.
    fn template(&mut self) -> Option<String> {
        let name = self.part()?;
        let mut arguments = Vec::new();
        while !self.eat("Z") {
            // A specialised parameter.
            self.eat("H");
            arguments.push(match self.next()? {
                b'T' => self.type_name()?,
                b'V' => self.typed_value()?,
                b'S' if self.rest().starts_with("_D") => self.deeper(Self::mangled)?,
                b'S' => self.path(false)?,
                b'X' => {
                    let bytes = self.number()?;
                    let end = self.at.checked_add(bytes)?;
                    let name = self.text.get(self.at..end)?;
                    self.at = end;
                    name.to_owned()
                }
                _ => return None,
            });
        }
        joined(&arguments).map(|arguments| format!("{name}!({arguments})"))
    }

    fn typed_value(&mut self) -> Option<String> {
        let mut kind = self.peek()?;
        if kind == b'Q' {
            kind = self.target().and_then(|(to, _)| self.text.as_bytes().get(to).copied())?;
        }
        let name = self.type_name()?;
        self.value(kind, &name)
    }

    fn value(&mut self, kind: u8, name: &str) -> Option<String> {
        self.deeper(|it| match it.peek()? {
            b'0'..=b'9' => it.integer(kind),
            b'i' => it.next().and_then(|_| it.integer(kind)),
            b'N' => it.next().and_then(|_| it.integer(kind)).map(|value| format!("-{value}")),
            b'n' => it.next().map(|_| "null".to_owned()),
            b'e' => it.next().and_then(|_| it.float()),
            b'c' => {
                it.next()?;
                let real = it.float()?;
                let imaginary = it.eat("c").then(|| it.float())??;
                Some(format!("{real}+{imaginary}i"))
            }
            b'a' | b'w' | b'd' => it.next().and_then(|_| it.characters()),
            b'A' => it.values().map(|all| format!("[{all}]")),
            b'S' => it.values().map(|all| format!("{name}({all})")),
            b'f' => it.next().and_then(|_| it.mangled()),
            _ => None,
        })
    }

    fn integer(&mut self, kind: u8) -> Option<String> {
        let value = self.number()?;
        let letter = || u32::try_from(value).ok().and_then(char::from_u32);
        Some(match kind {
            b'b' if value < 2 => (value == 1).to_string(),
            b'a' | b'u' | b'w' => match letter().filter(|it| it.is_ascii_graphic()) {
                Some(letter) => format!("'{letter}'"),
                None => format!("'\\x{value:02x}'"),
            },
            _ => value.to_string(),
        })
    }

    /// A number with hexadecimal digits: `1A8P3`, `NAN`, `NINF`.
    fn float(&mut self) -> Option<String> {
        for word in ["NAN", "NINF", "INF"] {
            if self.eat(word) {
                return Some(word.replace("NI", "-I"));
            }
        }
        let sign = if self.eat("N") { "-" } else { "" };
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
        let mantissa = self.rest().get(..digits(self.rest()))?;
        self.at += mantissa.len();
        let below = if self.eat("P") && self.eat("N") { "-" } else { "" };
        let exponent = self.number()?;
        let (first, more) = mantissa.split_at_checked(1)?;
        Some(format!("{sign}0x{first}.{more}p{below}{exponent}"))
    }

    /// The length of a string and its bytes, in hexadecimal digits.
    fn characters(&mut self) -> Option<String> {
        let length = self.number().filter(|length| *length < LONGEST)?;
        if !self.eat("_") {
            return None;
        }
        let digits = self.rest().get(..length.checked_mul(2)?)?;
        self.at += digits.len();
        let bytes =
            (0..length).map(|at| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok());
        let bytes: Option<Vec<u8>> = bytes.collect();
        Some(format!("\"{}\"", String::from_utf8_lossy(&bytes?).escape_debug()))
    }

    fn values(&mut self) -> Option<String> {
        self.next()?;
        let length = self.number()?;
        let mut all = Vec::new();
        for _ in 0..length {
            all.push(self.value(b'i', "")?);
        }
        joined(&all)
    }

    /// The parameters of a function, and what a method may be called on.
    fn method(&mut self) -> Option<String> {
        let mut words = String::new();
        if self.eat("M") {
            while let Some(word) = self.qualifier() {
                words.push_str(word);
            }
        }
        self.parameters().map(|parameters| format!("{parameters}{words}"))
    }

    /// A word that says what a method or a delegate may be called on.
    fn qualifier(&mut self) -> Option<&'static str> {
        let words = [("x", " const"), ("y", " immutable"), ("O", " shared"), ("Ng", " inout")];
        words.into_iter().find(|(letters, _)| self.eat(letters)).map(|(_, word)| word)
    }

    /// The parameters of a function, behind its calling convention and attributes.
    fn parameters(&mut self) -> Option<String> {
        self.deeper(|it| {
            if !matches!(it.next()?, b'F' | b'U' | b'W' | b'V' | b'R' | b'Y') {
                return None;
            }
            while let [b'N', attribute, ..] = it.rest().as_bytes() {
                if !b"abcdefijlm".contains(attribute) {
                    break;
                }
                it.at += 2;
            }
            let mut all: Vec<String> = Vec::new();
            loop {
                match it.peek()? {
                    b'X' => {
                        all.last_mut()?.push_str("...");
                        break;
                    }
                    b'Y' => {
                        all.push("...".to_owned());
                        break;
                    }
                    b'Z' => break,
                    _ => all.push(it.parameter()?),
                }
            }
            it.at += 1;
            joined(&all).map(|all| format!("({all})"))
        })
    }

    fn parameter(&mut self) -> Option<String> {
        let mut words = String::new();
        loop {
            let (letters, word) = match self.peek()? {
                b'M' => (1, "scope "),
                b'I' => (1, "in "),
                b'J' => (1, "out "),
                b'K' => (1, "ref "),
                b'L' => (1, "lazy "),
                b'N' if self.rest().starts_with("Nk") => (2, "return "),
                _ => break,
            };
            self.at += letters;
            words.push_str(word);
        }
        self.type_name().map(|name| format!("{words}{name}"))
    }

    fn type_name(&mut self) -> Option<String> {
        let name = self.deeper(Self::any_type)?;
        (name.len() <= LONGEST).then_some(name)
    }

    fn any_type(&mut self) -> Option<String> {
        let inner = |it: &mut Self, around: &str| Some(format!("{around}({})", it.type_name()?));
        match self.next()? {
            b'x' => inner(self, "const"),
            b'y' => inner(self, "immutable"),
            b'O' => inner(self, "shared"),
            b'N' => match self.next()? {
                b'g' => inner(self, "inout"),
                b'h' => inner(self, "__vector"),
                b'n' => Some("noreturn".to_owned()),
                _ => None,
            },
            b'A' => Some(format!("{}[]", self.type_name()?)),
            b'G' => {
                let length = self.number()?;
                Some(format!("{}[{length}]", self.type_name()?))
            }
            b'H' => {
                let key = self.type_name()?;
                Some(format!("{}[{key}]", self.type_name()?))
            }
            b'P' if matches!(self.peek()?, b'F' | b'U' | b'W' | b'V' | b'R' | b'Y') => {
                self.function("function")
            }
            b'P' => Some(format!("{}*", self.type_name()?)),
            b'D' => self.function("delegate"),
            b'F' | b'U' | b'W' | b'V' | b'R' | b'Y' => {
                self.at -= 1;
                self.function("")
            }
            b'C' | b'S' | b'E' | b'T' | b'I' => self.path(false),
            b'B' => {
                let mut all = Vec::new();
                while !self.eat("Z") {
                    all.push(self.parameter()?);
                }
                joined(&all).map(|all| format!("Tuple!({all})"))
            }
            b'Q' => {
                self.at -= 1;
                let (to, behind) = self.target()?;
                self.at = to;
                let name = self.type_name();
                self.at = behind;
                name
            }
            b'z' => match self.next()? {
                b'i' => Some("cent".to_owned()),
                b'k' => Some("ucent".to_owned()),
                _ => None,
            },
            letter => BASIC.iter().find(|it| it.0 == letter).map(|it| it.1.to_owned()),
        }
    }

    /// A function's type: what it returns, its parameters, and what kind of pointer it is.
    fn function(&mut self, kind: &str) -> Option<String> {
        // What a delegate may be called on stands before the function.
        while self.qualifier().is_some() {}
        let parameters = self.parameters()?;
        let returned = self.type_name()?;
        let blank = if kind.is_empty() { "" } else { " " };
        Some(format!("{returned}{parameters}{blank}{kind}"))
    }
}

/// Parts of a list; `None` if they are too long.
fn joined(all: &[String]) -> Option<String> {
    let bytes: usize = all.iter().map(|it| it.len() + 2).sum();
    (bytes <= LONGEST).then(|| all.join(", "))
}

/// Types that are one letter.
#[rustfmt::skip]
const BASIC: [(u8, &str); 23] = [
    (b'v', "void"),   (b'g', "byte"),   (b'h', "ubyte"),   (b's', "short"),
    (b't', "ushort"), (b'i', "int"),    (b'k', "uint"),    (b'l', "long"),
    (b'm', "ulong"),  (b'f', "float"),  (b'd', "double"),  (b'e', "real"),
    (b'o', "ifloat"), (b'p', "idouble"), (b'j', "ireal"),  (b'q', "cfloat"),
    (b'r', "cdouble"), (b'c', "creal"), (b'b', "bool"),    (b'a', "char"),
    (b'u', "wchar"),  (b'w', "dchar"),  (b'n', "typeof(null)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_d_have_their_paths_and_parameters() {
        for (symbol, name) in [
            ("_D3app3addFiiZi", "app.add(int, int)"),
            ("_D3app4mainFZ9__lambda7MFNaNbNiNfiZi", "app.main().__lambda7(int)"),
            (
                "_D3app4mainFZ__T9__lambda8TiZQnFNaNbNiNfiZi",
                "app.main().__lambda8!(int).__lambda8(int)",
            ),
            ("_D3app4variFAiXv", "app.vari(int[]...)"),
            ("_D3app4openFPxaYi", "app.open(const(char)*, ...)"),
            (
                "_D3app5Shape4areaMFKAiAxaHAyaiDFiZiZi",
                "app.Shape.area(ref int[], const(char)[], int[immutable(char)[]], int(int) delegate)",
            ),
            ("_D3app5Shape6__ctorMFiZCQwQu", "app.Shape.this(int)"),
            (
                "_D3app__T5PointTiZQj3dotMxFNaNbNiNfSQBi__TQBhTiZQBnZi",
                "app.Point!(int).Point.dot(app.Point!(int).Point) const",
            ),
            ("_D3app__T5PointTiZQj6__dtorMFNaNbNiNfZv", "app.Point!(int).Point.~this()"),
            (
                "_D3app__T5PointTiZQj__T8opBinaryVAyaa1_2bZQtMFNaNbNiNfSQCb__TQCaTiZQCgZQr",
                "app.Point!(int).Point.opBinary!(\"+\").opBinary(app.Point!(int).Point)",
            ),
            (
                "_D3app__T5twiceTiViN3ZQnFiZ6helperMFNaNbNiNfiZi",
                "app.twice!(int, -3).twice(int).helper(int)",
            ),
            ("_D3app20__T5twiceTiVbi1Va65Z5twiceFiZi", "app.twice!(int, true, 'A').twice(int)"),
            ("_D3app1fFPFiZvJG4hZv", "app.f(void(int) function, out ubyte[4])"),
            ("_D3app12__ModuleInfoZ", "app.__ModuleInfo"),
        ] {
            assert_eq!(dlang(symbol).as_deref(), Some(name), "{symbol}");
        }
        for symbol in
            ["_D", "_Dmain", "_D3ap", "_D3app", "_D3app3addFiiZ", "_D3app3addFiiZi.x", "_D3appQaZ"]
        {
            assert_eq!(dlang(symbol), None, "{symbol}");
        }
    }

    #[test]
    fn names_that_grow_without_end_are_left_alone() {
        // Each type names the one before it twice.
        let mut symbol = "_D1a1fFHiiHQeQg".to_owned();
        for _ in 0..60 {
            symbol.push_str("HQgQi");
        }
        assert_eq!(
            dlang("_D1a1fFHiiHQeQgZv").as_deref(),
            Some("a.f(int[int], int[int][int[int]])")
        );
        symbol.push_str("Zv");
        assert_eq!(dlang(&symbol), None);
        assert_eq!(dlang(&format!("_D1a1fF{}iZv", "P".repeat(5000))), None);
    }

    proptest::proptest! {
        #[test]
        fn no_symbol_is_too_strange(text in "[0-9QFMZ_TSVPADHNaxbié]{0,40}") {
            let name = dlang(&format!("_D{text}"));
            proptest::prop_assert!(name.is_none_or(|name| name.len() <= 4 * LONGEST));
        }
    }
}
