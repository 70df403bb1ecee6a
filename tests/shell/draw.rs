//! Random shell lines: commands of the table with known and other flags, in all forms of a shell.

use std::process::{Command, Stdio};

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use serde::Deserialize;

/// Commands that leave the folder, wait, or start slowly.
const LEFT_OUT: &str = "sleep ping top curl wget gh kubectl oc docker podman helm systemctl journalctl sudo doas kill \
    pkill killall apt brew dnf yum npm pnpm yarn bun npx pip pip3 wait lsof netstat ss dig host nslookup getent \
    crontab nc ncat pg_isready nvidia-smi vmstat iostat mpstat squeue sinfo qstat dmesg aws gcloud az \
    terraform tofu lsusb lspci dpkg";
const OPERANDS: &[&str] = &[
    "a.txt",
    "b.txt",
    "d",
    "d/c.txt",
    "foo",
    ".",
    "*.txt",
    "d/*",
    "$(echo a.txt)",
    "`cat b.txt`",
    "{a,b}.txt",
    "'a b'",
    "HEAD",
    "HEAD~1",
    "x.json",
    "arc.tar",
    "d/../a.txt",
    "$((1+1))",
    "${v:-x}",
    "<(cat a.txt)",
    "a\\.txt",
    "\"d/$v\"",
    "./*",
];
const SCRIPTS: &[&str] = &[
    "1p",
    "'1,2p'",
    "'s/a/b/'",
    "'s/a/b/w new'",
    "'w new'",
    "'{print}'",
    "'{print > \"new\"}'",
    "'$1 == 2'",
    "+%s",
    "-1",
    "'BEGIN{system(\"touch new\")}'",
    "'s/a/b/e'",
    "'/a/,/b/p'",
    "'1e touch new'",
    "-name '*.txt'",
    "-type f",
    "-print",
];
const HARMFUL: &[&str] = &[
    "*",
    "$v",
    "\"$v\"",
    "\"$w\"",
    "$w",
    "{-o,new}",
    "-o",
    "-o new",
    "-onew",
    "--output=new",
    "--output new",
    "-i",
    "-w",
    "-delete",
    "-exec touch new ';'",
    "-exec cat {} ';'",
    "-exec sh -c 'touch new' ';'",
    "-fprint new",
    "--pre touch",
    "-x",
    "-s now",
    "new",
    "--",
    "-",
    "-C d",
    "-O",
    "--ext-diff",
    "--textconv",
    "--checkpoint=1",
    "-r",
    "-c",
    "-f a.txt",
    "-D",
    "'--checkpoint-action=exec=touch new'",
    "--to-command=touch",
    "--compress-program=touch",
    "--files0-from=a.txt",
    "-T d",
    "--in-place",
    "-S",
    "-v",
    "-e p",
    "--help",
    "new.tar",
    "\\;",
    "{}",
    "-I",
    "-p",
    "-t",
    "-u",
    "-d",
    "-n",
    "-k2",
    "-F:",
    "'*'",
];
const WRAPPERS: &[&str] = &[
    "timeout 1",
    "env",
    "nice -n 1",
    "time",
    "command",
    "xargs",
    "xargs -I{}",
    "stdbuf -oL",
    "env A=b",
    "LANG=C",
    "PATH=.",
    "X=1",
    "timeout -k 1 1",
    "builtin",
    "nohup",
    "!",
];
const REDIRECTIONS: &[&str] = &[
    "> new",
    ">> a.txt",
    "2>/dev/null",
    "2>&1",
    "< a.txt",
    "&> new",
    ">| new",
    "> $v",
    "<<< hi",
    "> /dev/null",
    "2> new",
    ">& new",
    "3< a.txt",
    "> >(cat)",
    "<> new",
];

#[derive(Deserialize)]
struct Table {
    commands: Vec<DrawnCommand>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct DrawnCommand {
    command: String,
    sub: String,
    does: String,
    flags: String,
    values: String,
    with: String,
}

pub(crate) struct Draw {
    chance: ChaCha8Rng,
    /// Commands that are here, each with flags that it knows.
    commands: Vec<(String, Vec<String>)>,
}

fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().filter(|word| *word != "any").map(str::to_owned).collect()
}

fn is_here(command: &str) -> bool {
    let mut shell = Command::new("bash");
    shell.args(["-c", "type -- \"$0\"", command]).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status().is_ok_and(|status| status.success())
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        let table = include_str!("../../src/core/shell/commands.yaml");
        let table: Table = serde_saphyr::from_str(table).expect("the table");
        let mut commands = Vec::new();
        for row in table.commands.iter().filter(|row| row.does == "read") {
            let known: Vec<String> =
                [&row.flags, &row.values, &row.with].into_iter().flat_map(|list| words(list)).collect();
            // Commands harmless with every flag need few tries.
            let times = if row.flags == "any" { 1 } else { 6 };
            for name in words(&row.command) {
                if LEFT_OUT.split_ascii_whitespace().any(|left_out| left_out == name) || !is_here(&name) {
                    continue;
                }
                let subs = words(&row.sub);
                let names = subs.iter().map(|sub| format!("{name} {}", sub.replace('/', " ")));
                let names: Vec<String> = if subs.is_empty() { vec![name.clone()] } else { names.collect() };
                commands.extend(names.iter().flat_map(|name| vec![(name.clone(), known.clone()); times]));
            }
        }
        Self { chance: ChaCha8Rng::seed_from_u64(seed), commands }
    }

    fn below(&mut self, count: usize) -> usize {
        (self.chance.next_u64() % count as u64) as usize
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    /// A line.
    pub(crate) fn line(&mut self) -> String {
        self.draw_nested(2)
    }

    fn draw_nested(&mut self, depth: usize) -> String {
        let one = self.command(depth);
        if depth == 0 {
            return one;
        }
        match self.below(26) {
            0 => format!("{one}; {}", self.draw_nested(depth - 1)),
            1 => format!("{one} && {}", self.draw_nested(depth - 1)),
            2 => format!("{one} || {}", self.draw_nested(depth - 1)),
            3 | 4 => format!("{one} | {}", self.draw_nested(depth - 1)),
            5 => format!("({})", self.draw_nested(depth - 1)),
            6 => format!("{{ {}; }}", self.draw_nested(depth - 1)),
            7 => format!("for f in a.txt d/* $v; do {}; done", self.draw_nested(depth - 1).replace("a.txt", "$f")),
            8 => format!("if {one}; then {}; fi", self.draw_nested(depth - 1)),
            9 => format!("bash -c '{}'", one.replace('\'', "\"")),
            10 => format!("cd d && {}", self.draw_nested(depth - 1)),
            11 => format!("cat <<EOF | {one}\nhi $({})\nEOF", self.command(0)),
            12 => format!("[ -f a.txt ] && {one}"),
            13 => format!("case a in a) {one};; esac"),
            14 => format!("x=$({one}); echo \"$x\""),
            15 => format!("{one} # {}", self.command(0)),
            16 => format!("f() {{ {one}; }}; f"),
            _ => one,
        }
    }

    fn command(&mut self, depth: usize) -> String {
        let at = self.below(self.commands.len());
        let (name, known) = self.commands[at].clone();
        let mut line = if self.below(5) == 0 { format!("{} {name}", self.of(WRAPPERS)) } else { name };
        for _ in 0..self.below(5) {
            line.push(' ');
            match self.below(100) {
                0..45 if !known.is_empty() => line.push_str(&known[self.below(known.len())]),
                0..70 => line.push_str(self.of(OPERANDS)),
                70..78 => line.push_str(self.of(SCRIPTS)),
                78..80 if depth > 0 => line.push_str(&format!("\"$({})\"", self.draw_nested(depth - 1))),
                _ => line.push_str(self.of(HARMFUL)),
            }
        }
        if self.below(8) == 0 {
            line = format!("{line} {}", self.of(REDIRECTIONS));
        }
        line
    }
}
