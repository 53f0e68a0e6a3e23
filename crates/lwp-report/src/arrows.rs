//! Jump arrows beside a listing.

/// A jump from one row to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Row of the jump.
    pub from: usize,
    /// Row of its target.
    pub to: usize,
}

/// Arrows, laid out in as few columns as keep them apart. What finds no column has no arrow: the
/// instruction's text names its target anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrows {
    rows: Vec<Vec<char>>,
}

/// Most columns.
const MOST: usize = 8;

impl Arrows {
    /// Lays the arrows of `jumps` out over `rows` rows; short ones stand near the code.
    pub fn new(jumps: &[Jump], rows: usize) -> Self {
        let mut sorted: Vec<Jump> = jumps.to_vec();
        sorted.sort_by_key(|jump| (jump.from.abs_diff(jump.to), jump.from, jump.to));
        sorted.dedup();
        // Rows taken in each column, the nearest to the code first.
        let mut columns: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut placed: Vec<(Jump, usize)> = Vec::new();
        for jump in sorted {
            let span = (jump.from.min(jump.to), jump.from.max(jump.to));
            let free = |taken: &Vec<(usize, usize)>| {
                taken.iter().all(|other| span.1 < other.0 || other.1 < span.0)
            };
            let column = columns.iter().position(free).unwrap_or(columns.len());
            if column >= MOST {
                continue;
            }
            if column == columns.len() {
                columns.push(Vec::new());
            }
            columns[column].push(span);
            placed.push((jump, column));
        }
        let width = columns.len();
        let mut drawn = vec![vec![' '; if width == 0 { 0 } else { width + 1 }]; rows];
        for (jump, column) in placed {
            draw(&mut drawn, jump, width - 1 - column, width);
        }
        Self { rows: drawn }
    }

    /// The arrows beside a row.
    pub fn row(&self, index: usize) -> String {
        self.rows.get(index).map(|row| row.iter().collect()).unwrap_or_default()
    }
}

fn draw(rows: &mut [Vec<char>], jump: Jump, column: usize, width: usize) {
    let (top, bottom) = (jump.from.min(jump.to), jump.from.max(jump.to));
    for row in &mut rows[top + 1..bottom.max(top + 1)] {
        row[column] = match row[column] {
            '\u{2500}' => '\u{253c}',
            _ => '\u{2502}',
        };
    }
    for (at, corner) in [(top, '\u{256d}'), (bottom, '\u{2570}')] {
        rows[at][column] = corner;
        for cell in &mut rows[at][column + 1..width] {
            *cell = match *cell {
                '\u{2502}' => '\u{253c}',
                ' ' => '\u{2500}',
                other => other,
            };
        }
        if rows[at][width] != '>' {
            rows[at][width] = if at == jump.to { '>' } else { '\u{2500}' };
        }
    }
    if top == bottom {
        rows[top][column] = '\u{21bb}';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(jumps: &[(usize, usize)], rows: usize) -> Vec<String> {
        let jumps: Vec<Jump> = jumps.iter().map(|&(from, to)| Jump { from, to }).collect();
        let arrows = Arrows::new(&jumps, rows);
        (0..rows).map(|row| arrows.row(row)).collect()
    }

    #[test]
    fn arrows_lead_from_the_jump_to_its_target() {
        assert_eq!(drawn(&[(0, 2)], 3), ["╭─", "│ ", "╰>"]);
        assert_eq!(drawn(&[(2, 0)], 3), ["╭>", "│ ", "╰─"]);
        assert_eq!(drawn(&[(1, 1)], 2), ["  ", "↻>"]);
        assert_eq!(drawn(&[], 2), ["", ""]);
    }

    #[test]
    fn arrows_that_overlap_have_their_own_columns() {
        assert_eq!(drawn(&[(0, 3), (1, 2)], 4), ["╭──", "│╭─", "│╰>", "╰─>"]);
        assert_eq!(drawn(&[(0, 1), (2, 3)], 4), ["╭─", "╰>", "╭─", "╰>"]);
        let many: Vec<(usize, usize)> = (0..30).map(|at| (at, 59 - at)).collect();
        assert!(drawn(&many, 60).iter().all(|row| row.chars().count() == MOST + 1));
    }
}
