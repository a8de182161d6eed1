//! Merges the values of a payload into a shape. However large or hostile the payload: bounded depth,
//! bounded memory, and beyond a bounded number of values only counting.

use super::SAMPLE;
use super::shape::{BOOL, FLOAT, INT, MAX_KEYS, NULL, Object, STR, Shape};
use crate::error::Result;
use crate::ndjson::{expect_end, is_first_line, lines};
use crate::pointer::unescape;
use crate::reader::{Kind, Reader};
use crate::scan::Isa;

/// Containers deeper than this are counted, not entered.
const MAX_DEPTH: usize = 32;

/// So many fields are told apart in a whole payload.
pub(super) const MAX_FIELDS: usize = 10_000;

/// So many values are looked at in a whole payload.
const MAX_VALUES: usize = 200_000;

/// An array stops merging items after so many values in them, so that what comes later has its share.
const MAX_VALUES_OF_ARRAY: usize = 20_000;

pub(super) struct Document<'a> {
    pub(super) shape: Shape<'a>,
    pub(super) is_ndjson: bool,
}

pub(super) fn read(isa: Isa, data: &[u8]) -> Result<Document<'_>> {
    let mut reader = Reader::new(data, isa);
    let mut shape = Shape::default();
    Gathering::over(data).value(&mut reader, &mut shape, 0)?;
    let is_ndjson = is_first_line(&mut reader, data, isa)?;
    if is_ndjson {
        shape = Shape::default();
        Gathering::over(data).lines(isa, &mut shape)?;
    }
    Ok(Document { shape, is_ndjson })
}

struct Gathering<'a> {
    data: &'a [u8],
    /// How many values were looked at.
    values: usize,
    /// How many fields there are in the whole tree.
    fields: usize,
}

impl<'a> Gathering<'a> {
    fn over(data: &'a [u8]) -> Self {
        Self { data, values: 0, fields: 0 }
    }

    fn lines(&mut self, isa: Isa, shape: &mut Shape<'a>) -> Result<()> {
        let array = shape.array.get_or_insert_default();
        let mut lines = lines(self.data);
        let mut len = 0;
        while len < SAMPLE
            && self.values < MAX_VALUES_OF_ARRAY
            && let Some(line) = lines.next()
        {
            let mut reader = Reader::at(&self.data[..line.end], line.start, isa);
            self.value(&mut reader, &mut array.item, 1)?;
            expect_end(&mut reader)?;
            len += 1;
        }
        array.len.add(len + lines.count() as u64);
        Ok(())
    }

    fn value(&mut self, reader: &mut Reader<'_>, shape: &mut Shape<'a>, depth: usize) -> Result<()> {
        self.values += 1;
        let may_enter = depth < MAX_DEPTH && self.values < MAX_VALUES;
        match reader.kind()? {
            Kind::Object => {
                reader.open();
                let object = shape.object.get_or_insert_default();
                object.seen += 1;
                let keys = if may_enter { self.object(reader, object, depth)? } else { count(reader, b'}')? };
                object.is_cut |= !may_enter && keys > 0;
                object.keys.add(keys);
            }
            Kind::Array => {
                reader.open();
                let array = shape.array.get_or_insert_default();
                let len = if may_enter {
                    self.array(reader, &mut array.item, depth)?
                } else {
                    count(reader, b']')?
                };
                array.len.add(len);
            }
            // Nothing of a string is shown, so none of it has to be read.
            Kind::String => {
                reader.skip()?;
                shape.scalars |= STR;
            }
            Kind::Number => {
                let number = &self.data[reader.scalar()?];
                let is_float = number.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
                shape.scalars |= if is_float { FLOAT } else { INT };
            }
            Kind::Bool => {
                reader.scalar()?;
                shape.scalars |= BOOL;
            }
            Kind::Null => {
                reader.scalar()?;
                shape.scalars |= NULL;
            }
        }
        Ok(())
    }

    fn array(&mut self, reader: &mut Reader<'_>, item: &mut Shape<'a>, depth: usize) -> Result<u64> {
        let before = self.values;
        let mut len = 0;
        while reader.next_item(len == 0)? {
            self.value(reader, item, depth + 1)?;
            len += 1;
            if len == SAMPLE || self.values - before >= MAX_VALUES_OF_ARRAY {
                return Ok(len + reader.skip_rest()?);
            }
        }
        Ok(len)
    }

    fn object(&mut self, reader: &mut Reader<'_>, object: &mut Object<'a>, depth: usize) -> Result<u64> {
        let (mut keys, mut guess) = (0, 0);
        while let Some(key) = reader.next_key(keys == 0)? {
            keys += 1;
            let raw = &self.data[key];
            // A key that stands for no text is shown as it is written.
            let key = unescape(raw).unwrap_or_else(|| String::from_utf8_lossy(raw));
            let before = object.fields.len();
            if let Some(at) = object.position(key, guess, self.fields < MAX_FIELDS) {
                self.fields += object.fields.len() - before;
                guess = at + 1;
                let field = &mut object.fields[at];
                field.seen += 1;
                self.value(reader, &mut field.shape, depth + 1)?;
            } else {
                reader.skip()?;
            }
            if keys == MAX_KEYS as u64 {
                let rest = reader.skip_rest()?;
                object.is_cut |= rest > 0;
                return Ok(keys + rest);
            }
        }
        Ok(keys)
    }
}

/// From right behind its opening bracket, passes over a container and counts what is directly inside.
fn count(reader: &mut Reader<'_>, closing: u8) -> Result<u64> {
    if reader.take(closing)? { Ok(0) } else { Ok(1 + reader.skip_rest()?) }
}
