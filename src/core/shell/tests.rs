//! Shell lines with their effects, and the example lines of each table row.

use super::{table::TABLE, *};

fn describe_line(line: &str) -> String {
    let LineEffect { kind, path } = read(line, Some("/w"));
    format!("{} {}", kind.as_str(), path.as_deref().unwrap_or("-"))
}

#[test]
fn each_row_has_lines_that_are_what_it_says() {
    let mut wrong = Vec::new();
    for row in &TABLE.rows {
        let does = match row.does.into() {
            EffectLevel::Read => EffectKind::Read,
            EffectLevel::Poll => EffectKind::Poll,
            EffectLevel::Check => EffectKind::Check,
            EffectLevel::Write => EffectKind::Write,
        };
        let such = row.such.iter().map(|line| (line, does));
        let lines = such.chain(row.unknown.iter().map(|line| (line, EffectKind::Unknown)));
        wrong.extend(row.such.is_empty().then(|| format!("a row without a line: {row:?}")));
        let is_bare = does == EffectKind::Poll && row.unlike.is_empty();
        wrong.extend(is_bare.then(|| format!("a poll without a line that resembles it: {row:?}")));
        let polls = row.unlike.iter().filter(|line| read(line, Some("/w")).kind == EffectKind::Poll);
        wrong.extend(polls.map(|line| format!("{line} is a poll")));
        wrong.extend(
            lines
                .filter(|(line, kind)| read(line, Some("/w")).kind != *kind)
                .map(|(line, kind)| format!("{line} is {}, and not {}", describe_line(line), kind.as_str())),
        );
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Lines that are run in `/w`, and what they are: kind and path.
const LINES: &[(&str, &str)] = &[
    ("cat a.txt", "read /w/a.txt"),
    ("cd src && cat a ../b", "read /w"),
    ("(cd src; ls); cat b", "read /w"),
    ("cat a > b", "write /w/b"),
    ("echo hi >> /tmp/x 2>&1", "write /tmp/x"),
    ("ls 2>/dev/null", "read /w"),
    ("ls | tee out", "write /w/out"),
    ("x=$(rm a)", "write /w/a"),
    ("FILE=x; cat \"$FILE\"", "read -"),
    ("PATH=. ls", "unknown -"),
    ("LD_PRELOAD=x ls", "unknown -"),
    ("ls() { rm a; }; ls", "unknown -"),
    ("for f in *.c; do wc -l \"$f\"; done", "read -"),
    ("for f in a b; do rm $f; done", "write -"),
    ("while read -r l; do echo \"$l\"; done < a", "read /w/a"),
    ("if [ -f a ]; then cat a; else rm b; fi", "write /w/b"),
    ("cat <<EOF > f\nhi\nEOF", "write /w/f"),
    ("cat <<EOF\n$(rm x)\nEOF", "write /w/x"),
    ("cat <<'EOF'\n$(rm x)\nEOF", "read -"),
    ("cat <<EOF | bash\nrm x\nEOF", "unknown -"),
    ("bash <<EOF\nrm x\nEOF", "unknown -"),
    ("echo `rm x`", "write /w/x"),
    ("cat <(rm x)", "write /w/x"),
    ("ls > >(cat)", "write -"),
    ("echo $((1+2))", "read -"),
    ("echo $((x))", "unknown -"),
    ("echo ${x:-y}", "read -"),
    ("echo ${x@P}", "unknown -"),
    ("echo ${x[1]}", "unknown -"),
    ("echo \"${x:-$(rm y)}\"", "unknown -"),
    ("cargo test 2>&1 | tail -20", "check -"),
    ("cd sub && cargo test", "check -"),
    ("rm -rf build && cargo build", "write /w/build"),
    ("timeout 60 cargo test", "check -"),
    ("./run.sh", "unknown -"),
    ("/usr/bin/cat a", "read /w/a"),
    ("/tmp/cat a", "unknown -"),
    ("cat a &", "read /w/a"),
    ("sort -o b a", "write /w/b"),
    ("sort $x", "unknown -"),
    ("sort \"src/$x\"", "read -"),
    ("find . -name '*.o' -delete", "write /w"),
    ("find . -exec rm {} +", "write -"),
    ("[[ $x -eq 1 ]] && ls", "unknown -"),
    ("[ $x = 1 ] && ls", "read /w"),
    ("eval ls", "unknown -"),
    (". ./x", "unknown -"),
    ("source x", "unknown -"),
    ("alias ls=rm; ls", "unknown -"),
    ("l\\s a", "read /w/a"),
    ("'cat' 'a b'", "read /w/a b"),
    ("cat a\\ b", "read /w/a b"),
    ("$x a", "unknown -"),
    ("cat \"a", "unknown -"),
    ("echo hi > /dev/tcp/a/1", "unknown -"),
    ("exec 3<>/dev/tcp/a/1", "unknown -"),
    ("git status && git diff | head", "read /w"),
    ("sudo rm -rf /etc/x", "write /etc/x"),
    ("python3 - <<EOF\nprint(1)\nEOF", "unknown -"),
    ("ls; # rm\nrm a", "write /w/a"),
    ("cat a\u{a0}b", "unknown -"),
    ("export PATH=.; ls", "unknown -"),
    ("read PATH; ls", "unknown -"),
    ("for PATH in .; do ls; done", "unknown -"),
    ("mkdir -p a/b && touch a/b/c", "write /w/a/b"),
    ("", "read -"),
    ("cd x || exit; ls", "read -"),
    ("cat {a,b}", "read -"),
    ("sort {-o,b}", "unknown -"),
    ("cat ~/a", "read -"),
    ("cat a 3<>b", "unknown -"),
    ("sed -n '5,10p' src/a.rs", "read /w/src/a.rs"),
    ("sed -i '' 's/a/b/' f", "write /w"),
    ("git log --oneline -5 -- src/a", "read /w"),
    ("xargs rm < list", "write -"),
    ("printf 'a' | xxd -r - b", "unknown -"),
    ("git rev-list *", "unknown -"),
    ("jobs -x rm a", "unknown -"),
    ("cat a | sh", "unknown -"),
    ("X=$(ls) cat a", "read /w"),
    ("unset PATH", "unknown -"),
    ("set -euo pipefail; cargo test", "check -"),
    ("git commit -m \"$(cat <<'EOF'\nwhy\nEOF\n)\"", "write -"),
    ("case $1 in a) ls;; *) rm b;; esac", "write /w/b"),
    ("until ls; do rm b; done", "write /w/b"),
    ("echo \"`rm b`\"", "write /w/b"),
    ("[ -f \"$(rm b)\" ]", "write /w/b"),
    ("cat <<< \"$(rm b)\"", "write /w/b"),
    ("cat > \"$x\"", "write -"),
    ("echo a >&2", "read -"),
    ("echo a >&b", "write /w/b"),
    ("echo a\r\nls", "unknown -"),
    ("cat -- -x", "read /w/-x"),
    ("time cat a", "read /w/a"),
    ("bash -c 'cd d && cat a'", "read /w/d/a"),
    ("http_proxy=x curl http://y", "unknown -"),
    ("npm_config_script_shell=x npm test", "unknown -"),
    ("name=x cat a", "read /w/a"),
    ("diff <(sort a) <(sort b)", "read -"),
    ("diff <(sort a) <(sort -o c b)", "write /w/c"),
];

#[test]
fn a_line_is_what_its_parts_are() {
    let wrong: Vec<_> = LINES.iter().filter(|(line, what)| describe_line(line) != *what).collect();
    let wrong: Vec<_> =
        wrong.iter().map(|(line, what)| format!("{line} is {}, and not {what}", describe_line(line))).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn without_a_folder_a_relative_path_is_anything() {
    assert_eq!(read("cat a", None).path, None);
    assert_eq!(read("cat a", Some("w")).path, None);
    assert_eq!(read("cat /a/../b", None).path.as_deref(), Some("/b"));
    assert_eq!(read("cd /x && cat a", None).path.as_deref(), Some("/x/a"));
}

#[test]
fn a_deep_line_is_unknown_and_ends() {
    for (open, inner, close) in
        [("(", "ls", ")"), ("$(", "ls", ")"), ("\"$(", "ls", ")\""), ("sudo ", "ls", ""), ("! ", "ls", "")]
    {
        let line = format!("echo; {}{inner}{}", open.repeat(10_000), close.repeat(10_000));
        assert_eq!(describe_line(&line), "unknown -", "{open}");
    }
    assert_eq!(describe_line(&format!("echo {}", "a".repeat(LINE_BYTES_MAX))), "unknown -");
}

/// Inputs that trigger error recovery in the parser.
const HOSTILE: &[&str] = &[
    "<>|&;()",
    "a=(",
    "<<A\n",
    "x=(((",
    "<<A <<B ",
    "[[ a && ",
    "$[",
    "a() ",
    "a|",
    ">|",
    "((a",
    "((a))",
    "for ((",
    "\"${a",
    "echo a\nb=(\n",
    "fi ",
    "do ",
    "done ",
    "then ",
    "} ",
    "esac ",
    "in ",
    "fi\n",
    "a ) ",
    "'",
    "\"",
    "$'a",
    "\\",
];

#[test]
fn a_line_of_many_operators_is_not_parsed() {
    for unit in HOSTILE {
        let operators = unit.bytes().filter(|byte| OPERATORS.contains(byte)).count();
        let most = LINE_BYTES_MAX.checked_div(unit.len()).unwrap_or_default();
        let times = OPERATORS_MAX.checked_div(operators).unwrap_or(most).min(most);
        for line in [unit.repeat(times), unit.repeat(most)] {
            assert_eq!(read(&line, Some("/w")).kind, EffectKind::Unknown, "{unit:?}");
        }
    }
    let fits = "cat a; ".repeat(OPERATORS_MAX);
    assert_eq!(read(&fits, Some("/w")).kind, EffectKind::Read);
    assert_eq!(read(&(fits + ";"), Some("/w")).kind, EffectKind::Unknown);
}
