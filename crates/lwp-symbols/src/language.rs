//! The language that a function is written in, as its name shows.

use lwp_profile::{Function, Module, Origin, is_shared_library};

/// A language, or what stands for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// C, assembly, and whatever else leaves names as they are.
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// Python functions that the interpreter names.
    Python,
    /// Ruby methods and blocks.
    Ruby,
    /// PHP functions.
    Php,
    /// Perl subroutines.
    Perl,
    /// Lua functions.
    Lua,
    /// JavaScript functions that the engine names.
    JavaScript,
    /// Java methods that the virtual machine names.
    Java,
    /// Methods that .NET or Mono names.
    DotNet,
    /// Other code that was generated while the program ran.
    Generated,
    /// Code without names.
    #[default]
    Unknown,
}

impl Language {
    /// All languages.
    pub const ALL: [Self; 14] = [
        Self::C,
        Self::Cpp,
        Self::Rust,
        Self::Go,
        Self::Python,
        Self::Ruby,
        Self::Php,
        Self::Perl,
        Self::Lua,
        Self::JavaScript,
        Self::Java,
        Self::DotNet,
        Self::Generated,
        Self::Unknown,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::C => "C or assembly",
            Self::Cpp => "C++",
            Self::Rust => "Rust",
            Self::Go => "Go",
            Self::Python => "Python",
            Self::Ruby => "Ruby",
            Self::Php => "PHP",
            Self::Perl => "Perl",
            Self::Lua => "Lua",
            Self::JavaScript => "JavaScript",
            Self::Java => "Java",
            Self::DotNet => ".NET",
            Self::Generated => "generated code",
            Self::Unknown => "code without names",
        }
    }

    /// Returns true if an interpreter or a virtual machine executes it.
    pub fn has_runtime(self) -> bool {
        let all = [Self::Python, Self::Ruby, Self::Php, Self::Perl, Self::Lua];
        all.contains(&self) || [Self::JavaScript, Self::Java, Self::DotNet].contains(&self)
    }

    /// The word that stands for it in an address.
    pub fn word(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "cpp",
            Self::Rust => "rust",
            Self::Go => "go",
            Self::Python => "python",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Perl => "perl",
            Self::Lua => "lua",
            Self::JavaScript => "js",
            Self::Java => "java",
            Self::DotNet => "dotnet",
            Self::Generated => "generated",
            Self::Unknown => "unknown",
        }
    }

    /// The language whose word this is.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.word() == word)
    }

    /// The language of a runtime with this word; `node` is JavaScript.
    pub fn of_runtime(word: &str) -> Option<Self> {
        let word = if word == "node" { Self::JavaScript.word() } else { word };
        Self::of_word(word).filter(|language| language.has_runtime())
    }

    /// The language of `function`, by the form of its name: compilers mangle names each in its own
    /// way.
    pub fn of(function: &Function, module: &Module) -> Self {
        let name = function.name.as_str();
        let interpreted = [Self::Python, Self::Ruby, Self::Php, Self::Perl, Self::Lua, Self::Java];
        if let Some((word, _)) = module.path.strip_prefix('[').and_then(|it| it.split_once(']'))
            && let Some(language) = interpreted.into_iter().find(|it| it.word() == word)
        {
            return language;
        }
        match function.origin {
            Origin::Unknown => Self::Unknown,
            Origin::Generated => Self::of_generated(name),
            _ if name.starts_with("py::") => Self::Python,
            _ if name.starts_with("_R") || is_rust_legacy(name) => Self::Rust,
            Origin::Debug if file_ends(function, &[".rs"]) || name.contains("::{") => Self::Rust,
            _ if name.starts_with("_Z") || name.contains("::") => Self::Cpp,
            _ if module.go && name.contains('.') => Self::Go,
            _ if is_go(name) && !is_shared_library(&module.path) => Self::Go,
            _ => Self::C,
        }
    }

    /// The language of a function that was generated while the program ran, by its name.
    pub fn of_generated(name: &str) -> Self {
        let word = name.split([':', ' ']).next().unwrap_or("");
        match word {
            "py" => Self::Python,
            "JS" | "LazyCompile" | "Function" | "Script" | "Eval" => Self::JavaScript,
            _ if name.starts_with('L') && name.contains(";::") => Self::Java,
            _ if is_dotnet(name) => Self::DotNet,
            // HotSpot's own map: `void java.util.HashMap.clear()`.
            _ if name.ends_with(')') && word.len() < name.len() && name.contains('.') => Self::Java,
            _ if name.contains('/') && name.contains("::") || word == "Interpreter" => Self::Java,
            _ => Self::Generated,
        }
    }
}

fn file_ends(function: &Function, ends: &[&str]) -> bool {
    ends.iter().any(|end| function.file.ends_with(end))
}

/// `_ZN…17h`, sixteen hexadecimal digits, `E`.
fn is_rust_legacy(name: &str) -> bool {
    name.starts_with("_ZN")
        && name.rfind("17h").is_some_and(|at| {
            let hash = name.get(at + 3..at + 19);
            hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
        })
}

/// `void [app] Program::Main(string[])[Tier0]`, and Mono's `Mono.Xml.MiniParser:Xlat (int,int)`.
fn is_dotnet(name: &str) -> bool {
    let before = name.split(" (").next().unwrap_or("");
    let mono = name.ends_with(')') && before.len() < name.len() && before.contains(':');
    let wrapper = name.starts_with("(wrapper ") && name.ends_with(')');
    wrapper || mono || name.contains(" [") && name.contains("] ") && name.contains("::")
}

/// `package.Function`: C has no dots in names, save what compilers append.
fn is_go(name: &str) -> bool {
    let Some((package, rest)) = name.split_once('.') else { return false };
    !package.is_empty()
        && crate::stable_name(name) == name
        && !rest.is_empty()
        && !rest.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_known_by_the_form_of_names() {
        let of = |origin, name: &str| {
            let function = Function { name: name.into(), origin, ..Function::default() };
            Language::of(&function, &Module { path: "/bin/prog".into(), ..Module::default() })
        };
        let source = Module { path: "[python]/srv/app.py".into(), ..Module::default() };
        let function =
            Function { name: "main".into(), origin: Origin::Symbol, ..Function::default() };
        assert_eq!(Language::of(&function, &source), Language::Python);
        let source = Module { path: "[lua]/srv/app.lua".into(), ..Module::default() };
        assert_eq!(Language::of(&function, &source), Language::Lua);
        let symbols = [
            ("main", Language::C),
            ("sort.constprop.0", Language::C),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", Language::Cpp),
            ("_ZN4core3fmt5write17h0123456789abcdefE", Language::Rust),
            ("_RNvCs15kBYyAo9fc_7mycrate7example", Language::Rust),
            ("runtime.mallocgc", Language::Go),
        ];
        for (name, language) in symbols {
            assert_eq!(of(Origin::Symbol, name), language, "{name}");
        }
        let generated = [
            ("py::fib:/tmp/a.py", Language::Python),
            ("JS:*fib a.js:1:1", Language::JavaScript),
            ("Ljava/lang/String;::hashCode", Language::Java),
            ("void java.util.HashMap.clear()", Language::Java),
            ("void [app] Program::Main(string[])[Tier0]", Language::DotNet),
            ("Mono.Xml.MiniParser:Xlat (int,int)", Language::DotNet),
            ("(wrapper alloc) object:AllocSmall (intptr,intptr)", Language::DotNet),
            ("int A.collatz(long)", Language::Java),
            ("StubRoutines (1)", Language::Generated),
            ("stub 4", Language::Generated),
        ];
        for (name, language) in generated {
            assert_eq!(of(Origin::Generated, name), language, "{name}");
        }
        assert_eq!(of(Origin::Unknown, "0x1000"), Language::Unknown);
    }

    #[test]
    fn words_lead_back_to_languages() {
        for language in Language::ALL {
            assert_eq!(Language::of_word(language.word()), Some(language));
        }
    }
}
