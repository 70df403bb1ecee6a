//! Worst texts of any length: unclosed openings, near matches, and growing forms.

use self::Worst::{Nest, Repeat};

/// Recipe of a text of any length.
#[derive(Debug, Clone, Copy)]
pub enum Worst {
    /// A beginning, a part that is repeated (`§` is its number), and an end.
    Repeat(&'static str, &'static str, &'static str),
    /// As often opened as closed, around something.
    Nest(&'static str, &'static str, &'static str),
}

impl Worst {
    /// About `bytes` bytes.
    pub fn text(self, bytes: usize) -> String {
        match self {
            Repeat(head, part, end) => {
                let mut text = String::from(head);
                let parts = (0..bytes).map(|n| part.replace('§', &n.to_string()));
                for part in parts {
                    if text.len() >= bytes {
                        break;
                    }
                    text.push_str(&part);
                }
                text + end
            }
            Nest(open, inside, close) => {
                let times = bytes / (open.len() + close.len());
                format!("{}{inside}{}", open.repeat(times), close.repeat(times))
            }
        }
    }
}

/// Two letters, over and over.
pub const LETTERS: Worst = Repeat("", "a@", "");
/// Letters of several bytes.
pub const ACCENTS: Worst = Repeat("", "é", "");
/// Text that case mapping or normalization makes longer.
pub const GROWING: Worst = Repeat("", "İﬃ\u{212a}e\u{301}", "");
/// Digits and points.
pub const POINTS: Worst = Repeat("", "9.", "");
/// Blanks between two letters.
pub const BLANKS: Worst = Repeat("a", " ", "a");
/// Empty lines.
pub const LINES: Worst = Repeat("", "\r\n", "");
/// Short lines.
pub const REMARKS: Worst = Repeat("", "# x\n", "");
/// Quotes that open each other.
pub const QUOTES: Worst = Repeat("", "\"'`\\\"", "");
/// Brackets that are never closed.
pub const OPEN: Worst = Repeat("", "({[$(", "");
/// Brackets that are closed at the very end.
pub const NESTED: Worst = Nest("(", "x", ")");
/// JSON that is nested too deep.
pub const DEEP: Worst = Nest("[", "1", "]");
/// Escapes of every other bracket.
pub const ESCAPES: Worst = Repeat("{\"a\":\"", "\\u0041\\\\\\\"", "\"}");
/// An object of many members.
pub const MEMBERS: Worst = Repeat("{\"a\":1", ",\"k§\":§", "}");
/// Members that differ by what their order and their names are compared by.
pub const ALIKE: Worst = Repeat("{\"a\":{\"b\":1", ",\"é§\":\"\u{212a}\"", "}}");
/// Many numbers.
pub const NUMBERS: Worst = Repeat("[1", ",1.5e§", "]");
/// One number.
pub const NUMBER: Worst = Repeat("{\"a\":1", "0", "}");
/// Many equal texts.
pub const EQUAL: Worst = Repeat("[\"a\"", ",\"a\"", "]");
/// Many different objects.
pub const OBJECTS: Worst = Repeat("{\"items\":[{}", ",{\"id\":\"i§\",\"status\":\"ok\"}", "]}");
/// One long name.
pub const NAME: Worst = Repeat("{\"", "k", "\":1}");
/// Content as MCP wraps it.
pub const CONTENT: Worst =
    Repeat("{\"content\":[{\"type\":\"text\",\"text\":\"a\"}", ",{\"type\":\"text\",\"text\":\"b§\"}", "]}");
/// Secrets by their names.
pub const SECRETS: Worst = Repeat("{\"a\":1", ",\"password§\":\"hunter2§xyzw\"", "}");
/// Secrets in a text, each another one.
pub const SPOKEN: Worst = Repeat("", "password=Xk3jQzPw9§ Bearer Xk3jQzPw9abcdef§ ", "");
/// Addresses with unterminated credentials.
pub const ADDRESSES: Worst = Repeat("http://", "a:", "");
/// Names of secrets without one.
pub const HEADS: Worst = Repeat("", "password: -----BEGIN PRIVATE KEY-----eyJ.sk-", "");
/// Times that are not finished.
pub const TIMES: Worst = Repeat("", "2020-01-01T00:", "");
/// Pages with unclosed parts, beside closed ones.
pub const PAGE: Worst = Repeat("<html>", "<script<style></style><!--", "");
/// Tracebacks within each other.
pub const TRACEBACKS: Worst = Repeat("", "Traceback (most recent call last):\n x\n", "");
/// Values that validation refused.
pub const REFUSED: Worst = Repeat("", " [type=x, input_value=", "");
/// Near matches of waits.
pub const WAITS: Worst = Repeat("", "retry after wait in 1", "");
/// A line of a shell with many parts.
pub const PIPES: Worst = Repeat("cat x", "|cat", "");
/// Commands one after the other.
pub const COMMANDS: Worst = Repeat("", "rm x§;", "");
/// Assignments and options.
pub const WORDS: Worst = Repeat("ls", " a§=1 --x={a,b}", "");
/// Texts that run to the end of another.
pub const HERE: Worst = Repeat("", "cat <<E§\n", "");
/// A path that goes back all the time.
pub const PATH: Worst = Repeat("/", "a/../", "");
/// Events of a stream.
pub const EVENTS: Worst = Repeat("", "data: x\r\n\r\n", "");
/// YAML's marks.
pub const YAML: Worst = Repeat("policy_engine: {tools: {", "t§: {efect: raed}, ", "}}");
/// A list in YAML.
pub const ITEMS: Worst = Repeat("", "- x\n", "");
