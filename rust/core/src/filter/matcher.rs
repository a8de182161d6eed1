//! Matches items one after the other.

use super::condition::{Test, Value};
use super::{Fields, Filter};
use crate::error::Result;
use crate::reader::{Kind, Reader};
use crate::scan::Isa;
use crate::search::TextSearcher;

/// Maximum number of nested arrays on the way to a field; deeper ones are not entered.
const MAX_ARRAYS: usize = 128;

/// What is known about an item so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Undecided,
    Match,
    NoMatch,
}

/// A filter, and memory that it keeps from one item to the next.
pub(super) struct Matcher<'f> {
    filter: &'f Filter,
    /// The searcher of each condition that is a regular expression.
    searchers: Vec<Option<TextSearcher<'f>>>,
    /// Whether a condition is known to hold for the current item.
    holds: Vec<bool>,
    /// How many conditions are not known to hold.
    undecided: usize,
    /// Which fields of the objects being read were found: a stack with one run of flags per level.
    found: Vec<bool>,
    has_cells: bool,
    isa: Isa,
}

impl<'f> Matcher<'f> {
    pub(super) fn new(filter: &'f Filter, has_cells: bool) -> Self {
        let searcher = |test: &'f Test| match test {
            Test::Matches(pattern) => Some(pattern.searcher()),
            _ => None,
        };
        Self {
            filter,
            searchers: filter.conditions.iter().map(|condition| searcher(&condition.test)).collect(),
            holds: vec![false; filter.conditions.len()],
            undecided: 0,
            found: Vec::new(),
            has_cells,
            isa: Isa::detect(),
        }
    }

    /// Whether an item matches.
    pub(super) fn matches(&mut self, item: &[u8]) -> Result<bool> {
        let filter = self.filter;
        self.holds.fill(false);
        self.undecided = filter.conditions.len();
        self.found.clear();
        let verdict = self.read_value(&mut Reader::new(item, self.isa), item, &filter.fields, 0)?;
        Ok(match verdict {
            Verdict::Match => true,
            Verdict::NoMatch => false,
            // A negated condition holds unless some value passes its test.
            Verdict::Undecided => filter
                .conditions
                .iter()
                .zip(&self.holds)
                .all(|(condition, holds)| *holds || condition.is_negated),
        })
    }

    /// Reads a value that may contain fields.
    fn read_value<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        item: &'a [u8],
        fields: &Fields,
        arrays: usize,
    ) -> Result<Verdict> {
        match reader.kind()? {
            Kind::Object => self.read_object(reader, item, fields, arrays),
            Kind::Array if arrays < MAX_ARRAYS => {
                reader.open();
                let mut is_first = true;
                while reader.next_item(is_first)? {
                    is_first = false;
                    match self.read_value(reader, item, fields, arrays + 1)? {
                        Verdict::Undecided => {}
                        verdict => return Ok(verdict),
                    }
                }
                Ok(Verdict::Undecided)
            }
            _ => reader.skip().map(|_| Verdict::Undecided),
        }
    }

    fn read_object<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        item: &'a [u8],
        fields: &Fields,
        arrays: usize,
    ) -> Result<Verdict> {
        reader.open();
        let level = self.found.len();
        self.found.resize(level + fields.children.len(), false);
        let mut missing = fields.children.len();
        let mut is_first = true;
        while let Some(key) = reader.next_key(is_first)? {
            is_first = false;
            let field = fields.find(&item[key]).filter(|at| !self.found[level + at]);
            let Some(at) = field else {
                reader.skip()?;
                continue;
            };
            self.found[level + at] = true;
            missing -= 1;
            match self.read_field(reader, item, &fields.children[at].1, arrays)? {
                Verdict::Undecided => {}
                verdict => return Ok(verdict),
            }
            if missing == 0 {
                reader.skip_rest()?;
                break;
            }
        }
        self.found.truncate(level);
        Ok(Verdict::Undecided)
    }

    /// Tests the value of a field, then reads what it contains.
    fn read_field<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        item: &'a [u8],
        fields: &Fields,
        arrays: usize,
    ) -> Result<Verdict> {
        if fields.conditions.is_empty() {
            return self.read_value(reader, item, fields, arrays);
        }
        let mut inside = reader.clone();
        let value = Value::take(reader, item, self.has_cells)?;
        for &condition in &fields.conditions {
            match self.test(condition, value, arrays)? {
                Verdict::Undecided => {}
                verdict => return Ok(verdict),
            }
        }
        if fields.children.is_empty() {
            return Ok(Verdict::Undecided);
        }
        self.read_value(&mut inside, item, fields, arrays)
    }

    fn test(&mut self, at: usize, value: Value<'_>, arrays: usize) -> Result<Verdict> {
        if self.holds[at] {
            return Ok(Verdict::Undecided);
        }
        let condition = &self.filter.conditions[at];
        let passes = condition.test.passes(value, self.searchers[at].as_mut(), self.isa)?;
        // Outside of arrays, a field has no other value.
        let is_only_value = arrays == 0 && condition.has_one_path;
        match (passes, condition.is_negated) {
            (true, true) => return Ok(Verdict::NoMatch),
            (false, false) if is_only_value => return Ok(Verdict::NoMatch),
            (true, false) => {}
            (false, true) if is_only_value => {}
            _ => return Ok(Verdict::Undecided),
        }
        self.holds[at] = true;
        self.undecided -= 1;
        Ok(if self.undecided == 0 { Verdict::Match } else { Verdict::Undecided })
    }
}
