//! As much of Rust's grammar as the walls need: tokens without comments and strings, and the paths among them.

use std::collections::BTreeSet;

/// A word, a `::`, or one other character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A name as it is written: `crate::domain::json`, `Instant::now`, `info!`, `async`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) line: usize,
    pub(crate) parts: Vec<String>,
    /// True for a leaf of a `use`.
    pub(crate) imported: bool,
    /// True for a leaf of a `pub use`.
    pub(crate) exported: bool,
    /// How many modules stand around it; 0 is the crate's root.
    pub(crate) depth: usize,
}

/// A file without its tests, read into tokens.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) tokens: Vec<Token>,
    /// Modules that exist for tests only and live in files of their own.
    pub(crate) test_modules: Vec<String>,
}

impl Source {
    pub(crate) fn read(text: &str) -> Self {
        let (mut kept, mut test_modules) = (Vec::new(), Vec::new());
        let tokens = tokens(text);
        let mut at = 0;
        while at < tokens.len() {
            let is = |i: usize, word: &str| tokens.get(at + i).is_some_and(|token| token.text == word);
            if ["#", "[", "cfg", "(", "test", ")", "]"].iter().enumerate().all(|(i, word)| is(i, word)) {
                let end = end_of_item(&tokens, at + 7);
                let name = tokens[at..end].windows(3).find(|w| w[0].text == "mod" && w[2].text == ";");
                test_modules.extend(name.map(|name| name[1].text.clone()));
                at = end;
            } else {
                kept.push(tokens[at].clone());
                at += 1;
            }
        }
        Self { tokens: kept, test_modules }
    }

    /// Every name in the file, which itself stands `depth` modules deep.
    pub(crate) fn paths(&self, depth: usize) -> Vec<Path> {
        let (mut paths, mut at) = (Vec::new(), 0);
        let (mut braces, mut modules) = (0_usize, Vec::new());
        while let Some(token) = self.tokens.get(at) {
            let next = self.text(at + 1);
            match token.text.as_str() {
                "{" => braces += 1,
                "}" => {
                    braces = braces.saturating_sub(1);
                    modules.pop_if(|opened| *opened == braces);
                }
                "mod" if self.text(at + 2) == "{" => modules.push(braces),
                // `use<'a>` in a type captures lifetimes.
                "use" if next != "<" => {
                    let (first, is_public) = (paths.len(), at > 0 && self.text(at - 1) == "pub");
                    at += 1;
                    self.imports(&mut at, &[], depth + modules.len(), &mut paths);
                    paths[first..].iter_mut().for_each(|path| path.exported = is_public);
                }
                word if is_word(word) => {
                    let mut parts = vec![word.to_owned()];
                    while self.text(at + 1) == "::" && is_word(self.text(at + 2)) {
                        parts.push(self.text(at + 2).to_owned());
                        at += 2;
                    }
                    if self.text(at + 1) == "!" && self.text(at + 2) != "=" {
                        parts.last_mut().expect("a word").push('!');
                    }
                    paths.push(Path {
                        line: token.line,
                        parts,
                        imported: false,
                        exported: false,
                        depth: depth + modules.len(),
                    });
                }
                _ => {}
            }
            at += 1;
        }
        paths
    }

    /// Names that stand for something of this crate: modules declared here, and what was imported from it.
    pub(crate) fn local_names(&self, paths: &[Path], is_ours: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let modules = self.tokens.windows(2).filter(|pair| pair[0].text == "mod").map(|pair| pair[1].text.clone());
        let ours = paths.iter().filter(|path| path.imported && is_ours(&path.parts[0]));
        modules.chain(ours.filter_map(|path| path.parts.iter().rfind(|part| *part != "self").cloned())).collect()
    }

    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text.as_str())
    }

    /// Reads one branch of a `use`, up to the `,`, `}` or `;` behind it. An alias stands in for the last part.
    fn imports(&self, at: &mut usize, prefix: &[String], depth: usize, paths: &mut Vec<Path>) {
        let mut parts = prefix.to_vec();
        let line = self.tokens.get(*at).map_or(0, |token| token.line);
        loop {
            match self.text(*at) {
                "" | "," | "}" | ";" => break,
                "{" => {
                    while !matches!(self.text(*at), "}" | "") {
                        *at += 1;
                        self.imports(at, &parts, depth, paths);
                    }
                    *at += 1;
                    return;
                }
                "as" => {
                    // The true name and the alias are both of interest.
                    paths.push(Path { line, parts: parts.clone(), imported: true, exported: false, depth });
                    parts.pop();
                }
                "::" => {}
                word => parts.push(word.to_owned()),
            }
            *at += 1;
        }
        if parts.len() > prefix.len() {
            paths.push(Path { line, parts, imported: true, exported: false, depth });
        }
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The place behind the item that begins at `at`: its `;` or its closing brace.
fn end_of_item(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            ";" if depth == 0 => return i + 1,
            _ => {}
        }
    }
    tokens.len()
}

fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let start = at;
        let rest = &chars[at..];
        at += match rest {
            ['/', '/', ..] => rest.iter().take_while(|c| **c != '\n').count(),
            ['/', '*', ..] => comment(rest),
            ['"', ..] => string(rest),
            ['\'', '\\', ..] => 3 + rest.iter().skip(3).take_while(|c| **c != '\'').count() + 1,
            ['\'', _, '\'', ..] => 3,
            ['r', '"', ..] | ['r', '#', '"' | '#', ..] => 1 + raw_string(&rest[1..]),
            ['b' | 'c', 'r', '"', ..] | ['b' | 'c', 'r', '#', '"' | '#', ..] => 2 + raw_string(&rest[2..]),
            [c, ..] if c.is_alphanumeric() || *c == '_' => {
                let word: String = rest.iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
                let length = word.chars().count();
                tokens.push(Token { line, text: word });
                length
            }
            [':', ':', ..] => {
                tokens.push(Token { line, text: "::".to_owned() });
                2
            }
            [c, ..] => {
                if !c.is_whitespace() && *c != '\'' {
                    tokens.push(Token { line, text: c.to_string() });
                }
                1
            }
            [] => 1,
        };
        at = at.min(chars.len());
        line += chars[start..at].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

fn comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn raw_string(rest: &[char]) -> usize {
    let marks = rest.iter().take_while(|c| **c == '#').count();
    let closes =
        |at: usize| rest[at] == '"' && rest[at + 1..].iter().take(marks).filter(|c| **c == '#').count() == marks;
    let end = (marks + 1..rest.len()).find(|at| closes(*at)).unwrap_or(rest.len());
    end + 1 + marks
}

#[test]
fn nested_imports_inline_paths_and_macros_are_seen_and_text_is_not() {
    let source = Source::read(concat!(
        "// crate::comment\n/* crate::block /* deeper */ */\nuse crate::{a::{b, c as d}, e::*};\n",
        "pub(super) fn f<'x>(s: &'x str) -> char { let _ = \"crate::text\"; ",
        "r#\"crate::\"raw\" \"#; info!(1); '\\''; '\"'\n",
        "}\nmod inner { fn g() -> impl Sized + use<'_> { super::super::h::i(k.j::<u8>()) } }\n",
        "#[cfg(test)]\nmod tests { use crate::tested; }\n#[cfg(test)]\npub(crate) mod testing;\n",
    ));
    let paths = source.paths(1);
    let seen: Vec<_> = paths.iter().map(|path| (path.line, path.parts.join("::"), path.depth)).collect();
    for (line, name, depth) in
        [(3, "crate::a::b", 1), (3, "crate::a::c", 1), (3, "crate::a::d", 1), (3, "crate::e::*", 1)]
            .into_iter()
            .chain([(4, "info!", 1), (6, "super::super::h::i", 2), (6, "j", 2)])
    {
        assert!(seen.contains(&(line, name.to_owned(), depth)), "{name} is not in {seen:?}");
    }
    let all = format!("{seen:?}");
    for hidden in ["comment", "block", "text", "raw", "tested"] {
        assert!(!all.contains(hidden), "{hidden} is in {all}");
    }
    assert_eq!(source.test_modules, ["testing"]);
    assert!(source.local_names(&paths, |root| root == "crate").contains("d"));
}
