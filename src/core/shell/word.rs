//! Words of a command, as far as known before expansion.

use tree_sitter::Node;

/// A word, or its expansion to several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShellWord {
    /// Exactly this text.
    Plain(String),
    /// One or more words, each with this non-empty prefix.
    Begins(String),
    /// Any words, or none.
    Opaque,
}

impl ShellWord {
    /// The text, if known entirely.
    pub(super) fn plain(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => Some(text),
            Self::Begins(_) | Self::Opaque => None,
        }
    }
}

/// Kind of a word's part.
enum WordSegment {
    Text(char),
    /// A substitution that stays one word.
    Filled,
    /// A substitution that may become several words, or a pattern of file names.
    Split,
    Glob,
    /// An opening brace: literal if closed at once, otherwise several words.
    Brace,
}

/// Parses a word; none if unsupported.
pub(super) fn read(node: Node<'_>, source: &str) -> Option<ShellWord> {
    let mut parts = Vec::new();
    parts_of(node, source, &mut parts)?;
    Some(join_segments(&parts, node, source))
}

fn join_segments(parts: &[WordSegment], node: Node<'_>, source: &str) -> ShellWord {
    let mut text = String::new();
    for (at, part) in parts.iter().enumerate() {
        match part {
            WordSegment::Text(char) => text.push(*char),
            WordSegment::Brace if matches!(parts.get(at + 1), Some(WordSegment::Text('}'))) => text.push('{'),
            _ if text.is_empty() || parts[at..].iter().any(|part| matches!(part, WordSegment::Split)) => {
                return ShellWord::Opaque;
            }
            _ => return ShellWord::Begins(text),
        }
    }
    // A home folder.
    if node.kind() == "word" && source[node.byte_range()].starts_with('~')
        || node.kind() == "concatenation" && source[node.byte_range()].starts_with('~')
    {
        return ShellWord::Begins("~".to_owned());
    }
    ShellWord::Plain(text)
}

fn parts_of(node: Node<'_>, source: &str, parts: &mut Vec<WordSegment>) -> Option<()> {
    let text = &source[node.byte_range()];
    match node.kind() {
        "word" | "number" => bare(text, parts)?,
        // Brace expansion: {1..3}.
        "brace_expression" => parts.push(WordSegment::Glob),
        "raw_string" => parts.extend(text.strip_prefix('\'')?.strip_suffix('\'')?.chars().map(WordSegment::Text)),
        "string" => read_quoted(node, source, parts)?,
        "ansi_c_string"
        | "translated_string"
        | "simple_expansion"
        | "expansion"
        | "command_substitution"
        | "arithmetic_expansion" => parts.push(WordSegment::Split),
        // It becomes the path of a pipe, which is no flag.
        "process_substitution" => {
            parts.extend("/dev/fd/".chars().map(WordSegment::Text));
            parts.push(WordSegment::Filled);
        }
        "command_name" | "concatenation" => {
            let mut end = node.start_byte();
            let mut cursor = node.walk();
            for child in node.children(&mut cursor) {
                if child.start_byte() != end {
                    return None;
                }
                end = child.end_byte();
                parts_of(child, source, parts)?;
            }
            return (end == node.end_byte()).then_some(());
        }
        _ => return None,
    }
    Some(())
}

/// Text without quotes.
fn bare(text: &str, parts: &mut Vec<WordSegment>) -> Option<()> {
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next()? {
                '\n' => {}
                escaped => parts.push(WordSegment::Text(escaped)),
            },
            '*' | '?' | '[' => parts.push(WordSegment::Glob),
            '{' => parts.push(WordSegment::Brace),
            _ => parts.push(WordSegment::Text(char)),
        }
    }
    Some(())
}

/// Text in double quotes, with substitutions.
fn read_quoted(node: Node<'_>, source: &str, parts: &mut Vec<WordSegment>) -> Option<()> {
    let (begin, end) = (node.start_byte() + 1, node.end_byte().checked_sub(1)?);
    if !source[node.byte_range()].starts_with('"') || !source[node.byte_range()].ends_with('"') || end < begin {
        return None;
    }
    let mut at = begin;
    let mut cursor = node.walk();
    for child in node.named_children(&mut cursor) {
        if child.kind() == "string_content" {
            continue;
        }
        read_unescaped(source.get(at..child.start_byte())?, parts)?;
        match child.kind() {
            // `"$@"` and `"${x[@]}"` become several words.
            "simple_expansion" | "expansion" => {
                let is_list = source[child.byte_range()].contains('@');
                parts.push(if is_list { WordSegment::Split } else { WordSegment::Filled });
            }
            "command_substitution" | "arithmetic_expansion" => parts.push(WordSegment::Filled),
            _ => return None,
        }
        at = child.end_byte();
    }
    read_unescaped(source.get(at..end)?, parts)
}

fn read_unescaped(text: &str, parts: &mut Vec<WordSegment>) -> Option<()> {
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next()? {
                '\n' => {}
                escaped @ ('$' | '`' | '"' | '\\') => parts.push(WordSegment::Text(escaped)),
                other => parts.extend([WordSegment::Text('\\'), WordSegment::Text(other)]),
            },
            // It would begin something that was not found to begin here.
            '`' => return None,
            _ => parts.push(WordSegment::Text(char)),
        }
    }
    Some(())
}
