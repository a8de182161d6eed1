//! The values that may be shown, level by level, and the sizes of their forms.

use std::ops::Range;

use super::horizon::Horizon;
use super::text;

/// Written in place of a value that is not shown.
pub(super) const HIDDEN: &[u8] = b"\"[truncated]\"";
/// End of a string or key that is cut.
pub(super) const ELLIPSIS: &[u8] = b"...";

/// Nodes by depth, in document order within a depth, so that the children of a node are adjacent.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) levels: Vec<Vec<Node>>,
    horizon: Horizon,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) key: Option<Key>,
    /// Its index in the level above.
    pub(super) parent: usize,
    /// Its number among its siblings.
    pub(super) number: usize,
    /// Whether it is inside an item that is not the first of its array. The first item is the example.
    pub(super) is_repeat: bool,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    /// Shown whole, without white space: a scalar, or a container that would hardly be smaller closed.
    Whole {
        span: Range<usize>,
        size: usize,
    },
    /// Shown as `"[truncated]"`.
    Hidden,
    Text(Text),
    Container(Container),
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) text: Text,
    /// Length of the marker that counts the members after this one: at least an ellipsis, and more dots than
    /// this key or any before it in the object.
    pub(super) marker: usize,
}

/// A string or a key, of which a prefix is shown.
#[derive(Debug, Clone)]
pub(super) struct Text {
    /// The raw content between its quotes, as a span of the payload.
    pub(super) content: Range<usize>,
    /// How many bytes of it are shown when it first appears.
    pub(super) first: usize,
    /// How many bytes of it are shown.
    pub(super) shown: usize,
    /// Minimum number of bytes that a later detail adds to it; 0 if none does.
    pub(super) growth: usize,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) is_array: bool,
    /// How many children it has in the payload.
    pub(super) total: usize,
    /// The recorded children, as a range of the level below.
    pub(super) children: Range<usize>,
    pub(super) shown: usize,
    /// Length of the marker that counts the members left out.
    pub(super) dots: usize,
}

impl Tree {
    pub(super) fn new(budget: usize) -> Self {
        Self { levels: Vec::new(), horizon: Horizon::new(budget) }
    }

    /// How many nodes a level has.
    pub(super) fn width(&self, depth: usize) -> usize {
        self.levels.get(depth).map_or(0, Vec::len)
    }

    /// Records a node that the horizon admits. Returns its index in its level.
    pub(super) fn add(&mut self, depth: usize, node: Node) -> usize {
        if self.levels.len() <= depth {
            self.levels.resize_with(depth + 1, Vec::new);
        }
        let (row, number, min_size) = (row(depth, node.is_repeat), node.number, node.min_size());
        let growth = node.growth();
        let index = self.levels[depth].len();
        self.levels[depth].push(node);
        self.spend(row, number, min_size);
        if growth > 0 && self.horizon.admits(growth_row(depth), 0) {
            self.spend(growth_row(depth), 0, growth);
        }
        index
    }

    /// Sets the children of a container, once they are recorded.
    pub(super) fn close(&mut self, depth: usize, index: usize, children: Range<usize>, total: usize) {
        let Some(node) = self.levels.get_mut(depth).and_then(|level| level.get_mut(index)) else { return };
        let before = node.min_size();
        if let Value::Container(container) = &mut node.value {
            container.children = children;
            container.total = total;
        }
        let (row, number, more) = (row(depth, node.is_repeat), node.number, node.min_size() - before);
        self.spend(row, number, more);
    }

    /// Whether the next node of the document may still be shown.
    pub(super) fn admits(&self, depth: usize, is_repeat: bool, number: usize) -> bool {
        self.horizon.admits(row(depth, is_repeat), number)
    }

    fn spend(&mut self, row: usize, number: usize, bytes: usize) {
        let rows = self.horizon.spend(row, number, bytes);
        self.levels.truncate(rows.div_ceil(ROWS));
    }
}

/// Rows of a level: nodes in the example of each array, nodes that repeat it, and the growth of strings.
const ROWS: usize = 3;

fn row(depth: usize, is_repeat: bool) -> usize {
    ROWS * depth + usize::from(is_repeat)
}

fn growth_row(depth: usize) -> usize {
    ROWS * depth + 2
}

impl Node {
    /// Size in its present form, key included.
    pub(super) fn size(&self) -> usize {
        self.key_size()
            + match &self.value {
                Value::Whole { size, .. } => *size,
                Value::Hidden => HIDDEN.len(),
                Value::Text(text) => text.size(),
                Value::Container(container) => container.frame(),
            }
    }

    /// Smallest size in any form, key and comma included, without children.
    pub(super) fn min_size(&self) -> usize {
        usize::from(self.number > 0)
            + self.key_size()
            + match &self.value {
                Value::Whole { size, .. } => *size,
                Value::Hidden => HIDDEN.len(),
                Value::Text(text) => 2 + text.first,
                Value::Container(container) => container.min_frame(),
            }
    }

    /// Minimum number of bytes that a later detail adds to it; 0 if none does.
    pub(super) fn growth(&self) -> usize {
        match &self.value {
            Value::Text(text) => text.growth,
            _ => 0,
        }
    }

    /// Its children, as a range of the level below.
    pub(super) fn children(&self) -> Option<Range<usize>> {
        match &self.value {
            Value::Container(container) => Some(container.children.clone()),
            _ => None,
        }
    }

    fn key_size(&self) -> usize {
        self.key.as_ref().map_or(0, |key| key.text.size() + 1)
    }
}

impl Text {
    pub(super) fn is_cut(&self) -> bool {
        self.shown < self.content.len()
    }

    pub(super) fn size(&self) -> usize {
        2 + self.shown + if self.is_cut() { ELLIPSIS.len() } else { 0 }
    }

    /// Returns the number of dots, if the shown text is nothing else.
    pub(super) fn dots(&self, data: &[u8]) -> Option<usize> {
        let content = data.get(self.content.start..self.content.start + self.shown)?;
        if self.is_cut() {
            let dots = if content.is_empty() { 0 } else { text::dots(content)? };
            return Some(dots + ELLIPSIS.len());
        }
        text::dots(content)
    }
}

impl Container {
    pub(super) fn new(is_array: bool) -> Self {
        Self { is_array, total: 0, children: 0..0, shown: 0, dots: ELLIPSIS.len() }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.shown == self.total
    }

    /// Size without the shown children.
    pub(super) fn frame(&self) -> usize {
        let commas = self.shown.saturating_sub(1);
        if self.is_complete() {
            2 + commas
        } else if self.is_array {
            r#"{"items":[],"totalCount":,"showing":}"#.len()
                + digits(self.total)
                + digits(self.shown)
                + commas
        } else {
            r#"{"":}"#.len() + self.dots + digits(self.total - self.shown) + self.shown
        }
    }

    /// Smallest value of `frame`, without commas. A container with children that were not recorded is
    /// complete in no answer.
    fn min_frame(&self) -> usize {
        if self.children.len() == self.total {
            2
        } else if self.is_array {
            r#"{"items":[],"totalCount":,"showing":0}"#.len() + digits(self.total)
        } else {
            r#"{"...":1}"#.len()
        }
    }
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
