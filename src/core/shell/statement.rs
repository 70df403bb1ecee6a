//! Walker of a line's syntax tree (tree-sitter). Any node kind that is not handled here makes the line unknown.

use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree};

use super::{
    DEPTH_MAX, EffectLevel, LINE_BYTES_MAX, OPERATORS, OPERATORS_MAX, PIECE_BYTES, PROGRESS_MAX, READS_MIN,
    READS_PER_PIECE, call,
    path::{PartEffect, resolve_path},
    table::TABLE,
    word::{self, ShellWord},
};

/// Analyzes a line; none if some part is unknown. `depth` is its nesting.
pub(super) fn read(line: &str, cwd: Option<&str>, depth: usize) -> Option<PartEffect> {
    let is_odd =
        |char: char| char.is_control() && !matches!(char, '\n' | '\t') || char.is_whitespace() && !char.is_ascii();
    if line.len() > LINE_BYTES_MAX || depth > DEPTH_MAX || line.contains(is_odd) {
        return None;
    }
    if line.bytes().filter(|byte| OPERATORS.contains(byte)).nth(OPERATORS_MAX).is_some() {
        return None;
    }
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    let tree = parse_line(&mut parser, line)?;
    let root = tree.root_node();
    if root.has_error() {
        return None;
    }
    let mut reader = Reader { line, cwd: cwd.map(str::to_owned), depth, found: PartEffect::of(EffectLevel::Read) };
    reader.gapless(root)?;
    reader.statement(root)?;
    Some(reader.found)
}

/// The syntax tree; none for a line with a detected error, because error recovery is slow. The limit counts steps, not
/// time, so that a replay is deterministic.
fn parse_line(parser: &mut Parser, line: &str) -> Option<Tree> {
    let mut progress = 0;
    let mut go_on = |state: &ParseState| {
        progress += 1;
        let is_over = state.has_error() || progress > PROGRESS_MAX;
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut go_on);
    let (mut reads, bytes) = (0, line.as_bytes());
    let reads_max = READS_MIN + READS_PER_PIECE * bytes.len() / PIECE_BYTES;
    let mut from = |at: usize, _| {
        reads += 1;
        let end = if reads > reads_max { at } else { at + PIECE_BYTES };
        bytes.get(at..end.min(bytes.len())).unwrap_or_default()
    };
    let tree = parser.parse_with_options(&mut from, None, Some(options));
    tree.filter(|_| reads <= reads_max)
}

/// State of the walk.
pub(super) struct Reader<'a> {
    line: &'a str,
    /// The folder of the next command.
    pub(super) cwd: Option<String>,
    pub(super) depth: usize,
    found: PartEffect,
}

impl Reader<'_> {
    fn text(&self, node: Node<'_>) -> &str {
        &self.line[node.byte_range()]
    }

    /// True when only blanks separate the parts of a line: nothing was skipped, and the shell splits words as the tree
    /// does.
    fn gapless(&self, root: Node<'_>) -> Option<()> {
        let mut open = vec![root];
        while let Some(node) = open.pop() {
            if matches!(node.kind(), "string" | "heredoc_body" | "comment") || node.child_count() == 0 {
                // Substitutions are checked when the walk reaches them.
                open.extend(children(node).filter(|child| child.kind() == "command_substitution"));
                continue;
            }
            let mut at = node.start_byte();
            for child in children(node) {
                let gap = self.line.get(at..child.start_byte())?.replace("\\\n", "");
                if !gap.chars().all(|char| matches!(char, ' ' | '\t' | '\n')) {
                    return None;
                }
                at = child.end_byte();
                open.push(child);
            }
            let gap = self.line.get(at..node.end_byte())?;
            if !gap.chars().all(|char| matches!(char, ' ' | '\t' | '\n')) {
                return None;
            }
        }
        Some(())
    }

    fn statement(&mut self, node: Node<'_>) -> Option<()> {
        if self.depth > DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        match node.kind() {
            "program" | "do_group" | "negated_command" => self.visit_children(node)?,
            "compound_statement" if self.text(node).starts_with("{") => self.visit_children(node)?,
            "list" => self.list(node)?,
            // Each part has a shell of its own.
            "pipeline" => children(node).try_for_each(|part| self.visit_subshell(part))?,
            "subshell" => {
                let cwd = self.cwd.clone();
                self.visit_children(node)?;
                self.cwd = cwd;
            }
            "if_statement" | "elif_clause" | "else_clause" | "while_statement" => self.visit_conditional(node)?,
            "case_statement" | "case_item" => self.case(node)?,
            "for_statement" => self.for_each(node)?,
            "command" => self.command(node)?,
            "redirected_statement" => {
                for child in children(node) {
                    if !self.redirect(child)? {
                        self.statement(child)?;
                    }
                }
            }
            "variable_assignment" => self.assignment(node)?,
            "variable_assignments" => children(node).try_for_each(|one| self.assignment(one))?,
            "declaration_command" | "unset_command" => self.declaration(node)?,
            "test_command" => self.test(node)?,
            "comment" => {}
            _ => return None,
        }
        self.depth -= 1;
        Some(())
    }

    fn visit_children(&mut self, node: Node<'_>) -> Option<()> {
        children(node).filter(Node::is_named).try_for_each(|child| self.statement(child))
    }

    /// A part without effect on the current shell.
    fn visit_subshell(&mut self, node: Node<'_>) -> Option<()> {
        if !node.is_named() {
            return Some(());
        }
        let cwd = self.cwd.clone();
        self.statement(node)?;
        self.cwd = cwd;
        Some(())
    }

    /// The right side of `||` may not run, and may leave the folder unchanged.
    fn list(&mut self, node: Node<'_>) -> Option<()> {
        let before = self.cwd.clone();
        self.visit_children(node)?;
        if children(node).any(|child| child.kind() == "||") && self.cwd != before {
            self.cwd = None;
        }
        Some(())
    }

    /// A part that may not run.
    fn visit_conditional(&mut self, node: Node<'_>) -> Option<()> {
        let before = self.cwd.clone();
        self.visit_children(node)?;
        if self.cwd != before {
            self.cwd = None;
        }
        Some(())
    }

    fn case(&mut self, node: Node<'_>) -> Option<()> {
        let before = self.cwd.clone();
        for (child, field) in with_fields(node).into_iter().filter(|(child, _)| child.is_named()) {
            let is_value = field == Some("value");
            match child.kind() {
                "extglob_pattern" if is_value => {}
                _ if is_value => self.expansions(child)?,
                _ => self.statement(child)?,
            }
        }
        if self.cwd != before {
            self.cwd = None;
        }
        Some(())
    }

    fn for_each(&mut self, node: Node<'_>) -> Option<()> {
        self.may_set(node.child_by_field_name("variable")?)?;
        for (value, _) in with_fields(node).into_iter().filter(|(_, field)| *field == Some("value")) {
            self.expansions(value)?;
        }
        self.visit_conditional(node.child_by_field_name("body")?)
    }

    fn command(&mut self, node: Node<'_>) -> Option<()> {
        let mut words = Vec::new();
        for child in children(node) {
            match child.kind() {
                "variable_assignment" => self.assignment(child)?,
                _ if self.redirect(child)? => {}
                _ => {
                    self.expansions(child)?;
                    words.push(word::read(child, self.line)?);
                }
            }
        }
        let found = call::read(self, &words)?;
        self.found.and(found);
        Some(())
    }

    /// A redirection: false when it is none.
    fn redirect(&mut self, node: Node<'_>) -> Option<bool> {
        match node.kind() {
            "file_redirect" => self.file_redirect(node)?,
            "herestring_redirect" => children(node).filter(Node::is_named).try_for_each(|one| self.expansions(one))?,
            "heredoc_redirect" => self.heredoc(node)?,
            _ => return Some(false),
        }
        Some(true)
    }

    fn file_redirect(&mut self, node: Node<'_>) -> Option<()> {
        let operator = children(node).find(|child| !child.is_named())?;
        let target = node.child_by_field_name("destination");
        let is_one = with_fields(node).iter().filter(|(_, field)| *field == Some("destination")).count() <= 1;
        let word = match target {
            Some(target) => {
                self.expansions(target)?;
                Some(word::read(target, self.line)?)
            }
            None => None,
        };
        let path = word.as_ref().and_then(ShellWord::plain);
        let found = match (self.text(operator), path) {
            _ if !is_one => return None,
            (">&-" | "<&-", None) if word.is_none() => return Some(()),
            (">&" | "<&", Some(to)) if to == "-" || to.bytes().all(|byte| byte.is_ascii_digit()) => return Some(()),
            // The network, as bash has it.
            (_, Some(path)) if path.starts_with("/dev/tcp") || path.starts_with("/dev/udp") => return None,
            (_, Some("/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/stdin")) => return Some(()),
            ("<", path) => PartEffect::reading(path.and_then(|path| resolve_path(path, self.cwd.as_deref()))),
            (">" | ">>" | "&>" | "&>>" | ">|" | ">&", path) => {
                PartEffect::writing(path.and_then(|path| resolve_path(path, self.cwd.as_deref())))
            }
            _ => return None,
        };
        self.found.and(found);
        Some(())
    }

    /// Substitutions in a heredoc run, and so does the rest of its first line.
    fn heredoc(&mut self, node: Node<'_>) -> Option<()> {
        for child in children(node).filter(Node::is_named) {
            match child.kind() {
                "file_descriptor" | "heredoc_start" | "heredoc_end" => {}
                "heredoc_body" => self.expansions(child)?,
                _ if self.redirect(child)? => {}
                "pipeline" | "command" | "list" | "redirected_statement" => self.visit_subshell(child)?,
                _ => return None,
            }
        }
        Some(())
    }

    /// Commands that run during the expansion of a word.
    fn expansions(&mut self, node: Node<'_>) -> Option<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        match node.kind() {
            "command_substitution" | "process_substitution" => {
                let cwd = self.cwd.clone();
                for child in children(node).filter(Node::is_named) {
                    if !self.redirect(child)? {
                        self.statement(child)?;
                    }
                }
                self.cwd = cwd;
            }
            "expansion" => self.expansion(node)?,
            // A variable in it may hold a subscript, which may hold a command.
            "arithmetic_expansion" => {
                let is_plain = |char: char| char.is_ascii_digit() || " ()+-*/%$".contains(char);
                self.text(node).chars().all(is_plain).then_some(())?;
            }
            "command_name" | "concatenation" | "string" | "heredoc_body" => {
                children(node).filter(Node::is_named).try_for_each(|child| self.expansions(child))?;
            }
            "word" | "raw_string" | "string_content" | "simple_expansion" | "number" | "ansi_c_string"
            | "translated_string" | "brace_expression" | "heredoc_content" => {}
            _ => return None,
        }
        self.depth -= 1;
        Some(())
    }

    /// `${name}` and its text forms: others evaluate, run or dereference the variable's value.
    fn expansion(&mut self, node: Node<'_>) -> Option<()> {
        let text = self.text(node).strip_prefix("${")?.strip_suffix('}')?;
        let text = text.strip_prefix('#').unwrap_or(text);
        let name =
            text.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').map_or(text, |end| &text[..end]);
        let rest = &text[name.len()..];
        let is_safe = rest.is_empty()
            || [":-", ":+", ":?", "-", "+", "%", "#", "/", "^", ","].iter().any(|form| rest.starts_with(form));
        let is_nested = rest.contains(['$', '`', '[']);
        (is_safe && !is_nested && (!name.is_empty() || text == "@" || text == "*")).then_some(())
    }

    fn assignment(&mut self, node: Node<'_>) -> Option<()> {
        self.may_set(node.child_by_field_name("name")?)?;
        let Some(value) = node.child_by_field_name("value") else { return Some(()) };
        match value.kind() {
            "binary_expression"
            | "parenthesized_expression"
            | "postfix_expression"
            | "unary_expression"
            | "array"
            | "variable_assignment" => None,
            _ => self.expansions(value),
        }
    }

    /// Rejects variables that programs read.
    fn may_set(&self, name: Node<'_>) -> Option<()> {
        TABLE.may_set(self.text(name)).then_some(())
    }

    fn declaration(&mut self, node: Node<'_>) -> Option<()> {
        for child in children(node) {
            match child.kind() {
                "variable_assignment" => self.assignment(child)?,
                "variable_name" => self.may_set(child)?,
                "export" | "local" | "readonly" | "declare" | "typeset" | "unset" => {}
                _ => return None,
            }
        }
        Some(())
    }

    /// `[ … ]` and `[[ … ]]`: numeric comparisons evaluate a variable's value, and `-v` a text.
    fn test(&mut self, node: Node<'_>) -> Option<()> {
        let mut open = vec![node];
        let is_double = self.text(node).starts_with("[[");
        if self.text(node).starts_with("((") {
            return None;
        }
        while let Some(node) = open.pop() {
            let text = self.text(node);
            match node.kind() {
                "test_operator" if text == "-v" || text == "-R" => return None,
                "test_operator" if is_double && matches!(text, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge") => {
                    return None;
                }
                "test_command" | "binary_expression" | "unary_expression" | "parenthesized_expression" => {
                    open.extend(children(node).filter(Node::is_named));
                }
                "test_operator" | "regex" | "extglob_pattern" => {}
                _ => self.expansions(node)?,
            }
        }
        Some(())
    }
}

/// Uses a cursor, because access by index is linear.
fn children(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    with_fields(node).into_iter().map(|(child, _)| child)
}

/// The children with their field names.
fn with_fields(node: Node<'_>) -> Vec<(Node<'_>, Option<&'static str>)> {
    let mut cursor = node.walk();
    let mut found = Vec::with_capacity(node.child_count());
    let mut is_there = cursor.goto_first_child();
    while is_there {
        found.push((cursor.node(), cursor.field_name()));
        is_there = cursor.goto_next_sibling();
    }
    found
}
