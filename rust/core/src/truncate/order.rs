//! The canonical order of details, and how much of it fits a budget.
//!
//! The order goes level by level: the first child of every container, then the second of every container, and
//! so on. A container first appears closed, a long string first appears short. The contents of an array's
//! first item come before those of the others: one whole example tells more than the first field of each.
//! Once all of a level has appeared, its strings grow to their full length, in the same order; then comes the
//! next level.
//!
//! The answer is the longest prefix of this order that fits. If the first detail that does not fit is a
//! string, it shows as many characters as do. So a larger budget shows a longer prefix, and never less.

use super::Limits;
use super::text;
use super::tree::{ELLIPSIS, HIDDEN, Node, Tree, Value};
use crate::error::{Error, Result};
use crate::reader::check_string;

/// One step of the order: a node appears, or a string that has appeared grows.
#[derive(Debug, Clone, Copy)]
struct Detail {
    depth: usize,
    index: usize,
    is_growth: bool,
}

/// Sets what the nodes of `tree` show. Returns the size of the answer; `None` if not even the root is shown.
pub(super) fn choose(tree: &mut Tree, data: &[u8], limits: &Limits) -> Result<Option<usize>> {
    let details = details(tree);
    let mut choice = Choice { tree, data, limits, size: HIDDEN.len() };
    let Reach { fitting, shown, mut smallest } = choice.reach(&details)?;
    let last = fitting.unwrap_or(0);
    for &detail in details[last..shown].iter().rev() {
        choice.hide(detail);
    }
    if let Some(&next) = details.get(last)
        && choice.is_text(next)
    {
        if choice.fill(next)? {
            return Ok(Some(choice.size));
        }
        choice.hide(next);
        smallest = smallest.min(2 + ELLIPSIS.len());
    }
    match fitting {
        None => Err(Error::argument(format!(
            "max_bytes is {}; the smallest answer for this payload takes {smallest}",
            limits.max_bytes
        ))),
        Some(0) => Ok(None),
        Some(_) => Ok(Some(choice.size)),
    }
}

fn details(tree: &Tree) -> Vec<Detail> {
    let mut details = vec![Detail { depth: 0, index: 0, is_growth: false }];
    let mut start = 0;
    for (depth, level) in tree.levels.iter().enumerate() {
        for at in start..details.len() {
            let index = details[at].index;
            if level[index].growth() > 0 {
                details.push(Detail { depth, index, is_growth: true });
            }
        }
        start = details.len();
        // A level out of reach was dropped, and the child ranges of its parents are stale.
        let below = tree.levels.get(depth + 1).map_or(&[][..], Vec::as_slice);
        for is_repeat in [false, true] {
            let mut parents: Vec<_> = level.iter().filter_map(Node::children).collect();
            parents.retain(|children| {
                below
                    .get(children.clone())
                    .and_then(<[_]>::first)
                    .is_some_and(|child| child.is_repeat == is_repeat)
            });
            for number in 0.. {
                parents.retain(|children| number < children.len());
                if parents.is_empty() {
                    break;
                }
                details.extend(parents.iter().map(|children| Detail {
                    depth: depth + 1,
                    index: children.start + number,
                    is_growth: false,
                }));
            }
        }
    }
    details
}

struct Choice<'a> {
    tree: &'a mut Tree,
    data: &'a [u8],
    limits: &'a Limits,
    /// Size of the answer in bytes.
    size: usize,
}

struct Reach {
    /// Details in the longest prefix that fits; `None` if not even the empty one does.
    fitting: Option<usize>,
    /// Details that are shown.
    shown: usize,
    /// Size of the smallest prefix in bytes.
    smallest: usize,
}

impl Choice<'_> {
    fn reach(&mut self, details: &[Detail]) -> Result<Reach> {
        let budget = self.limits.max_bytes;
        let fitting = (self.size <= budget).then_some(0);
        let mut reach = Reach { fitting, shown: 0, smallest: self.size };
        // Lower bound for the answer from here on: it shrinks where a container becomes complete, but never
        // below this.
        let mut min_size = 0;
        for (i, &detail) in details.iter().enumerate() {
            self.show(detail)?;
            reach.shown = i + 1;
            let node = &self.tree.levels[detail.depth][detail.index];
            min_size += if detail.is_growth { node.growth() } else { node.min_size() };
            if self.size <= budget {
                reach.fitting = Some(i + 1);
            }
            reach.smallest = reach.smallest.min(self.size);
            if min_size > budget.max(HIDDEN.len()) {
                break;
            }
        }
        Ok(reach)
    }

    fn show(&mut self, detail: Detail) -> Result<()> {
        let (above, level) = self.tree.levels.split_at_mut(detail.depth);
        let node = &mut level[0][detail.index];
        if detail.is_growth {
            let Value::Text(text) = &mut node.value else { return Ok(()) };
            self.size -= text.size();
            let content = &self.data[text.content.clone()];
            text.shown = text::floor(content, self.limits.max_string_chars, usize::MAX);
            check_string(self.data, text.content.start..text.content.start + text.shown)?;
            self.size += text.size();
            return Ok(());
        }
        let Some(Value::Container(parent)) = above.last_mut().map(|level| &mut level[node.parent].value)
        else {
            self.size = node.size();
            return Ok(());
        };
        self.size -= parent.frame();
        parent.shown += 1;
        parent.dots = marker(Some(node));
        self.size += parent.frame() + node.size();
        Ok(())
    }

    /// Hides the detail that was shown last.
    fn hide(&mut self, detail: Detail) {
        let (above, level) = self.tree.levels.split_at_mut(detail.depth);
        let level = &mut level[0];
        if let Value::Text(text) = &mut level[detail.index].value {
            self.size -= text.size();
            text.shown = text.first;
            self.size += text.size();
        }
        if detail.is_growth {
            return;
        }
        let node = &level[detail.index];
        let Some(Value::Container(parent)) = above.last_mut().map(|level| &mut level[node.parent].value)
        else {
            self.size = HIDDEN.len();
            return;
        };
        self.size -= parent.frame() + node.size();
        parent.shown -= 1;
        parent.dots = marker(level[parent.children.start..detail.index].last());
        self.size += parent.frame();
    }

    fn is_text(&self, detail: Detail) -> bool {
        matches!(self.tree.levels[detail.depth][detail.index].value, Value::Text(_))
    }

    /// Shows a string detail that is too long, cut to the rest of the budget. `false` if that would show
    /// nothing new.
    fn fill(&mut self, detail: Detail) -> Result<bool> {
        self.show(detail)?;
        let Value::Text(text) = &mut self.tree.levels[detail.depth][detail.index].value else {
            return Ok(false);
        };
        let whole = text.size();
        let excess = self.size.saturating_sub(self.limits.max_bytes);
        let ellipsis = if text.is_cut() { 0 } else { ELLIPSIS.len() };
        let Some(room) = text.shown.checked_sub(excess + ellipsis) else { return Ok(false) };
        text.shown = text::floor(&self.data[text.content.clone()], usize::MAX, room);
        self.size = self.size - whole + text.size();
        Ok(!detail.is_growth || text.shown > text.first)
    }
}

/// Returns the length of the marker that counts the members after the `last` one shown.
fn marker(last: Option<&Node>) -> usize {
    last.and_then(|node| node.key.as_ref()).map_or(ELLIPSIS.len(), |key| key.marker)
}
