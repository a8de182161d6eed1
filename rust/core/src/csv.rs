//! CSV and TSV: splitting of a stream into rows, and rows as JSON objects.
//!
//! Rows are read as by Python's `csv` module. A quote is special only as the first byte of a field and inside a quoted
//! field. A row ends with CR, LF or both; empty lines are skipped.

use std::collections::{HashMap, HashSet};

use memchr::{memchr, memchr3};

use crate::escaping::push_string;
use crate::survey::BYTE_ORDER_MARK;

/// Splitter of a payload into rows. It can continue from one piece to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSplitter {
    delimiter: u8,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// At the start of the payload, after this many bytes of a byte order mark.
    Mark(usize),
    /// Before the header.
    Header,
    /// Between two rows.
    Between,
    /// At the first byte of a field.
    FieldStart,
    /// In a field, where a quote is an ordinary character.
    Field,
    Quoted,
    /// After a quote in a quoted field. It closes the field unless another one follows.
    Quote,
}

impl RowSplitter {
    /// Returns a splitter for the start of a payload.
    pub(crate) fn new(delimiter: u8) -> Self {
        Self { delimiter, state: State::Mark(0) }
    }

    /// Returns a splitter for the first byte of a row, which counts as found.
    pub(crate) fn inside(delimiter: u8) -> Self {
        Self { delimiter, state: State::FieldStart }
    }

    /// Returns where the next row after the current one or the header starts; `None` if that is after `bytes`.
    pub(crate) fn next_start(&mut self, bytes: &[u8]) -> Option<usize> {
        let end = if let State::Between = self.state { 0 } else { self.row_end(bytes)? };
        let start = end + count_line_breaks(&bytes[end..]);
        if start == bytes.len() {
            return None;
        }
        self.state = State::FieldStart;
        Some(start)
    }

    /// Counts the rows that start in `bytes`.
    pub(crate) fn count(&mut self, bytes: &[u8]) -> u64 {
        let (mut count, mut rest) = (0, bytes);
        while let Some(start) = self.next_start(rest) {
            count += 1;
            rest = &rest[start..];
        }
        count
    }

    /// Returns where the line break after the current row is; `None` if that is after `bytes`.
    pub(crate) fn row_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut pos = 0;
        while pos < bytes.len() {
            let rest = &bytes[pos..];
            match self.state {
                State::Mark(found) => {
                    let missing = &BYTE_ORDER_MARK[found..];
                    let more =
                        rest.iter().zip(missing).take_while(|(byte, expected)| byte == expected).count();
                    pos += more;
                    self.state = match found + more {
                        _ if more == missing.len() => State::Header,
                        found if more == rest.len() => State::Mark(found),
                        0 => State::Header,
                        // A character that starts like the mark.
                        _ => State::Field,
                    };
                }
                State::Header => {
                    pos += count_line_breaks(rest);
                    if pos < bytes.len() {
                        self.state = State::FieldStart;
                    }
                }
                State::Between => return Some(pos),
                State::FieldStart | State::Quote if rest[0] == b'"' => {
                    self.state = State::Quoted;
                    pos += 1;
                }
                State::FieldStart | State::Quote => self.state = State::Field,
                State::Quoted => {
                    pos += memchr(b'"', rest)? + 1;
                    self.state = State::Quote;
                }
                State::Field => {
                    let Some(at) = memchr3(b'"', b'\n', b'\r', rest) else {
                        if rest.last() == Some(&self.delimiter) {
                            self.state = State::FieldStart;
                        }
                        return None;
                    };
                    if rest[at] != b'"' {
                        self.state = State::Between;
                        return Some(pos + at);
                    }
                    if at > 0 && rest[at - 1] == self.delimiter {
                        self.state = State::Quoted;
                    }
                    pos += at + 1;
                }
            }
        }
        None
    }
}

/// Returns how many CR and LF `bytes` start with.
pub(crate) fn count_line_breaks(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
}

/// Reader of the fields of one row.
pub(crate) struct Fields<'a> {
    /// What is left of the row; `None` after the last field.
    rest: Option<&'a [u8]>,
    delimiter: u8,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(row: &'a [u8], delimiter: u8) -> Self {
        Self { rest: Some(row), delimiter }
    }

    /// Reads the next field into `field`. Returns how many bytes of the row it takes, without the delimiter after it;
    /// `None` after the last field.
    pub(crate) fn read(&mut self, field: &mut Vec<u8>) -> Option<usize> {
        field.clear();
        let row = self.rest?;
        let mut rest = row;
        if let Some(mut quoted) = rest.strip_prefix(b"\"") {
            loop {
                let end = memchr(b'"', quoted).unwrap_or(quoted.len());
                field.extend_from_slice(&quoted[..end]);
                rest = quoted.get(end + 1..).unwrap_or_default();
                match rest.strip_prefix(b"\"") {
                    Some(after) => quoted = after,
                    None => break,
                }
                field.push(b'"');
            }
        }
        let end = memchr(self.delimiter, rest);
        let last = &rest[..end.unwrap_or(rest.len())];
        field.extend_from_slice(last);
        self.rest = end.map(|end| &rest[end + 1..]);
        Some(row.len() - rest.len() + last.len())
    }
}

/// Appends a field in quotes.
pub(crate) fn push_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for (number, part) in text.split(|byte| *byte == b'"').enumerate() {
        if number > 0 {
            out.extend_from_slice(b"\"\"");
        }
        out.extend_from_slice(part);
    }
    out.push(b'"');
}

/// Names of the columns, each of which is the key of one value in a row's object.
pub(crate) struct Columns {
    delimiter: u8,
    names: Vec<String>,
    taken: HashSet<String>,
}

impl Columns {
    /// Reads the names from the header of a payload, which may start with a byte order mark and empty lines.
    ///
    /// A repeated name gets a number: `name`, `name_2`. A column without a name is called by its position: `column_3`.
    pub(crate) fn parse(header: &[u8], delimiter: u8) -> Self {
        let header = header.strip_prefix(BYTE_ORDER_MARK).unwrap_or(header);
        let header = &header[count_line_breaks(header)..];
        let end = RowSplitter::inside(delimiter).row_end(header).unwrap_or(header.len());
        let mut fields = Fields { rest: (end > 0).then_some(&header[..end]), delimiter };
        let (mut field, mut given) = (Vec::new(), Vec::new());
        while fields.read(&mut field).is_some() {
            given.push(String::from_utf8_lossy(&field).into_owned());
        }
        // A number must not give a name that another column has.
        let mut taken: HashSet<String> = given.iter().cloned().collect();
        let mut numbers: HashMap<String, u64> = HashMap::new();
        let mut names = Vec::with_capacity(given.len());
        for (position, name) in given.into_iter().enumerate() {
            let number = numbers.entry(name.clone()).or_insert(1);
            if name.is_empty() {
                let name = unnamed(position, &taken);
                taken.insert(name.clone());
                names.push(name);
            } else if *number == 1 {
                *number = 2;
                names.push(name);
            } else {
                let mut numbered = format!("{name}_{number}");
                while taken.contains(&numbered) {
                    *number += 1;
                    numbered = format!("{name}_{number}");
                }
                taken.insert(numbered.clone());
                names.push(numbered);
            }
        }
        Self { delimiter, names, taken }
    }

    pub(crate) fn into_names(self) -> Vec<String> {
        self.names
    }

    /// Returns the name of the column that a byte of a row belongs to. A delimiter belongs to the field before it.
    pub(crate) fn name_at(&self, row: &[u8], at: usize) -> Option<String> {
        let mut fields = Fields::new(row, self.delimiter);
        let mut field = Vec::new();
        let mut position = 0;
        while fields.read(&mut field).is_some() {
            if fields.rest.is_none_or(|rest| at < row.len() - rest.len()) {
                return Some(
                    self.names.get(position).cloned().unwrap_or_else(|| unnamed(position, &self.taken)),
                );
            }
            position += 1;
        }
        None
    }

    /// Appends a row as a JSON object of strings.
    ///
    /// The keys of missing fields are left out; a field beyond the header is called by its position: `column_3`.
    /// The object is never shorter than the row.
    pub(crate) fn push_object(&self, row: &[u8], out: &mut Vec<u8>) {
        let mut fields = Fields::new(row, self.delimiter);
        let mut field = Vec::new();
        let mut position = 0;
        out.push(b'{');
        while fields.read(&mut field).is_some() {
            if position > 0 {
                out.push(b',');
            }
            match self.names.get(position) {
                Some(name) => push_string(name.as_bytes(), out),
                None => push_string(unnamed(position, &self.taken).as_bytes(), out),
            }
            out.push(b':');
            push_string(&field, out);
            position += 1;
        }
        out.push(b'}');
    }
}

/// Returns a name for the column at a position.
fn unnamed(position: usize, taken: &HashSet<String>) -> String {
    let base = format!("column_{}", position + 1);
    let numbered = (2..).map(|number: u64| format!("{base}_{number}"));
    std::iter::once(base.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{ItemIndex, Kind};
    use crate::items::read_items;
    use crate::range::Range;
    use crate::survey::{Nature, Survey};
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    fn index(pieces: &[&[u8]], kind: Kind) -> ItemIndex {
        let mut survey = Survey::new(Some(false), Some(kind));
        for piece in pieces {
            survey.feed(piece);
        }
        let findings = survey.finish();
        assert_eq!(findings.nature, Nature::Text);
        findings.items.expect("rows")
    }

    /// Reference: reads one character at a time. Returns each row and where it starts.
    fn naive(text: &str, delimiter: char) -> Vec<(usize, Vec<String>)> {
        let mut rows = Vec::new();
        let body = text.strip_prefix('\u{feff}').unwrap_or(text);
        let skipped = text.len() - body.len();
        let mut chars = body.char_indices().peekable();
        while let Some(&(start, first)) = chars.peek() {
            if matches!(first, '\r' | '\n') {
                chars.next();
                continue;
            }
            let mut fields = vec![String::new()];
            let (mut is_quoted, mut is_start) = (false, true);
            while let Some(&(_, char)) = chars.peek() {
                if matches!(char, '\r' | '\n') && !is_quoted {
                    break;
                }
                chars.next();
                let is_pair = char == '"' && chars.peek().is_some_and(|(_, next)| *next == '"');
                match char {
                    '"' if is_quoted && is_pair => {
                        chars.next();
                        fields.last_mut().unwrap().push('"');
                    }
                    '"' if is_quoted => is_quoted = false,
                    '"' if is_start => is_quoted = true,
                    _ if char == delimiter && !is_quoted => {
                        fields.push(String::new());
                        is_start = true;
                        continue;
                    }
                    _ => fields.last_mut().unwrap().push(char),
                }
                is_start = false;
            }
            rows.push((skipped + start, fields));
        }
        rows
    }

    fn read(
        text: &str,
        index: &ItemIndex,
        range: Range,
        max_bytes: usize,
    ) -> (Vec<Map<String, Value>>, Option<u64>) {
        let page = read_items(text.as_bytes(), 0, index, range, max_bytes).unwrap();
        assert!(page.content.len() <= max_bytes);
        assert_eq!(page.truncated, None);
        (serde_json::from_slice(&page.content).unwrap(), page.next_offset)
    }

    #[test]
    fn every_column_has_a_name_of_its_own() {
        let names = |header: &str| Columns::parse(header.as_bytes(), b',').into_names();
        assert_eq!(names("id,name\n"), ["id", "name"]);
        assert_eq!(names("\u{feff}\r\n\"a\"\"b\",\"c,\nd\"\r\n"), ["a\"b", "c,\nd"]);
        assert_eq!(names("a,a,a_2,a"), ["a", "a_3", "a_2", "a_4"]);
        assert_eq!(names(",,column_2,"), ["column_1", "column_2_2", "column_2", "column_4"]);
        assert_eq!(names(""), [""; 0]);
    }

    #[test]
    fn a_long_header_gives_no_rows() {
        for (len, has_rows) in [(64 * 1024 - 1, true), (64 * 1024, false)] {
            let mut survey = Survey::new(Some(false), Some(Kind::Csv));
            survey.feed("x".repeat(len).as_bytes());
            survey.feed(b"\n1\n2\n");
            assert_eq!(survey.finish().items.is_some(), has_rows);
        }
    }

    #[test]
    fn many_equal_names_are_numbered() {
        let names = Columns::parse("a,".repeat(32_000).as_bytes(), b',').into_names();
        assert_eq!(names[31_999], "a_32000");
    }

    proptest! {
        #[test]
        fn every_cut_gives_the_rows_of_a_naive_reader(
            text in "(\u{feff}|\u{fefe}|\u{ff21})?([ab\\\\é\u{1}]|\"|\"\"|,|\t|\n|\r|\r\n|,\"|\"\n){0,30}",
            is_tab in any::<bool>(),
            budget in 200..400_usize,
        ) {
            let (kind, delimiter) = if is_tab { (Kind::Tsv, '\t') } else { (Kind::Csv, ',') };
            let whole = index(&[text.as_bytes()], kind);
            for cut in 0..=text.len() {
                let (head, tail) = text.as_bytes().split_at(cut);
                prop_assert_eq!(&index(&[head, tail], kind), &whole, "cut at {}", cut);
            }
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            prop_assert_eq!(&index(&bytes, kind), &whole);
            prop_assert_eq!(ItemIndex::from_bytes(&whole.to_bytes()), Ok(whole.clone()));

            let mut rows = naive(&text, delimiter).into_iter();
            let header = rows.next().map(|(_, fields)| fields).unwrap_or_default();
            let names = whole.column_names().unwrap();
            prop_assert_eq!(names.len(), header.len());
            let rows: Vec<_> = rows.collect();
            prop_assert_eq!(whole.len(), rows.len() as u64);

            let (mut items, mut next) = (Vec::new(), Some(0));
            while let Some(offset) = next {
                let page;
                (page, next) = read(&text, &whole, Range::From(offset), budget + 16 * text.len());
                items.extend(page);
            }
            for (number, (item, (start, fields))) in items.iter().zip(&rows).enumerate() {
                prop_assert_eq!(item.len(), fields.len());
                for (position, field) in fields.iter().enumerate() {
                    let value = match names.get(position) {
                        Some(name) => item.get(name),
                        None => item.get(&unnamed(position, &names.iter().cloned().collect())),
                    };
                    prop_assert_eq!(value, Some(&Value::from(field.as_str())));
                }
                let (page, _) = read(&text, &whole, Range::Bounded { offset: number as u64, limit: 1 }, 4096);
                prop_assert_eq!(&page[0], item);
                let mut finder = crate::index::ItemFinder::new(text.as_bytes(), &whole);
                prop_assert_eq!(finder.item_at(*start as u64), Some(number as u64));
            }
            prop_assert_eq!(items.len(), rows.len());
            let mut finder = crate::index::ItemFinder::new(text.as_bytes(), &whole);
            for offset in 0..text.len() {
                let started = rows.iter().filter(|(start, _)| *start <= offset).count() as u64;
                prop_assert_eq!(finder.item_at(offset as u64), started.checked_sub(1), "{} of {:?}", offset, text);
            }
        }

        #[test]
        fn an_index_of_other_rows_does_not_panic(
            text in "(a|b|,|\"|\n|é){0,60}",
            data in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'"'), Just(b','), any::<u8>()], 0..60),
            base in 0..8_u64,
            offset in 0..12_u64,
        ) {
            let index = index(&[text.as_bytes()], Kind::Csv);
            if let Ok(page) = read_items(&data, base, &index, Range::Bounded { offset, limit: 3 }, 40) {
                prop_assert!(serde_json::from_slice::<Vec<Value>>(&page.content).is_ok());
                prop_assert!(page.content.len() <= 40);
            }
            let mut finder = crate::index::ItemFinder::new(&data, &index);
            for offset in 0..text.len() as u64 {
                finder.item_at(offset);
            }
        }

        #[test]
        fn a_page_needs_only_its_rows(rows in 1..400_usize, offset in 0..400_u64, limit in 1..20_u64, field in 1..600_usize) {
            // Some rows span blocks, and some blocks hold no start of a row.
            let row = |number: usize| format!("{number},\"{}\n\"\r\n", "x\"\",".repeat(number % 7 * field));
            let text = format!("id,text\r\n{}", (0..rows).map(row).collect::<String>());
            let index = index(&[text.as_bytes()], Kind::Csv);
            let range = Range::Bounded { offset, limit };
            let span = index.span(range);
            let data = &text.as_bytes()[span.start as usize..span.end as usize];
            let page = read_items(data, span.start, &index, range, 1 << 20).unwrap();
            let items: Vec<Value> = serde_json::from_slice(&page.content).unwrap();
            let expected = (offset..offset + limit).take_while(|number| *number < rows as u64);
            prop_assert_eq!(page.total, rows as u64);
            for (item, number) in items.iter().zip(expected) {
                let text = format!("{}\n", "x\",".repeat(number as usize % 7 * field));
                prop_assert_eq!(item, &serde_json::json!({"id": number.to_string(), "text": text}));
            }
            prop_assert_eq!(items.len() as u64, page.returned);
            prop_assert_eq!(page.returned, limit.min((rows as u64).saturating_sub(offset)));
        }

        #[test]
        fn a_row_that_does_not_fit_is_cut_alone(len in 200..2000_usize, cut in 0..100_usize) {
            let text = format!("a,b\n1,2\n{},\"\"\"\"\n3,4", "é".repeat(len));
            let index = index(&[text.as_bytes()], Kind::Csv);
            let page = read_items(text.as_bytes(), 0, &index, Range::From(1), 100 + cut).unwrap();
            prop_assert!(page.content.len() <= 100 + cut);
            prop_assert!(serde_json::from_slice::<Vec<Value>>(&page.content).is_ok());
            let item = serde_json::to_vec(&serde_json::json!({"a": "é".repeat(len), "b": "\""})).unwrap();
            let truncated = page.truncated.unwrap();
            prop_assert_eq!((truncated.index, truncated.size_bytes, truncated.byte_offset), (1, item.len() as u64, 8));
            prop_assert_eq!((page.returned, page.next_offset), (1, Some(2)));
        }
    }
}
