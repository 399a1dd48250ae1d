//! Aligned text.

/// Columns separated by two spaces, each as wide as its widest cell; the last one is not padded.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    table_with_figures(head, rows, head.len())
}

/// The same, where the columns from `figures` on hold figures, which stand at the right.
pub fn table_with_figures(head: &[&str], rows: &[Vec<String>], figures: usize) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (column, (width, cell)) in widths.iter().zip(row).enumerate() {
            let padding = std::iter::repeat_n(' ', width - cell.chars().count());
            if column < figures {
                line.push_str(cell);
                line.extend(padding);
            } else {
                line.extend(padding);
                line.push_str(cell);
            }
            line.push_str("  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{table, table_with_figures};

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["a".to_owned(), "bcd".to_owned()],
            vec!["\u{e4}\u{e4}\u{e4}\u{e4}".to_owned(), "".to_owned()],
        ];
        assert_eq!(table(&["ID", "X"], &rows), "ID    X\na     bcd\n\u{e4}\u{e4}\u{e4}\u{e4}\n");
        let rows = vec![vec!["a".to_owned(), "7".to_owned(), "123".to_owned()]];
        assert_eq!(
            table_with_figures(&["ID", "REQUESTS", "X"], &rows, 1),
            "ID  REQUESTS    X\na          7  123\n"
        );
    }
}
