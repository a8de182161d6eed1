//! Conditions on one value.

use std::borrow::Cow;
use std::cmp::Ordering;

use memchr::memmem::Finder;

use super::number;
use crate::error::Result;
use crate::message::unescape;
use crate::reader::{Kind, Reader, is_number};
use crate::scan::Isa;
use crate::search::{Pattern, TextSearcher};

/// A condition on the values of a field: it holds if any of them passes the test or, negated, if none does.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) test: Test,
    pub(super) is_negated: bool,
    /// Whether the field is a single path. Outside of arrays it then has at most one value.
    pub(super) has_one_path: bool,
}

#[derive(Debug)]
pub(super) enum Test {
    Exists,
    OneOf(Scalars),
    Order(Order, Operand),
    /// A part of a text, which the finder finds, or an element of an array.
    Contains(Option<Box<Finder<'static>>>, Scalars),
    Matches(Box<Pattern>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone)]
pub(super) enum Operand {
    Text(String),
    /// A number as it is written.
    Number(String),
    Bool(bool),
    Null,
}

/// A set of scalars. Text and numbers are sorted.
#[derive(Debug, Default)]
pub(super) struct Scalars {
    pub(super) texts: Vec<String>,
    numbers: Vec<String>,
    bools: [bool; 2],
    has_null: bool,
}

/// A value in an item. The bytes of a text are those between its quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) kind: Kind,
    pub(super) bytes: &'a [u8],
    /// Whether a text that is written like a number compares with numbers, as in CSV.
    pub(super) is_cell: bool,
}

impl Order {
    fn accepts(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

impl Scalars {
    pub(super) fn new(operands: impl IntoIterator<Item = Operand>) -> Self {
        let mut scalars = Self::default();
        for operand in operands {
            match operand {
                Operand::Text(text) => scalars.texts.push(text),
                Operand::Number(number) => scalars.numbers.push(number),
                Operand::Bool(value) => scalars.bools[usize::from(value)] = true,
                Operand::Null => scalars.has_null = true,
            }
        }
        scalars.texts.sort_unstable();
        scalars.numbers.sort_by(|left, right| number::compare(left.as_bytes(), right.as_bytes()));
        scalars
    }

    /// Returns the text if there is nothing else.
    pub(super) fn only_text(&self) -> Option<&str> {
        match &self.texts[..] {
            [text] if self.numbers.is_empty() && self.bools == [false; 2] && !self.has_null => Some(text),
            _ => None,
        }
    }

    fn contains(&self, value: Value<'_>) -> bool {
        if let Some(number) = value.number()
            && self.numbers.binary_search_by(|known| number::compare(known.as_bytes(), number)).is_ok()
        {
            return true;
        }
        match value.kind {
            Kind::String if self.texts.is_empty() => false,
            Kind::String => {
                let text = value.text();
                self.texts.binary_search_by(|known| known.as_bytes().cmp(&text)).is_ok()
            }
            Kind::Bool => self.bools[usize::from(value.bytes == b"true")],
            Kind::Null => self.has_null,
            Kind::Number | Kind::Object | Kind::Array => false,
        }
    }
}

impl<'a> Value<'a> {
    /// Reads the next value. Containers are not validated.
    pub(super) fn take(reader: &mut Reader<'a>, data: &'a [u8], is_cell: bool) -> Result<Self> {
        let kind = reader.kind()?;
        let span = reader.skip()?;
        let span = if kind == Kind::String { span.start + 1..span.end - 1 } else { span };
        Ok(Self { kind, bytes: &data[span], is_cell })
    }

    fn number(&self) -> Option<&'a [u8]> {
        let is_number = match self.kind {
            Kind::Number => true,
            Kind::String => self.is_cell && is_number(self.bytes),
            _ => false,
        };
        is_number.then_some(self.bytes)
    }

    /// Returns a text as WTF-8, the bytes of which are in the order of its code points.
    fn text(&self) -> Cow<'a, [u8]> {
        match memchr::memchr(b'\\', self.bytes) {
            None => Cow::Borrowed(self.bytes),
            Some(_) => Cow::Owned(unescape(self.bytes)),
        }
    }
}

impl Test {
    /// Whether a value passes. Of an array, each element is a value. `searcher` is that of a regular expression.
    pub(super) fn passes(
        &self,
        value: Value<'_>,
        mut searcher: Option<&mut TextSearcher<'_>>,
        isa: Isa,
    ) -> Result<bool> {
        match self {
            Self::Contains(_, scalars) if value.kind == Kind::Array => {
                any_item(value.bytes, false, isa, |item| scalars.contains(item))
            }
            _ if value.kind != Kind::Array || matches!(self, Self::Exists) => {
                Ok(self.accepts(value, searcher))
            }
            _ => any_item(value.bytes, true, isa, |item| self.accepts(item, searcher.as_deref_mut())),
        }
    }

    /// Whether a value that is not an array passes.
    fn accepts(&self, value: Value<'_>, searcher: Option<&mut TextSearcher<'_>>) -> bool {
        match self {
            Self::Exists => true,
            Self::OneOf(scalars) => scalars.contains(value),
            Self::Order(order, Operand::Number(operand)) => value
                .number()
                .is_some_and(|number| order.accepts(number::compare(number, operand.as_bytes()))),
            Self::Order(order, Operand::Text(operand)) => {
                value.kind == Kind::String && order.accepts(value.text()[..].cmp(operand.as_bytes()))
            }
            Self::Order(..) => false,
            Self::Contains(Some(finder), _) => {
                value.kind == Kind::String && finder.find(&value.text()).is_some()
            }
            Self::Contains(None, _) => false,
            Self::Matches(_) => {
                let found = searcher
                    .filter(|_| value.kind == Kind::String)
                    .and_then(|searcher| searcher.find(&value.text(), 0));
                found.is_some()
            }
        }
    }
}

/// Whether any item of an array passes; with `is_flat`, the items of arrays inside it in place of these arrays.
fn any_item(
    array: &[u8],
    is_flat: bool,
    isa: Isa,
    mut passes: impl FnMut(Value<'_>) -> bool,
) -> Result<bool> {
    let mut reader = Reader::new(array, isa);
    reader.open();
    let (mut open_arrays, mut is_first) = (1_usize, true);
    while open_arrays > 0 {
        if !reader.next_item(std::mem::take(&mut is_first))? {
            open_arrays -= 1;
        } else if is_flat && reader.kind()? == Kind::Array {
            reader.open();
            open_arrays += 1;
            is_first = true;
        } else if passes(Value::take(&mut reader, array, false)?) {
            return Ok(true);
        }
    }
    Ok(false)
}
