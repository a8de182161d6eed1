//! Parses conditions from JSON.

use memchr::memmem::Finder;

use super::condition::{Condition, Operand, Order, Scalars, Test};
use super::{Field, Fields, Filter};
use crate::error::{Error, ErrorKind, Result, quote};
use crate::pointer::unescape;
use crate::project::paths;
use crate::reader::{Kind, Reader};
use crate::scan::Isa;
use crate::search::Pattern;

/// Maximum number of conditions.
const MAX_CONDITIONS: usize = 64;

/// Maximum size of all conditions as JSON.
const MAX_BYTES: usize = 1 << 16;

const EXAMPLE: &str = r#"{"status": "failed", "total": {">": 200}}"#;
const OPERATORS: &str = "=, !=, <, <=, >, >=, in, contains, matches and exists";

/// Operators of other languages, and ours that mean the same.
const SYNONYMS: [(&str, &str); 19] = [
    ("==", "="),
    ("===", "="),
    ("eq", "="),
    ("is", "="),
    ("<>", "!="),
    ("ne", "!="),
    ("not", "!="),
    ("lt", "<"),
    ("lte", "<="),
    ("le", "<="),
    ("gt", ">"),
    ("gte", ">="),
    ("ge", ">="),
    ("one_of", "in"),
    ("any", "in"),
    ("includes", "contains"),
    ("like", "contains"),
    ("regex", "matches"),
    ("match", "matches"),
];

impl Filter {
    /// Parses conditions: a JSON object of fields, each with a scalar or an object of operators.
    ///
    /// `columns` are the names of a table's columns: a field that is one of them is no path.
    ///
    /// # Errors
    /// `InvalidArgument` says which condition is wrong and what to write instead.
    pub fn parse(text: &str, columns: &[String]) -> Result<Self> {
        if text.len() > MAX_BYTES {
            return Err(Error::argument(format!(
                "where takes {} bytes, and {MAX_BYTES} are allowed; write fewer or shorter conditions",
                text.len()
            )));
        }
        let mut parser = Parser { text, reader: Reader::new(text.as_bytes(), Isa::detect()), columns };
        let mut filter = Self { fields: Fields::default(), conditions: Vec::new(), names: Vec::new() };
        parser.read(&mut filter).map_err(|error| match error.kind {
            ErrorKind::InvalidJson(reason) => Error::argument(format!(
                "where is not valid JSON: {reason} at byte {}; write an object such as {EXAMPLE}",
                error.index
            )),
            _ => error,
        })?;
        Ok(filter)
    }
}

struct Parser<'a> {
    text: &'a str,
    reader: Reader<'a>,
    columns: &'a [String],
}

impl Parser<'_> {
    fn read(&mut self, filter: &mut Filter) -> Result<()> {
        if self.reader.kind()? != Kind::Object {
            return Err(Error::argument(format!("where must be an object of conditions, such as {EXAMPLE}")));
        }
        self.reader.open();
        let mut is_first = true;
        while let Some(key) = self.reader.next_key(is_first)? {
            is_first = false;
            let field = self.decode(&self.text.as_bytes()[key])?;
            self.read_field(&field, filter)?;
        }
        match self.reader.peek_or_end() {
            None if is_first => Err(Error::argument(format!(
                "where has no conditions; write some, such as {EXAMPLE}, or leave it out"
            ))),
            None => Ok(()),
            Some(_) => Err(self.reader.fail("expected the end")),
        }
    }

    fn read_field(&mut self, field: &str, filter: &mut Filter) -> Result<()> {
        let paths = match self.columns.iter().any(|column| column == field) {
            true => vec![vec![field.to_owned()]],
            false => paths(field)?,
        };
        let mut tests = Vec::new();
        match self.reader.kind()? {
            Kind::Object => self.read_operators(field, &mut tests)?,
            Kind::Array if field.starts_with('$') => {
                return Err(Error::argument(format!(
                    "there is no {}: all conditions must hold; write {{\"in\": [...]}} for one of several values, and use output_query (SQL) for OR",
                    quote(field)
                )));
            }
            Kind::Array => {
                return Err(Error::argument(format!(
                    "the condition on {} is a list; write {{\"in\": [...]}} for one of several values, or {{\"contains\": ...}} for an element of an array",
                    quote(field)
                )));
            }
            _ => tests.push((Test::OneOf(Scalars::new([self.read_scalar(field, "=")?])), false)),
        }
        for (test, is_negated) in tests {
            if filter.conditions.len() == MAX_CONDITIONS {
                return Err(Error::argument(format!(
                    "where has more than {MAX_CONDITIONS} conditions; write fewer, or \"in\" for several values of one field"
                )));
            }
            for path in &paths {
                filter.fields.insert(path, filter.conditions.len());
            }
            let is_absence = is_negated && matches!(test, Test::Exists);
            if !is_absence {
                filter.names.push(Field { name: field.to_owned(), is_required: !is_negated });
            }
            filter.conditions.push(Condition { test, is_negated, has_one_path: paths.len() == 1 });
        }
        Ok(())
    }

    fn read_operators(&mut self, field: &str, tests: &mut Vec<(Test, bool)>) -> Result<()> {
        self.reader.open();
        while let Some(key) = self.reader.next_key(tests.is_empty())? {
            let operator = self.decode(&self.text.as_bytes()[key])?;
            tests.push(self.read_operator(field, &operator)?);
        }
        if tests.is_empty() {
            return Err(Error::argument(format!(
                "the condition on {} is empty; write a value, or operators such as {{\">=\": 10, \"<\": 20}}",
                quote(field)
            )));
        }
        Ok(())
    }

    /// Reads the operand of an operator. Returns the test, and whether it is negated.
    fn read_operator(&mut self, field: &str, operator: &str) -> Result<(Test, bool)> {
        let order = match operator {
            "<" => Order::Less,
            "<=" => Order::LessOrEqual,
            ">" => Order::Greater,
            ">=" => Order::GreaterOrEqual,
            "=" | "!=" => {
                return Ok((
                    Test::OneOf(Scalars::new([self.read_scalar(field, operator)?])),
                    operator == "!=",
                ));
            }
            "in" => return Ok((Test::OneOf(self.read_list(field)?), false)),
            "contains" => return Ok((self.read_contained(field)?, false)),
            "matches" => return Ok((self.read_pattern(field)?, false)),
            "exists" => {
                return match self.read_scalar(field, operator)? {
                    Operand::Bool(exists) => Ok((Test::Exists, !exists)),
                    _ => Err(self.reject(field, operator, "true or false")),
                };
            }
            _ => return Err(unknown_operator(field, operator)),
        };
        match self.read_scalar(field, operator)? {
            operand @ (Operand::Number(_) | Operand::Text(_)) => Ok((Test::Order(order, operand), false)),
            _ => Err(self.reject(field, operator, "a number or a text")),
        }
    }

    fn read_scalar(&mut self, field: &str, operator: &str) -> Result<Operand> {
        match self.reader.kind()? {
            Kind::String => {
                let content = self.reader.take_string()?;
                Ok(Operand::Text(self.decode(&self.text.as_bytes()[content])?))
            }
            Kind::Object | Kind::Array if matches!(operator, "=" | "!=" | "in" | "contains") => Err(self
                .reject(
                    field,
                    operator,
                    "text, a number, true, false or null; to compare a nested field, name it: \"user.name\"",
                )),
            Kind::Object | Kind::Array => Err(self.reject(field, operator, "a single value")),
            kind => {
                let text = &self.text[self.reader.take_scalar()?];
                Ok(match kind {
                    Kind::Bool => Operand::Bool(text == "true"),
                    Kind::Null => Operand::Null,
                    _ => Operand::Number(text.to_owned()),
                })
            }
        }
    }

    fn read_list(&mut self, field: &str) -> Result<Scalars> {
        let needs_list = "a non-empty list of values, such as [\"open\", \"failed\"]";
        if self.reader.kind()? != Kind::Array {
            return Err(self.reject(field, "in", needs_list));
        }
        self.reader.open();
        let mut operands = Vec::new();
        while self.reader.next_item(operands.is_empty())? {
            operands.push(self.read_scalar(field, "in")?);
        }
        if operands.is_empty() {
            return Err(self.reject(field, "in", needs_list));
        }
        Ok(Scalars::new(operands))
    }

    fn read_contained(&mut self, field: &str) -> Result<Test> {
        let operand = self.read_scalar(field, "contains")?;
        let finder = match &operand {
            Operand::Text(text) => Some(Box::new(Finder::new(text).into_owned())),
            _ => None,
        };
        Ok(Test::Contains(finder, Scalars::new([operand])))
    }

    fn read_pattern(&mut self, field: &str) -> Result<Test> {
        let Operand::Text(pattern) = self.read_scalar(field, "matches")? else {
            return Err(self.reject(field, "matches", "a regular expression as text"));
        };
        let pattern = Pattern::regex(&pattern, false)
            .map_err(|error| Error::argument(format!("the condition on {}: {error}", quote(field))))?;
        Ok(Test::Matches(Box::new(pattern)))
    }

    fn decode(&self, raw: &[u8]) -> Result<String> {
        let text = unescape(raw).ok_or_else(|| {
            Error::argument("where has half of a surrogate pair, which is no text; leave it out")
        })?;
        Ok(text.into_owned())
    }

    fn reject(&self, field: &str, operator: &str, expected: &str) -> Error {
        Error::argument(format!("\"{operator}\" on {} takes {expected}", quote(field)))
    }
}

fn unknown_operator(field: &str, operator: &str) -> Error {
    let plain = operator.trim_start_matches('$').to_lowercase();
    let known = ["=", "!=", "<", "<=", ">", ">=", "in", "contains", "matches", "exists"];
    let meant = known.into_iter().find(|known| *known == plain);
    let meant =
        meant.or_else(|| SYNONYMS.into_iter().find(|(other, _)| *other == plain).map(|(_, ours)| ours));
    let is_name = operator.starts_with(|first: char| first.is_alphabetic() || first == '_');
    let hint = match meant {
        Some(meant) => format!("; did you mean \"{meant}\"?"),
        None if is_name => {
            format!("; for a nested field, write {}.", quote(&format!("{field}.{operator}")))
        }
        None => ".".to_string(),
    };
    Error::argument(format!(
        "unknown operator {} in the condition on {}{hint} The operators are {OPERATORS}",
        quote(operator),
        quote(field)
    ))
}
