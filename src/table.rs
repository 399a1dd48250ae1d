//! Aligned text.

/// Columns separated by two spaces, each as wide as its widest cell; the last one is not padded.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
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
        for (width, cell) in widths.iter().zip(row) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["a".to_owned(), "bcd".to_owned()],
            vec!["\u{e4}\u{e4}\u{e4}\u{e4}".to_owned(), "".to_owned()],
        ];
        assert_eq!(table(&["ID", "X"], &rows), "ID    X\na     bcd\n\u{e4}\u{e4}\u{e4}\u{e4}\n");
    }
}
