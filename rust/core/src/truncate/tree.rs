//! The values that may be shown, level by level, and what each takes in the form it is shown in.

use std::ops::Range;

use super::horizon::Horizon;
use super::text;

/// What stands for a value that is not shown at all.
pub(super) const HIDDEN: &[u8] = b"\"[truncated]\"";
/// What a string or key that was cut ends in.
pub(super) const ELLIPSIS: &[u8] = b"...";

/// Nodes by depth, those of one depth in the document's order: so the children of a node are neighbours.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) levels: Vec<Vec<Node>>,
    horizon: Horizon,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) key: Option<Key>,
    /// Its place in the level above.
    pub(super) parent: usize,
    /// Its number among its siblings.
    pub(super) number: usize,
    /// Whether it is inside of an item that is not the first of its array. What is not is the example.
    pub(super) is_repeat: bool,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    /// Shown as it stands, white space left out: a scalar, or a container that is not worth closing.
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
    /// The fewest dots, but no less than an ellipsis, that are more than those of this key and all before it in
    /// the object: what counts the members behind it.
    pub(super) marker: usize,
}

/// A string or a key, of which a prefix is shown.
#[derive(Debug, Clone)]
pub(super) struct Text {
    /// The content as it stands in the payload, between its quotes.
    pub(super) content: Range<usize>,
    /// How many bytes of it are shown when it first appears.
    pub(super) first: usize,
    /// How many bytes of it are shown.
    pub(super) shown: usize,
    /// At least how many bytes more of it a later detail shows; 0 if none does.
    pub(super) growth: usize,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) is_array: bool,
    /// How many children it has in the payload.
    pub(super) total: usize,
    /// Where those that were recorded are, in the level below.
    pub(super) children: Range<usize>,
    pub(super) shown: usize,
    /// How many dots the key has that counts the members left out.
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

    /// Records a node that the horizon admits. Returns its place in its level.
    pub(super) fn add(&mut self, depth: usize, node: Node) -> usize {
        if self.levels.len() <= depth {
            self.levels.resize_with(depth + 1, Vec::new);
        }
        let (row, number, least) = (row(depth, node.is_repeat), node.number, node.least());
        let growth = node.growth();
        let place = self.levels[depth].len();
        self.levels[depth].push(node);
        self.spend(row, number, least);
        if growth > 0 && self.horizon.admits(growth_row(depth), 0) {
            self.spend(growth_row(depth), 0, growth);
        }
        place
    }

    /// Completes a container whose children were recorded, as far as they can be shown.
    pub(super) fn close(&mut self, depth: usize, place: usize, children: Range<usize>, total: usize) {
        let Some(node) = self.levels.get_mut(depth).and_then(|level| level.get_mut(place)) else { return };
        let before = node.least();
        if let Value::Container(container) = &mut node.value {
            container.children = children;
            container.total = total;
        }
        let (row, number, more) = (row(depth, node.is_repeat), node.number, node.least() - before);
        self.spend(row, number, more);
    }

    /// Whether a node that comes next in the document may still be shown.
    pub(super) fn admits(&self, depth: usize, is_repeat: bool, number: usize) -> bool {
        self.horizon.admits(row(depth, is_repeat), number)
    }

    fn spend(&mut self, row: usize, number: usize, bytes: usize) {
        let rows = self.horizon.spend(row, number, bytes);
        self.levels.truncate(rows.div_ceil(ROWS));
    }
}

/// A level is shown in three rows: what is in the example of each array, what repeats it, and what strings
/// grow by.
const ROWS: usize = 3;

fn row(depth: usize, is_repeat: bool) -> usize {
    ROWS * depth + usize::from(is_repeat)
}

fn growth_row(depth: usize) -> usize {
    ROWS * depth + 2
}

impl Node {
    /// What it takes in its present form, key included.
    pub(super) fn size(&self) -> usize {
        self.key_size()
            + match &self.value {
                Value::Whole { size, .. } => *size,
                Value::Hidden => HIDDEN.len(),
                Value::Text(text) => text.size(),
                Value::Container(container) => container.frame(),
            }
    }

    /// The fewest bytes it takes in any form, key and comma included, children not.
    pub(super) fn least(&self) -> usize {
        usize::from(self.number > 0)
            + self.key_size()
            + match &self.value {
                Value::Whole { size, .. } => *size,
                Value::Hidden => HIDDEN.len(),
                Value::Text(text) => 2 + text.first,
                Value::Container(container) => container.least(),
            }
    }

    /// At least how many bytes a later detail adds to it; 0 if none does.
    pub(super) fn growth(&self) -> usize {
        match &self.value {
            Value::Text(text) => text.growth,
            _ => 0,
        }
    }

    /// Where its children are in the level below.
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

    /// How many dots it is as it is shown, if it is nothing else.
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

    /// What it takes without the children that are shown.
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

    /// The least that `frame` can be, commas not counted. A container of which not every child was recorded
    /// is complete in no answer.
    fn least(&self) -> usize {
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
