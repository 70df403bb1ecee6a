//! Values of single variables, with warnings and the set of unread ones.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use super::OtelEnvironment;

/// The variables as they are read.
pub(super) struct Values<'a> {
    environment: &'a OtelEnvironment,
    read: RefCell<BTreeSet<String>>,
    pub(super) warnings: Vec<String>,
}

impl<'a> Values<'a> {
    pub(super) fn new(environment: &'a OtelEnvironment) -> Self {
        Self { environment, read: RefCell::default(), warnings: Vec::new() }
    }

    /// The value of a variable that is set.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.read.borrow_mut().insert(name.to_owned());
        self.environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Warns of a variable with an unsupported value, and `why`.
    pub(super) fn warn_ignored(&mut self, name: &str, why: &str) {
        let value = self.text(name).unwrap_or_default();
        self.warnings.push(format!("{name}={value} is ignored: {why}"));
    }

    /// Warns of a word that the SDK would leave out in silence. It takes none with spaces around it.
    pub(super) fn warn_unless_one_of(&mut self, name: &str, words: &[&str], why: &str) {
        let is_set = self.text(name).is_some();
        let is_word = |value: &String| words.contains(&value.to_ascii_lowercase().as_str());
        if is_set && !self.environment.get(name).is_some_and(is_word) {
            self.warn_ignored(name, why);
        }
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.text(name).map(str::to_ascii_lowercase).as_deref() {
            Some("true") => true,
            None | Some("false") => false,
            Some(_) => {
                self.warn_ignored(name, "it should be true or false; false applies");
                false
            }
        }
    }

    /// From 1 ms on.
    pub(super) fn millis(&mut self, name: &str, default: Duration) -> Duration {
        match self.text(name).map(str::parse::<u32>) {
            None => default,
            Some(Ok(millis)) if millis > 0 => Duration::from_millis(millis.into()),
            Some(_) => {
                let why = format!("it should be a number of milliseconds from 1; {} applies", default.as_millis());
                self.warn_ignored(name, &why);
                default
            }
        }
    }

    pub(super) fn count(&mut self, name: &str, default: usize, max: usize) -> usize {
        match self.text(name).map(str::parse::<usize>) {
            None => default,
            Some(Ok(count)) if (1..=max).contains(&count) => count,
            Some(_) => {
                self.warn_ignored(name, &format!("it should be a number from 1 to {max}; {default} applies"));
                default
            }
        }
    }

    pub(super) fn ending_in(&self, end: &str) -> Vec<String> {
        self.environment.keys().filter(|name| name.ends_with(end)).cloned().collect()
    }

    /// Variables that are set, and neither were read nor are among `others`.
    pub(super) fn unread(&self, others: &[&str]) -> Vec<&'a str> {
        let read = self.read.borrow();
        let names = self.environment.keys().map(String::as_str);
        names.filter(|name| !read.contains(*name) && !others.contains(name)).collect()
    }
}
