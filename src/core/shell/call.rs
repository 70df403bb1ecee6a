//! Effect of one command.

use super::{
    DEPTH_MAX, EffectLevel,
    path::{PartEffect, PathSet, resolve_path},
    scripts,
    statement::{self, Reader},
    table::{CommandEffect, CommandMatch, CommandRow, OperandContinuation, Operands, TABLE},
    word::ShellWord,
};

/// Folders with standard programs.
const FOLDERS: [&str; 7] =
    ["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/opt/homebrew/bin", "/usr/local/sbin"];

/// The effect of a command; none if unknown.
pub(super) fn read(reader: &mut Reader<'_>, words: &[ShellWord]) -> Option<PartEffect> {
    // Nothing but redirections and assignments.
    let Some((name, arguments)) = words.split_first() else { return Some(PartEffect::of(EffectLevel::Read)) };
    let name = name.plain()?;
    let name = match name.rsplit_once('/') {
        Some((folder, name)) => FOLDERS.contains(&folder).then_some(name)?,
        None => name,
    };
    match name {
        "cd" => {
            reader.cwd = entered_directory(reader, arguments);
            return Some(PartEffect::of(EffectLevel::Read));
        }
        "pushd" | "popd" => {
            reader.cwd = None;
            return Some(PartEffect::of(EffectLevel::Read));
        }
        "read" => return variables(arguments),
        _ => {}
    }
    let (row, fit) = TABLE.find(name, arguments)?;
    match row.then {
        Some(then) => follow(reader, then, row, &fit),
        None => Some(plain(reader, row, &fit)),
    }
}

fn entered_directory(reader: &Reader<'_>, arguments: &[ShellWord]) -> Option<String> {
    let [folder] = arguments else { return None };
    resolve_path(folder.plain().filter(|folder| !folder.starts_with('-'))?, reader.cwd.as_deref())
}

/// `read -r name`.
fn variables(arguments: &[ShellWord]) -> Option<PartEffect> {
    let may_be = |word: &ShellWord| {
        word.plain().is_some_and(|text| text == "-r" || text == "-d" || text.is_empty() || TABLE.may_set(text))
    };
    arguments.iter().all(may_be).then(|| PartEffect::of(EffectLevel::Read))
}

fn plain(reader: &Reader<'_>, row: &CommandRow, fit: &CommandMatch<'_>) -> PartEffect {
    let path = |word: &ShellWord| resolve_path(word.plain()?, reader.cwd.as_deref());
    let touched = |words: &[&ShellWord]| {
        let mut touched = PathSet::unknown();
        words.iter().for_each(|word| touched.and(PathSet::path(path(word))));
        touched
    };
    let mut found = PartEffect { kind: row.does.into(), ..PartEffect::of(EffectLevel::Read) };
    let operands = fit.operands.as_slice();
    match (row.operands, operands) {
        (Operands::None | Operands::Text | Operands::Format, _) => {}
        (Operands::Read, all) | (Operands::TextRead, [_, all @ ..]) => found.reads = touched(all),
        (Operands::Write, all) | (Operands::TextWrite, [_, all @ ..]) => found.writes = touched(all),
        (Operands::ReadWrite, [read @ .., written]) => {
            found.reads = touched(read);
            found.writes = touched(&[written]);
        }
        (Operands::TextRead | Operands::TextWrite | Operands::ReadWrite, []) => {}
        (Operands::Thing, _) => found.writes = PathSet::Anything,
    }
    let written: Vec<&ShellWord> = fit.written.iter().map(AsRef::as_ref).collect();
    found.writes.and(touched(&written));
    if row.here && found.reads == PathSet::unknown() {
        found.reads = PathSet::path(reader.cwd.clone());
    }
    if row.does == CommandEffect::Write && found.writes == PathSet::unknown() {
        found.writes = PathSet::Anything;
    }
    found
}

/// A command inside a command.
fn follow(
    reader: &mut Reader<'_>,
    then: OperandContinuation,
    row: &CommandRow,
    fit: &CommandMatch<'_>,
) -> Option<PartEffect> {
    reader.depth += 1;
    let found = match then {
        _ if reader.depth > DEPTH_MAX => None,
        OperandContinuation::Command => read(reader, fit.rest),
        OperandContinuation::CommandAndMore => {
            let more: Vec<ShellWord> = fit.rest.iter().map(scripts::fill_word).chain([ShellWord::Opaque]).collect();
            read(reader, &more)
        }
        OperandContinuation::Line => statement::read(fit.rest.first()?.plain()?, reader.cwd.as_deref(), reader.depth),
        OperandContinuation::Sed => scripts::sed_files(fit.rest).map(|files| files_of(reader, row, files)),
        OperandContinuation::Awk => scripts::awk(fit.rest).map(|files| files_of(reader, row, files)),
        OperandContinuation::Find => scripts::find(reader, fit.rest),
    };
    reader.depth -= 1;
    found
}

fn files_of(reader: &Reader<'_>, row: &CommandRow, files: &[ShellWord]) -> PartEffect {
    let mut touched = PathSet::unknown();
    for file in files {
        touched.and(PathSet::path(file.plain().and_then(|path| resolve_path(path, reader.cwd.as_deref()))));
    }
    match row.does {
        CommandEffect::Write => {
            PartEffect { kind: EffectLevel::Write, writes: touched, ..PartEffect::of(EffectLevel::Read) }
        }
        does => PartEffect { kind: does.into(), reads: touched, ..PartEffect::of(EffectLevel::Read) },
    }
}
