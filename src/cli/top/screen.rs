//! Layout of lists on one screen of 80 columns and 24 lines.

/// Columns of a line.
const COLUMNS: usize = 80;
/// Lines of a screen, less one for the prompt.
pub(super) const LINES: usize = 23;
/// Lines of a list beside its rows: title, and column names.
const HEAD: usize = 2;
/// The narrowest column that is shortened.
const NARROW: usize = 6;

/// Rows of each list that fit into so many lines: every list gets one in turn.
pub(super) fn shares(counts: &[usize], lines: usize) -> Vec<usize> {
    let mut shares = vec![0; counts.len()];
    let mut room = lines.saturating_sub(HEAD * counts.len());
    while room > 0 && shares.iter().zip(counts).any(|(share, count)| share < count) {
        for (share, count) in shares.iter_mut().zip(counts) {
            if room > 0 && *share < *count {
                *share += 1;
                room -= 1;
            }
        }
    }
    shares
}

/// The beginning of a text, marked when it is cut.
pub(super) fn clipped(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// The lines of a table, its widest columns shortened until they fit.
pub(super) fn table(columns: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let names: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&names).chain(rows).collect();
    let widest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let mut widths: Vec<usize> = (0..columns.len()).map(widest).collect();
    let total = |widths: &[usize]| widths.iter().map(|width| width + 2).sum::<usize>();
    while total(&widths) > COLUMNS {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROW => *widest -= 1,
            _ => break,
        }
    }
    let line = |line: &&Vec<String>| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", clipped(cell, *width)));
        let line = cells.collect::<Vec<_>>().join("  ").replace(char::is_control, " ");
        format!("  {}", line.trim_end())
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_share_the_lines_and_a_short_one_leaves_its_part() {
        assert_eq!(shares(&[100, 1, 100], 15), [4, 1, 4]);
        assert_eq!(shares(&[2, 1], 30), [2, 1]);
        assert_eq!(shares(&[5, 5, 5], 6), [0, 0, 0]);
    }

    #[test]
    fn long_cells_are_shortened_to_the_screen() {
        let long = "x".repeat(200);
        let rows = [vec![long.clone(), "short".to_owned(), long]];
        let lines = table(&["a", "b", "c"], &rows);
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{lines:?}");
        assert!(lines[1].contains('…') && lines[1].contains("  short  "), "{lines:?}");
    }
}
