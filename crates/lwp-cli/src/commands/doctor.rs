//! `lwp doctor`: what this machine allows, and what to do about the rest.

use std::fmt::Write;

use lwp_vcpu::doctor::{Check, Status, checks};

use super::print;
use crate::ending::Ending;
use crate::failure::Failure;

/// Prints every check; the exit code is 1 if one failed.
pub fn execute() -> Result<Ending, Failure> {
    let checks = checks();
    print(&text(&checks))?;
    let failed = checks.iter().any(|check| check.status == Status::Fail);
    Ok(Ending::Code(u8::from(failed)))
}

fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let status = match check.status {
            Status::Ok => "OK  ",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        let _ = writeln!(text, "{status}  {:<16} {}", check.name, check.detail);
        if check.status != Status::Ok && !check.help.is_empty() {
            let _ = writeln!(text, "{:>23}{}", "help: ", check.help);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_have_help() {
        let check = |status| Check {
            name: "ptrace".into(),
            status,
            detail: "as found".into(),
            help: "do this".into(),
        };
        let expected = "\
OK    ptrace           as found
FAIL  ptrace           as found
                 help: do this
";
        assert_eq!(text(&[check(Status::Ok), check(Status::Fail)]), expected);
    }
}
