//! Similarity of shell lines by their programs and operands.

/// Wrapper programs; their own operands are skipped.
const WRAPPERS: [&str; 9] = ["env", "timeout", "sudo", "nice", "nohup", "time", "stdbuf", "xargs", "command"];
/// Commands that only change the folder.
const MOVES: [&str; 3] = ["cd", "pushd", "popd"];

/// The programs of a line with their operands, in order: without options, assignments before a program, wrappers, and
/// statements that only change the folder. Linear in the line; quotes are not read.
pub(super) fn operands(line: &str) -> impl Iterator<Item = &str> {
    line.split([';', '|', '&', '\n']).flat_map(|statement| {
        let mut words = statement.split_whitespace().peekable();
        let mut is_wrapped = false;
        while let Some(word) = words.peek() {
            let is_wrapper = WRAPPERS.contains(word);
            let is_own = is_wrapped && word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
            if !(is_wrapper || is_own || is_assignment(word)) {
                break;
            }
            is_wrapped |= is_wrapper;
            words.next();
        }
        let moves = words.peek().is_some_and(|word| MOVES.contains(word));
        words.filter(move |word| !moves && !word.starts_with('-'))
    })
}

/// `NAME=value`.
fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_words(line: &str) -> Vec<&str> {
        operands(line).collect()
    }

    #[test]
    fn wrappers_folders_and_options_make_no_other_line() {
        let line = split_words("pytest tests/test_a.py");
        for same in [
            "cd src && pytest -x tests/test_a.py",
            "timeout 20 pytest tests/test_a.py -q",
            "env MODE=a CI=1 timeout -s 9 20 pytest tests/test_a.py",
            "MODE=a sudo pytest tests/test_a.py",
        ] {
            assert_eq!(split_words(same), line, "{same}");
        }
        for other in ["pytest tests/test_b.py", "cat tests/test_a.py", "pytest tests/test_a.py | tail", ""] {
            assert_ne!(split_words(other), line, "{other}");
        }
    }
}
