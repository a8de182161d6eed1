//! Upper bound for how much of the canonical order fits a budget, given the part of the payload read so far.

/// Rejects nodes that cannot be shown, so that the recorded nodes are bounded by the budget, not by the
/// payload. The canonical order of nodes is by row, then by number among siblings, then by position in the
/// document; a row and a number together are a *slot*.
///
/// Every node counts with the fewest bytes it takes in any answer that shows it. Once the nodes before a
/// position in the order exceed the budget, nothing from there on is shown; later nodes only add to the sum.
/// So a rejection never changes the answer.
#[derive(Debug)]
pub(super) struct Horizon {
    budget: usize,
    total: usize,
    /// Bytes of each slot, by row and number. Slots that are out of reach are removed.
    spent: Vec<Vec<usize>>,
    /// The first slot in which no further node can be shown.
    edge: (usize, usize),
}

impl Horizon {
    pub(super) fn new(budget: usize) -> Self {
        Self { budget, total: 0, spent: Vec::new(), edge: (usize::MAX, 0) }
    }

    /// Whether the next node of the document, if it is in this slot, may still be shown.
    pub(super) fn admits(&self, row: usize, number: usize) -> bool {
        (row, number) < self.edge
    }

    /// Counts bytes of an admitted node. Returns how many rows are still in reach.
    pub(super) fn spend(&mut self, row: usize, number: usize, bytes: usize) -> usize {
        if self.spent.len() <= row {
            self.spent.resize(row + 1, Vec::new());
        }
        let slots = &mut self.spent[row];
        if slots.len() <= number {
            slots.resize(number + 1, 0);
        }
        slots[number] += bytes;
        self.total += bytes;
        if self.total > self.budget {
            self.shrink();
        }
        self.spent.len()
    }

    /// Removes slots from the end for as long as those before the last one exceed the budget.
    fn shrink(&mut self) {
        while let Some(slots) = self.spent.last_mut() {
            match slots.last() {
                Some(last) if self.total - last <= self.budget => {
                    self.edge = (self.spent.len() - 1, self.spent.last().map_or(0, Vec::len) - 1);
                    return;
                }
                Some(last) => {
                    self.total -= last;
                    slots.pop();
                }
                None => drop(self.spent.pop()),
            }
        }
    }
}
