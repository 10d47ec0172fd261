//! Text for people to paste into a shell.

use std::path::Path;

/// `path` as a shell takes it for one word.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_what_was_meant() {
        for path in ["/tmp/c", "my cluster", "it's", "$HOME", "a\nb", "ä;ls", "*", "\"", ""] {
            let script = format!("printf %s {}", quoted(Path::new(path)));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), path);
        }
        assert_eq!(quoted(Path::new("/tmp/c")), "/tmp/c");
    }
}
